package headgate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/slot"
)

// Look is what would become of a request, and what led to it: for package
// inspect, which tells people.
type Look struct {
	Decision

	Standing policy.Standing // of the rules
	Plan     charge.Plan     // not Planned for a request that was refused before
	Times    []charge.Time   // of each of Verdicts; nil without Options.Slots
}

// Look finds out what Check would answer the request at this moment. It takes
// nothing from any bucket and is not observed. It allocates freely.
func (l *Limiter) Look(ctx context.Context, r Request) *Look {
	t := &trip{request: r, terms: l.terms.Load(), looks: true}
	var times []charge.Time
	if l.prepare(ctx, t) && !(t.plan.Set.Penalises() && l.inPenalty(t)) {
		p, held := &t.plan, false
		if l.slots != nil {
			_, held = p.HoldBack(l.slots, r.Header, true)
		}
		allowed, err := l.buckets.Peek(ctx, p.Now, p.Takes, p.Outs)
		if p.Guaranteed && err == nil {
			allowed = p.Retry(ctx, l.buckets, allowed, false)
		}
		if p.Concurrent {
			p.Estimate()
		}
		l.conclude(t, allowed, err)
		if l.slots != nil && err == nil {
			d := &t.decision
			times, d.Slot = p.Foresee(l.slots, r.Header, allowed)
			if allowed && d.Slot.Wait > 0 { // also of a bad credential, which is refused after that
				d.Allowed, d.Reason, d.Wait = false, OverLimit, 0
			}
			d.restate(p)
		}
		// Who is held back is refused before the buckets are asked, and that counts towards no penalty.
		if p.Set.Penalises() && err == nil && !allowed && !held && !p.Further {
			l.penalise(t, l.penalties.Foresee)
		}
	}
	if t.plan.Set == nil { // it was turned away before the rules were asked for
		_, t.standing = l.inForce(l.clock.Now())
	}
	return &Look{t.decision, t.standing, t.plan, times}
}

// Plan fills p for its Match and its callers, as of this moment: with the rules
// of p.Set, or else with those in force.
func (l *Limiter) Plan(p *charge.Plan) error {
	p.Now = l.clock.Now()
	p.Wall = l.clock.Wall(p.Now)
	if p.Set == nil {
		p.Set, _ = l.rules(p.Now)
	}
	if p.Set == nil {
		return errors.New("no rules were loaded yet")
	}
	p.Endpoints = l.endpointsOf(p.Set)
	if p.Identities == nil {
		p.Identities = l.Identities()
	}
	if l.scores != nil {
		l.score(p)
	}
	l.planner.Plan(p)
	return nil
}

// Peek reports what attempts on buckets would come to, and makes none.
func (l *Limiter) Peek(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) error {
	if _, err := l.buckets.Peek(ctx, now, takes, outs); err != nil {
		return fmt.Errorf("look at the buckets: %w", err)
	}
	return nil
}

// Fill makes the bucket of one charge of a plan full, with those that have to
// have room beside it, and ends its allowance. Reservations that are outstanding
// give nothing more back to it.
func (l *Limiter) Fill(ctx context.Context, p *charge.Plan, of int, once bucket.Once) error {
	now := l.clock.Now()
	takes := p.Together(of)
	l.planner.Allowances.Remove(takes[0].Key, now)
	l.slots.Forget(takes[0].Key)
	l.penalties.Forget(p.CallerKey(of))
	for i := range takes {
		if !takes[i].Reach.Scope().Shared() { // whose store sees to the reservations of all processes
			l.reservations.Void(takes[i].Key)
		}
	}
	terms := p.Set.Terms(p.Charges[of].Rule)
	takes[0].Shape, takes[0].Since, takes[0].Before = terms.Shape, terms.Since, terms.Before
	_, err := l.correct(ctx, now, takes, bucket.Fill, once)
	return err
}

// TopUp gives the bucket of one charge of a plan so many tokens, and those that
// have to have room beside it, as far as they are not full. It reports how many
// the bucket was given.
func (l *Limiter) TopUp(ctx context.Context, p *charge.Plan, of int, tokens int64,
	once bucket.Once) (given int64, err error) {
	takes := p.Together(of)
	moved, err := l.correct(ctx, l.clock.Now(), takes, -takes[0].Shape.UnitsSaturating(tokens), once)
	if err != nil {
		return 0, err
	}
	for i := range takes {
		if !takes[i].Reach.Scope().Shared() {
			l.reservations.Spend(takes[i].Key, takes[i].Shape, -moved[i])
		}
	}
	unit := takes[0].Shape.Unit
	return (-moved[0] + unit - 1) / unit, nil // a part of a token counts as one
}

// correct changes the debt of buckets by so many units, which are the same in
// all of them.
func (l *Limiter) correct(ctx context.Context, now int64, takes []bucket.Take, units int64,
	once bucket.Once) (moved []int64, err error) {
	changes, moved := make([]bucket.Change, len(takes)), make([]int64, len(takes))
	for i := range takes {
		t := &takes[i]
		changes[i] = bucket.Change{
			Key: t.Key, Tag: t.Tag, Reach: t.Reach, Shape: t.Shape, Since: t.Since, Before: t.Before,
			Units: units, Once: once, Lowered: t.Lowered,
		}
	}
	if err := l.buckets.Correct(ctx, now, changes, moved); err != nil {
		return nil, fmt.Errorf("correct the bucket: %w", err)
	}
	return moved, nil
}

