package rate_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rate"
)

const second = int64(time.Second)

func TestLoweredIsASlowerClock(t *testing.T) {
	var l *rate.Lowered
	if got := l.Elapsed(3, 10); got != 7 || l.Part() != rate.Whole || l.Since(3, 10) != 3 || l.Stretch(5) != 5 {
		t.Error("nil is not a rate that was never lowered")
	}
	l = l.From(10*second, rate.Whole/2).From(14*second, rate.Whole)
	for _, c := range []struct{ from, to, want int64 }{
		{8, 10, 2}, {8, 12, 3}, {8, 20, 10}, {11, 13, 1}, {10, 14, 2}, {12, 15, 2}, {20, 21, 1}, {5, 6, 1},
		{9, 9, 0}, {9, 3, 0},
	} {
		if got := l.Elapsed(c.from*second, c.to*second); got != c.want*second {
			t.Errorf("Elapsed from %d s to %d s = %v, want %d s", c.from, c.to, time.Duration(got), c.want)
		}
		if got, want := l.Since(c.from*second, c.to*second), (c.to-c.want)*second; c.from < c.to && got != want {
			t.Errorf("Since %d s at %d s = %d, want %d", c.from, c.to, got, want)
		}
	}
	for _, c := range []struct {
		part    int
		d, want time.Duration
	}{
		{512, time.Second, 2 * time.Second}, {rate.Whole, time.Second, time.Second}, {1, 1, 1024}, {1023, 1, 2},
		{103, math.MaxInt64, math.MaxInt64}, {512, 0, 0}, {512, -1, -1},
	} {
		if got := l.From(20*second, c.part).Stretch(c.d); got != c.want {
			t.Errorf("at %d/1024 %v takes %v, want %v", c.part, c.d, got, c.want)
		}
	}
	if part := l.From(20*second, 0).Part(); part != 1 {
		t.Errorf("a part of 0 is %d, want 1", part)
	}
}

// TestLoweredIsWhatTheSlowWaySays: of up to as many changes as are remembered, exactly; of more, never more than the
// time that has passed, nothing twice, and what lies in the later half exactly.
func TestLoweredIsWhatTheSlowWaySays(t *testing.T) {
	type change struct {
		at   int64
		part int
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 6))
		var l *rate.Lowered
		var all []change
		now := random.Int64N(1 << 60)
		for range 1 + random.IntN(400) {
			now += random.Int64N(3 * second)
			part := 1 + random.IntN(rate.Whole)
			l, all = l.From(now, part), append(all, change{now, part})
		}
		slow := func(from, to int64) int64 {
			sum, part, at := new(big.Int), rate.Whole, from
			for _, c := range append(all, change{at: math.MaxInt64}) {
				if until := min(c.at, to); until > at {
					sum.Add(sum, new(big.Int).Mul(big.NewInt(until-at), big.NewInt(int64(part))))
					at = until
				}
				part = c.part
			}
			return sum.Div(sum, big.NewInt(rate.Whole)).Int64()
		}
		recent := all[max(0, len(all)-30)].at
		for range 50 {
			from := all[0].at - second + random.Int64N(now-all[0].at+2*second)
			to := from + random.Int64N(now+second-from+1)
			got := l.Elapsed(from, to)
			if got < 0 || got > to-from {
				t.Fatalf("seed %d: Elapsed of %d ns is %d", seed, to-from, got)
			}
			middle := from + (to-from)/2
			if sum := l.Elapsed(from, middle) + l.Elapsed(middle, to); sum > got || sum < got-1 {
				t.Fatalf("seed %d: Elapsed in two parts is %d, in one %d", seed, sum, got)
			}
			since := l.Since(from, to)
			back := l.Reached(since, to)
			if back < from || l.Since(back, to) != since || back < to && l.Since(back+1, to) == since {
				t.Fatalf("seed %d: Reached of %d ns, where Since is %d before, is %d before", seed, to-from, to-since,
					to-back)
			}
			if want := slow(from, to); (len(all) <= 60 || from >= recent) && got != want {
				t.Fatalf("seed %d: Elapsed(%d, %d) = %d, want %d", seed, from, to, got, want)
			}
		}
	}
}

func TestLoweredForgetsWhatIsLongAgo(t *testing.T) {
	day := 24 * int64(time.Hour)
	l := (*rate.Lowered)(nil).From(0, 512)
	l = l.From(100*day, 256)
	if got, want := l.Elapsed(99*day, 100*day), day/2; got != want {
		t.Errorf("the last day counts %v, want %v", time.Duration(got), time.Duration(want))
	}
	if got := l.Elapsed(60*day, 61*day); got != day {
		t.Errorf("a day that is long ago counts %v, want all of it", time.Duration(got))
	}
	for at := range int64(5000) { // years of it overflow nothing
		l = l.From((100+at)*day, 1+int(at)%rate.Whole)
	}
	if got := l.Elapsed(0, 6000*day); got <= 0 || got > 6000*day {
		t.Errorf("years count %d", got)
	}
	if got := l.Elapsed(math.MinInt64, math.MaxInt64); got <= 0 {
		t.Errorf("all time counts %d", got)
	}
}
