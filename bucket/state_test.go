package bucket_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

const (
	ms = time.Millisecond
	s  = time.Second
)

func ExampleState_Take() {
	shape, err := rate.Compile(rate.Limit{Tokens: 2, Per: time.Second, Burst: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var state bucket.State // full
	for _, at := range []time.Duration{0, 0, 0, 0, 500 * time.Millisecond} {
		var got bucket.Outcome
		state, got = state.Take(start.Add(at).UnixNano(), shape, 1)
		fmt.Printf("%4v allowed=%-5t remaining=%d retry=%v reset=%v\n", at, got.Allowed, got.Remaining, got.RetryAfter,
			got.ResetAfter)
	}
	// Output:
	//   0s allowed=true  remaining=2 retry=0s reset=500ms
	//   0s allowed=true  remaining=1 retry=0s reset=1s
	//   0s allowed=true  remaining=0 retry=0s reset=1.5s
	//   0s allowed=false remaining=0 retry=500ms reset=1.5s
	// 500ms allowed=true  remaining=0 retry=0s reset=1.5s
}

func TestTake(t *testing.T) {
	type step struct {
		at   time.Duration
		cost int64
		want bucket.Outcome
	}
	allowed := func(left int64, reset time.Duration) bucket.Outcome {
		return bucket.Outcome{Allowed: true, Remaining: left, ResetAfter: reset}
	}
	tests := []struct {
		name  string
		limit rate.Limit
		steps []step
	}{
		{"ten a second, twenty at once", rate.Limit{Tokens: 10, Per: s, Burst: 20}, []step{
			{0, 20, allowed(0, 2*s)},
			{0, 1, bucket.Outcome{RetryAfter: 100 * ms, ResetAfter: 2 * s}},
			{100*ms - 1, 1, bucket.Outcome{RetryAfter: 1, ResetAfter: 1900*ms + 1}},
			{100 * ms, 1, allowed(0, 2*s)},
			{1100 * ms, 3, allowed(7, 1300*ms)},
			{1100 * ms, 8, bucket.Outcome{Remaining: 7, RetryAfter: 100 * ms, ResetAfter: 1300 * ms}},
			{time.Hour, 1, allowed(19, 100*ms)},
		}},
		{"thirds of a second are not rounded", rate.Limit{Tokens: 3, Per: s, Burst: 1}, []step{
			{0, 1, allowed(0, 333_333_334)},
			{333_333_333, 1, bucket.Outcome{RetryAfter: 1, ResetAfter: 1}},
			{333_333_334, 1, allowed(0, 333_333_334)},
		}},
		{"thirds of a second do not drift", rate.Limit{Tokens: 3, Per: s, Burst: 3}, []step{
			{0, 3, allowed(0, s)},
			{333_333_334, 1, allowed(0, 999_999_000+1000-333_333_334+333_333_334)}, // two units are left over
			{666_666_667, 1, allowed(0, s)},
			{1 * s, 1, allowed(0, s)},
		}},
		{"one a day", rate.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 1}, []step{
			{0, 1, allowed(0, 24*time.Hour)},
			{time.Hour, 1, bucket.Outcome{RetryAfter: 23 * time.Hour, ResetAfter: 23 * time.Hour}},
			{24 * time.Hour, 1, allowed(0, 24*time.Hour)},
		}},
		{"a cost of nothing only looks", rate.Limit{Tokens: 1, Per: s, Burst: 5}, []step{
			{0, 0, allowed(5, 0)},
			{0, 5, allowed(0, 5*s)},
			{0, 0, allowed(0, 5*s)},
			{2500 * ms, 0, allowed(2, 2500*ms)},
		}},
		{"a cost above the burst never passes", rate.Limit{Tokens: 1, Per: s, Burst: 5}, []step{
			{0, 6, bucket.Outcome{Remaining: 5, Never: true}},
			{0, math.MaxInt64, bucket.Outcome{Remaining: 5, Never: true}},
			{0, -1, bucket.Outcome{Remaining: 5, Never: true}},
			{0, 5, allowed(0, 5*s)},
			{s, 6, bucket.Outcome{Remaining: 1, ResetAfter: 4 * s, Never: true}},
		}},
		{"a clock set back grants nothing", rate.Limit{Tokens: 1, Per: s, Burst: 2}, []step{
			{10 * s, 2, allowed(0, 2*s)},
			{4 * s, 1, bucket.Outcome{RetryAfter: 7 * s, ResetAfter: 8 * s}},
			{11*s - 1, 1, bucket.Outcome{RetryAfter: 1, ResetAfter: s + 1}},
			{11 * s, 1, allowed(0, 2*s)},
		}},
		{"ticks of a microsecond decide in nanoseconds",
			rate.Limit{Tokens: 1_000_003, Per: 24 * time.Hour, Burst: 1_000_003}, []step{
				{0, 1_000_003, allowed(0, 24*time.Hour)},
				// 86,400 s / 1,000,003 = 86.399 740 8 ms
				{0, 1, bucket.Outcome{RetryAfter: 86_399_741, ResetAfter: 24 * time.Hour}},
				{86_399_740, 1, bucket.Outcome{RetryAfter: 1, ResetAfter: 24*time.Hour - 86_399_740}},
				{86_399_741, 1, allowed(0, 24*time.Hour)},
				{12 * time.Hour, 0, allowed(500_000, 12*time.Hour+86_399_741)},
			}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			shape := compile(t, test.limit)
			var state bucket.State
			for i, step := range test.steps {
				var got bucket.Outcome
				if state, got = state.Take(int64(step.at), shape, step.cost); got != step.want {
					t.Fatalf("step %d: Take(%v, %d) = %+v, want %+v", i, step.at, step.cost, got, step.want)
				}
			}
		})
	}
}

