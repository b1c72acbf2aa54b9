package headgate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// Limiter decides whether requests may pass. It is safe for concurrent use.
type Limiter struct {
	endpoints  *endpoint.Table
	policies   Policies
	identities *identity.Resolver
	keys       *key.Hasher
	names      *key.Namer // nil if no other process shares any buckets
	templates  []string   // by endpoint.ID, for names
	buckets    Buckets

	costs         []int64             // by endpoint.ID
	places        []identity.Endpoint // by endpoint.ID, for keys with scopes
	rejectUnknown bool
	denyUnruled   bool
	region        func(netip.Addr) string
	regions       bool // region can tell them apart
	namedTiers    func() bool
	observe       func(*Request, *Decision)

	readIdentifier func(endpoint.ID, string) (string, bool, bool)

	clock Clock

	learn        Learner                    // nil if the buckets need not
	told         atomic.Pointer[policy.Set] // the rules that they heard of last
	due          atomic.Int64               // when a temporary rule ends, which they have to hear of as well
	correct      Corrector                  // nil if the buckets cannot
	reservations *reservations
	allowances   *allowances

	maxWaiters int64
	waiters    atomic.Int64 // requests in Wait that wait, or may have to

	trips sync.Pool // of *trip
}

// New returns a Limiter, or an error that names every field at fault.
func New(o Options) (*Limiter, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("headgate options: %w", err)
	}
	l := &Limiter{
		endpoints: o.Endpoints, policies: o.Policies, identities: o.Identities,
		keys: key.NewHasher(), buckets: o.Buckets,
		costs:         costTable(o.Endpoints, o.Costs),
		places:        places(o.Endpoints),
		rejectUnknown: o.Unknown == RejectUnknown, denyUnruled: o.DenyWithoutRule,
		region: o.Region, regions: o.Region != nil, observe: o.Observe, clock: o.clock(),
		readIdentifier: o.Typed,
		maxWaiters:     int64(o.MaxWaiters),
	}
	if l.maxWaiters == 0 {
		l.maxWaiters = defaultWaiters
	}
	if l.names = o.Names; l.names != nil {
		l.templates = templates(o.Endpoints)
	}
	l.correct, _ = o.Buckets.(Corrector)
	l.learn, _ = o.Buckets.(Learner)
	l.reservations = newReservations(orDefault(o.MaxReservations, defaultReservations))
	l.allowances = newAllowances(orDefault(o.MaxAllowances, defaultAllowances))
	if l.region == nil {
		l.region = func(netip.Addr) string { return "" }
	}
	if l.observe == nil {
		l.observe = func(*Request, *Decision) {}
	}
	if l.namedTiers = o.NamedTiers; l.namedTiers == nil {
		l.namedTiers = func() bool { return false }
	}
	l.trips.New = func() any { return new(trip) }
	return l, nil
}

// Check decides one request and takes its cost from every bucket that
// applies, or from none. It allocates nothing on its way to an allowed or a
// denied answer of up to four rules.
//
// Under a rule with algorithm leaky_bucket an allowed request has to be held
// back for Decision.Wait. Wait does so.
func (l *Limiter) Check(ctx context.Context, r Request) Decision {
	t := l.begin(r)
	if l.prepare(ctx, t) {
		allowed, err := l.buckets.TryConsume(ctx, t.now, t.takes, t.outs)
		l.conclude(t, allowed, err)
	}
	l.tell(t)
	d := t.decision
	l.end(t)
	return d
}

func (l *Limiter) begin(r Request) *trip {
	t := l.trips.Get().(*trip)
	t.request, t.decision, t.limiter = r, Decision{}, l
	return t
}

// tell tells Options.Observe of a request, but not whose account it tried: that
// is hashed into the names of buckets by now, and goes nowhere else.
func (l *Limiter) tell(t *trip) {
	t.request.Identifier = ""
	l.observe(&t.request, &t.decision)
}

func (l *Limiter) end(t *trip) {
	t.request = Request{} // keeps nobody's headers alive
	l.trips.Put(t)
}

// trip is the working memory of one request on its way through the stages. It
// is pooled: what is handed to an interface or a function value escapes, and a
// request should not pay for that.
type trip struct {
	limiter  *Limiter
	request  Request
	decision Decision

	match   endpoint.Match
	who     identity.Principal
	set     *policy.Set
	now     int64
	cost    int64
	applied []policy.Applied
	named   int // of those, how many have a bucket by their subject
	doubted int // and up to where are those that share one; the rest are guarded
	guards  []policy.Guard
	takes   []bucket.Take
	outs    []bucket.Outcome
	subject []byte
	shaped  bool // a rule may tell the request to wait

	pasts      []rate.Past    // what allowances replaced, for as many takes as there ever were
	guardPasts [][2]rate.Past // and what moves did
}

