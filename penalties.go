package headgate

import (
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/slot"
)

// penaltyOf is when the caller of a charge is blocked, by the rule of its own bucket; nil if never. Of a caller without
// a verified credential it is unknown who else has the address.
func (t *trip) penaltyOf(c *charge.Charge) *penalty.Terms {
	p := &t.plan
	terms := (*penalty.Terms)(p.Set.PenaltyOf(c.Rule))
	if terms == nil || c.Shadow || c.Kind != charge.Own || !terms.Addresses && p.Of(int(c.Principal)).Kind == identity.Address {
		return nil
	}
	return terms
}

// inPenalty refuses the request of a caller whom a rule blocks for a time, without asking the buckets.
func (l *Limiter) inPenalty(t *trip) bool {
	p := &t.plan
	place, last := -1, int64(0)
	for i := range p.Charges {
		c := &p.Charges[i]
		terms := t.penaltyOf(c)
		if terms == nil {
			continue
		}
		if until, blocked := l.penalties.Until(p.Now, p.CallerKey(i), terms); blocked && until > last {
			place, last = c.Place, until
		}
	}
	if place < 0 {
		return false
	}
	wait := time.Duration(last - p.Now)
	for i := range p.Outs {
		p.Outs[i] = bucket.Outcome{Allowed: true, Unknown: true}
	}
	p.Outs[place] = bucket.Outcome{RetryAfter: wait, ResetAfter: wait}
	l.conclude(t, false, nil)
	t.decision.Reason = InPenalty
	return true
}

// penalise counts that a request was denied, for each rule that denied it and may block its caller. Who is blocked by
// that is told how long.
func (l *Limiter) penalise(t *trip) {
	p, d := &t.plan, &t.decision
	penalised := false
	for i := range p.Charges {
		c := &p.Charges[i]
		out := &p.Outs[c.Place]
		if out.Allowed || out.Unknown || out.Never {
			continue
		}
		terms := t.penaltyOf(c)
		if terms == nil {
			continue
		}
		until, blocked := l.penalties.Denied(p.Now, p.CallerKey(i), terms)
		if wait := time.Duration(until - p.Now); blocked && wait > d.RetryAfter && d.Reason != CostAboveBurst {
			out.RetryAfter, out.ResetAfter = wait, max(wait, out.ResetAfter)
			penalised = true
		}
	}
	if penalised {
		d.restate(p)
		d.Reason, d.Slot = InPenalty, slot.Offer{}
	}
}

// Penalties reports what was done to callers who were denied again and again (policy.Rule.Penalty).
func (l *Limiter) Penalties() penalty.Stats { return l.penalties.Stats() }