func TestZeroShapeAdmitsNothing(t *testing.T) {
	for _, state := range []bucket.State{{}, {Debt: 5, Stamp: 3}} {
		for _, cost := range []int64{-1, 0, 1} {
			if after, got := state.Take(10, rate.Shape{}, cost); after != state ||
				got != (bucket.Outcome{Never: true}) {
				t.Errorf("%+v.Take(zero Shape, %d) = %+v, %+v", state, cost, after, got)
			}
		}
		if got := state.Convert(rate.Shape{}, compile(t, rate.Limit{Tokens: 1, Per: 1, Burst: 1}),
			10); got != (bucket.State{Stamp: 10}) {
			t.Errorf("%+v.Convert(zero Shape) = %+v, want a full bucket", state, got)
		}
	}
}

// TestRetryIsExact tries every nanosecond of small buckets: denied at each before RetryAfter, admitted at it and after.
func TestRetryIsExact(t *testing.T) {
	for _, shape := range smallShapes(t) {
		for debt := int64(0); debt <= shape.Capacity; debt++ {
			state := bucket.State{Debt: debt, Stamp: 50}
			for _, now := range []int64{44, 50, 51, 53, 58} {
				for cost := int64(1); cost <= shape.Burst(); cost++ {
					checkWaits(t, state, now, shape, cost)
				}
			}
		}
	}
}

func checkWaits(t *testing.T, state bucket.State, now int64, shape rate.Shape, cost int64) {
	t.Helper()
	_, got := state.Take(now, shape, cost)
	wait := int64(0)
	for ; wait < 1000; wait++ {
		if _, later := state.Take(now+wait, shape, cost); later.Allowed {
			break
		}
	}
	if int64(got.RetryAfter) != wait || got.Allowed != (wait == 0) {
		t.Fatalf("%+v.Take(%d, %+v, %d) = %+v, but succeeds after %d", state, now, shape, cost, got, wait)
	}
	_, seen := state.Take(now, shape, 0)
	reset := int64(0)
	for ; reset < 1000; reset++ {
		if _, later := state.Take(now+reset, shape, shape.Burst()); later.Allowed {
			break
		}
	}
	if int64(seen.ResetAfter) != reset {
		t.Fatalf("%+v.Take(%d, %+v, 0) = %+v, but is full after %d", state, now, shape, seen, reset)
	}
	if _, most := state.Take(now, shape, seen.Remaining); !most.Allowed {
		t.Fatalf("%+v at %d under %+v: %d remain but cannot be taken", state, now, shape, seen.Remaining)
	}
	if _, more := state.Take(now, shape, seen.Remaining+1); more.Allowed {
		t.Fatalf("%+v at %d under %+v: %d remain but one more can be taken", state, now, shape, seen.Remaining)
	}
}