// prepare runs every stage up to the buckets. It reports false when the
// answer is settled before them and stands in t.decision.
func (l *Limiter) prepare(ctx context.Context, t *trip) bool {
	r, d := &t.request, &t.decision
	t.match = l.endpoints.Match(r.Method, r.Target)
	d.Endpoint, d.binding = t.match, -1
	if reason, refused := l.refuse(r, t.match); refused {
		d.Reason = reason
		return false
	}
	t.now = l.clock.Now()
	if t.set = l.rules(t.now); t.set == nil {
		d.Reason = NoPolicies
		return false
	}
	t.who = l.identities.Resolve(ctx, identity.Evidence{
		Peer: r.Peer, Header: r.Header, Target: r.Target, Certificate: r.Certificate, Endpoint: l.place(t.match.ID),
	})
	d.Principal, d.set = t.who, t.set
	if r.Unparsable {
		r.Identifier = ""
	}
	t.applied = t.set.ResolveFor(t.applied[:0], l.clock.Wall(t.now), t.match, t.who.Project, t.who.Tier, t)
	if len(t.applied) == 0 {
		d.Reason, d.Allowed = NoRule, !l.denyUnruled
		return false
	}
	if t.cost = r.Cost; t.cost == 0 {
		t.cost = l.costs[t.match.ID]
	}
	l.name(t)
	l.guard(t)
	if t.shaped {
		t.acceptWait(ctx)
	}
	return true
}

// refuse says whether a request is turned away before any identity or limiter
// work.
func (l *Limiter) refuse(r *Request, m endpoint.Match) (Reason, bool) {
	if r.Cost < 0 {
		return InvalidCost, true
	}
	switch m.Status {
	case endpoint.Invalid:
		return InvalidTarget, true
	case endpoint.UnknownPath:
		return UnknownEndpoint, l.rejectUnknown
	case endpoint.UnknownMethod:
		return UnknownMethod, l.rejectUnknown && r.Method != http.MethodOptions
	}
	return WithinLimits, false
}

// everyEndpoint stands in a key for the endpoint of a "*" rule, whose one
// bucket all endpoints share.
const everyEndpoint = ^uint32(0)

// Chosen makes a trip the policy.Chooser of its request.
func (t *trip) Chosen(rule policy.RuleID) bool {
	subject := t.set.Terms(rule).Subject
	if subject == policy.SubjectRegion {
		t.decision.Region = t.limiter.region(t.who.Client)
	}
	t.subject = t.limiter.appendSubject(t.subject[:0], subject, t)
	return t.set.Enforces(rule, t.subject)
}

// name turns the rules that apply into attempts on named buckets.
func (l *Limiter) name(t *trip) {
	t.shaped, t.named = false, len(t.applied)
	if t.request.Unparsable {
		t.doubt()
	}
	t.doubted = len(t.applied)
	if cap(t.takes) < len(t.applied) {
		t.takes = make([]bucket.Take, max(policy.MaxApplied, len(t.applied)))
	}
	t.takes = t.takes[:len(t.applied)]
	for i, a := range t.applied {
		terms := t.set.Terms(a.Rule)
		at := t.endpointOf(a)
		if terms.Subject == policy.SubjectRegion {
			t.decision.Region = l.region(t.who.Client)
		}
		if i < t.named {
			t.subject = l.appendSubject(t.subject[:0], terms.Subject, t)
		} else {
			t.subject = append(t.subject[:0], tagUnparsable)
		}
		// Written where it stays: a take is too large to be copied for nothing.
		take := &t.takes[i]
		take.Reach = 0
		if terms.Scope == policy.Local || !l.reaches(take, &terms) {
			take.Key = l.keys.Key(terms.ID, at, t.subject)
		} else {
			take.Key = l.nameOf(t, terms.ID, at)
			take.Tag = l.tagOf(t, terms.Subject)
		}
		take.Shape, take.Since = terms.Shape, terms.Since
		if take.Before != terms.Before { // mostly both are nil, and storing a pointer costs more than looking at it
			take.Before = terms.Before
		}
		take.Cost, take.Shadow, take.MaxWait = t.cost, a.Shadow, 0
		t.shaped = t.shaped || terms.Shape.Algorithm == rate.LeakyBucket
	}
	l.allowances.apply(t.now, t.takes, &t.pasts)
	l.makeRoom(t)
}

