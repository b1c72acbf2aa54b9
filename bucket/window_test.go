package bucket_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// step is a take at a time, and what it has to answer.
type step struct {
	at   time.Duration
	cost int64
	want bucket.Outcome
}

func walk(t *testing.T, shape rate.Shape, steps []step) {
	t.Helper()
	var s bucket.State // its windows begin at whole minutes
	for i, step := range steps {
		var got bucket.Outcome
		if s, got = s.Take(int64(step.at), shape, step.cost); got != step.want {
			t.Fatalf("step %d: Take(%v, %d) = %+v, want %+v", i, step.at, step.cost, got, step.want)
		}
	}
}

func TestFixedWindow(t *testing.T) {
	walk(t, compile(t, rate.Limit{Tokens: 10, Per: time.Minute, Burst: 10, Algorithm: rate.FixedWindow}), []step{
		{10 * time.Second, 4, bucket.Outcome{Allowed: true, Remaining: 6, ResetAfter: 50 * time.Second}},
		{59 * time.Second, 7, bucket.Outcome{Remaining: 6, RetryAfter: time.Second, ResetAfter: time.Second}},
		{59 * time.Second, 6, bucket.Outcome{Allowed: true, ResetAfter: time.Second}},
		{time.Minute - 1, 1, bucket.Outcome{RetryAfter: 1, ResetAfter: 1}},
		{time.Minute, 10, bucket.Outcome{Allowed: true, ResetAfter: time.Minute}},
		// the clock was set back
		{30 * time.Second, 1, bucket.Outcome{RetryAfter: 90 * time.Second, ResetAfter: 90 * time.Second,
			Later: 30 * time.Second}},
		{time.Minute, 0, bucket.Outcome{Allowed: true, ResetAfter: time.Minute}},
		{time.Minute, 11, bucket.Outcome{Never: true, ResetAfter: time.Minute}},
		{time.Minute, -1, bucket.Outcome{Never: true, ResetAfter: time.Minute}},
		{time.Hour + time.Second, 0, bucket.Outcome{Allowed: true, Remaining: 10}},
		{time.Hour + time.Second, 1, bucket.Outcome{Allowed: true, Remaining: 9, ResetAfter: 59 * time.Second}},
	})
}

func TestSlidingWindow(t *testing.T) {
	walk(t, compile(t, rate.Limit{Tokens: 10, Per: time.Minute, Burst: 10, Algorithm: rate.SlidingWindow}), []step{
		{0, 10, bucket.Outcome{Allowed: true, ResetAfter: 2 * time.Minute}},
		{59 * time.Second, 1, bucket.Outcome{RetryAfter: 7 * time.Second, ResetAfter: 61 * time.Second}},
		{65 * time.Second, 1, bucket.Outcome{RetryAfter: time.Second, ResetAfter: 55 * time.Second}},
		{66*time.Second - 1, 1, bucket.Outcome{RetryAfter: 1, ResetAfter: 54*time.Second + 1}},
		{66 * time.Second, 1, bucket.Outcome{Allowed: true, ResetAfter: 114 * time.Second}},
		{66 * time.Second, 9, bucket.Outcome{RetryAfter: 54 * time.Second, ResetAfter: 114 * time.Second}},
		{66 * time.Second, 10, bucket.Outcome{RetryAfter: 114 * time.Second, ResetAfter: 114 * time.Second}},
		{90 * time.Second, 4, bucket.Outcome{Allowed: true, ResetAfter: 90 * time.Second}},
		// the clock was set back, within the window
		{time.Minute, 1, bucket.Outcome{RetryAfter: 36 * time.Second, ResetAfter: 2 * time.Minute}},
		{96 * time.Second, 1, bucket.Outcome{Allowed: true, ResetAfter: 84 * time.Second}},
		{2 * time.Minute, 0, bucket.Outcome{Allowed: true, Remaining: 4, ResetAfter: time.Minute}},
		{3 * time.Minute, 10, bucket.Outcome{Allowed: true, ResetAfter: 2 * time.Minute}},
	})
}

