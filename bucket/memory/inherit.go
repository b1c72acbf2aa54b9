package memory

import (
	"math"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// overlap is how long after a shape took effect takes with the one before may still arrive: a
// request resolves its rules and then takes, and in between the rules may have been replaced.
const overlap = time.Second

// most is what a bucket may owe that comes back.
func (k *traces) most(shape *rate.Shape) int64 {
	if k.carries {
		return shape.MaxDebt()
	}
	return shape.Capacity
}

// inherit is the bucket of a take that lies in no slot. If no trace of its key is known, it is
// full. If it was evicted in debt, it owes what drains until the time of its trace.
//
// If its limit has changed since, that is not enough: its trace was written with the old drain,
// which may be faster. Then it counts as empty at the last change, which Convert would not exceed
// either, and fills from there.
func (k *traces) inherit(now int64, t *bucket.Take) bucket.State {
	if !t.Shape.Algorithm.Drains() {
		return k.inheritWindow(now, t)
	}
	if t.Before == nil {
		return k.remembered(now, t)
	}
	return atLeast(k.remembered(now, t), now, t)
}

// remembered is what a bucket owes that may have left a trace.
func (k *traces) remembered(now int64, t *bucket.Take) bucket.State {
	s, fullAt := bucket.State{Stamp: now}, k.fullAt(now, earliest(now, t), t)
	if fullAt > now {
		s.Debt = t.Shape.Drained(between(now, fullAt))
		if t.Shape.Tick > 1 {
			s.Debt++ // Drained rounds down
		}
	}
	if fullAt == math.MaxInt64 {
		s.Debt = k.most(&t.Shape) // FullAt ends here, debt may not
	}
	s.Debt = min(s.Debt, k.most(&t.Shape))
	switch at, may := restated(now, t, fullAt); {
	case !may:
	case at > now: // it begins to drain when its window would have begun
		s = bucket.State{Debt: max(s.Debt, t.Shape.Capacity), Stamp: at}
	default:
		s.Debt = max(s.Debt, t.Shape.Capacity-t.Shape.Drained(between(at, now)))
	}
	return s
}

// between is the time from one Unix time to a later one; 0 if it is not later.
func between(from, to int64) time.Duration {
	if to <= from {
		return 0
	}
	return time.Duration(min(uint64(to-from), math.MaxInt64))
}
