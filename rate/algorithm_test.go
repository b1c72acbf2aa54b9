package rate_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rate"
)

func ExampleAlgorithm() {
	shape, err := rate.Compile(rate.Limit{Tokens: 100, Per: time.Minute, Burst: 100, Algorithm: rate.SlidingWindow})
	fmt.Println(shape.Capacity, "in a window of", shape.Window(), err)
	_, err = rate.Compile(rate.Limit{Tokens: 5e9, Per: time.Minute, Burst: 5e9, Algorithm: rate.SlidingWindow})
	fmt.Println(err)
	// Output:
	// 100 in a window of 1m0s <nil>
	// Tokens is 5000000000, want 2147483647 or less
	// Burst is 5000000000, want 2147483647 or less
}

func TestCompileWindow(t *testing.T) {
	tests := []struct {
		limit rate.Limit
		want  string
	}{
		{rate.Limit{Tokens: 1, Per: 1, Burst: 1, Algorithm: rate.FixedWindow}, ""},
		{rate.Limit{
			Tokens:    rate.MaxCapacity,
			Per:       rate.MaxWindow,
			Burst:     rate.MaxCapacity,
			Algorithm: rate.FixedWindow,
		}, ""},
		{rate.Limit{Tokens: 10, Per: time.Second, Burst: 20, Algorithm: rate.FixedWindow},
			"Burst is 20, want 10 or less"},
		{rate.Limit{Tokens: 10, Per: time.Second, Burst: 5, Algorithm: rate.SlidingWindow},
			"Burst is 5, want 10 or more"},
		{rate.Limit{Tokens: 0, Per: time.Second, Burst: -1, Algorithm: rate.FixedWindow},
			"Tokens is 0, want 1 or more; Burst is -1, want 1 or more"},
		{rate.Limit{Tokens: 7, Per: math.MaxInt64, Burst: 7, Algorithm: rate.FixedWindow},
			"Per is 2562047h47m16.854775807s, want 640511h56m49.213693952s or less"},
		{rate.Limit{Tokens: 1 << 32, Per: 1, Burst: 1 << 32, Algorithm: rate.SlidingLog},
			"Tokens is 4294967296, want 4294967295 or less; Burst is 4294967296, want 4294967295 or less"},
		{rate.Limit{Tokens: 7, Per: 1, Burst: 7, Algorithm: 5}, "Algorithm is 5, want 0 to 4"},
	}
	for _, test := range tests {
		got, err := rate.Compile(test.limit)
		switch {
		case test.want != "":
			if err == nil || strings.ReplaceAll(err.Error(), "\n", "; ") != test.want || got != (rate.Shape{}) {
				t.Errorf("Compile(%+v) = %+v, %v, want error %q", test.limit, got, err, test.want)
			}
		case err != nil || got.Burst() != test.limit.Tokens || got.Window() != test.limit.Per:
			t.Errorf("Compile(%+v) = %+v, %v", test.limit, got, err)
		}
	}
	if got := (rate.Shape{Drain: 1, Unit: 1, Capacity: 1, Tick: 1}).Window(); got != 0 {
		t.Errorf("the window of a token bucket is %v, want none", got)
	}
}

// FuzzCompileAnyAlgorithm: whatever is asked for compiles exactly, or is refused with values that
// compile, the largest there are.
func FuzzCompileAnyAlgorithm(f *testing.F) {
	for _, v := range [][4]int64{
		{10, 1e9, 10, 2}, {1 << 62, 1 << 61, 1 << 62, 2}, {1<<62 + 1, 1<<61 + 1, 1, 2}, {1 << 31, 60e9, 1 << 31, 3},
		{1 << 32, 1, 1 << 32, 4},
		{math.MaxInt64, math.MaxInt64, math.MinInt64, 3}, {math.MinInt64, 0, 5, 4}, {5, 1e9, 9, 1}, {5, 1e9, 5, 200},
	} {
		f.Add(v[0], v[1], v[2], uint8(v[3]))
	}
	f.Fuzz(func(t *testing.T, tokens, per, burst int64, algorithm uint8) {
		limit := rate.Limit{Tokens: tokens, Per: time.Duration(per), Burst: burst, Algorithm: rate.Algorithm(algorithm)}
		shape, err := rate.Compile(limit)
		if algorithm > uint8(rate.SlidingLog) {
			if err == nil {
				t.Errorf("Compile(%+v) = %+v, want an error", limit, shape)
			}
			return
		}
		for round := 0; err != nil; round++ {
			if round > 2 {
				t.Fatalf("Compile(%+v) still says %v", limit, err)
			}
			better := correct(t, limit)
			for _, larger := range []rate.Limit{
				{Tokens: better.Tokens + 1, Per: better.Per, Burst: better.Tokens + 1, Algorithm: limit.Algorithm},
				{Tokens: better.Tokens, Per: better.Per + 1, Burst: better.Tokens, Algorithm: limit.Algorithm},
			} {
				var fault *rate.RangeError
				if limit.Algorithm.Drains() || better.Tokens >= limit.Tokens && better.Per >= limit.Per {
					continue
				}
				if _, err := rate.Compile(larger); (larger.Tokens > better.Tokens && better.Tokens < limit.Tokens ||
					larger.Per > better.Per && better.Per < limit.Per) && !errors.As(err, &fault) {
					t.Errorf("Compile(%+v) names %+v, but %+v compiles too", limit, better, larger)
				}
			}
			limit = better
			shape, err = rate.Compile(limit)
		}
		if shape.Algorithm != limit.Algorithm || shape.Burst() != limit.Burst {
			t.Errorf("Compile(%+v) = %+v", limit, shape)
		}
		if limit.Algorithm.Drains() {
			shape.Algorithm = rate.TokenBucket
			checkExact(t, limit, shape)
			return
		}
		if shape.Window() != limit.Per || shape.Capacity != limit.Tokens || shape.Unit != 1 {
			t.Errorf("Compile(%+v) = %+v", limit, shape)
		}
		for _, cost := range []int64{0, 1, limit.Tokens} {
			if units, ok := shape.Units(cost); !ok || units != cost {
				t.Errorf("%+v.Units(%d) = %d, %t", shape, cost, units, ok)
			}
		}
		if _, ok := shape.Units(limit.Tokens + 1); ok {
			t.Errorf("%+v.Units takes a cost above the limit", shape)
		}
	})
}
