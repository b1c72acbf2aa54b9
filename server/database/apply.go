package database

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// refusal is the error of an Edit's Check: not the database's.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func ask(e *record.Edit, before, after policy.Document) error {
	if e.Check == nil {
		return nil
	}
	if err := e.Check(before, after); err != nil {
		return refusal{err}
	}
	return nil
}

// mostSince is how many versions a Conflict names.
const mostSince = 20

// Apply makes an edit: all of it or nothing, as one version, which it reports.
// An edit that changes nothing makes no version, and the current one is
// reported. What could not be loaded again is refused, and so is the removal of
// all rules by Replace: it is far more often a mistake than a wish.
func (s *Store) Apply(ctx context.Context, a record.Author, e record.Edit) (v record.Version, err error) {
	if s.table != nil {
		return record.Version{}, s.table.refuse()
	}
	e.Set = slices.Clone(e.Set)
	for i := range e.Set {
		e.Set[i] = normal(e.Set[i])
	}
	if err := errors.Join(a.Check(), checkEdit(&e)); err != nil {
		return record.Version{}, err
	}
	err = s.write(ctx, func(tx *tx) (err error) {
		v, err = s.apply(ctx, tx, a, e, 0)
		return err
	})
	return v, err
}

// Rollback brings back the rules and tiers of version to, as a new version. base
// is that of an Edit.
func (s *Store) Rollback(ctx context.Context, a record.Author, to, base int64) (record.Version, error) {
	return s.RollbackChecked(ctx, a, to, base, nil)
}

// RollbackChecked is Rollback with the Check of an Edit.
func (s *Store) RollbackChecked(ctx context.Context, a record.Author, to, base int64,
	check func(before, after policy.Document) error) (v record.Version, err error) {
	return s.restore(ctx, a, record.ActionRollback, to, base, check)
}

// Revert is RollbackChecked without a person: its action is ActionRevert.
func (s *Store) Revert(ctx context.Context, a record.Author, to, base int64,
	check func(before, after policy.Document) error) (record.Version, error) {
	return s.restore(ctx, a, record.ActionRevert, to, base, check)
}

func (s *Store) restore(ctx context.Context, a record.Author, action string, to, base int64,
	check func(before, after policy.Document) error) (v record.Version, err error) {
	if s.table != nil {
		return record.Version{}, s.table.refuse()
	}
	if err := a.Check(); err != nil {
		return record.Version{}, err
	}
	err = s.write(ctx, func(tx *tx) error {
		if _, err := s.number(ctx, tx); err != nil { // before it is looked for: to may be among them
			return err
		}
		doc, err := s.at(ctx, tx, to)
		if err != nil {
			return err
		}
		e := record.Edit{Base: base, Set: doc.Rules, Tiers: doc.Projects, Replace: true, Action: action, Check: check}
		if err := checkEdit(&e); err != nil {
			return err
		}
		v, err = s.apply(ctx, tx, a, e, to)
		return err
	})
	return v, err
}

// normal writes a rule as it comes back from the database.
func normal(r policy.Rule) policy.Rule {
	r.Endpoint = record.Canonical(r.Endpoint)
	if r.Per == 0 {
		r.Per = time.Second
	}
	if !r.Expires.IsZero() {
		r.Expires = time.Unix(max(r.Expires.Unix(), 1), 0).UTC()
	}
	return r
}

// checkEdit reports what is wrong with an edit by itself.
func checkEdit(e *record.Edit) error {
	if e.Replace && len(e.Set) == 0 {
		return emptied("edit")
	}
	stay := map[string]string{}
	for project, tier := range e.Tiers {
		if tier != "" {
			stay[project] = tier
		}
	}
	faults := []error{lint(policy.Document{Rules: e.Set, Projects: stay})}
	if len(e.Delete) > 0 {
		set := make(map[place]bool, len(e.Set))
		for _, r := range e.Set {
			set[placeOf(r)] = true
		}
		for _, k := range e.Delete {
			if set[placeOfKey(k)] {
				faults = append(faults, fmt.Errorf("%v is both set and deleted, want one of the two", k))
			}
			set[placeOfKey(k)] = true
		}
	}
	return errors.Join(faults...)
}

func emptied(where string) error {
	return policy.Problem{
		Code:  "empty",
		Rule:  -1,
		Where: where,
		Field: "rules",
		Value: "empty",
		Want:  "at least one rule to replace all others with",
	}
}

func placeOfKey(k record.RuleKey) place {
	return place{record.Canonical(k.Endpoint), k.Project, k.Tier, k.Subject, k.Only, k.Temporary}
}

// aFew is how many rules are looked up one by one; for more, all are read.
const aFew = 20

// isSmall reports whether an edit can be judged without all other rules.
func isSmall(e *record.Edit) bool {
	mixed := len(e.Set) > 0 && len(e.Delete) > 0 // what goes may be what is in the way
	return e.Check == nil && !e.Replace && !mixed && len(e.Set)+len(e.Delete)+len(e.Tiers) <= aFew
}

// apply makes an edit that is checked by itself. Of a rollback, it brings back version of.
func (s *Store) apply(ctx context.Context, tx *tx, a record.Author, e record.Edit, of int64) (record.Version, error) {
	now, err := s.number(ctx, tx)
	if err != nil {
		return record.Version{}, err
	}
	if e.Base != 0 && e.Base != now.ID {
		return record.Version{}, s.conflict(ctx, tx, e.Base, now)
	}
	var p plan
	if isSmall(&e) {
		p, err = s.planFew(ctx, tx, e)
	} else {
		p, err = s.planAll(ctx, tx, e)
	}
	if err != nil {
		return record.Version{}, err
	}
	if err := p.write(ctx, tx); err != nil {
		return record.Version{}, err
	}
	last, err := lastChange(ctx, tx)
	if err != nil || last == now.Through {
		return now, err
	}
	v := record.Version{ID: now.ID + 1, At: time.Now(), Author: a, Action: e.Action, Of: of, Through: last}
	if v.Action == "" {
		v.Action = record.ActionApply
	}
	if cleared, err := clears(ctx, tx, &e); err != nil {
		return record.Version{}, err
	} else if cleared {
		v.Action = record.ActionClear
	}
	v.At = time.Unix(v.At.Unix(), 0).UTC() // as it comes back
	v.Added, v.Changed, v.Removed = p.count()
	return v, writeVersion(ctx, tx, v)
}

// clears reports whether an edit that was written has deleted the last rule.
func clears(ctx context.Context, tx *tx, e *record.Edit) (bool, error) {
	if len(e.Delete) == 0 {
		return false, nil
	}
	var left int
	err := tx.QueryRowContext(ctx, "SELECT count(*) FROM (SELECT 1 FROM policies LIMIT 1) AS one").Scan(&left)
	return left == 0, err
}

func (s *Store) conflict(ctx context.Context, tx *tx, base int64, now record.Version) error {
	since, err := s.queryVersions(ctx, tx, "WHERE id > ? ORDER BY id DESC LIMIT ?", base, mostSince)
	if err != nil {
		return err
	}
	return &record.Conflict{Base: base, Current: now, Since: since}
}
