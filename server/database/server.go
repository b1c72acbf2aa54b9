package database

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

const (
	// lookWait bounds one look at the version: a server that is frozen must
	// not keep a look waiting as long as a load may take.
	lookWait = 5 * time.Second

	// connectWait bounds one attempt to connect, to one host. It is well below
	// lookWait, so that a look gets to the second address of a name, or the
	// second host, where the first takes packets and answers none.
	connectWait = 2 * time.Second

	// writeAttempts is how often a change is tried that others, who lock rows
	// in another order, keep from being made.
	writeAttempts = 5

	// Connections live no longer than connectionLife, so that a change of
	// passwords, addresses or the leading server reaches all of them.
	connectionLife = 5 * time.Minute
	connectionIdle = 5 * time.Minute

	idleConnections = 2
)

// server is a database on a server.
type server struct {
	kind     kind
	title    string // its URL without what is secret
	db       *sql.DB
	readOnly bool
	lookWait time.Duration
	known    int64 // the schema that this program knows
	closed   atomic.Bool
}

var _ engine = (*server)(nil)

// kind is what servers of one kind have of their own.
type kind interface {
	dialect() *dialect
	migrations() (folder string, of goose.Dialect)

	// begin is what a transaction that writes begins with: it waits for the
	// other writers, at most for lockWait.
	begin() []string
	writing() *sql.TxOptions

	// tables is a query for the names of the tables and views that are there.
	tables() string

	// alone runs do while no other process migrates.
	alone(ctx context.Context, db *sql.DB, do func() error) error

	// spare is the time that hosts may take which do not answer, before the
	// one that does.
	spare() time.Duration

	// broken reports whether an error means that the connection was no good,
	// and that the driver has not noticed by itself.
	broken(err error) bool

	// meaning says in words what the server says in codes, "" if it has no
	// better words than the server's. passing means that trying again helps.
	meaning(err error) (text string, passing bool)

	watch(ctx context.Context, changed func())
}

func openServer(ctx context.Context, k kind, title string, db *sql.DB, o Options) (*server, error) {
	db.SetMaxOpenConns(readers + 1)
	db.SetMaxIdleConns(idleConnections)
	db.SetConnMaxLifetime(connectionLife)
	db.SetConnMaxIdleTime(connectionIdle)
	s := &server{kind: k, title: title, db: db, readOnly: o.ReadOnly, lookWait: lookWait + k.spare()}
	if err := s.prepare(ctx, o); err != nil {
		return nil, errors.Join(explain(ctx, s, err), db.Close())
	}
	return s, nil
}

func (s *server) name() string { return s.title }

func (s *server) close() error {
	s.closed.Store(true)
	return s.db.Close()
}

// check leaves it to the server to look for damage.
func (s *server) check(ctx context.Context) error { return s.db.PingContext(ctx) }

func (s *server) watch(ctx context.Context, changed func()) { s.kind.watch(ctx, changed) }

const selectVersion = "SELECT version FROM headgate_version"

// selectSchema is a query for the last migration that a database has seen.
const selectSchema = "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied"

// checkSchema refuses what another headgate has made of the database while this
// one runs: its columns may mean something else, or be half of what limits.
func checkSchema(has, known int64) error {
	switch {
	case has > known:
		return fault(
			fmt.Sprintf(
				"was written by a newer headgate (schema %d, this one knows %d), want that headgate or a newer "+
					"one", has, known))
	case has < known:
		return fault(
			fmt.Sprintf("has an older schema (%d, this headgate reads %d), want it opened once for writing, which "+
				"brings it up to date", has, known))
	}
	return nil
}

func (s *server) version(ctx context.Context) (version string, err error) {
	look, cancel := context.WithTimeout(ctx, s.lookWait)
	defer cancel()
	var schema int64
	err = s.unbroken(look, func() error {
		return s.db.QueryRowContext(look, "SELECT version, ("+selectSchema+") FROM headgate_version").
			Scan(&version, &schema)
	})
	if err == nil {
		err = checkSchema(schema, s.known)
	}
	if err != nil && look.Err() != nil && ctx.Err() == nil {
		return "", fault(fmt.Sprintf("does not answer within %v", s.lookWait))
	}
	return version, err
}

// snapshot is a transaction that reads the state at its first query: what
// several queries find belongs together.
var snapshot = &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}

func (s *server) read(ctx context.Context, do func(*tx) error) error {
	return s.transact(ctx, snapshot, do)
}

// transact runs do in one transaction.
func (s *server) transact(ctx context.Context, o *sql.TxOptions, do func(*tx) error) error {
	var begun *tx
	err := s.unbroken(ctx, func() (err error) {
		begun, err = begin(ctx, s.db, o, s.kind.dialect())
		return err
	})
	if err != nil {
		return err
	}
	return begun.finish(do)
}

// unbroken runs do, which may run again, until it gets a connection that has
// not died in the pool: after a restart of the server all have.
func (s *server) unbroken(ctx context.Context, do func() error) (err error) {
	for range idleConnections + 1 {
		err = do()
		if err == nil || ctx.Err() != nil || !errors.Is(err, driver.ErrBadConn) && !s.kind.broken(err) {
			return err
		}
	}
	return err
}

