package buckettest

import (
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
)

// leaky is a take of bucket n, a queue of ten that lets one through a second.
func (s *suite) leaky(n uint64, cost int64) bucket.Take {
	t := s.take(n, cost)
	t.Shape.Algorithm = rate.LeakyBucket
	return t
}

func leakyQueue(s *suite) {
	for i := range 10 {
		s.equal(s.want(true, s.leaky(1, 1))[0], bucket.Outcome{
			Allowed: true, Remaining: 9 - int64(i), Wait: time.Duration(i) * time.Second,
			ResetAfter: time.Duration(i+1) * time.Second,
		})
	}
	s.equal(s.want(false, s.leaky(1, 1))[0], bucket.Outcome{RetryAfter: time.Second, ResetAfter: 10 * time.Second})
	s.at(7500 * time.Millisecond)
	s.equal(s.want(true, s.leaky(1, 4))[0], bucket.Outcome{
		Allowed:    true,
		Remaining:  3,
		Wait:       2500 * time.Millisecond,
		ResetAfter: 6500 * time.Millisecond,
	})
	s.at(time.Hour)
	s.equal(s.want(true, s.leaky(1, 4))[0], bucket.Outcome{Allowed: true, Remaining: 6, ResetAfter: 4 * time.Second})
	s.equal(s.want(true, s.leaky(1, 0))[0], bucket.Outcome{Allowed: true, Remaining: 6, ResetAfter: 4 * time.Second})
}

func leakyMaxWait(s *suite) {
	s.want(true, s.leaky(1, 4))
	patient, hasty := s.leaky(1, 1), s.leaky(1, 1)
	patient.MaxWait, hasty.MaxWait = 1500*time.Millisecond, -1
	s.equal(s.want(false, patient)[0], bucket.Outcome{Remaining: 6, RetryAfter: 2500 * time.Millisecond,
		ResetAfter: 4 * time.Second})
	s.equal(s.want(false, hasty)[0], bucket.Outcome{Remaining: 6, RetryAfter: 4 * time.Second,
		ResetAfter: 4 * time.Second})
	s.left(1, 6)
	s.at(2500*time.Millisecond - 1000)
	s.want(false, patient)
	s.at(2500 * time.Millisecond)
	s.equal(s.want(true, patient)[0], bucket.Outcome{
		Allowed:    true,
		Remaining:  7,
		Wait:       patient.MaxWait,
		ResetAfter: 2500 * time.Millisecond,
	})
	s.at(5 * time.Second)
	s.equal(s.want(true, hasty)[0], bucket.Outcome{Allowed: true, Remaining: 9, ResetAfter: time.Second})
}

func leakyInOrder(s *suite) {
	rng := rand.New(rand.NewPCG(4, 9))
	last, admitted := int64(0), 0
	for range race.Fewer(3000) {
		s.now += rng.Int64N(1200) * 1_000_000
		take := s.leaky(1, 1+rng.Int64N(3))
		take.MaxWait = time.Duration(rng.Int64N(9)) * time.Second
		allowed, outs := s.try(take)
		if !allowed {
			continue
		}
		admitted++
		turn := s.now + int64(outs[0].Wait)
		if turn < last {
			s.Fatalf("at %v: the turn is at %v, before one admitted earlier at %v", time.Duration(s.now),
				time.Duration(turn), time.Duration(last))
		}
		last = turn + take.Cost*int64(time.Second) // it takes so long to drain
	}
	if admitted < race.Fewer(500) {
		s.Fatalf("%d were admitted: this shows nothing", admitted)
	}
}

func leakyWithOthers(s *suite) {
	s.want(true, s.leaky(1, 4), s.leaky(2, 7))
	outs := s.want(true, s.leaky(1, 1), s.take(3, 1), s.leaky(2, 1))
	if outs[0].Wait != 4*time.Second || outs[1].Wait != 0 || outs[2].Wait != 7*time.Second {
		s.Fatalf("outcomes are %+v, want waits of 4 s, none and 7 s", outs)
	}
	hasty := s.leaky(2, 1)
	hasty.MaxWait = time.Second
	outs = s.want(false, s.leaky(1, 1), hasty)
	s.equal(outs[0], bucket.Outcome{Allowed: true, Remaining: 5, ResetAfter: 5 * time.Second})
	s.equal(outs[1], bucket.Outcome{Remaining: 2, RetryAfter: 7 * time.Second, ResetAfter: 8 * time.Second})
	shadow := hasty
	shadow.Shadow = true
	outs = s.want(true, shadow, s.leaky(1, 1))
	s.equal(outs[0], bucket.Outcome{Remaining: 2, RetryAfter: 7 * time.Second, ResetAfter: 8 * time.Second})
	s.equal(outs[1], bucket.Outcome{Allowed: true, Remaining: 4, Wait: 5 * time.Second, ResetAfter: 6 * time.Second})
}

func leakyAndBack(s *suite) {
	s.want(true, s.take(1, 6))
	queue := s.leaky(1, 1)
	queue.Since = start + s.now
	s.equal(s.want(true, queue)[0], bucket.Outcome{Allowed: true, Remaining: 3, Wait: 6 * time.Second,
		ResetAfter: 7 * time.Second})
	s.at(time.Second)
	tokens := s.take(1, 4)
	tokens.Since = start + s.now
	s.equal(s.want(true, tokens)[0], bucket.Outcome{Allowed: true, ResetAfter: 10 * time.Second})
	s.want(false, s.take(1, 1))
}
