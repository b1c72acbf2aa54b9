package headgate

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/slot"
)

// trip is the working memory of one request on its way through the stages. It
// is pooled: what is handed to an interface or a function value escapes, and a
// request should not pay for that.
type trip struct {
	request  Request
	decision Decision
	terms    *terms
	standing policy.Standing // of the rules
	place    identity.Endpoint
	plan     charge.Plan
	refused  identity.Principal // who was refused before anybody was identified, where callers are scored
	looks    bool               // nobody acts on the decision
	lapped   time.Time          // when the stage began that runs, if stages are timed
}

func (l *Limiter) begin(ctx context.Context, r *Request) *trip {
	t := l.trips.Get().(*trip)
	t.request, t.decision, t.terms = *r, Decision{}, l.terms.Load()
	if l.time != nil {
		if t.decision.Stages = l.time(ctx, &t.request); t.decision.Stages != nil {
			t.lapped = time.Now()
		}
	}
	return t
}

// tell tells Options.Observe of a request, but not whose account it tried: that
// is hashed into the names of buckets by now, and goes nowhere else.
func (l *Limiter) tell(ctx context.Context, t *trip) {
	t.request.Identifier = ""
	if l.scores.Settings() != nil {
		l.noteAsked(ctx, t)
	}
	l.observe(&t.request, &t.decision)
}

func (l *Limiter) end(t *trip) {
	t.request = Request{} // keeps nobody's headers alive
	if l.scores != nil {
		t.refused = identity.Principal{}
	}
	t.plan.Release()
	l.trips.Put(t)
}

// prepare runs every stage up to the buckets. It reports false when the answer
// is settled before them and stands in t.decision.
func (l *Limiter) prepare(ctx context.Context, t *trip) bool {
	reason, allowed, settled := l.find(ctx, t)
	if settled {
		t.decision.Reason, t.decision.Allowed = reason, allowed
		if allowed {
			t.refuseCredential()
		}
	}
	return !settled
}

// find finds out what a request is charged to. It reports settled, and how,
// where that is nothing. What is turned away for its target or method alone pays
// for no clock.
func (l *Limiter) find(ctx context.Context, t *trip) (reason Reason, allowed, settled bool) {
	r, d, p := &t.request, &t.decision, &t.plan
	d.binding = -1
	if reason, refused := l.match(t, l.endpointsOf(l.policies.Set())); refused {
		return reason, false, true
	}
	p.Now = l.clock.Now()
	d.At = p.Now
	p.Set, t.standing = l.rules(p.Now)
	if table := l.endpointsOf(p.Set); table != d.endpoints { // other rules took effect in between
		if reason, refused := l.match(t, table); refused {
			return reason, false, true
		}
	}
	p.Endpoints = d.endpoints
	switch {
	case t.standing.Stale && (p.Set == nil || t.standing.Fallback == policy.Deny):
		return RulesStale, false, true
	case p.Set == nil || t.standing.Fallback == policy.Deny:
		return NoPolicies, false, true
	}
	d.set, p.Match, p.Who, p.Identities = p.Set, d.Endpoint, &d.Principal, t.terms.identities
	evidence := t.evidence()
	if d.Endpoint.Status == endpoint.Known {
		t.place = Place(p.Endpoints.Template(d.Endpoint.ID))
		evidence.Endpoint = &t.place
	}
	p.Others = p.Identities.ResolveAll(ctx, &evidence, &d.Principal, p.Others)
	if d.Stages != nil {
		t.lap(&d.Stages.Identity)
	}
	if d.Principal.Rejected == identity.TooManyCredentials {
		return TooManyCredentials, false, true
	}
	p.Identifier, p.Unparsable, p.Target, p.Said = r.Identifier, r.Unparsable, r.Target, r.Class
	p.UnderWay, p.Further = r.Message && !endpoint.OfBodies(r.Method) || r.UnderWay, r.UnderWay
	p.Wall, p.Fallback = l.clock.Wall(p.Now), t.standing.Fallback == policy.Limit
	if reason, settled := t.access(); settled {
		return reason, reason == Exempt, true
	}
	if p.Cost = r.Cost; p.Cost == 0 {
		p.Cost = p.Set.Cost(d.Endpoint.ID)
	}
	if p.Parts = max(1, r.Parts); p.Parts > 1 {
		p.Cost = times(p.Cost, p.Parts)
	}
	if l.scores != nil {
		d.Score, d.caller = l.score(p)
	}
	ruled := l.planner.Plan(p)
	if d.Stages != nil {
		t.lap(&d.Stages.Policy)
	}
	if len(p.Others) > 0 {
		d.Others = slices.Clone(p.Others)
	}
	d.Region, d.Class, d.CallerClass = p.Region, p.Class, p.CallerClass
	if !ruled && t.terms.denyUnruled {
		return NoRule, false, true
	}
	if len(p.Takes) == 0 {
		return NoRule, true, true
	}
	if p.Waits {
		t.acceptWait(ctx)
	}
	return WithinLimits, true, false
}

