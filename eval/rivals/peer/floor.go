package peer

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"
)

// The floors limit nothing. What a limiter needs beyond them is its own.
var (
	hashAdd = Peer{
		Name:  "floor: hash, add",
		How:   "no limiter: the key's hash chooses a counter in an array of twice as many",
		Floor: true,
		Open: func(keys int) (Limiter, error) {
			add := newAdder(keys)
			return shared(func(key string) bool { return add(key, 1) > 0 }), nil
		},
	}

	hashAddClock = Peer{
		Name:  "floor: hash, clock, add",
		How:   "the same with one reading of the monotonic clock, which keeps the processor from looking ahead",
		Floor: true,
		Open: func(keys int) (Limiter, error) {
			add, start := newAdder(keys), time.Now()
			return shared(func(key string) bool { return add(key, int64(time.Since(start))|1) != 0 }), nil
		},
	}

	noop = Peer{
		Name:  "floor: nothing",
		How:   "the loop around the others",
		Floor: true,
		Open:  func(int) (Limiter, error) { return shared(func(key string) bool { return key != "" }), nil },
	}
)

func newAdder(keys int) func(key string, by int64) int64 {
	counters, seed := make([]atomic.Int64, 2<<bits.Len(uint(keys-1))), maphash.MakeSeed()
	mask := uint64(len(counters) - 1)
	return func(key string, by int64) int64 { return counters[maphash.String(seed, key)&mask].Add(by) }
}
