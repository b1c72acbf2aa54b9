package daemon_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// TestModelsHaveLimits: by both engines, a model with a template has its own budget of tokens and of requests, all or
// none; a model that nobody lists is blocked where the endpoint is; what cannot be told for sure reaches nobody; a
// reload that takes a template away makes its model one of all, and one that takes the endpoint away is refused.
func TestModelsHaveLimits(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			var got atomic.Value
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				got.Store(r.Method + " " + r.RequestURI + " " + string(text))
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":10,"completion_tokens":20}}`)
			}))
			defer api.Close()
			routes := filepath.Join(t.TempDir(), "routes.txt")
			list := func(text string) {
				t.Helper()
				if err := os.WriteFile(routes, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			list("POST /v1/chat\nMODEL /v1/chat/large\nMODEL /v1/chat/fast-{version}\n")
			rules := []policy.Rule{
				{Endpoint: "MODEL /v1/chat/large", Limit: 1000, Per: time.Hour},
				{Endpoint: "MODEL /v1/chat/large", Limit: 2, Per: time.Hour,
					Subject: policy.SubjectPrincipal.Counting(policy.CountsRequests)},
				{Endpoint: "MODEL /v1/chat/fast-{version}", Limit: 100, Per: time.Hour},
				{Endpoint: "POST /v1/chat", Mode: policy.Block},
				{Endpoint: policy.All, Limit: 5000, Per: time.Hour},
				{Endpoint: policy.Default, Limit: 1e6},
			}
			if err := rules[3].SetSubject("ip:127.0.0.0/8"); err != nil {
				t.Fatal(err)
			}
			r := newReloading(t, rules, func(c *config.Config) {
				c.Upstream, c.Engine, c.Routes = api.URL, engine, append(c.Routes, routes)
				c.LanguageModels = []config.LanguageModel{{Endpoints: []string{"POST /v1/chat"}, AtEnd: "cut"}}
			})
			ask := func(text string) int {
				t.Helper()
				got.Store("")
				answer, err := http.Post(r.gate+"/v1/chat", "application/json", strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				want := ""
				if answer.StatusCode == 200 {
					want = "POST /v1/chat " + text
				}
				if got.Load() != want {
					t.Errorf("%s: %d, and the API got %q", text, answer.StatusCode, got.Load())
				}
				return answer.StatusCode
			}
			body := func(model string) string { return `{"model":"` + model + `","max_tokens":40,"messages":[]}` }
			for i, step := range []struct {
				text string
				want int
			}{
				{body("large"), 200}, {body(`l\u0061rge`), 200}, {body("large"), 429}, // requests
				{body("fast-1"), 200}, {body("fast-2"), 200}, {body("fast-3"), 429}, // tokens: 60 of 100 are gone
				{body("Large"), 403}, {body("nobody's"), 403}, {`{"messages":[]}`, 403},
				{`{"model":"fast-1","model":"large"}`, 400}, {`[` + body("large") + `]`, 400},
			} {
				if status := ask(step.text); status != step.want {
					t.Errorf("step %d, %s: %d, want %d", i, step.text, status, step.want)
				}
			}
			list("POST /v1/chat\nMODEL /v1/chat/fast-{version}\n")
			r.reload(t)
			if status := ask(body("large")); status != 403 {
				t.Errorf("a model without a template: %d, want 403, as all others", status)
			}
			r.fails(t, "language_models: openapi or routes has", func(c *config.Config) { c.LanguageModels = nil })
			list("POST /v1/chat\n")
			r.reload(t)
			if status := ask(`{"model":"a","model":"b"}`); status != 403 { // nobody asks which it is
				t.Errorf("two models, and none has a template: %d, want 403", status)
			}
		})
	}
}