// smallShapes are limits whose every state can be tried, in nanoseconds and in microseconds that
// are only a few nanoseconds long.
func smallShapes(t *testing.T) []rate.Shape {
	t.Helper()
	var shapes []rate.Shape
	for tokens := int64(1); tokens <= 5; tokens += 2 {
		for per := time.Duration(1); per <= 9; per++ {
			for burst := int64(1); burst <= 3; burst++ {
				shape := compile(t, rate.Limit{Tokens: tokens, Per: per, Burst: burst})
				shapes = append(shapes, shape)
				shape.Tick = 4
				shapes = append(shapes, shape)
			}
		}
	}
	return shapes
}

// TestCoarseTicksAreInvisible runs each schedule with the same limit in nanoseconds and in coarser ticks.
func TestCoarseTicksAreInvisible(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	for range 300 {
		tokens, per, burst := 1+rng.Int64N(50), 1+rng.Int64N(50), 1+rng.Int64N(40)
		for _, tick := range []int64{1_000, 1_000_000} {
			coarse := rate.Shape{Drain: tokens, Unit: per, Capacity: per * burst, Tick: tick}
			fine := rate.Shape{Drain: tokens, Unit: per * tick, Capacity: per * tick * burst, Tick: 1}
			var a, b bucket.State
			now := int64(0)
			for range 200 {
				now += rng.Int64N(2 * per * tick / tokens * (1 + rng.Int64N(burst)))
				cost := rng.Int64N(burst + 2)
				var got, want bucket.Outcome
				a, got = a.Take(now, coarse, cost)
				b, want = b.Take(now, fine, cost)
				if got != want {
					t.Fatalf("%+v.Take(%d, %d) = %+v, in nanoseconds %+v", coarse, now, cost, got, want)
				}
				if a.Debt >= coarse.Capacity+coarse.Drain {
					t.Fatalf("%+v holds %+v", coarse, a)
				}
			}
		}
	}
}

// TestEnvelope checks the promise for every interval at once: a queue that receives what is
// admitted and drains at the limit's rate (Lindley's recursion) never holds more than the burst.
func TestEnvelope(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 2))
	for range 200 {
		limit := rate.Limit{
			Tokens: 1 + rng.Int64N(2000),
			Per:    time.Duration(1 + rng.Int64N(1e10)),
			Burst:  1 + rng.Int64N(300),
		}
		shape := compile(t, limit)
		var state bucket.State
		queue, last, now := int64(0), int64(0), int64(0)
		for range 2000 {
			now += rng.Int64N(1 + 2*int64(limit.Per)/limit.Tokens)
			cost := 1 + rng.Int64N(1+limit.Burst/4)
			var got bucket.Outcome
			if state, got = state.Take(now, shape, cost); !got.Allowed {
				continue
			}
			queue = max(0, queue-(now-last)*shape.Drain) + cost*shape.Unit
			last = now
			if queue > shape.Capacity {
				t.Fatalf("%+v admitted %d units more than burst and rate at %d", limit, queue-shape.Capacity, now)
			}
		}
	}
}

func TestDeniedTakesAreInvisible(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, shape := range []rate.Shape{compile(t, rate.Limit{Tokens: 7, Per: 90, Burst: 5}),
		{Drain: 7, Unit: 90, Capacity: 450, Tick: 1000}} {
		var quiet, probed bucket.State
		now := int64(0)
		for i := range 20000 {
			now += rng.Int64N(20 * shape.Tick)
			for probed.Debt > 0 { // hammer until something is let through, which may not happen here
				_, got := probed.Take(now, shape, 5)
				if got.Allowed {
					break
				}
				probed, got = probed.Take(now, shape, 6)
				if now++; rng.IntN(3) == 0 || got.Allowed {
					break
				}
			}
			var a, b bucket.Outcome
			quiet, a = quiet.Take(now, shape, 1)
			probed, b = probed.Take(now, shape, 1)
			if a != b {
				t.Fatalf("step %d at %d: %+v after probing, %+v without", i, now, b, a)
			}
		}
	}
}

