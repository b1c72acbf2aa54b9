package bucket

import (
	"time"

	"github.com/headgate-io/headgate/rate"
)

// Sharing is how buckets are shared: what it takes, besides a rule, to say how much of it all replicas admit together.
type Sharing struct {
	Replicas int // that run now, 1 or more
	// by how many some replica may still divide limits, if by fewer, while replicas come and go; 0
	// for Replicas
	Fewest int
	// for which a batch of a lease may be used; 0 if there are no leases, and strict takes stand in
	// for them
	TTL time.Duration
	// percent of limits of scope lease that replicas have to themselves, as rate.Shape.SetAside
	// divides them
	Free int
	// after which replicas report what they took of limits of scope sync; 0 if strict takes stand
	// in for that
	Interval time.Duration
	// within which a replica hears what another admitted of limits of scope gossip, or presumes it;
	// 0 if those are local
	Heard time.Duration
}

// Envelope is a bound on what all replicas together admit from one bucket: in any interval of
// length t, at most Burst + Excess tokens and what Tokens per Per give in t, rounded down. It holds
// while the number of replicas stays and the shared store answers; docs/store-loss.md says what more
// there may be when they do not. What an operator gives to a bucket in the interval, and of a limit
// of scope lease in the TTL before it, is not counted.
type Envelope struct {
	Burst  int64
	Tokens int64
	Per    time.Duration

	// Excess is what the scope may add at most, whatever the interval: what drains of leased tokens in one TTL, or the
	// headrooms of all replicas, or what each other replica gets until it is heard.
	Excess int64
}

// Envelope is that of a limit in a scope, with as many replicas as sharing says. Where a burst is
// divided, parts hold no less than a token. While replicas divide by different numbers it is around
// what they admit by any of them, together with those parts of a burst which that leaves over.
func (s Sharing) Envelope(l rate.Limit, scope Scope) Envelope {
	k := int64(max(1, s.Replicas))
	e := Envelope{Burst: l.Burst, Tokens: l.Tokens, Per: l.Per}
	if l.Algorithm == rate.FixedWindow || l.Algorithm == rate.SlidingWindow {
		e.Burst = times(l.Burst, 2) // at the edge of a window
	}
	if scope == Gossip && s.Heard == 0 {
		scope = Local
	}
	switch scope {
	case Local:
		e.Burst, e.Tokens = times(e.Burst, k), times(e.Tokens, k)
	case Split:
		if e.Burst = max(k, l.Burst/k*k); s.changing() {
			e.Burst = max(k, l.Burst)
		}
	case Lease:
		if shape, err := rate.Compile(l); err == nil && s.TTL > 0 && l.Algorithm != rate.SlidingLog {
			e.Burst, e.Excess = s.leased(shape, k)
		}
	case Sync:
		if shape, err := rate.Compile(l); err == nil && s.Interval > 0 {
			h := Headroom(shape, s.Interval, s.Replicas)
			if s.changing() {
				h = Headroom(shape, s.Interval, s.Fewest)
			}
			e.Excess = times(h, k)
		}
	case Gossip:
		if shape, err := rate.Compile(l); err == nil {
			e.Burst, e.Excess = times(l.Burst, k), times((shape.Drained(s.Heard)+shape.Unit-1)/shape.Unit, k-1)
		}
	}
	return e
}

// changing reports whether replicas may divide limits by different numbers at this moment.
func (s Sharing) changing() bool { return 0 < s.Fewest && s.Fewest < s.Replicas }

// leased is burst and excess of a limit of scope lease.
func (s Sharing) leased(whole rate.Shape, k int64) (burst, excess int64) {
	own, rest, divided := whole.SetAside(s.Free, int(min(k, rate.MaxParts)))
	burst = rest.Burst()
	if divided {
		burst += k * own.Burst()
	}
	if s.changing() {
		burst = whole.Burst()
		if _, beside, had := whole.SetAside(s.Free, s.Fewest); had && !divided {
			burst += whole.Burst() - beside.Burst() // some have a part to themselves yet, and others take of the whole
		}
	}
	return burst, (rest.Drained(s.TTL) + rest.Unit - 1) / rest.Unit
}

// Headroom is how many tokens of a limit of scope sync one of so many replicas may have admitted
// and got no answer about: what drains in the interval between reports, rounded up; but all
// together no more than the burst, so that what all owe is never more than a bucket may. 0 is for
// those who admit nothing unasked.
func Headroom(sh rate.Shape, interval time.Duration, replicas int) int64 {
	if sh.Unit <= 0 || sh.Algorithm != rate.TokenBucket || sh.Capacity > sh.MaxDebt()/2 {
		return 0
	}
	drained := sh.Drained(interval)
	return min(max(1, drained/sh.Unit+min(1, drained%sh.Unit)), sh.Burst()/int64(max(1, replicas)))
}

// times is a*k, at most rate.MaxCapacity.
func times(a, k int64) int64 {
	if k > 0 && a > rate.MaxCapacity/k {
		return rate.MaxCapacity
	}
	return a * k
}
