package database

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/headgate-io/headgate/server/record"
)

// sqlActor is who is said to have changed rules by SQL.
func sqlActor(user string) string {
	if user == "" {
		return "sql" // SQLite knows no users
	}
	return "sql:" + user
}

// unnumbered reports whether there are changes that belong to no version, and
// the newest version.
func (s *Store) unnumbered(ctx context.Context, tx *tx) (now record.Version, last int64, err error) {
	if now, err = s.newest(ctx, tx); err != nil {
		return record.Version{}, 0, err
	}
	last, err = lastChange(ctx, tx)
	return now, last, err
}

func lastChange(ctx context.Context, tx *tx) (last int64, err error) {
	err = tx.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM policy_changes").Scan(&last)
	return last, err
}

// number makes versions of what was changed by SQL, and reports the newest
// version then.
func (s *Store) number(ctx context.Context, tx *tx) (now record.Version, err error) {
	return s.numberAfter(ctx, tx, nil)
}

// numberAfter is number after some of the changes were read.
func (s *Store) numberAfter(ctx context.Context, tx *tx, read *unwritten) (now record.Version, err error) {
	now, last, err := s.unnumbered(ctx, tx)
	if err != nil || last <= now.Through {
		return now, err
	}
	if read == nil || read.after.ID != now.ID { // somebody else has numbered them
		read = newUnwritten(now)
	}
	if err := read.read(ctx, s, tx); err != nil {
		return now, err
	}
	for _, v := range read.versions() {
		if err := writeVersion(ctx, tx, v); err != nil {
			return now, err
		}
		now = v
	}
	return now, nil
}

// unwritten are versions of what was changed by SQL, one for each user whose
// changes follow each other. Where one transaction ends and the next begins
// cannot be told in every database, and a version must not end inside of one.
type unwritten struct {
	after  record.Version   // the newest that is written
	closed []record.Version // without the last, to which more may come
	last   record.Version   // without its counts
	counts tally
}

func newUnwritten(after record.Version) *unwritten { return &unwritten{after: after, last: after} }

// read reads the changes that were not read yet.
func (u *unwritten) read(ctx context.Context, s *Store, tx *tx) error {
	return s.scanChanges(ctx, tx, u.last.Through, math.MaxInt64, u.add)
}

func (u *unwritten) add(i image) {
	if actor := sqlActor(i.who); u.last.ID == u.after.ID || actor != u.last.Actor {
		if u.last.ID != u.after.ID {
			u.closed = u.versions()
		}
		u.last = record.Version{ID: u.last.ID + 1, Author: record.Author{Actor: actor}, Action: record.ActionSQL}
		u.counts = newTally()
	}
	u.counts.add(i)
	u.last.At, u.last.Through = i.at, i.id
}

// versions are all that the changes come to so far.
func (u *unwritten) versions() []record.Version {
	v := u.last
	v.Added, v.Changed, v.Removed = u.counts.count()
	return append(u.closed, v)
}

const versionColumns = "id, at, actor, claimed, why, action, restores, added, changed, removed, last_change"

func writeVersion(ctx context.Context, tx *tx, v record.Version) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO policy_versions (`+versionColumns+`)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		v.ID, v.At.Unix(), v.Actor, orNull(v.Claimed), orNull(v.Why), v.Action, orNull(v.Of), v.Added, v.Changed,
		v.Removed, v.Through)
	if err != nil {
		return fmt.Errorf("write version %d: %w", v.ID, err)
	}
	return nil
}

const (
	// numberWait bounds how long a load waits for its turn to number the changes
	// of shells, and numberedSoon how many of them it reads for that. They can
	// wait, and requests cannot: a shell that changes every rule leaves two
	// images of each, which take longer to read than the rules.
	numberWait   = 200 * time.Millisecond
	numberedSoon = 10_000
)

// Number makes versions of what was changed by SQL and has no number yet.
// Whatever headgate changes does that first.
func (s *Store) Number(ctx context.Context) error { return s.numberUpTo(ctx, math.MaxInt64) }

// numberUpTo is Number, unless there are more changes than most. They are read
// while others may write: only those that come meanwhile are read in turn.
func (s *Store) numberUpTo(ctx context.Context, most int64) error {
	if s.table != nil {
		return nil
	}
	if some, err := s.hasUnwritten(ctx, most); err != nil || !some {
		return err
	}
	if err := s.mayNumber(ctx); err != nil {
		return err
	}
	found, err := s.readUnwritten(ctx, most)
	if err != nil || found == nil {
		return err
	}
	return s.writeUnwritten(ctx, found)
}

func (s *Store) hasUnwritten(ctx context.Context, most int64) (some bool, err error) {
	err = s.read(ctx, func(tx *tx) error {
		now, last, err := s.unnumbered(ctx, tx)
		some = last > now.Through && last-now.Through <= most
		return err
	})
	return some, err
}

// mayNumber writes no version, as a user can who may write one: on servers it is
// known then, before all changes are read for it in vain.
func (s *Store) mayNumber(ctx context.Context) error {
	return explain(ctx, s.db, s.db.single(ctx, func(on statements) error {
		_, err := on.exec(ctx, "INSERT INTO policy_versions ("+versionColumns+") SELECT "+versionColumns+
			" FROM policy_versions WHERE 1 = 0")
		return err
	}))
}

// readUnwritten reads the changes that have no number; nil if there are none, or
// more than most.
func (s *Store) readUnwritten(ctx context.Context, most int64) (found *unwritten, err error) {
	err = s.read(ctx, func(tx *tx) error {
		now, last, err := s.unnumbered(ctx, tx)
		if err != nil || last <= now.Through || last-now.Through > most {
			return err
		}
		found = newUnwritten(now)
		return found.read(ctx, s, tx)
	})
	return found, err
}

func (s *Store) writeUnwritten(ctx context.Context, found *unwritten) error {
	return s.write(ctx, func(tx *tx) error {
		read := found
		found = nil // what runs again begins again
		_, err := s.numberAfter(ctx, tx, read)
		return err
	})
}

// numberSoon is Number for those who can do without, if that is done soon.
func (s *Store) numberSoon(ctx context.Context) {
	if s.readOnly {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, numberWait)
	defer cancel()
	_ = s.numberUpTo(ctx, numberedSoon) // what a version's number is for can wait until the next look
}

// versionOf reports the number of what a transaction reads, 0 if it has none.
func (s *Store) versionOf(ctx context.Context, tx *tx) (int64, error) {
	now, last, err := s.unnumbered(ctx, tx)
	if err != nil || last > now.Through {
		return 0, err
	}
	return now.ID, nil
}
