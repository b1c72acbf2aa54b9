// Package database keeps policies, projects, API keys and the audit in a database:
// one SQLite file, which an installation without a database has, or PostgreSQL,
// MySQL or MariaDB. Rules may also stand in a table that somebody else keeps.
//
// A [Store] is a policy.Source, and [Store.Keys] a source of API keys. Whoever
// changes the database is noticed: this process, another headgate, or somebody
// with a shell. Three columns make a policy:
//
//	INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /v1/items/{id}', 'acme', 50);
//
// Every change of rules and tiers is a version, whoever made it: [Store.History]
// lists them, [Store.At] brings one up and [Store.Rollback] back.
//
// Guarantees: a change that was acknowledged survives kill -9 and, as far as
// the database is set up for it, loss of power; a reader sees the state between
// two transactions, never half of one; a file that is replaced or restored
// while it is open is opened anew, and a server that was away is used again
// when it is back. All methods may be called concurrently, by several processes
// too.
package database

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/headgate-io/headgate/policy"
)

// Store is an open policy database. Close it.
type Store struct {
	db       engine
	table    *table // nil unless the rules stand in somebody else's table
	readOnly bool
	later    later
}

// engine is one kind of database. Its errors are the driver's, and say puts
// them into words.
type engine interface {
	// name is what messages call the database: a path, or a URL without what
	// is secret in it.
	name() string

	// read and write run do in one transaction. The one sees the state at its
	// first query and no later one, and the other is alone among the writers
	// of this program, in all processes. What write runs may run again.
	read(ctx context.Context, do func(*tx) error) error
	write(ctx context.Context, do func(*tx) error) error

	// single runs do with statements that are a transaction each and wait for
	// nobody's turn. What it runs may run again.
	single(ctx context.Context, do func(statements) error) error

	// version reports a text that differs after every change of what gateways
	// read, cheaply. load is read, with a version that is not newer than what
	// it sees.
	version(ctx context.Context) (string, error)
	load(ctx context.Context, do func(*tx) error) (version string, err error)

	// watch calls changed after changes, as soon as the database tells of
	// them, until ctx ends. It returns at once if the database never does.
	watch(ctx context.Context, changed func())

	check(ctx context.Context) error
	say(err error) string
	close() error
}

var _ policy.Streamer = (*Store)(nil)

// Path reports what the database is called: of a file its path, absolute, and
// of a server its URL without what is secret in it.
func (s *Store) Path() string {
	if s.table != nil {
		return s.table.name()
	}
	return s.db.name()
}

// Elsewhere is where the rules are kept, if that is no database; else nil.
func (s *Store) Elsewhere() Elsewhere {
	if s.table == nil {
		return nil
	}
	e, _ := s.table.source.(Elsewhere)
	return e
}

// Close closes the database. What is under way ends first.
func (s *Store) Close() error {
	s.later.close()
	err := s.db.close()
	if s.table != nil {
		err = errors.Join(err, s.table.close())
	}
	return err
}

// Check looks for damage. Of a file it reads the whole, which takes several
// seconds for a million rules; servers look after their own.
func (s *Store) Check(ctx context.Context) error { return explain(ctx, s.db, s.db.check(ctx)) }

// Version reports a text that differs after every change of the rules, tiers
// and API keys, whoever made it; "" if that can only be told by loading. It is
// the same in all processes, and may be asked often.
func (s *Store) Version(ctx context.Context) (string, error) {
	if s.table != nil {
		return s.table.version(ctx)
	}
	return s.version(ctx)
}

func (s *Store) version(ctx context.Context) (string, error) {
	version, err := s.db.version(ctx)
	return version, explain(ctx, s.db, err)
}

// Load reads all policies and projects as they are at one moment, and a version
// that is not newer. It is policy.Source's.
func (s *Store) Load(ctx context.Context) (doc policy.Document, version string, err error) {
	return s.LoadInto(ctx, nil)
}

// LoadInto is Load, and tells a Draft of the rules while it reads. It is
// policy.Streamer's.
func (s *Store) LoadInto(ctx context.Context, d *policy.Draft) (doc policy.Document, version string, err error) {
	if s.table != nil {
		return s.table.load(ctx)
	}
	s.numberSoon(ctx)
	version, err = s.db.load(ctx, func(tx *tx) (err error) {
		var rules int
		doc, rules, err = s.readInto(ctx, tx, d)
		if err == nil && rules == 0 {
			doc.Cleared, err = s.clearedBy(ctx, tx)
		}
		return err
	})
	if err != nil {
		return policy.Document{}, versionAtFault(version, err), explain(ctx, s.db, err)
	}
	return doc, version, nil
}

// versionAtFault reports the version together with an error that every load of
// it would meet, so that it is not loaded again and again.
func versionAtFault(version string, err error) string {
	if isProblem(err) {
		return version
	}
	return ""
}

// Watch calls changed after changes, if the database tells of them: PostgreSQL
// does. It is a hint that saves the wait until the next look, never a promise:
// whoever needs to know looks at Version now and then all the same. Watch
// returns when ctx ends, or at once if the database never tells.
func (s *Store) Watch(ctx context.Context, changed func()) {
	if s.table != nil {
		if s.table.watch != nil {
			s.table.watch(ctx, changed)
		}
		return // no trigger of ours tells of changes in it
	}
	s.db.watch(ctx, changed)
}

// write runs do in one transaction.
func (s *Store) write(ctx context.Context, do func(*tx) error) error {
	return explain(ctx, s.db, s.db.write(ctx, do))
}

// read runs do in one transaction: it sees the state at its first query, and no
// later one.
func (s *Store) read(ctx context.Context, do func(*tx) error) error {
	return explain(ctx, s.db, s.db.read(ctx, do))
}

func transact(ctx context.Context, db *sql.DB, o *sql.TxOptions, d *dialect, do func(*tx) error) error {
	tx, err := begin(ctx, db, o, d)
	if err != nil {
		return err
	}
	return tx.finish(do)
}

// begin begins a transaction on a connection that is at hand, for what
// database/sql has no words for.
func begin(ctx context.Context, db *sql.DB, o *sql.TxOptions, d *dialect) (*tx, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	begun, err := conn.BeginTx(ctx, o)
	if err != nil {
		_ = conn.Close() // the first error is the one to tell
		return nil, err
	}
	return &tx{Tx: begun, conn: conn, dialect: d}, nil
}

// finish runs do in a transaction that has begun, and gives its connection back.
func (t *tx) finish(do func(*tx) error) error {
	defer t.conn.Close()
	if err := do(t); err != nil {
		_ = t.Rollback() // the first error is the one to tell
		return err
	}
	return t.Commit()
}

// newID returns a random name of 80 bits, with a prefix that says of what.
func newID(prefix string) string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
