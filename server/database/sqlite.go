package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// lockWait is how long a statement waits for another process's transaction.
// Longer hides a stuck process, shorter fails under a large import.
const lockWait = 5 * time.Second

// readers is how many connections read at once, besides the one that watches.
const readers = 4

// checkpointEvery is after how many writes that may be lost the -wal is moved
// into the database: it has a page or two of 4 KiB for each of them.
const checkpointEvery = 256

// embedded is a database in one SQLite file.
type embedded struct {
	path     string // absolute
	readOnly bool
	wait     time.Duration

	// mu is held for reading while a file is in use and for writing while it
	// is exchanged for another.
	mu     sync.RWMutex
	file   *file // guarded by mu
	closed bool  // guarded by mu
}

var _ engine = (*embedded)(nil)

func openEmbedded(ctx context.Context, dsn string, readOnly bool, wait time.Duration) (*embedded, error) {
	path, err := parsePath(dsn)
	if err != nil {
		return nil, err
	}
	e := &embedded{path: path, readOnly: readOnly, wait: wait}
	if e.file, err = e.openFile(ctx); err != nil {
		return nil, explain(ctx, e, err)
	}
	return e, nil
}

// parsePath reports the file that a DSN names. The path is taken as it is
// written: ? and % are characters like any other.
func parsePath(dsn string) (string, error) {
	path := strings.TrimPrefix(dsn, "sqlite:")
	switch {
	case path == "":
		return "", errors.New(`database is "sqlite:" without a path, want sqlite:PATH`)
	case strings.HasPrefix(path, ":memory:"):
		return "",
			fmt.Errorf("database is %q, want a file: what is in memory is gone at the next start, and no other "+
				"process can change it", dsn)
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"):
		return "", fmt.Errorf("database is %q, want %q: a path has no host before it", dsn,
			"sqlite:"+strings.TrimLeft(path, "/"))
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("database is %q, want a path without a zero byte", dsn)
	}
	return filepath.Abs(path)
}

func (e *embedded) name() string { return e.path }

func (e *embedded) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	return e.file.close()
}

