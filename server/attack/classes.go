package attack

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// What rules promise to classes of requests that share a budget (policy.PriorityTerms) is tried without a deployment,
// in virtual time: on one, whoever tried it would deny everybody. Two things are tried of each such budget, full at
// first:
//
//   - all classes but one ask for whatever they can get, and one for what it is guaranteed: it has to get that;
//   - all ask for whatever they can get, the lowest class first at each moment: together they may get burst and rate,
//     each has to get what it is guaranteed, and the highest class all that the others are not.
//
// And of every class but the highest, requests claim another, in each way that a client has.

// Starved is a class that did not get what it is guaranteed, Raised one that a request has claimed and got.
const (
	Starved Verdict = "starved"
	Raised  Verdict = "raised"
)

// Decider decides requests and takes what they cost: a *headgate.Limiter.
type Decider interface {
	Check(context.Context, headgate.Request) headgate.Decision
}

// Looker says what a request would be answered: a *headgate.Limiter.
type Looker interface {
	Look(context.Context, headgate.Request) *headgate.Look
}

// Rules are rules to be tried, and who decides by them.
type Rules struct {
	Document policy.Document
	Set      *policy.Set // what it was compiled to
	Begin    time.Time   // when it is tried, since rules may be temporary

	// Real tells callers apart as the deployment does: what claims a class is shown to it.
	Real Looker

	// Fresh returns one who decides by the rules at the times of a clock, with full buckets, and tells callers apart by
	// address and headgate.Request.User.
	Fresh func(clock func() time.Time) (Decider, error)
}

// Budget is what was found of a budget that classes share.
type Budget struct {
	Rule     string        `json:"rule"`
	Limit    string        `json:"limit"`
	Priority string        `json:"priority"`
	Lasts    time.Duration `json:"lasts_ns"` // each of Shares, in virtual time; 0 where places are counted
	Shares   []ClassShare  `json:"shares"`
	Claims   []ClassClaim  `json:"claims"`
	Missing  []string      `json:"missing,omitempty"` // classes that the rule names, and no request was found of
}

// Everybody is ClassShare.Class where it is about all classes together.
const Everybody = "together"

// ClassShare is what a class got of a budget, in tokens, or in places.
type ClassShare struct {
	Class   string  `json:"class"`
	By      string  `json:"by,omitempty"` // whose request it is
	Percent int     `json:"guaranteed_percent"`
	Alone   bool    `json:"asks_for_share"` // for what it is guaranteed, while all others ask for all they can get
	Asked   int64   `json:"asked"`
	Passed  int64   `json:"passed"`
	Others  int64   `json:"by_other_rules"`     // of those denied, whose reason is other rules
	Share   int64   `json:"share"`              // that it is guaranteed in the time; what passes above is borrowed
	Least   int64   `json:"at_least,omitempty"` // that have to pass
	Most    int64   `json:"at_most"`            // of all classes together
	Verdict Verdict `json:"verdict"`
	Note    string  `json:"note,omitempty"`
}

// ClassClaim is what became of requests of a class that claim another.
type ClassClaim struct {
	Class   string   `json:"class"`
	By      string   `json:"by"`
	Tried   int      `json:"tried"`
	Verdict Verdict  `json:"verdict"`
	Raised  []string `json:"raised,omitempty"` // the claims that were believed, and the class that came of them
}

// asker is a request of one class that meets a budget.
type asker struct {
	class   policy.Class
	by      string
	request headgate.Request
	cost    int64 // of one part
	parts   int64 // that it holds, so that a large burst is no more requests than a small one
	most    int64 // parts for which other rules have room
}

// shared is a budget and who meets it.
type shared struct {
	rule   policy.RuleID
	terms  *policy.PriorityTerms
	common bool // of all callers
	askers []asker
}

const (
	maxLooks   = 20_000 // at requests, to find those that meet shared budgets
	maxBudgets = 20
	tried      = 500     // requests that a burst is divided into, where other rules have room for such
	maxAsked   = 50_000  // requests of a class at one moment
	callers    = 1 << 18 // that take turns, so that what a rule lets each have is not in the way
	claimed    = 3       // variations of each family of claims
	maxRaised  = 8
)

