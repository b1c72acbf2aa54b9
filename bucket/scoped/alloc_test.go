//go:build !race && unix

package scoped_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/rate"
)

func TestSplitTakesAllocateNothing(t *testing.T) {
	replicas := 3
	s := open(t, scoped.Options{Replicas: func() int { return replicas }, Began: start})
	roomy := rate.Limit{Tokens: 1e6, Per: time.Second, Burst: 1e6}
	one := []bucket.Take{take(t, 1, roomy, bucket.Split, 0), take(t, 2, roomy, bucket.Local, 0)}
	outs := make([]bucket.Outcome, 2)
	for _, replicas = range []int{3, 4, 5} { // also while it matters what was before
		if n := testing.AllocsPerRun(100, func() { _, _ = s.TryConsume(context.Background(), start+int64(time.Second), one, outs) }); n >= 1 {
			t.Errorf("with %d replicas a decision allocates %v times, want 0", replicas, n)
		}
	}
}

// A take that its lane admits costs no more than a few takes of a local bucket, and nothing on the heap.
func TestLaneTakesAllocateNothing(t *testing.T) {
	roomy := rate.Limit{Tokens: 1e9, Per: time.Second, Burst: 1e9}
	s, _, now := laned(t, 4, scoped.Options{})
	one := []bucket.Take{take(t, 1, roomy, bucket.Lease, 0)}
	outs := make([]bucket.Outcome, 1)
	if n := testing.AllocsPerRun(100, func() { _, _ = s.TryConsume(context.Background(), now.Load(), one, outs) }); n >= 1 {
		t.Errorf("a decision allocates %v times, want 0", n)
	}
}

func BenchmarkLane(b *testing.B) {
	roomy := rate.Limit{Tokens: 1e9, Per: time.Second, Burst: 1e9}
	for _, scope := range []bucket.Scope{bucket.Local, bucket.Split, bucket.Lease} {
		b.Run([]string{"local", "split", "strict", "lease"}[scope], func(b *testing.B) {
			s, _, now := laned(b, 4, scoped.Options{})
			one := []bucket.Take{take(b, 1, roomy, scope, 0)}
			outs := make([]bucket.Outcome, 1)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = s.TryConsume(context.Background(), now.Load(), one, outs)
			}
		})
	}
}

// A take that what is known decides allocates nothing either.
func TestSyncTakesAllocateNothing(t *testing.T) {
	roomy := rate.Limit{Tokens: 1e9, Per: time.Second, Burst: 1e9}
	s, _, _, _ := synced(t, scoped.Options{})
	one := []bucket.Take{take(t, 1, roomy, bucket.Sync, 0)}
	outs := make([]bucket.Outcome, 1)
	if n := testing.AllocsPerRun(100, func() { _, _ = s.TryConsume(context.Background(), start, one, outs) }); n >= 1 {
		t.Errorf("a decision allocates %v times, want 0", n)
	}
}

func BenchmarkSync(b *testing.B) {
	roomy := rate.Limit{Tokens: 1e12, Per: time.Second, Burst: 1e12}
	s, _, _, _ := synced(b, scoped.Options{})
	one := []bucket.Take{take(b, 1, roomy, bucket.Sync, 0)}
	outs := make([]bucket.Outcome, 1)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.TryConsume(context.Background(), start, one, outs)
	}
}
