package bucket_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

func TestShift(t *testing.T) {
	sh := rate.Shape{Drain: 1, Unit: 10, Capacity: 100, Tick: 1}
	coarse := rate.Shape{Drain: 4, Unit: 10, Capacity: 100, Tick: 1000}
	for _, test := range []struct {
		name  string
		state bucket.State
		shape rate.Shape
		now   int64
		units int64
		want  bucket.State
		moved int64
	}{
		{"debt is added", bucket.State{Debt: 30}, sh, 0, 20, bucket.State{Debt: 50}, 20},
		{"after what has drained", bucket.State{Debt: 30}, sh, 10, 20, bucket.State{Debt: 40, Stamp: 10}, 20},
		{"beyond the burst", bucket.State{Debt: 90}, sh, 0, 50, bucket.State{Debt: 140}, 50},
		{"to the bound and no further", bucket.State{Debt: 90}, sh, 0, 500, bucket.State{Debt: 200}, 110},
		{"nothing above the bound", bucket.State{Debt: 300}, sh, 0, 5, bucket.State{Debt: 300}, 0},
		{"debt is taken off", bucket.State{Debt: 30}, sh, 0, -20, bucket.State{Debt: 10}, -20},
		{"until the bucket is full", bucket.State{Debt: 30}, sh, 10, -25, bucket.State{Stamp: 10}, -20},
		{"a fill", bucket.State{Debt: 30}, sh, 10, bucket.Fill, bucket.State{Stamp: 10}, -20},
		{"a fill of a full bucket", bucket.State{Debt: 30}, sh, 100, bucket.Fill, bucket.State{Stamp: 100}, 0},
		{"nothing", bucket.State{Debt: 30}, sh, 10, 0, bucket.State{Debt: 30}, 0},
		{"a clock set back drains nothing", bucket.State{Debt: 30, Stamp: 50}, sh, 10, -20,
			bucket.State{Debt: 10, Stamp: 50}, -20},
		{"a tick that has begun drains once", bucket.State{Debt: 30}, coarse, 1500, -20,
			bucket.State{Debt: 6, Stamp: 1000}, -20},
		{"a tick that has begun, to full", bucket.State{Debt: 30}, coarse, 1500, -24, bucket.State{Stamp: 1500}, -24},
		{"the largest debt", bucket.State{}, rate.Shape{Drain: 1, Unit: 1, Capacity: rate.MaxCapacity, Tick: 1}, 0,
			math.MaxInt64, bucket.State{Debt: rate.MaxCapacity}, rate.MaxCapacity},
	} {
		if got, moved := test.state.Shift(test.now, test.shape, test.units, 0); got != test.want ||
			moved != test.moved {
			t.Errorf("%s: %+v.Shift(%d, %d) = %+v, %d, want %+v, %d", test.name, test.state, test.now, test.units, got,
				moved, test.want, test.moved)
		}
	}
}

// Debt beyond the burst is paid by whoever comes later, and the wait that is told is exact.
func TestCarriedDebtIsPaidLater(t *testing.T) {
	shape := compile(t, rate.Limit{Tokens: 10, Per: s, Burst: 20})
	state, _ := bucket.State{}.Take(0, shape, 20)
	state, _ = state.Shift(0, shape, shape.UnitsSaturating(15), 0)
	for _, step := range []struct {
		at   time.Duration
		cost int64
		want bucket.Outcome
	}{
		{0, 1, bucket.Outcome{RetryAfter: 1600 * ms, ResetAfter: 3500 * ms}},
		{1600*ms - 1, 1, bucket.Outcome{RetryAfter: 1, ResetAfter: 1900*ms + 1}},
		{1600 * ms, 1, bucket.Outcome{Allowed: true, ResetAfter: 2 * s}},
		{3600 * ms, 0, bucket.Outcome{Allowed: true, Remaining: 20}},
	} {
		var got bucket.Outcome
		if state, got = state.Take(int64(step.at), shape, step.cost); got != step.want {
			t.Fatalf("Take(%v, %d) = %+v, want %+v", step.at, step.cost, got, step.want)
		}
	}
}

