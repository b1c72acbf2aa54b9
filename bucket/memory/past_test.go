package memory_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
)

// TestEvictedBeforeItsChangeIsHeardOf: a limit becomes slower while its bucket drains, and the
// bucket is evicted, full at the old rate, before anybody takes from it at the new one.
func TestEvictedBeforeItsChangeIsHeardOf(t *testing.T) {
	fast, slow := mustCompile(t, rate.Limit{Tokens: 10, Per: time.Second, Burst: 10}),
		mustCompile(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10})
	middle := mustCompile(t, rate.Limit{Tokens: 20, Per: time.Second, Burst: 10})
	changed := noon + int64(time.Second/2)
	once := bucket.Take{Key: buckettest.Key(1), Shape: slow, Since: changed, Before: &rate.Past{Shape: fast}, Cost: 5}
	twice := once
	twice.Shape, twice.Since, twice.Before = middle, noon+int64(2*time.Second),
		&rate.Past{Shape: slow, Since: changed, Before: once.Before}
	for _, test := range []struct {
		name string
		take bucket.Take
		at   time.Duration // of the take
	}{
		{"one change", once, 2 * time.Second},
		{"two changes", twice, 2*time.Second + 200*time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := open(t, memory.Options{MaxBuckets: 8})
			if ok, _ := decide(t, store, noon, []bucket.Take{{Key: buckettest.Key(1), Shape: fast, Cost: 10}}); !ok {
				t.Fatal("a new bucket denies its burst")
			}
			store.Learn(changed, math.MaxInt64)
			for n := range uint64(8) { // 1.5 s later the bucket is full at 10 a second
				if ok, _ := decide(t, store, noon+int64(1500*time.Millisecond),
					[]bucket.Take{{Key: buckettest.Key(2 + n), Shape: slow, Cost: 1}}); !ok {
					t.Fatalf("a new bucket denies a token")
				}
			}
			if stats := store.Stats(noon); stats.EvictedFull != 1 {
				t.Fatalf("%+v: want the one full bucket to be gone", stats)
			}
			store.Learn(test.take.Since, math.MaxInt64)
			if ok, outs := decide(t, store, noon+int64(test.at), []bucket.Take{test.take}); ok {
				t.Errorf("TryConsume = %+v, want it denied: hardly anything drained since the limit became slower",
					outs)
			}
		})
	}
}

