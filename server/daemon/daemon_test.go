package daemon_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/record"
)

// process is a daemon in this process with an API behind it.
type process struct {
	gate, admin string
	dir         string
	daemon      *daemon.Daemon
}

func newProcess(t *testing.T, rules []policy.Rule, change ...func(*config.Config)) *process {
	t.Helper()
	return newProcessWith(t, daemon.Options{Log: slog.New(slog.DiscardHandler), Version: "test"}, rules, change...)
}

// lateProcess is newProcess for a database that is there, or away.
func lateProcess(t *testing.T, change ...func(*config.Config)) *process {
	t.Helper()
	return newProcessWith(t, daemon.Options{Log: slog.New(slog.DiscardHandler), Version: "test"}, nil, change...)
}

func newProcessWith(t *testing.T, o daemon.Options, rules []policy.Rule, change ...func(*config.Config)) *process {
	t.Helper()
	dir := t.TempDir()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(api.Close)
	c := config.Default()
	c.Listen, c.Admin, c.Upstream = "127.0.0.1:0", "127.0.0.1:0", api.URL
	c.DB = sqlitetest.New(t, filepath.Join(dir, "headgate.db"))
	c.Routes = []string{filepath.Join(dir, "routes.txt")}
	if err := os.WriteFile(c.Routes[0], []byte("GET /v1/items/{id}\nPOST /v1/items\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Engine = cmp.Or(os.Getenv("HEADGATE_TEST_ENGINE"), c.Engine) // as `make long` tries both
	for _, f := range change {
		f(&c)
	}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if rules != nil {
		fill(t, c.DB, rules)
	}
	d, err := daemon.Start(context.Background(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want a clean end", err)
		}
	})
	return &process{gate: "http://" + d.Gateway().String(), admin: "http://" + d.Admin().String(), dir: dir, daemon: d}
}

func fill(t *testing.T, dsn string, rules []policy.Rule) {
	t.Helper()
	db, err := database.Open(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Import(context.Background(), record.Author{Actor: "test"}, policy.Document{Rules: rules},
		true); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// call makes a request and returns status and body.
func call(t *testing.T, method, url, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

const asJSON = "application/json"

func TestAdminChangesPoliciesAtOnce(t *testing.T) {
	p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 100}})
	policies := p.admin + "/v1/policies"
	if code, body := call(t, "PUT", policies, `{"endpoint":"GET /v1/items/{item}","limit":1,"per":"1h"}`,
		"Content-Type", asJSON); code != 200 {
		t.Fatalf("PUT = %d %s", code, body)
	}
	for i, want := range []int{200, 429} {
		if code, _ := call(t, "GET", p.gate+"/v1/items/1", ""); code != want {
			t.Errorf("request %d = %d, want %d: the change is in force when PUT answers", i, code, want)
		}
	}
	var listing struct {
		Rules    int
		Version  string
		Policies []map[string]any
	}
	_, body := call(t, "GET", policies, "")
	if err := json.Unmarshal([]byte(body), &listing); err != nil || listing.Rules != 2 || len(listing.Policies) != 2 ||
		listing.Version == "" {
		t.Errorf("GET = %s, %v, want 2 rules and a version", body, err)
	}
	if code, body := call(t, "DELETE", policies+"?endpoint=GET+/v1/items/{item}", ""); code != 200 {
		t.Errorf("DELETE = %d %s", code, body)
	}
	if code, _ := call(t, "GET", p.gate+"/v1/items/1", ""); code != 200 {
		t.Errorf("after DELETE = %d, want 200", code)
	}
	if code, _ := call(t, "DELETE", policies+"?endpoint=GET+/v1/items/{item}", ""); code != 404 {
		t.Errorf("second DELETE = %d, want 404", code)
	}
	if code, _ := call(t, "POST", p.admin+"/v1/reload", ""); code != 200 {
		t.Errorf("reload = %d, want 200", code)
	}
}

func TestAdminRefusesWhatIsWrong(t *testing.T) {
	p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 100}})
	policies := p.admin + "/v1/policies"
	before := withoutStaleness(t, policies)
	for name, c := range map[string]struct {
		method, url, body string
		header            []string
		code              int
		want              string
	}{
		"limit of zero":    {"PUT", policies, `{"endpoint":"default","limit":0}`, nil, 400, "limit is 0"},
		"limit and a half": {"PUT", policies, `{"endpoint":"default","limit":1.5}`, nil, 400, "limit is 1.5"},
		"huge limit":       {"PUT", policies, `{"endpoint":"default","limit":1e30}`, nil, 400, "limit is 1e30"},
		"does not compile": {"PUT", policies, `{"endpoint":"default","limit":9223372036854775807}`, nil,
			422, "limit is"},
		"unknown field": {"PUT", policies, `{"endpoint":"default","limit":1,"brust":2}`, nil, 400, "brust"},
		"unknown endpoint": {"PUT", policies, `{"endpoint":"GET /v1/item/{id}","limit":1}`, nil, 422,
			"GET /v1/items/{id}"},
		"no template": {"PUT", policies, `{"endpoint":"items","limit":1}`, nil, 422, "endpoint is"},
		"two rules": {"PUT", policies, `{"endpoint":"default","limit":1},{"endpoint":"*","limit":1}`, nil,
			400, "not JSON"},
		"smuggled projects": {"PUT", policies,
			`{"endpoint":"default","limit":1}],"projects":{"a":"b"},"rules":[{"endpoint":"*","limit":1}`, nil,
			400, "not JSON"},
		"a list": {"PUT", policies, `[]`, nil, 400, "rules[0]"},
		"a form": {"PUT", policies, `endpoint=default`,
			[]string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "application/json"},
		"too large": {"PUT", policies, `{"endpoint":"` + strings.Repeat("a", 1<<20) + `"}`, nil, 413,
			"more than 1048576 bytes"},
		"unknown query":       {"DELETE", policies + "?endpoint=default&id=3", "", nil, 400, `"id"`},
		"nothing to delete":   {"DELETE", policies, "", nil, 400, "endpoint is missing"},
		"unknown path":        {"GET", p.admin + "/v2", "", nil, 404, "/v1/openapi.yaml"},
		"wrong method":        {"POST", policies, `{}`, nil, 405, "DELETE and GET and PUT"},
		"explain of nothing":  {"POST", p.admin + "/v1/explain", `{}`, nil, 400, "method is"},
		"explain with extras": {"POST", p.admin + "/v1/explain", `{"methd":"GET"}`, nil, 400, "methd"},
		"another site": {"PUT", policies, `{"endpoint":"default","limit":1}`,
			[]string{"Origin", "https://evil.example", "Content-Type", asJSON}, 403, ""},
		"rebound name": {"GET", policies, "", []string{"Host", "evil.example"}, 403, "localhost"},
	} {
		t.Run(name, func(t *testing.T) {
			header := c.header
			if header == nil {
				header = []string{"Content-Type", asJSON}
			}
			code, body := call(t, c.method, c.url, c.body, header...)
			if code != c.code || !strings.Contains(body, jsonText(c.want)) {
				t.Errorf("%s = %d %s, want %d that says %q", c.method, code, body, c.code, c.want)
			}
		})
	}
	if after := withoutStaleness(t, policies); after != before {
		t.Errorf("refused changes changed the rules to\n%s, want\n%s", after, before)
	}
}

