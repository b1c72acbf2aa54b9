package memory_test

import (
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
		}{{0, 3, 7}, {time.Second, 4, 7}, {3500 * time.Millisecond, 6, 7}, {4 * time.Second, 7, 7}} {
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
			units := 4 * shape.Unit
			correct(t, store, later, bucket.Change{Key: take.Key, Shape: shape, Charged: noon,
				Units: -bucket.Unspent(shape, shape, units, units, noon, later)})
			if got := left(); got != test.want {
				t.Errorf("after %v and the refund: %d left, want %d", test.after, got, test.want)
			}
		}
	}
}
