package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/policy"
)

// Actions of versions. Others may be named as callers like.
const (
	ActionStart    = "start" // what was there when the history began
	ActionSet      = "set"
	ActionDelete   = "delete"
	ActionClear    = "clear" // the last rule was deleted, by its name
	ActionTier     = "tier"
	ActionImport   = "import"
	ActionApply    = "apply"
	ActionRollback = "rollback"
	ActionRevert   = "revert" // auto_revert took a change back
	ActionSQL      = "sql"    // somebody's shell
)

// Author is who changes rules, and why. Actor is required.
type Author struct {
	Actor   string // as far as proven: an admin token's name, "local:alice" of the command
	Claimed string // who they say they are; may be empty
	Why     string // may be empty; at most MaxWhy bytes
}

// MaxWhy is the longest Author.Why, in bytes.
const MaxWhy = 500

// Check reports what could not be written into the history.
func (a Author) Check() error {
	var faults []error
	wrong := func(field, value, want string) {
		faults = append(faults, policy.Problem{Code: "author", Rule: -1, Where: "author", Field: field, Value: value, Want: want})
	}
	if a.Actor == "" {
		wrong("actor", "empty", "who changes the rules")
	}
	for _, t := range []struct {
		field, text string
		most        int
	}{{"actor", a.Actor, maxAuditText}, {"claimed", a.Claimed, maxAuditText}, {"why", a.Why, MaxWhy}} {
		switch {
		case len(t.text) > t.most:
			wrong(t.field, fmt.Sprintf("%d bytes long", len(t.text)), fmt.Sprintf("at most %d", t.most))
		case !utf8.ValidString(t.text), strings.ContainsFunc(t.text, isUnprintable):
			wrong(t.field, shown(t.text), "one line of printable text")
		}
	}
	return errors.Join(faults...)
}

// isUnprintable reports whether r is a control character, or one that changes how
// those beside it look, such as the ones that turn the direction of writing.
func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }

// Version is one change of the rules and tiers, of whatever number of them.
type Version struct {
	ID int64 // 1, 2, 3 …; 0 of changes that have no number yet
	At time.Time
	Author
	Action                  string
	Of                      int64 // of a rollback: the version whose rules it brought back; 0 otherwise
	Added, Changed, Removed int

	through int64 // the last row of policy_changes that belongs to it
}

// Change is what one version, or the way from one to another, does to one rule
// or to one project's tier.
type Change struct {
	Before, After *policy.Rule // nil: not there; both nil for a tier

	Project               string // whose tier it is; empty for a rule
	TierBefore, TierAfter string // empty: in none

	// FaultBefore and FaultAfter say what stood in the row that no rule or tier has,
	// put there past the checks of the table. Before or After then holds what of it
	// can be read, and nothing in the place of the rest.
	FaultBefore, FaultAfter string

	lost bool // of a row that is in no rule's place: a fault is in what it is found by
}

// Current reports the newest version: that of ID 0 in a table that somebody else
// keeps, which has none. Changes by SQL that have no number yet are not in it;
// Pending reports them.
func (s *Store) Current(ctx context.Context) (v Version, err error) {
	if s.table != nil {
		return Version{}, nil
	}
	err = s.read(ctx, func(tx *tx) (err error) {
		v, err = s.newest(ctx, tx)
		return err
	})
	return v, err
}

