package operations_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

const fourScopes = `  - {endpoint: GET /closed, limit: 50, per: 5s, scope: strict}
  - {endpoint: GET /leased, limit: 50, per: 5s, scope: lease}
  - {endpoint: GET /synced, limit: 50, per: 5s, scope: sync}
  - {endpoint: GET /local, limit: 50, per: 5s, scope: split}
`

// ofFour are what they are for.
var ofFour = []string{"/closed", "/leased", "/synced", "/local"}

// TestReplicasThatFail has three gateways share limits under more requests than
// these admit. One is frozen, killed, cut off from the store, or joined by
// another. What the API receives stays within what is published.
func TestReplicasThatFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault string
		make  func(t *testing.T, r *replicas)
	}{
		{"frozen", func(t *testing.T, r *replicas) {
			r.do(t, r.all[0].Freeze())
			r.divided(t, r.all[1:], "2")
			r.do(t, r.all[0].Thaw())
			thawed := time.Now()
			r.divided(t, r.all, "3")
			r.left, r.saved, r.twice = true, true, time.Since(thawed)
		}},
		{"killed amid its leases", func(t *testing.T, r *replicas) {
			r.all[0].Kill()
			r.divided(t, r.all[1:], "2")
			r.left, r.forgot = true, 1
		}},
		{"cut off", func(t *testing.T, r *replicas) {
			r.between.cut.Store(true)
			began := time.Now()
			r.divided(t, r.all[1:], "2")
			if !harness.Eventually(soon, func() bool { return metric(t, r.all[0], "store_lost") == "1" }) {
				t.Error("who is cut off does not notice")
			}
			refused := r.load.count("/closed", http.StatusServiceUnavailable)
			awaitCount(t, r.load, "/closed", http.StatusServiceUnavailable, refused+10)
			r.between.cut.Store(false)
			r.divided(t, r.all, "3")
			r.left, r.twice = true, time.Since(began)
			if !harness.Eventually(soon, func() bool { return metric(t, r.all[0], "store_lost") == "0" }) {
				t.Error("who was cut off does not find the store again")
			}
		}},
		{"joined", func(t *testing.T, r *replicas) {
			g := harness.Serve(t, r.all[1].Dir, r.args...)
			r.divided(t, append(r.all, g), "4")
			r.forgot = 2 // it has a headroom, and knows nothing at first
			stop := r.load.keepAsking(t, []*harness.Gateway{g}, ofFour...)
			awaitCount(t, r.load, "/closed", http.StatusTooManyRequests,
				r.load.count("/closed", http.StatusTooManyRequests)+50)
			stop()
		}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			// Who has no processor for two seconds is not to be missed: nothing below allows for that.
			r := newReplicas(t, append(slices.Clip(patient), "member_ttl: 6s")...)
			stop := r.load.keepAsking(t, r.all, ofFour...)
			for _, path := range ofFour {
				awaitCount(t, r.load, path, http.StatusTooManyRequests, 20)
			}
			c.make(t, r)
			for _, path := range ofFour {
				awaitCount(t, r.load, path, http.StatusOK, r.load.count(path, http.StatusOK)+20)
			}
			stop()
			r.api.within(t, r.load, "/closed", fifty, bucket.Strict, 3, 0)
			r.api.within(t, r.load, "/synced", fifty, bucket.Sync, 3, r.forgot*headroom(t, fifty, 3))
			_, own := leased(t, fifty, 3)
			_, wider := leased(t, fifty, 2)
			r.api.within(t, r.load, "/leased", fifty, bucket.Lease, 3, r.adds(own, own.Burst, wider.Burst))
			r.api.within(t, r.load, "/local", fifty, bucket.Split, 3, r.adds(fifty, fifty.Burst/3, fifty.Burst/2))
		})
	}
}

// replicas are three gateways; the first reaches the store by a relay.
type replicas struct {
	all     []*harness.Gateway
	args    []string // that the others were started with
	between *relay
	api     *ledger
	load    *caller

	// What happened, as far as it matters to what they divide.
	left  bool          // one was missed
	saved bool          // it did nothing meanwhile
	twice time.Duration // for which it had its part, and the others too, at most

	forgot int64 // headrooms of which nobody told, or that came besides those of three
}

// adds is what that may add to a limit of which each of three had a part of the
// burst, and each of two a larger one: what the others got of it though it may
// have been used, what was saved up meanwhile, and what both drained.
func (r *replicas) adds(whole rate.Limit, part, larger int64) (n int64) {
	if r.left {
		n += 2 * (larger - part)
	}
	if r.saved {
		n += part
	}
	if r.twice > 0 {
		n += int64(r.twice.Seconds()*float64(whole.Tokens)/whole.Per.Seconds()/3) + 1
	}
	return n
}

func newReplicas(t *testing.T, settings ...string) *replicas {
	t.Helper()
	server := redistest.Start(t)
	r := &replicas{between: newRelay(t, server), api: newLedger(t), load: newCaller(t, 3)}
	r.args = []string{"--config", "headgate.yaml", "--routes", "routes.txt", "--upstream", r.api.URL}
	r.all = several(t, 2, r.api.URL, fourScopes, append(slices.Clip(settings), at(server))...)
	dir := storeDir(t, append(slices.Clip(settings), "redis: [\""+r.between.Addr().String()+"\"]",
		"secret_file: one.secret")...)
	first := harness.Serve(t, dir, append(r.args, "--db", r.all[0].DB)...)
	r.all = append([]*harness.Gateway{first}, r.all...)
	r.divided(t, r.all, "3")
	return r
}

// divided waits until gateways divide limits by so many.
func (r *replicas) divided(t *testing.T, among []*harness.Gateway, by string) {
	t.Helper()
	for _, g := range among {
		expectMetric(t, g, "store_split_divisor", by)
	}
}

func (r *replicas) do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