func TestClockStepsAndLongIdles(t *testing.T) {
	shape := compile(t, rate.Limit{Tokens: 3, Per: time.Minute, Burst: 4})
	full := bucket.Outcome{Allowed: true, Remaining: 4}
	for _, idle := range []int64{1 << 50, 1 << 62, math.MaxInt64} {
		state, _ := bucket.State{}.Take(0, shape, 4)
		if _, got := state.Take(idle, shape, 0); got != full {
			t.Errorf("after %d ns: %+v, want %+v", idle, got, full)
		}
	}
	state, _ := bucket.State{Stamp: math.MinInt64}.Take(math.MinInt64, shape, 4)
	if _, got := state.Take(math.MaxInt64, shape, 0); got != full {
		t.Errorf("after the longest idle: %+v, want %+v", got, full)
	}

	state, _ = bucket.State{}.Take(math.MaxInt64, shape, 4)
	denied, got := state.Take(math.MinInt64, shape, 1)
	if want := (bucket.Outcome{RetryAfter: math.MaxInt64, ResetAfter: math.MaxInt64}); got != want || denied != state {
		t.Errorf("after the longest step back: %+v, %+v, want %+v and no change", denied, got, want)
	}
	if got := state.FullAt(shape); got != math.MaxInt64 {
		t.Errorf("FullAt = %d, want %d", got, int64(math.MaxInt64))
	}
}

func TestConvert(t *testing.T) {
	perSecond := func(tokens, burst int64) rate.Shape {
		return compile(t, rate.Limit{Tokens: tokens, Per: s, Burst: burst})
	}
	tests := []struct {
		name     string
		state    bucket.State
		from, to rate.Shape
		at       int64
		want     bucket.State
	}{
		{"debt is kept in tokens", bucket.State{Debt: 5e8, Stamp: 0}, perSecond(10, 10), perSecond(1, 10), 0,
			bucket.State{Debt: 5e9}},
		{"the old limit drains until the change", bucket.State{Debt: 5e8, Stamp: 0}, perSecond(10, 10),
			perSecond(1, 10), 2e8, bucket.State{Debt: 3e9, Stamp: 2e8}},
		{"nobody owes more than the new burst", bucket.State{Debt: 1e9, Stamp: 7}, perSecond(10, 10), perSecond(10, 4),
			7, bucket.State{Debt: 4e8, Stamp: 7}},
		{"half a unit is a unit", bucket.State{Debt: 1, Stamp: 0}, rate.Shape{Drain: 1, Unit: 2, Capacity: 2, Tick: 1},
			rate.Shape{Drain: 1, Unit: 1, Capacity: 9, Tick: 1}, 0, bucket.State{Debt: 1}},
		{"full stays full", bucket.State{}, perSecond(1, 1), perSecond(9, 9), 5, bucket.State{Stamp: 5}},
		{"a change before the last take drains nothing", bucket.State{Debt: 5e8, Stamp: 9}, perSecond(10, 10),
			perSecond(1, 10), 3, bucket.State{Debt: 5e9, Stamp: 9}},
		{"the quotient may leave 64 bits", bucket.State{Debt: 1 << 62, Stamp: 0},
			rate.Shape{Drain: 1, Unit: 1, Capacity: 1 << 62, Tick: 1},
			rate.Shape{Drain: 1, Unit: 1 << 61, Capacity: 1 << 62, Tick: 1}, 0, bucket.State{Debt: 1 << 62}},
		{"a tick that has begun counts", bucket.State{Debt: 10, Stamp: 0},
			rate.Shape{Drain: 4, Unit: 10, Capacity: 100, Tick: 1000},
			rate.Shape{Drain: 4, Unit: 10, Capacity: 100, Tick: 1}, 1500, bucket.State{Debt: 4, Stamp: 1500}},
	}
	for _, test := range tests {
		if got := test.state.Convert(test.from, test.to, test.at); got != test.want {
			t.Errorf("%s: %+v.Convert(%+v, %+v, %d) = %+v, want %+v", test.name, test.state, test.from, test.to,
				test.at, got, test.want)
		}
	}
}

