package redis_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/lease"
	table "github.com/headgate-io/headgate/bucket/memory"
	shared "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/redis"
	"github.com/headgate-io/headgate/simulate"
)

// Replicas whose clocks are set ten seconds forth and back again and again, as they decide, admit
// no more than one whose clock is right: the store goes by the server's clock, and leases by one
// that cannot be set. The time that a decision is passed is all that is left of a replica's own; in
// a gateway that comes from a clock that does not step either (internal/steady).
func TestClocksThatStep(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	limit := rate.Limit{Tokens: 200, Per: time.Second, Burst: 100}
	shape, err := rate.Compile(limit)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var mu sync.Mutex
	received := map[bucket.Scope]*simulate.Envelope{bucket.Strict: {Shape: shape}, bucket.Lease: {Shape: shape}}
	longest := time.Duration(0)
	var all sync.WaitGroup
	for replica := range 3 {
		s := replicaOn(t, server)
		for scope, envelope := range received {
			of := bucket.Take{
				Key:   buckettest.Key(uint64(scope)),
				Shape: shape,
				Cost:  1,
				Reach: bucket.NewReach(scope, bucket.LossClosed),
			}
			all.Go(func() {
				few := true // on a machine that is too busy for as much as the burst in two seconds
				for i := 0; time.Since(began) < 2*time.Second || few && time.Since(began) < time.Minute; i++ {
					now := time.Now()
					step := time.Duration((i/50+replica)%3-1) * 10 * time.Second
					allowed, err := s.TryConsume(context.Background(), now.Add(step).UnixNano(), []bucket.Take{of},
						make([]bucket.Outcome, 1))
					// on a busy machine an answer may be late, which denies
					if err != nil && !errors.Is(err, bucket.ErrLost) {
						t.Error(err)
						return
					}
					mu.Lock()
					longest = max(longest, time.Since(now))
					if allowed {
						envelope.Admit(time.Since(began), 1)
					}
					few = envelope.Admitted < limit.Burst
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	way := shape.Drained(longest)/shape.Unit + 1 // as in eval/scaling
	for scope, envelope := range received {
		promised := bucket.Sharing{Replicas: 3, TTL: lease.Terms{}.Complete().TTL}.Envelope(limit, scope).Excess
		t.Logf("%v: %d admitted, %d beyond burst and rate, promised %d, the way %d", scope, envelope.Admitted,
			envelope.Excess(), promised, way)
		if envelope.Excess() > promised+way || envelope.Admitted < limit.Burst {
			t.Errorf("%v: %d admitted, %d of them beyond burst and rate, want %d and for the way %d", scope,
				envelope.Admitted, envelope.Excess(), promised, way)
		}
	}
}

// replicaOn is what a gateway makes of a server, with a deadline that a busy machine keeps.
func replicaOn(t *testing.T, server *redistest.Server) *scoped.Store {
	t.Helper()
	strict := store(t, dial(t, redis.Options{Addresses: []string{server.Socket}}))
	lessor, err := shared.NewAuthority(strict, shared.AuthorityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leases, err := lease.New(lease.Options{Authority: lessor, Deadline: lease.Terms{}.Complete().TTL})
	if err != nil {
		t.Fatal(err)
	}
	local, err := table.New(table.Options{MaxBuckets: 4096})
	if err != nil {
		t.Fatal(err)
	}
	s, err := scoped.New(scoped.Options{Local: local, Strict: strict, Leases: leases, Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
