package daemon_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// reloading is a process whose configuration the test changes.
type reloading struct {
	*process
	mu   sync.Mutex
	conf config.Config
	err  error
	said livelog.Text

	wrote config.Config // that a reload took over last
}

func newReloading(t *testing.T, rules []policy.Rule, change ...func(*config.Config)) *reloading {
	t.Helper()
	r := &reloading{}
	log := slog.New(slog.NewTextHandler(&r.said, nil))
	o := daemon.Options{Log: log, Version: "test", Level: new(slog.LevelVar), Read: func() (config.Config, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		c := r.conf
		return c, errors.Join(r.err, c.Complete())
	}}
	r.process = newProcessWith(t, o, rules, append(change, func(c *config.Config) { r.conf = *c })...)
	return r
}

func (r *reloading) edit(change func(*config.Config)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.conf)
}

func (r *reloading) routes(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "routes.txt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *reloading) reload(t *testing.T) admin.Reloaded {
	t.Helper()
	status, body := call(t, "POST", r.admin+"/v1/reload", "")
	var done admin.Reloaded
	if err := json.Unmarshal([]byte(body), &done); err != nil || status != 200 || done.Reload == nil {
		t.Fatalf("reload: %d %s", status, body)
	}
	return done
}

func (r *reloading) get(t *testing.T, target string) int {
	t.Helper()
	status, _ := call(t, "GET", r.gate+target, "")
	return status
}

// TestReloadKeepsWhatCounts: endpoints come and go, and no bucket is filled by it: neither that of an endpoint that
// stays under another number, nor that of all endpoints, nor one that was gone for a while.
func TestReloadKeepsWhatCounts(t *testing.T) {
	r := newReloading(t, []policy.Rule{
		{Endpoint: "GET /v1/items/{id}", Limit: 2, Per: time.Hour},
		{Endpoint: policy.Default, Limit: 2, Per: time.Hour},
		{Endpoint: "GET /a", Limit: 1, Per: time.Hour},
	})
	r.routes(t, "GET /v1/items/{id}\nGET /v1/other\n")
	if done := r.reload(t); done.Reload.Added != 1 || done.Reload.Removed != 1 || done.Reload.Endpoints != 2 {
		t.Errorf("the first reload says %+v", done.Reload)
	}
	for _, target := range []string{"/v1/items/1", "/v1/items/1", "/v1/other", "/v1/other"} {
		if got := r.get(t, target); got != 200 {
			t.Errorf("%s: %d, want 200", target, got)
		}
	}
	// In front of all others, so that every number is another one.
	r.routes(t, "GET /a\nGET /v1/items/{item}\nGET /v1/other\n")
	r.reload(t)
	for target, want := range map[string]int{"/a": 200, "/v1/items/1": 429, "/v1/other": 429, "/v1/items": 404} {
		if got := r.get(t, target); got != want {
			t.Errorf("%s: %d, want %d", target, got, want)
		}
	}
	r.routes(t, "GET /v1/other\n")
	r.reload(t)
	if got := r.get(t, "/v1/items/1"); got != 404 {
		t.Errorf("an endpoint that is gone: %d, want 404", got)
	}
	r.routes(t, "GET /a\nGET /v1/items/{id}\nGET /v1/other\n")
	r.reload(t)
	for target, want := range map[string]int{"/a": 429, "/v1/items/1": 429, "/v1/other": 429} {
		if got := r.get(t, target); got != want {
			t.Errorf("%s, which is back: %d, want %d", target, got, want)
		}
	}
}

// TestReloadIsAllOrNothing: with a fault anywhere everything stays, and it is said where people look.
func TestReloadIsAllOrNothing(t *testing.T) {
	var r *reloading
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(299) }))
	t.Cleanup(other.Close)
	r = newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1000}})
	before := r.conf
	for name, test := range map[string]struct {
		change func(*config.Config)
		routes string
		want   string
	}{
		"a document": {func(*config.Config) {}, "GET /v1/items/{id}\nGET /b/{\n", "routes.txt:2"},
		"a missing document": {func(c *config.Config) {
			c.Routes = append(c.Routes, filepath.Join(r.dir, "none.txt"))
		}, "GET /b\n", "none.txt"},
		"a setting": {func(c *config.Config) { c.Unknown = "maybe" }, "GET /b\n", `unknown is \"maybe\"`},
		"a cost no rule has": {func(c *config.Config) { c.Costs = map[string]int64{"GET /b": 2000} }, "GET /b\n",
			"burst is 1000"},
		"a cost of no route": {func(c *config.Config) { c.Costs = map[string]int64{"GET /c": 2} }, "GET /b\n",
			"costs: endpoint is"},
		"answers of no route": {func(c *config.Config) { c.CountWhen = map[string][]config.Status{"GET /c": {"404"}} },
			"GET /b\n", "count_when: endpoint is"},
		"a login of no route": {func(c *config.Config) {
			c.Identifiers = []config.Identifier{{Endpoint: "POST /c", Field: "user"}}
		}, "GET /b\n", "identifiers[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			r.edit(func(c *config.Config) { *c = before; c.Upstream = other.URL; test.change(c) })
			r.routes(t, test.routes)
			status, body := call(t, "POST", r.admin+"/v1/reload", "")
			if status != 409 || !strings.Contains(body, test.want) {
				t.Errorf("reload: %d %s, want 409 with %s", status, body, test.want)
			}
			if got := r.get(t, "/v1/items/1"); got != 200 {
				t.Errorf("then: %d, want what was in force before", got)
			}
			if got := r.get(t, "/b"); got != 404 {
				t.Errorf("an endpoint of the faulty configuration: %d, want 404", got)
			}
			if _, ready := call(t, "GET", r.admin+"/readyz", ""); !strings.Contains(ready, "the last reload failed") {
				t.Errorf("/readyz says %s", ready)
			}
			if _, page := call(t, "GET", r.admin+"/metrics", ""); !strings.Contains(page,
				"headgate_config_reload_ok 0") {
				t.Error("the metrics do not say that the reload failed")
			}
		})
	}
	r.edit(func(c *config.Config) { *c = before; c.Upstream = other.URL })
	r.routes(t, "GET /b\n")
	r.reload(t)
	if got := r.get(t, "/b"); got != 299 {
		t.Errorf("after a good reload: %d, want 299 of the other API", got)
	}
	if _, page := call(t, "GET", r.admin+"/metrics", ""); !strings.Contains(page, "headgate_config_reload_ok 1") ||
		!strings.Contains(page, `headgate_config_reloads_total{outcome="failed"} 7`) {
		t.Error("the metrics do not say that the reload succeeded after seven that failed")
	}
}