func jsonText(s string) string {
	text, _ := json.Marshal(s)
	return strings.Trim(string(text), `"`)
}

func withoutStaleness(t *testing.T, url string) string {
	t.Helper()
	_, body := call(t, "GET", url, "")
	return regexp.MustCompile(`"stale_seconds":[^,]*,`).ReplaceAllString(body, "")
}

func TestMetricsCountByRuleAndReason(t *testing.T) {
	p := newProcess(t, []policy.Rule{
		{Endpoint: "GET /v1/items/{id}", Limit: 2, Per: 3600e9},
		{Endpoint: policy.Default, Limit: 100},
		{Endpoint: policy.All, Limit: 1, Per: 3600e9, Subject: policy.SubjectIP, Mode: policy.Shadow, Name: "try"},
	})
	for range 5 {
		call(t, "GET", p.gate+"/v1/items/1", "", "X-Api-Key", "hg_nonsense")
	}
	for i := range 20 {
		call(t, "GET", p.gate+fmt.Sprintf("/random/%d", i), "")
	}
	_, page := call(t, "GET", p.admin+"/metrics", "")
	for _, want := range []string{
		`headgate_allowed_total{rule="GET /v1/items/{id}"} 2`,
		`headgate_denied_total{reason="over_limit",rule="GET /v1/items/{id}"} 3`,
		`headgate_denied_total{reason="unknown_endpoint",rule=""} 20`,
		`headgate_shadow_denied_total{rule="try"} 4`,
		`headgate_credentials_rejected_total{reason="key_malformed"} 5`,
		"headgate_buckets 2", "headgate_policy_rules 3", "headgate_policy_reload_ok 1", "headgate_policy_from_disk 0",
		"headgate_policy_staleness_seconds", `headgate_policy_info{version="`, `headgate_build_info{version="test"} 1`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the metrics lack %s:\n%s", want, ours(page))
		}
	}
	if strings.Contains(page, "random") || strings.Contains(page, "nonsense") {
		t.Errorf("the metrics repeat what a client sent:\n%s", ours(page))
	}
}

