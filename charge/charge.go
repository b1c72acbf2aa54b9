// Package charge says what a request is charged to: it names the bucket of
// every rule that applies to its callers, and those that have to have room as
// well, as attempts that are made together or not at all.
package charge

import (
	"cmp"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge/internal/subject"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// Request is what the stages before this one found out.
type Request struct {
	Set       *policy.Set
	Now, Wall int64 // Unix nanoseconds, by the clock of the buckets and by the one that rules expire by
	Match     endpoint.Match
	Endpoints *endpoint.Table // which Match is of

	Identities *identity.Resolver // which told the principals apart

	// Who is the first principal; Others are those of the request's other valid
	// credentials.
	Who    *identity.Principal
	Others []identity.Principal

	// Identifier is what the caller tries to be. Unparsable says that it should
	// have said so and that nobody can read it.
	Identifier string
	Unparsable bool

	Target string // for rules by a path parameter
	// values of parameters and claims by Rule.Only, in the place of what the request says; mostly
	// nil
	Named map[string]string

	Cost     int64 // tokens
	Parts    int64 // requests that it holds, 0 is one
	UnderWay bool  // it belongs to an exchange that is under way already
	Further  bool  // and pays more for a request of it that was counted

	// Also says by the rules of which tier each principal pays besides those that hold for it anyway, "" for none:
	// that of Who first, those of Others then. Nil is none for anybody.
	Also []string

	Fallback bool // Set.Fallback applies as well

	// Said is of which class the program says that the request is; Unclassed is nothing.
	Said policy.Class
}

// Kind says why a bucket is charged.
type Kind uint8

const (
	// Own is the bucket of a rule that applies.
	Own Kind = iota
	// Unreadable is a second bucket of a rule, which all requests share of which
	// nobody knows whose they are: their identifier could not be read, or their
	// credential was not verified (identity.Principal.Flooded).
	Unreadable
	// Earlier is the bucket that the caller had before its project changed its
	// tier, which goes on counting.
	Earlier
	// Larger is the bucket of a larger tier, for a caller whose credential says
	// its tier.
	Larger
	// Guaranteed is the bucket of what the request's class is guaranteed in a
	// budget that several share, where it found too little without; see Plan.Retry.
	Guaranteed
)

// Guards reports whether such a bucket has to have room beside a rule's own one.
func (k Kind) Guards() bool { return k == Earlier || k == Larger }

// Charge is one attempt on one bucket.
type Charge struct {
	policy.Applied

	Kind      Kind
	Principal uint8 // 0 is Request.Who, n is Request.Others[n-1]

	// Joined says that the bucket is one that an earlier principal is charged to
	// as well. It is asked once, for both.
	Joined bool

	// Scored says that the rule applies because its principal pays by those of a tier as well (Request.Also).
	Scored bool

	// Concurrent says that it takes a place among the requests under way, which is given back when the
	// request is no more.
	Concurrent bool

	Place int           // of its take in Plan.Takes
	Of    int           // for Earlier, Larger and Guaranteed, the rule's own charge, in Plan.Charges
	As    policy.RuleID // for Larger, the rule of the larger tier

	id    uint64 // Terms.ID of the rule that the bucket is named by
	most  int64  // tokens that it takes, whatever the request costs; 0 is no bound
	moved int64  // for Earlier, when the project had moved last
}

// Plan is what one request is charged to. It is working memory: filled by
// Planner.Plan, used again for the next request.
type Plan struct {
	Request

	Charges []Charge // the first principal's before those of others; of each, the rules' own first
	Takes   []bucket.Take
	Outs    []bucket.Outcome // room for what the buckets say of Takes

	Region string // that rules by region counted
	Waits  bool   // a rule may tell the request to wait

	Concurrent bool // one of Charges is

	Class       policy.Class // of the request; Unclassed where nothing says anything of classes
	CallerClass policy.Class // which its callers are of, or the program says, whatever is asked for; Unclassed is none
	ClassBy     ClassBy
	Guaranteed  bool // the class is guaranteed something in a budget that several share

	// Lowered is by how much the rates at the endpoint were lowered of late. Takes say which are.
	Lowered rate.Lowerings

	planner *Planner

	// Of the principal who is being charged:
	caller    subject.Caller
	principal int
	applied   []policy.Applied
	first     int // in Charges
	from      int // in Takes

	bytes  []byte
	guards []policy.Guard
	pasts  []rate.Past    // what allowances replaced, of all principals: takes point to it
	moves  [][2]rate.Past // and what came before moves
	firsts []bucket.Outcome
}

// MaxNamed is the longest value of a path parameter or a claim that has a bucket of its own, in bytes: longer
// parameters share one, and a token with a longer claim counts as its holder's.
const MaxNamed = subject.MaxNamed

// Options configures a Planner.
type Options struct {
	Keys          *key.Hasher             // nil draws names that this process alone knows
	Names         *key.Namer              // nil if no other process shares any buckets
	Region        func(netip.Addr) string // nil if all are unknown
	NamedTiers    func() bool             // whether callers who name no tier may name one later; nil if none does
	MaxAllowances int

	// Lowered is by how much the rates at an endpoint were lowered of late; nil if none ever is.
	Lowered func(t *endpoint.Table, id endpoint.ID, now int64) rate.Lowerings
}

// Planner plans what requests are charged to. It is safe for concurrent use.
type Planner struct {
	Allowances *Allowances

	places atomic.Uint32 // which number a place among the requests under way had last; see bucket.Take.Place
	ahead  atomic.Int64  // of the wall clock beside that of buckets, in seconds; see calendarWindow

	keys       *key.Hasher
	names      *key.Namer
	region     func(netip.Addr) string
	namedTiers func() bool
	lowered    func(*endpoint.Table, endpoint.ID, int64) rate.Lowerings
}

// New returns a Planner.
func New(o Options) *Planner {
	pl := &Planner{
		Allowances: newAllowances(o.MaxAllowances),
		keys:       cmp.Or(o.Keys, key.NewHasher()), names: o.Names, region: o.Region, namedTiers: o.NamedTiers,
		lowered: o.Lowered,
	}
	if pl.region == nil {
		pl.region = func(netip.Addr) string { return "" }
	}
	if pl.namedTiers == nil {
		pl.namedTiers = func() bool { return false }
	}
	return pl
}

// Shared reports whether rules of a scope have buckets that other processes
// share. Where there are no names for them, none are shared.
func (pl *Planner) Shared(s policy.Scope) bool { return s.Named() && pl.names != nil }

// Plan fills p for p.Request. It reports whether a rule of the document
// applies to every principal.
//
// A request can prove to come from several: a token and an API key, two keys.
// Which of them the API honours is not known here, and who sends it could leave
// out the one whose budget is spent. So the request has to have room in the
// budgets of each, under the rules that hold for each: what it takes is what it
// would take with each credential alone, together, each bucket once, all or
// nothing.
//
//	key of acme, token of umbrella     acme's limit for the key, umbrella's for
//	                                   the token, the address's once
func (pl *Planner) Plan(p *Plan) (ruled bool) {
	p.planner, p.Region, p.Waits, p.Concurrent = pl, "", false, false
	p.Lowered = pl.loweredAt(p.Endpoints, p.Match, p.Now)
	p.Charges, p.Takes, p.pasts, p.moves = p.Charges[:0], p.Takes[:0], p.pasts[:0], p.moves[:0]
	if p.Unparsable {
		p.Identifier = ""
	}
	ruled = pl.charge(p, 0, p.Who)
	for n := range p.Others {
		if !pl.charge(p, 1+n, &p.Others[n]) {
			ruled = false
		}
	}
	p.Class, p.CallerClass, p.ClassBy, p.Guaranteed = policy.Unclassed, policy.Unclassed, ClassBy{}, false
	if p.Set.Prioritises() {
		p.classify()
	}
	if cap(p.Outs) < len(p.Takes) {
		p.Outs = make([]bucket.Outcome, max(several, 2*len(p.Takes)))
	}
	p.Outs = p.Outs[:len(p.Takes)]
	return ruled
}

// Release lets go of what p knows of its callers, for a Plan that is kept for
// the next request.
func (p *Plan) Release() {
	clear(p.Others)
	clear(p.Also)
	p.Request = Request{Others: p.Others[:0], Also: p.Also[:0]}
	p.Lowered = rate.Lowerings{}
	p.caller = subject.Caller{}
}

// charge plans for one principal, and reports whether a rule of the document
// applies to it.
func (pl *Planner) charge(p *Plan, principal int, who *identity.Principal) bool {
	p.as(principal, who)
	p.first, p.from = len(p.Charges), len(p.Takes)
	p.applied = p.Set.ResolveFor(p.applied[:0], p.Wall, p.Match, who.Project, who.Tier, p)
	p.dropPaid(0)
	ruled := len(p.applied) > 0 || p.Further
	if p.Fallback {
		if rule, ok := p.Set.Fallback(); ok {
			p.applied = append(p.applied, rule)
		}
	}
	named := len(p.applied)
	p.addScored()
	scored := len(p.applied)
	pl.name(p)
	for i := named; i < scored; i++ {
		p.Charges[p.first+i].Scored = true
	}
	pl.guard(p, named)
	if principal > 0 {
		p.join()
	}
	return ruled
}

// dropPaid takes out of the rules that apply, from one on, those by which a request that is under way has paid.
func (p *Plan) dropPaid(from int) {
	if !(p.UnderWay && p.Set.LimitsConcurrency() || p.Further && p.Set.LimitsRequests()) {
		return
	}
	kept := slices.DeleteFunc(p.applied[from:], func(a policy.Applied) bool {
		terms := p.Set.Terms(a.Rule)
		return terms.Concurrent && p.UnderWay || terms.PerRequest && p.Further
	})
	p.applied = p.applied[:from+len(kept)]
}

// addScored adds the rules of the tier by which the principal pays besides those that hold for it. They stand in
// nobody's place, so whoever has a score has less than before and never more: its other buckets go on, and have to
// have room as well.
func (p *Plan) addScored() {
	if len(p.Also) <= p.principal || p.Also[p.principal] == "" {
		return
	}
	from := len(p.applied)
	p.applied = p.Set.ResolveTier(p.applied, p.Wall, p.Match, p.Also[p.principal], p)
	own := p.applied[:from]
	kept := slices.DeleteFunc(p.applied[from:], func(a policy.Applied) bool { // it is in the tier anyway
		return slices.ContainsFunc(own, func(o policy.Applied) bool { return o.Rule == a.Rule })
	})
	p.applied = p.applied[:from+len(kept)]
	p.dropPaid(from)
}

// CallerOf is a principal as policy.Set.Access asks for one.
func CallerOf(who *identity.Principal) policy.Caller {
	return policy.Caller{Kind: who.Kind.String(), ID: who.ID, Project: who.Project, Tier: who.Tier, Address: who.Client}
}

// Planned reports whether p was filled: a request may be refused before.
func (p *Plan) Planned() bool { return p.planner != nil }

// as makes p speak of one principal.
func (p *Plan) as(principal int, who *identity.Principal) {
	p.principal = principal
	p.caller = subject.Caller{Who: who, Identities: p.Identities, Identifier: p.Identifier, Region: p.Region}
}

// As is the policy.Chooser for one principal of a planned request (Planned): 0
// is Request.Who, n is Request.Others[n-1].
func (p *Plan) As(principal int) policy.Chooser {
	p.as(principal, p.Of(principal))
	return p
}

// Of is one of the principals.
func (p *Plan) Of(principal int) *identity.Principal {
	if principal == 0 {
		return p.Who
	}
	return &p.Others[principal-1]
}

// Chosen makes p a policy.Chooser: whether the principal that is being charged
// is one of those for whom a rule is enforced.
func (p *Plan) Chosen(rule policy.RuleID) bool {
	s := p.Set.Terms(rule).Subject
	p.locate(rule, s)
	p.bytes = p.caller.Append(p.bytes[:0], s)
	return p.Set.Enforces(rule, p.bytes)
}

// most is how many tokens a rule takes whatever the request costs, 0 for as many.
func (p *Plan) most(terms *policy.Terms) int64 {
	switch {
	case terms.Concurrent:
		return 1
	case terms.PerRequest:
		return max(1, p.Parts)
	}
	return 0
}

// cost is what a charge takes for a request that costs so much.
func (c *Charge) cost(cost int64) int64 {
	if c.most > 0 {
		return min(cost, c.most)
	}
	return cost
}

// several is for how many charges there is room at first. Most requests have a handful.
const several = 8

// grow makes room for n more charges and takes.
func (p *Plan) grow(n int) {
	if p.first+n > cap(p.Charges) {
		p.Charges = append(make([]Charge, 0, max(several, 2*(p.first+n))), p.Charges...)
	}
	if p.from+n > cap(p.Takes) {
		p.Takes = append(make([]bucket.Take, 0, max(several, 2*(p.from+n))), p.Takes...)
	}
	p.Charges, p.Takes = p.Charges[:p.first+n], p.Takes[:p.from+n]
}

// soon is when a request may try again that found too many under way: nobody knows when one of them ends.
// What has whole seconds says one.
const soon = time.Second

// Estimate changes what buckets of requests under way say of times, which is when places come back of
// processes that have died: a request that was denied may come again soon, and one that was not is told of
// no time.
func (p *Plan) Estimate() {
	for i := range p.Charges {
		c := &p.Charges[i]
		if out := &p.Outs[c.Place]; c.Concurrent {
			if out.ResetAfter = 0; out.RetryAfter > 0 {
				out.RetryAfter = soon
			}
		}
	}
}

// CountsAnswers reports whether a rule that applies counts only some answers (policy.Rule.CountWhen).
func (p *Plan) CountsAnswers() bool {
	if !p.Set.CountsAnswers() {
		return false
	}
	for i := range p.Charges {
		if p.Set.CountWhen(p.Charges[i].Rule) != nil {
			return true
		}
	}
	return false
}

// Together are the takes from the bucket of a charge, which is a rule's own, and
// from those that have to have room beside it.
func (p *Plan) Together(of int) []bucket.Take {
	takes := []bucket.Take{p.Takes[p.Charges[of].Place]}
	for i := range p.Charges {
		if c := &p.Charges[i]; c.Kind.Guards() && c.Of == of {
			takes = append(takes, p.Takes[c.Place])
		}
	}
	return takes
}

// SetCost changes what the request costs.
func (p *Plan) SetCost(cost int64) {
	p.Cost = cost
	for i := range p.Charges {
		c := &p.Charges[i]
		p.Takes[c.Place].Cost = c.cost(cost)
	}
}

// LimitWait says how long rules may tell the request to wait; see
// bucket.Take.MaxWait.
func (p *Plan) LimitWait(most time.Duration) {
	for i := range p.Takes {
		p.Takes[i].MaxWait = most
	}
}

// OpenOnLoss reports whether every enforced rule lets requests pass when nobody
// can ask its bucket.
func (p *Plan) OpenOnLoss() bool {
	for i := range p.Charges {
		if c := &p.Charges[i]; !c.Joined && !c.Shadow && p.Set.Terms(c.Rule).OnStoreLoss != policy.LossOpen {
			return false
		}
	}
	return true
}
