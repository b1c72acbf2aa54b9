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

// What is given back is what has not drained by then, by the server's clock.
func TestAttemptGivesBackWhatHasNotDrained(t *testing.T) {
	server := redistest.Start(t)
	ten := rate.Limit{Tokens: 1, Per: time.Second, Burst: 10}
	for name, c := range map[string]struct {
		cluster bool
		others  int64         // tokens that somebody else takes in between
		after   time.Duration // when it is given back
		left    int64
	}{
		"at once":                     {false, 0, 0, 10},
		"from several tags":           {true, 0, 0, 10},
		"while somebody else takes":   {false, 4, 0, 6},
		"when part of it has drained": {false, 0, 3 * time.Second, 10},
		// of ten owed three have drained, and three of the six were given back by that
		"when part of what others took has":   {false, 4, 3 * time.Second, 6},
		"when all of it has drained long ago": {false, 4, 6 * time.Second, 6},
	} {
		t.Run(name, func(t *testing.T) {
			server.Do("FLUSHALL")
			start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
			clock := start
			s := open(t, redis.Options{Server: connect(t, server), CallersClock: true, Cluster: c.cluster})
			one, two := take(t, 1, ten, 6), take(t, 2, ten, 6)
			two.Tag = 9
			outs := make([]bucket.Outcome, 2)
			allowed, undo, err := s.Attempt(context.Background(), clock, []bucket.Take{one, two}, outs)
			if !allowed || err != nil {
				t.Fatalf("%t, %v, %+v", allowed, err, outs)
			}
			if c.others > 0 {
				one.Cost = c.others
				try(t, s, clock, one)
			}
			clock += int64(c.after)
			undo(context.Background(), clock)
			one.Cost = 0
			_, outs = try(t, s, clock, one)
			if outs[0].Remaining != c.left {
				t.Errorf("%d are left, want %d", outs[0].Remaining, c.left)
			}
		})
	}
}

func TestAttemptThatIsDeniedTakesNothing(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, redis.Options{Server: connect(t, server)})
	ten := rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10}
	outs := make([]bucket.Outcome, 2)
	allowed, undo, err := s.Attempt(context.Background(), 0,
		[]bucket.Take{take(t, 1, ten, 6), take(t, 2, ten, 11)}, outs)
	if allowed || undo != nil || err != nil || outs[0].Remaining != 10 {
		t.Errorf("%t, undo %t, %v, %+v", allowed, undo != nil, err, outs)
	}
}
