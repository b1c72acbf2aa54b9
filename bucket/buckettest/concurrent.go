package buckettest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
)

func concurrentOne(s *suite) {
	take := bucket.Take{Key: Key(1), Shape: s.shape(1, time.Hour, 1000), Cost: 1}
	if got := admitted(s, 8, 400, func(int, *rand.Rand) []bucket.Take { return []bucket.Take{take} }); got != 1000 {
		s.Fatalf("8 callers were admitted %d times, want 1000", got)
	}
}

// concurrentMany has callers take from random pairs. Whatever is admitted takes one token from each
// of two buckets, so the tokens gone from all buckets are twice the admissions, if and only if no
// charge was partial or got lost.
func concurrentMany(s *suite) {
	const buckets = 12
	shape := s.shape(1, time.Hour, 100)
	got := admitted(s, 8, 400, func(_ int, rng *rand.Rand) []bucket.Take {
		a := rng.Uint64N(buckets)
		b := (a + 1 + rng.Uint64N(buckets-1)) % buckets
		return []bucket.Take{{Key: Key(a), Shape: shape, Cost: 1}, {Key: Key(b), Shape: shape, Cost: 1}}
	})
	gone := int64(0)
	for n := range uint64(buckets) {
		_, outs := s.peek(bucket.Take{Key: Key(n), Shape: shape})
		gone += 100 - outs[0].Remaining
	}
	if gone != 2*got {
		s.Fatalf("%d decisions of two tokens were admitted, but %d tokens are gone", got, gone)
	}
}

// admitted counts how many of rounds decisions each of some callers gets through at one instant.
func admitted(s *suite, callers, rounds int, takes func(caller int, rng *rand.Rand) []bucket.Take) int64 {
	s.Helper()
	counts := make([]int64, callers)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 1))
			outs := make([]bucket.Outcome, bucketsAtMost)
			for range rounds {
				allowed, err := s.store.TryConsume(context.Background(), start, takes(caller, rng), outs)
				if err != nil {
					s.Error(err)
					return
				}
				counts[caller] += btoi(allowed)
			}
		})
	}
	wg.Wait()
	sum := int64(0)
	for _, n := range counts {
		sum += n
	}
	return sum
}

const bucketsAtMost = 14
