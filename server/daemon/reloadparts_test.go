package daemon_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// reloadsTo has settings changed by a reload, which says that they are, and that nothing waits for a restart.
func (r *reloading) reloadsTo(t *testing.T, changed string, change func(*config.Config)) {
	t.Helper()
	r.edit(change)
	done := r.reload(t).Reload
	if got := strings.Join(done.Changed, " "); got != changed || len(done.Restart) > 0 {
		t.Errorf("changed: %q, wait for a restart: %q; want %q, and none", got, done.Restart, changed)
	}
	r.edit(func(c *config.Config) { r.wrote = *c })
}

// fails has a reload fail, with a text, and what was written before restored.
func (r *reloading) fails(t *testing.T, want string, change func(*config.Config)) {
	t.Helper()
	r.edit(func(c *config.Config) { r.wrote = *c; change(c) })
	if status, body := call(t, "POST", r.admin+"/v1/reload", ""); status != 409 || !strings.Contains(body, want) {
		t.Errorf("reload: %d %s, want 409 with %s", status, body, want)
	}
	r.edit(func(c *config.Config) { *c = r.wrote })
}

// answerTo is the status of the answer to a request as it is written, on a connection of its own; 0 if there is none.
func answerTo(t *testing.T, gate, request string) (int, net.Conn) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(gate, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = io.WriteString(conn, request)
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, conn
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return answer.StatusCode, conn
}

// TestReloadWhatClientsHold: narrower and wider bounds hold for connections and requests that come after a reload, and
// those that are there stay.
func TestReloadWhatClientsHold(t *testing.T) {
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1e6}})
	const plain = "GET /v1/items/1 HTTP/1.1\r\nHost: x\r\n\r\n"
	long := "GET /v1/items/1?" + strings.Repeat("x", 300) + " HTTP/1.1\r\nHost: x\r\n\r\n"
	many := "GET /v1/items/1 HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 20) + "\r\n"
	expect := func(when string, want map[string]int) {
		t.Helper()
		for request, status := range want {
			if got, _ := answerTo(t, r.gate, request); got != status {
				t.Errorf("%s, %.30q: %d, want %d", when, request, got, status)
			}
		}
	}
	expect("before", map[string]int{plain: 200, long: 200, many: 200})
	_, kept := answerTo(t, r.gate, plain)
	wide := config.Default().Clients
	r.reloadsTo(
		t,
		"clients.max_connections_per_address clients.max_headers clients.max_target_bytes",
		func(c *config.Config) {
			c.Clients.MaxHeaders, c.Clients.MaxTargetBytes, c.Clients.MaxPerAddress = 16, 256, 1000
		},
	)
	expect("narrower", map[string]int{plain: 200, long: 414, many: 431})
	_, _ = io.WriteString(kept, plain)
	if answer, err := http.ReadResponse(bufio.NewReader(kept), nil); err != nil || answer.StatusCode != 200 {
		t.Errorf("a connection that was there: %v, %v; want it to stay", answer, err)
	}
	r.fails(
		t,
		"clients.max_connections is 1048576",
		func(c *config.Config) { c.Clients.MaxHeaders, c.Clients.MaxConnections = 128, 1<<20 },
	)
	expect("after a reload that failed", map[string]int{plain: 200, many: 431})
	r.reloadsTo(
		t,
		"clients.max_connections_per_address clients.max_headers clients.max_target_bytes",
		func(c *config.Config) { c.Clients = wide },
	)
	expect("wider again", map[string]int{plain: 200, long: 200, many: 200})

	// A client that is slower than it may be now is cut off, although it came before.
	slow, err := net.Dial("tcp", strings.TrimPrefix(r.gate, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	r.reloadsTo(t, "clients.patience", func(c *config.Config) { c.Clients.Patience = 100 * time.Millisecond })
	_, _ = io.WriteString(slow, "POST /v1/items HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n1")
	_ = slow.SetReadDeadline(time.Now().Add(time.Minute))
	if answer, err := http.ReadResponse(bufio.NewReader(slow), nil); err == nil && answer.StatusCode < 400 {
		t.Errorf("a body that does not come: %d, want the client to be cut off", answer.StatusCode)
	}
}

// TestReloadConnectionsOfAnAddress: as many as a reload says, those from before counted.
func TestReloadConnectionsOfAnAddress(t *testing.T) {
	// The API keeps them waiting: those that wait for their clients would give way to a newcomer, once that takes long.
	arrived := make(chan bool, 2)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			arrived <- true
			<-r.Context().Done()
		}
	}))
	t.Cleanup(api.Close)
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1e6}},
		func(c *config.Config) { c.Upstream = api.URL })
	const begun = "POST /v1/items HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
	hold := func() {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.gate, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, begun)
		<-arrived
	}
	hold()
	hold()
	r.reloadsTo(t, "clients.max_connections_per_address", func(c *config.Config) { c.Clients.MaxPerAddress = 2 })
	if got, _ := answerTo(t, r.gate, "GET /v1/items/1 HTTP/1.1\r\nHost: x\r\n\r\n"); got != 503 {
		t.Errorf("a third connection where two may be: %d, want 503", got)
	}
	r.reloadsTo(t, "clients.max_connections_per_address", func(c *config.Config) { c.Clients.MaxPerAddress = 3 })
	if got, _ := answerTo(t, r.gate, "GET /v1/items/1 HTTP/1.1\r\nHost: x\r\n\r\n"); got != 200 {
		t.Errorf("a third connection where three may be: %d, want 200", got)
	}
}

