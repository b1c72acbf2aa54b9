package headgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// Bounds of what Budgets reports, however many endpoints and rules there are.
const (
	MaxBudgets = 1000 // rules
	MaxUsed    = 20   // endpoints under one of them, the emptiest
)

// Budgets is every rule that applies to one caller somewhere.
type Budgets struct {
	Rules []Budget
	More  int // rules that are left out because there are more than MaxBudgets
}

// Budget is one rule, and what is left under it. A rule for many endpoints is one
// Budget, though each of them has a bucket of its own.
type Budget struct {
	ID    uint64 // policy.Terms.ID
	Rule  policy.Rule
	Level policy.Level

	// Endpoints is at how many endpoints the rule applies to the caller, each
	// with a bucket of its own; 0 means that one bucket counts them all.
	Endpoints int

	// Shadow means that the rule denies this caller nothing.
	Shadow bool

	// Needs says what else a bucket of the rule goes by, where the caller alone
	// does not name it. Nothing of what follows is known then.
	Needs string

	// State is that of the emptiest bucket, and Used are those that are not
	// full, the emptiest first, at most MaxUsed.
	State Left
	Used  []Left
}

// Left is what is left in one bucket.
type Left struct {
	Endpoint   string // whose requests it counts; "*" is all of them together
	Remaining  int64  // tokens that can be taken now
	ResetAfter time.Duration
	Wait       time.Duration // until one token can be taken
}

// Caller returns who a query means by evidence or by names, as the requests of
// that caller are resolved. What the query says of buckets does not matter. An
// API key counts here whatever its scopes.
func (l *Limiter) Caller(ctx context.Context, q BucketQuery) (identity.Principal, error) {
	who, _, err := l.whoOf(ctx, l.identities.AnyScope(), &q, nil)
	return who, err
}

// Budgets reports every rule that applies to who: at one endpoint, or at all of
// them if at is empty. It takes nothing. It looks at every endpoint, at about a
// microsecond each.
func (l *Limiter) Budgets(ctx context.Context, who identity.Principal, at string) (Budgets, error) {
	now := l.clock.Now()
	set := l.rules(now)
	if set == nil {
		return Budgets{}, errors.New("no rules were loaded yet")
	}
	s := survey{
		l: l, lines: map[policy.RuleID]int{},
		knows: knowledge{principal: who.Kind != identity.Address || who.Client.IsValid(), project: who.Project != "", address: who.Client.IsValid()},
		t:     &trip{who: who, set: set, now: now, cost: 1, limiter: l},
	}
	if at != "" {
		match, _, err := l.matchOf(at)
		if err == nil {
			err = s.visit(ctx, match)
		}
		return s.found, err
	}
	for id := range l.endpoints.All() {
		if err := s.visit(ctx, endpoint.Match{ID: id, Status: endpoint.Known}); err != nil {
			return Budgets{}, err
		}
	}
	if !l.rejectUnknown {
		if err := s.visit(ctx, endpoint.Match{Status: endpoint.UnknownPath}); err != nil {
			return Budgets{}, err
		}
	}
	slices.SortStableFunc(s.found.Rules, func(a, b Budget) int { return cmp.Compare(place(a.Level), place(b.Level)) })
	return s.found, nil
}

// place orders rules as people read them: those of single endpoints as the
// endpoints are, then those for the rest.
func place(level policy.Level) policy.Level {
	if level <= policy.LevelEndpoint {
		return policy.LevelEndpoint
	}
	return level
}

// survey goes through endpoints and gathers the rules that apply there.
type survey struct {
	l     *Limiter
	t     *trip
	knows knowledge
	lines map[policy.RuleID]int // in found.Rules, or -1 for one that is left out
	left  []Left                // at the endpoint that is looked at, by t.applied
	found Budgets
}

