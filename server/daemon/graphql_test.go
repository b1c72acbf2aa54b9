package daemon_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

const people = `
type Query { people(first: Int): [Person!]! }
type Person { name: String friends(first: Int): [Person!]! }
`

// TestOperationsCostWhatTheyAskFor: by both engines and both methods; what reaches the API is what was priced, byte for
// byte, what is refused reaches nobody and takes nothing, and a reload reads the schema again, unless it is at fault.
func TestOperationsCostWhatTheyAskFor(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			var got atomic.Value
			got.Store("")
			api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				got.Store(r.RequestURI + " " + string(text))
			}))
			defer api.Close()
			schema := filepath.Join(t.TempDir(), "people.graphql")
			write := func(text string) {
				t.Helper()
				if err := os.WriteFile(schema, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(people)
			r := newReloading(t, []policy.Rule{
				{Endpoint: "POST /v1/items", Limit: 100, Per: time.Hour},
				{Endpoint: "GET /v1/items/{id}", Limit: 100, Per: time.Hour}, {Endpoint: policy.Default, Limit: 1e6},
			}, func(c *config.Config) {
				c.Upstream, c.Engine = api.URL, engine
				c.GraphQL = []config.GraphQL{{Schema: schema, MaxCost: 60,
					Endpoints: []string{"POST /v1/items", "GET /v1/items/{id}"}}}
			})
			send := func(method, target, query string) (status int, said string) {
				t.Helper()
				got.Store("")
				text := ""
				if method == "POST" {
					quoted, _ := json.Marshal(query)
					text = fmt.Sprintf(`{ "query": %s }`, quoted)
				} else {
					target += "?query=" + url.QueryEscape(query)
				}
				request, err := http.NewRequest(method, r.gate+target, strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				if method == "POST" {
					request.Header.Set("Content-Type", "application/json")
				} else {
					request.Body, request.ContentLength = nil, 0
				}
				answer, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				body, _ := io.ReadAll(answer.Body)
				want := ""
				if answer.StatusCode == 200 {
					want = target + " " + text
				}
				if got.Load() != want {
					t.Errorf("%d, and the API got %q, want %q", answer.StatusCode, got.Load(), want)
				}
				return answer.StatusCode, string(body)
			}
			for _, step := range []struct {
				method, target, query string
				want                  int
			}{
				{"POST", "/v1/items", `{people(first:59){name}}`, 200}, // 60
				{"POST", "/v1/items", `{people(first:60){name}}`, 400},
				{"POST", "/v1/items", `{people(first:5){friends(first:10){name}}}`, 429}, // 56, which is more than is left
				{"POST", "/v1/items", `{nobody{name}}`, 400},
				{"GET", "/v1/items/7", `{people(first:49){name}}`, 200}, // a budget of its own: 50
				{"GET", "/v1/items/7", `{people(first:49){name}}`, 200},
				{"GET", "/v1/items/7", `{people(first:1){name}}`, 429},
				{"GET", "/v1/items/7", `{people(first:60){name}}`, 400},
			} {
				if status, said := send(step.method, step.target, step.query); status != step.want {
					t.Errorf("%s %s: %d %s, want %d", step.method, step.query, status, said, step.want)
				}
			}
			if _, said := send("POST", "/v1/items", `{people(first:60){name}}`); said !=
				`{"errors":[{"message":"The operation costs 61, of 60 at most.","extensions":`+
					`{"code":"COST_LIMIT_EXCEEDED"}}]}`+"\n" {
				t.Errorf("the API's clients are told %s", said)
			}
			if _, page := call(t, "GET", r.admin+"/metrics", ""); !strings.Contains(page,
				`headgate_calls_total{fault="costly"} 3`) ||
				!strings.Contains(page, `headgate_calls_total{fault="schema"} 1`) {
				t.Error("the metrics do not tell of three operations that cost too much, and one that asks for nothing")
			}

			for cost, want := range map[string]string{
				"40": "within_limits", "41": "over_limit", "101": "cost_above_burst",
			} {
				_, got := call(t, "GET", r.admin+"/v1/explain?method=POST&target=/v1/items&cost="+cost, "")
				if !strings.Contains(got, `"reason":"`+want+`"`) {
					t.Errorf("cost %s is explained as %s, want %s", cost, got, want)
				}
			}
			if status, _ := call(t, "GET", r.admin+"/v1/explain?method=POST&target=/v1/items&cost=x", ""); status != 400 {
				t.Errorf("%d for a cost that is no number, want 400", status)
			}

			write(strings.Replace(people, "people", "everybody", 1))
			r.reload(t)
			if status, _ := send("POST", "/v1/items", `{people(first:1){name}}`); status != 400 {
				t.Errorf("%d for a field that the schema no longer has, want 400", status)
			}
			if status, _ := send("POST", "/v1/items", `{everybody(first:1){name}}`); status != 200 {
				t.Errorf("%d for a field that the schema has now, want 200", status)
			}
			write("type Query { broken")
			r.fails(t, "graphql[0]: schema: "+schema+":1", func(*config.Config) {})
			if status, _ := send("POST", "/v1/items", `{everybody(first:1){name}}`); status != 200 {
				t.Errorf("%d after a schema that cannot be read, want that of before", status)
			}
			write(people)
			r.fails(t, "graphql[0].endpoints: endpoint is", func(c *config.Config) {
				c.GraphQL[0].Endpoints = []string{"POST /nowhere"}
			})
			r.fails(t, "want a type that the schema has", func(c *config.Config) {
				c.GraphQL[0].Endpoints, c.GraphQL[0].Costs = []string{"POST /v1/items"}, map[string]float64{"Persn": 1}
			})
			r.fails(t, "graphql[0].schema: open", func(c *config.Config) {
				c.GraphQL[0].Costs, c.GraphQL[0].Schema = nil, "nowhere.graphql"
			})
		})
	}
}