// History reports versions below before, or the newest if that is 0, at most
// most of them, newest first.
func (s *Store) History(ctx context.Context, before int64, most int) (list []Version, err error) {
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
func (s *Store) Changes(ctx context.Context, version int64) (list []Change, err error) {
	err = s.readHistory(ctx, func(tx *tx) error {
		v, err := s.versionAt(ctx, tx, version)
		if err != nil {
			return err
		}
		before, err := s.throughBefore(ctx, tx, v)
		if err != nil {
			return err
		}
		list, err = s.changes(ctx, tx, before, v.through)
		return err
	})
	return list, err
}

// Diff reports what is different in version b from version a.
func (s *Store) Diff(ctx context.Context, a, b int64) (list []Change, err error) {
	err = s.readHistory(ctx, func(tx *tx) error {
		from, errA := s.versionAt(ctx, tx, a)
		to, errB := s.versionAt(ctx, tx, b)
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		back := from.through > to.through
		if back {
			from, to = to, from
		}
		if err := s.checkKept(ctx, tx, from.ID, from.through); err != nil {
			return err
		}
		if list, err = s.changes(ctx, tx, from.through, to.through); back {
			for i := range list {
				list[i] = list[i].undo()
			}
		}
		return err
	})
	return list, err
}

func (c Change) undo() Change {
	return Change{Before: c.After, After: c.Before, Project: c.Project, TierBefore: c.TierAfter, TierAfter: c.TierBefore,
		FaultBefore: c.FaultAfter, FaultAfter: c.FaultBefore, lost: c.lost}
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
	if err := s.checkKept(ctx, tx, v.ID, v.through); err != nil {
		return policy.Document{}, err
	}
	since, err := s.changes(ctx, tx, v.through, math.MaxInt64)
	if err != nil {
		return policy.Document{}, err
	}
	doc, err := s.readDocument(ctx, tx, nil)
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
func (s *Store) Pending(ctx context.Context) (v Version, err error) {
	if s.table != nil {
		return Version{}, nil
	}
	err = s.read(ctx, func(tx *tx) error {
		now, err := s.newest(ctx, tx)
		if err != nil {
			return err
		}
		found := newTally()
		err = s.scanChanges(ctx, tx, now.through, math.MaxInt64, func(i image) {
			v.At, v.Action, v.Actor, v.through = i.at, ActionSQL, sqlActor(i.who), i.id
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
func (s *Store) newest(ctx context.Context, tx *tx) (Version, error) {
	list, err := s.queryVersions(ctx, tx, "ORDER BY id DESC LIMIT 1")
	if err != nil || len(list) == 0 {
		return Version{}, err
	}
	return list[0], nil
}

// clearedBy reports the version by which headgate deleted the last rule that
// there was, 0 if rules went in other ways, or came since then. What empties a
// table past headgate is no such version, even if it follows one.
func (s *Store) clearedBy(ctx context.Context, tx *tx) (int64, error) {
	list, err := s.queryVersions(ctx, tx, "WHERE action = ? ORDER BY id DESC LIMIT 1", ActionClear)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	var since int
	err = tx.QueryRowContext(ctx, "SELECT count(*) FROM policy_changes WHERE id > ? AND endpoint IS NOT NULL", list[0].through).Scan(&since)
	if err != nil || since > 0 {
		return 0, err
	}
	return list[0].ID, nil
}

func (s *Store) versionAt(ctx context.Context, tx *tx, id int64) (Version, error) {
	list, err := s.queryVersions(ctx, tx, "WHERE id = ?", id)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("version %d: %w", id, ErrNotFound)
	}
	if err != nil {
		return Version{}, err
	}
	return list[0], nil
}

// throughBefore is the last change before those of a version.
func (s *Store) throughBefore(ctx context.Context, tx *tx, v Version) (int64, error) {
	before, err := s.queryVersions(ctx, tx, "WHERE id < ? ORDER BY id DESC LIMIT 1", v.ID)
	if err != nil || len(before) == 0 {
		return 0, err
	}
	return before[0].through, s.checkKept(ctx, tx, v.ID, before[0].through)
}

func (s *Store) queryVersions(ctx context.Context, tx *tx, clauses string, args ...any) (list []Version, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT id, at, actor, claimed, why, action, restores, added, changed, removed, last_change
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
		v := Version{
			ID:     r.whole(0, "id", math.MaxInt64),
			At:     r.time(1, "at"),
			Author: Author{Actor: r.text(2, "actor"), Claimed: r.text(3, "claimed"), Why: r.text(4, "why")},
			Action: r.text(5, "action"),
			Of:     r.wholeOrNull(6, "restores", math.MaxInt64),
		}
		v.Added, v.Changed, v.Removed = r.count(7, "added"), r.count(8, "changed"), r.count(9, "removed")
		v.through = int64(r.count(10, "last_change"))
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
