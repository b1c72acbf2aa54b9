package rate_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rate"
)

func ExampleCompile() {
	shape, err := rate.Compile(rate.Limit{Tokens: 3, Per: time.Second, Burst: 6})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("units drained per nanosecond:", shape.Drain)
	fmt.Println("units in a token:", shape.Unit)
	fmt.Println("a whole burst is back after", shape.TimeToFull(shape.Capacity))
	// Output:
	// units drained per nanosecond: 3
	// units in a token: 1000000000
	// a whole burst is back after 2s
}

func ExampleRangeError() {
	_, err := rate.Compile(rate.Limit{Tokens: 7, Per: 24 * time.Hour, Burst: math.MaxInt64})
	fmt.Println(err)
	var fault *rate.RangeError
	if errors.As(err, &fault) {
		fmt.Println(fault.Field, "may be", fault.Limit)
	}
	// Output:
	// Burst is 9223372036854775807, want 53375995583 or less
	// Burst may be 53375995583
}

func TestCompile(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		name  string
		limit rate.Limit
		want  rate.Shape
	}{
		{"10 per second", rate.Limit{Tokens: 10, Per: time.Second, Burst: 20},
			rate.Shape{Drain: 1, Unit: 1e8, Capacity: 2e9, Tick: 1}},
		{"7 in 3 minutes", rate.Limit{Tokens: 7, Per: 3 * time.Minute, Burst: 7},
			rate.Shape{Drain: 7, Unit: 180e9, Capacity: 1260e9, Tick: 1}},
		{"one a day", rate.Limit{Tokens: 1, Per: day, Burst: 1},
			rate.Shape{Drain: 1, Unit: 864e11, Capacity: 864e11, Tick: 1}},
		{"5 GB per second", rate.Limit{Tokens: 5e9, Per: time.Second, Burst: 5e9},
			rate.Shape{Drain: 5, Unit: 1, Capacity: 5e9, Tick: 1}},
		{"a million a day, prime, in microseconds", rate.Limit{Tokens: 1000003, Per: day, Burst: 1000003},
			rate.Shape{Drain: 1000003, Unit: 864e8, Capacity: 1000003 * 864e8, Tick: 1e3}},
		{"a billion a day, prime, in milliseconds", rate.Limit{Tokens: 1000000007, Per: day, Burst: 1000000007},
			rate.Shape{Drain: 1000000007, Unit: 864e5, Capacity: 1000000007 * 864e5, Tick: 1e6}},
		{"as fast as it goes", rate.Limit{Tokens: rate.MaxDrain, Per: 1, Burst: rate.MaxCapacity},
			rate.Shape{Drain: rate.MaxDrain, Unit: 1, Capacity: rate.MaxCapacity, Tick: 1}},
	}
	for _, test := range tests {
		got, err := rate.Compile(test.limit)
		if got != test.want || err != nil {
			t.Errorf("%s: Compile(%+v) = %+v, %v, want %+v", test.name, test.limit, got, err, test.want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	tests := []struct {
		limit rate.Limit
		want  string
	}{
		{rate.Limit{}, "Tokens is 0, want 1 or more; Per is 0s, want 1ns or more; Burst is 0, want 1 or more"},
		{rate.Limit{Tokens: 5, Per: time.Second, Burst: -3}, "Burst is -3, want 1 or more"},
		{rate.Limit{Tokens: math.MinInt64, Per: time.Second, Burst: 1},
			"Tokens is -9223372036854775808, want 1 or more"},
		{rate.Limit{Tokens: 5, Per: time.Second, Burst: math.MaxInt64},
			"Burst is 9223372036854775807, want 23058430092136939 or less"},
		{rate.Limit{Tokens: rate.MaxDrain + 1, Per: time.Second, Burst: 1},
			"Tokens is 4294967297, want a count that shares a larger divisor with Per, such as 4294967296"},
		{rate.Limit{Tokens: 10_000_000_019, Per: time.Second, Burst: 1e9},
			"Tokens is 10000000019, want a count that shares a larger divisor with Per, such as 10000000016"},
		{rate.Limit{Tokens: 1, Per: math.MaxInt64, Burst: 1},
			"Per is 2562047h47m16.854775807s, want 1281023h53m38.427387904s or less"},
		{
			rate.Limit{Tokens: math.MaxInt64 - 24, Per: math.MaxInt64, Burst: math.MaxInt64},
			"Tokens is 9223372036854775783, want a count that shares a larger divisor with Per, such as " +
				"9223371976607534598; Burst is 9223372036854775807, want 30123620604 or less",
		},
	}
	for _, test := range tests {
		got, err := rate.Compile(test.limit)
		if err == nil {
			t.Errorf("Compile(%+v) = %+v, want error %q", test.limit, got, test.want)
			continue
		}
		if text := strings.ReplaceAll(err.Error(), "\n", "; "); text != test.want {
			t.Errorf("Compile(%+v) says\n%q, want\n%q", test.limit, text, test.want)
		}
	}
}

func TestLargestTokensIsLargest(t *testing.T) {
	for _, tokens := range []int64{rate.MaxDrain + 1, 10_000_000_019, 12_345_678_901} {
		limit := rate.Limit{Tokens: tokens, Per: time.Second, Burst: 1_000_000}
		want := tokens
		for !compiles(rate.Limit{Tokens: want, Per: limit.Per, Burst: limit.Burst}) {
			want--
		}
		if got := correct(t, limit).Tokens; got != want {
			t.Errorf("Compile(%+v) names %d Tokens, want %d", limit, got, want)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, v := range [][3]int64{
		{10, 1e9, 20}, {1, 1, 1}, {0, -1, math.MinInt64}, {math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64 - 24, math.MaxInt64 - 24, 1},
		{1 << 33, 1 << 62, 1 << 62}, {1000003, 864e11, 1 << 40}, {rate.MaxDrain + 1, 1e9, 1 << 40},
		{10_000_000_019, 3600e9, 10_000_000_019}, {1 << 33, math.MaxInt64 - 24, 1},
	} {
		f.Add(v[0], v[1], v[2])
	}
	f.Fuzz(func(t *testing.T, tokens, per, burst int64) {
		limit := rate.Limit{Tokens: tokens, Per: time.Duration(per), Burst: burst}
		shape, err := rate.Compile(limit)
		if err == nil {
			checkExact(t, limit, shape)
			return
		}
		if shape != (rate.Shape{}) {
			t.Errorf("Compile(%+v) = %+v with error %v", limit, shape, err)
		}
		// Fields below one are told first; a second round then says what is too large.
		better := correct(t, limit)
		if tokens < 1 || per < 1 || burst < 1 {
			better = correct(t, better)
		}
		if _, err := rate.Compile(better); err != nil {
			t.Errorf("Compile(%+v) still says %v after every field was replaced as told in %+v", better, err, limit)
		}
		burstIsLargest(t, limit, better)
	})
}

// checkExact holds shape against limit with numbers that cannot overflow.
func checkExact(t *testing.T, limit rate.Limit, shape rate.Shape) {
	t.Helper()
	perTick := big.NewRat(shape.Drain, shape.Unit) // tokens
	want := new(big.Rat).Mul(big.NewRat(limit.Tokens, int64(limit.Per)), big.NewRat(shape.Tick, 1))
	if perTick.Cmp(want) != 0 {
		t.Errorf("Compile(%+v) = %+v drains %v tokens a tick, want %v", limit, shape, perTick, want)
	}
	capacity := new(big.Int).Mul(big.NewInt(limit.Burst), big.NewInt(shape.Unit))
	if capacity.Cmp(big.NewInt(shape.Capacity)) != 0 || shape.Burst() != limit.Burst {
		t.Errorf("Compile(%+v) = %+v holds %d units, want %v", limit, shape, shape.Capacity, capacity)
	}
	if shape.Drain < 1 || shape.Drain > rate.MaxDrain || shape.Unit < 1 || shape.Capacity > rate.MaxCapacity {
		t.Errorf("Compile(%+v) = %+v leaves its bounds", limit, shape)
	}
	if shape.Tick == 1 {
		return
	}
	g := new(big.Int).GCD(nil, nil, big.NewInt(limit.Tokens), big.NewInt(int64(limit.Per)))
	units := new(big.Int).Div(big.NewInt(int64(limit.Per)), g)
	if units.Mul(units, big.NewInt(limit.Burst)).Cmp(big.NewInt(rate.MaxCapacity)) <= 0 {
		t.Errorf("Compile(%+v) = %+v, but nanoseconds would do", limit, shape)
	}
}

// correct replaces every field that Compile refuses by the value it names.
func correct(t *testing.T, limit rate.Limit) rate.Limit {
	t.Helper()
	_, err := rate.Compile(limit)
	if err == nil {
		return limit
	}
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		var fault *rate.RangeError
		if !errors.As(err, &fault) {
			t.Fatalf("Compile(%+v): %v is no RangeError", limit, err)
		}
		var have *int64
		switch fault.Field {
		case "Tokens":
			have = &limit.Tokens
		case "Per":
			have = (*int64)(&limit.Per)
		case "Burst":
			have = &limit.Burst
		default:
			t.Fatalf("Compile names the field %q", fault.Field)
		}
		if *have != fault.Value {
			t.Errorf("Compile(%+v) says %v", limit, err)
		}
		*have = fault.Limit
	}
	return limit
}

func burstIsLargest(t *testing.T, limit, better rate.Limit) {
	t.Helper()
	if better.Burst == limit.Burst || better.Burst == 1 {
		return
	}
	better.Burst++
	if compiles(better) {
		t.Errorf("Compile(%+v) names a Burst of %d, but %d compiles too", limit, better.Burst-1, better.Burst)
	}
}

func compiles(limit rate.Limit) bool {
	_, err := rate.Compile(limit)
	return err == nil
}

func TestUnits(t *testing.T) {
	shape := rate.Shape{Drain: 1, Unit: 100, Capacity: 1000, Tick: 1}
	tests := []struct {
		cost, want int64
		ok         bool
	}{
		{0, 0, true}, {1, 100, true}, {10, 1000, true}, {11, 0, false}, {-1, 0, false}, {math.MinInt64, 0, false},
		{math.MaxInt64, 0, false}, {184467440737095517, 0, false}, // the last wraps around to 84
	}
	for _, test := range tests {
		if got, ok := shape.Units(test.cost); got != test.want || ok != test.ok {
			t.Errorf("Units(%d) = %d, %t, want %d, %t", test.cost, got, ok, test.want, test.ok)
		}
	}
	for _, cost := range []int64{0, 1} {
		if got, ok := (rate.Shape{}).Units(cost); ok {
			t.Errorf("zero Shape: Units(%d) = %d, true, want false", cost, got)
		}
	}
}

func TestTimeToFullAndBack(t *testing.T) {
	tests := []struct {
		shape rate.Shape
		debt  int64
		want  time.Duration
	}{
		{rate.Shape{Drain: 3, Unit: 1e9, Capacity: 6e9, Tick: 1}, 0, 0},
		{rate.Shape{Drain: 3, Unit: 1e9, Capacity: 6e9, Tick: 1}, -1, 0},
		{rate.Shape{Drain: 3, Unit: 1e9, Capacity: 6e9, Tick: 1}, 1e9, 333_333_334},
		{rate.Shape{Drain: 3, Unit: 1e9, Capacity: 6e9, Tick: 1}, 6e9, 2e9},
		{rate.Shape{Drain: 1, Unit: 1, Capacity: rate.MaxCapacity, Tick: 1}, rate.MaxCapacity, rate.MaxCapacity},
		{rate.Shape{Drain: 7, Unit: 10, Capacity: 100, Tick: 1e3}, 10, 1429}, // 10/7 microseconds
		{rate.Shape{Drain: 7, Unit: 10, Capacity: 100, Tick: 1e6}, 70, 10 * time.Millisecond},
		{rate.Shape{Drain: 1, Unit: 1, Capacity: rate.MaxCapacity, Tick: 1e6}, rate.MaxCapacity, math.MaxInt64},
		{rate.Shape{}, 5, math.MaxInt64},
	}
	for _, test := range tests {
		got := test.shape.TimeToFull(test.debt)
		if got != test.want {
			t.Errorf("%+v.TimeToFull(%d) = %v, want %v", test.shape, test.debt, got, test.want)
		}
		if got <= 0 || got == math.MaxInt64 {
			continue
		}
		if now, before := test.shape.Drained(got), test.shape.Drained(got-1); now < test.debt || before >= test.debt {
			t.Errorf("%+v drains %d in %v and %d a nanosecond before, want %d reached exactly then", test.shape, now,
				got, before, test.debt)
		}
	}
	if got := (rate.Shape{Drain: rate.MaxDrain, Unit: 1, Capacity: 1, Tick: 1}).Drained(
		math.MaxInt64); got != rate.MaxCapacity {
		t.Errorf("Drained saturates at %d, want %d", got, int64(rate.MaxCapacity))
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rate.Compile(rate.Limit{Tokens: 1000, Per: time.Second, Burst: 2000}); err != nil {
			b.Fatal(err)
		}
	}
}
