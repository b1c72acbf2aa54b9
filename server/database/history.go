package database

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Current reports the newest version: that of ID 0 in a table that somebody else
// keeps, which has none. Changes by SQL that have no number yet are not in it;
// Pending reports them.
func (s *Store) Current(ctx context.Context) (v record.Version, err error) {
	if s.table != nil {
		return record.Version{}, nil
	}
	err = s.read(ctx, func(tx *tx) (err error) {
		v, err = s.newest(ctx, tx)
		return err
	})
	return v, err
}

// History reports versions below before, or the newest if that is 0, at most
// most of them, newest first.
func (s *Store) History(ctx context.Context, before int64, most int) (list []record.Version, err error) {
	if s.table != nil {
		return nil, s.table.noHistory()
	}
	if before == 0 {
		before = math.MaxInt64
	}
	err = s.read(ctx, func(tx *tx) (err error) {
		list, err = s.queryVersions(ctx, tx, "WHERE id < ? ORDER BY id DESC LIMIT ?", before, most)
		return err
	})
	return list, err
}

// Changes reports what a version changed, rules in the order of their
// endpoints, then projects.
func (s *Store) Changes(ctx context.Context, version int64) (list []record.Change, err error) {
	err = s.readHistory(ctx, func(tx *tx) error {
		v, err := s.versionAt(ctx, tx, version)
		if err != nil {
			return err
		}
		before, err := s.throughBefore(ctx, tx, v)
		if err != nil {
			return err
		}
		list, err = s.changes(ctx, tx, before, v.Through)
		return err
	})
	return list, err
}

// Diff reports what is different in version b from version a.
func (s *Store) Diff(ctx context.Context, a, b int64) (list []record.Change, err error) {
	err = s.readHistory(ctx, func(tx *tx) error {
		from, errA := s.versionAt(ctx, tx, a)
		to, errB := s.versionAt(ctx, tx, b)
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		back := from.Through > to.Through
		if back {
			from, to = to, from
		}
		if err := s.checkKept(ctx, tx, from.ID, from.Through); err != nil {
			return err
		}
		if list, err = s.changes(ctx, tx, from.Through, to.Through); back {
			for i := range list {
				list[i] = undo(list[i])
			}
		}
		return err
	})
	return list, err
}

func undo(c record.Change) record.Change {
	return record.Change{Before: c.After, After: c.Before, Project: c.Project, TierBefore: c.TierAfter,
		TierAfter:   c.TierBefore,
		FaultBefore: c.FaultAfter, FaultAfter: c.FaultBefore, Lost: c.Lost}
}

// At reports the rules and tiers of a version. It walks back from those of
// today, and reports an error if something was changed past the triggers that
// write the history: it makes nothing up.
func (s *Store) At(ctx context.Context, version int64) (doc policy.Document, err error) {
	err = s.readHistory(ctx, func(tx *tx) (err error) {
		doc, err = s.at(ctx, tx, version)
		return err
	})
	return doc, err
}

func (s *Store) at(ctx context.Context, tx *tx, version int64) (policy.Document, error) {
	v, err := s.versionAt(ctx, tx, version)
	if err != nil {
		return policy.Document{}, err
	}
	if err := s.checkKept(ctx, tx, v.ID, v.Through); err != nil {
		return policy.Document{}, err
	}
	since, err := s.changes(ctx, tx, v.Through, math.MaxInt64)
	if err != nil {
		return policy.Document{}, err
	}
	doc, err := s.readDocument(ctx, tx)
	var bad []image
	if isProblem(err) { // of today, which need not keep anybody from the past
		doc, bad, err = s.readSound(ctx, tx)
	}
	if err == nil {
		err = walkBack(&doc, bad, since)
	}
	doc.Number = version
	return doc, err
}

