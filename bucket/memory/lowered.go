package memory

import (
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// A bucket whose rate was lowered of late is brought up to date when it is found: its stamp is moved to the time since
// which the full rate would have drained as much as has drained. From there on it is a bucket like others, but that
// what is told of times takes longer, and that the stamp is moved back when it is written.

// lowers reports whether t's bucket drains more slowly than its shape says, or has done so of late.
func lowers(t *bucket.Take) bool { return t.Slower() != nil }

// report is bucket.State.Report of what t meets, with the times that the lowered rate takes.
func report(s bucket.State, o *bucket.Outcome, now int64, t *bucket.Take, met *rate.Shape, units int64, allowed bool) {
	s.Report(o, now, met, units, allowed)
	if lowers(t) {
		o.RetryAfter, o.ResetAfter = t.Lowered.Stretch(o.RetryAfter), t.Lowered.Stretch(o.ResetAfter)
	}
}

// The full rate is what a bucket drained at that was evicted and came back, so others may owe in the place of what the
// lowered rate had left of a charge. What is given back in a shard that let buckets go is therefore what the full rate
// left.

// slowerLocked is by how much t's rate was lowered for what is given back to its bucket; nil for not at all.
func (sh *shard) slowerLocked(t *bucket.Take) *rate.Lowered {
	if sh.evictedFull+sh.evictedInDebt > 0 {
		return nil
	}
	return t.Slower()
}

// dueLocked is bucket.Change.Due of a bucket that was last written at stamp. The change goes by t's lowered rate.
func (sh *shard) dueLocked(now, stamp int64, c *bucket.Change, t *bucket.Take) int64 {
	if lowers(t) && sh.slowerLocked(t) == nil && c.Charged < now {
		stamp = saturating(max(now, stamp), now-c.Charged-t.Lowered.Elapsed(c.Charged, now))
	}
	return c.Due(now, stamp)
}
