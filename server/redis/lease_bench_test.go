package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/lease"
	shared "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/redis"
)

// counted counts what the server is asked.
type counted struct {
	*redis.Client
	calls atomic.Int64
}

func (c *counted) Eval(ctx context.Context, command, script string, keys, args []string) (any, error) {
	c.calls.Add(1)
	return c.Client.Eval(ctx, command, script, keys, args)
}

// replicas is how many share the buckets.
const replicas = 4

// consumer decides.
type consumer interface {
	TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error)
}

// BenchmarkFourReplicas has four replicas decide 20,000 times a second over buckets whose keys are
// drawn by Zipf's law with an exponent of 1.2, under several limits a second: by asking the server
// for each, and out of leases. A lease is worth its message where a replica gets 80 requests a
// second for one key, so low limits gain little. An operation is a decision; it waits for its turn,
// so its time says nothing. What counts is calls/op, what it costs the server, the median of the
// time that a decision takes, and how many were admitted.
func BenchmarkFourReplicas(b *testing.B) {
	for _, limit := range []int64{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("strict/%d", limit), func(b *testing.B) {
			benchReplicas(b, limit, func(b *testing.B, s *shared.Store) consumer { return s })
		})
		b.Run(fmt.Sprintf("lease/%d", limit), func(b *testing.B) {
			benchReplicas(b, limit, func(b *testing.B, s *shared.Store) consumer {
				a, err := shared.NewAuthority(s, shared.AuthorityOptions{})
				if err != nil {
					b.Fatal(err)
				}
				leases, err := lease.New(lease.Options{Authority: a, Deadline: 100 * time.Millisecond})
				if err != nil {
					b.Fatal(err)
				}
				return leases
			})
		})
	}
}

func benchReplicas(b *testing.B, limit int64, open func(*testing.B, *shared.Store) consumer) {
	server := redistest.Start(b)
	shape, err := rate.Compile(rate.Limit{Tokens: limit, Per: time.Second, Burst: limit})
	if err != nil {
		b.Fatal(err)
	}
	var clients [replicas]*counted
	var stores [replicas]consumer
	for i := range stores {
		clients[i] = &counted{Client: dial(b, redis.Options{Addresses: []string{server.Socket}})}
		s, err := shared.New(shared.Options{Server: clients[i]})
		if err != nil {
			b.Fatal(err)
		}
		stores[i] = open(b, s)
	}
	before := server.CPU()
	var admitted, failed atomic.Int64
	took := make([]time.Duration, b.N)
	b.ResetTimer()
	var wg sync.WaitGroup
	const callers, perSecond = 32, 20_000
	start := time.Now()
	for caller := range callers {
		wg.Go(func() {
			zipf := rand.NewZipf(rand.New(rand.NewPCG(uint64(caller), 1)), 1.2, 1, benchKeys-1)
			outs := make([]bucket.Outcome, 1)
			for n := caller; n < b.N; n += callers {
				time.Sleep(time.Until(start.Add(time.Duration(n) * time.Second / perSecond)))
				take := []bucket.Take{{Key: buckettest.Key(zipf.Uint64()), Shape: shape, Cost: 1}}
				began := time.Now()
				allowed, err := stores[n%replicas].TryConsume(context.Background(), 0, take, outs)
				took[n] = time.Since(began)
				if err != nil {
					failed.Add(1)
				} else if allowed {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	calls := int64(0)
	for _, c := range clients {
		calls += c.calls.Load()
	}
	slices.Sort(took)
	n := float64(b.N)
	b.ReportMetric(float64(calls)/n, "calls/op")
	b.ReportMetric((server.CPU()-before)*1e6/n, "server-us/op")
	b.ReportMetric(float64(took[b.N/2].Nanoseconds()), "median-ns")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds()), "p99-us")
	b.ReportMetric(float64(admitted.Load())/n, "admitted/op")
	b.ReportMetric(float64(failed.Load())/n, "failed/op")
}
