package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// fault is what is wrong with the database, and what would be right.
type fault string

func (f fault) Error() string { return string(f) }

func damaged(detail string) error {
	return fault("is damaged (" + oneLine(detail) +
		"), want a backup restored, or what \"sqlite3 FILE .recover\" saves of it")
}

// explained is an error in words for whoever runs headgate, one line, with the
// driver's error inside.
type explained struct {
	text  string
	cause error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.cause }

// explain names the database, what is wrong with it and the remedy.
func explain(ctx context.Context, db engine, err error) error {
	var refused refusal
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", db.name(), ctx.Err())
	case errors.As(err, &refused):
		return refused.error
	case errors.Is(err, record.ErrNotFound), isProblem(err), isConflict(err):
		return err // about a row, not about the database
	}
	return &explained{db.name() + ": " + db.say(err), err}
}

func (e *embedded) say(err error) string {
	var f fault
	if errors.As(err, &f) {
		return string(f)
	}
	var sql *sqlite.Error
	if !errors.As(err, &sql) {
		var path *os.PathError
		if errors.As(err, &path) {
			return path.Err.Error() // the path is said already
		}
		return oneLine(err.Error())
	}
	code := sql.Code() & 0xff
	if e.readOnly && code == sqlite3.SQLITE_READONLY {
		code = sqlite3.SQLITE_CANTOPEN // it is -wal and -shm that could not be made
	}
	switch code {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Sprintf("has been locked by another process for more than %v, want its transaction ended (a "+
			"sqlite3 shell after BEGIN?)", e.wait)
	case sqlite3.SQLITE_READONLY:
		return "may not be written by this user, want write permission for the file and its folder, or the " +
			"database opened read-only"
	case sqlite3.SQLITE_CANTOPEN:
		return fmt.Sprintf("cannot be opened, want permission for this user to write to its folder %s too, where "+
			"SQLite keeps -wal and -shm even while it only reads", filepath.Dir(e.path))
	case sqlite3.SQLITE_NOTADB:
		return "is no SQLite database, want one, or a path where no file is yet"
	case sqlite3.SQLITE_CORRUPT:
		return damaged(sql.Error()).Error()
	case sqlite3.SQLITE_FULL:
		return "does not fit on its disk any more, want room made"
	case sqlite3.SQLITE_IOERR:
		return "cannot be read or written, want its disk looked after: " + oneLine(sql.Error())
	}
	return oneLine(sql.Error())
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func isReadOnlyFS(err error) bool { return errors.Is(err, syscall.EROFS) }

func isLocked(err error) bool {
	var sql *sqlite.Error
	return errors.As(err, &sql) && (sql.Code()&0xff == sqlite3.SQLITE_BUSY || sql.Code()&0xff == sqlite3.SQLITE_LOCKED)
}

// isProblem reports whether an error is about what stands in a row.
func isProblem(err error) bool {
	var problem policy.Problem
	return errors.As(err, &problem)
}

func isConflict(err error) bool {
	var conflict *record.Conflict
	return errors.As(err, &conflict)
}
