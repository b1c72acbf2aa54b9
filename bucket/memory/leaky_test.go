package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/rate"
)

// TestRefundNeverGrants: what is given back is the cost less what has drained since the charge.
func TestRefundNeverGrants(t *testing.T) {
	for _, algorithm := range []rate.Algorithm{rate.TokenBucket, rate.LeakyBucket} {
		shape := mustCompile(t, rate.Limit{Tokens: 1, Per: time.Second, Burst: 10, Algorithm: algorithm})
		take := bucket.Take{Key: buckettest.Key(1), Shape: shape, Cost: 4}
		for _, test := range []struct {
			after time.Duration
			left  int64 // before the refund, and after
			want  int64
		}{{0, 3, 7}, {time.Second, 4, 7}, {3500 * time.Millisecond, 6, 7}, {4 * time.Second, 7, 7},
			{-time.Second, 3, 7}} {
			store := open(t, memory.Options{MaxBuckets: 64})
			later := noon + int64(test.after)
			decide(t, store, noon, []bucket.Take{take})
			other := take
			other.Cost = 3
			decide(t, store, noon, []bucket.Take{other})
			left := func() int64 {
				_, outs := decide(t, store, later, []bucket.Take{{Key: take.Key, Shape: shape}})
				return outs[0].Remaining
			}
			if got := left(); got != test.left {
				t.Fatalf("after %v: %d left, want %d", test.after, got, test.left)
			}
			if err := store.Refund(context.Background(), later, noon, []bucket.Take{take}); err != nil {
				t.Fatal(err)
			}
			if got := left(); got != test.want {
				t.Errorf("after %v and the refund: %d left, want %d", test.after, got, test.want)
			}
		}
	}
}

// TestRefundOfWhatIsGone: a bucket that was evicted, or whose rule has changed, gives nothing back.
func TestRefundOfWhatIsGone(t *testing.T) {
	store := open(t, memory.Options{MaxBuckets: 64})
	shape := mustCompile(t, rate.Limit{Tokens: 1, Per: time.Second, Burst: 10})
	slower := mustCompile(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10})
	take := bucket.Take{Key: buckettest.Key(1), Shape: shape, Cost: 4}
	changed := bucket.Take{Key: take.Key, Shape: slower, Since: noon + 1, Cost: 1}
	refund := func(take bucket.Take) {
		if err := store.Refund(context.Background(), noon+2, noon, []bucket.Take{take}); err != nil {
			t.Fatal(err)
		}
	}
	refund(take) // never seen
	decide(t, store, noon, []bucket.Take{take})
	decide(t, store, noon+1, []bucket.Take{changed})
	refund(take)
	refund(changed)
	refund(bucket.Take{Key: take.Key, Shape: slower, Cost: 11})
	if _, outs := decide(t, store, noon+2, []bucket.Take{{Key: take.Key, Shape: slower}}); outs[0].Remaining != 5 {
		t.Errorf("%+v, want 5 left of 10", outs)
	}
}