// TestSlidingWindowPassesEvenArrivals: two requests below the limit, as many as the ends of an
// interval take, an even stream is not denied.
func TestSlidingWindowPassesEvenArrivals(t *testing.T) {
	shape := compile(t, rate.Limit{Tokens: 600, Per: time.Minute, Burst: 600, Algorithm: rate.SlidingWindow})
	var s bucket.State
	for i := range int64(6000) {
		var o bucket.Outcome
		if s, o = s.Take(i*int64(time.Minute)/598, shape, 1); !o.Allowed {
			t.Fatalf("request %d of an even stream below the limit is denied: %+v", i, o)
		}
	}
}

func TestWindowsOfDifferentKeysEndAtDifferentTimes(t *testing.T) {
	shape := compile(t, rate.Limit{Tokens: 10, Per: time.Minute, Burst: 10, Algorithm: rate.FixedWindow})
	rng := rand.New(rand.NewPCG(1, 2))
	var perSecond [60]int
	for range 6000 {
		_, o := bucket.Full(key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()}, &shape).Take(int64(time.Hour), shape, 1)
		perSecond[min(59, o.ResetAfter/time.Second)]++
	}
	for second, n := range perSecond {
		if n < 50 || n > 160 {
			t.Errorf("%d of 6000 windows end in second %d, want about 100", n, second)
		}
	}
}

func TestWindowRefund(t *testing.T) {
	for _, test := range []struct {
		algorithm    rate.Algorithm
		at           time.Duration // of the refund of 4 charged at 30 s
		before, want int64
	}{
		{rate.FixedWindow, 40 * time.Second, 4, 8},
		{rate.FixedWindow, 70 * time.Second, 10, 10},
		{rate.SlidingWindow, 40 * time.Second, 4, 8},
		{rate.SlidingWindow, 90 * time.Second, 7, 9},
		{rate.SlidingWindow, 130 * time.Second, 10, 10},
	} {
		shape := compile(t, rate.Limit{Tokens: 10, Per: time.Minute, Burst: 10, Algorithm: test.algorithm})
		s, _ := bucket.State{}.Take(int64(30*time.Second), shape, 4)
		s, _ = s.Take(int64(31*time.Second), shape, 2)
		_, before := s.Take(int64(test.at), shape, 0)
		_, after := s.Refund(int64(test.at), shape, 4, int64(30*time.Second)).Take(int64(test.at), shape, 0)
		if before.Remaining != test.before || after.Remaining != test.want {
			t.Errorf("algorithm %d: %d left at %v, %d after the refund, want %d and %d", test.algorithm,
				before.Remaining, test.at, after.Remaining, test.before, test.want)
		}
	}
}

// ledger is what windows are defined by: everything that was ever admitted.
type ledger struct {
	shape   rate.Shape
	entries []entry
}

type entry struct{ at, cost int64 }

// index is the number of the window that holds at.
func (l *ledger) index(at int64) *big.Int {
	return new(big.Int).Div(big.NewInt(at), big.NewInt(l.shape.Tick)) // rounds down, as the divisor is positive
}

// present is the time that a decision at now is made at: the beginning of the latest window that
// something was admitted in, at least.
func (l *ledger) present(now int64) int64 {
	for _, e := range l.entries {
		if start := new(big.Int).Mul(l.index(e.at), big.NewInt(l.shape.Tick)); start.IsInt64() {
			now = max(now, start.Int64())
		}
	}
	return now
}

