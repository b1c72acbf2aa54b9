package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
)

// applicationID marks a database as headgate's; the first migration sets it.
const applicationID = 0x68646774 // "hdgt"

// migrateAttempts bounds how often processes that start at the same moment may
// be in each other's way without any of them getting on.
const migrateAttempts = 10

// lockedAgain is the time between two attempts that found the file locked.
const lockedAgain = 10 * time.Millisecond

// migrate brings the schema up to date. Migrations are not locked against each
// other: when several processes start with a new file, the slower ones find
// tables where they did not expect any, or the file locked at once and not
// after a wait. What failed has left nothing behind, so they try again.
func (f *file) migrate(ctx context.Context, wait time.Duration) error {
	p, err := provider(f.writes)
	if err != nil {
		return err
	}
	f.known = target(p)
	giveUp := time.Now().Add(wait)
	var reached int64
	for attempt := 1; ; {
		has, err := f.tryMigrate(ctx, p)
		if has > reached { // another process got on
			reached, attempt = has, 1
		}
		var settled fault
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, errors.As(err, &settled):
			return err
		case isLocked(err):
			if time.Now().After(giveUp) {
				return err
			}
			select { // SQLite has not waited: it takes what two are about to do for a deadlock
			case <-ctx.Done():
			case <-time.After(lockedAgain):
			}
		case attempt == migrateAttempts:
			return fmt.Errorf("bring the schema up to date: %w", err)
		default:
			attempt++
		}
	}
}

// tryMigrate reports the schema that it found, too. A file that is up to date is
// only read: nobody who changes a million rules keeps a gateway from starting.
func (f *file) tryMigrate(ctx context.Context, p *goose.Provider) (has int64, err error) {
	if err := f.checkOwner(ctx, f.writes); err != nil {
		return 0, err
	}
	if has, err = schemaVersion(ctx, f.writes); err != nil {
		return 0, err
	}
	if err := checkSchema(max(has, f.known), f.known); err != nil { // a newer one
		return has, err
	}
	// Not before the file is known to be ours: the mode is kept in the file.
	if _, err := f.writes.ExecContext(ctx, "PRAGMA journal_mode = wal"); err != nil {
		return has, err
	}
	if has == f.known {
		return has, nil
	}
	_, err = p.Up(ctx)
	return has, err
}

func provider(db *sql.DB) (*goose.Provider, error) {
	folder, err := fs.Sub(migrations, "migrations/sqlite")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, folder,
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
}

// target is the schema that this program knows.
func target(p *goose.Provider) int64 {
	sources := p.ListSources()
	return sources[len(sources)-1].Version
}

// checkOwner refuses the database of another program, before anything in it is
// changed.
func (f *file) checkOwner(ctx context.Context, db *sql.DB) error {
	id, err := readApplicationID(ctx, db)
	if err != nil || id == applicationID {
		return err
	}
	// goose makes its table before the first migration sets the mark.
	var table string
	err = db.QueryRowContext(ctx, `SELECT name FROM sqlite_master
		WHERE type = 'table' AND name NOT IN ('goose_db_version', 'sqlite_sequence') ORDER BY rowid LIMIT 1`).Scan(&table)
	if err == nil {
		// Another process may have made both the mark and the table between
		// the two looks; it makes them together.
		if id, err := readApplicationID(ctx, db); err != nil || id == applicationID {
			return err
		}
	}
	switch {
	case err == nil:
		return fault(fmt.Sprintf(
			"is the database of another program (it has a table %q), want a file for headgate alone", table))
	case !errors.Is(err, sql.ErrNoRows):
		return err
	case id != 0:
		return fault(
			fmt.Sprintf("is the database of another program (application_id %d), want a file for headgate alone", id))
	}
	return nil
}

func readApplicationID(ctx context.Context, db *sql.DB) (id int64, err error) {
	err = db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id)
	return id, err
}

// schemaVersion reports the last migration that a database has seen, 0 for none.
func schemaVersion(ctx context.Context, db *sql.DB) (version int64, err error) {
	var tables int
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE name = 'goose_db_version'").Scan(&tables)
	if err != nil || tables == 0 {
		return 0, err
	}
	err = db.QueryRowContext(ctx, selectSchema).Scan(&version)
	return version, err
}

// checkSchema makes sure that a database can be read as it is.
func (f *file) checkSchema(ctx context.Context) error {
	p, err := provider(f.reads)
	if err != nil {
		return err
	}
	if err := f.checkOwner(ctx, f.reads); err != nil {
		return err
	}
	f.known = target(p)
	has, err := schemaVersion(ctx, f.reads)
	if err != nil {
		return err
	}
	return checkSchema(has, f.known)
}
