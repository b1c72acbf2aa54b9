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
