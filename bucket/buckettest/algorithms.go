package buckettest

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
)

// algorithms are all that there are.
var algorithms = []rate.Algorithm{rate.TokenBucket, rate.LeakyBucket, rate.FixedWindow, rate.SlidingWindow,
	rate.SlidingLog}

// counted is a take of bucket n, of ten tokens in ten seconds.
func (s *suite) counted(a rate.Algorithm, n uint64, cost int64) bucket.Take {
	return bucket.Take{Key: Key(n), Shape: s.algorithm(a, 10, 10*time.Second), Cost: cost}
}

func (s *suite) algorithm(a rate.Algorithm, tokens int64, per time.Duration) rate.Shape {
	s.Helper()
	shape, err := rate.Compile(rate.Limit{Tokens: tokens, Per: per, Burst: tokens, Algorithm: a})
	if err != nil {
		s.Fatal(err)
	}
	return shape
}

// each runs a case for every algorithm, with buckets of its own.
func each(check func(s *suite, a rate.Algorithm, n uint64)) func(*suite) {
	return func(s *suite) {
		for i, a := range s.algorithms {
			for n := range uint64(20) { // windows of different keys begin at different times
				s.at(0)
				check(s, a, 1000*uint64(i)+n)
			}
		}
	}
}

func everyLimit(s *suite, a rate.Algorithm, n uint64) {
	for range 10 {
		s.want(true, s.counted(a, n, 1))
	}
	out := s.want(false, s.counted(a, n, 1))[0]
	if out.Remaining != 0 || out.RetryAfter <= 0 || out.ResetAfter < out.RetryAfter || out.Never {
		s.Fatalf("algorithm %d: outcome is %+v", a, out)
	}
	if s.want(true, s.counted(a, n, 0)); !s.want(false, s.counted(a, n, 11))[0].Never {
		s.Fatalf("algorithm %d: a cost above the limit may be had some day", a)
	}
	s.want(false, s.counted(a, n, math.MaxInt64))
	s.want(false, s.counted(a, n, math.MinInt64))
	s.now += int64(out.ResetAfter)
	if out := s.want(true, s.counted(a, n, 10))[0]; out.Remaining != 0 {
		s.Fatalf("algorithm %d: outcome is %+v", a, out)
	}
}

func everyRetry(s *suite, a rate.Algorithm, n uint64) {
	rng := rand.New(rand.NewPCG(uint64(a), n))
	for range 40 {
		take := s.counted(a, n, 1+rng.Int64N(10))
		allowed, outs := s.try(take)
		if allowed {
			s.now += rng.Int64N(int64(3 * time.Second))
			continue
		}
		s.now += int64(outs[0].RetryAfter) - 1000
		s.want(false, take)
		s.now += 1000
		s.want(true, take)
	}
}

// everyEnvelope is the check of the documented bounds in any interval of a random, greedy schedule.
// For all it is Lindley's recursion, with the larger constant where a window allows it; for windows
// also any stretch of time of their length.
func everyEnvelope(s *suite, a rate.Algorithm, n uint64) {
	rng := rand.New(rand.NewPCG(n, 2))
	shape := s.algorithm(a, 30, 3*time.Second)
	const token = int64(time.Second) // in Lindley's queue; ten a second drain, ten each nanosecond
	bound := WorstCase(a) * shape.Burst()
	queue, last := int64(0), s.now
	var admitted []bucket.Take // with Since for the time
	for range race.Fewer(600) {
		s.now += rng.Int64N(1+rng.Int64N(400)) * 1_000_000
		take := bucket.Take{Key: Key(n), Shape: shape, Cost: 1 + rng.Int64N(9)}
		allowed, _ := s.try(take)
		for ; allowed; allowed, _ = s.try(take) {
			queue, last = max(0, queue-(s.now-last)*10)+take.Cost*token, s.now
			take.Since = s.now
			admitted = append(admitted, take)
			take.Since = 0
		}
		if queue > bound*token {
			s.Fatalf("at %v: algorithm %d admitted %d billionths above the rate, want at most %d", time.Duration(s.now),
				a, queue, bound*token)
		}
	}
	if shape.Window() == 0 {
		return
	}
	within, from := int64(0), 0
	for _, t := range admitted {
		for within += t.Cost; admitted[from].Since <= t.Since-shape.Tick; from++ {
			within -= admitted[from].Cost
		}
		if within > bound {
			s.Fatalf("algorithm %d admitted %d within a window's length, want at most %d", a, within, bound)
		}
	}
}

