package bucket_test

import (
	"math"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

func TestLeakyTake(t *testing.T) {
	shape := compile(t, rate.Limit{Tokens: 2, Per: time.Second, Burst: 3, Algorithm: rate.LeakyBucket})
	const half = 500 * time.Millisecond
	steps := []struct {
		at   time.Duration
		cost int64
		want bucket.Outcome
	}{
		{0, 1, bucket.Outcome{Allowed: true, Remaining: 2, ResetAfter: half}},
		{0, 1, bucket.Outcome{Allowed: true, Remaining: 1, Wait: half, ResetAfter: 2 * half}},
		{0, 1, bucket.Outcome{Allowed: true, Wait: 2 * half, ResetAfter: 3 * half}},
		{0, 1, bucket.Outcome{RetryAfter: half, ResetAfter: 3 * half}},
		{half - 1, 1, bucket.Outcome{RetryAfter: 1, ResetAfter: 2*half + 1}},
		{half, 1, bucket.Outcome{Allowed: true, Wait: 2 * half, ResetAfter: 3 * half}},
		{half, 0, bucket.Outcome{Allowed: true, ResetAfter: 3 * half}},
		{half, 4, bucket.Outcome{Never: true, ResetAfter: 3 * half}},
		{0, 1, bucket.Outcome{RetryAfter: 2 * half, ResetAfter: 4 * half}}, // the clock was set back
		{3 * half, 1, bucket.Outcome{Allowed: true, Remaining: 1, Wait: half, ResetAfter: 2 * half}},
		{20 * half, 3, bucket.Outcome{Allowed: true, ResetAfter: 3 * half}},
	}
	var s bucket.State
	for i, step := range steps {
		var got bucket.Outcome
		if s, got = s.Take(int64(step.at), shape, step.cost); got != step.want {
			t.Fatalf("step %d: Take(%v, %d) = %+v, want %+v", i, step.at, step.cost, got, step.want)
		}
	}
}

// FuzzLeakyWait: a queue is a token bucket that tells more, and what it tells is when the bucket would have been full.
func FuzzLeakyWait(f *testing.F) {
	f.Add(int64(3), int64(1e9), int64(5), int64(10), int64(77), int64(3), int64(1e8))
	f.Add(int64(1000003), int64(864e11), int64(1<<40), int64(1<<39), int64(5), int64(1), int64(-1))
	f.Add(int64(1), int64(1<<62), int64(1), int64(math.MaxInt64), int64(math.MinInt64), int64(1), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, tokens, per, burst, debt, elapsed, cost, most int64) {
		limit := rate.Limit{Tokens: tokens, Per: time.Duration(per), Burst: burst}
		shape, err := rate.Compile(limit)
		limit.Algorithm = rate.LeakyBucket
		queue, err2 := rate.Compile(limit)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("Compile(%+v) says %v, as a token bucket %v", limit, err2, err)
		}
		if err != nil || debt < 0 || debt > shape.Capacity {
			return
		}
		s := bucket.State{Debt: debt}
		after, got := s.Take(elapsed, queue, cost)
		want, plain := s.Take(elapsed, shape, cost)
		if _, before := s.Take(elapsed, shape, 0); got.Allowed && cost > 0 && got.Wait != before.ResetAfter {
			t.Errorf("%+v.Take(%d, %+v, %d) waits %v, want %v", s, elapsed, queue, cost, got.Wait, before.ResetAfter)
		}
		wait := got.Wait
		got.Wait = 0
		if after != want || got != plain || wait < 0 {
			t.Errorf("%+v.Take(%d, %+v, %d) = %+v, %+v, waits %v; a token bucket %+v, %+v", s, elapsed, queue, cost,
				after, got, wait, want, plain)
		}
		take := bucket.Take{Shape: queue, MaxWait: time.Duration(most)}
		if excess := take.Excess(wait); excess < 0 ||
			most != 0 && (excess == 0) != (wait <= time.Duration(max(0, most))) {
			t.Errorf("a wait of %v exceeds %v by %v", wait, take.MaxWait, excess)
		}
	})
}
