package bucket

import (
	"time"

	"github.com/headgate-io/headgate/rate"
)

// A leaky bucket counts the same debt as a token bucket, and reads it as a queue: what is owed has
// to drain before the next request goes on. So a request is admitted while the burst has room, and
// told to wait for what was owed before it. With 2 tokens per second and a burst of 3:
//
//	  at      take   debt before   answer
//	0.0 s        1             0   allowed at once
//	0.0 s        1             1   allowed, wait 0.5 s
//	0.0 s        1             2   allowed, wait 1 s
//	0.0 s        1             3   retry after 0.5 s, when the first place in the queue is free again
//
// The time at which a request may go on, now plus its wait, never lies before that of one admitted
// earlier: first come, first served, without a list of who waits.

// Wait is how long a request that is admitted at now waits for its turn: until what s owes has
// drained. It is 0 unless sh is a leaky bucket.
func (s State) Wait(now int64, sh *rate.Shape) time.Duration {
	if sh.Algorithm != rate.LeakyBucket {
		return 0
	}
	return s.queued(now, sh, 0)
}

// queued is the time until all that s owes has drained, but for its last own units.
func (s State) queued(now int64, sh *rate.Shape, own int64) time.Duration {
	d, _ := s.drain(now, sh)
	return d.until(now, sh, d.Debt-own)
}

// Met is the shape that t finds its bucket to have: of what is in force of it, without what it is to leave (Kept).
func (t *Take) Met() rate.Shape {
	if t.fewer() {
		return t.Shape.AtOnce(t.Lowered.Part()).Keeping(int(t.Kept))
	}
	return t.Shape.Keeping(int(t.Kept))
}

// MeetsAll says that Met is all of Shape.
func (t *Take) MeetsAll() bool { return t.Kept == 0 && !t.fewer() }

// fewer says that a part of a limit on requests under way is in force.
func (t *Take) fewer() bool { return t.Lowered != nil && t.Shape.Algorithm == rate.SlidingLog }

// Excess is by how much a wait exceeds what t accepts; 0 if it does not.
func (t *Take) Excess(wait time.Duration) time.Duration {
	if t.MaxWait == 0 {
		return 0
	}
	return max(0, wait-max(0, t.MaxWait))
}

// ReportWait completes what Report wrote for a take of a leaky bucket. s is the state that was
// reported, of which own units are the take's and of those behind it: none, if it was denied.
func (t *Take) ReportWait(o *Outcome, s State, now, own int64) {
	wait := s.queued(now, &t.Shape, own)
	switch {
	case o.Allowed:
		o.Wait = wait
	case !o.Never:
		o.RetryAfter = max(o.RetryAfter, t.Excess(wait))
	}
}
