package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// Edit is a change of rules and of the tiers of projects.
type Edit struct {
	// Base is the version that the author has seen. If the rules are at another
	// one by now, Apply reports a *Conflict. 0 is whatever is there.
	Base int64

	Set    []policy.Rule
	Delete []RuleKey
	Tiers  map[string]string // an empty tier takes a project out of any

	// Replace removes what is in neither Set nor Tiers.
	Replace bool

	Action string // ActionApply if empty; ActionClear in its place if Delete leaves no rule

	// Check, if there is one, may refuse the edit: it is told all rules and
	// tiers before it and after it, while nobody else can change them. It costs
	// the reading of all rules.
	Check func(before, after policy.Document) error

	of int64 // of a rollback
}

// refusal is the error of an Edit's Check: not the database's.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func (e *Edit) ask(before, after policy.Document) error {
	if e.Check == nil {
		return nil
	}
	if err := e.Check(before, after); err != nil {
		return refusal{err}
	}
	return nil
}

// Conflict is the error about an edit of rules that somebody else has changed
// meanwhile.
type Conflict struct {
	Base    int64
	Current Version
	Since   []Version // newest first, at most mostSince
}

// mostSince is how many versions a Conflict names.
const mostSince = 20

func (c *Conflict) Error() string {
	if c.Base > c.Current.ID {
		return fmt.Sprintf("the edit is of version %d, which there is not: the newest is %d", c.Base, c.Current.ID)
	}
	return fmt.Sprintf("the edit is of version %d, and the rules are at %d: %s changed them (%s)", c.Base, c.Current.ID, c.Current.Actor, c.Current.Action)
}

// Apply makes an edit: all of it or nothing, as one version, which it reports.
// An edit that changes nothing makes no version, and the current one is
// reported. What could not be loaded again is refused, and so is the removal of
// all rules by Replace: it is far more often a mistake than a wish.
func (s *Store) Apply(ctx context.Context, a Author, e Edit) (v Version, err error) {
	if s.table != nil {
		return Version{}, s.table.refuse()
	}
	e.Set = slices.Clone(e.Set)
	for i := range e.Set {
		e.Set[i] = normal(e.Set[i])
	}
	if err := errors.Join(a.Check(), e.check()); err != nil {
		return Version{}, err
	}
	err = s.write(ctx, func(tx *tx) (err error) {
		v, err = s.apply(ctx, tx, a, e)
		return err
	})
	return v, err
}

// Rollback brings back the rules and tiers of version to, as a new version. base
// is that of an Edit.
func (s *Store) Rollback(ctx context.Context, a Author, to, base int64) (Version, error) {
	return s.RollbackChecked(ctx, a, to, base, nil)
}

// RollbackChecked is Rollback with the Check of an Edit.
func (s *Store) RollbackChecked(ctx context.Context, a Author, to, base int64, check func(before, after policy.Document) error) (v Version, err error) {
	return s.restore(ctx, a, ActionRollback, to, base, check)
}

// Revert is RollbackChecked without a person: its action is ActionRevert.
func (s *Store) Revert(ctx context.Context, a Author, to, base int64, check func(before, after policy.Document) error) (Version, error) {
	return s.restore(ctx, a, ActionRevert, to, base, check)
}

func (s *Store) restore(ctx context.Context, a Author, action string, to, base int64, check func(before, after policy.Document) error) (v Version, err error) {
	if s.table != nil {
		return Version{}, s.table.refuse()
	}
	if err := a.Check(); err != nil {
		return Version{}, err
	}
	err = s.write(ctx, func(tx *tx) error {
		if _, err := s.number(ctx, tx); err != nil { // before it is looked for: to may be among them
			return err
		}
		doc, err := s.at(ctx, tx, to)
		if err != nil {
			return err
		}
		e := Edit{Base: base, Set: doc.Rules, Tiers: doc.Projects, Replace: true, Action: action, Check: check, of: to}
		if err := e.check(); err != nil {
			return err
		}
		v, err = s.apply(ctx, tx, a, e)
		return err
	})
	return v, err
}

// normal writes a rule as it comes back from the database.
func normal(r policy.Rule) policy.Rule {
	r.Endpoint = canonical(r.Endpoint)
	if r.Per == 0 {
		r.Per = time.Second
	}
	if !r.Expires.IsZero() {
		r.Expires = time.Unix(max(r.Expires.Unix(), 1), 0).UTC()
	}
	return r
}

// check reports what is wrong with an edit by itself.
func (e *Edit) check() error {
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
			if set[k.place()] {
				faults = append(faults, fmt.Errorf("%v is both set and deleted, want one of the two", k))
			}
			set[k.place()] = true
		}
	}
	return errors.Join(faults...)
}

func emptied(where string) error {
	return policy.Problem{Code: "empty", Rule: -1, Where: where, Field: "rules", Value: "empty", Want: "at least one rule to replace all others with"}
}

func (k RuleKey) place() place {
	return place{canonical(k.Endpoint), k.Project, k.Tier, k.Subject, k.Temporary}
}

// aFew is how many rules are looked up one by one; for more, all are read.
const aFew = 20

// isSmall reports whether an edit can be judged without all other rules.
func (e *Edit) isSmall() bool {
	mixed := len(e.Set) > 0 && len(e.Delete) > 0 // what goes may be what is in the way
	return e.Check == nil && !e.Replace && !mixed && len(e.Set)+len(e.Delete)+len(e.Tiers) <= aFew
}

// apply makes an edit that is checked by itself.
func (s *Store) apply(ctx context.Context, tx *tx, a Author, e Edit) (Version, error) {
	now, err := s.number(ctx, tx)
	if err != nil {
		return Version{}, err
	}
	if e.Base != 0 && e.Base != now.ID {
		return Version{}, s.conflict(ctx, tx, e.Base, now)
	}
	var p plan
	if e.isSmall() {
		p, err = s.planFew(ctx, tx, e)
	} else {
		p, err = s.planAll(ctx, tx, e)
	}
	if err != nil {
		return Version{}, err
	}
	if err := p.write(ctx, tx); err != nil {
		return Version{}, err
	}
	last, err := lastChange(ctx, tx)
	if err != nil || last == now.through {
		return now, err
	}
	v := Version{ID: now.ID + 1, At: time.Now(), Author: a, Action: e.Action, Of: e.of, through: last}
	if v.Action == "" {
		v.Action = ActionApply
	}
	if cleared, err := e.clears(ctx, tx); err != nil {
		return Version{}, err
	} else if cleared {
		v.Action = ActionClear
	}
	v.At = time.Unix(v.At.Unix(), 0).UTC() // as it comes back
	v.Added, v.Changed, v.Removed = p.count()
	return v, writeVersion(ctx, tx, v)
}

// clears reports whether an edit that was written has deleted the last rule.
func (e *Edit) clears(ctx context.Context, tx *tx) (bool, error) {
	if len(e.Delete) == 0 {
		return false, nil
	}
	var left int
	err := tx.QueryRowContext(ctx, "SELECT count(*) FROM (SELECT 1 FROM policies LIMIT 1) AS one").Scan(&left)
	return left == 0, err
}

func (s *Store) conflict(ctx context.Context, tx *tx, base int64, now Version) error {
	since, err := s.queryVersions(ctx, tx, "WHERE id > ? ORDER BY id DESC LIMIT ?", base, mostSince)
	if err != nil {
		return err
	}
	return &Conflict{Base: base, Current: now, Since: since}
}