func (s *server) load(ctx context.Context, do func(*tx) error) (version string, err error) {
	err = s.read(ctx, func(tx *tx) error {
		if err := tx.QueryRowContext(ctx, selectVersion).Scan(&version); err != nil {
			return err
		}
		if err := tx.checkSchema(ctx, s.known); err != nil {
			return err
		}
		return do(tx)
	})
	return version, err
}

func (s *server) write(ctx context.Context, do func(*tx) error) (err error) {
	if s.readOnly {
		return fault("is open read-only, want it opened for writing")
	}
	for attempt := 1; ; attempt++ {
		err = s.transact(ctx, s.kind.writing(), func(tx *tx) error {
			for _, statement := range s.kind.begin() {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
			if err := tx.checkSchema(ctx, s.known); err != nil {
				return err
			}
			return do(tx)
		})
		if err == nil || attempt == writeAttempts || ctx.Err() != nil {
			return err
		}
		if _, passing := s.kind.meaning(err); !passing {
			return err
		}
	}
}

func (s *server) single(ctx context.Context, do func(statements) error) error {
	if s.readOnly {
		return fault("is open read-only, want it opened for writing")
	}
	return s.unbroken(ctx, func() error { return do(statements{s.db, s.kind.dialect()}) })
}

// say puts an error into words.
func (s *server) say(err error) string {
	var f fault
	if errors.As(err, &f) {
		return string(f)
	}
	if s.closed.Load() {
		return "is closed"
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return "shows a certificate that is not believed (" + oneLine(certificate.Err.Error()) +
			"), want the authority that it is by, in sslrootcert or ssl-ca, and the host that it is for"
	}
	if text, _ := s.kind.meaning(err); text != "" {
		return text
	}
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		return "cannot be reached (" + oneLine(dns.Error()) + "), want the name of the host that the database runs on"
	case errors.As(err, &op) && op.Op == "dial":
		return "cannot be reached (" + oneLine(op.Err.Error()) +
			"), want the database running there, and its port open to this machine"
	case errors.Is(err, sql.ErrNoRows):
		return "has no row in table headgate_version, want one back: INSERT INTO headgate_version (id, version) " +
			"VALUES (1, 'restored')"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "does not answer"
	}
	return "said: " + oneLine(err.Error())
}

// prepare makes sure that the database has the tables that this program knows.
// Who may not change the schema, because it is a standby's or the user has no
// right to, can use one that is up to date.
func (s *server) prepare(ctx context.Context, o Options) error {
	p, err := s.provider()
	if err != nil {
		return err
	}
	s.known = target(p)
	has, err := s.schemaVersion(ctx, s.known, o.Existing || o.ReadOnly)
	if err != nil || has == s.known {
		return err
	}
	if s.readOnly {
		return checkSchema(has, s.known)
	}
	return s.kind.alone(ctx, s.db, func() error { return s.migrate(ctx, p, o.Existing) })
}

// migrate brings the schema up to date. Processes that start at the same moment
// may be in each other's way: whoever fails looks again, and finds what the
// other has done.
func (s *server) migrate(ctx context.Context, p *goose.Provider, existing bool) error {
	known := target(p)
	for attempt := 1; ; attempt++ {
		_, err := p.Up(ctx)
		if err == nil {
			return nil
		}
		has, errLook := s.schemaVersion(ctx, known, existing)
		switch {
		case errLook != nil:
			return errLook
		case has == known:
			return nil
		case attempt == migrateAttempts:
			return fmt.Errorf("bring the schema up to date: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(attempt) * (20*time.Millisecond + rand.N(20*time.Millisecond))):
		}
	}
}

func (s *server) provider() (*goose.Provider, error) {
	name, dialect := s.kind.migrations()
	folder, err := fs.Sub(migrations, name)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(dialect, s.db, folder, goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()))
}

// schemaVersion reports the last migration that the database has seen, 0 for
// none. It refuses the tables of another program, and what is newer.
func (s *server) schemaVersion(ctx context.Context, known int64, existing bool) (version int64, err error) {
	rows, err := s.db.QueryContext(ctx, s.kind.tables())
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var ours, migrated bool
	var other string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return 0, err
		}
		switch table {
		case "headgate_version":
			ours = true
		case "goose_db_version":
			migrated = true
		default:
			other = table
		}
	}
	switch err := rows.Err(); {
	case err != nil:
		return 0, err
	case !ours && other != "":
		return 0,
			fault(
				fmt.Sprintf("has tables of another program (%q), want a database or schema for headgate alone, or "+
					"db_table for rules that stand in a table of your own", other))
	case existing && !(ours && migrated):
		return 0,
			fault("has no tables of headgate, want the database that has them, or one that `headgate policy set` " +
				"has made them in")
	case !migrated:
		return 0, nil
	}
	if err := s.db.QueryRowContext(ctx, selectSchema).Scan(&version); err != nil {
		return 0, err
	}
	return version, checkSchema(max(version, known), known)
}

// title is a URL as messages show it.
func title(scheme, user, host, database string) string {
	if user != "" {
		user += "@"
	}
	if strings.HasPrefix(host, "/") { // a socket
		return scheme + "://" + user + host + " (" + database + ")"
	}
	return scheme + "://" + user + host + "/" + database
}