// TestReloadAdminToken: another token in the file counts from the reload on, and the one before does not; a file that
// cannot be used changes nothing.
func TestReloadAdminToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ops.token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const first, second = "the first token of all", "another one, for all"
	write(first)
	r := newReloading(
		t,
		[]policy.Rule{{Endpoint: policy.Default, Limit: 1e6}},
		func(c *config.Config) { c.AdminTokenFile = file },
	)
	reload := func(token string) (int, string) {
		return call(t, "POST", r.admin+"/v1/reload", "", "Authorization", "Bearer "+token)
	}
	expect := func(token string, status int, text string) {
		t.Helper()
		if got, body := reload(token); got != status || !strings.Contains(body, text) {
			t.Errorf("reload with %q: %d %s, want %d with %s", token, got, body, status, text)
		}
	}
	expect(second, 401, "")
	write("short")
	expect(first, 409, "want 16 or more")
	write(second)
	expect(first, 200, `"admin_token_file"`)
	expect(first, 401, "")
	expect(second, 200, "")
	if said := r.said.String(); strings.Contains(said, first) || strings.Contains(said, second) {
		t.Errorf("the log tells a token: %s", said)
	}
	// Without a file, loopback needs none, unless it is said.
	r.edit(func(c *config.Config) { c.AdminTokenFile, c.AdminAccess.Auth = "", "always" })
	expect(second, 200, "admin_auth")
	expect(second, 401, "")
}

// TestReloadTraces: a collector is told of requests from a reload on, and of none from the next one on.
func TestReloadTraces(t *testing.T) {
	collector := newReceiver(t)
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1e6}})
	r.get(t, "/v1/items/1")
	r.fails(t, "traces.headers_file", func(c *config.Config) {
		c.Traces.Endpoint, c.Traces.OneIn, c.Traces.HeadersFile = collector.URL+"/v1/traces", 1, filepath.Join(
			r.dir,
			"none",
		)
	})
	r.get(t, "/v1/items/1")
	r.reloadsTo(
		t,
		"traces.endpoint traces.one_in",
		func(c *config.Config) { c.Traces.Endpoint, c.Traces.OneIn = collector.URL+"/v1/traces", 1 },
	)
	r.get(t, "/v1/items/1")
	r.reloadsTo(t, "traces.endpoint", func(c *config.Config) { c.Traces.Endpoint = "" }) // which sends what is left
	r.get(t, "/v1/items/1")
	if got := collector.await(t, 2); len(got) != 2 {
		t.Errorf("the collector has %d spans, want two, of one request", len(got))
	}
	if _, page := call(t, "GET", r.admin+"/metrics", ""); strings.Contains(page, "headgate_trace_spans_total{") {
		t.Error("the metrics tell of spans, and there are none")
	}
}

// TestReloadDecisionLog: decisions are written where a reload says, and nowhere after another; what cannot be written
// to changes nothing. A file that ends amid a line costs the next one nothing.
func TestReloadDecisionLog(t *testing.T) {
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1, Per: time.Hour}})
	file := func(name string) string { return filepath.Join(r.dir, name) }
	lines := func(name string) int {
		text, _ := os.ReadFile(file(name))
		return strings.Count("\n"+string(text), "\n{\"time\":") // whole ones begin with it
	}
	killed := []byte(`{"time":"2026-02-01T00:00:00Z","deci`) // of a gateway that could not write the rest
	if err := os.WriteFile(file("c.log"), killed, 0o600); err != nil {
		t.Fatal(err)
	}
	r.get(t, "/v1/items/1")
	r.get(t, "/v1/items/1")
	r.reloadsTo(t, "decision_log.file", func(c *config.Config) { c.DecisionLog.File = file("a.log") })
	r.get(t, "/v1/items/1")
	r.fails(t, "decision_log.file", func(c *config.Config) { c.DecisionLog.File = file("none/b.log") })
	r.get(t, "/v1/items/1")
	r.reloadsTo(
		t,
		"decision_log.file decision_log.per_second",
		func(c *config.Config) { c.DecisionLog.File, c.DecisionLog.PerSecond = file("c.log"), 7 },
	)
	r.get(t, "/v1/items/1")
	r.reloadsTo(t, "decision_log.file", func(c *config.Config) { c.DecisionLog.File = "" })
	r.get(t, "/v1/items/1")
	eventually(t, "lines of decisions", func() bool { return lines("a.log") == 2 && lines("c.log") == 2 })
}

