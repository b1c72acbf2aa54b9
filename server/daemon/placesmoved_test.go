package daemon_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// TestPlacesWhoseRuleChanges: two gateways on one Redis, requests that end or whose clients leave at whatever moment,
// and a limit that has another scope and number again and again, at one gateway before the other, while settings are
// loaded: once all have ended there are as many places as the limit says, however long one is kept.
func TestPlacesWhoseRuleChanges(t *testing.T) {
	held := make(chan chan bool, 16)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("Held") != "" {
			end := make(chan bool)
			held <- end
			<-end
			return
		}
		took, _ := time.ParseDuration(r.Header.Get("Takes"))
		select {
		case <-time.After(took):
		case <-r.Context().Done():
		}
	}))
	defer api.Close()
	store := redistest.StartOnPort(t)
	secret := filepath.Join(t.TempDir(), "store.secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("5e", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const limit = 4
	rules := []policy.Rule{{Endpoint: policy.Default, Limit: 1e6}, {Endpoint: policy.All, Limit: limit,
		Per: time.Hour, Scope: policy.Lease, Subject: policy.SubjectIP.Counting(policy.CountsUnderWay)}}
	var gateways [2]*reloading
	for i := range gateways {
		gateways[i] = newReloading(t, rules, func(c *config.Config) {
			c.Upstream, c.Store.Redis, c.Store.SecretFile = api.URL, []string{store.Address()}, secret
			c.Store.Deadline, c.Store.LeaseTTL, c.TrustedProxies = time.Second, time.Second, []string{"127.0.0.1"}
			c.Engine = []string{"net/http", "fast"}[i]
		})
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 20}}
	defer client.CloseIdleConnections()
	ask := func(ctx context.Context, gate string, address int, header ...string) (status int) {
		r, err := http.NewRequestWithContext(ctx, "GET", gate+"/v1/items/7", nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("X-Forwarded-For", fmt.Sprint("198.51.100.", address))
		r.Header.Set(header[0], header[1])
		answer, err := client.Do(r)
		if err != nil {
			return 0
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	change := func(r *reloading, scope string, n int) {
		if status, body := call(t, "PUT", r.admin+"/v1/policies", fmt.Sprintf(
			`{"endpoint":"*","subject":"in_flight:ip","limit":%d,"per":"1h","scope":%q}`, n, scope),
			"Content-Type", asJSON); status != 200 {
			t.Errorf("a change: %d %s", status, body)
		}
	}
	asked := make(chan struct{})
	var callers, background sync.WaitGroup
	background.Go(func() {
		for rng := rand.New(rand.NewPCG(1, 50)); ; {
			for range 50 {
				if _, ok := <-asked; !ok {
					return
				}
			}
			r := gateways[rng.IntN(2)]
			change(r, []string{"lease", "strict", "local"}[rng.IntN(3)], 2+rng.IntN(3))
			if rng.IntN(3) == 0 {
				r.edit(func(c *config.Config) { c.MaxWait += time.Millisecond })
				r.reload(t)
			}
		}
	})
	for n := range 8 {
		callers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 51))
			for range 50 {
				asked <- struct{}{}
				ctx, leave := context.WithCancel(t.Context())
				if rng.IntN(3) == 0 {
					time.AfterFunc(time.Duration(rng.IntN(8000))*time.Microsecond, leave)
				}
				ask(ctx, gateways[rng.IntN(2)].gate, n%2, "Takes", fmt.Sprint(rng.IntN(6000), "us"))
				leave()
			}
		})
	}
	callers.Wait()
	close(asked)
	background.Wait()
	for _, r := range gateways {
		change(r, "lease", limit)
	}
	for address := range 2 {
		var ends []chan bool
		var answers sync.WaitGroup
		for n := range limit {
			gate := gateways[n%2].gate
			answers.Go(func() { // until those that a gateway keeps for its next request are given back
				eventually(t, "a place is free", func() bool {
					return ask(t.Context(), gate, address, "Held", "yes") == http.StatusOK
				})
			})
			select {
			case end := <-held:
				ends = append(ends, end)
			case <-time.After(soon):
				t.Fatalf("%d of %d places are free", n, limit)
			}
		}
		for i, r := range gateways {
			if status := ask(t.Context(), r.gate, address, "Takes", "0s"); status != http.StatusTooManyRequests {
				t.Errorf("one more than may be under way, at gateway %d: %d, want 429", i, status)
			}
		}
		for _, end := range ends {
			close(end)
		}
		answers.Wait()
	}
}
