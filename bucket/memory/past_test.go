package memory_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/rate"
)

// TestEvictedBeforeItsChangeIsHeardOf: a limit becomes slower while its bucket drains, and the bucket is evicted, full at the old rate, before
// anybody takes from it at the new one.
func TestEvictedBeforeItsChangeIsHeardOf(t *testing.T) {
	fast, slow := mustCompile(t, rate.Limit{Tokens: 10, Per: time.Second, Burst: 10}), mustCompile(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10})
	middle := mustCompile(t, rate.Limit{Tokens: 20, Per: time.Second, Burst: 10})
	changed := noon + int64(time.Second/2)
	once := bucket.Take{Key: buckettest.Key(1), Shape: slow, Since: changed, Before: &rate.Past{Shape: fast}, Cost: 5}
	twice := once
	twice.Shape, twice.Since, twice.Before = middle, noon+int64(2*time.Second), &rate.Past{Shape: slow, Since: changed, Before: once.Before}
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
			store.Learn(changed)
			for n := range uint64(8) { // 1.5 s later the bucket is full at 10 a second
				if ok, _ := decide(t, store, noon+int64(1500*time.Millisecond), []bucket.Take{{Key: buckettest.Key(2 + n), Shape: slow, Cost: 1}}); !ok {
					t.Fatalf("a new bucket denies a token")
				}
			}
			if stats := store.Stats(noon); stats.EvictedFull != 1 {
				t.Fatalf("%+v: want the one full bucket to be gone", stats)
			}
			store.Learn(test.take.Since)
			if ok, outs := decide(t, store, noon+int64(test.at), []bucket.Take{test.take}); ok {
				t.Errorf("TryConsume = %+v, want it denied: hardly anything drained since the limit became slower", outs)
			}
		})
	}
}