func ours(page string) string {
	var b strings.Builder
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "headgate_") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestExplainOverHTTP(t *testing.T) {
	p := newProcess(t, []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 1, Per: 3600e9}})
	call(t, "GET", p.gate+"/v1/items/1", "")
	for name, ask := range map[string]func() (int, string){
		"POST": func() (int, string) {
			return call(t, "POST", p.admin+"/v1/explain",
				`{"method":"GET","target":"/v1/items/2?x=1","peer":"127.0.0.1"}`, "Content-Type", asJSON)
		},
		"GET": func() (int, string) {
			return call(t, "GET", p.admin+"/v1/explain?method=GET&target=%2Fv1%2Fitems%2F2%3Fx%3D1", "")
		},
	} {
		code, body := ask()
		var x struct {
			Canonical string
			Verdict   struct{ Reason, Rule string }
		}
		if err := json.Unmarshal([]byte(body), &x); err != nil || code != 200 || x.Canonical != "/v1/items/2" ||
			x.Verdict.Reason != "over_limit" || x.Verdict.Rule != "GET /v1/items/{id}" {
			t.Errorf("%s explain = %d %s, %v", name, code, body, err)
		}
	}
}

func TestUnknownModes(t *testing.T) {
	rules := []policy.Rule{{Endpoint: policy.Default, Limit: 100},
		{Endpoint: policy.UnknownEndpoint, Limit: 1, Per: 3600e9}}
	rejecting := newProcess(t, rules)
	if code, _ := call(t, "GET", rejecting.gate+"/nowhere", ""); code != 404 {
		t.Errorf("unknown under reject = %d, want 404", code)
	}
	limiting := newProcess(t, rules, func(c *config.Config) { c.Unknown = "limit" })
	for i, want := range []int{200, 429} {
		if code, _ := call(t, "GET", limiting.gate+fmt.Sprintf("/nowhere/%d", i), ""); code != want {
			t.Errorf("unknown request %d under limit = %d, want %d", i, code, want)
		}
	}
}

func TestCostsComeFromTheConfiguration(t *testing.T) {
	p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 10, Per: 3600e9}},
		func(c *config.Config) { c.Costs = map[string]int64{"POST /v1/items": 4} })
	for i, want := range []int{200, 200, 429} {
		if code, _ := call(t, "POST", p.gate+"/v1/items", ""); code != want {
			t.Errorf("request %d at cost 4 of 10 = %d, want %d", i, code, want)
		}
	}
}

// net/http answers "OPTIONS *" by itself unless told not to.
func TestOptionsOfTheServerIsNotAnsweredUnseen(t *testing.T) {
	p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 100}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.gate, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "OPTIONS * HTTP/1.1\r\nHost: api\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != http.StatusBadRequest {
		t.Errorf("OPTIONS * = %v, %v, want 400", response, err)
	}
}

// A cost that no bucket can hold is found at the start, not by a client.
func TestStartRefusesImpossibleCosts(t *testing.T) {
	dir := t.TempDir()
	c := config.Default()
	c.Listen, c.Admin, c.Upstream = "127.0.0.1:0", "127.0.0.1:0", "http://127.0.0.1:1"
	c.DB, c.Routes = "sqlite:"+filepath.Join(dir, "headgate.db"), []string{filepath.Join(dir, "routes.txt")}
	if err := os.WriteFile(c.Routes[0], []byte("GET /a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Costs = map[string]int64{"GET /a": 11, "GET /b": 2}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	fill(t, c.DB, []policy.Rule{{Endpoint: policy.Default, Limit: 10}})
	start := func() error {
		_, err := daemon.Start(context.Background(), c, daemon.Options{Log: slog.New(slog.DiscardHandler)})
		return err
	}
	if err := start(); err == nil || !strings.Contains(err.Error(), `endpoint is "GET /b"`) {
		t.Errorf("Start with a cost for no endpoint = %v, want it named", err)
	}
	delete(c.Costs, "GET /b")
	if err := start(); err == nil || !strings.Contains(err.Error(), "11 or more, the cost of GET /a") {
		t.Errorf("Start with a cost above the burst = %v, want both named", err)
	}
}