// WorstCase is how many times its limit an algorithm admits in some stretch of time as long as its
// window, at most; of those that have none, how many bursts above the rate.
func WorstCase(a rate.Algorithm) int64 {
	if a == rate.FixedWindow || a == rate.SlidingWindow {
		return 2
	}
	return 1
}

func everyDenied(s *suite, a rate.Algorithm, n uint64) {
	s.want(true, s.counted(a, n, 10))
	want := s.now + int64(s.want(false, s.counted(a, n, 3))[0].RetryAfter)
	for s.now+int64(time.Millisecond) < want {
		s.now += int64(time.Millisecond)
		if got := s.now + int64(s.want(false, s.counted(a, n, 3))[0].RetryAfter); got != want {
			s.Fatalf("algorithm %d: retry at %v, and before at %v", a, time.Duration(got), time.Duration(want))
		}
		s.now += int64(50 * time.Millisecond)
	}
}

func everyClockBack(s *suite, a rate.Algorithm, n uint64) {
	s.at(time.Hour)
	s.want(true, s.counted(a, n, 10))
	retry := s.now + int64(s.want(false, s.counted(a, n, 1))[0].RetryAfter)
	for _, at := range []time.Duration{time.Hour - time.Second, 0, time.Minute, time.Hour} {
		s.at(at)
		if got := s.now + int64(s.want(false, s.counted(a, n, 1))[0].RetryAfter); got != retry {
			s.Fatalf("at %v: algorithm %d: retry at %v, want %v", at, a, time.Duration(got), time.Duration(retry))
		}
	}
	s.now = retry
	s.want(true, s.counted(a, n, 1))
}

func everyAllOrNothing(s *suite, a rate.Algorithm, n uint64) {
	counted := s.counted(a, n, 4)
	other := s.take(n+500, 1)
	s.want(true, counted, other)
	s.want(true, counted, other)
	s.want(false, counted, other)
	counted.Shadow = true
	if outs := s.want(true, counted, other); outs[0].Allowed || outs[0].Remaining != 2 {
		s.Fatalf("algorithm %d: the shadow's outcome is %+v", a, outs[0])
	}
	small := s.counted(a, n, 1)
	small.Shadow = true
	if outs := s.want(true, small, other, small); !outs[0].Allowed || outs[0].Remaining != 0 {
		s.Fatalf("algorithm %d: the shadows' outcome is %+v", a, outs[0])
	}
	s.left(n+500, 6)
	double := s.counted(a, n+600, 6)
	s.want(false, double, double)
	s.want(true, double)
}

// changedAlgorithm: what is owed under one algorithm is owed under the next, and no more.
func changedAlgorithm(s *suite) {
	n := uint64(0)
	for _, from := range s.algorithms {
		for _, to := range s.algorithms {
			for range 10 {
				n++
				s.at(0)
				s.want(true, s.counted(from, n, 6))
				changed := s.counted(to, n, 1)
				changed.Since = start + s.now
				if from == rate.FixedWindow && to != from { // it may have admitted ten more, just before
					allowed, outs := s.try(changed)
					if outs[0].Remaining > 3 {
						s.Fatalf("algorithm %d to %d: %+v, want at most 3 left", from, to, outs)
					}
					if s.now += int64(outs[0].RetryAfter); !allowed {
						s.want(true, changed)
					}
					continue
				}
				if out := s.want(true, changed)[0]; out.Remaining != 3 {
					s.Fatalf("algorithm %d to %d: %+v, want 3 left", from, to, out)
				}
				changed.Cost = 4
				out := s.want(false, changed)[0]
				s.now += int64(out.RetryAfter) - 1000
				s.want(false, changed)
				s.now += 1000
				s.want(true, changed)
			}
		}
	}
}