// TestConvertEnvelope flips a limit once in the middle of a rush: across the change no more is
// admitted than the larger burst and what drains under either limit.
func TestConvertEnvelope(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		before := rate.Limit{Tokens: 1 + rng.Int64N(9), Per: 1000, Burst: 1 + rng.Int64N(9)}
		after := rate.Limit{Tokens: 1 + rng.Int64N(9), Per: 1000, Burst: 1 + rng.Int64N(9)}
		from, to := compile(t, before), compile(t, after)
		change, end := rng.Int64N(5000), 5000+rng.Int64N(5000)
		var state bucket.State
		var got bucket.Outcome
		admitted := int64(0)
		for now := int64(0); now <= end; now += 1 + rng.Int64N(40) {
			shape := from
			if now >= change {
				if shape = to; state.Stamp < change || now == change {
					state = state.Convert(from, to, change)
					from = to
				}
			}
			if state, got = state.Take(now, shape, 1); got.Allowed {
				admitted++
			}
		}
		// Thousandths of a token, to stay in integers.
		bound := max(before.Burst, after.Burst)*1000 + before.Tokens*change + after.Tokens*(end-change)
		if admitted*1000 > bound {
			t.Fatalf("%+v to %+v at %d: admitted %d by %d, want at most %d thousandths", before, after, change,
				admitted, end, bound)
		}
	}
}

// TestRefundNeverGrants compares a bucket that was charged and refunded with one that never was:
// after any takes that both admit, the refunded one owes at least as much.
func TestRefundNeverGrants(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for _, tick := range []int64{1, 1000} {
		for range 5000 {
			shape := rate.Shape{Drain: 1 + rng.Int64N(5), Unit: 7, Capacity: 70, Tick: tick}
			now := rng.Int64N(100 * tick)
			charged, units := now, 7*(1+rng.Int64N(5))
			with, ok := bucket.State{}.Charge(now, shape, units)
			if !ok {
				t.Fatal("a full bucket denies half its burst")
			}
			var without bucket.State
			for range rng.IntN(5) {
				now += rng.Int64N(20 * tick)
				if after, ok := with.Charge(now, shape, 7); ok {
					with = after
					without, _ = without.Charge(now, shape, 7)
				}
			}
			now += rng.Int64N(40 * tick)
			with = with.Refund(now, shape, units, charged)
			if with.FullAt(shape) < without.FullAt(shape) && without.FullAt(shape) > now {
				t.Fatalf("%+v: refund leaves %+v, never charged is %+v at %d", shape, with, without, now)
			}
		}
	}
	shape := rate.Shape{Drain: 1, Unit: 1, Capacity: 10, Tick: 1}
	state, _ := bucket.State{}.Charge(100, shape, 6)
	if got, want := state.Refund(100, shape, 6, 100), (bucket.State{Stamp: 100}); got != want {
		t.Errorf("refund at once leaves %+v, want %+v", got, want)
	}
	if got, want := state.Refund(102, shape, 6, 100), (bucket.State{Stamp: 102}); got != want {
		t.Errorf("refund of what is left after 2 ns leaves %+v, want %+v", got, want)
	}
	if got, want := state.Refund(90, shape, -5, 100), (bucket.State{Debt: 6, Stamp: 100}); got != want {
		t.Errorf("refund of less than nothing leaves %+v, want %+v", got, want)
	}
}