// A decision log that could not be written to, and can be again, says so, and how many lines are missing.
func TestDecisionsAreWrittenDownAgain(t *testing.T) {
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1, Per: time.Hour}})
	folder := filepath.Join(r.dir, "logs")
	r.get(t, "/v1/items/1")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	r.reloadsTo(t, "decision_log.file", func(c *config.Config) { c.DecisionLog.File = filepath.Join(folder, "a.log") })
	if err := errors.Join(os.RemoveAll(folder), os.WriteFile(folder, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	says := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { return strings.Contains(r.said.String(), what) })
	}
	r.get(t, "/v1/items/1")
	says("decisions cannot be written down")
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	r.get(t, "/v1/items/1")
	says(`msg="decisions are written down again" file=` + filepath.Join(folder, "a.log") + " lost_lines=1")
}

// TestReloadWarnings: a warning that began is over for whoever was told of it, when nothing is watched any more; and
// another place hears of the next one.
func TestReloadWarnings(t *testing.T) {
	heard := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		heard <- r.URL.Path + " " + string(body)
	}))
	t.Cleanup(hook.Close)
	hears := func(path, state string) {
		t.Helper()
		select {
		case got := <-heard:
			if !strings.HasPrefix(got, path+" ") || !strings.Contains(got, `"state":"`+state+`"`) {
				t.Errorf("the hook heard %s, want %s at %s", got, state, path)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the hook did not hear of what is %s", state)
		}
	}
	r := newReloading(t, []policy.Rule{{Endpoint: policy.All, Limit: 5, Per: time.Hour, Name: "quota"}}, withSecret(t))
	secret := filepath.Join(r.dir, "hook.secret")
	exp := time.Now().Unix() + 300
	use := func(subject string, times int) {
		t.Helper()
		for range times {
			token := signed(tokenSecret, `{"iss":"me","aud":"api","sub":%q,"exp":%d}`, subject, exp)
			call(t, "GET", r.gate+"/v1/items/1", "", "Authorization", "Bearer "+token)
		}
	}
	watch := func(path string, percent int) func(*config.Config) {
		return func(c *config.Config) {
			c.Warn.CallerPercent, c.Warn.URL, c.Warn.SecretFile = percent, hook.URL+path, secret
		}
	}
	r.fails(t, "warnings.secret_file", watch("/a", 80))
	if err := os.WriteFile(secret, []byte("a secret for the hook"), 0o600); err != nil {
		t.Fatal(err)
	}
	use("ann", 4)
	r.reloadsTo(t, "warnings.caller_percent warnings.url warnings.secret_file", watch("/a", 80))
	use("bob", 4)
	hears("/a", "begun")
	r.reloadsTo(t, "warnings.caller_percent warnings.url", watch("/b", 60))
	use("bob", 1) // of whom was told
	use("cid", 3)
	hears("/b", "begun")
	_, page := call(t, "GET", r.admin+"/metrics", "")
	if want := `headgate_warnings_total{kind="caller_near_limit"} 2`; !strings.Contains(page, want) ||
		!strings.Contains(page, `headgate_warnings{kind="caller_near_limit"} 2`) {
		t.Errorf("the metrics lack %s, or that both are active", want)
	}
	r.reloadsTo(
		t,
		"warnings.caller_percent warnings.url warnings.secret_file",
		func(c *config.Config) { c.Warn = config.Default().Warn },
	)
	hears("/b", "over")
	hears("/b", "over")
	if _, page := call(t, "GET", r.admin+"/metrics", ""); strings.Contains(page, "headgate_warnings_total{") {
		t.Error("the metrics tell of warnings, and nothing is watched")
	}
}

