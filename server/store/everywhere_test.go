package store_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/server/store"
	"github.com/headgate-io/headgate/server/store/storetest"
)

// database is an empty database of some kind.
type database struct {
	kind  string
	dsn   string
	shell func(testing.TB) *sql.DB // opens it the way another program does
}

// open opens the database; again and again, the same one.
func (d database) open(t testing.TB) *store.Store {
	t.Helper()
	return openDSN(t, store.Options{DSN: d.dsn})
}

func openDSN(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	s, err := store.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// The servers run from the first test that wants one to the end of the last.
var (
	postgres = sync.OnceValues(storetest.Postgres)
	mariadb  = sync.OnceValues(storetest.MariaDB)
	servers  sync.Map // those that run
)

func stopServers() (err error) {
	servers.Range(func(s, _ any) bool {
		err = s.(*storetest.Server).Stop()
		return err == nil
	})
	return err
}

// kinds make a database of each kind.
var kinds = []struct {
	name string
	make func(testing.TB) database
}{
	{"SQLite", func(t testing.TB) database {
		path := filepath.Join(t.TempDir(), "headgate.db")
		return database{"SQLite", "sqlite:" + path, func(t testing.TB) *sql.DB { return shell(t, path) }}
	}},
	{"PostgreSQL", func(t testing.TB) database { return onServer(t, "PostgreSQL", postgres) }},
	{"MariaDB", func(t testing.TB) database { return onServer(t, "MariaDB", mariadb) }},
}

func onServer(t testing.TB, kind string, start func() (*storetest.Server, error)) database {
	t.Helper()
	server, err := start()
	must(t, err)
	servers.Store(server, true)
	return databaseOf(t, kind, server)
}

func databaseOf(t testing.TB, kind string, server *storetest.Server) database {
	t.Helper()
	name, dsn, err := server.Database(context.Background())
	must(t, err)
	return database{kind, dsn, func(t testing.TB) *sql.DB {
		t.Helper()
		db, err := server.Shell(name)
		must(t, err)
		db.SetMaxOpenConns(1)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}}
}

// everywhere runs a test on a database of each kind: what a Store promises does
// not depend on what it stands on.
func everywhere(t *testing.T, test func(*testing.T, database)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { test(t, k.make(t)) })
	}
}

func everywhereButSQLite(t *testing.T, test func(*testing.T, database)) {
	for _, k := range kinds[1:] {
		t.Run(k.name, func(t *testing.T) { test(t, k.make(t)) })
	}
}
