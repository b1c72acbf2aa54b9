package redis_test

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/rate"
)

func TestCoarsen(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		limit rate.Limit
		want  rate.Shape
	}{
		{rate.Limit{Tokens: 10, Per: time.Second, Burst: 20},
			rate.Shape{Drain: 1, Unit: 100_000, Capacity: 2_000_000, Tick: 1_000}},
		{rate.Limit{Tokens: 1, Per: day, Burst: 1, Algorithm: rate.LeakyBucket}, rate.Shape{
			Drain:     1,
			Unit:      86_400_000_000,
			Capacity:  86_400_000_000,
			Tick:      1_000,
			Algorithm: rate.LeakyBucket,
		}},
		{rate.Limit{Tokens: 1_000_003, Per: day, Burst: 1_000_003},
			rate.Shape{Drain: 1_000_003, Unit: 86_400_000, Capacity: 86_400_000 * 1_000_003, Tick: 1_000_000}},
		{rate.Limit{Tokens: 31_557_601, Per: 365 * day, Burst: 100_000_000}, rate.Shape{
			Drain:    31_557_601,
			Unit:     31_536_000,
			Capacity: 31_536_000 * 100_000_000,
			Tick:     1_000_000_000,
		}},
		{rate.Limit{Tokens: 4_294_967_291, Per: time.Second, Burst: 4_294_967_291},
			rate.Shape{Drain: 4_294_967_291, Unit: 1_000_000, Capacity: 4_294_967_291_000_000, Tick: 1_000}},
	} {
		fine, err := rate.Compile(c.limit)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := redis.Coarsen(fine); err != nil || got != c.want {
			t.Errorf("Coarsen of %+v = %+v, %v, want %+v", c.limit, got, err, c.want)
		}
	}
}

func TestCoarsenRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		limit rate.Limit
		want  string
	}{
		"a window": {rate.Limit{Tokens: 10, Per: time.Second, Burst: 10, Algorithm: rate.FixedWindow},
			"counts in windows"},
		"too many": {rate.Limit{Tokens: 10, Per: time.Second, Burst: redis.MaxCapacity + 1},
			"the burst is 4503599627370497, want 1 to 4503599627370496"},
		"too fine, large": {rate.Limit{Tokens: 1, Per: 131_071 * time.Millisecond, Burst: 1 << 45},
			"do not fit in 53 bits together"},
	} {
		fine, err := rate.Compile(c.limit)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := redis.Coarsen(fine); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Coarsen = %+v, %v, want an error with %q", name, got, err, c.want)
		}
	}
}

// FuzzCoarsen: the burst stays, the rate is never faster and at most a millionth slower, and all
// numbers that the script computes with are exact in a double.
func FuzzCoarsen(f *testing.F) {
	f.Add(int64(10), int64(time.Second), int64(20), false)
	f.Add(int64(999_999_937), int64(999_999_999_989), int64(1_000_000_007), true)
	f.Add(int64(4_294_967_291), int64(999_999_937), int64(3_000_000_019), true)
	f.Add(int64(1_000_003), int64(24*time.Hour), int64(1_000_000_000), false)
	f.Fuzz(func(t *testing.T, tokens, per, burst int64, leaky bool) {
		limit := rate.Limit{Tokens: tokens, Per: time.Duration(per), Burst: burst}
		if leaky {
			limit.Algorithm = rate.LeakyBucket
		}
		fine, err := rate.Compile(limit)
		if err != nil {
			return
		}
		got, err := redis.Coarsen(fine)
		if err != nil {
			return
		}
		if got.Burst() != burst || got.Algorithm != limit.Algorithm || got.Capacity > redis.MaxCapacity ||
			got.Capacity != burst*got.Unit {
			t.Fatalf("Coarsen of %+v = %+v", limit, got)
		}
		if got.Tick%1000 != 0 || got.Tick > 1000 && new(big.Int).Mul(big.NewInt(got.Drain),
			big.NewInt(got.Tick/1000)).Cmp(big.NewInt(1<<53)) >= 0 || got.Drain >= 1<<53 {
			t.Fatalf("Coarsen of %+v = %+v leaves the whole numbers of a double", limit, got)
		}
		asked := big.NewRat(tokens, per)
		kept := new(big.Rat).Mul(big.NewRat(got.Drain, got.Unit), big.NewRat(1, got.Tick))
		least := new(big.Rat).Mul(asked, big.NewRat(999_999, 1_000_000))
		if kept.Cmp(asked) > 0 || kept.Cmp(least) < 0 {
			t.Fatalf("Coarsen of %+v = %+v: %v tokens a nanosecond, want %v or a millionth less", limit,
				got, kept, asked)
		}
	})
}

// FuzzParse: what is read from a server may be anything; what is read as a bucket is one.
func FuzzParse(f *testing.F) {
	f.Add("\x40\x42\x0f\x00\x00\x00\x00\x40\x42\x0f\x00\x00\x00\x00\xc0\x01\xa0\x8d\x06\x14")
	f.Add("")
	f.Add("\x40\x42\x0f\x00\x00\x00\x00\x40\x42\x0f\x00\x00\x00\x00\xc0\x01\x00\x14")
	f.Fuzz(func(t *testing.T, value string) {
		h, ok := redis.Parse(value)
		if !ok {
			return
		}
		s := h.Shape
		if s.Drain < 1 || s.Unit < 1 || s.Capacity < s.Unit || s.Capacity > redis.MaxCapacity ||
			s.Capacity%s.Unit != 0 || !s.Algorithm.Drains() {
			t.Fatalf("%q is read as %+v", value, h)
		}
		if h.State.Debt < 0 || h.State.Stamp < 0 || h.State.Debt > math.MaxInt64/1000 {
			t.Fatalf("%q is read as %+v", value, h)
		}
	})
}

func TestParseKnowsABucket(t *testing.T) {
	h, ok := redis.Parse("\x40\x42\x0f\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x01\xc8\x01\xa0\x8d\x06\x14")
	want := rate.Shape{Drain: 1, Unit: 100_000, Capacity: 2_000_000, Tick: 1000, Algorithm: rate.LeakyBucket}
	if !ok || h.Shape != want || h.State.Debt != 1_000_000 || h.State.Stamp != (1<<48+2)*1000 {
		t.Errorf("Parse = %+v, %t", h, ok)
	}
}
