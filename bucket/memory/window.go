package memory

import (
	"math"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// inheritWindow is inherit for a shape that counts in windows: the bucket starts with nothing left until spentUntil.
func (k *sketch) inheritWindow(now int64, t *bucket.Take) bucket.State {
	until, remembers := k.spentUntil(now, t)
	if !remembers {
		return bucket.Full(t.Key, &t.Shape)
	}
	lasts := t.Shape.Tick
	if t.Shape.Algorithm == rate.SlidingWindow {
		lasts *= 2
	}
	// The time may be that of another key, under another rule, and far away. One window from now is enough even if the clock was set
	// back, because every use of this key lies before now.
	furthest := saturating(saturating(now, t.Shape.Tick), lasts)
	return bucket.Spent(t.Key, &t.Shape, min(until, furthest))
}

// spentUntil is when all that may have been counted for t's key counts no longer, if the sketch remembers something that matters. What was evicted wrote the end of its own last window. If the limit has changed since, it may have been counted under
// another, and all of the new one as taken when it changed.
func (k *sketch) spentUntil(now int64, t *bucket.Take) (until int64, remembers bool) {
	changed := now
	if t.Since != 0 {
		changed = min(t.Since, now)
	}
	if k.latest <= changed && (t.Before == nil || k.latest <= earliest(t)) {
		return 0, false
	}
	fullAt := k.fullAt(t.Key.Lo)
	ownEnd := fullAt
	if t.Shape.Algorithm == rate.FixedWindow && fullAt > math.MinInt64+t.Shape.Tick {
		ownEnd -= t.Shape.Tick // see bucket.State.ForgottenAt
	}
	if ownEnd > now {
		until, remembers = ownEnd, true
	}
	if t.Since != 0 && fullAt > changed {
		late := min(saturating(changed, int64(overlap)), now)
		ends := bucket.Owing(&t.Shape, t.Shape.Capacity, late).Align(t.Key, &t.Shape).FullAt(t.Shape)
		if t.Shape.Algorithm == rate.SlidingLog {
			log := bucket.OwingLog(t.Key, &t.Shape, t.Shape.Capacity, late)
			ends = log.FullAt(&t.Shape)
		}
		if ends > now {
			if !remembers || ends > until {
				until = ends
			}
			remembers = true
		}
	}
	if t.Before != nil {
		if h, may := missed(now, t, fullAt); may {
			ends := h.State.FullAt(t.Shape)
			if t.Shape.Algorithm == rate.SlidingLog {
				ends = h.Log.FullAt(&t.Shape)
			}
			if ends > now && (!remembers || ends > until) {
				until, remembers = ends, true
			}
		}
	}
	return until, remembers
}

// saturating adds b >= 0 to a.
func saturating(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