func TestNothingAllocates(t *testing.T) {
	fine, coarse := compile(t, rate.Limit{Tokens: 1000, Per: s, Burst: 2000}),
		compile(t, rate.Limit{Tokens: 1_000_003, Per: 24 * time.Hour, Burst: 1_000_003})
	var state bucket.State
	now := int64(1e18)
	n := testing.AllocsPerRun(100, func() {
		state, _ = state.Take(now, fine, 1)
		state = state.Convert(fine, coarse, now)
		state, _ = state.Take(now, coarse, 1)
		state = state.Refund(now, coarse, 1, now-1).Convert(coarse, fine, now)
		now += 1e6
	})
	if n != 0 {
		t.Errorf("Take, Convert and Refund allocate %v times, want 0", n)
	}
}

func compile(t testing.TB, limit rate.Limit) rate.Shape {
	t.Helper()
	shape, err := rate.Compile(limit)
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

// TestAnswerIsTryAndReport, whatever the clock does, and whatever stood in the outcome before.
func TestAnswerIsTryAndReport(t *testing.T) {
	rng := rand.New(rand.NewPCG(20, 12))
	algorithms := []rate.Algorithm{rate.TokenBucket, rate.LeakyBucket, rate.FixedWindow, rate.SlidingWindow}
	answered, allowed := 0, 0
	for range 20_000 {
		l := rate.Limit{
			Tokens: 1 + rng.Int64()>>(rng.IntN(24)+39), Per: time.Duration(1 + rng.Int64()>>(rng.IntN(60)+3)),
			Algorithm: algorithms[rng.IntN(len(algorithms))],
		}
		if l.Burst = l.Tokens; l.Algorithm.Drains() {
			l.Burst = 1 + rng.Int64()>>(rng.IntN(24)+39)
		}
		shape, err := rate.Compile(l)
		if err != nil {
			continue
		}
		state, now := bucket.State{}, rng.Int64()>>1
		for range 8 {
			now += rng.Int64N(1+2*int64(min(l.Per, math.MaxInt64/16))) - int64(min(l.Per, math.MaxInt64/16))/4
			units, _ := shape.Units(rng.Int64N(l.Burst + 1))
			after, ok := state.Try(now, &shape, units)
			var want bucket.Outcome
			after.Report(&want, now, &shape, units, ok)
			got := bucket.Outcome{Never: true, Unknown: true, Remaining: 1, RetryAfter: 2, Wait: 3, Later: 4}
			if and, is := state.Answer(&got, now, &shape, units); and != after || is != ok || got != want {
				t.Fatalf("%+v.Answer(%d, %+v, %d) = %+v, %v, %+v, want %+v, %v, %+v", state, now, shape, units, and, is,
					got, after, ok, want)
			}
			state, answered = after, answered+1
			if ok {
				allowed++
			}
		}
	}
	if answered < 50_000 || allowed < answered/4 || allowed > answered*9/10 {
		t.Errorf("%d of %d were allowed", allowed, answered)
	}
}

func BenchmarkTake(b *testing.B) {
	for _, bench := range []struct {
		name  string
		limit rate.Limit
		step  int64
	}{
		{"allowed", rate.Limit{Tokens: 1e6, Per: s, Burst: 1e6}, 2000},
		{"denied", rate.Limit{Tokens: 1, Per: s, Burst: 1}, 1},
		{"coarse", rate.Limit{Tokens: 1_000_003, Per: 24 * time.Hour, Burst: 1_000_003}, 1e8},
	} {
		b.Run(bench.name, func(b *testing.B) {
			shape := compile(b, bench.limit)
			var state bucket.State
			now := int64(1e18)
			b.ReportAllocs()
			for b.Loop() {
				state, _ = state.Take(now, shape, 1)
				now += bench.step
			}
		})
	}
}

// BenchmarkReport is the hot path of a store: Charge where the state lies, Report where the caller wants it.
func BenchmarkReport(b *testing.B) {
	shape := compile(b, rate.Limit{Tokens: 1e6, Per: s, Burst: 1e6})
	units, _ := shape.Units(1)
	var state bucket.State
	var out bucket.Outcome
	now := int64(1e18)
	b.ReportAllocs()
	for b.Loop() {
		after, ok := state.Charge(now, shape, units)
		state = after
		after.Report(&out, now, &shape, units, ok)
		now += 2000
	}
}