// Pending reports the changes by SQL that have no number yet, as one version
// with the ID 0; nothing was changed if its counts are all 0 and At is zero.
func (s *Store) Pending(ctx context.Context) (v record.Version, err error) {
	if s.table != nil {
		return record.Version{}, nil
	}
	err = s.read(ctx, func(tx *tx) error {
		now, err := s.newest(ctx, tx)
		if err != nil {
			return err
		}
		found := newTally()
		err = s.scanChanges(ctx, tx, now.Through, math.MaxInt64, func(i image) {
			v.At, v.Action, v.Actor, v.Through = i.at, record.ActionSQL, sqlActor(i.who), i.id
			found.add(i)
		})
		v.Added, v.Changed, v.Removed = found.count()
		return err
	})
	return v, err
}

// readHistory is read for what only tables of ours have.
func (s *Store) readHistory(ctx context.Context, do func(*tx) error) error {
	if s.table != nil {
		return s.table.noHistory()
	}
	return s.read(ctx, do)
}

// newest is the newest version; that of ID 0 if there is none, because somebody
// has emptied the table.
func (s *Store) newest(ctx context.Context, tx *tx) (record.Version, error) {
	list, err := s.queryVersions(ctx, tx, "ORDER BY id DESC LIMIT 1")
	if err != nil || len(list) == 0 {
		return record.Version{}, err
	}
	return list[0], nil
}

// clearedBy reports the version by which headgate deleted the last rule that
// there was, 0 if rules went in other ways, or came since then. What empties a
// table past headgate is no such version, even if it follows one.
func (s *Store) clearedBy(ctx context.Context, tx *tx) (int64, error) {
	list, err := s.queryVersions(ctx, tx, "WHERE action = ? ORDER BY id DESC LIMIT 1", record.ActionClear)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	var since int
	err = tx.QueryRowContext(ctx, "SELECT count(*) FROM policy_changes WHERE id > ? AND endpoint IS NOT NULL",
		list[0].Through).Scan(&since)
	if err != nil || since > 0 {
		return 0, err
	}
	return list[0].ID, nil
}

func (s *Store) versionAt(ctx context.Context, tx *tx, id int64) (record.Version, error) {
	list, err := s.queryVersions(ctx, tx, "WHERE id = ?", id)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("version %d: %w", id, record.ErrNotFound)
	}
	if err != nil {
		return record.Version{}, err
	}
	return list[0], nil
}

// throughBefore is the last change before those of a version.
func (s *Store) throughBefore(ctx context.Context, tx *tx, v record.Version) (int64, error) {
	before, err := s.queryVersions(ctx, tx, "WHERE id < ? ORDER BY id DESC LIMIT 1", v.ID)
	if err != nil || len(before) == 0 {
		return 0, err
	}
	return before[0].Through, s.checkKept(ctx, tx, v.ID, before[0].Through)
}

func (s *Store) queryVersions(ctx context.Context, tx *tx, clauses string,
	args ...any) (list []record.Version, err error) {
	rows, err := tx.QueryContext(ctx,
		`SELECT id, at, actor, claimed, why, action, restores, added, changed, removed, last_change
		FROM policy_versions `+clauses, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	r := newRow(s.db.name(), "policy_versions", tx)
	for rows.Next() {
		if err := rows.Scan(r.cells[:11]...); err != nil {
			return nil, err
		}
		r.begin(r.values[0])
		v := record.Version{
			ID:     r.whole(0, "id", math.MaxInt64),
			At:     r.time(1, "at"),
			Author: record.Author{Actor: r.text(2, "actor"), Claimed: r.text(3, "claimed"), Why: r.text(4, "why")},
			Action: r.text(5, "action"),
			Of:     r.wholeOrNull(6, "restores", math.MaxInt64),
		}
		v.Added, v.Changed, v.Removed = r.count(7, "added"), r.count(8, "changed"), r.count(9, "removed")
		v.Through = int64(r.count(10, "last_change"))
		list = append(list, v)
	}
	return list, errors.Join(rows.Err(), r.err())
}

// count reports a number of at least 0.
func (r *row) count(i int, field string) int {
	n, ok := r.values[i].(int64)
	if !ok || n < 0 {
		r.wrong(i, field, "a whole number")
		return 0
	}
	return int(n)
}