// Classes tries all budgets that classes share. There are none if no rule says how.
func (r *Rules) Classes(ctx context.Context) ([]Budget, error) {
	var found []Budget
	for _, s := range r.shared(ctx) {
		b, err := r.try(ctx, s)
		if err != nil {
			return found, err
		}
		found = append(found, b)
	}
	return found, ctx.Err()
}

// shared finds the budgets that classes share: of each rule the one that most classes meet.
func (r *Rules) shared(ctx context.Context) []*shared {
	type name struct {
		rule policy.RuleID
		key  key.Key
	}
	budgets, looks := map[name]*shared{}, 0
	for one := range r.candidates {
		if looks++; looks > maxLooks || ctx.Err() != nil {
			break
		}
		look := r.Real.Look(ctx, one.request)
		if !look.Plan.Planned() {
			continue
		}
		for i := range look.Plan.Charges {
			c := &look.Plan.Charges[i]
			terms := r.Set.PriorityOf(c.Rule)
			if terms == nil || terms.Shares == nil || c.Shadow || c.Kind.Guards() || c.Place >= look.Plan.Told() {
				continue
			}
			of := name{c.Rule, look.Plan.Takes[c.Place].Key}
			s := budgets[of]
			if s == nil {
				s = &shared{rule: c.Rule, terms: terms}
				budgets[of] = s
			}
			if one.class = look.Class; !s.has(one.class) {
				one.cost, one.parts, one.most = look.Cost, 1, math.MaxInt64
				for place, take := range look.Plan.Takes[:look.Plan.Told()] {
					if place != c.Place {
						one.most = min(one.most, max(1, take.Shape.Burst()/max(1, take.Cost)))
					}
				}
				s.askers = append(s.askers, one)
				s.common = s.common || one.request.User == nil && r.common(ctx, one.request, of.key)
			}
		}
	}
	best := map[policy.RuleID]*shared{}
	for _, of := range slices.SortedFunc(maps.Keys(budgets), func(a, b name) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.key.Hi, b.key.Hi), cmp.Compare(a.key.Lo, b.key.Lo))
	}) {
		s := budgets[of]
		slices.SortStableFunc(s.askers, func(a, b asker) int { return int(a.class) - int(b.class) })
		if best[of.rule] == nil || len(s.askers) > len(best[of.rule].askers) {
			best[of.rule] = s
		}
	}
	list := slices.SortedFunc(maps.Values(best), func(a, b *shared) int { return cmp.Compare(a.rule, b.rule) })
	return list[:min(len(list), maxBudgets)]
}

func (s *shared) has(c policy.Class) bool {
	return slices.ContainsFunc(s.askers, func(a asker) bool { return a.class == c })
}

// common reports whether another caller meets the same bucket.
func (r *Rules) common(ctx context.Context, one headgate.Request, of key.Key) bool {
	one.Peer = caller(callers)
	other := r.Real.Look(ctx, one)
	return slices.ContainsFunc(other.Plan.Takes, func(t bucket.Take) bool { return t.Key == of })
}

// caller is the address of one of many callers.
func caller(i int) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24+uint32(i+1))
	return netip.AddrFrom4(a)
}

// candidates are requests to each endpoint: of anybody, of a user of one project in each tier and of each project that
// a rule says a class of, and of those whose credential says a class, which is said for them.
func (r *Rules) candidates(yield func(asker) bool) {
	table := r.Set.Endpoints()
	targets := []headgate.Request{{Method: "GET", Target: "/" + encode64(digest("unknown", 0)[:9])}}
	names := []string{policy.UnknownEndpoint}
	for _, t := range table.All() {
		target := Fill(t.Path(), "1")
		if query := t.Query(); query != "" {
			target += "?" + query
		}
		targets = append(targets, headgate.Request{Method: t.Method(), Message: endpoint.OfMessages(t.Method()),
			Target: target})
		names = append(names, t.String())
	}
	all := func(who string, user *identity.User, class policy.Class) bool {
		for i, request := range targets {
			request.Peer, request.User, request.Class = caller(0), user, class
			if !yield(asker{by: names[i] + ", " + who, request: request}) {
				return false
			}
		}
		return true
	}
	if !all("anybody", nil, policy.Unclassed) {
		return
	}
	for _, project := range r.projects() {
		if !all("project "+project, &identity.User{ID: "user", Project: project}, policy.Unclassed) {
			return
		}
	}
	if places := r.Set.Places(); places != nil {
		for _, said := range places.Shares {
			if !all("a credential that says "+said.Class.String(), nil, said.Class) {
				return
			}
		}
	}
}

