package memory

import (
	"math"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// inheritWindow is inherit for a shape that counts in windows: the bucket starts with nothing left until spentUntil.
func (k *traces) inheritWindow(now int64, t *bucket.Take) bucket.State {
	until, remembers := k.spentUntil(now, t)
	if !remembers {
		return bucket.Full(t.Key, &t.Shape)
	}
	return bucket.Spent(t.Key, &t.Shape, until)
}

// spentUntil is when all that may have been counted for t's key counts no longer, if a trace says
// something that matters. What was evicted wrote the end of its own last window. If the limit has
// changed since, it may have been counted under another, and all of the new one as taken when it
// changed.
func (k *traces) spentUntil(now int64, t *bucket.Take) (until int64, remembers bool) {
	fullAt := k.fullAt(now, earliest(now, t), t)
	if fullAt == math.MinInt64 {
		return 0, false
	}
	until = fullAt
	if t.Shape.Algorithm == rate.FixedWindow && fullAt > math.MinInt64+t.Shape.Tick {
		until -= t.Shape.Tick // see bucket.State.ForgottenAt
	}
	// The time may be that of another key, under another rule, and far away. One window from now is
	// enough even if the clock was set back, because every use of this key lies before now.
	until = min(until, furthest(now, t))
	if at, may := restated(now, t, fullAt); may {
		until = max(until, spentAt(t, at))
	}
	return until, until > now
}

// furthest is until when at most a bucket counts that was charged at now or before under t.Shape.
func furthest(now int64, t *bucket.Take) int64 {
	next := saturating(now, t.Shape.Tick)
	switch t.Shape.Algorithm {
	case rate.SlidingLog:
		return spentAt(t, next)
	case rate.SlidingWindow:
		next = saturating(next, t.Shape.Tick)
	}
	return saturating(next, t.Shape.Tick)
}

// spentAt is until when a bucket counts of which nothing is left at the Unix time at.
func spentAt(t *bucket.Take, at int64) int64 {
	if t.Shape.Algorithm == rate.SlidingLog {
		log := bucket.OwingLog(t.Key, &t.Shape, t.Shape.Capacity, at)
		return log.FullAt(&t.Shape)
	}
	return bucket.Owing(&t.Shape, t.Shape.Capacity, at).Align(t.Key, &t.Shape).FullAt(t.Shape)
}

// saturating adds b >= 0 to a.
func saturating(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
