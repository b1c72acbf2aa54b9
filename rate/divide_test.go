package rate_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rate"
)

func TestDivide(t *testing.T) {
	for _, test := range []struct {
		name  string
		limit rate.Limit
		k     int
		want  rate.Limit
	}{
		{"evenly", rate.Limit{Tokens: 100, Per: time.Second, Burst: 200}, 4,
			rate.Limit{Tokens: 25, Per: time.Second, Burst: 50}},
		{"a burst that leaves a rest", rate.Limit{Tokens: 10, Per: time.Second, Burst: 11}, 4,
			rate.Limit{Tokens: 10, Per: 4 * time.Second, Burst: 2}},
		{"a burst of less than one each", rate.Limit{Tokens: 5, Per: time.Minute, Burst: 2}, 8,
			rate.Limit{Tokens: 5, Per: 8 * time.Minute, Burst: 1}},
		{"by one", rate.Limit{Tokens: 5, Per: time.Minute, Burst: 2}, 1,
			rate.Limit{Tokens: 5, Per: time.Minute, Burst: 2}},
		{"by nobody", rate.Limit{Tokens: 5, Per: time.Minute, Burst: 2}, -3,
			rate.Limit{Tokens: 5, Per: time.Minute, Burst: 2}},
		{"a queue", rate.Limit{Tokens: 30, Per: time.Second, Burst: 9, Algorithm: rate.LeakyBucket}, 3,
			rate.Limit{Tokens: 10, Per: time.Second, Burst: 3, Algorithm: rate.LeakyBucket}},
		{"a window", rate.Limit{Tokens: 30, Per: time.Second, Burst: 30, Algorithm: rate.FixedWindow}, 3,
			rate.Limit{Tokens: 30, Per: time.Second, Burst: 30, Algorithm: rate.FixedWindow}},
	} {
		if got, want := shapeOf(t, test.limit).Divide(test.k), shapeOf(t, test.want); got != want {
			t.Errorf("%s: Divide(%d) = %+v, want %+v", test.name, test.k, got, want)
		}
	}
	if got := (rate.Shape{}).Divide(4); got != (rate.Shape{}) {
		t.Errorf("a shape of nothing divides into %+v", got)
	}
}

// perNano is the rate of a shape in tokens.
func perNano(s rate.Shape) *big.Rat {
	tick := new(big.Int).Mul(big.NewInt(s.Unit), big.NewInt(s.Tick))
	return new(big.Rat).SetFrac(big.NewInt(s.Drain), tick)
}

// Whatever is divided by whatever, k parts are no faster than the whole; and as fast for all that
// people write, which is in whole seconds.
func TestPartsAreNoFasterThanTheWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		l := rate.Limit{
			Tokens: 1 + rng.Int64N(1<<rng.IntN(40)),
			Per:    time.Duration(1 + rng.Int64N(1<<rng.IntN(63))),
			Burst:  1 + rng.Int64N(1<<rng.IntN(50)),
		}
		if rng.IntN(2) == 0 {
			l.Per = max(time.Second, l.Per.Truncate(time.Second))
		}
		whole, err := rate.Compile(l)
		if err != nil {
			continue
		}
		k := 1 + rng.IntN(1<<rng.IntN(18))
		part := whole.Divide(k)
		together := new(big.Rat).Mul(perNano(part), big.NewRat(int64(min(k, rate.MaxParts)), 1))
		if order := together.Cmp(perNano(whole)); order > 0 || order < 0 && l.Per%time.Second == 0 ||
			l.Per < 365*24*time.Hour && together.Cmp(new(big.Rat).Mul(perNano(whole), big.NewRat(999, 1000))) < 0 {
			t.Fatalf("%+v divided by %d is %+v: its parts together are of another rate (%d)", l, k, part, order)
		}
		if want := max(1, whole.Burst()/int64(min(k, rate.MaxParts))); part.Burst() != want ||
			part.Capacity != want*part.Unit || part.Capacity > rate.MaxCapacity || part.Drain > rate.MaxDrain {
			t.Fatalf("%+v divided by %d is %+v: want a burst of %d", l, k, part, want)
		}
		if units, ok := part.Units(1); !ok || units < 1 || part.Drain < 1 || units > rate.MaxCapacity {
			t.Fatalf("%+v divided by %d is %+v, which holds no token", l, k, part)
		}
	}
}
