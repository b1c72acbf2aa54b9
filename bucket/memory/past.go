package memory

import (
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Learn tells the table that limits changed at since, and that at settled nothing is owed any more that was owed then:
// rate.Shape.Settled under the new limits and the old, the latest of all; math.MaxInt64 if that is not known. Both are
// Unix nanoseconds. It has to come before the first take under the new ones: until then a bucket that is full at its
// old rate leaves nothing behind when it is evicted, and would be taken as full though its limit became slower before.
// From settled on it leaves nothing behind again.
func (s *Store) Learn(since, settled int64) { s.noteChange(since, settled) }

// follow is a bucket that was left under another shape, or before the last change of its limit, in
// terms of t.Shape; and whether it is as it was left. It stands aside because deciding is slower
// with room for all this on the stack.
//
//go:noinline
func follow(now int64, t *bucket.Take, state bucket.State, shape *rate.Shape) (after bucket.State, current bool) {
	h := bucket.Held{Shape: *shape, State: state}
	changed := h.Follow(now, t)
	return h.State, !changed
}

func (sl *logSlot) held() bucket.Held { return bucket.Held{Shape: *sl.shape(), Log: sl.log} }

// atLeast is a bucket that owes what s does, and what one does that nobody ever charged.
func atLeast(s bucket.State, now int64, t *bucket.Take) bucket.State {
	if h, spent := t.Unused(now); spent && h.State.FullAt(t.Shape) > s.FullAt(t.Shape) {
		return h.State
	}
	return s
}

// earliest is the first change of t's limit that is known of, or now; what was full before it is full.
func earliest(now int64, t *bucket.Take) int64 {
	if t.Since == 0 {
		return now
	}
	first := min(t.Since, now)
	for p := t.Before; p != nil && p.Since != 0; p = p.Before {
		first = min(first, p.Since)
	}
	return first
}

// restated is when the bucket of t was taken through a change of its limit for the last time, or
// later, if it was not charged since and would have been full at fullAt before. It then owed at
// most all that t.Shape holds. It reports false if the limit never changed while it owed anything.
//
// What exactly it owed then would need to know the limit under which it was evicted. With limits
// that count in windows, also where its windows began: that was up to one window after it was
// charged (bucket.State.Align), and is never before that if the limit changes again.
func restated(now int64, t *bucket.Take, fullAt int64) (at int64, may bool) {
	if t.Since == 0 || fullAt <= earliest(now, t) {
		return 0, false
	}
	changed := min(saturating(min(t.Since, now), int64(overlap)), now)
	at = changed
	for p := t.Before; p != nil; p = p.Before {
		at = max(at, min(fullAt, saturating(changed, int64(max(p.Window, p.Shape.Window())))))
	}
	return at, true
}