func TestUnspent(t *testing.T) {
	sh := rate.Shape{Drain: 2, Unit: 10, Capacity: 100, Tick: 1}
	larger := rate.Shape{Drain: 2, Unit: 10, Capacity: 150, Tick: 1}
	finer := rate.Shape{Drain: 40, Unit: 100, Capacity: 1500, Tick: 1} // twice the rate in tokens
	coarse := rate.Shape{Drain: 2, Unit: 10, Capacity: 100, Tick: 1000}
	for _, test := range []struct {
		name                string
		from, to            rate.Shape
		units, charged, now int64
		want                int64
	}{
		{"at once, all", sh, sh, 50, 7, 7, 50},
		{"what has drained is gone", sh, sh, 50, 0, 10, 30},
		{"all has drained", sh, sh, 50, 0, 26, 0},
		{"a clock set back", sh, sh, 50, 7, 3, 50},
		{"nothing", sh, sh, 0, 7, 7, 0},
		{"less", sh, sh, -5, 7, 7, 0},
		{"a tick that has begun counts as a unit", coarse, coarse, 50, 0, 1500, 46},
		{"a larger burst", sh, larger, 50, 0, 10, 30},
		{"a smaller burst may have forgiven the difference", larger, sh, 80, 0, 10, 9},
		{"a smaller burst may have forgiven it all", larger, sh, 50, 0, 10, 0},
		{"the faster of both rates", sh, finer, 50, 0, 10, 100},
		{"an elapsed age", sh, sh, math.MaxInt64, math.MinInt64, math.MaxInt64, math.MaxInt64 - rate.MaxCapacity},
		{"the zero shape", rate.Shape{}, sh, 50, 0, 0, 0},
	} {
		if got := bucket.Unspent(test.from, test.to, test.units, test.units, test.charged, test.now); got != test.want {
			t.Errorf("%s: Unspent(%d) = %d, want %d", test.name, test.units, got, test.want)
		}
	}
	for _, test := range []struct {
		name      string
		to        rate.Shape
		back, now int64
		want      int64
	}{
		{"a part, at once", sh, 20, 0, 20},
		{"a part, while as much of the charge is left", sh, 20, 15, 20},
		{"a part, when less is left", sh, 20, 18, 14},
		{"a part, when nothing is left", sh, 20, 25, 0},
		{"more than was charged", sh, 70, 0, 50},
		{"a part, under a larger burst", larger, 20, 15, 20},
	} {
		if got := bucket.Unspent(sh, test.to, 50, test.back, 0, test.now); got != test.want {
			t.Errorf("%s: Unspent(50, %d) at %d = %d, want %d", test.name, test.back, test.now, got, test.want)
		}
	}
}

// TestUnspentNeverGrants charges one of two buckets too much and the other what is right, takes
// from both, changes their limit once or never, and refunds the first: it owes at least as much as
// the other.
func TestUnspentNeverGrants(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 3))
	limit := func() rate.Limit {
		return rate.Limit{Tokens: 1 + rng.Int64N(9), Per: time.Duration(7 + rng.Int64N(90)), Burst: 1 + rng.Int64N(20)}
	}
	refunded := 0
	for round := range 20_000 {
		from, to := compile(t, limit()), compile(t, limit())
		change, now := rng.Int64N(300), rng.Int64N(100)
		if round%2 == 0 {
			to, change = from, math.MaxInt64
		}
		var with, without bucket.State
		shape := from
		at := func() {
			now += rng.Int64N(60)
			if now >= change {
				with, without = with.Convert(from, to, change), without.Convert(from, to, change)
				shape, change = to, math.MaxInt64
			}
		}
		both := func() {
			for range rng.IntN(6) {
				at()
				units := shape.Unit * (1 + rng.Int64N(4))
				if after, ok := with.Charge(now, shape, units); ok {
					with = after
					without, _ = without.Charge(now, shape, units)
				}
			}
		}
		both()
		charged, chargedUnder, units := now, shape, shape.Unit*(1+rng.Int64N(shape.Burst()))
		after, ok := with.Charge(now, shape, units)
		if !ok {
			continue
		}
		with = after
		right := rng.Int64N(units + 1)
		if rng.IntN(2) == 0 {
			right = 0
		}
		without, _ = without.Charge(now, shape, right)
		both()
		at()
		back := bucket.Unspent(chargedUnder, shape, units, units-right, charged, now)
		with, _ = with.Shift(now, shape, -back, 0)
		if back > 0 {
			refunded++
		}
		if with.FullAt(shape) < without.FullAt(shape) && without.FullAt(shape) > now {
			t.Fatalf("round %d: %+v to %+v: refund of %d leaves %+v, rightly charged is %+v at %d", round, chargedUnder,
				shape, back, with, without, now)
		}
	}
	if refunded < 1000 {
		t.Errorf("%d refunds: this shows nothing", refunded)
	}
}

func TestChangesAllocateNothing(t *testing.T) {
	shape := compile(t, rate.Limit{Tokens: 10, Per: s, Burst: 20})
	var state bucket.State
	if n := testing.AllocsPerRun(100, func() {
		state, _ = state.Shift(0, shape, bucket.Unspent(shape, shape.Grow(3), 100, 50, 0, 5), 0)
		state, _ = state.Shift(0, shape, bucket.Fill, 0)
	}); n != 0 {
		t.Errorf("Shift and Unspent allocate %v times, want 0", n)
	}
}

