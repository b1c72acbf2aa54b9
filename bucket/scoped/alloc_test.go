//go:build !race && unix

package scoped_test

import (
	"context"
	"strconv"
	"sync/atomic"
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
		if n := testing.AllocsPerRun(100, func() {
			_, _ = s.TryConsume(context.Background(), start+int64(time.Second), one, outs)
		}); n >= 1 {
			t.Errorf("with %d replicas a decision allocates %v times, want 0", replicas, n)
		}
	}
}

// A take that its free part admits costs no more than a few takes of a local bucket, and nothing on the heap.
func TestLaneTakesAllocateNothing(t *testing.T) {
	roomy := rate.Limit{Tokens: 1e9, Per: time.Second, Burst: 1e9}
	s, _, now := laned(t, 4, scoped.Options{})
	one := []bucket.Take{take(t, 1, roomy, bucket.Lease, 0)}
	outs := make([]bucket.Outcome, 1)
	if n := testing.AllocsPerRun(100, func() {
		_, _ = s.TryConsume(context.Background(), now.Load(), one,
			outs)
	}); n >= 1 {
		t.Errorf("a decision allocates %v times, want 0", n)
	}
}

// Nor does one that what is leased admits, alone or with others: a deadline is made where something
// has to be waited for.
func TestHeldTakesAllocateNothing(t *testing.T) {
	roomy := rate.Limit{Tokens: 1e9, Per: time.Second, Burst: 1e9}
	for _, free := range []int{1, 20} {
		s, now := holding(t, free, roomy)
		for name, takes := range map[string][]bucket.Take{
			"alone":           {take(t, 1, roomy, bucket.Lease, 0)},
			"with another":    {take(t, 1, roomy, bucket.Lease, 0), take(t, 2, roomy, bucket.Lease, 0)},
			"with local ones": {take(t, 1, roomy, bucket.Lease, 0), take(t, 3, roomy, bucket.Local, 0)},
		} {
			outs := make([]bucket.Outcome, len(takes))
			if n := testing.AllocsPerRun(100, func() {
				_, _ = s.TryConsume(context.Background(), now.Load(), takes,
					outs)
			}); n >= 1 {
				t.Errorf("%d%% free, %s: a decision allocates %v times, want 0", free, name, n)
			}
		}
	}
}

// holding is a store that holds tokens of buckets 1 and 2, whose free parts are empty.
func holding(t testing.TB, free int, limit rate.Limit) (*scoped.Store, *atomic.Int64) {
	t.Helper()
	s, _, now := laned(t, 4, scoped.Options{Free: free})
	for n := uint64(1); n <= 2; n++ {
		one := take(t, n, limit, bucket.Lease, 0)
		try(t, s, now.Load(), costing(one, limit.Burst/100*int64(free)/4))
		for range 1000 { // enough for it to ask ahead
			try(t, s, now.Load(), one)
		}
	}
	return s, now
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

func BenchmarkHeld(b *testing.B) {
	roomy := rate.Limit{Tokens: 1e9, Per: time.Second, Burst: 1e9}
	for _, n := range []uint64{1, 2} {
		b.Run(strconv.Itoa(int(n)), func(b *testing.B) {
			s, now := holding(b, 20, roomy)
			var takes []bucket.Take
			for i := range n {
				takes = append(takes, take(b, 1+i, roomy, bucket.Lease, 0))
			}
			outs := make([]bucket.Outcome, n)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = s.TryConsume(context.Background(), now.Load(), takes, outs)
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
