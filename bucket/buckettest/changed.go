package buckettest

import (
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
)

func changedLimit(s *suite) {
	s.want(true, s.take(1, 8))
	wider := bucket.Take{Key: Key(1), Shape: s.shape(2, time.Second, 100), Since: start + s.now, Cost: 92}
	s.want(true, wider)
	wider.Cost = 1
	s.equal(s.want(false, wider)[0], bucket.Outcome{RetryAfter: 500 * time.Millisecond, ResetAfter: 50 * time.Second})
	s.at(time.Second)
	narrower := bucket.Take{Key: Key(1), Shape: s.shape(1, time.Second, 3), Since: start + s.now, Cost: 1}
	s.equal(s.want(false, narrower)[0], bucket.Outcome{RetryAfter: time.Second, ResetAfter: 3 * time.Second})
	s.at(2 * time.Second)
	s.want(true, narrower)
}

func changedSince(s *suite) {
	s.want(true, s.take(1, 10))
	s.at(10 * time.Second)
	// 4 s at one a second leave 6 owed, then 6 s at a tenth a second leave 5.4.
	slower := bucket.Take{
		Key:   Key(1),
		Shape: s.shape(1, 10*time.Second, 10),
		Since: start + int64(4*time.Second),
		Cost:  5,
	}
	s.equal(s.want(false, slower)[0], bucket.Outcome{Remaining: 4, RetryAfter: 4 * time.Second,
		ResetAfter: 54 * time.Second})
	slower.Cost = 4
	s.equal(s.want(true, slower)[0], bucket.Outcome{Allowed: true, ResetAfter: 94 * time.Second})
}

func changedEnvelope(s *suite) {
	rng := rand.New(rand.NewPCG(6, 6))
	for n := range race.Fewer(uint64(300)) {
		limits := [2]rate.Limit{
			{Tokens: 1 + rng.Int64N(9), Per: time.Second, Burst: 1 + rng.Int64N(9)},
			{Tokens: 1 + rng.Int64N(9), Per: time.Second, Burst: 1 + rng.Int64N(9)},
		}
		change, end, admitted := 1+rng.Int64N(3000), int64(6000), int64(0) // milliseconds
		for now := int64(0); now <= end; now += 1 + rng.Int64N(100) {
			s.now = now * 1_000_000
			take := bucket.Take{Key: Key(n), Cost: 1}
			limit := limits[0]
			if now >= change {
				limit, take.Since = limits[1], start+change*1_000_000
			}
			take.Shape = s.shape(limit.Tokens, limit.Per, limit.Burst)
			if allowed, _ := s.try(take); allowed {
				admitted++
			}
		}
		bound := max(limits[0].Burst, limits[1].Burst)*1000 + limits[0].Tokens*change + limits[1].Tokens*(end-change)
		if admitted*1000 > bound {
			s.Fatalf("%+v, changed after %d ms: %d admitted in %d ms, want at most %d thousandths", limits, change,
				admitted, end, bound)
		}
	}
}

// after is a limit that took effect some time after the start, in place of another.
func (s *suite) after(t bucket.Take, d time.Duration, to rate.Shape) bucket.Take {
	t.Before = &rate.Past{Shape: t.Shape, Since: t.Since, Before: t.Before}
	t.Shape, t.Since = to, start+int64(d)
	return t
}

func changedForNewcomers(s *suite) {
	for n, after := range []time.Duration{0, time.Second, time.Hour} {
		t := s.take(uint64(n), 5)
		t.Shape = s.shape(100, time.Second, 200)
		daily := s.after(t, time.Minute, s.shape(5, 24*time.Hour, 5))
		s.at(time.Minute + after)
		s.want(true, daily)
		daily.Cost = 1
		s.want(false, daily)
	}
}

func changedTwice(s *suite) {
	s.want(true, s.take(1, 10))
	s.at(10 * time.Second)
	// 2 s at one a second leave 8 owed, 7 s at one an hour next to nothing less, and 1 s at five a second leaves 3.
	slow := s.after(s.take(1, 8), 2*time.Second, s.shape(1, time.Hour, 10))
	fast := s.after(slow, 9*time.Second, s.shape(5, time.Second, 10))
	s.want(false, fast)
	if _, outs := s.peek(fast); outs[0].Remaining != 7 {
		s.Fatalf("%d tokens are left, want 7: what would drain at the first rate until the last change was granted",
			outs[0].Remaining)
	}
	fast.Cost = 7
	s.want(true, fast)
}

func changedBack(s *suite) {
	s.want(true, s.take(1, 10))
	s.at(10 * time.Second)
	slow := s.after(s.take(1, 4), 2*time.Second, s.shape(1, time.Hour, 10))
	back := s.after(slow, 9*time.Second, s.take(1, 0).Shape)
	s.want(false, back)
	back.Cost = 3
	s.want(true, back)
	s.at(11 * time.Second)
	back.Cost = 2
	s.want(false, back)
	back.Cost = 1
	s.want(true, back)
}

func changedUnknown(s *suite) {
	s.want(true, s.take(1, 10))
	s.at(10 * time.Second)
	wider := s.take(1, 6)
	wider.Before = &rate.Past{Since: start + int64(2*time.Second)}
	wider.Shape, wider.Since = s.shape(2, time.Second, 10), start+int64(9*time.Second)
	s.want(false, wider) // 8 owed until 9 s, and 6 at 10 s
	wider.Cost = 4
	s.want(true, wider)
}

// changedOften has a limit change up to six times, up and down, and is idle under some of them.
func changedOften(s *suite) {
	rng := rand.New(rand.NewPCG(6, 7))
	for n := range race.Fewer(uint64(400)) {
		limit := func() rate.Limit {
			return rate.Limit{
				Tokens:    1 + rng.Int64N(9)*rng.Int64N(9),
				Per:       time.Second,
				Burst:     1 + rng.Int64N(20),
				Algorithm: rate.Algorithm(rng.IntN(2)),
			}
		}
		held := limit()
		take := bucket.Take{Key: Key(n), Shape: s.compile(held), Cost: 1}
		now, admitted, bound := int64(0), int64(0), held.Burst*1000 // milliseconds; thousandths of a token in bound
		for reign := range 1 + rng.IntN(7) {
			if reign > 0 {
				next := limit()
				for next == held {
					next = limit()
				}
				bound += 1000 * max(0, next.Burst-held.Burst)
				held, take = next, s.after(take, time.Duration(now)*time.Millisecond, s.compile(next))
			}
			end, idle := now+1+rng.Int64N(3000), rng.IntN(2) == 0
			bound += held.Tokens * (end - now)
			for ; now < end; now += 1 + rng.Int64N(100) {
				s.now = now * 1_000_000
				if idle && now > 0 {
					continue
				}
				for allowed := true; allowed; admitted += btoi(allowed) {
					allowed, _ = s.try(take)
				}
			}
			now = end
		}
		if admitted*1000 > bound {
			s.Fatalf("bucket %d: %d admitted, want at most %d thousandths: %+v", n, admitted, bound, take)
		}
	}
}