// TestReloadSettings: each has its effect at once, and what waits for a restart is said each time.
func TestReloadSettings(t *testing.T) {
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 20, Per: time.Hour},
		{Endpoint: policy.UnknownEndpoint, Limit: 1, Per: time.Hour}})
	if got := r.get(t, "/nothing"); got != 404 {
		t.Errorf("an unknown path before: %d, want 404", got)
	}
	r.edit(func(c *config.Config) {
		c.Unknown, c.Headers.Legacy, c.TrustedProxies = "limit", "delta", []string{"127.0.0.1"}
		c.Costs, c.Log.Level, c.MaxBuckets = map[string]int64{"POST /v1/items": 7}, "error", 1000
	})
	done := r.reload(t).Reload
	if got, want := strings.Join(done.Changed, " "),
		"trusted_proxies unknown costs headers.legacy log.level"; got != want {
		t.Errorf("changed: %s, want %s", got, want)
	}
	if got := strings.Join(done.Restart, " "); got != "max_buckets" {
		t.Errorf("wait for a restart: %s, want max_buckets", got)
	}
	if a, b := r.get(t, "/nothing"), r.get(t, "/nothing"); a != 200 || b != 429 {
		t.Errorf("unknown paths: %d and %d, want 200 and 429", a, b)
	}
	for _, client := range []string{"192.0.2.1", "192.0.2.2"} { // each of whom has a budget now
		request, _ := http.NewRequest("POST", r.gate+"/v1/items", nil)
		request.Header.Set("X-Forwarded-For", client)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if left := answer.Header.Get("X-RateLimit-Remaining"); left != "13" {
			t.Errorf("%s has %s left of 20 after a request of 7, want 13", client, left)
		}
	}
	if again := r.reload(t).Reload; len(again.Changed) > 0 || len(again.Restart) != 1 ||
		again.Added+again.Removed != 0 {
		t.Errorf("reloaded again: %+v", again)
	}
	if _, ready := call(t, "GET", r.admin+"/readyz", ""); !strings.Contains(ready,
		"settings that wait for a restart: max_buckets") {
		t.Errorf("/readyz says %s", ready)
	}
}

// TestReloadUpstreamAndKeys: how long the API may take, and where keys stand, change while the gateway runs.
func TestReloadUpstreamAndKeys(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/items/slow" {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(slow.Close)
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1000}},
		func(c *config.Config) { c.Upstream = slow.URL })
	bad := func() int {
		request, _ := http.NewRequest("GET", r.gate+"/v1/items/1", nil)
		request.Header.Set("X-Other-Key", "hg_made_up")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if got := bad(); got != 200 {
		t.Errorf("a field that is none: %d, want 200", got)
	}
	r.edit(func(c *config.Config) {
		c.UpstreamTimeout, c.MaxWait, c.Keys.Header, c.BadCredentials = 50*time.Millisecond, time.Second,
			"X-Other-Key", "reject"
	})
	if done := r.reload(t); strings.Join(done.Reload.Changed,
		" ") != "upstream_timeout api_keys.header bad_credentials max_wait" || len(done.Reload.Restart) > 0 {
		t.Errorf("reload says %+v", done.Reload)
	}
	if got := r.get(t, "/v1/items/slow"); got != 504 {
		t.Errorf("an API that does not answer: %d, want 504", got)
	}
	if got := bad(); got != 401 {
		t.Errorf("a made-up key where keys stand now: %d, want 401", got)
	}
	r.edit(func(c *config.Config) { c.UpstreamTimeout = 25 * time.Hour })
	if status, body := call(
		t,
		"POST",
		r.admin+"/v1/reload",
		"",
	); status != 409 ||
		!strings.Contains(body, "upstream_timeout is \\\"25h0m0s") {
		t.Errorf("longer than anything may last: %d %s, want 409", status, body)
	}
	if got := r.get(t, "/v1/items/slow"); got != 504 {
		t.Errorf("then: %d, want 504", got)
	}
}

