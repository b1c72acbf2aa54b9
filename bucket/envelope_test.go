package bucket_test

import (
	"math"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

func TestEnvelopeOfScopes(t *testing.T) {
	ten := rate.Limit{Tokens: 10, Per: time.Second, Burst: 30}
	window := rate.Limit{Tokens: 10, Per: time.Minute, Burst: 10, Algorithm: rate.FixedWindow}
	log := rate.Limit{Tokens: 10, Per: time.Minute, Burst: 10, Algorithm: rate.SlidingLog}
	four := bucket.Sharing{Replicas: 4, TTL: 100 * time.Millisecond}
	changing := bucket.Sharing{
		Replicas: 4,
		Fewest:   3,
		TTL:      100 * time.Millisecond,
		Free:     20,
		Interval: 100 * time.Millisecond,
	}
	for _, c := range []struct {
		name    string
		sharing bucket.Sharing
		limit   rate.Limit
		scope   bucket.Scope
		want    bucket.Envelope
	}{
		{"nobody knows how many there are", bucket.Sharing{}, ten, bucket.Local,
			bucket.Envelope{Burst: 30, Tokens: 10, Per: time.Second}},
		{"local", four, ten, bucket.Local, bucket.Envelope{Burst: 120, Tokens: 40, Per: time.Second}},
		{"local windows", four, window, bucket.Local, bucket.Envelope{Burst: 80, Tokens: 40, Per: time.Minute}},
		{"a local log", four, log, bucket.Local, bucket.Envelope{Burst: 40, Tokens: 40, Per: time.Minute}},
		{"split", four, ten, bucket.Split, bucket.Envelope{Burst: 28, Tokens: 10, Per: time.Second}},
		{"split among more than there are tokens", bucket.Sharing{Replicas: 50}, ten, bucket.Split,
			bucket.Envelope{Burst: 50, Tokens: 10, Per: time.Second}},
		{"strict", four, ten, bucket.Strict, bucket.Envelope{Burst: 30, Tokens: 10, Per: time.Second}},
		{"lease", four, ten, bucket.Lease, bucket.Envelope{Burst: 30, Tokens: 10, Per: time.Second, Excess: 1}},
		{"a lease of more", four, rate.Limit{Tokens: 1015, Per: time.Second, Burst: 1}, bucket.Lease,
			bucket.Envelope{Burst: 1, Tokens: 1015, Per: time.Second, Excess: 102}},
		{"a lease with a free part", bucket.Sharing{Replicas: 4, TTL: 100 * time.Millisecond, Free: 20},
			rate.Limit{Tokens: 1000, Per: time.Second, Burst: 503}, bucket.Lease,
			bucket.Envelope{Burst: 503, Tokens: 1000, Per: time.Second, Excess: 80}},
		{"a lease with a free part that leaves something", bucket.Sharing{Replicas: 3, TTL: 100 * time.Millisecond,
			Free: 20}, rate.Limit{Tokens: 100, Per: time.Second, Burst: 100}, bucket.Lease,
			bucket.Envelope{Burst: 98, Tokens: 100, Per: time.Second, Excess: 8}},
		{"a lease with a part too small to be free", bucket.Sharing{Replicas: 4, TTL: 100 * time.Millisecond, Free: 20},
			ten, bucket.Lease,
			bucket.Envelope{Burst: 30, Tokens: 10, Per: time.Second, Excess: 1}},
		{"a lease that is decided strictly", bucket.Sharing{Replicas: 4}, ten, bucket.Lease,
			bucket.Envelope{Burst: 30, Tokens: 10, Per: time.Second}},
		{"sync", bucket.Sharing{Replicas: 4, Interval: 100 * time.Millisecond},
			rate.Limit{Tokens: 1015, Per: time.Second, Burst: 1000}, bucket.Sync,
			bucket.Envelope{Burst: 1000, Tokens: 1015, Per: time.Second, Excess: 4 * 102}},
		{"sync of little", bucket.Sharing{Replicas: 4, Interval: 100 * time.Millisecond},
			rate.Limit{Tokens: 1, Per: time.Hour, Burst: 30}, bucket.Sync,
			bucket.Envelope{Burst: 30, Tokens: 1, Per: time.Hour, Excess: 4}},
		{"sync of a burst that is soon divided", bucket.Sharing{Replicas: 4, Interval: 100 * time.Millisecond},
			rate.Limit{Tokens: 1000, Per: time.Second, Burst: 30}, bucket.Sync,
			bucket.Envelope{Burst: 30, Tokens: 1000, Per: time.Second, Excess: 28}},
		{"sync where there are more than tokens", bucket.Sharing{Replicas: 31, Interval: 100 * time.Millisecond}, ten,
			bucket.Sync, bucket.Envelope{Burst: 30, Tokens: 10, Per: time.Second}},
		{"sync that is decided strictly", bucket.Sharing{Replicas: 4}, ten, bucket.Sync,
			bucket.Envelope{Burst: 30, Tokens: 10, Per: time.Second}},
		{"local while one has not heard of the fourth", changing, ten, bucket.Local,
			bucket.Envelope{Burst: 120, Tokens: 40, Per: time.Second}},
		{"split, where three divide a burst better than four", changing, ten, bucket.Split,
			bucket.Envelope{Burst: 30, Tokens: 10, Per: time.Second}},
		{"a lease whose parts change", changing, rate.Limit{Tokens: 100, Per: time.Second, Burst: 103}, bucket.Lease,
			bucket.Envelope{Burst: 103, Tokens: 100, Per: time.Second, Excess: 8}},
		{"a lease of which three replicas have a part, and four none", changing, ten, bucket.Lease,
			bucket.Envelope{Burst: 36, Tokens: 10, Per: time.Second, Excess: 1}},
		{"sync, where one of three has more headroom than one of four", changing,
			rate.Limit{Tokens: 1000, Per: time.Second, Burst: 30}, bucket.Sync,
			bucket.Envelope{Burst: 30, Tokens: 1000, Per: time.Second, Excess: 40}},
		{"all divide by as many as there are", bucket.Sharing{Replicas: 4, Fewest: 4}, ten, bucket.Split,
			bucket.Envelope{Burst: 28, Tokens: 10, Per: time.Second}},
		{"more than can be counted", bucket.Sharing{Replicas: math.MaxInt}, ten, bucket.Local,
			bucket.Envelope{Burst: rate.MaxCapacity, Tokens: rate.MaxCapacity, Per: time.Second}},
	} {
		if got := c.sharing.Envelope(c.limit, c.scope); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestReach(t *testing.T) {
	for scope := bucket.Local; scope <= bucket.Sync; scope++ {
		for loss := bucket.LossClosed; loss <= bucket.LossOpen; loss++ {
			if r := bucket.NewReach(scope, loss); r.Scope() != scope || r.Loss() != loss {
				t.Errorf("%d and %d come back as %d and %d", scope, loss, r.Scope(), r.Loss())
			}
		}
	}
	if bucket.NewReach(bucket.Local, bucket.LossClosed) != 0 {
		t.Error("a local bucket is not the zero Reach")
	}
}
