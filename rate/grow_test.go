package rate_test

import (
	"math"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rate"
)

func TestGrow(t *testing.T) {
	ten := rate.Shape{Drain: 1, Unit: 10, Capacity: 100, Tick: 1}
	for _, test := range []struct {
		name   string
		shape  rate.Shape
		tokens int64
		want   int64 // capacity
	}{
		{"by five tokens", ten, 5, 150},
		{"by nothing", ten, 0, 100},
		{"by less", ten, -7, 100},
		{"by all there is", ten, math.MaxInt64, rate.MaxCapacity / 10 * 10},
		{"a shape of nothing", rate.Shape{}, 5, 0},
		{"one that is as large as can be", rate.Shape{Drain: 1, Unit: 1, Capacity: rate.MaxCapacity, Tick: 1}, 1,
			rate.MaxCapacity},
	} {
		got := test.shape.Grow(test.tokens)
		if got.Capacity != test.want {
			t.Errorf("%s: Grow(%d) holds %d units, want %d", test.name, test.tokens, got.Capacity, test.want)
		}
		if got.Capacity = test.shape.Capacity; got != test.shape {
			t.Errorf("%s: Grow changed more than the capacity: %+v", test.name, got)
		}
	}
}

// A shape that has grown is the one that its larger burst compiles to.
func TestGrowIsALargerBurst(t *testing.T) {
	for _, limit := range []rate.Limit{{Tokens: 3, Per: time.Second, Burst: 4}, {Tokens: 1, Per: time.Hour, Burst: 1}} {
		small, err := rate.Compile(limit)
		if err != nil {
			t.Fatal(err)
		}
		limit.Burst += 6
		large, err := rate.Compile(limit)
		if err != nil {
			t.Fatal(err)
		}
		if got := small.Grow(6); got != large {
			t.Errorf("Grow(6) = %+v, but the larger burst compiles to %+v", got, large)
		}
	}
}

func TestMaxDebtAndUnitsStayInBounds(t *testing.T) {
	for _, test := range []struct{ capacity, want int64 }{
		{0, 0}, {7, 14}, {rate.MaxCapacity / 2, rate.MaxCapacity}, {rate.MaxCapacity - 1, rate.MaxCapacity},
		{rate.MaxCapacity, rate.MaxCapacity},
	} {
		if got := (rate.Shape{Unit: 1, Capacity: test.capacity}).MaxDebt(); got != test.want {
			t.Errorf("MaxDebt of capacity %d = %d, want %d", test.capacity, got, test.want)
		}
	}
	for _, test := range []struct{ unit, tokens, want int64 }{
		{10, 3, 30}, {10, 0, 0}, {10, -3, 0}, {1 << 40, 1 << 40, rate.MaxCapacity},
		{2, rate.MaxCapacity - 1, rate.MaxCapacity}, {0, 5, 0},
	} {
		if got := (rate.Shape{Unit: test.unit}).UnitsSaturating(test.tokens); got != test.want {
			t.Errorf("%d tokens of %d units = %d, want %d", test.tokens, test.unit, got, test.want)
		}
	}
}
