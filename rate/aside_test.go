package rate_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rate"
)

func TestSetAside(t *testing.T) {
	for _, test := range []struct {
		name           string
		limit          rate.Limit
		percent, parts int
		each, rest     rate.Limit
	}{
		{"evenly", rate.Limit{Tokens: 100, Per: time.Second, Burst: 200}, 20, 4,
			rate.Limit{Tokens: 5, Per: time.Second, Burst: 10}, rate.Limit{Tokens: 80, Per: time.Second, Burst: 160}},
		{"for one", rate.Limit{Tokens: 10, Per: time.Second, Burst: 20}, 50, 1,
			rate.Limit{Tokens: 5, Per: time.Second, Burst: 10}, rate.Limit{Tokens: 5, Per: time.Second, Burst: 10}},
		{"a burst that leaves something", rate.Limit{Tokens: 10, Per: time.Minute, Burst: 59}, 20, 5,
			rate.Limit{Tokens: 2, Per: 5 * time.Minute, Burst: 2}, rate.Limit{Tokens: 8, Per: time.Minute, Burst: 48}},
	} {
		each, rest, ok := shapeOf(t, test.limit).SetAside(test.percent, test.parts)
		if want, left := shapeOf(t, test.each), shapeOf(t, test.rest); !ok || each != want || rest != left {
			t.Errorf("%s: SetAside(%d, %d) = %+v, %+v, %t, want %+v and %+v", test.name, test.percent, test.parts, each,
				rest, ok, want, left)
		}
	}
	ten := rate.Limit{Tokens: 10, Per: time.Second, Burst: 10}
	window := rate.Limit{Tokens: 100, Per: time.Second, Burst: 100, Algorithm: rate.FixedWindow}
	for _, test := range []struct {
		name           string
		shape          rate.Shape
		percent, parts int
	}{
		{"a part of one token", shapeOf(t, ten), 20, 2},
		{"nothing", shapeOf(t, ten), 0, 1},
		{"everything", shapeOf(t, ten), 100, 1},
		{"for nobody", shapeOf(t, ten), 50, 0},
		{"of windows", shapeOf(t, window), 50, 1},
		{"of no limit", rate.Shape{}, 50, 1},
	} {
		if _, rest, ok := test.shape.SetAside(test.percent, test.parts); ok || rest != test.shape {
			t.Errorf("%s: SetAside(%d, %d) sets aside, and leaves %+v", test.name, test.percent, test.parts, rest)
		}
	}
}

// Whatever is set aside, the parts and the rest together are no faster than the whole, hold no
// more, and are hardly slower.
func TestWhatIsSetAsideIsNotMore(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	found := 0
	for range 20_000 {
		l := rate.Limit{
			Tokens: 1 + rng.Int64N(1<<rng.IntN(40)),
			Per:    time.Duration(1 + rng.Int64N(1<<rng.IntN(63))),
			Burst:  1 + rng.Int64N(1<<rng.IntN(50)),
		}
		whole, err := rate.Compile(l)
		if err != nil {
			continue
		}
		percent, parts := 1+rng.IntN(99), 1+rng.IntN(1<<rng.IntN(12))
		each, rest, ok := whole.SetAside(percent, parts)
		if !ok {
			continue
		}
		found++
		together := new(big.Rat).Mul(perNano(each), big.NewRat(int64(parts), 1))
		together.Add(together, perNano(rest))
		if together.Cmp(perNano(whole)) > 0 || l.Per >= time.Second && l.Per < 365*24*time.Hour && l.Tokens < 1<<30 &&
			together.Cmp(new(big.Rat).Mul(perNano(whole), big.NewRat(999, 1000))) < 0 {
			t.Fatalf("%+v: %d percent in %d parts are %+v, and %+v is left: another rate together", l, percent,
				parts, each, rest)
		}
		if each.Burst() < 2 || rest.Burst() < 1 || each.Burst() > (whole.Burst()-rest.Burst())/int64(parts) ||
			rest.Capacity != rest.Burst()*rest.Unit || each.Capacity != each.Burst()*each.Unit {
			t.Fatalf("%+v: %d percent in %d parts are %+v, and %+v is left: want no more than the burst", l, percent,
				parts, each, rest)
		}
		for _, s := range []rate.Shape{each, rest} {
			if s.Capacity > rate.MaxCapacity || s.Drain > rate.MaxDrain || s.Drain < 1 || s.Unit < 1 {
				t.Fatalf("%+v: %+v is out of bounds", l, s)
			}
		}
	}
	if found < 5000 {
		t.Errorf("%d limits were divided, want most", found)
	}
}
