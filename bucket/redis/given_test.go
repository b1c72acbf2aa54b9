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

// correct changes the debt of a bucket, and reports by how many tokens.
func correct(ctx context.Context, t testing.TB, s *redis.Store, now int64, of bucket.Take,
	tokens, charged int64) int64 {
	t.Helper()
	c := bucket.Change{Key: of.Key, Shape: of.Shape, Units: tokens * of.Shape.Unit, Charged: charged}
	if tokens == bucket.Fill {
		c.Units = bucket.Fill
	}
	moved := make([]int64, 1)
	if err := s.Correct(ctx, now, []bucket.Change{c}, moved); err != nil {
		t.Fatal(err)
	}
	return moved[0] / of.Shape.Unit
}

// left is how many tokens a bucket holds.
func left(t testing.TB, s *redis.Store, now int64, of bucket.Take) int64 {
	t.Helper()
	of.Cost = 0
	_, outs := try(t, s, now, of)
	return outs[0].Remaining
}

// An attempt that is undone gives back nothing that was given to its bucket meanwhile: others may have taken that.
func TestAttemptGivesBackNothingThatWasGiven(t *testing.T) {
	server := redistest.Start(t)
	slow := rate.Limit{Tokens: 1, Per: 1000 * time.Hour, Burst: 10}
	for name, c := range map[string]struct {
		given  int64 // tokens, or bucket.Fill
		others int64 // that somebody else takes then
		left   int64 // of ten, six of which were taken
	}{
		"nothing was given":            {0, 4, 6},
		"the bucket was filled":        {bucket.Fill, 4, 6},
		"two tokens were given":        {-2, 6, 4},
		"more was given than was owed": {-9, 4, 6},
	} {
		t.Run(name, func(t *testing.T) {
			server.Do("FLUSHALL")
			a, b := open(t, redis.Options{Server: connect(t, server)}),
				open(t, redis.Options{Server: connect(t, server)})
			one := take(t, 1, slow, 6)
			allowed, undo, err := a.Attempt(context.Background(), 0, []bucket.Take{one}, make([]bucket.Outcome, 1))
			if !allowed || err != nil {
				t.Fatal(allowed, err)
			}
			if c.given != 0 {
				correct(context.Background(), t, b, 0, one, c.given, 0)
			}
			if allowed, _ := try(t, b, 0, take(t, 1, slow, c.others)); !allowed {
				t.Fatal("what was given is not there")
			}
			undo(context.Background(), 0)
			if got := left(t, a, 0, one); got != c.left {
				t.Errorf("%d are left, want %d", got, c.left)
			}
		})
	}
}

// meanwhile is a server to which something happens while a message is on its way to it.
type meanwhile struct {
	redis.Evaler
	happens func()
}

func (m *meanwhile) Eval(ctx context.Context, command, script string, keys, args []string) (any, error) {
	if happens := m.happens; happens != nil {
		m.happens = nil
		happens()
	}
	return m.Evaler.Eval(ctx, command, script, keys, args)
}

// What is given back was taken before all that happens to the bucket while the message is on its way.
func TestBucketIsFilledWhileUnitsAreGivenBack(t *testing.T) {
	server := redistest.Start(t)
	slow := take(t, 1, rate.Limit{Tokens: 1, Per: 1000 * time.Hour, Burst: 10}, 6)
	way := &meanwhile{Evaler: connect(t, server)}
	a, b := open(t, redis.Options{Server: way}), open(t, redis.Options{Server: connect(t, server)})
	now := time.Now().UnixNano()
	try(t, a, now, slow)
	way.happens = func() {
		correct(context.Background(), t, b, now, slow, bucket.Fill, 0)
		try(t, b, now, slow)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if back := correct(ctx, t, a, now, slow, -5, now); back != 0 {
		t.Errorf("%d tokens were given back to a bucket that was filled meanwhile, want none", -back)
	}
}

// A bucket is filled for all that was taken before, also one whose limit has a million times as
// many units as the store counts, and one that owed nothing.
func TestFilledIsFilledWhateverTheUnits(t *testing.T) {
	server := redistest.Start(t)
	for _, l := range []rate.Limit{
		{Tokens: 1, Per: time.Hour, Burst: 10},
		{Tokens: 1000, Per: time.Second, Burst: 4_550_000_000_000}, // in ticks of a millisecond
	} {
		server.Do("FLUSHALL")
		s := open(t, redis.Options{Server: connect(t, server), CallersClock: true})
		start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
		one := take(t, 1, l, 6)
		correct(context.Background(), t, s, start, one, bucket.Fill, 0)
		try(t, s, start, one)
		if back := correct(context.Background(), t, s, start, one, -6, start-int64(time.Microsecond)); back != 0 {
			t.Errorf("%+v: %d tokens of before were given back, want none", l, -back)
		}
	}
}
