// Package store keeps policies, projects and API keys in one SQLite file: the
// database of an installation that has no other.
//
// A [Store] is a policy.Source, and [Store.Keys] a source of API keys. Whoever
// changes the file is noticed: this process, another headgate, or somebody with
// the sqlite3 shell. Three columns make a policy:
//
//	INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /v1/items/{id}', 'acme', 50);
//
// Guarantees: a change that was acknowledged survives kill -9 and loss of
// power; a reader sees the state between two transactions, never half of one;
// a file that is replaced or restored while it is open is opened anew. All
// methods may be called concurrently, by several processes too.
package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/headgate-io/headgate/policy"
)

// lockWait is how long a statement waits for another process's transaction.
// Longer hides a stuck process, shorter fails under a large import.
const lockWait = 5 * time.Second

// readers is how many connections read at once, besides the one that watches.
const readers = 4

// Store is an open policy database. Close it.
type Store struct {
	path     string // absolute
	readOnly bool
	wait     time.Duration

	// mu is held for reading while a file is in use and for writing while it
	// is exchanged for another.
	mu     sync.RWMutex
	file   *file // guarded by mu
	closed bool  // guarded by mu
}

var _ policy.Source = (*Store)(nil)

// Open opens the database a DSN names, "sqlite:PATH", for reading and writing.
// It makes the file if there is none, and brings an older schema up to date.
//
// A backup may be moved into the file's place while a Store has it open. When
// none has, because the last one was killed, its -wal must be removed first:
// SQLite would take it for the backup's.
func Open(ctx context.Context, dsn string) (*Store, error) {
	return open(ctx, dsn, false, lockWait)
}

// OpenReadOnly opens a database that exists and changes nothing in it, its
// schema included.
func OpenReadOnly(ctx context.Context, dsn string) (*Store, error) {
	return open(ctx, dsn, true, lockWait)
}

func open(ctx context.Context, dsn string, readOnly bool, wait time.Duration) (*Store, error) {
	path, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, readOnly: readOnly, wait: wait}
	if s.file, err = s.openFile(ctx); err != nil {
		return nil, s.explain(ctx, err)
	}
	return s, nil
}

// parseDSN reports the file that a DSN names. The path is taken as it is
// written: ? and % are characters like any other.
func parseDSN(dsn string) (string, error) {
	scheme, path, ok := strings.Cut(dsn, ":")
	switch {
	case !ok || scheme != "sqlite":
		return "", fmt.Errorf("database is %q, want sqlite:PATH, the only kind supported", redact(dsn))
	case path == "":
		return "", errors.New(`database is "sqlite:" without a path, want sqlite:PATH`)
	case strings.HasPrefix(path, ":memory:"):
		return "", fmt.Errorf("database is %q, want a file: what is in memory is gone at the next start, and no other process can change it", dsn)
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"):
		return "", fmt.Errorf("database is %q, want %q: a path has no host before it", dsn, "sqlite:"+strings.TrimLeft(path, "/"))
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("database is %q, want a path without a zero byte", dsn)
	}
	return filepath.Abs(path)
}

// redact removes the password that the DSN of another database may hold.
func redact(dsn string) string {
	if u, err := url.Parse(dsn); err == nil && u.User != nil {
		return u.Redacted()
	}
	if at := strings.LastIndexByte(dsn, '@'); at >= 0 { // user:password@tcp(host)/name
		return "…" + dsn[at:]
	}
	return dsn
}

// Path reports the file, absolute.
func (s *Store) Path() string { return s.path }

// Close closes the database. What is under way ends first.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.file.close()
}

// Check reads the whole file and reports what is damaged. It takes
// several seconds for a million rules.
func (s *Store) Check(ctx context.Context) error {
	return s.use(ctx, func(f *file) error {
		var verdict string
		if err := f.reads.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict); err != nil {
			return err
		}
		if verdict != "ok" {
			return damaged(verdict)
		}
		return nil
	})
}

// file is one database file, open. A Store has another one after its file was
// replaced.
type file struct {
	info    os.FileInfo // what was opened, to notice that another file took its name
	retired bool        // guarded by Store.mu; closed, because it is no longer the one with the name
	reads   *sql.DB
	writes  *sql.DB // one connection, so that writers queue here and not at the file's lock; nil if read only

	mu    sync.Mutex
	watch *sql.Conn // guarded by mu; see version.go
	epoch string    // guarded by mu; random, another one for every watch
}

