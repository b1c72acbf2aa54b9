package operations

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

const (
	rule   = "GET /v1/customers/{customer}"
	target = "/v1/customers/42"

	// effect is the promise: a change acts within this time.
	effect = time.Second

	// patience is how long a machine that is busy may take to what takes that
	// long on one that is not.
	patience = time.Minute
)

func documents(t *testing.T, names ...string) []string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, name := range names {
		args = append(args, "--openapi", filepath.Join(root, "server", "openapi", "testdata", name))
	}
	return args
}

const stripe = "stripe-spec3.json.gz"

// start runs a gateway over Stripe's endpoints with rules that are set by CLI.
func start(t *testing.T, dir string, args ...string) (*harness.Gateway, *harness.Upstream) {
	t.Helper()
	api := harness.NewUpstream(t)
	return harness.Serve(t, dir, append(append([]string{"--upstream", api.URL}, documents(t, stripe)...), args...)...),
		api
}

func setLimit(t *testing.T, dir string, limit string) {
	t.Helper()
	harness.Run(t, dir, "policy", "set", rule, limit, "--db", "sqlite:headgate.db")
}

// limitInForce reads the policy that an answer states.
func limitInForce(t *testing.T, g *harness.Gateway) string {
	t.Helper()
	response, err := http.Get(g.URL + target)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, after, _ := strings.Cut(response.Header.Get("RateLimit-Policy"), ";q=")
	limit, _, _ := strings.Cut(after, ";")
	return limit
}

// expectLimit waits until a limit is in force, and reports how long that took.
func expectLimit(t *testing.T, g *harness.Gateway, want string) time.Duration {
	t.Helper()
	began := time.Now()
	if !harness.Eventually(patience, func() bool { return limitInForce(t, g) == want }) {
		t.Fatalf("the limit in force is %s after %v, want %s", limitInForce(t, g), patience, want)
	}
	took := time.Since(began)
	t.Logf("in force after %v", took.Round(time.Millisecond))
	return took
}

func sqlite(t *testing.T, dir, statement string) {
	t.Helper()
	cmd := exec.Command("sqlite3", "-cmd", ".timeout 5000", filepath.Join(dir, "headgate.db"), statement)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("sqlite3 %s: %v\n%s", statement, err, out)
	}
}

// TestChangesActWithinASecond changes a rule in every way there is, from other
// processes, and watches the running gateway. A busy machine may hold up some
// changes: the quickest in each way keeps the promise.
func TestChangesActWithinASecond(t *testing.T) {
	dir := t.TempDir()
	setLimit(t, dir, "1000")
	g, _ := start(t, dir)
	expectLimit(t, g, "1000")
	quickest := map[string]time.Duration{"the command": patience, "the admin API": patience, "plain SQL": patience}
	expect := func(way string, limit int) {
		t.Helper()
		quickest[way] = min(quickest[way], expectLimit(t, g, fmt.Sprint(limit)))
	}
	for i := range 5 {
		limit := 2000 + 10*i
		setLimit(t, dir, fmt.Sprint(limit))
		expect("the command", limit)

		body, _ := json.Marshal(map[string]any{"endpoint": rule, "limit": limit + 1})
		request, _ := http.NewRequest(http.MethodPut, g.Admin+"/v1/policies", bytes.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		if response, err := http.DefaultClient.Do(request); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("PUT /v1/policies = %v, %v", response, err)
		}
		expect("the admin API", limit+1)

		sqlite(t, dir, fmt.Sprintf("UPDATE policies SET rps_limit = %d", limit+2))
		expect("plain SQL", limit+2)
	}
	for way, took := range quickest {
		if took > effect {
			t.Errorf("the quickest of five changes by %s was in force after %v, want it within %v", way, took, effect)
		}
	}
}