// visit looks at one endpoint.
func (s *survey) visit(ctx context.Context, m endpoint.Match) error {
	t := s.t
	if !t.who.Scopes.Allow(s.l.place(m.ID)) {
		return nil // there the key does not count, and the request is its address's
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t.match = m
	t.applied = t.set.ResolveFor(t.applied[:0], s.l.clock.Wall(t.now), m, t.who.Project, t.who.Tier, t)
	s.l.name(t)
	s.l.guard(t)
	if err := s.look(ctx); err != nil {
		return err
	}
	for i, a := range t.applied[:t.doubted] {
		n, seen := s.lines[a.Rule]
		if !seen {
			n = s.add(a)
		}
		if n >= 0 && (!seen || !a.Level.EveryEndpoint()) {
			s.found.Rules[n].count(s.left[i], a.Level)
		}
	}
	return nil
}

// add begins a line, and reports its number or -1.
func (s *survey) add(a policy.Applied) int {
	if len(s.found.Rules) == MaxBudgets {
		s.lines[a.Rule] = -1
		s.found.More++
		return -1
	}
	terms := s.t.set.Terms(a.Rule)
	b := Budget{ID: terms.ID, Rule: s.t.set.Rule(a.Rule), Level: a.Level, Shadow: a.Shadow, Needs: s.knows.lacks(terms.Subject)}
	if terms.Subject == policy.SubjectIdentifier || terms.Subject == policy.SubjectIdentifierIP {
		b.Needs = "what a request tries to be, such as a login name"
	}
	s.lines[a.Rule] = len(s.found.Rules)
	s.found.Rules = append(s.found.Rules, b)
	return len(s.found.Rules) - 1
}

// look finds out what is left in the buckets of s.t.
func (s *survey) look(ctx context.Context) error {
	t := s.t
	s.left = s.left[:0]
	if _, err := s.l.buckets.Peek(ctx, t.now, t.takes, t.outs); err != nil {
		return fmt.Errorf("look at the buckets: %w", err)
	}
	for i, a := range t.applied {
		s.left = append(s.left, Left{Endpoint: s.endpoint(a.Level), Wait: t.outs[i].RetryAfter})
		t.takes[i].Cost = 0
	}
	for k, g := range t.guards { // a bucket of before has to have room as well
		s.left[g.Of].Wait = max(s.left[g.Of].Wait, s.left[t.doubted+k].Wait)
	}
	if _, err := s.l.buckets.Peek(ctx, t.now, t.takes, t.outs); err != nil {
		return fmt.Errorf("look at the buckets: %w", err)
	}
	for i := range s.left {
		s.left[i].Remaining, s.left[i].ResetAfter = t.outs[i].Remaining, t.outs[i].ResetAfter
	}
	for k, g := range t.guards {
		s.left[g.Of].Remaining = min(s.left[g.Of].Remaining, s.left[t.doubted+k].Remaining)
	}
	return nil
}

func (s *survey) endpoint(level policy.Level) string {
	switch {
	case level.EveryEndpoint():
		return policy.All
	case s.t.match.Status != endpoint.Known:
		return policy.UnknownEndpoint
	}
	return s.l.endpoints.Template(s.t.match.ID).String()
}

// count adds the bucket of one more endpoint to a line.
func (b *Budget) count(left Left, level policy.Level) {
	first := b.State.Endpoint == ""
	if !level.EveryEndpoint() {
		b.Endpoints++
	}
	if b.Needs != "" {
		return
	}
	if first || emptier(left, b.State) < 0 {
		b.State = left
	}
	if left.ResetAfter == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(b.Used, left, func(a, c Left) int { return cmp.Or(emptier(a, c), -1) }) // after its equals
	if at < MaxUsed {
		b.Used = slices.Insert(b.Used, at, left)[:min(len(b.Used)+1, MaxUsed)]
	}
}

// emptier orders buckets of one rule by what is left in them.
func emptier(a, b Left) int {
	return cmp.Or(cmp.Compare(a.Remaining, b.Remaining), cmp.Compare(b.Wait, a.Wait), cmp.Compare(b.ResetAfter, a.ResetAfter))
}
