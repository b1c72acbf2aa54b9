package memory

import (
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Learn tells the table that limits changed at the Unix time since in nanoseconds. It has to come before the first take under the new ones: until
// then a bucket that is full at its old rate leaves nothing behind when it is evicted, and would be taken as full though its limit
// became slower before.
func (s *Store) Learn(since int64) { s.noteChange(since) }

// follow is a bucket that was left under another shape, or before the last change of its limit, in terms of t.Shape; and whether it is as it
// was left. It stands aside because deciding is slower with room for all this on the stack.
//
//go:noinline
func follow(now int64, t *bucket.Take, state bucket.State, shape *rate.Shape) (after bucket.State, current bool) {
	h := bucket.Held{Shape: *shape, State: state}
	changed := h.Follow(now, t)
	return h.State, !changed
}

func (sl *logSlot) held() bucket.Held { return bucket.Held{Shape: *sl.shape(), Log: sl.log} }

// earliest is the first change of t's limit that is known of; what was full before it is full.
func earliest(t *bucket.Take) int64 {
	first := t.Since
	for p := t.Before; p != nil && p.Since != 0; p = p.Before {
		first = min(first, p.Since)
	}
	return first
}

// missed is what a bucket that was evicted, and would have been full at fullAt under the limit it had then, may be now: that which was empty
// when its limit next changed, taken through all changes after. It reports false if the bucket was full by then, or if that was
// the last change, which inherit and spentUntil look at themselves.
func missed(now int64, t *bucket.Take, fullAt int64) (h bucket.Held, may bool) {
	if fullAt > min(t.Since, now) {
		return h, false
	}
	next, since := &t.Shape, t.Since
	for p := t.Before; p != nil && p.Since != 0; p = p.Before {
		if p.Shape != (rate.Shape{}) {
			next, since = &p.Shape, p.Since
		}
		if fullAt <= p.Since {
			continue
		}
		at := saturating(since, int64(overlap))
		if p.Before == nil || !p.Before.Shape.Algorithm.Drains() {
			at = max(at, fullAt) // a window that was charged after a change may have begun later: see bucket.State.Align
		}
		at = min(at, now)
		h.Shape = *next
		if next.Algorithm == rate.SlidingLog {
			h.Log = bucket.OwingLog(t.Key, next, next.Capacity, at)
		} else {
			h.State = bucket.Owing(next, next.Capacity, at)
		}
		h.Follow(now, t)
		return h, true
	}
	return h, false
}