// TestReloadTokens: another audience counts from a reload on; buckets stay; keys that cannot be
// read, or fetched, change nothing.
func TestReloadTokens(t *testing.T) {
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 2, Per: time.Hour}}, withSecret(t))
	exp := time.Now().Unix() + 300
	ask := func(subject, audience string) int {
		t.Helper()
		token := signed(tokenSecret, `{"iss":"me","aud":%q,"sub":%q,"exp":%d}`, audience, subject, exp)
		code, _ := call(t, "GET", r.gate+"/v1/items/1", "", "Authorization", "Bearer "+token)
		return code
	}
	expect := func(when string, want []int, got ...int) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect("at first", []int{200, 200, 429}, ask("ann", "api"), ask("ann", "api"), ask("ann", "api"))
	expect(
		"an audience that is none, by address",
		[]int{200, 200, 429},
		ask("bob", "app"),
		ask("cid", "app"),
		ask("dan", "app"),
	)
	r.fails(t, "tokens", func(c *config.Config) {
		c.Tokens.SecretFiles, c.Tokens.Audiences = []string{filepath.Join(r.dir, "none")}, []string{"app"}
	})
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	t.Cleanup(away.Close)
	r.fails(t, "tokens", func(c *config.Config) {
		c.Tokens.SecretFiles, c.Tokens.JWKSURL, c.Tokens.JWKSAllowHTTP = nil, away.URL, true
		c.Tokens.Algorithms = []string{"RS256"}
	})
	expect("then", []int{429, 429}, ask("ann", "api"), ask("dan", "app"))
	r.reloadsTo(t, "tokens.audiences", func(c *config.Config) { c.Tokens.Audiences = []string{"api", "app"} })
	expect(
		"another audience",
		[]int{200, 200, 429, 429},
		ask("bob", "app"),
		ask("bob", "app"),
		ask("bob", "app"),
		ask("ann", "app"),
	)
	r.reloadsTo(
		t,
		"tokens.secret_files tokens.algorithms tokens.issuer tokens.audiences tokens.project_claim tokens.tier_claim",
		func(c *config.Config) { c.Tokens = config.Default().Tokens },
	)
	expect("without tokens, by address", []int{429}, ask("eve", "api"))
}

// TestReloadBalancersAndRegions: who may name clients, and where they are from.
func TestReloadBalancersAndRegions(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	r := newReloading(t, []policy.Rule{
		{
			Endpoint: policy.Default,
			Limit:    1e6,
		},
		{Endpoint: policy.Default, Limit: 1, Per: time.Hour, Subject: policy.SubjectRegion},
	}, func(c *config.Config) {
		c.ProxyProtocol.From, c.ProxyProtocol.Required = []string{"127.0.0.1"}, false
		c.RegionFiles = []string{file("one.csv", "198.51.100.0,203.0.113.255,AA\n")}
	})
	from := func(client string) int {
		status, _ := answerTo(
			t,
			r.gate,
			"PROXY TCP4 "+client+" 192.0.2.9 1000 80\r\nGET /v1/items/1 HTTP/1.1\r\nHost: x\r\n\r\n",
		)
		return status
	}
	if a, b := from("198.51.100.1"), from("203.0.113.1"); a != 200 || b != 429 {
		t.Errorf("with one region: %d and %d, want one budget for both", a, b)
	}
	r.fails(t, "none.csv", func(c *config.Config) { c.RegionFiles = []string{filepath.Join(dir, "none.csv")} })
	r.reloadsTo(t, "region_files", func(c *config.Config) {
		c.RegionFiles = []string{file("two.csv", "198.51.100.0,198.51.100.255,AA\n203.0.113.0,203.0.113.255,BB\n")}
	})
	if a, b, c := from("198.51.100.1"), from("203.0.113.1"), from("203.0.113.2"); a != 429 || b != 200 || c != 429 {
		t.Errorf("with two regions: %d, %d and %d, want a budget for each, and that of the first as it was", a, b, c)
	}
	r.reloadsTo(t, "proxy_protocol.from", func(c *config.Config) { c.ProxyProtocol.From = []string{"192.0.2.0/24"} })
	if got := from("198.51.100.1"); got != 400 {
		t.Errorf("whoever is no balancer any more: %d, want 400", got)
	}
	r.edit(func(c *config.Config) { c.ProxyProtocol, c.RegionFiles = config.Default().ProxyProtocol, nil })
	if done := r.reload(
		t,
	).Reload; strings.Join(
		done.Restart,
		" ",
	) != "proxy_protocol.from proxy_protocol.required region_files" {
		t.Errorf("without balancers and regions: %+v, want a restart for it", done)
	}
}

// TestReloadDevelopers: the developers' door stands where a reload says.
func TestReloadDevelopers(t *testing.T) {
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1e6}})
	if got := r.get(t, "/.headgate/v1/budgets"); got != 404 {
		t.Errorf("no door: %d, want 404", got)
	}
	r.fails(t, "developers.path", func(c *config.Config) { c.Developers.Path = "/v1" })
	r.reloadsTo(t, "developers.path", func(c *config.Config) { c.Developers.Path = "/.headgate" })
	if got := r.get(t, "/.headgate/v1/budgets"); got != 401 {
		t.Errorf("a door, and no credential: %d, want 401", got)
	}
	r.reloadsTo(t, "developers.path", func(c *config.Config) { c.Developers.Path = "/.budgets" })
	if a, b := r.get(t, "/.headgate/v1/budgets"), r.get(t, "/.budgets/v1/budgets"); a != 404 || b != 401 {
		t.Errorf("another door: %d and %d, want 404 and 401", a, b)
	}
}