// used is what counts at now, rounded up.
func (l *ledger) used(now int64) *big.Int {
	now = l.present(now)
	index, previous := l.index(now), new(big.Int).Sub(l.index(now), big.NewInt(1))
	cur, prev := new(big.Int), new(big.Int)
	for _, e := range l.entries {
		switch l.index(e.at).String() {
		case index.String():
			cur.Add(cur, big.NewInt(e.cost))
		case previous.String():
			prev.Add(prev, big.NewInt(e.cost))
		}
	}
	if l.shape.Algorithm == rate.FixedWindow {
		return cur
	}
	end := new(big.Int).Mul(new(big.Int).Add(index, big.NewInt(1)), big.NewInt(l.shape.Tick))
	prev.Mul(prev, end.Sub(end, big.NewInt(now)))
	prev.Add(prev, big.NewInt(l.shape.Tick-1)).Div(prev, big.NewInt(l.shape.Tick))
	return cur.Add(cur, prev)
}

func (l *ledger) admits(now, cost int64) bool {
	sum := new(big.Int).Add(l.used(now), big.NewInt(cost))
	return cost == 0 || cost > 0 && sum.Cmp(big.NewInt(l.shape.Capacity)) <= 0
}

// FuzzWindowAgainstLedger compares a window in two words with everything that was admitted, over
// the whole range of numbers.
func FuzzWindowAgainstLedger(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 1))
	for range 60 {
		f.Add(rng.IntN(2) == 0, rng.Int64()>>rng.IntN(63), rng.Int64()>>rng.IntN(63), rng.Uint64(), uint8(rng.IntN(64)))
	}
	f.Add(true, int64(10), int64(60e9), uint64(1), uint8(3))
	f.Add(false, int64(1<<62), int64(1<<61), uint64(2), uint8(0))
	f.Add(true, int64(1<<31-1), int64(1), uint64(3), uint8(60))
	f.Fuzz(func(t *testing.T, sliding bool, tokens, per int64, seed uint64, shift uint8) {
		limit := rate.Limit{Tokens: tokens, Per: time.Duration(per), Burst: tokens, Algorithm: rate.FixedWindow}
		if sliding {
			limit.Algorithm = rate.SlidingWindow
		}
		shape, err := rate.Compile(limit)
		if err != nil {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 5))
		s, slow := bucket.State{}, &ledger{shape: shape}
		now := int64(0)
		for range 30 {
			now += rng.Int64N(min(shape.Tick, math.MaxInt64/2)*2) - shape.Tick/8*int64(rng.IntN(2))
			if now < 0 || rng.IntN(20) == 0 {
				now = rng.Int64() >> (shift % 64)
			}
			cost := rng.Int64N(shape.Capacity) >> rng.IntN(8)
			after, got := s.Take(now, shape, cost)
			want := slow.admits(now, cost)
			left := max(0, new(big.Int).Sub(big.NewInt(shape.Capacity), slow.used(now)).Int64())
			if want {
				left -= cost
			}
			if got.Allowed != want || got.Remaining != left || got.Never {
				t.Fatalf("%+v: %+v.Take(%d, %d) = %+v, want %t, %d left", limit, s, now, cost, got, want, left)
			}
			if !want && int64(got.RetryAfter) < math.MaxInt64-now {
				if at := now + int64(got.RetryAfter); !slow.admits(at, cost) || slow.admits(at-1, cost) {
					t.Fatalf("%+v: %+v.Take(%d, %d) = %+v, want a time that is exact", limit, s, now, cost, got)
				}
			}
			if want && cost > 0 {
				slow.entries = append(slow.entries, entry{slow.present(now), cost})
			}
			s = after
			if full := s.FullAt(shape); full < math.MaxInt64 && slow.used(full).Sign() != 0 {
				t.Fatalf("%+v: %+v is full at %d, and %v counts", limit, s, full, slow.used(full))
			}
			if reset := int64(got.ResetAfter); reset > 0 && reset < math.MaxInt64-now &&
				(slow.used(now+reset).Sign() != 0 || slow.used(now+reset-1).Sign() == 0) {
				t.Fatalf("%+v: %+v.Take(%d, %d) = %+v, want a reset that is exact", limit, s, now, cost, got)
			}
		}
	})
}

