package daemon_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// TestMetricsTellOfRequestsUnderWay: while the API answers one, and afterwards; and of no rule that is a tier's.
func TestMetricsTellOfRequestsUnderWay(t *testing.T) {
	var p *process
	tell := func(when, want string) {
		t.Helper()
		if _, page := call(t, "GET", p.admin+"/metrics", ""); !strings.Contains(page, "\n"+want+"\n") ||
			strings.Count(page, "\nheadgate_in_flight_requests{") != 1 {
			t.Errorf("%s the page does not say %q alone:\n%s", when, want, page)
		}
	}
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		tell("while one is under way", `headgate_in_flight_requests{rule="GET /v1/items/{id} at once per ip"} 1`)
	}))
	defer api.Close()
	atOnce := policy.Rule{Endpoint: "GET /v1/items/{id}", Limit: 1, Algorithm: policy.Concurrency,
		Subject: policy.SubjectIP.Counting(policy.CountsUnderWay)}
	ofTier := atOnce
	ofTier.Tier, ofTier.Endpoint = "gold", policy.Default
	p = newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 100}, atOnce, ofTier},
		func(c *config.Config) { c.Upstream = api.URL })
	p.get(t, http.StatusOK)
}
