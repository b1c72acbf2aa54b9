//go:build unix

package scoped_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// Two replicas have 2 tokens each of a burst of 20 to themselves; for three there would be less
// than 2 each, so the store keeps the whole. While one has heard of the third and the other has
// not, both are true: 4 tokens more, which the envelope says.
func TestLaneAndWholeAtOnce(t *testing.T) {
	server := redistest.Start(t)
	clock := func() int64 { return start }
	limit := rate.Limit{Tokens: 20, Per: time.Hour, Burst: 20}
	one := take(t, 1, limit, bucket.Lease, 0)
	var heard [2]atomic.Int64
	var stores [2]*scoped.Store
	for i := range stores {
		heard[i].Store(2)
		conn := redistest.Dial(server.Socket)
		t.Cleanup(conn.Close)
		shared, err := redis.New(redis.Options{Server: conn, CallersClock: true})
		if err != nil {
			t.Fatal(err)
		}
		authority, err := redis.NewAuthority(shared, redis.AuthorityOptions{TTL: time.Minute, Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		leases, err := lease.New(lease.Options{
			Authority: authority,
			Now:       clock,
			Terms:     lease.Terms{TTL: time.Minute},
			Deadline:  time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		divisor := func() int { return int(heard[i].Load()) }
		stores[i] = open(t, scoped.Options{
			Strict: shared, Leases: leases, Free: 20, Deadline: time.Minute, Replicas: divisor,
			Count: func() int { return 3 }, Began: start - int64(2*time.Hour),
		})
	}
	spend := func(i int, most int64) (admitted int64) {
		for admitted < most {
			if allowed, _ := try(t, stores[i], start, one); !allowed {
				return admitted
			}
			admitted++
		}
		return admitted
	}
	if got := stores[1].Sharing().Envelope(limit, bucket.Lease).Burst; got != 24 {
		t.Errorf("at most %d are promised at once, want 24", got)
	}
	admitted := spend(0, 2) + spend(1, 2) // their own
	heard[0].Store(3)
	admitted += spend(0, 100)
	admitted += spend(1, 100)
	if admitted != 24 {
		t.Errorf("%d admitted, want the whole and what both had to themselves", admitted)
	}
	heard[1].Store(3)
	if got := stores[1].Sharing().Envelope(limit, bucket.Lease).Burst; got != 20 {
		t.Errorf("at most %d are promised once all have heard, want 20", got)
	}
	if got := spend(1, 100); got != 0 {
		t.Errorf("%d admitted once all have heard, want none", got)
	}
}