func (s *Store) openFile(ctx context.Context) (_ *file, err error) {
	if err := s.prepare(); err != nil {
		return nil, err
	}
	// Looked at before it is opened: should another file take its place in
	// between, that is noticed at the first use.
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, err
	}
	f := &file{info: info}
	defer func() {
		if err != nil {
			_ = f.close() // the first error is the one to tell
		}
	}()
	if s.readOnly {
		if f.reads, err = s.connect("ro", readers+1, "query_only(1)"); err != nil {
			return nil, err
		}
		if err := f.checkSchema(ctx); err != nil {
			return nil, err
		}
	} else {
		// FULL: a commit is on the disk when it is acknowledged.
		if f.writes, err = s.connect("rw", 1, "synchronous(full)"); err != nil {
			return nil, err
		}
		if err := f.migrate(ctx, s.wait); err != nil {
			return nil, err
		}
		if f.reads, err = s.connect("rw", readers+1, "query_only(1)"); err != nil {
			return nil, err
		}
	}
	if _, err := f.version(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// connect makes a pool. Nothing is opened before its first use.
func (s *Store) connect(mode string, most int, pragmas ...string) (*sql.DB, error) {
	q := url.Values{"mode": {mode}, "_txlock": {"immediate"}, "_error_rc": {"1"}}
	q["_pragma"] = append(pragmas, fmt.Sprintf("busy_timeout(%d)", s.wait.Milliseconds()), "foreign_keys(1)")
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: s.path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return db, nil
}

// prepare finds out what SQLite would say less clearly, and makes the file: for
// its owner alone, because of what it says about tenants and keys.
func (s *Store) prepare() error {
	info, err := os.Stat(s.path)
	switch {
	case err == nil && info.IsDir():
		return fault("is a folder, want a file")
	case err == nil && !info.Mode().IsRegular():
		return fault("is no regular file, want one")
	case err == nil:
		return s.probe()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	dir := filepath.Dir(s.path)
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return fault("its folder does not exist, want it made first: mkdir -p " + dir)
	case err != nil:
		return err
	case !info.IsDir():
		return fault(dir + " is a file, want a folder")
	case s.readOnly:
		return fault("does not exist, want a database that headgate has made")
	}
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist): // another process was faster
		return nil
	case errors.Is(err, fs.ErrPermission), isReadOnlyFS(err):
		return fault("cannot be made, want a folder that this user may write to")
	case err != nil:
		return err
	}
	return f.Close()
}

// probe makes sure that this user may do with the file what it was opened for.
func (s *Store) probe() error {
	flag, mayNot := os.O_RDWR, "may not be written by this user, want write permission, or the database opened read-only"
	if s.readOnly {
		flag, mayNot = os.O_RDONLY, "may not be read by this user, want read permission"
	}
	f, err := os.OpenFile(s.path, flag, 0)
	switch {
	case errors.Is(err, fs.ErrPermission), isReadOnlyFS(err):
		return fault(mayNot)
	case err != nil:
		return err
	}
	return f.Close()
}

func (f *file) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	if f.watch != nil {
		errs = append(errs, f.watch.Close())
		f.watch = nil
	}
	for _, db := range []*sql.DB{f.reads, f.writes} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// use runs do with the file that has the store's path now, and explains what
// went wrong.
func (s *Store) use(ctx context.Context, do func(*file) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for s.closed || !s.isCurrent() {
		if s.closed {
			return s.explain(ctx, fault("is closed"))
		}
		s.mu.RUnlock()
		err := s.reopen(ctx)
		s.mu.RLock()
		if err != nil {
			return s.explain(ctx, err)
		}
	}
	return s.explain(ctx, do(s.file))
}

// isCurrent reports whether the open file still has the store's path. If it has
// not, what is read is history and what is written is lost.
func (s *Store) isCurrent() bool {
	if s.file.retired {
		return false
	}
	info, err := os.Stat(s.path)
	return err == nil && os.SameFile(info, s.file.info)
}

// reopen opens the file that has the store's path now. A path that leads
// nowhere is an error, not a reason for an empty database.
func (s *Store) reopen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.isCurrent() {
		return nil
	}
	s.file.retire(ctx)
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		return fault("is gone, want it back in its place, or a restart to begin an empty one")
	}
	f, err := s.openFile(ctx)
	if err != nil {
		return err // the next use tries again
	}
	s.file = f
	return nil
}

// retire closes a file that was moved away or replaced. SQLite would leave its
// -wal where it is, and take it for the new file's: pages of the old database
// would come up in the new one. So what is in it goes to the old file first.
func (f *file) retire(ctx context.Context) {
	if f.retired {
		return
	}
	if f.writes != nil {
		// Whether or not it succeeds, there is nothing else to be done.
		_, _ = f.writes.ExecContext(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint(TRUNCATE)")
	}
	_ = f.close()
	f.retired = true
}

// write runs do in one transaction on the only connection that writes.
func (s *Store) write(ctx context.Context, do func(*sql.Tx) error) error {
	return s.use(ctx, func(f *file) error {
		if f.writes == nil {
			return fault("is open read-only, want it opened for writing")
		}
		return transact(ctx, f.writes, nil, do)
	})
}

// read runs do in one transaction: it sees the state at its first query, and no
// later one.
func (s *Store) read(ctx context.Context, do func(*sql.Tx) error) error {
	return s.use(ctx, func(f *file) error { return f.read(ctx, do) })
}

func (f *file) read(ctx context.Context, do func(*sql.Tx) error) error {
	return transact(ctx, f.reads, &sql.TxOptions{ReadOnly: true}, do)
}

func transact(ctx context.Context, db *sql.DB, o *sql.TxOptions, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, o)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback() // the first error is the one to tell
		return err
	}
	return tx.Commit()
}

// newID returns a random name of 80 bits, with a prefix that says of what.
func newID(prefix string) string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