// projects are one in each tier, and those that rules say a class of.
func (r *Rules) projects() (list []string) {
	tiers := map[string]bool{}
	for _, project := range slices.Sorted(maps.Keys(r.Document.Projects)) {
		if tier := r.Document.Projects[project]; !tiers[tier] {
			tiers[tier] = true
			list = append(list, project)
		}
	}
	for i := range r.Document.Rules {
		rule := &r.Document.Rules[i]
		if rule.Project != "" && rule.Priority != "" && !slices.Contains(list, rule.Project) {
			list = append(list, rule.Project)
		}
	}
	return list
}

// try tries one budget.
func (r *Rules) try(ctx context.Context, s *shared) (Budget, error) {
	rule := r.Set.Rule(s.rule)
	b := Budget{Rule: rule.Title(), Limit: rule.Rate(), Priority: string(rule.Priority)}
	if rule.Algorithm != policy.Concurrency {
		b.Limit += fmt.Sprintf(", burst %d", rule.Burst)
	}
	for _, share := range s.terms.Shares {
		if !slices.ContainsFunc(s.askers, func(a asker) bool { return s.terms.Guaranteed(a.class) == share }) {
			b.Missing = append(b.Missing, share.Class.String())
		}
	}
	f := r.newFlood(s)
	b.Lasts = f.lasts()
	if len(s.askers) > 1 {
		for i := range s.askers {
			share, err := f.alone(ctx, i)
			if err != nil {
				return b, err
			}
			b.Shares = append(b.Shares, share)
		}
		all, err := f.all(ctx)
		if err != nil {
			return b, err
		}
		b.Shares = append(b.Shares, all...)
	}
	for _, a := range s.askers {
		if a.class != s.askers[0].class && a.request.Class == policy.Unclassed {
			b.Claims = append(b.Claims, r.claim(ctx, a))
		}
	}
	return b, ctx.Err()
}

// flood is what is asked of one budget.
type flood struct {
	*shared
	rules *Rules
	terms policy.Terms
	rule  policy.Rule
	most  int64 // that one request takes
	steps int64 // moments after the first, each with so much more in the budget

	now     time.Time
	who     Decider
	caller  int
	endless bool // a class has asked for maxAsked, and there was more
}

func (r *Rules) newFlood(s *shared) *flood {
	f := &flood{shared: s, rules: r, terms: r.Set.Terms(s.rule), rule: r.Set.Rule(s.rule)}
	for i := range s.askers {
		f.most = max(f.most, f.takes(&s.askers[i]))
	}
	if f.terms.Concurrent {
		return f
	}
	unit := max(f.most, f.rule.Burst/tried)
	tokens := 2 * f.rule.Burst
	for i := range s.askers {
		a := &s.askers[i]
		one := f.takes(a)
		a.parts = min(a.most, unit/one)
		if own, ok := f.own(a); ok {
			a.parts = max(1, min(a.parts, own.Burst()/one))
		}
		f.most = max(f.most, f.takes(a))
		if percent := s.terms.Guaranteed(a.class).Percent; percent > 0 {
			tokens = max(tokens, 20*unit*100/int64(percent))
		}
	}
	f.steps = tokens/f.most + 1
	return f
}

// takes is what a request takes of the budget.
func (f *flood) takes(a *asker) int64 {
	switch {
	case f.terms.Concurrent:
		return 1
	case f.terms.PerRequest:
		return a.parts
	}
	return max(1, a.cost) * a.parts
}

// step is how long it takes until there is the cost of one request more.
func (f *flood) step() time.Duration {
	return time.Duration(math.Ceil(float64(f.rule.Per) * float64(f.most) / float64(f.rule.Limit)))
}

func (f *flood) lasts() time.Duration { return time.Duration(f.steps) * f.step() }

