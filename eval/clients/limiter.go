package main

import (
	"math"
	"time"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/pace"
	"github.com/headgate-io/headgate/slot"
)

// speech is what a limiter says to those that it refuses.
type speech uint8

const (
	silent   speech = iota
	truth           // when the next token comes, the same for everybody
	spaced          // a time for each client
	reserved        // and its token is kept
)

// limiter is the server of the paper's experiment: a token bucket that is refilled
// continuously, starts full and charges nothing for what it refuses.
type limiter struct {
	capacity, perMinute float64
	says                speech

	// chargesRefused takes a token for a refused request as well, down to none and no
	// further below than the capacity, as many APIs do.
	chargesRefused bool

	tokens   float64
	last     time.Duration
	slots    []*slot.Table // of each replica
	asked    int
	admitted []time.Duration
}

func newLimiter(capacity, perMinute float64) *limiter {
	return &limiter{capacity: capacity, perMinute: perMinute, tokens: capacity}
}

// saying returns l, which says as much as s of itself.
func (l *limiter) saying(s speech) *limiter {
	l.says = s
	l.replicas(1)
	return l
}

// replicas makes l so many processes with one bucket, which take turns.
func (l *limiter) replicas(n int) {
	l.slots = nil
	if l.says < spaced {
		return
	}
	for range n {
		l.slots = append(l.slots, slot.New(slot.Options{Reserve: l.says == reserved, MaxAhead: int64(24 * time.Hour)}))
	}
}

func (l *limiter) refill(now time.Duration) {
	l.tokens = min(l.capacity, l.tokens+(now-l.last).Minutes()*l.perMinute)
	l.last = now
}

func (l *limiter) take(now time.Duration) bool {
	l.refill(now)
	if l.tokens < 1-1e-9 {
		if l.chargesRefused {
			l.tokens = max(-l.capacity, l.tokens-1)
		}
		return false
	}
	l.tokens--
	l.admitted = append(l.admitted, now)
	return true
}

func (l *limiter) gap() time.Duration { return time.Duration(float64(time.Minute) / l.perMinute) }

var quotaKey = key.Key{Hi: 15, Lo: 15}

func (l *limiter) bucket() slot.Bucket {
	full := l.last + time.Duration((l.capacity-l.tokens)*float64(l.gap()))
	return slot.Bucket{Key: quotaKey, Gap: int64(l.gap()), Burst: int64(l.capacity), FullAt: int64(full)}
}

// ask is one request of a client, who understands slots if pending is 0 or more: so many
// further requests of it wait.
func (l *limiter) ask(now time.Duration, client, pending int) (admitted bool, h pace.Hint) {
	h = pace.Hint{Remaining: -1}
	who := slot.Caller(client)
	var slots *slot.Table
	if len(l.slots) > 0 {
		l.asked++
		slots = l.slots[l.asked%len(l.slots)]
		if s, _, held := slots.HoldsBack(int64(now), l.bucket(), 1, who, pending >= 0); held {
			return false, l.told(now, s)
		}
	}
	admitted = l.take(now)
	switch {
	case l.says == silent:
	case l.says == truth:
		h.Remaining = int64(max(0, l.tokens))
		if !admitted {
			// Retry-After has whole seconds, rounded up.
			wait := (1 - l.tokens) * l.gap().Seconds()
			h.Wait = time.Duration(math.Ceil(wait)) * time.Second
		}
	case !admitted:
		wait := time.Duration((1 - l.tokens) * float64(l.gap()))
		return false, l.told(now, slots.Refused(int64(now), int64(now+wait), l.bucket(), 1, who, pending >= 0))
	default:
		h.Remaining = max(0, int64(l.tokens)-slots.Ahead(int64(now), quotaKey, who))
		if s, given := slots.Taken(int64(now), l.bucket(), 1, who, pending > 0); given {
			return true, l.told(now, s)
		}
	}
	return admitted, h
}

// told is a slot as a client reads it, to the millisecond.
func (l *limiter) told(now time.Duration, s slot.Slot) pace.Hint {
	wait := (time.Duration(s.At) - now + time.Millisecond - 1).Truncate(time.Millisecond)
	return pace.Hint{Wait: wait, Slot: true, Burst: int64(l.capacity), Gap: l.gap()}
}
