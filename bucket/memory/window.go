package memory

import (
	"math"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// inheritWindow is inherit for a shape that counts in windows: the bucket starts with nothing left until spentUntil.
func (k *sketch) inheritWindow(now int64, t *bucket.Take) bucket.State {
	until, lasts := k.spentUntil(now, t), t.Shape.Tick
	if until == math.MinInt64 {
		return bucket.Full(t.Key, &t.Shape)
	}
	if t.Shape.Algorithm == rate.SlidingWindow {
		lasts *= 2
	}
	// The time may be that of another key, under another rule, and far away. One window from now is enough even if the clock was set
	// back, because every use of this key lies before now.
	furthest := saturating(saturating(now, t.Shape.Tick), lasts)
	return bucket.Spent(t.Key, &t.Shape, min(until, furthest))
}

// spentUntil is when all that may have been counted for t's key counts no longer, if the sketch remembers something that matters; else
// math.MinInt64. What was evicted wrote the end of its own last window. If the limit has changed since, it may have been counted under
// another, and all of the new one as taken when it changed.
func (k *sketch) spentUntil(now int64, t *bucket.Take) int64 {
	changed := now
	if t.Since != 0 {
		changed = min(t.Since, now)
	}
	if k.latest <= changed {
		return math.MinInt64
	}
	fullAt, until := k.fullAt(t.Key.Lo), int64(math.MinInt64)
	ownEnd := fullAt
	if t.Shape.Algorithm == rate.FixedWindow && fullAt > math.MinInt64+t.Shape.Tick {
		ownEnd -= t.Shape.Tick // see bucket.State.ForgottenAt
	}
	if ownEnd > now {
		until = ownEnd
	}
	if t.Since != 0 && fullAt > changed {
		late := min(saturating(changed, int64(overlap)), now)
		ends := bucket.Owing(&t.Shape, t.Shape.Capacity, late).Align(t.Key, &t.Shape).FullAt(t.Shape)
		if ends > now {
			until = max(until, ends)
		}
	}
	return until
}

// saturating adds b >= 0 to a.
func saturating(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