func (e *embedded) check(ctx context.Context) error {
	return e.use(ctx, func(f *file) error {
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
	known   int64       // the schema that this program knows
	retired bool        // guarded by Store.mu; closed, because it is no longer the one with the name
	reads   *sql.DB
	writes  *sql.DB      // one connection, so that writers queue here and not at the file's lock; nil if read only
	passing *sql.DB      // one connection, for what may be lost; nil if read only
	passed  atomic.Int64 // uses of passing

	mu      sync.Mutex
	watch   *sql.Conn // guarded by mu; see sqlite_version.go
	commits int64     // guarded by mu; watch's data_version when stamp was read
	stamp   string    // guarded by mu; the version; empty before it was read
}

func (e *embedded) openFile(ctx context.Context) (_ *file, err error) {
	if err := e.prepare(); err != nil {
		return nil, err
	}
	// Looked at before it is opened: should another file take its place in
	// between, that is noticed at the first use.
	info, err := os.Stat(e.path)
	if err != nil {
		return nil, err
	}
	f := &file{info: info}
	defer func() {
		if err != nil {
			_ = f.close() // the first error is the one to tell
		}
	}()
	if e.readOnly {
		if f.reads, err = e.connect("ro", readers+1, reading...); err != nil {
			return nil, err
		}
		if err := f.checkSchema(ctx); err != nil {
			return nil, err
		}
	} else {
		// FULL: a commit is on the disk when it is acknowledged. In memory: what
		// would take a statement back, which triggers make SQLite keep of every
		// row, and up to 64 MiB of pages, else an import writes some of them
		// again and again.
		if f.writes, err = e.connect("rw", 1, "synchronous(full)", "temp_store(memory)",
			"cache_size(-65536)"); err != nil {
			return nil, err
		}
		if err := f.migrate(ctx, e.wait); err != nil {
			return nil, err
		}
		if f.reads, err = e.connect("rw", readers+1, reading...); err != nil {
			return nil, err
		}
		// OFF: not on the disk yet, and so done in a moment. What is written here
		// every few seconds, and may be lost, would else lock out shells that do
		// not wait for locks, as sqlite3 does not. Nothing else is at stake: the
		// next commit of writes syncs the whole -wal, and only writes moves it
		// into the database.
		if f.passing, err = e.connect("rw", 1, "synchronous(off)", "wal_autocheckpoint(0)"); err != nil {
			return nil, err
		}
	}
	if _, err := f.version(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// reading is how connections are that only read. What they read whole, such as
// rules and versions, they read once from the first page to the last, so that pages
// which SQLite keeps are memory that is found and cleared for nothing: with the 2 MB
// that it keeps by itself a first load of 100,000 rules took a tenth longer. The
// system has the file in its memory anyway.
var reading = []string{"query_only(1)", "cache_size(-256)"}

// connect makes a pool. Nothing is opened before its first use.
func (e *embedded) connect(mode string, most int, pragmas ...string) (*sql.DB, error) {
	q := url.Values{"mode": {mode}, "_txlock": {"immediate"}, "_error_rc": {"1"}}
	q["_pragma"] = append(slices.Clone(pragmas), fmt.Sprintf("busy_timeout(%d)", e.wait.Milliseconds()),
		"foreign_keys(1)")
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: e.path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return db, nil
}

// preparing is held while a file is made. That closes it, and must not do so
// when SQLite has it open for another Store of this process: see mayUse.
var preparing sync.Mutex

// prepare finds out what SQLite would say less clearly, and makes the file: for
// its owner alone, because of what it says about tenants and keys.
func (e *embedded) prepare() error {
	preparing.Lock()
	defer preparing.Unlock()
	info, err := os.Stat(e.path)
	switch {
	case err == nil && info.IsDir():
		return fault("is a folder, want a file")
	case err == nil && !info.Mode().IsRegular():
		return fault("is no regular file, want one")
	case err == nil:
		return e.probe()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	dir := filepath.Dir(e.path)
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return fault("its folder does not exist, want it made first: mkdir -p " + dir)
	case err != nil:
		return err
	case !info.IsDir():
		return fault(dir + " is a file, want a folder")
	case e.readOnly:
		return fault("does not exist, want a database that headgate has made")
	}
	f, err := os.OpenFile(e.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
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
func (e *embedded) probe() error {
	mayNot := "may not be written by this user, want write permission, or the database opened read-only"
	if e.readOnly {
		mayNot = "may not be read by this user, want read permission"
	}
	err := mayUse(e.path, !e.readOnly)
	if errors.Is(err, fs.ErrPermission) || isReadOnlyFS(err) {
		return fault(mayNot)
	}
	return err
}

func (f *file) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	if f.watch != nil {
		errs = append(errs, f.watch.Close())
		f.watch = nil
	}
	for _, db := range []*sql.DB{f.reads, f.passing, f.writes} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// use runs do with the file that has the database's path now.
func (e *embedded) use(ctx context.Context, do func(*file) error) error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for e.closed || !e.isCurrent() {
		if e.closed {
			return fault("is closed")
		}
		e.mu.RUnlock()
		err := e.reopen(ctx)
		e.mu.RLock()
		if err != nil {
			return err
		}
	}
	return do(e.file)
}

// isCurrent reports whether the open file still has the database's path. If it has
// not, what is read is history and what is written is lost.
func (e *embedded) isCurrent() bool {
	if e.file.retired {
		return false
	}
	info, err := os.Stat(e.path)
	return err == nil && os.SameFile(info, e.file.info)
}

// reopen opens the file that has the database's path now. A path that leads
// nowhere is an error, not a reason for an empty database.
func (e *embedded) reopen(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.isCurrent() {
		return nil
	}
	e.file.retire(ctx)
	if _, err := os.Stat(e.path); errors.Is(err, fs.ErrNotExist) {
		return fault("is gone, want it back in its place, or a restart to begin an empty one")
	}
	f, err := e.openFile(ctx)
	if err != nil {
		return err // the next use tries again
	}
	e.file = f
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
func (e *embedded) write(ctx context.Context, do func(*tx) error) error {
	return e.use(ctx, func(f *file) error {
		if f.writes == nil {
			return fault("is open read-only, want it opened for writing")
		}
		return transact(ctx, f.writes, nil, &sqliteDialect, func(tx *tx) error {
			if err := tx.checkSchema(ctx, f.known); err != nil {
				return err
			}
			return do(tx)
		})
	})
}

func (e *embedded) single(ctx context.Context, do func(statements) error) error {
	return e.use(ctx, func(f *file) error {
		if f.passing == nil {
			return fault("is open read-only, want it opened for writing")
		}
		if f.passed.Add(1)%checkpointEvery == 0 {
			// Else the -wal would grow for as long as nobody changes a rule. It
			// waits for nobody, and is done the next time if it cannot be now.
			_, _ = f.writes.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
		}
		return do(statements{f.passing, &sqliteDialect})
	})
}

func (e *embedded) read(ctx context.Context, do func(*tx) error) error {
	return e.use(ctx, func(f *file) error { return f.read(ctx, do) })
}

func (f *file) read(ctx context.Context, do func(*tx) error) error {
	return transact(ctx, f.reads, &sql.TxOptions{ReadOnly: true}, &sqliteDialect, do)
}
