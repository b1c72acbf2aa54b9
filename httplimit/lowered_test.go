package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestClientsAreToldOfALoweredRate: fields say the limit that is in force, in whole tokens and seconds and never more
// than it is, and when there is more.
func TestClientsAreToldOfALoweredRate(t *testing.T) {
	for name, c := range map[string]struct {
		rule   policy.Rule
		part   int
		policy string
		legacy string
		quota  string // after the last token
	}{
		"a half":    {policy.Rule{Limit: 20}, 512, `;q=10;w=1;headgate-burst=20`, "10", `;r=0;t=1`},
		"a third":   {policy.Rule{Limit: 20}, 341, `;q=6;w=1;headgate-burst=20`, "6", `;r=0;t=1`},
		"a minute":  {policy.Rule{Limit: 1, Per: time.Minute}, 512, `;q=1;w=120`, "1", `;r=0;t=120`},
		"of few":    {policy.Rule{Limit: 3, Per: time.Minute}, 410, `;q=3;w=150`, "3", `;r=0;t=50`},
		"the whole": {policy.Rule{Limit: 20}, adaptive.Whole, `;q=20;w=1`, "20", `;r=0;t=1`},
	} {
		table := &adaptive.Table{}
		c.rule.Endpoint = "GET /a"
		b := trial.New(t, []string{"GET /a"}, []policy.Rule{c.rule}, func(o *headgate.Options) { o.Adaptive = table })
		table.Use(map[string]adaptive.Settings{"GET /a": {SLO: time.Second, Floor: c.part}}, b.Now.UnixNano())
		for range 15 {
			for n := range uint64(60) {
				table.Named("GET /a").Sent(b.Now.UnixNano(), n)
				table.Named("GET /a").Answered(b.Now.UnixNano(), n, 2*time.Second, false)
			}
			b.Now = b.Now.Add(2 * time.Second)
		}
		h := httplimit.Handler(b.Limiter, http.NotFoundHandler(), httplimit.Options{Legacy: httplimit.DeltaSeconds})
		get := func() http.Header {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil)
			r.RemoteAddr = trial.Client.String() + ":1"
			h.ServeHTTP(w, r)
			return w.Header()
		}
		header := get()
		for range c.rule.Limit - 1 {
			header = get()
		}
		if got := header.Get("RateLimit-Policy"); got != `"GET /a"`+c.policy {
			t.Errorf("%s: RateLimit-Policy %s, want %s", name, got, c.policy)
		}
		if got := header.Get("RateLimit"); got != `"GET /a"`+c.quota {
			t.Errorf("%s: RateLimit %s, want %s", name, got, c.quota)
		}
		if got := header.Get("X-RateLimit-Limit"); got != c.legacy {
			t.Errorf("%s: X-RateLimit-Limit %s, want %s", name, got, c.legacy)
		}
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil)
		r.RemoteAddr = trial.Client.String() + ":1"
		h.ServeHTTP(w, r)
		said := strings.Contains(w.Body.String(), "for the moment")
		if w.Code != http.StatusTooManyRequests || said != (c.part < adaptive.Whole) {
			t.Errorf("%s: answered %d %s", name, w.Code, w.Body)
		}
	}
}
