//go:build unix

package scoped_test

import (
	"context"
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

var _ bucket.Store = (*scoped.Store)(nil)

// reaching is a store all of whose buckets have one scope.
type reaching struct {
	*scoped.Store
	reach bucket.Reach
}

func (r reaching) with(takes []bucket.Take) []bucket.Take {
	own := make([]bucket.Take, len(takes))
	for i := range takes {
		own[i] = takes[i]
		own[i].Reach = r.reach
	}
	return own
}

func (r reaching) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	return r.Store.TryConsume(ctx, now, r.with(takes), outs)
}

func (r reaching) Peek(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	return r.Store.Peek(ctx, now, r.with(takes), outs)
}

func (r reaching) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	own := make([]bucket.Change, len(changes))
	for i := range changes {
		own[i] = changes[i]
		own[i].Reach = r.reach
	}
	return r.Store.Correct(ctx, now, own, moved)
}

func TestContract(t *testing.T) {
	t.Run("local", func(t *testing.T) {
		buckettest.Run(t, func(t testing.TB) bucket.Store { return reaching{open(t, scoped.Options{}), 0} })
	})
	t.Run("split, alone", func(t *testing.T) {
		buckettest.Run(t, func(t testing.TB) bucket.Store {
			return reaching{open(t, scoped.Options{}), bucket.NewReach(bucket.Split, 0)}
		}, rate.TokenBucket, rate.LeakyBucket)
	})
	t.Run("strict", func(t *testing.T) {
		server := redistest.Start(t)
		conn := redistest.Dial(server.Socket)
		t.Cleanup(conn.Close)
		buckettest.Run(t, func(t testing.TB) bucket.Store {
			server.Do("FLUSHALL")
			store, err := redis.New(redis.Options{Server: conn, CallersClock: true})
			if err != nil {
				t.Fatal(err)
			}
			return reaching{open(t, scoped.Options{Strict: store, Deadline: 10e9}), bucket.NewReach(bucket.Strict, 0)}
		}, rate.TokenBucket, rate.LeakyBucket)
	})
}