// FuzzWindowNeverPanics has any state, key and time meet any limit that compiles: numbers may be
// absurd, answers may not.
func FuzzWindowNeverPanics(f *testing.F) {
	f.Add(int64(5), int64(1e9), int64(1), uint64(7), int64(1<<62), int64(math.MinInt64), int64(math.MaxInt64), int64(3))
	f.Add(int64(1<<31-1), int64(1<<61), int64(2), uint64(math.MaxUint64), int64(math.MaxInt64), int64(math.MaxInt64),
		int64(math.MinInt64), int64(1))
	f.Fuzz(func(t *testing.T, tokens, per, algorithm int64, lo uint64, debt, stamp, now, cost int64) {
		limit := rate.Limit{
			Tokens:    tokens,
			Per:       time.Duration(per),
			Burst:     tokens,
			Algorithm: rate.FixedWindow + rate.Algorithm(algorithm&1),
		}
		shape, err := rate.Compile(limit)
		if err != nil {
			return
		}
		other := compile(t, rate.Limit{Tokens: 3, Per: time.Second, Burst: 5})
		debt &= math.MaxInt64
		if shape.Algorithm == rate.FixedWindow {
			debt %= shape.Capacity + 1
		} else {
			debt = (debt>>32%(shape.Capacity+1))<<32 | debt&math.MaxUint32%(shape.Capacity+1)
		}
		k := key.Key{Lo: lo}
		for _, s := range []bucket.State{{Debt: debt, Stamp: stamp}, bucket.Full(k, &shape),
			bucket.Spent(k, &shape, stamp)} {
			after, o := s.Take(now, shape, cost)
			if o.Remaining < 0 || o.RetryAfter < 0 || o.ResetAfter < 0 || after.Debt < 0 ||
				after.Stamp < s.Stamp && o.Allowed {
				t.Fatalf("%+v.Take(%d, %+v, %d) = %+v, %+v", s, now, shape, cost, after, o)
			}
			after.Refund(now, shape, max(0, min(cost, shape.Capacity)), stamp)
			if s.ForgottenAt(&shape) < s.FullAt(shape) {
				t.Fatalf("%+v is forgotten before it is full", s)
			}
			drained := s.Convert(shape, other, stamp)
			if drained.Debt < 0 || drained.Debt > other.Capacity {
				t.Fatalf("%+v.Convert(%+v) = %+v", s, shape, drained)
			}
			back := drained.Convert(other, shape, now).Align(k, &shape)
			if _, o := back.Take(now, shape, 0); o.Remaining < 0 || o.Remaining > shape.Capacity {
				t.Fatalf("%+v, converted back, = %+v has %d left", s, back, o.Remaining)
			}
		}
	})
}

// TestLaterSaysWhatAWindowGivesBack: a take whose clock was read before the window began counts in that
// one, and is given back by the time that its outcome says.
func TestLaterSaysWhatAWindowGivesBack(t *testing.T) {
	for _, a := range []rate.Algorithm{rate.FixedWindow, rate.SlidingWindow} {
		shape := compile(t, rate.Limit{Tokens: 10, Per: time.Minute, Burst: 10, Algorithm: a})
		const begins = int64(time.Minute)
		var s bucket.State
		charged := map[int64]int64{}
		for _, at := range []int64{begins, begins - 1, begins - 2} { // the first has overtaken the others
			var o bucket.Outcome
			if s, o = s.Take(at, shape, 1); !o.Allowed {
				t.Fatal("a take was denied")
			}
			charged[at+int64(o.Later)]++
		}
		if charged[begins] != 3 {
			t.Fatalf("%v: charged at %v, want 3 at %d", a, charged, begins)
		}
		if _, o := s.Refund(begins, shape, 3, begins).Take(begins, shape, 10); !o.Allowed {
			t.Errorf("%v: ten are denied after all were given back", a)
		}
	}
}