// evidence is what the request shows of its sender.
func (t *trip) evidence() identity.Evidence {
	r := &t.request
	e := identity.Evidence{
		Peer:        r.Peer,
		Header:      direct(r.Header),
		Method:      r.Method,
		Target:      r.Target,
		Reading:     t.decision.endpoints,
		Proven:      r.Proven,
		Look:        t.looks,
		Certificate: r.Certificate,
		User:        r.User,
	}
	if r.Line.Method != "" {
		e.Method, e.Target = r.Line.Method, r.Line.Target
	}
	return e
}

// times is cost·parts, or what no bucket can hold.
func times(cost, parts int64) int64 {
	if cost > math.MaxInt64/parts {
		return math.MaxInt64
	}
	return cost * parts
}

// match finds the endpoint of a request in a table, and says why if the request
// is turned away for it.
func (l *Limiter) match(t *trip, table *endpoint.Table) (reason Reason, refused bool) {
	r, d := &t.request, &t.decision
	d.Endpoint, d.endpoints = table.Match(r.Method, r.Target), table
	if d.Stages != nil {
		t.lap(&d.Stages.Endpoint)
	}
	return t.refuse()
}

// lap notes how long the stage took that ends now.
func (t *trip) lap(took *time.Duration) {
	now := time.Now()
	*took, t.lapped = now.Sub(t.lapped), now
}

// access says whether a rule of mode allow or block settles the request: it is blocked if one of its principals is, or
// the holder of a key that counts elsewhere alone; and exempt if all its principals are. Where a credential cannot be
// verified, a block of whom it may name holds too: otherwise the blocked send bad tokens first, or come while the
// database or an issuer's keys are away.
func (t *trip) access() (reason Reason, settled bool) {
	p := &t.plan
	if p.Set.AccessRules() == 0 {
		return 0, false
	}
	exempt := true
	for n := range 1 + len(p.Others) {
		caller := charge.CallerOf(p.Of(n))
		rule, mode, found := p.Set.Access(p.Wall, p.Match, &caller)
		if mode == policy.Block {
			t.decision.access = rule
			return Blocked, true
		}
		if exempt = exempt && found; n == 0 && found {
			t.decision.access = rule
		}
	}
	for _, who := range p.Who.Elsewhere() {
		caller := charge.CallerOf(&who)
		if rule, mode, _ := p.Set.Access(p.Wall, p.Match, &caller); mode == policy.Block {
			t.decision.access = rule
			return Blocked, true
		}
	}
	if t.mayBeBlocked() {
		return CredentialUnverified, true
	}
	return Exempt, exempt
}

// mayBeBlocked reports whether a credential that could not be verified may be that of somebody who is blocked.
func (t *trip) mayBeBlocked() bool {
	p := &t.plan
	if !p.Who.Rejected.Unverified() {
		return false
	}
	away := p.Who.InDoubt(identity.LookupFailed)
	switch {
	case (away || p.Who.InDoubt(identity.TokenFlood)) && p.Set.BlocksByToken(p.Wall):
		return true
	case away && p.Set.BlocksByKey(p.Wall):
		return true
	}
	// Of signatures that were looked at it is known whom they name: Principal.Elsewhere.
	return p.Who.InDoubt(identity.SignatureFlood) && p.Set.BlocksByAgent(p.Wall)
}