// begin has all buckets full.
func (f *flood) begin() (err error) {
	f.now, f.endless = f.rules.Begin, false
	f.who, err = f.rules.Fresh(func() time.Time { return f.now })
	return err
}

// ask sends one request, and reports whether it passed, and else whether this budget's rule is a reason.
func (f *flood) ask(ctx context.Context, a *asker, s *ClassShare) (passed, denied bool) {
	request := a.request
	request.Parts = a.parts
	if f.common {
		f.caller = (f.caller + 1) % callers
		if request.Peer = caller(f.caller); request.User != nil {
			request.User = &identity.User{ID: fmt.Sprint("user", f.caller), Project: request.User.Project}
		}
	}
	d := f.who.Check(ctx, request)
	cost := f.takes(a)
	s.Asked += cost
	if d.Allowed {
		s.Passed += cost
		return true, false
	}
	for _, v := range d.Verdicts() {
		denied = denied || d.Policies().Terms(v.Rule).ID == f.terms.ID && !v.Shadow && !v.Outcome.Allowed
	}
	if !denied {
		s.Others += cost
	}
	return false, denied
}

// takeAll asks until a request is denied.
func (f *flood) takeAll(ctx context.Context, a *asker, s *ClassShare) {
	for range maxAsked {
		if passed, _ := f.ask(ctx, a, s); !passed {
			return
		}
	}
	f.endless = true
}

// judge says what cannot be judged.
func (f *flood) judge(s *ClassShare) {
	switch {
	case f.endless:
		s.Verdict, s.Note = Inconclusive, "requests of this size never use the burst up"
	case s.Asked > 0 && s.Others == s.Asked:
		s.Verdict, s.Note = Inconclusive, "other rules deny all of it"
	case s.Others > 0:
		s.Note = "other rules deny some of it"
	}
}

// share is what is told of an asker, of which nothing is known yet.
func (f *flood) share(a *asker) ClassShare {
	s := ClassShare{Class: a.class.String(), By: a.by, Percent: f.shared.terms.Guaranteed(a.class).Percent,
		Verdict: Held}
	if own, ok := f.own(a); ok {
		s.Share = own.Burst() + int64(f.came()*float64(s.Percent)/100)
	}
	return s
}

// came is what the budget has had in the time beside its burst.
func (f *flood) came() float64 {
	if f.terms.Concurrent {
		return 0
	}
	return float64(f.rule.Limit) * float64(f.lasts()) / float64(f.rule.Per)
}

// own is the bucket of what a class is guaranteed.
func (f *flood) own(a *asker) (rate.Shape, bool) {
	return f.terms.Shape.Share(f.shared.terms.Guaranteed(a.class).Percent)
}

// alone has one class ask for what it is guaranteed, while all others ask for whatever they can get. Those that are
// guaranteed the same as the one, together, are not asked for.
func (f *flood) alone(ctx context.Context, i int) (ClassShare, error) {
	one := &f.askers[i]
	share := f.share(one)
	share.Alone = true
	own, ok := f.own(one)
	cost := f.takes(one)
	switch {
	case !ok:
		share.Note = "guaranteed nothing"
		return share, nil
	case cost > own.Burst():
		share.Verdict = Starved
		share.Note = fmt.Sprintf("a request costs %d, and what the class is guaranteed holds %d", cost, own.Burst())
		return share, nil
	}
	if err := f.begin(); err != nil {
		return share, err
	}
	var asked bucket.State
	for n := int64(0); n <= f.steps && ctx.Err() == nil; n++ {
		for j := len(f.askers) - 1; j >= 0; j-- {
			if f.shared.terms.Guaranteed(f.askers[j].class) != f.shared.terms.Guaranteed(one.class) {
				f.takeAll(ctx, &f.askers[j], &ClassShare{})
			}
		}
		for {
			if f.terms.Concurrent {
				if share.Asked >= own.Burst() {
					break
				}
			} else {
				after, out := asked.Take(f.now.UnixNano(), own, cost)
				if !out.Allowed {
					break
				}
				asked = after
			}
			if _, denied := f.ask(ctx, one, &share); denied {
				share.Verdict = Starved
			}
		}
		f.now = f.now.Add(f.step())
	}
	share.Least = share.Asked - share.Others
	f.judge(&share)
	return share, nil
}