// Allow makes the burst of the bucket of one charge of a plan larger by so many
// tokens until then. It is bounded by Options.MaxAllowances, and ends with the
// process.
func (l *Limiter) Allow(p *charge.Plan, of int, tokens int64, until time.Time) error {
	now := l.clock.Now()
	c := &p.Charges[of]
	own := charge.Allowance{Tokens: tokens, From: now, Until: until.UnixNano() - l.ahead(now)}
	if !l.planner.Allowances.Set(p.Takes[c.Place].Key, own, p.Set.Terms(c.Rule).Shape) {
		return fmt.Errorf("there are %d allowances already, want one to lapse first", l.planner.Allowances.Most())
	}
	return nil
}

// Allowed reports the allowance that the bucket of one charge of a plan has, and
// until when, by the wall clock.
func (l *Limiter) Allowed(p *charge.Plan, of int) (tokens int64, until time.Time, ok bool) {
	now := l.clock.Now()
	own, ok := l.planner.Allowances.Get(p.Takes[p.Charges[of].Place].Key, now)
	return own.Tokens, time.Unix(0, own.Until+l.ahead(now)).UTC(), ok
}

// ahead is how far the wall clock, by which people say until when, is ahead of
// the one that buckets are counted by.
func (l *Limiter) ahead(now int64) int64 { return l.clock.Wall(now) - now }

// Wall is the wall clock's time, by which rules expire.
func (l *Limiter) Wall() time.Time { return time.Unix(0, l.clock.Wall(l.clock.Now())).UTC() }

// Endpoints are the endpoints that exist: those of the rules in force.
func (l *Limiter) Endpoints() *endpoint.Table { return l.endpointsOf(l.policies.Set()) }

// Identities is who tells callers apart.
func (l *Limiter) Identities() *identity.Resolver { return l.terms.Load().identities }

// Policies are where the rules come from.
func (l *Limiter) Policies() Policies { return l.policies }

// LimitsUnknown reports whether requests that no template matches are limited,
// and not refused.
func (l *Limiter) LimitsUnknown() bool { return !l.terms.Load().rejectUnknown }

// Region names the region of an address, "" for the unknown one. It reports
// whether regions can be told apart.
func (l *Limiter) Region(a netip.Addr) (string, bool) {
	if l.region == nil {
		return "", false
	}
	return l.region(a), true
}

// Typed reads an identifier that a person typed, as a door reads the one in a
// body at an endpoint; see Options.Typed. It reports whether there is none that
// can be read, and whether bodies are read there at all.
func (l *Limiter) Typed(m endpoint.Match, typed string) (identifier string, none, reads bool) {
	if l.readIdentifier == nil || m.Status != endpoint.Known {
		return typed, false, false
	}
	read, ok, reads := l.readIdentifier(m.ID, typed)
	if !reads {
		return typed, false, false
	}
	return read, !ok, true
}

// Envelope is what all replicas together admit at most from one bucket of a rule,
// as policy.Set.Rule reports it, and how it is shared at this moment. A rule that
// needs a shared store where there is none counts as a local one. Of requests
// under way Burst is how many there are at once, and none come back by time.
func (l *Limiter) Envelope(r policy.Rule) (bucket.Envelope, bucket.Sharing) {
	sharing := bucket.Sharing{Replicas: 1}
	if s, ok := l.buckets.(bucket.Sharer); ok {
		sharing = s.Sharing()
	}
	scope := bucket.Scope(r.Scope)
	if scope.Named() && !l.planner.Shared(r.Scope) {
		scope = bucket.Local
	}
	limit := rate.Limit{Tokens: r.Limit, Per: max(r.Per, time.Second), Burst: r.Burst, Algorithm: r.Algorithm.Counts()}
	e := sharing.Envelope(limit, scope)
	if r.Algorithm == policy.Concurrency {
		e.Tokens = 0
	}
	return e, sharing
}

// ReservesSlots reports whether callers who say how many requests wait have times reserved
// for them.
func (l *Limiter) ReservesSlots() bool { return l.slots.Reserves() }

// Slots reports what the slots came to; the zero value without Options.Slots.
func (l *Limiter) Slots() slot.Stats { return l.slots.Stats() }

// Penalties reports what was done to callers who were denied again and again (policy.Rule.Penalty).
func (l *Limiter) Penalties() penalty.Stats { return l.penalties.Stats() }

// Adaptive is how the endpoint of a decision stands; false if its rates are never lowered.
func (l *Limiter) Adaptive(d *Decision) (s adaptive.Status, ok bool) {
	if l.adaptive == nil || d.endpoints == nil {
		return s, false
	}
	at := l.adaptive.At(d.endpoints, d.Endpoint.ID)
	if at == nil {
		return s, false
	}
	return at.Status(l.clock.Now()), true
}

// Account is what the score of a caller is made of at this moment, and the tier by whose rules it pays because of that,
// if any. It is false if nothing is known of the caller, or nobody is scored.
func (l *Limiter) Account(who *identity.Principal) (a anomaly.Account, because anomaly.Tier, known bool) {
	settings := l.scores.Settings()
	if settings == nil {
		return a, because, false
	}
	a, known = l.scores.Account(l.clock.Now(), l.scores.Caller(who))
	because, _ = settings.TierOf(a.Score, who.Kind != identity.Address)
	return a, because, known
}

// Scores reports how many callers are scored, and how; false if none is. It takes milliseconds.
func (l *Limiter) Scores() (stats anomaly.Stats, on bool) {
	if l.scores.Settings() == nil {
		return stats, false
	}
	return l.scores.Stats(l.clock.Now()), true
}