// TestReloadUnderLoad: while endpoints come and go, every request is answered by what holds before or after, and all
// that pass are counted: a limit of n admits n.
func TestReloadUnderLoad(t *testing.T) {
	const limit = 300
	r := newReloading(t, []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: limit, Per: slow, Burst: limit},
		{Endpoint: policy.Default, Limit: 1e6}})
	ctx, stop := context.WithCancel(t.Context())
	var reloads, passed, other atomic.Int64
	var background, clients sync.WaitGroup
	background.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			text := "GET /v1/items/{id}\n"
			for n := range i % 5 {
				text = fmt.Sprintf("GET /a%d\nPUT /v1/items/{id}\n", n) + text
			}
			r.routes(t, strings.Join(unique(text), "\n"))
			if status, body := call(t, "POST", r.admin+"/v1/reload", ""); status != 200 {
				t.Errorf("reload: %d %s", status, body)
			}
			reloads.Add(1)
		}
	})
	for range 4 {
		clients.Go(func() {
			for n := 0; n < 200 || reloads.Load() < 20; n++ {
				answer, err := http.Get(r.gate + "/v1/items/1")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				switch answer.StatusCode {
				case 200:
					passed.Add(1)
				case 429:
				default:
					other.Add(1)
				}
			}
		})
	}
	clients.Wait()
	stop()
	background.Wait()
	if passed.Load() != limit || other.Load() != 0 {
		t.Errorf("%d requests passed and %d had another answer during %d reloads, want %d and none", passed.Load(),
			other.Load(), reloads.Load(), limit)
	}
}

func unique(text string) (lines []string) {
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !seen[line] {
			seen[line] = true
			lines = append(lines, line)
		}
	}
	return lines
}

// TestReloadOfServersAmidAnAnswer: an answer that is on its way over TLS, at a server that a reload takes out, comes
// whole, and what is asked meanwhile is asked of the new one.
func TestReloadOfServersAmidAnAnswer(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	api := func(name string) *httptest.Server {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, name)
			if r.URL.Path == "/v1/items/slow" {
				_ = http.NewResponseController(w).Flush()
				close(begun)
				<-goOn
				fmt.Fprint(w, strings.Repeat(".", 1<<20))
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	before, after := api("before"), api("after")
	only := func(s *httptest.Server) []config.UpstreamServer {
		return []config.UpstreamServer{{Address: s.Listener.Addr().String(), Weight: 1}}
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: before.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1000}}, func(c *config.Config) {
		c.Upstream, c.Upstreams.Servers, c.Upstreams.TLS.CAFile = "https://example.com", only(before), ca
	})
	read := func(path string) func() string {
		answer, err := http.Get(r.gate + path)
		if err != nil {
			t.Fatal(err)
		}
		return func() string {
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(body)
		}
	}
	slow := read("/v1/items/slow")
	<-begun
	r.edit(func(c *config.Config) { c.Upstreams.Servers = only(after) })
	if done := r.reload(t); strings.Join(done.Reload.Changed, " ") != "upstream_servers" {
		t.Errorf("reload says %+v", done.Reload)
	}
	for range 3 {
		if got := read("/v1/items/1")(); got != "after" {
			t.Errorf("%q answers after the reload", got)
		}
	}
	close(goOn)
	if got := slow(); got != "before"+strings.Repeat(".", 1<<20) {
		t.Errorf("of the answer that was on its way %d bytes came, want %d", len(got), len("before")+1<<20)
	}
}

// TestServersOfAReloadAreTried: as those of the start are, once the reload is over, which does not fail by it.
func TestServersOfAReloadAreTried(t *testing.T) {
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	api.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	api.StartTLS()
	t.Cleanup(api.Close)
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1000}})
	ca := filepath.Join(r.dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ upstream, ca, want string }{
		{"http://example.com", "", "it speaks TLS"},
		{"https://example.com", "", "nobody who is trusted"},
		{"https://api.internal", ca, "its certificate is not for"},
	} {
		before := len(r.said.String())
		r.edit(func(c *config.Config) {
			c.Upstream, c.Upstreams.TLS.CAFile = step.upstream, step.ca
			c.Upstreams.Servers = []config.UpstreamServer{{Address: api.Listener.Addr().String(), Weight: 1}}
		})
		r.reload(t)
		eventually(t, "the log says "+step.want, func() bool {
			return strings.Contains(r.said.String()[before:], step.want)
		})
		text := r.said.String()[before:]
		if at := strings.Index(text, "msg=reloaded"); at < 0 || at > strings.Index(text, "cannot be used now") {
			t.Errorf("%s: the log is %s, want the reload before what came of the try", step.upstream, text)
		}
	}
}