// TestEvictedBeforeItsChanges: a bucket is evicted, its limit changes, at times back to what it
// was, and its debt never becomes less than that of a bucket that was never evicted. Each case once
// granted tokens, shrunk from TestEvictionNeverGrants.
func TestEvictedBeforeItsChanges(t *testing.T) {
	debt := func(tokens int64, per time.Duration, burst int64) rate.Shape {
		return mustCompile(t, rate.Limit{Tokens: tokens, Per: per, Burst: burst})
	}
	counted := func(a rate.Algorithm, tokens int64, per time.Duration) rate.Shape {
		return mustCompile(t, rate.Limit{Tokens: tokens, Per: per, Burst: tokens, Algorithm: a})
	}
	type step struct {
		at    time.Duration
		cost  int64      // of a take,
		shape rate.Shape // or the limit from here on
	}
	fixed, window, log := rate.FixedWindow, rate.SlidingWindow, rate.SlidingLog
	for _, test := range []struct {
		name  string
		steps []step // it is evicted after the last take
		// forgot is the longest window of the limits between the first and the last, if no rule remembers these.
		forgot time.Duration
	}{
		{"a window that comes back while its first one lasts", []step{
			{0, 0, debt(13, time.Second, 20)},
			{at: time.Second, cost: 12},
			{1500 * time.Millisecond, 0, counted(window, 5, 4*time.Second)},
			{5000 * time.Millisecond, 0, debt(4, time.Second, 2)},
			{5400 * time.Millisecond, 0, counted(window, 5, 4*time.Second)},
		}, 0},
		{"a debt, after a window that began later", []step{
			{0, 0, debt(1, time.Second, 9)},
			{at: time.Second, cost: 6},
			{1100 * time.Millisecond, 0, counted(window, 9, 4*time.Second)},
			{at: 1200 * time.Millisecond, cost: 3},
			{1300 * time.Millisecond, 0, debt(9, time.Second, 9)},
		}, 0},
		{"a window, after one that began later", []step{
			{0, 0, debt(1, time.Second, 9)},
			{at: time.Second, cost: 6},
			{1100 * time.Millisecond, 0, counted(window, 9, 4*time.Second)},
			{at: 1200 * time.Millisecond, cost: 3},
			{1300 * time.Millisecond, 0, counted(fixed, 9, time.Second)},
		}, 0},
		{"a log, after a window that began later", []step{
			{0, 0, debt(1, time.Second, 9)},
			{at: time.Second, cost: 6},
			{1100 * time.Millisecond, 0, counted(window, 9, 4*time.Second)},
			{at: 1200 * time.Millisecond, cost: 3},
			{1300 * time.Millisecond, 0, counted(log, 9, time.Second)},
		}, 0},
		{"forgotten windows, which round debts up", []step{
			{0, 0, debt(7, 3*time.Second, 26)},
			{at: time.Second, cost: 4},
			{1400 * time.Millisecond, 0, counted(window, 12, 5*time.Second)},
			{3900 * time.Millisecond, 0, debt(19, 6*time.Second, 13)},
		}, 5 * time.Second},
		{"a forgotten fixed window under which nothing was taken", []step{
			{0, 0, debt(1, 4*time.Second, 17)},
			{at: time.Second, cost: 2},
			{2500 * time.Millisecond, 0, counted(fixed, 7, 5*time.Second)},
			{5000 * time.Millisecond, 0, debt(7, 5*time.Second, 7)},
		}, 5 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			last := 0 // take
			for i, s := range test.steps {
				if s.cost > 0 {
					last = i
				}
			}
			owed := false
			for n := range race.Fewer(uint64(40)) { // windows of different keys begin at different times
				for _, evicted := range []bool{true, false} {
					store, twin := open(t, memory.Options{MaxBuckets: 8, MaxLogs: 8}), new(buckettest.Twin)
					take := bucket.Take{Key: buckettest.Key(100 + n)}
					first := int64(0) // change
					for i, s := range test.steps {
						at := noon + int64(s.at)
						if s.cost > 0 {
							take.Cost = s.cost
							for _, c := range []consumer{store, twin} {
								if ok, outs := decide(t, c, at, []bucket.Take{take}); !ok {
									t.Fatalf("%T: TryConsume(%+v) = %+v, want it allowed", c, take, outs)
								}
							}
						} else if i > 0 {
							if take.Before = take.Shape.Replaced(take.Since, take.Before, at); first == 0 {
								first = at
							}
							store.Learn(at, math.MaxInt64)
							take.Shape, take.Since = s.shape, at
						} else {
							take.Shape = s.shape
						}
						for other := range uint64(8) {
							if evicted && i == last {
								decide(t, store, at,
									[]bucket.Take{{Key: buckettest.Key(other), Shape: debt(1, time.Hour, 2), Cost: 1}})
							}
						}
					}
					if stats := store.Stats(take.Since); evicted && stats.EvictedInDebt+stats.EvictedFull != 1 {
						t.Fatalf("%+v: want one bucket to be gone", stats)
					}
					exactly := take
					if test.forgot > 0 {
						take.Before = &rate.Past{Since: first, Window: test.forgot}
					}
					take.Cost, exactly.Cost = 0, 0
					for now := take.Since; now < take.Since+int64(15*time.Second); now += int64(7 * time.Millisecond) {
						got, want := make([]bucket.Outcome, 1), make([]bucket.Outcome, 1)
						if _, err := store.Peek(context.Background(), now, []bucket.Take{take}, got); err != nil {
							t.Fatal(err)
						}
						if _, err := twin.Peek(context.Background(), now, []bucket.Take{exactly}, want); err != nil {
							t.Fatal(err)
						}
						owed = owed || want[0].ResetAfter > 0
						if got[0].Remaining > want[0].Remaining || got[0].ResetAfter < want[0].ResetAfter {
							t.Fatalf("key %d, evicted %t, %v after the last change: %+v, want no more than %+v", n,
								evicted, time.Duration(now-take.Since), got[0], want[0])
						}
					}
				}
			}
			if !owed {
				t.Error("nothing is owed after the last change: this shows nothing")
			}
		})
	}
}
