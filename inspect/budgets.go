package inspect

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// Bounds of what BudgetsOf reports, however many endpoints and rules there are.
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

// BudgetsOf reports every rule that applies to who: at one endpoint, or at all of
// them if at is empty; none where a rule of mode allow or block settles what who
// sends. It takes nothing. It looks at every endpoint, at about a microsecond
// each.
func BudgetsOf(ctx context.Context, l *headgate.Limiter, who identity.Principal, at string) (Budgets, error) {
	set := l.Policies().Set()
	if set == nil {
		return Budgets{}, errors.New("no rules were loaded yet")
	}
	s := survey{
		l: l, lines: map[policy.RuleID]int{},
		knows: knowledge{
			principal: who.Kind != identity.Address || who.Client.IsValid(),
			project:   who.Project != "",
			address:   who.Client.IsValid(),
		},
		plan: charge.Plan{Request: charge.Request{Set: set, Endpoints: set.Endpoints(), Who: &who, Cost: 1}},
	}
	if at != "" {
		match, _, err := matchOf(set.Endpoints(), at)
		if err == nil {
			err = s.visit(ctx, match)
		}
		return s.found, err
	}
	for id := range set.Endpoints().All() {
		if err := s.visit(ctx, endpoint.Match{ID: id, Status: endpoint.Known}); err != nil {
			return Budgets{}, err
		}
	}
	if l.LimitsUnknown() {
		if err := s.visit(ctx, endpoint.Match{Status: endpoint.UnknownPath}); err != nil {
			return Budgets{}, err
		}
	}
	slices.SortStableFunc(s.found.Rules, func(a, b Budget) int { return cmp.Compare(place(a.Level), place(b.Level)) })
	return s.found, nil
}

// placeOf is an endpoint as package identity takes it, nil for none.
func placeOf(t *endpoint.Table, m endpoint.Match) *identity.Endpoint {
	if m.ID == endpoint.Unknown { // all endpoints together are known, and none of them
		return nil
	}
	place := headgate.Place(t.Template(m.ID))
	return &place
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
	l     *headgate.Limiter
	plan  charge.Plan
	knows knowledge
	lines map[policy.RuleID]int // in found.Rules, or -1 for one that is left out
	left  []Left                // at the endpoint that is looked at, by plan.Charges
	found Budgets
}

// visit looks at one endpoint.
func (s *survey) visit(ctx context.Context, m endpoint.Match) error {
	p := &s.plan
	if !p.Who.Scopes.Allow(placeOf(p.Endpoints, m)) {
		return nil // there the key does not count, and the request counts against its address
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	caller := charge.CallerOf(p.Who)
	if _, _, settled := p.Set.Access(s.l.Wall().UnixNano(), m, &caller); settled {
		return nil // no limit is asked there
	}
	p.Match = m
	if err := s.l.Plan(p); err != nil {
		return err
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	for i := range p.Charges {
		c := &p.Charges[i]
		if c.Kind.Guards() {
			continue
		}
		n, seen := s.lines[c.Rule]
		if !seen {
			n = s.add(c.Applied)
		}
		if n >= 0 && (!seen || !c.Level.EveryEndpoint()) {
			s.found.Rules[n].count(s.left[i], c.Level)
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
	terms := s.plan.Set.Terms(a.Rule)
	b := Budget{
		ID:     terms.ID,
		Rule:   s.plan.Set.Rule(a.Rule),
		Level:  a.Level,
		Shadow: a.Shadow,
		Needs:  s.knows.lacks(terms.Subject),
	}
	switch {
	case terms.Subject == policy.SubjectIdentifier || terms.Subject == policy.SubjectIdentifierIP:
		b.Needs = "what a request tries to be, such as a login name"
	case terms.Subject == policy.SubjectPath:
		b.Needs = "a value of " + b.Rule.SubjectName() + " in the path"
	case terms.Subject == policy.SubjectClaim:
		b.Needs = ""
		if _, told := s.plan.Who.Claim(b.Rule.SubjectName()); !told && s.plan.Who.Kind == identity.Token {
			b.Needs = "the claim " + b.Rule.SubjectName() + " of the token"
		}
	}
	s.lines[a.Rule] = len(s.found.Rules)
	s.found.Rules = append(s.found.Rules, b)
	return len(s.found.Rules) - 1
}

// look finds out what is left in the buckets of s.plan, all at once.
func (s *survey) look(ctx context.Context) error {
	p := &s.plan
	if err := s.l.Peek(ctx, p.Now, p.Takes, p.Outs); err != nil {
		return err
	}
	s.left = s.left[:0]
	for i := range p.Charges {
		s.left = append(s.left, Left{Endpoint: s.endpoint(p.Charges[i].Level), Wait: p.Outs[i].RetryAfter})
	}
	p.SetCost(0)
	err := s.l.Peek(ctx, p.Now, p.Takes, p.Outs)
	p.SetCost(1)
	if err != nil {
		return err
	}
	for i := range s.left {
		s.left[i].Remaining, s.left[i].ResetAfter = p.Outs[i].Remaining, p.Outs[i].ResetAfter
	}
	for i := range p.Charges {
		if c := &p.Charges[i]; c.Kind.Guards() { // it has to have room as well
			own := &s.left[c.Of]
			own.Wait, own.Remaining = max(own.Wait, s.left[i].Wait), min(own.Remaining, s.left[i].Remaining)
		}
	}
	return nil
}

func (s *survey) endpoint(level policy.Level) string {
	switch {
	case level.EveryEndpoint():
		return policy.All
	case s.plan.Match.Status != endpoint.Known:
		return policy.UnknownEndpoint
	}
	return s.plan.Endpoints.Template(s.plan.Match.ID).String()
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
	// after its equals
	at, _ := slices.BinarySearchFunc(b.Used, left, func(a, c Left) int { return cmp.Or(emptier(a, c), -1) })
	if at < MaxUsed {
		b.Used = slices.Insert(b.Used, at, left)[:min(len(b.Used)+1, MaxUsed)]
	}
}

// emptier orders buckets of one rule by what is left in them.
func emptier(a, b Left) int {
	return cmp.Or(cmp.Compare(a.Remaining, b.Remaining), cmp.Compare(b.Wait, a.Wait),
		cmp.Compare(b.ResetAfter, a.ResetAfter))
}
