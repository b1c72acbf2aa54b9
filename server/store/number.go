package store

import (
	"context"
	"fmt"
	"math"
	"time"
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
func (s *Store) unnumbered(ctx context.Context, tx *tx) (now Version, last int64, err error) {
	if now, err = s.newest(ctx, tx); err != nil {
		return Version{}, 0, err
	}
	last, err = lastChange(ctx, tx)
	return now, last, err
}

func lastChange(ctx context.Context, tx *tx) (last int64, err error) {
	err = tx.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM policy_changes").Scan(&last)
	return last, err
}

// number makes versions of what was changed by SQL, one for each user whose
// changes follow each other, and reports the newest version then. Where one
// transaction ends and the next begins cannot be told in every database, and a
// version must not end inside of one.
func (s *Store) number(ctx context.Context, tx *tx) (now Version, err error) {
	now, last, err := s.unnumbered(ctx, tx)
	if err != nil || last <= now.through {
		return now, err
	}
	var f fold
	var v Version
	var errWrite error
	flush := func() {
		if v.through == 0 || errWrite != nil {
			return
		}
		v.ID = now.ID + 1
		v.Added, v.Changed, v.Removed = f.count()
		errWrite = writeVersion(ctx, tx, v)
		now, f = v, fold{}
	}
	var found []image // read to the end first: one query at a time
	if err := s.scanChanges(ctx, tx, now.through, math.MaxInt64, func(i image) { found = append(found, i) }); err != nil {
		return now, err
	}
	for _, i := range found {
		if actor := sqlActor(i.who); actor != v.Actor {
			flush()
			v = Version{Author: Author{Actor: actor}, Action: ActionSQL}
		}
		f.add(i)
		v.At, v.through = i.at, i.id
	}
	flush()
	return now, errWrite
}

func writeVersion(ctx context.Context, tx *tx, v Version) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO policy_versions (id, at, actor, claimed, why, action, restores, added, changed, removed, last_change)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		v.ID, v.At.Unix(), v.Actor, orNull(v.Claimed), orNull(v.Why), v.Action, orNull(v.Of), v.Added, v.Changed, v.Removed, v.through)
	if err != nil {
		return fmt.Errorf("write version %d: %w", v.ID, err)
	}
	return nil
}

// numberWait bounds how long a load waits for its turn to number the changes of
// shells. They can wait, and requests cannot.
const numberWait = 200 * time.Millisecond

// Number makes versions of what was changed by SQL and has no number yet.
// Whatever headgate changes does that first.
func (s *Store) Number(ctx context.Context) error {
	if s.table != nil {
		return nil
	}
	var pending bool
	err := s.read(ctx, func(tx *tx) error {
		now, last, err := s.unnumbered(ctx, tx)
		pending = last > now.through
		return err
	})
	if err != nil || !pending {
		return err
	}
	return s.write(ctx, func(tx *tx) error {
		_, err := s.number(ctx, tx)
		return err
	})
}

// numberSoon is Number for those who can do without.
func (s *Store) numberSoon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, numberWait)
	defer cancel()
	_ = s.Number(ctx) // what a version's number is for can wait until the next look
}

// versionOf reports the number of what a transaction reads, 0 if it has none.
func (s *Store) versionOf(ctx context.Context, tx *tx) (int64, error) {
	now, last, err := s.unnumbered(ctx, tx)
	if err != nil || last > now.through {
		return 0, err
	}
	return now.ID, nil
}
