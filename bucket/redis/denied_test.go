//go:build unix

package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// TestACommandTakenAwayOpensNothing takes commands away from the user while gateways run, one after the other: what the
// scripts may not ask is an error, and never an empty bucket.
func TestACommandTakenAwayOpensNothing(t *testing.T) {
	server := redistest.Start(t)
	conn := redistest.Dial(server.Socket)
	t.Cleanup(conn.Close)
	store, err := redis.New(redis.Options{Server: conn, CallersClock: true})
	if err != nil {
		t.Fatal(err)
	}
	var n uint64
	for _, command := range []string{"get", "set", "del", "zadd", "zcount", "zrevrange", "zremrangebyscore", "zscore"} {
		for kind, of := range map[string]func(i uint32) bucket.Take{
			"places": func(i uint32) bucket.Take { return placed(t, n, 3, 30*time.Second, i) },
			"rates": func(uint32) bucket.Take {
				return take(t, n, rate.Limit{Tokens: 3, Per: time.Hour, Burst: 3}, 1)
			},
		} {
			n++
			passed := 0
			for i := range uint32(9) {
				if i == 2 {
					server.Do("ACL", "SETUSER", "default", "-"+command)
				}
				allowed, err := store.TryConsume(context.Background(), start, []bucket.Take{of(1 + i)},
					make([]bucket.Outcome, 1))
				if allowed && err == nil {
					passed++
				}
			}
			server.Do("ACL", "SETUSER", "default", "+"+command)
			if passed > 3 {
				t.Errorf("without %s %d of 9 pass by %s, want 3 at most", command, passed, kind)
			}
		}
	}
}
