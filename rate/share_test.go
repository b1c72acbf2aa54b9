package rate_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rate"
)

func TestShare(t *testing.T) {
	for _, test := range []struct {
		name    string
		limit   rate.Limit
		percent int
		part    rate.Limit
		left    int64 // tokens that Keeping leaves
	}{
		{"a tenth", rate.Limit{Tokens: 100, Per: time.Second, Burst: 200}, 10,
			rate.Limit{Tokens: 10, Per: time.Second, Burst: 20}, 180},
		{"whole tokens", rate.Limit{Tokens: 100, Per: time.Second, Burst: 19}, 10,
			rate.Limit{Tokens: 10, Per: time.Second, Burst: 1}, 18},
		{"of a queue", rate.Limit{Tokens: 10, Per: time.Minute, Burst: 10, Algorithm: rate.LeakyBucket}, 50,
			rate.Limit{Tokens: 5, Per: time.Minute, Burst: 5}, 5},
		{"of places", rate.Limit{Tokens: 10, Per: time.Minute, Burst: 10, Algorithm: rate.SlidingLog}, 25,
			rate.Limit{Tokens: 2, Per: time.Minute, Burst: 2, Algorithm: rate.SlidingLog}, 8},
	} {
		whole := shapeOf(t, test.limit)
		if got, ok := whole.Share(test.percent); !ok || got != shapeOf(t, test.part) {
			t.Errorf("%s: Share(%d) = %+v, %t, want %+v", test.name, test.percent, got, ok, shapeOf(t, test.part))
		}
		if got := whole.Keeping(test.percent); got.Burst() != test.left || got.Drain != whole.Drain {
			t.Errorf("%s: Keeping(%d) = %+v, want room for %d", test.name, test.percent, got, test.left)
		}
	}
	nine := shapeOf(t, rate.Limit{Tokens: 100, Per: time.Second, Burst: 9})
	for _, percent := range []int{-5, 0, 10, 100} {
		if part, ok := nine.Share(percent); ok {
			t.Errorf("Share(%d) of 9 tokens = %+v, want none", percent, part)
		}
	}
	if got := nine.Keeping(99); got.Burst() != 1 {
		t.Errorf("whoever leaves 99 %% of 9 tokens has %d, want 1", got.Burst())
	}
}

// Shares together are no more than the whole, nor than what is left for them, and hardly less than is said.
func TestSharesAreNotMore(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 8))
	for range 20_000 {
		l := rate.Limit{
			Tokens: 1 + rng.Int64N(1<<rng.IntN(40)),
			Per:    time.Duration(1 + rng.Int64N(1<<rng.IntN(60))),
			Burst:  1 + rng.Int64N(1<<rng.IntN(50)),
		}
		if rng.IntN(3) == 0 {
			l.Algorithm, l.Burst = rate.SlidingLog, l.Tokens
		}
		whole, err := rate.Compile(l)
		if err != nil {
			continue
		}
		sum, burst, drain := 0, int64(0), new(big.Rat)
		for range 1 + rng.IntN(4) {
			percent := 1 + rng.IntN(23)
			part, ok := whole.Share(percent)
			sum += percent
			if !ok {
				continue
			}
			burst += part.Burst()
			if !l.Algorithm.Drains() {
				continue
			}
			own := perNano(part)
			drain.Add(drain, own)
			said := new(big.Rat).Mul(perNano(whole), big.NewRat(int64(percent), 100))
			if own.Cmp(said) > 0 || l.Per >= time.Second && l.Tokens < 1<<30 &&
				own.Cmp(new(big.Rat).Mul(said, big.NewRat(999, 1000))) < 0 && l.Per < 365*24*time.Hour {
				t.Fatalf("%+v: %d %% are %+v", l, percent, part)
			}
		}
		if left := whole.Burst() - whole.Keeping(sum).Burst(); burst > left || drain.Cmp(perNano(whole)) > 0 {
			t.Fatalf("%+v: shares of %d %% hold %d tokens and drain %v, and %d tokens are left for them", l, sum, burst,
				drain, left)
		}
	}
}
