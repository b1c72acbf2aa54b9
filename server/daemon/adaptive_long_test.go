//go:build long

package daemon_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// TestGatewaysAgreeOnWhatTheyShare: two gateways on one Redis lower the rate of the bucket that they share by what both
// say. One that sees no trouble keeps its own rates; and of two the one that lowers less is believed.
func TestGatewaysAgreeOnWhatTheyShare(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Fails") != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer api.Close()
	store := redistest.StartOnPort(t)
	secret := filepath.Join(t.TempDir(), "store.secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("5e", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rules := []policy.Rule{{Endpoint: policy.Default, Limit: 1e6, Scope: policy.Strict}}
	gateway := func() *reloading {
		return newReloading(t, rules, func(c *config.Config) {
			c.Upstream, c.Store.Redis, c.Store.SecretFile = api.URL, []string{store.Address()}, secret
			c.Store.Deadline, c.Store.LeaseTTL = time.Second, time.Second
			c.Adaptive = []config.Adaptive{{Endpoints: []string{"GET /v1/items/{id}"}, SLO: time.Second, Floor: 0.5}}
		})
	}
	gateways := [2]*reloading{gateway(), gateway()}
	adaptive := func(r *reloading) (found struct {
		Adaptive struct {
			Multiplier, Agreed float64
			Others             int
		}
		Buckets []struct {
			Multiplier float64 `json:"multiplier"`
			KeepsRate  string  `json:"keeps_rate"`
		}
	}) {
		status, body := call(t, "GET", r.admin+"/v1/explain?method=GET&target=/v1/items/7&peer=192.0.2.7", "")
		if err := json.Unmarshal([]byte(body), &found); err != nil || status != 200 {
			t.Fatalf("explain: %d %s", status, body)
		}
		return found
	}
	ask := func(fails ...bool) { // a few of each, so that there is something to judge by
		for i, r := range gateways {
			for range 60 {
				request, err := http.NewRequest("GET", r.gate+"/v1/items/7", nil)
				if err != nil {
					t.Fatal(err)
				}
				if fails[i] {
					request.Header.Set("X-Fails", "yes")
				}
				response, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		}
	}
	for adaptive(gateways[1]).Adaptive.Others == 0 || adaptive(gateways[0]).Adaptive.Multiplier > 0.8 {
		ask(true, false)
	}
	for i, want := range []bool{true, false} {
		if found := adaptive(gateways[i]); (found.Adaptive.Multiplier < 1) != want || found.Adaptive.Agreed != 1 ||
			found.Buckets[0].Multiplier != 1 {
			t.Errorf("while one of two sees trouble, gateway %d says %+v", i, found)
		}
	}
	for adaptive(gateways[0]).Adaptive.Agreed == 1 || adaptive(gateways[1]).Adaptive.Agreed == 1 {
		ask(true, true)
	}
	for i, r := range gateways {
		found := adaptive(r)
		if b := found.Buckets[0]; b.Multiplier == 1 || b.Multiplier < found.Adaptive.Multiplier || b.KeepsRate != "" {
			t.Errorf("while both do, gateway %d says %+v", i, found)
		}
		if _, text := call(t, "GET", r.admin+"/metrics", ""); !strings.Contains(text,
			`headgate_adaptive_agreed_multiplier{endpoint="GET /v1/items/{id}"} 0.`) {
			t.Errorf("the metrics of gateway %d do not tell it", i)
		}
	}
}
