package buckettest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Correct changes the debts of buckets, one after the other.
func (w *Twin) Correct(_ context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if len(moved) < len(changes) {
		return errors.New("too few results")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, c := range changes {
		var after counter
		after, moved[i] = w.find(now, bucket.Take{Key: c.Key, Shape: c.Shape, Since: c.Since,
			Before: c.Before}).shift(now, c)
		if moved[i] == 0 {
			continue
		}
		if w.buckets == nil {
			w.buckets = map[key.Key]held{}
		}
		w.buckets[c.Key] = held{counter: after, shape: c.Shape}
	}
	return nil
}

func (c counter) shift(now int64, by bucket.Change) (after counter, moved int64) {
	if by.Shape.Algorithm == rate.SlidingLog {
		c.log, moved = c.log.Shift(now, &by.Shape, by.Units, by.Charged)
	} else {
		c.state, moved = c.state.Shift(now, by.Shape, by.Due(now, c.state.Stamp), by.Charged)
	}
	return c, moved
}

// correct makes one correction of a take's bucket.
func (s *suite) correct(t bucket.Take, units, charged int64) int64 {
	s.Helper()
	moved := make([]int64, 1)
	c := bucket.Change{Key: t.Key, Shape: t.Shape, Since: t.Since, Units: units, Charged: charged}
	if err := s.store.Correct(context.Background(), start+s.now, []bucket.Change{c}, moved); err != nil {
		s.Fatal(err)
	}
	return moved[0]
}

func everyCorrection(s *suite, a rate.Algorithm, n uint64) {
	one := s.counted(a, n, 1)
	look := s.counted(a, n, 0)
	unit := one.Shape.Unit
	left := func(what string, moved, wantMoved, want int64) {
		s.Helper()
		if _, outs := s.peek(look); moved != wantMoved*unit || outs[0].Remaining != want {
			s.Fatalf("algorithm %d, %s: moved %d units, %d tokens are left, want %d tokens moved, %d left", a, what,
				moved, outs[0].Remaining, wantMoved, want)
		}
	}
	s.want(true, s.counted(a, n, 6))
	left("taken", s.correct(one, 3*unit, 0), 3, 1)
	s.want(false, s.counted(a, n, 2))
	left("given back", s.correct(one, -4*unit, 0), -4, 5)
	left("settled", s.correct(one, -2*unit, start+s.now), -2, 7)
	left("filled", s.correct(one, bucket.Fill, 0), -3, 10)
	left("filled when full", s.correct(one, bucket.Fill, 0), 0, 10)
	left("given when full", s.correct(one, -unit, 0), 0, 10)
	s.want(true, s.counted(a, n, 10))
	most := (one.Shape.MaxDebt() - one.Shape.Capacity) / unit
	left("beyond the limit", s.correct(one, one.Shape.UnitsSaturating(1000), 0), most, 0)
	left("above the most", s.correct(one, unit, 0), 0, 0)
	s.now += int64(s.want(false, one)[0].RetryAfter) - 1000
	s.want(false, one)
	s.now += 1000
	s.want(true, one)
	s.correct(one, bucket.Fill, 0)
	s.want(true, s.counted(a, n, 10))
}

// everySettlement: a bucket whose charges turn out to be too large, and are settled at some later
// time, admits nothing that one does not which was charged the right amounts in the first place.
// Both get the same takes; the second follows what the first admits.
func everySettlement(s *suite, a rate.Algorithm, n uint64) {
	type charge struct {
		take     bucket.Take // of the right amount, by the right bucket
		too      int64       // much
		at       int64
		settleAt int64
	}
	rng := rand.New(rand.NewPCG(uint64(a), n))
	right := new(Twin)
	var open []charge
	for range race.Fewer(400) {
		s.now += rng.Int64N(int64(time.Second))
		kept := open[:0]
		for _, c := range open {
			if c.settleAt > s.now {
				kept = append(kept, c)
				continue
			}
			units := c.too * c.take.Shape.Unit
			units = bucket.Unspent(c.take.Shape, c.take.Shape, (c.take.Cost+c.too)*c.take.Shape.Unit, units,
				start+c.at, start+s.now)
			s.correct(c.take, -units, start+c.at)
		}
		open = kept
		c := charge{
			take:     s.counted(a, n, rng.Int64N(5)),
			too:      rng.Int64N(5),
			at:       s.now,
			settleAt: s.now + rng.Int64N(int64(25*time.Second)),
		}
		estimate := c.take
		estimate.Cost += c.too
		if allowed, _ := s.try(estimate); !allowed || estimate.Cost == 0 {
			continue
		}
		open = append(open, c)
		outs := make([]bucket.Outcome, 1)
		if allowed, err := right.TryConsume(context.Background(), start+s.now, []bucket.Take{c.take},
			outs); err != nil || !allowed {
			s.Fatalf("at %v: algorithm %d admitted %d, and would not have, had it been charged rightly: %+v, %v",
				time.Duration(s.now), a, estimate.Cost, outs[0], err)
		}
	}
}

// correctedAlgorithm: the first that a bucket hears of a change may be a correction.
func correctedAlgorithm(s *suite) {
	n := uint64(0)
	for _, from := range s.algorithms {
		for _, to := range s.algorithms {
			n++
			s.at(0)
			s.want(true, s.counted(from, n, 6))
			changed := s.counted(to, n, 0)
			changed.Since = start + s.now
			s.correct(changed, changed.Shape.Unit, 0)
			// A fixed window may have admitted ten more, just before.
			if _, outs := s.peek(changed); outs[0].Remaining > 3 || outs[0].Remaining < 3 && from != rate.FixedWindow {
				s.Fatalf("algorithm %d to %d: %d tokens are left, after 6 and 1 of 10", from, to, outs[0].Remaining)
			}
			s.correct(changed, bucket.Fill, 0)
			changed.Cost = 10
			s.want(true, changed)
		}
	}
}