func TestKeysAct(t *testing.T) {
	dir := t.TempDir()
	harness.Run(t, dir, "policy", "set", "default", "1000", "--db", "sqlite:headgate.db")
	harness.Run(t, dir, "policy", "set", "default", "7777", "--project", "acme", "--db", "sqlite:headgate.db")
	g, _ := start(t, dir)
	key := createKey(t, dir, "acme")
	limit := func() string {
		request, _ := http.NewRequest(http.MethodGet, g.URL+target, nil)
		request.Header.Set("X-Api-Key", key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.Header.Get("RateLimit-Policy")
	}
	if !harness.Eventually(patience, func() bool { return strings.Contains(limit(), "q=7777") }) {
		t.Errorf("with a new key the policy is %s, want acme's 7777", limit())
	}
	var keys []struct{ ID string }
	if err := json.Unmarshal([]byte(harness.Run(t, dir, "key", "list", "--json", "--db", "sqlite:headgate.db")),
		&keys); err != nil || len(keys) != 1 {
		t.Fatalf("key list: %v, %v", keys, err)
	}
	harness.Run(t, dir, "key", "revoke", keys[0].ID, "--db", "sqlite:headgate.db")
	if !harness.Eventually(patience, func() bool { return strings.Contains(limit(), "q=1000") }) {
		t.Errorf("with a revoked key the policy is %s, want everybody's 1000", limit())
	}
	if strings.Contains(g.Log(), key) || strings.Contains(harness.Get(t, g.Admin+"/metrics"), key) {
		t.Error("the key stands in the log or the metrics")
	}
}

// createKey returns the key alone, as a script would take it.
func createKey(t *testing.T, dir, project string) string {
	t.Helper()
	cmd := exec.Command(harness.Binary(t), "key", "create", "--project", project, "--name", "test", "--db",
		"sqlite:headgate.db")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestBrokenChangesKeepTheLastGoodRules writes, by plain SQL, what does not
// compile, and everything away.
func TestBrokenChangesKeepTheLastGoodRules(t *testing.T) {
	for name, statement := range map[string]string{
		"no template":   "INSERT INTO policies (endpoint, rps_limit) VALUES ('no template', 5)",
		"overflow":      "UPDATE policies SET rps_limit = 9223372036854775807, per_seconds = 86400",
		"all deleted":   "DELETE FROM policies",
		"table gone":    "DROP TABLE policies",
		"column gone":   "ALTER TABLE policies RENAME COLUMN rps_limit TO speed",
		"two of a kind": "INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /v1/customers/{id}', 5)",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			setLimit(t, dir, "1000")
			g, _ := start(t, dir)
			expectLimit(t, g, "1000")
			sqlite(t, dir, statement)
			if !harness.Eventually(patience, func() bool { return g.Metric(t, "headgate_policy_reload_ok ") == "0" }) {
				t.Errorf("headgate_policy_reload_ok = %s, want 0", g.Metric(t, "headgate_policy_reload_ok "))
			}
			if failures := g.Metric(t, "headgate_policy_reload_failures_total "); failures == "0" || failures == "" {
				t.Errorf("headgate_policy_reload_failures_total = %q, want above 0", failures)
			}
			if !g.Says("last good") {
				t.Errorf("the log does not say that the last good rules stay:\n%s", g.Log())
			}
			if limit := limitInForce(t, g); limit != "1000" {
				t.Errorf("the limit in force is %s, want the last good 1000", limit)
			}
		})
	}
}

func TestMendedChangesAreTaken(t *testing.T) {
	dir := t.TempDir()
	setLimit(t, dir, "1000")
	g, _ := start(t, dir)
	sqlite(t, dir, "INSERT INTO policies (endpoint, rps_limit) VALUES ('no template', 5)")
	if !harness.Eventually(patience, func() bool { return g.Metric(t, "headgate_policy_reload_ok ") == "0" }) {
		t.Fatal("the broken change was not noticed")
	}
	sqlite(t, dir, "DELETE FROM policies WHERE endpoint = 'no template'; UPDATE policies SET rps_limit = 500")
	expectLimit(t, g, "500")
	if !harness.Eventually(patience, func() bool { return g.Metric(t, "headgate_policy_reload_ok ") == "1" }) {
		t.Error("headgate_policy_reload_ok stays 0 after the change was mended")
	}
}

// TestUnreadableDatabaseServesTheLastGoodRules starts the gateway where its
// database has been ruined.
func TestUnreadableDatabaseServesTheLastGoodRules(t *testing.T) {
	for name, ruin := range map[string]func(path string) error{
		"garbage": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("garbage "), 4096), 0o600) },
		"gone":    os.Remove,
		"a folder": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
		"cut short": func(path string) error { return os.Truncate(path, 5000) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			setLimit(t, dir, "1234")
			harness.Run(t, dir, "policy", "set", rule, "4321", "--project", "acme", "--db", "sqlite:headgate.db")
			key := createKey(t, dir, "acme")
			before, _ := start(t, dir)
			expectLimit(t, before, "1234")
			before.Kill()
			for _, beside := range []string{"-wal", "-shm"} {
				_ = os.Remove(filepath.Join(dir, "headgate.db"+beside))
			}
			if err := ruin(filepath.Join(dir, "headgate.db")); err != nil {
				t.Fatal(err)
			}

			g, _ := start(t, dir)
			if limit := limitInForce(t, g); limit != "1234" {
				t.Errorf("the limit in force is %s, want the last good 1234", limit)
			}
			request, _ := http.NewRequest(http.MethodGet, g.URL+target, nil)
			request.Header.Set("X-Api-Key", key)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if got := response.Header.Get("RateLimit-Policy"); !strings.Contains(got, "q=4321") {
				t.Errorf("with acme's key the policy is %s, want acme's 4321", got)
			}
			if fromDisk := g.Metric(t, "headgate_policy_from_disk "); fromDisk != "1" {
				t.Errorf("headgate_policy_from_disk = %q, want 1", fromDisk)
			}
			if !g.Says("headgate.db") || !g.Says("last good") {
				t.Errorf("the log does not say what is served and why:\n%s", g.Log())
			}
		})
	}
}

