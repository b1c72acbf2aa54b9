package charge

import (
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/rate"
)

// penaltyOf is when the caller of a charge is blocked, by the rule of its own bucket; nil if never. Of a caller without
// a verified credential it is unknown who else has the address.
func (p *Plan) penaltyOf(c *Charge) *penalty.Terms {
	terms := (*penalty.Terms)(p.Set.PenaltyOf(c.Rule))
	if terms == nil || c.Shadow || c.Kind != Own ||
		!terms.Addresses && p.Of(int(c.Principal)).Kind == identity.Address {
		return nil
	}
	return terms
}

// InPenalty refuses the request of a caller whom a rule blocks for a time, without asking the buckets. Outs say so.
func (p *Plan) InPenalty(penalties *penalty.Table) bool {
	place, last := -1, int64(0)
	for i := range p.Charges {
		c := &p.Charges[i]
		terms := p.penaltyOf(c)
		if terms == nil {
			continue
		}
		if until, blocked := penalties.Until(p.Now, p.CallerKey(i), terms); blocked && until > last {
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
	return true
}

// Penalise counts that a request was denied, for each rule that denied it and may block its caller. It reports whether
// the caller is blocked by that for longer than it would be told to wait; Outs say how long. What a rate denies that is
// lowered, or was until a minute ago, is not counted: the caller may keep to the limit that the rule says, and what it
// was slower to get back is owed still. Requests under way owe nothing: of a number that is in force as a whole each
// denial counts. Denied is a penalty.Table's Denied, or its Foresee, which counts nothing.
func (p *Plan) Penalise(denied func(now int64, k key.Key, terms *penalty.Terms) (until int64, blocked bool),
	told time.Duration) (longer bool) {
	for i := range p.Charges {
		c := &p.Charges[i]
		out := &p.Outs[c.Place]
		if out.Allowed || out.Unknown || out.Never {
			continue
		}
		terms := p.penaltyOf(c)
		take := &p.Takes[c.Place]
		if terms == nil || take.Lowered != nil && !(c.Concurrent && take.Part() == rate.Whole) {
			continue
		}
		until, blocked := denied(p.Now, p.CallerKey(i), terms)
		if wait := time.Duration(until - p.Now); blocked && wait > told {
			out.RetryAfter, out.ResetAfter = wait, max(wait, out.ResetAfter)
			longer = true
		}
	}
	return longer
}