// endpointOf is the endpoint that the key of a rule's bucket says.
func (t *trip) endpointOf(a policy.Applied) uint32 {
	if a.Level.EveryEndpoint() {
		return everyEndpoint
	}
	return uint32(t.match.ID)
}

// makeRoom makes room for an outcome for every take.
func (l *Limiter) makeRoom(t *trip) {
	if cap(t.outs) < len(t.takes) {
		t.outs = make([]bucket.Outcome, max(policy.MaxApplied, len(t.takes)))
	}
	t.outs = t.outs[:len(t.takes)]
}

// doubt makes every rule by identifier apply a second time, to what all
// requests share whose identifier nobody can read. The address's budget alone
// would be one more for each address that tries the same account.
func (t *trip) doubt() {
	for _, a := range t.applied[:t.named] {
		if t.set.Terms(a.Rule).Subject == policy.SubjectIdentifier {
			t.applied = append(t.applied, a)
		}
	}
}

// Tags keep subjects apart from each other and from the kinds of principals
// (identity.Kind), which begin the subjects that identity appends and stay
// below firstTag.
const firstTag = 0x80

const (
	tagProject = firstTag + iota
	tagRegion
	tagEndpoint
	tagIdentifier
	tagPrincipalIP
	tagUnparsable
	tagIdentifierIP
	tagStay
)

// appendSubject appends whose budget a rule means. What a request lacks is
// replaced by its address, never by nothing: missing identity is still
// limited. The bytes are injective, and no subject begins another.
func (l *Limiter) appendSubject(dst []byte, s policy.Subject, t *trip) []byte {
	r, who := &t.request, &t.who
	switch s {
	case policy.SubjectIP:
		return who.AppendAddress(dst)
	case policy.SubjectPrincipalIP:
		return who.AppendSubject(who.AppendAddress(append(dst, tagPrincipalIP)))
	case policy.SubjectProject:
		if who.Project != "" {
			return appendText(append(dst, tagProject), who.Project)
		}
	case policy.SubjectRegion:
		return appendText(append(dst, tagRegion), t.decision.Region)
	case policy.SubjectEndpoint:
		return append(dst, tagEndpoint)
	case policy.SubjectIdentifier:
		if r.Identifier != "" {
			return appendText(append(dst, tagIdentifier), r.Identifier)
		}
	case policy.SubjectIdentifierIP:
		if r.Identifier != "" {
			return appendText(who.AppendAddress(append(dst, tagIdentifierIP)), r.Identifier)
		}
	default:
		return who.AppendSubject(dst)
	}
	return who.AppendAddress(dst)
}

// appendText appends a text with its length before it, so that where one ends
// does not depend on what clients put into it.
func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// conclude turns what the buckets said, or that they could not, into the
// Decision.
func (l *Limiter) conclude(t *trip, allowed bool, err error) {
	d := &t.decision
	if err == nil {
		d.settle(t, allowed)
		return
	}
	d.Reason, d.Allowed, d.Cost = StoreFailed, !errors.Is(err, bucket.ErrLost), t.cost
	for _, a := range t.applied {
		if !a.Shadow && t.set.Terms(a.Rule).OnStoreLoss != policy.LossOpen {
			d.Allowed = false
		}
	}
	d.Lost = d.Allowed
}

func places(endpoints *endpoint.Table) []identity.Endpoint {
	all := make([]identity.Endpoint, endpoints.Len()+1)
	for id, template := range endpoints.All() {
		all[id] = identity.Endpoint{Method: template.Method(), Path: strings.TrimPrefix(template.String(), template.Method()+" ")}
	}
	return all
}

// place is the endpoint as identity takes it, nil for none.
func (l *Limiter) place(id endpoint.ID) *identity.Endpoint {
	if id == endpoint.Unknown {
		return nil
	}
	return &l.places[id]
}

func orDefault(value, otherwise int) int {
	if value == 0 {
		return otherwise
	}
	return value
}

func costTable(endpoints *endpoint.Table, costs map[endpoint.ID]int64) []int64 {
	table := make([]int64, endpoints.Len()+1)
	for id := range table {
		table[id] = 1
		if cost, ok := costs[endpoint.ID(id)]; ok {
			table[id] = cost
		}
	}
	return table
}