// refuse says whether a request is turned away before any identity or limiter
// work.
func (t *trip) refuse() (Reason, bool) {
	r := &t.request
	if r.Cost < 0 || r.Parts < 0 {
		return InvalidCost, true
	}
	if r.Message != endpoint.OfMessages(r.Method) {
		return UnknownMethod, true
	}
	switch t.decision.Endpoint.Status {
	case endpoint.Known:
		return WithinLimits, false
	case endpoint.Invalid:
		return InvalidTarget, true
	case endpoint.UnknownPath:
		if t.terms.rejectUnknown {
			return UnknownEndpoint, true
		}
	case endpoint.UnknownMethod:
		if t.terms.rejectUnknown && r.Method != http.MethodOptions {
			return UnknownMethod, true
		}
	}
	// An answer to TRACE repeats the request with its credentials (RFC 9110
	// section 9.3.8), so only a template lets it through.
	return UnknownMethod, r.Method == http.MethodTrace
}

// inForce returns what Policies say at now.
func (l *Limiter) inForce(now int64) (*policy.Set, policy.Standing) {
	switch {
	case l.aging == nil:
		return l.policies.Set(), policy.Standing{}
	case l.agingClock != nil:
		now = l.agingClock.Now()
	}
	return l.aging.InForce(now)
}

// endpointsOf are the endpoints that exist under some rules, which may be nil.
func (l *Limiter) endpointsOf(set *policy.Set) *endpoint.Table {
	if set != nil && set.Endpoints() != nil {
		return set.Endpoints()
	}
	return l.endpoints
}

// rules returns the rules in force, or nil, and whether they can be relied on. It
// tells the buckets when they are others than before, or a temporary one has ended.
func (l *Limiter) rules(now int64) (*policy.Set, policy.Standing) {
	set, standing := l.inForce(now)
	if wall := l.clock.Wall(now); set != l.told.Load() || wall >= l.due.Load() {
		l.inform(set, now, wall)
	}
	return set, standing
}

// inform may be called more than once for one Set, and for one that was in force
// earlier by a request that was late. Neither does any harm.
func (l *Limiter) inform(set *policy.Set, now, wall int64) {
	if set != nil {
		if l.learn != nil {
			since := set.Since()
			if end := set.LastEnd(wall); end != 0 {
				since = max(since, end-(wall-now))
			}
			l.learn.Learn(since, set.Settled(since))
		}
		l.due.Store(set.NextEnd(wall))
	}
	l.told.Store(set)
}

// consume asks the buckets, and reports whether they took what was asked of
// each.
func (l *Limiter) consume(ctx context.Context, t *trip) (taken bool) {
	p := &t.plan
	penalises := p.Set.Penalises()
	if penalises && l.inPenalty(t) {
		return false
	}
	if l.slots != nil {
		if offer, held := p.HoldBack(l.slots, t.request.Header, false); held {
			l.conclude(t, false, nil)
			t.decision.Slot = offer
			return false
		}
	}
	allowed, err := l.buckets.TryConsume(ctx, p.Now, p.Takes, p.Outs)
	if p.Guaranteed && err == nil {
		allowed = p.Retry(ctx, l.buckets, allowed, true)
	}
	if p.Concurrent {
		p.Estimate()
	}
	if t.decision.Stages != nil {
		t.lap(&t.decision.Stages.Bucket)
	}
	l.conclude(t, allowed, err)
	if l.slots != nil && err == nil && !p.Further { // which has no time to come again
		d := &t.decision
		d.Slot = p.Space(l.slots, t.request.Header, d.binding, d.Allowed)
		d.restate(p)
	}
	if penalises && err == nil && !allowed && !p.Further { // which has been let in, and is no further request
		l.penalise(t, l.penalties.Denied)
	}
	if p.Lowered != (rate.Lowerings{}) && err == nil && !allowed {
		rates, atOnce := p.MetLowered()
		if e := l.adaptive.At(p.Endpoints, p.Match.ID); e != nil {
			e.Refused(rates, atOnce)
		}
	}
	return allowed && err == nil
}

// inPenalty refuses a caller whom a rule blocks for a time, without asking the buckets.
func (l *Limiter) inPenalty(t *trip) bool {
	if !t.plan.InPenalty(l.penalties) {
		return false
	}
	l.conclude(t, false, nil)
	t.decision.Reason = InPenalty
	return true
}