// changedAlgorithmEnvelope: over any interval across a change at most the larger of both surpluses
// is admitted on top of the rates.
func changedAlgorithmEnvelope(s *suite) {
	rng := rand.New(rand.NewPCG(6, 7))
	n := uint64(0)
	for _, from := range s.algorithms {
		for _, to := range s.algorithms {
			for range race.Fewer(8) {
				n++
				shapes := [2]rate.Shape{s.algorithm(from, 1+rng.Int64N(20), 2*time.Second),
					s.algorithm(to, 1+rng.Int64N(20), 2*time.Second)}
				bound := max(WorstCase(from)*shapes[0].Burst(), WorstCase(to)*shapes[1].Burst()) * 2000
				// queue in tokens times 2000, time in milliseconds
				change, queue, last := 1+rng.Int64N(4000), int64(0), int64(0)
				for now := int64(0); now <= 8000; now += 1 + rng.Int64N(100) {
					s.now = now * 1_000_000
					take := bucket.Take{Key: Key(n), Shape: shapes[0], Cost: 1}
					old := min(now, change) - min(last, change)
					if now >= change {
						take.Shape, take.Since = shapes[1], start+change*1_000_000
					}
					queue = max(0, queue-old*shapes[0].Burst()-(now-last-old)*shapes[1].Burst())
					last = now
					for ok, _ := s.try(take); ok; ok, _ = s.try(take) {
						queue += 2000
					}
					if queue > bound {
						s.Fatalf("%+v, changed after %d ms: at %d ms %d above the rates, want at most %d", shapes,
							change, now, queue, bound)
					}
				}
			}
		}
	}
}

// changedManyTimesEnvelope: over any interval across any changes at most the first surplus and each
// rise of it is admitted on top of the rates, also when nobody takes for some limits.
func changedManyTimesEnvelope(s *suite) {
	rng := rand.New(rand.NewPCG(8, 9))
	for n := range race.Fewer(uint64(300)) {
		var queue, surplus, last int64 // queue in tokens times 2000, time in milliseconds
		take := bucket.Take{Key: Key(n), Cost: 1}
		a := rate.TokenBucket
		for change := int64(0); change < 20_000; {
			old := take.Shape
			if rng.IntN(3) > 0 || change == 0 {
				a = s.algorithms[rng.IntN(len(s.algorithms))]
			}
			take.Shape = s.algorithm(a, 1+rng.Int64N(20), 2*time.Second)
			most := WorstCase(a) * take.Shape.Burst()
			if change > 0 {
				take.Before = old.Replaced(take.Since, take.Before, start+change*1_000_000)
				take.Since = start + change*1_000_000
				most -= WorstCase(old.Algorithm) * old.Burst()
			}
			surplus += 2000 * max(0, most)
			until := change + 1 + rng.Int64N(1+rng.Int64N(4000))
			idle := rng.IntN(3) == 0
			for now := change; now < until && !idle; now += 1 + rng.Int64N(100) {
				queue = max(0, queue-(now-last)*take.Shape.Burst())
				s.now, last = now*1_000_000, now
				for ok, _ := s.try(take); ok; ok, _ = s.try(take) {
					queue += 2000
				}
				if queue > surplus {
					s.Fatalf("key %d, %+v: at %d ms %d above the rates, want at most %d", n, take, now, queue, surplus)
				}
			}
			queue, last, change = max(0, queue-(until-last)*take.Shape.Burst()), until, until
			if queue == 0 {
				surplus = 2000 * WorstCase(a) * take.Shape.Burst() // an interval that begins here
			}
		}
	}
}

func concurrentEvery(s *suite) {
	for i, a := range s.algorithms {
		take := bucket.Take{Key: Key(uint64(i)), Shape: s.algorithm(a, 1000, time.Hour), Cost: 1}
		if got := admitted(s, 8, 400, func(int, *rand.Rand) []bucket.Take { return []bucket.Take{take} }); got != 1000 {
			s.Fatalf("algorithm %d: 8 callers were admitted %d times, want 1000", a, got)
		}
	}
}
