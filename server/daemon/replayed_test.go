package daemon_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/replay"
)

// TestADecisionLogIsDecidedAgain: what a gateway decided of many callers at once, by address and by token,
// under rules of several subjects, with costs, a penalty, a block, batches, messages and operations of GraphQL,
// is decided again as it was when its decision log is replayed under its rules: each decision, and by the same
// rule.
func TestADecisionLogIsDecidedAgain(t *testing.T) {
	rules := []policy.Rule{
		{Endpoint: policy.Default, Limit: 40, Burst: 5, Name: "everybody"},
		{Endpoint: policy.Default, Project: "acme", Limit: 90, Burst: 9, Name: "acme"},
		{Endpoint: policy.All, Subject: policy.SubjectIP, Limit: 200, Burst: 30, Name: "addresses"},
		{Endpoint: "POST /v1/items", Subject: policy.SubjectEndpoint, Limit: 60, Burst: 8, Name: "together"},
		{Endpoint: "GET /v1/carts/{id}", Limit: 20, Burst: 2, Name: "carts",
			Penalty: "3 in 1s for 1s with addresses"},
		{Endpoint: policy.All, Mode: policy.Block},
		{Endpoint: "POST /v1/rpc", Limit: 10, Per: time.Hour, Burst: 30, Name: "calls"},
		{Endpoint: "POST /v1/rpc", Limit: 30, Per: time.Hour, Burst: 12, Name: "how many"},
		{Endpoint: "POST /v1/graphql", Limit: 300, Burst: 60, Name: "operations"},
		{Endpoint: "MCP /v1/mcp/tools/call/report", Limit: 10, Per: time.Hour, Burst: 3, Name: "reports"},
		{Endpoint: "GET /v1/rpc?action=list", Limit: 9, Per: 24 * time.Hour, Algorithm: policy.Calendar, Name: "lists"},
		{Endpoint: "GET /v1/items/{id}", Limit: 20, Per: 10 * time.Second, Algorithm: policy.LeakyBucket,
			Name: "items"},
	}
	for i, subject := range map[int]string{5: "ip:192.0.2.0/24", 7: "requests:principal"} {
		if err := rules[i].SetSubject(subject); err != nil {
			t.Fatal(err)
		}
	}
	var conf config.Config
	dir := t.TempDir()
	written := filepath.Join(dir, "decisions.log")
	exp := time.Now().Unix() + 300
	const batches = 9
	t.Run("a gateway", func(t *testing.T) { // whose end writes the last lines
		p := newProcess(t, rules, withSecret(t), func(c *config.Config) {
			c.DecisionLog.File, c.DecisionLog.PerSecond, c.DecisionLog.AdmittedOneIn = written, 100_000, 1
			c.TrustedProxies, c.MaxWait = []string{"127.0.0.1"}, 30*time.Millisecond
			c.Costs = map[string]int64{"POST /v1/items": 3, "POST /v1/rpc": 2}
			c.Batches = []config.Batch{{Endpoint: "POST /v1/rpc"}}
			c.MCP = []config.MCP{{Endpoint: "POST /v1/mcp"}}
			schema := filepath.Join(dir, "people.graphql")
			if err := os.WriteFile(schema, []byte(people), 0o600); err != nil {
				t.Fatal(err)
			}
			c.GraphQL = []config.GraphQL{{Endpoints: []string{"POST /v1/graphql"}, Schema: schema}}
			routes := filepath.Join(dir, "routes.txt")
			if err := os.WriteFile(routes, []byte("GET /v1/items/{id}\nPOST /v1/items\nGET /v1/carts/{id}\n"+
				"GET /v1/files/{path...}\nGET /v1/rpc?action=list\n"+
				"POST /v1/rpc\nPOST /v1/graphql\nPOST /v1/mcp\nMCP /v1/mcp/tools/call/report\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c.Routes = []string{routes}
			conf = *c
		})
		ask := func(rng *rand.Rand, address, token string, targets ...string) {
			r, err := http.NewRequest("GET", p.gate+targets[rng.IntN(len(targets))], nil)
			if err != nil {
				t.Error(err)
				return
			}
			text := ""
			switch r.URL.Path + r.URL.RawQuery {
			case "/v1/items":
				r.Method = "POST"
			case "/v1/rpc":
				r.Method, text = "POST", "["+strings.Repeat("{},", rng.IntN(9))+"{}]"
			case "/v1/graphql":
				one := fmt.Sprintf(`{"query":"{people(first:%d){name}}"}`, 1+rng.IntN(20))
				r.Method, text = "POST", []string{one, "[" + one + ", " + one + "]"}[rng.IntN(2)]
			case "/v1/mcp":
				tools := [...]string{"report", "search"}
				r.Method, text = "POST", `{"id":1,"method":"tools/call","params":{"name":"`+tools[rng.IntN(2)]+`"}}`
			}
			if text != "" {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
				r.Header.Set("Content-Type", "application/json")
			}
			r.Header.Set("X-Forwarded-For", address)
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			_ = answer.Body.Close()
		}
		var callers sync.WaitGroup
		for n := range 6 {
			callers.Go(func() { // each alone with its buckets: of requests at once nobody knows which came first
				rng, token := rand.New(rand.NewPCG(uint64(n), 16)), ""
				switch {
				case n >= 4:
					token = signed(tokenSecret, `{"iss":"me","aud":"api","sub":"s%d","exp":%d,"org":{"id":"acme"}}`,
						n, exp)
				case n == 3:
					token = signed(tokenSecret, `{"iss":"me","aud":"api","sub":"s%d","exp":%d}`, n, exp)
				}
				for range 150 {
					ask(rng, fmt.Sprintf("198.51.100.%d", n), token, "/v1/items/7", "/v1/carts/8", "/v1/files/a/b",
						"/v1/rpc?action=list&x=1", "/v1/rpc", "/v1/mcp", "/v1/graphql", "/v1/nothing",
						"/v1/items/%2e%2e/x")
				}
			})
		}
		callers.Wait()
		rng := rand.New(rand.NewPCG(7, 16))
		for range 60 { // what they share
			ask(rng, fmt.Sprintf("203.0.113.%d", rng.IntN(3)), "", "/v1/items", "/v1/items/9")
			ask(rng, "192.0.2.1", "", "/v1/items/9")
		}
		for range batches { // of calls alone, which are over before those of the address are, however quick all is
			ask(rng, "203.0.113.7", "", "/v1/rpc")
		}
	})
	got, side, _ := decidedAgain(t, conf, rules, written)
	if got.Format != "decisions" || got.Unread != 0 || got.Missing != 0 || got.Lines != 6*150+2*60+batches {
		t.Errorf("%d lines as %s, %d unread %v, %d missing; want all of %d", got.Lines, got.Format, got.Unread,
			got.Faults, got.Missing, 6*150+2*60+batches)
	}
	if got.Settled["blocked"] != 60 || got.Settled["unknown_endpoint"]+got.Settled["invalid_target"] == 0 {
		t.Errorf("settled otherwise: %v, want 60 blocked, and what has no endpoint", got.Settled)
	}
	if side.Different != 0 || side.Same != got.Requests || side.Denied == 0 || side.Allowed == 0 {
		t.Errorf("%d of %d decisions are as they were, %d are not; %d allowed, %d denied", side.Same, got.Requests,
			side.Different, side.Allowed, side.Denied)
	}
	denied(t, side, "calls", "how many", "reports", "lists", "items")
	for _, rule := range side.Rules {
		t.Logf("%-10s %4d allowed, %4d denied", rule.Rule, rule.Allowed, rule.Denied)
	}
}

// decidedAgain is what comes of a log of decisions under rules, and by which limiter.
func decidedAgain(t *testing.T, conf config.Config, rules []policy.Rule, written string) (*replay.Report, *replay.Side,
	*headgate.Limiter) {
	t.Helper()
	r, err := replay.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := daemon.Rehearsal(conf, policy.Document{Rules: rules}, r.Clock, r.Lowered())
	if err != nil {
		t.Fatal(err)
	}
	r.Use(replay.Rules{Name: "as then", Limiter: limiter})
	log, err := os.Open(written)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := r.Read(t.Context(), "decisions.log", log); err != nil {
		t.Fatal(err)
	}
	got := r.Report()
	return got, got.Sides[0], limiter
}

// denied checks that rules have denied somebody.
func denied(t *testing.T, side *replay.Side, names ...string) {
	t.Helper()
	for _, name := range names {
		if !slices.ContainsFunc(side.Rules, func(r replay.RuleCount) bool { return r.Rule == name && r.Denied > 0 }) {
			t.Errorf("%q denied nobody: %v", name, side.Rules)
		}
	}
}