// Windows and logs: what is added stops at the limit, what is given back leaves where it counted, or the latest first.
func TestShiftInWindows(t *testing.T) {
	fixed := rate.Shape{Drain: 10, Unit: 1, Capacity: 10, Tick: 100, Algorithm: rate.FixedWindow}
	sliding := fixed
	sliding.Algorithm = rate.SlidingWindow
	two := func(prev, cur int64) int64 { return prev<<32 | cur }
	for _, test := range []struct {
		name           string
		shape          rate.Shape
		debt           int64 // of a window that begins at 1000
		now            int64
		units, charged int64
		want           bucket.State
		moved          int64
	}{
		{"added", fixed, 3, 1050, 4, 0, bucket.State{Debt: 7, Stamp: 1000}, 4},
		{"up to the limit", fixed, 3, 1050, math.MaxInt64, 0, bucket.State{Debt: 10, Stamp: 1000}, 7},
		{"none at the limit", fixed, 10, 1050, 5, 0, bucket.State{Debt: 10, Stamp: 1000}, 0},
		{"none above a limit", fixed, 14, 1050, 5, 0, bucket.State{Debt: 14, Stamp: 1000}, 0},
		{"to the next window", fixed, 10, 1110, 5, 0, bucket.State{Debt: 5, Stamp: 1100}, 5},
		{"off", fixed, 8, 1050, -5, 0, bucket.State{Debt: 3, Stamp: 1000}, -5},
		{"off until it is full", fixed, 8, 1050, -9, 0, bucket.State{Stamp: 1000}, -8},
		{"filled", fixed, 8, 1050, bucket.Fill, 0, bucket.State{Stamp: 1000}, -8},
		{"filled when full", fixed, 8, 1150, bucket.Fill, 0, bucket.State{Debt: 8, Stamp: 1000}, 0},
		{"of this window", fixed, 8, 1050, -5, 1000, bucket.State{Debt: 3, Stamp: 1000}, -5},
		{"of the last window", fixed, 8, 1050, -5, 999, bucket.State{Debt: 8, Stamp: 1000}, 0},
		{"a clock set back", fixed, 8, 950, -5, 1020, bucket.State{Debt: 3, Stamp: 1000}, -5},
		{"what still fits beside the last window", sliding, two(10, 2), 1050, 9, 0,
			bucket.State{Debt: two(10, 5), Stamp: 1000}, 3},
		{"the latest first", sliding, two(9, 2), 1050, -5, 0, bucket.State{Debt: two(6, 0), Stamp: 1000}, -5},
		{"both", sliding, two(9, 2), 1050, bucket.Fill, 0, bucket.State{Stamp: 1000}, -11},
		{"of the sliding window", sliding, two(9, 4), 1050, -3, 1010, bucket.State{Debt: two(9, 1), Stamp: 1000}, -3},
		{"of the one before", sliding, two(9, 4), 1050, -3, 950, bucket.State{Debt: two(6, 4), Stamp: 1000}, -3},
		{"of one that counts no longer", sliding, two(9, 4), 1050, -3, 899,
			bucket.State{Debt: two(9, 4), Stamp: 1000}, 0},
	} {
		state := bucket.State{Debt: test.debt, Stamp: 1000}
		if got, moved := state.Shift(test.now, test.shape, test.units, test.charged); got != test.want ||
			moved != test.moved {
			t.Errorf("%s: Shift(%d) = %+v, %d, want %+v, %d", test.name, test.units, got, moved, test.want, test.moved)
		}
	}
}

func TestShiftInALog(t *testing.T) {
	shape := rate.Shape{Drain: 10, Unit: 1, Capacity: 10, Tick: 250, Algorithm: rate.SlidingLog} // cells of 10
	log := bucket.Log{Stamp: 1000}
	log.Counts[0], log.Counts[2] = 2, 5 // at 1000 and at 980
	for _, test := range []struct {
		name                string
		now, units, charged int64
		counts              [3]uint32 // at 1000, 990 and 980
		moved               int64
	}{
		{"added", 1005, 2, 0, [3]uint32{4, 0, 5}, 2},
		{"up to the limit", 1005, math.MaxInt64, 0, [3]uint32{5, 0, 5}, 3},
		{"the latest first", 1005, -4, 0, [3]uint32{0, 0, 3}, -4},
		{"filled", 1005, bucket.Fill, 0, [3]uint32{}, -7},
		{"of its cell", 1005, -3, 985, [3]uint32{2, 0, 2}, -3},
		{"no more than its cell counts", 1005, -6, 985, [3]uint32{2, 0, 0}, -5},
		{"of a cell that counts nothing", 1005, -6, 995, [3]uint32{2, 0, 5}, 0},
		{"of one that counts no longer", 1005, -6, 700, [3]uint32{2, 0, 5}, 0},
	} {
		got, moved := log.Shift(test.now, &shape, test.units, test.charged)
		if counts := [3]uint32(got.Counts[:3]); counts != test.counts || moved != test.moved {
			t.Errorf("%s: Shift(%d) counts %d and moved %d, want %d and %d", test.name, test.units, counts, moved,
				test.counts, test.moved)
		}
	}
}