// TestUnreadableKeysDoNotKeepTheGatewayDown starts where the rules' copy is
// left and the keys' is not.
func TestUnreadableKeysDoNotKeepTheGatewayDown(t *testing.T) {
	dir := t.TempDir()
	setLimit(t, dir, "1234")
	before, _ := start(t, dir)
	before.Kill()
	for _, lost := range []string{"", "-wal", "-shm", ".last-good.keys.json"} {
		_ = os.Remove(filepath.Join(dir, "headgate.db"+lost))
	}
	g, _ := start(t, dir)
	if limit := limitInForce(t, g); limit != "1234" {
		t.Errorf("the limit in force is %s, want the last good 1234", limit)
	}
	if !g.Says("keys are ignored") {
		t.Errorf("the log does not say what becomes of keys:\n%s", g.Log())
	}
}

// TestKillLosesNothing kills writers and the gateway at random moments: every
// rule and key that was acknowledged is there afterwards, and nothing is torn.
func TestKillLosesNothing(t *testing.T) {
	dir := t.TempDir()
	setLimit(t, dir, "1")
	binary := harness.Binary(t)
	acknowledged := 0
	keys := map[string]bool{}
	for i := range 40 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+i%20)*2*time.Millisecond)
		endpoint := fmt.Sprintf("GET /v1/kill/%d", i)
		// SIGKILL at the deadline
		set := exec.CommandContext(ctx, binary, "policy", "set", endpoint, "5", "--db", "sqlite:headgate.db")
		set.Dir = dir
		if set.Run() == nil {
			acknowledged++
			harness.Run(t, dir, "policy", "get", endpoint, "--db", "sqlite:headgate.db")
		}
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(1+i%20)*2*time.Millisecond)
		create := exec.CommandContext(ctx, binary, "key", "create", "--project", "p", "--name", fmt.Sprint("n", i),
			"--db", "sqlite:headgate.db")
		create.Dir = dir
		if out, err := create.Output(); err == nil {
			keys[strings.TrimSpace(string(out))] = true
		}
		cancel()
	}
	if acknowledged == 0 || acknowledged == 40 {
		t.Logf("%d of 40 writers lived to acknowledge: the timing tests only one side on this machine", acknowledged)
	}
	g, _ := start(t, dir)
	g.Kill()
	g, _ = start(t, dir)
	for key := range keys {
		x := harness.Run(t, dir, "explain", "GET", target, "--server", g.Admin, "--header", "X-Api-Key: "+key)
		if !strings.Contains(x, "project p") {
			t.Errorf("an acknowledged key is lost:\n%s", x)
		}
	}
	out, err := exec.Command("sqlite3", filepath.Join(dir, "headgate.db"), "PRAGMA integrity_check").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Errorf("integrity_check = %s, %v", out, err)
	}
}

// TestStopLetsRequestsFinish sends SIGTERM while a request is in flight.
func TestStopLetsRequestsFinish(t *testing.T) {
	dir := t.TempDir()
	harness.Run(t, dir, "policy", "set", "default", "100", "--db", "sqlite:headgate.db")
	arrived, finish := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-finish
		_, _ = io.WriteString(w, "finished")
	}))
	defer slow.Close()
	g := harness.Serve(t, dir, append([]string{"--upstream", slow.URL}, documents(t, stripe)...)...)

	answer := make(chan string, 1)
	go func() {
		response, err := http.Get(g.URL + target)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answer <- response.Status + " " + string(body)
	}()
	<-arrived
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop() }()
	if !g.Says("shutting down") {
		t.Fatal("SIGTERM was not noticed")
	}
	close(finish)
	if got := <-answer; got != "200 OK finished" {
		t.Errorf("the request in flight got %q, want it finished", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("the process ended with %v, want exit status 0", err)
	}
}

