package buckettest

import (
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
)

// keeps is take for somebody who is to leave percent of the burst.
func keeps(t bucket.Take, percent uint8) bucket.Take {
	t.Kept = percent
	return t
}

func keeping(s *suite) {
	low := keeps(s.take(1, 1), 45) // four of ten tokens stay
	for left := range 6 {
		s.equal(s.want(true, low)[0], bucket.Outcome{Allowed: true, Remaining: 5 - int64(left),
			ResetAfter: time.Duration(left+1) * time.Second})
	}
	s.equal(s.want(false, low)[0], bucket.Outcome{RetryAfter: time.Second, ResetAfter: 6 * time.Second})
	s.left(1, 4)
	s.equal(s.want(true, s.take(1, 4))[0], bucket.Outcome{Allowed: true, ResetAfter: 10 * time.Second})
	s.equal(s.want(false, low)[0], bucket.Outcome{RetryAfter: 5 * time.Second, ResetAfter: 10 * time.Second})
	s.at(5*time.Second - 1000)
	s.want(false, low)
	s.at(5 * time.Second)
	s.want(true, low)
	s.equal(s.want(false, keeps(s.take(2, 7), 45))[0], bucket.Outcome{Never: true, Remaining: 6})
	s.equal(s.want(true, keeps(s.take(2, 6), 45))[0], bucket.Outcome{Allowed: true, ResetAfter: 6 * time.Second})
	s.want(true, keeps(s.take(3, 1), 99)) // nobody is kept from all
	s.want(false, keeps(s.take(3, 1), 99))
	s.equal(s.want(true, keeps(s.take(4, 0), 99))[0], bucket.Outcome{Allowed: true, Remaining: 1})
	shadow := keeps(s.shadow(5, 7), 40)
	s.equal(s.want(true, shadow)[0], bucket.Outcome{Never: true, Remaining: 6})
	s.left(5, 10)
}

func keepingQueue(s *suite) {
	low := keeps(s.leaky(1, 1), 70)
	for i := range 3 {
		s.equal(s.want(true, low)[0], bucket.Outcome{Allowed: true, Remaining: 2 - int64(i),
			Wait: time.Duration(i) * time.Second, ResetAfter: time.Duration(i+1) * time.Second})
	}
	s.equal(s.want(false, low)[0], bucket.Outcome{RetryAfter: time.Second, ResetAfter: 3 * time.Second})
	s.equal(s.want(true, s.leaky(1, 1))[0], bucket.Outcome{Allowed: true, Remaining: 6, Wait: 3 * time.Second,
		ResetAfter: 4 * time.Second})
}

func keepingTogether(s *suite) {
	s.want(true, keeps(s.take(1, 3), 50), s.take(2, 3))
	s.want(false, keeps(s.take(1, 3), 50), s.take(2, 3))
	s.left(1, 7)
	s.left(2, 7)
	s.want(true, keeps(s.take(1, 2), 50), keeps(s.take(2, 7), 0))
	s.want(false, keeps(s.take(3, 3), 50), keeps(s.take(3, 3), 50)) // takes of one bucket are added up
	s.left(3, 10)
}

// everyKeeping compares a store with the twin, while callers come who keep more or less for others.
func everyKeeping(s *suite, a rate.Algorithm, n uint64) {
	rng := rand.New(rand.NewPCG(n, 77))
	shape := s.algorithm(a, 10, 10*time.Second)
	twin, bound, admitted := new(Twin), 0, 0
	for range race.Fewer(400) {
		s.now += rng.Int64N(1_000) * int64(time.Millisecond)
		take := bucket.Take{Key: Key(n), Shape: shape, Cost: rng.Int64N(4), Kept: uint8(rng.IntN(4) * 30)}
		allowed, outs := s.try(take)
		like := &suite{T: s.T, store: twin, now: s.now}
		wanted, wants := like.try(take)
		if allowed != wanted {
			s.Fatalf("at %v: %+v is answered %t, %+v, want %t, %+v", time.Duration(s.now), take, allowed, outs[0],
				wanted, wants[0])
		}
		outs[0].RetryAfter, outs[0].ResetAfter, outs[0].Wait = 0, 0, 0 // which stores round as they can
		wants[0].RetryAfter, wants[0].ResetAfter, wants[0].Wait = 0, 0, 0
		s.equal(outs[0], wants[0])
		if bound++; allowed {
			admitted++
		}
	}
	if admitted == 0 || admitted == bound {
		s.Errorf("algorithm %d: %d of %d takes were admitted, want some", a, admitted, bound)
	}
}
