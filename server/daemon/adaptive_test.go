package daemon_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// TestReloadOfRatesThatFollowTheAPI: by both engines, an API that fails has its endpoint's rates lowered, in the
// metrics as well, until a reload says otherwise; what a reload cannot mean leaves all as it is.
func TestReloadOfRatesThatFollowTheAPI(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			defer api.Close()
			follow := func(floor float64) []config.Adaptive {
				return []config.Adaptive{{Endpoints: []string{"GET /v1/items/{id}"}, SLO: time.Second, Floor: floor}}
			}
			r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1e6}}, func(c *config.Config) {
				c.Upstream, c.Engine, c.Adaptive = api.URL, engine, follow(0.5)
			})
			multiplier := func() string {
				response, err := http.Get(r.admin + "/metrics")
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				text, _ := io.ReadAll(response.Body)
				_, after, _ := strings.Cut(string(text), `headgate_adaptive_multiplier{endpoint="GET /v1/items/{id}"} `)
				value, _, _ := strings.Cut(after, "\n")
				return value
			}
			if m := multiplier(); m != "1" {
				t.Errorf("multiplier %q, want 1", m)
			}
			for m := "1"; m == "1"; m = multiplier() { // a window of a second has to pass
				for range 60 {
					response, err := http.Get(r.gate + "/v1/items/7")
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
				}
			}
			r.fails(t, `adaptive[0].endpoints`, func(c *config.Config) {
				c.Adaptive = []config.Adaptive{{Endpoints: []string{"GET /nothing"}, SLO: time.Second}}
			})
			if m := multiplier(); m == "1" || m == "" {
				t.Errorf("after a reload that failed the multiplier is %q", m)
			}
			r.reloadsTo(t, "adaptive", func(c *config.Config) { c.Adaptive = follow(0.97) })
			if m := multiplier(); !strings.HasPrefix(m, "0.9") && m != "1" {
				t.Errorf("with a higher floor it is %q", m)
			}
			r.reloadsTo(t, "adaptive", func(c *config.Config) { c.Adaptive = nil })
			if m := multiplier(); m != "" {
				t.Errorf("with none it is %q", m)
			}
		})
	}
}