// TestRegistries runs the gateway with each document, and with all together.
func TestRegistries(t *testing.T) {
	const petstore, digitalocean = "petstore-openapi.yaml", "digitalocean-public.v2.yaml.gz"
	for name, c := range map[string]struct {
		documents []string
		known     []string
		unknown   []string
	}{
		"stripe": {[]string{stripe}, []string{"/v1/customers/search", "/v1/charges/ch_1"},
			[]string{"/v2/account", "/api/v3/pet/1"}},
		"digitalocean": {[]string{digitalocean}, []string{"/v2/account", "/v2/droplets/7"},
			[]string{"/v1/customers/1"}},
		"petstore": {[]string{petstore}, []string{"/api/v3/pet/1", "/api/v3/store/inventory"}, []string{"/pet/1"}},
		"all three": {[]string{stripe, digitalocean, petstore},
			[]string{"/v1/customers/1", "/v2/account", "/api/v3/pet/1"}, []string{"/v3/account"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			harness.Run(t, dir, "policy", "set", "default", "100", "--db", "sqlite:headgate.db")
			api := harness.NewUpstream(t)
			g := harness.Serve(t, dir, append([]string{"--upstream", api.URL}, documents(t, c.documents...)...)...)
			for path, want := range wants(c.known, c.unknown) {
				response, err := http.Get(g.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				if response.StatusCode != want {
					t.Errorf("GET %s = %d, want %d", path, response.StatusCode, want)
				}
			}
			if served := api.Served.Load(); served != int64(len(c.known)) {
				t.Errorf("the API served %d requests, want the %d known ones", served, len(c.known))
			}
		})
	}
}

func wants(known, unknown []string) map[string]int {
	all := map[string]int{}
	for _, path := range known {
		all[path] = http.StatusOK
	}
	for _, path := range unknown {
		all[path] = http.StatusNotFound
	}
	return all
}

// TestExplainNamesTheDenyingRuleAndTheWait asks a running gateway about a
// request it denies.
func TestExplainNamesTheDenyingRuleAndTheWait(t *testing.T) {
	dir := t.TempDir()
	harness.Run(t, dir, "policy", "set", rule, "1", "--per", "1h", "--burst", "2", "--db", "sqlite:headgate.db")
	harness.Run(t, dir, "policy", "set", "default", "100", "--db", "sqlite:headgate.db")
	g, _ := start(t, dir)
	for range 3 {
		limitInForce(t, g)
	}
	var x struct {
		Canonical string
		Verdict   struct {
			Allowed    bool
			Reason     string
			Rule       string
			RetryAfter time.Duration `json:"retry_after_ns"`
		}
	}
	out := harness.Run(t, dir, "explain", "GET", "/v1/customers/7?x=1", "--server", g.Admin, "--json")
	if err := json.Unmarshal([]byte(out), &x); err != nil {
		t.Fatal(err)
	}
	v := x.Verdict
	if v.Allowed || v.Reason != "over_limit" || v.Rule != rule || v.RetryAfter > time.Hour ||
		v.RetryAfter < time.Hour-time.Minute {
		t.Errorf("verdict = %+v, want denied by %s for just under an hour", v, rule)
	}
	if x.Canonical != "/v1/customers/7" {
		t.Errorf("canonical = %q", x.Canonical)
	}
}

// TestAdminListenerAsksForItsToken tries the admin API with and without.
func TestAdminListenerAsksForItsToken(t *testing.T) {
	dir := t.TempDir()
	setLimit(t, dir, "1000")
	token := "correct horse battery staple"
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, _ := start(t, dir, "--admin-token-file", "token")
	for _, c := range []struct {
		path, authorization string
		want                int
	}{
		{"/healthz", "", 200}, {"/readyz", "", 200},
		{"/metrics", "", 401}, {"/metrics", "Bearer wrong", 401}, {"/metrics", "Bearer " + token, 200},
		{"/v1/policies", "", 401}, {"/v1/policies", "Bearer " + token, 200}, {"/v1/none", "Bearer " + token, 404},
	} {
		request, _ := http.NewRequest(http.MethodGet, g.Admin+c.path, nil)
		if c.authorization != "" {
			request.Header.Set("Authorization", c.authorization)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != c.want {
			t.Errorf("GET %s with %q = %d, want %d", c.path, c.authorization, response.StatusCode, c.want)
		}
	}
}