// all has every class ask for whatever it can get, the lowest first at each moment.
func (f *flood) all(ctx context.Context) ([]ClassShare, error) {
	if err := f.begin(); err != nil {
		return nil, err
	}
	shares := make([]ClassShare, len(f.askers))
	for i := range f.askers {
		shares[i] = f.share(&f.askers[i])
	}
	for n := int64(0); n <= f.steps && ctx.Err() == nil; n++ {
		for i := len(f.askers) - 1; i >= 0; i-- {
			f.takeAll(ctx, &f.askers[i], &shares[i])
		}
		if n < f.steps {
			f.now = f.now.Add(f.step())
		}
	}
	together := ClassShare{Class: Everybody, Most: f.terms.Shape.Burst() + int64(f.came()), Verdict: Held}
	for i := range shares {
		s := &shares[i]
		together.Asked, together.Passed = together.Asked+s.Asked, together.Passed+s.Passed
		together.Others += s.Others
		if s.Others == 0 { // what they deny, this rule has no say in
			if s.Least = f.least(i); s.Passed < s.Least {
				s.Verdict = Starved
			}
		}
		f.judge(s)
	}
	if together.Passed > together.Most {
		together.Verdict = Widened
	}
	return append(shares, together), nil
}

// least is what a class gets at least that asks for whatever it can get, while all others do.
func (f *flood) least(i int) int64 {
	one := &f.askers[i]
	guaranteed := f.shared.terms.Guaranteed(one.class)
	for j := range f.askers {
		if j != i && f.shared.terms.Guaranteed(f.askers[j].class) == guaranteed {
			return 0 // they share it, and nothing is said of how
		}
	}
	cost := f.takes(one)
	own, ok := f.own(one)
	if ok = ok && cost <= own.Burst(); f.terms.Concurrent {
		if ok {
			return own.Burst()
		}
		return 0
	}
	came, least := f.came(), 0.0
	if ok {
		least = came*float64(guaranteed.Percent)/100 - float64(cost)
	}
	if i == 0 && len(f.askers) > 1 {
		// What others get by what they leave, they get of the burst that is full at first: from then on the highest
		// class takes what comes, before there is enough for them. They are left what they are guaranteed.
		kept := f.rules.Set.Leaves(f.shared.rule, one.class)
		next := f.rules.Set.Leaves(f.shared.rule, f.askers[1].class)
		if next-kept >= 2*f.most {
			others := 0
			for _, a := range f.askers[1:] {
				if s := f.shared.terms.Guaranteed(a.class); s != guaranteed {
					others += s.Percent
				}
			}
			least = max(least, came*float64(100-others)/100-float64(f.rule.Burst)*float64(others)/100+
				float64(next-kept)-float64(2*f.most))
		}
	}
	return int64(max(0, least))
}

// claim shows requests of a class that claim another to who tells callers apart.
func (r *Rules) claim(ctx context.Context, a asker) ClassClaim {
	c := ClassClaim{Class: a.class.String(), By: a.by, Verdict: Held}
	is := r.Real.Look(ctx, a.request)
	for _, family := range slices.Concat(classClaims(r.Set.ClassClaim()), Headers.Families, Keys.Families,
		Tokens.Families, Spelling.Families) {
		for i := range claimed {
			sent := family.Make(Request{Method: a.request.Method, Target: a.request.Target}, i)
			request := a.request
			request.Method, request.Target, request.Header = sent.Method, sent.Target, fields(sent.Header)
			look := r.Real.Look(ctx, request)
			c.Tried++
			if look.Endpoint.ID != is.Endpoint.ID || look.Endpoint.Status != is.Endpoint.Status ||
				!look.Plan.Planned() || look.Class >= is.Class {
				continue
			}
			c.Verdict = Raised
			if words := family.Name + ": " + look.Class.String(); len(c.Raised) < maxRaised &&
				!slices.Contains(c.Raised, words) {
				c.Raised = append(c.Raised, words)
			}
		}
	}
	return c
}

func fields(list []Field) http.Header {
	h := http.Header{}
	for _, f := range list {
		h.Add(f.Name, f.Value)
	}
	return h
}
