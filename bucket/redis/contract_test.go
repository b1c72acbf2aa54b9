//go:build unix

package redis_test

import (
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

var _ bucket.Store = (*redis.Store)(nil)

func TestContract(t *testing.T) {
	server := redistest.Start(t)
	conn := redistest.Dial(server.Socket)
	t.Cleanup(conn.Close)
	open := func(t testing.TB) bucket.Store {
		server.Do("FLUSHALL")
		return open(t, redis.Options{Server: conn, CallersClock: true})
	}
	buckettest.Run(t, open, rate.TokenBucket, rate.LeakyBucket)
}

func open(t testing.TB, o redis.Options) *redis.Store {
	t.Helper()
	store, err := redis.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}
