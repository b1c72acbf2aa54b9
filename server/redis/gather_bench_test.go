package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	shared "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/server/redis"
)

// asking decides about a random bucket, within a deadline as all decisions have one.
func asking(b *testing.B, s *shared.Store) {
	of, outs := ten, make([]bucket.Outcome, 1)
	of.Key = buckettest.Key(rand.Uint64N(benchKeys))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := s.TryConsume(ctx, 0, []bucket.Take{of}, outs); err != nil {
		b.Error(err)
	}
}

// BenchmarkLatency is how long decisions take, by how many ask one after the other at the same
// time, and by how many come in a second at random times.
func BenchmarkLatency(b *testing.B) {
	server := redistest.StartOnPort(b)
	s := store(b, dial(b, redis.Options{Addresses: []string{server.Address()}}))
	for _, callers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			took := make([]time.Duration, b.N)
			var all sync.WaitGroup
			for caller := range callers {
				all.Go(func() {
					for i := caller; i < b.N; i += callers {
						from := time.Now()
						asking(b, s)
						took[i] = time.Since(from)
					}
				})
			}
			all.Wait()
			quantiles(b, took)
		})
	}
	for _, rate := range []float64{500, 2000, 8000} {
		b.Run(fmt.Sprintf("a-second=%.0f", rate), func(b *testing.B) {
			took := make([]time.Duration, b.N)
			var all sync.WaitGroup
			next := time.Now()
			for i := range b.N {
				next = next.Add(time.Duration(rand.ExpFloat64() / rate * float64(time.Second)))
				time.Sleep(time.Until(next))
				all.Go(func() {
					from := time.Now()
					asking(b, s)
					took[i] = time.Since(from)
				})
			}
			all.Wait()
			quantiles(b, took)
		})
	}
}

func quantiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}
