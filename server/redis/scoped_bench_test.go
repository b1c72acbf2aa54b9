package redis_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	table "github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/redis"
)

// BenchmarkThroughScopes makes decisions as a gateway does: local ones, strict ones on a real
// server, many at once, and those of a bucket that has denied.
func BenchmarkThroughScopes(b *testing.B) {
	wide, err := rate.Compile(rate.Limit{Tokens: 1e6, Per: time.Second, Burst: 1e6})
	if err != nil {
		b.Fatal(err)
	}
	narrow, err := rate.Compile(rate.Limit{Tokens: 1, Per: time.Hour, Burst: 1})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		scope bucket.Scope
		shape rate.Shape
		keys  uint64
	}{{"local", bucket.Local, wide, benchKeys}, {"strict", bucket.Strict, wide, benchKeys},
		{"denied", bucket.Strict, narrow, 1}} {
		b.Run(c.name, func(b *testing.B) {
			server := redistest.Start(b)
			local, err := table.New(table.Options{MaxBuckets: 1 << 16})
			if err != nil {
				b.Fatal(err)
			}
			s, err := scoped.New(scoped.Options{
				Local:    local,
				Strict:   store(b, dial(b, redis.Options{Addresses: []string{server.Socket}})),
				Deadline: time.Minute,
			})
			if err != nil {
				b.Fatal(err)
			}
			b.SetParallelism(32)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
				one := []bucket.Take{{Shape: c.shape, Cost: 1, Reach: bucket.NewReach(c.scope, bucket.LossClosed)}}
				outs := make([]bucket.Outcome, 1)
				for pb.Next() {
					one[0].Key = buckettest.Key(rng.Uint64N(c.keys))
					if _, err := s.TryConsume(context.Background(), time.Now().UnixNano(), one, outs); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
