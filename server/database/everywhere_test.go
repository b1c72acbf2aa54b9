package database_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/dbtest"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
)

// someDatabase is an empty database of some kind.
type someDatabase struct {
	kind  string
	dsn   string
	quiet bool                     // nobody tells of changes, since connections are shared out
	shell func(testing.TB) *sql.DB // opens it the way another program does
}

// open opens the database; again and again, the same one.
func (d someDatabase) open(t testing.TB) *database.Store {
	t.Helper()
	return openDSN(t, d.options())
}

func (d someDatabase) options() database.Options {
	return database.Options{DSN: d.dsn, NoNotify: d.quiet}
}

func openDSN(t testing.TB, o database.Options) *database.Store {
	t.Helper()
	s, err := database.New(t.Context(), o)
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
	postgres = sync.OnceValues(dbtest.Postgres)
	mariadb  = sync.OnceValues(dbtest.MariaDB)
	servers  sync.Map // those that run

	// With two connections to each database, a transaction now and then gets
	// one that another has left something behind in.
	pooler = sync.OnceValues(func() (*dbtest.Pooler, error) {
		server, err := postgres()
		if err != nil {
			return nil, err
		}
		return dbtest.NewPooler(server, 2)
	})
)

func stopServers() (err error) {
	servers.Range(func(s, _ any) bool {
		err = s.(interface{ Stop() error }).Stop()
		return err == nil
	})
	return err
}

// kinds make a database of each kind. In place of MariaDB stands MySQL, if
// the environment says so: see dbtest.MySQLProgram.
var kinds = []struct {
	name string
	make func(testing.TB) someDatabase
}{
	{"SQLite", func(t testing.TB) someDatabase {
		path := filepath.Join(t.TempDir(), "headgate.db")
		return someDatabase{"SQLite", sqlitetest.New(t, path), false,
			func(t testing.TB) *sql.DB { return shell(t, path) }}
	}},
	{"PostgreSQL", func(t testing.TB) someDatabase { return onServer(t, "PostgreSQL", postgres) }},
	{"MariaDB", func(t testing.TB) someDatabase { return onServer(t, "MariaDB", mariadb) }},
	{"PgBouncer", pooled},
}

func onServer(t testing.TB, kind string, start func() (*dbtest.Server, error)) someDatabase {
	t.Helper()
	server, err := start()
	must(t, err)
	servers.Store(server, true)
	d := databaseOf(t, kind, server)
	if kind == "PostgreSQL" {
		d.dsn += "&connect_timeout=60" // on a busy machine, a connection takes long to make
	}
	return d
}

// pooled is a PostgreSQL behind a pooler that hands the connection of one
// transaction to the next.
func pooled(t testing.TB) someDatabase {
	t.Helper()
	p, err := pooler()
	must(t, err)
	servers.Store(p, true)
	server, err := postgres()
	must(t, err)
	servers.Store(server, true)
	name, _, err := server.Database(context.Background())
	must(t, err)
	return someDatabase{"PostgreSQL", p.DSN(name), true, shellOf(server, name)}
}

func databaseOf(t testing.TB, kind string, server *dbtest.Server) someDatabase {
	t.Helper()
	name, dsn, err := server.Database(context.Background())
	must(t, err)
	return someDatabase{kind, dsn, false, shellOf(server, name)}
}

func shellOf(server *dbtest.Server, name string) func(testing.TB) *sql.DB {
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
func everywhere(t *testing.T, test func(*testing.T, someDatabase)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, k.make(t))
		})
	}
}

// everywhereButSQLite is everywhere for what servers alone do, asked directly.
func everywhereButSQLite(t *testing.T, test func(*testing.T, someDatabase)) {
	for _, k := range kinds {
		if k.name == "SQLite" || k.name == "PgBouncer" {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, k.make(t))
		})
	}
}