// penalise counts a denial, or foresees what that comes to. Who is blocked by it is told how long.
func (l *Limiter) penalise(t *trip, denied func(int64, key.Key, *penalty.Terms) (until int64, blocked bool)) {
	d := &t.decision
	told := d.RetryAfter
	if d.Reason == CostAboveBurst {
		told = math.MaxInt64 // no wait helps
	}
	if t.plan.Penalise(denied, told) {
		d.restate(&t.plan)
		d.Reason, d.Slot = InPenalty, slot.Offer{}
	}
}

// conclude turns what the buckets said, or that they could not, into the
// Decision.
func (l *Limiter) conclude(t *trip, allowed bool, err error) {
	d, p := &t.decision, &t.plan
	if err == nil {
		d.settle(p, allowed)
	} else {
		d.Reason, d.Cost = StoreFailed, p.Cost
		d.Allowed = !errors.Is(err, bucket.ErrLost) && p.OpenOnLoss()
		d.Lost = d.Allowed
	}
	t.refuseCredential()
}

// refuseCredential denies what would be allowed and has a bad credential, under
// Options.RefuseBadCredentials. It comes after the buckets, so that trying
// credentials costs what other requests cost.
func (t *trip) refuseCredential() {
	d := &t.decision
	if !t.terms.refuseBad || !d.Allowed {
		return
	}
	switch why := d.Principal.Rejected; {
	case why.Bad():
		d.Allowed, d.Reason, d.Wait = false, BadCredential, 0
	case why.Unverified():
		d.Allowed, d.Reason, d.Wait = false, CredentialUnverified, 0
	}
}

// score finds out by the rules of which tiers the principals of a plan pay as well, because of their scores, and
// returns the score of the first.
func (l *Limiter) score(p *charge.Plan) (first anomaly.Score, who anomaly.Caller) {
	p.Also = p.Also[:0]
	settings := l.scores.Settings()
	if settings == nil {
		return first, who
	}
	for n := range 1 + len(p.Others) {
		caller := l.scores.Caller(p.Of(n))
		score := l.scores.Score(p.Now, caller)
		if n == 0 {
			first, who = score, caller
		}
		tier, _ := settings.TierOf(score, p.Of(n).Kind != identity.Address)
		p.Also = append(p.Also, tier.Name)
	}
	return first, who
}

// callerOf is the first principal of a decision as scores know it.
func (l *Limiter) callerOf(d *Decision, who *identity.Principal) anomaly.Caller {
	if d.caller != (anomaly.Caller{}) {
		return d.caller
	}
	return l.scores.Caller(who) // its rules were not looked for
}

// noteAsked counts a request for the scores of its callers. Those of one that was refused before anybody was identified
// are found out now: what there is not is what a scanner asks for.
func (l *Limiter) noteAsked(ctx context.Context, t *trip) {
	r, d, p := &t.request, &t.decision, &t.plan
	asked := anomaly.Request{Parts: r.Parts, Disguised: endpoint.Disguised(r.Target)}
	switch d.Endpoint.Status {
	case endpoint.Known:
		asked.Endpoint = d.endpoints.Number(d.Endpoint.ID)
	case endpoint.Invalid:
		asked.Disguised = true
	case endpoint.UnknownPath:
		asked.Unknown = true
	case endpoint.UnknownMethod: // browsers ask by OPTIONS before they ask
		asked.Unknown = r.Method != http.MethodOptions
	}
	switch d.Reason {
	case NoPolicies, RulesStale, InvalidCost, TooManyCredentials:
		return // nobody knows, or the door is wrong
	case UnknownEndpoint, UnknownMethod, InvalidTarget:
		if r.Message && !endpoint.OfBodies(r.Method) || r.UnderWay {
			return
		}
		p.Now, p.Who = l.clock.Now(), &t.refused
		evidence := t.evidence()
		p.Others = t.terms.identities.ResolveAll(ctx, &evidence, &t.refused, p.Others)
	default:
		asked.Denied = !d.Allowed
	}
	if p.UnderWay { // it is no request, but a message of one
		return
	}
	for n := range 1 + len(p.Others) {
		who := p.Of(n)
		caller := l.callerOf(d, who)
		if n > 0 {
			caller = l.scores.Caller(who)
		}
		l.scores.Asked(p.Now, caller, asked)
		if l.scored == nil {
			continue
		}
		if score := l.scores.Score(p.Now, caller); score.Known {
			l.scored(who, score)
		}
	}
}
