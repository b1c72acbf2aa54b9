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
	quiet bool                     // nobody tells of changes, since connections are shared out
	shell func(testing.TB) *sql.DB // opens it the way another program does
}

// open opens the database; again and again, the same one.
func (d database) open(t testing.TB) *store.Store {
	t.Helper()
	return openDSN(t, d.options())
}

func (d database) options() store.Options { return store.Options{DSN: d.dsn, NoNotify: d.quiet} }

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

	// With two connections to each database, a transaction now and then gets
	// one that another has left something behind in.
	pooler = sync.OnceValues(func() (*storetest.Pooler, error) {
		server, err := postgres()
		if err != nil {
			return nil, err
		}
		return storetest.NewPooler(server, 2)
	})
)

func stopServers() (err error) {
	servers.Range(func(s, _ any) bool {
		err = s.(interface{ Stop() error }).Stop()
		return err == nil
	})
	return err
}

// kinds make a database of each kind. In the place of MariaDB stands MySQL, if
// the environment says so: see storetest.MySQLProgram.
var kinds = []struct {
	name string
	make func(testing.TB) database
}{
	{"SQLite", func(t testing.TB) database {
		path := filepath.Join(t.TempDir(), "headgate.db")
		return database{"SQLite", "sqlite:" + path, false, func(t testing.TB) *sql.DB { return shell(t, path) }}
	}},
	{"PostgreSQL", func(t testing.TB) database { return onServer(t, "PostgreSQL", postgres) }},
	{"MariaDB", func(t testing.TB) database { return onServer(t, "MariaDB", mariadb) }},
	{"PgBouncer", pooled},
}

func onServer(t testing.TB, kind string, start func() (*storetest.Server, error)) database {
	t.Helper()
	server, err := start()
	must(t, err)
	servers.Store(server, true)
	return databaseOf(t, kind, server)
}

// pooled is a PostgreSQL behind a pooler that hands the connection of one
// transaction to the next.
func pooled(t testing.TB) database {
	t.Helper()
	p, err := pooler()
	must(t, err)
	servers.Store(p, true)
	server, err := postgres()
	must(t, err)
	servers.Store(server, true)
	name, _, err := server.Database(context.Background())
	must(t, err)
	return database{"PostgreSQL", p.DSN(name), true, shellOf(server, name)}
}

func databaseOf(t testing.TB, kind string, server *storetest.Server) database {
	t.Helper()
	name, dsn, err := server.Database(context.Background())
	must(t, err)
	return database{kind, dsn, false, shellOf(server, name)}
}

func shellOf(server *storetest.Server, name string) func(testing.TB) *sql.DB {
	return func(t testing.TB) *sql.DB {
		t.Helper()
		db, err := server.Shell(name)
		must(t, err)
		db.SetMaxOpenConns(1)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
}

// everywhere runs a test on a database of each kind: what a Store promises does
// not depend on what it stands on. The kinds run at once, as each waits for
// another server.
func everywhere(t *testing.T, test func(*testing.T, database)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, k.make(t))
		})
	}
}

// everywhereButSQLite is everywhere for what servers alone do.
func everywhereButSQLite(t *testing.T, test func(*testing.T, database)) {
	for _, k := range kinds[1:3] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, k.make(t))
		})
	}
}
