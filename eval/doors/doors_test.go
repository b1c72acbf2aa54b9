//go:build unix

// Package doors puts real proxies before an API, which ask Headgate about each
// request as the files in examples say, and looks at what clients and the API
// see: the verdict, its fields, the target, and what happens while Headgate is
// away.
package doors

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/internal/mortal"
	"github.com/headgate-io/headgate/internal/redistest"
)

// proxy is a kind of proxy and its folder of examples. The names in its command
// are those of the files there.
type proxy struct {
	name    string
	folder  string
	command []string

	away   int // what clients are answered while Headgate is away
	frozen int // and while it does not answer
}

// quiet says that clients are told their budget only where they are refused: Traefik keeps to itself
// what is answered about those that pass.
func (p proxy) quiet() bool { return p.folder == "traefik" }

var proxies = []proxy{
	{"nginx", "nginx", []string{"nginx", "-p", ".", "-c", "nginx.conf", "-g", "daemon off;", "-e", "stderr"}, 500, 500},
	{"nginx with Lua", "openresty", []string{"nginx", "-p", ".", "-c", "nginx.conf", "-g", "daemon off;", "-e",
		"stderr"}, 503, 503},
	{"Caddy", "caddy", []string{"caddy", "run", "--config", "Caddyfile", "--adapter", "caddyfile"}, 502, 504},
	{"HAProxy", "haproxy", []string{"haproxy", "-db", "-q", "-f", "haproxy.cfg"}, 503, 503},
	{"HAProxy by SPOE", "haproxy", []string{"haproxy", "-db", "-q", "-f", "haproxy-spoe.cfg"}, 503, 503},
	{"Traefik", "traefik", []string{"bin/garden/venv/bin/traefik", "--configFile=traefik.yaml"}, 502, 504},
	{"Envoy over HTTP", "envoy", []string{"bin/garden/venv/bin/envoy", "-c", "ext_authz_http.yaml", "--concurrency",
		"2", "-l", "off", "--disable-hot-restart"}, 503, 503},
	{"Envoy over gRPC", "envoy", []string{"bin/garden/venv/bin/envoy", "-c", "ext_authz_grpc.yaml", "--concurrency",
		"2", "-l", "off", "--disable-hot-restart"}, 503, 503},
}

// api is what stands behind a proxy. It remembers what it was asked for.
type api struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string // targets, as they stood in the request line
}

func newAPI(t *testing.T) *api {
	a := &api{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.seen = append(a.seen, r.RequestURI)
		a.mu.Unlock()
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Received", strconv.FormatInt(n, 10))
		if r.URL.Path == "/v1/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = io.WriteString(w, "served")
	}))
	t.Cleanup(a.Close)
	return a
}

// last returns how many requests there were, and the target of the last one.
func (a *api) last() (n int, target string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.seen) > 0 {
		target = a.seen[len(a.seen)-1]
	}
	return len(a.seen), target
}

// world is a proxy before an API, and Headgate beside it.
type world struct {
	at       string // where the proxy listens
	api      *api
	headgate *harness.Gateway
}

func start(t *testing.T, p proxy, waits waiting, settings ...string) *world {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "routes.txt"),
		"GET /v1/items/{id}\nPOST /v1/items\nGET /v1/forbidden\nGET /public/{path...}\nGET /free\n")
	db := "sqlite:" + filepath.Join(dir, "headgate.db")
	for _, rule := range []string{"default", "GET /v1/items/{id}", "POST /v1/items", "GET /v1/forbidden",
		"GET /public/{path...}"} {
		harness.Run(t, dir, "policy", "set", rule, "3", "--per", "1h", "--db", db)
	}
	harness.Run(t, dir, "policy", "set", "GET /free", "1000000", "--db", db)
	w := &world{api: newAPI(t)}
	w.headgate = harness.Serve(t, dir, append([]string{"--listen", "none", "--decisions", "127.0.0.1:0",
		"--decisions-grpc", "127.0.0.1:0", "--decisions-spoe", "127.0.0.1:0", "--routes", "routes.txt"},
		settings...)...)
	w.at = run(t, p, waits, w.api.Listener.Addr().String(), w.headgate)
	if p.folder == "traefik" { // which listens before it has read its routes
		passes(t, w.at)
	}
	return w
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// waiting says how long proxies wait for an answer.
type waiting bool

const (
	asWritten waiting = false // in the examples
	forLong   waiting = true  // so that a busy machine makes no failures
)

// run starts a proxy by its examples, on other ports than those in them.
func run(t *testing.T, p proxy, waits waiting, apiAt string, headgate *harness.Gateway) string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	between, err := freeport.Pick() // where HAProxy speaks to itself
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	_, apiPort, _ := net.SplitHostPort(apiAt)
	headgateAt := strings.TrimPrefix(headgate.Decisions, "http://")
	_, headgatePort, _ := net.SplitHostPort(headgateAt)
	_, grpcPort, _ := net.SplitHostPort(headgate.GRPC)
	ports := strings.NewReplacer(":8000", fmt.Sprintf(":%d", port), "127.0.0.1:9000", apiAt, "127.0.0.1:8082",
		headgateAt, "127.0.0.1:8083", fmt.Sprintf("127.0.0.1:%d", between), "127.0.0.1:8085",
		cmp.Or(headgate.SPOE, "127.0.0.1:8085"),
		"port_value: 8000", fmt.Sprintf("port_value: %d", port), "port_value: 9000", "port_value: "+apiPort,
		"port_value: 8082", "port_value: "+headgatePort,
		"port_value: 8083", "port_value: "+grpcPort, "port = 8082", "port = "+headgatePort)
	times := strings.NewReplacer()
	if waits == forLong {
		times = strings.NewReplacer(" 100ms", " 30s", " 250ms", " 30s", " 500ms", " 30s", "timeout = 250",
			"timeout = 30000", ": 0.1s", ": 30s", ": 0.25s", ": 30s")
	}
	dir := t.TempDir()
	files, err := filepath.Glob(filepath.Join(root, "examples", p.folder, "*"))
	if p.folder == "openresty" {
		files = append(files, filepath.Join(root, "clients/lua/headgate.lua"))
	}
	if err != nil || len(files) == 0 {
		t.Fatalf("examples/%s: %v, %v, want files", p.folder, files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, filepath.Base(file)), times.Replace(ports.Replace(string(text))))
	}
	if err := os.Chmod(dir, 0o777); err != nil { // nginx drops its rights
		t.Fatal(err)
	}
	name := p.command[0]
	if strings.Contains(name, "/") {
		name = filepath.Join(root, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
			t.Fatalf("%v: scripts/install-garden-deps installs it", err)
		}
	}
	cmd := exec.Command(path, p.command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	launch(t, p.name, cmd, at)
	return at
}

// launch starts a server, and waits until it listens. It ends with the test.
func launch(t *testing.T, name string, cmd *exec.Cmd, at string) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := mortal.Start(cmd, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		if t.Failed() {
			t.Logf("%s said:\n%s", name, log.String())
		}
	})
	listens := harness.Eventually(time.Minute, func() bool {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil || len(ended) > 0
	})
	if !listens || len(ended) > 0 {
		t.Fatalf("%s does not listen", name)
	}
}

// send sends a request as it stands, and returns the answer with its body read.
func send(t *testing.T, at, method, target, body string, fields ...string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	text := method + " " + target + " HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n"
	for _, f := range fields {
		text += f + "\r\n"
	}
	if body != "" {
		text += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	if _, err := io.WriteString(conn, text+"\r\n"+body); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	return response, string(got)
}

func everyProxy(t *testing.T, test func(t *testing.T, p proxy)) {
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) { t.Parallel(); test(t, p) })
	}
}

// What a client is answered, and what reaches the API.
func TestVerdicts(t *testing.T) {
	everyProxy(t, func(t *testing.T, p proxy) {
		w := start(t, p, forLong)
		const problem = "application/problem+json"
		for _, c := range []struct {
			method, target, body string
			status               int
			ratelimit            string // its beginning
			served               bool
			field, value         string
		}{
			{"GET", "/v1/items/7", "", 200, `"GET /v1/items/{id}";r=2;t=`, true, "Ratelimit-Policy", `q=3;w=3600`},
			{"HEAD", "/v1/items/8", "", 200, `"GET /v1/items/{id}";r=1;t=`, true, "", ""},
			{"GET", "/v1/items/9?x=1&y=%20", "", 200, `"GET /v1/items/{id}";r=0;t=`, true, "", ""},
			{"GET", "/v1/items/10", "", 429, `"GET /v1/items/{id}";r=0;t=`, false, "Content-Type", problem},
			{"GET", "/v1/items/10", "", 429, `"GET /v1/items/{id}";r=0;t=`, false, "Retry-After", "1"},
			{"HEAD", "/v1/items/10", "", 429, `"GET /v1/items/{id}";r=0;t=`, false, "Retry-After", "1"},
			{"POST", "/v1/items", strings.Repeat("x", 1<<20), 200, `"POST /v1/items";r=2;t=`, true,
				"X-Received", "1048576"},
			{"GET", "/v1/forbidden", "", 403, `"GET /v1/forbidden";r=2;t=`, true, "", ""},
			{"GET", "/v1/unknown", "", 404, "", false, "Content-Type", problem},
			{"DELETE", "/v1/items/7", "", 405, "", false, "Allow", "GET, HEAD"},
		} {
			if p.quiet() && c.served {
				c.ratelimit = ""
				if c.field == "Ratelimit-Policy" {
					c.field, c.value = "", ""
				}
			}
			before, _ := w.api.last()
			got, body := send(t, w.at, c.method, c.target, c.body)
			after, target := w.api.last()
			if got.StatusCode != c.status || !strings.HasPrefix(got.Header.Get("RateLimit"), c.ratelimit) ||
				(after > before) != c.served || !strings.Contains(got.Header.Get(c.field), c.value) {
				t.Errorf("%s %s: %d, RateLimit %q, %s %q, served %v; want %d, %s…, %q, %v", c.method, c.target,
					got.StatusCode, got.Header.Get("RateLimit"), c.field, got.Header.Get(c.field), after > before,
					c.status, c.ratelimit, c.value, c.served)
			}
			if c.served && target != c.target {
				t.Errorf("%s %s: the API was asked for %s", c.method, c.target, target)
			}
			if c.method == "GET" && c.value == problem &&
				!strings.Contains(body, fmt.Sprintf(`"status":%d`, c.status)) {
				t.Errorf("%s %s: the body is %q, want problem details", c.method, c.target, body)
			}
		}
	})
}

// Whatever a client writes into the fields by which proxies ask, it is charged
// for what it asks for, as the address that it has.
func TestMadeUpDescriptions(t *testing.T) {
	everyProxy(t, func(t *testing.T, p proxy) {
		w := start(t, p, forLong)
		for i, fields := range [][]string{
			{"X-Forwarded-For: 198.51.100.1"}, {"X-Real-IP: 198.51.100.2"},
			{"X-Forwarded-For: 198.51.100.3, 198.51.100.4", "X-Real-IP: 198.51.100.5"},
			{"Forwarded: for=198.51.100.6"}, {"X-Forwarded-For: "},
			{"X-Forwarded-For: 198.51.100.7", "X-Forwarded-For: 198.51.100.8"}, {"x_real_ip: 198.51.100.9"},
		} {
			want := 200
			if i > 2 {
				want = 429
			}
			got, _ := send(t, w.at, "GET", "/v1/items/"+strconv.Itoa(i), "", fields...)
			if got.StatusCode != want {
				t.Errorf("request %d with %q: %d, want %d", i, fields, got.StatusCode, want)
			}
		}
		for _, field := range []string{"X-Original-URI: /public/x", "X-Forwarded-Uri: /public/x",
			"X-Forwarded-Method: POST", "X-Original-Method: POST", "Headgate-Status: 200"} {
			got, _ := send(t, w.at, "GET", "/v1/items/7", "", field)
			if got.StatusCode != 429 && got.StatusCode != 400 {
				t.Errorf("with %s: %d, want 429, or 400", field, got.StatusCode)
			}
		}
		for _, field := range []string{"X-HTTP-Method-Override: DELETE", "X-Rewrite-URL: /v1/forbidden"} {
			before, _ := w.api.last()
			got, _ := send(t, w.at, "GET", "/public/x", "", field)
			if after, _ := w.api.last(); got.StatusCode != 400 || after != before {
				t.Errorf("with %s: %d, and the API was asked %d times, want 400 and none", field,
					got.StatusCode, after-before)
			}
		}
	})
}

// The target that was charged is the one that the API is asked for: each
// spelling is charged to the endpoint that Go's own server reads in what arrives.
func TestOneReading(t *testing.T) {
	everyProxy(t, func(t *testing.T, p proxy) {
		w := start(t, p, forLong)
		served := 0
		for _, target := range []string{
			"/v1/items/a", "//v1/items/b", "/v1//items/c", "/v1/./items/d", "/v1/x/../items/e", "/v1/items/%61",
			"/%76%31/items/f", "/v1/items/g/", "/v1/items/%2e%2e/h", "/v1/items/i%2fj",
			"/v1/items/k;x=1", "/v1/items/l%3bx", "/public/a%20b", "/public/../v1/items/m", "/public/%2e%2e/v1/items/n",
			"/public/a\\..\\b", "/public/%5c", "/v1/items/%00", "/v1/items/%zz", "/v1/items/o?x=/../../public/",
			"/v1/items/p#/public/x", "/v1/items/q%23", "/v1/items/r?", "/v1/items/%c3%a9", "/v1/items/é",
			"http://other.example/public/s", "http://other.example", "/v1/items/%2561",
		} {
			before, _ := w.api.last()
			items := w.charged(t, "GET /v1/items/{id}")
			response, body := send(t, w.at, "GET", target, "")
			after, seen := w.api.last()
			if after == before {
				if response.StatusCode < 300 {
					t.Errorf("%s: %d %q, and the API was not asked", target, response.StatusCode, body)
				}
				continue
			}
			served++
			charged := response.Header.Get("RateLimit")
			if p.quiet() { // two endpoints are asked for
				charged = `"GET /public/{path...}"`
				if w.charged(t, "GET /v1/items/{id}") != items {
					charged = `"GET /v1/items/{id}"`
				}
			}
			path, _, _ := strings.Cut(seen, "?")
			want := ""
			switch clean := readByGo(t, path); {
			case strings.HasPrefix(clean, "/v1/items/"):
				want = `"GET /v1/items/{id}"`
			case strings.HasPrefix(clean, "/public/"):
				want = `"GET /public/{path...}"`
			}
			if want == "" || !strings.HasPrefix(charged, want) {
				t.Errorf("%s was charged as %s, and the API was asked for %s", target, charged, seen)
			}
		}
		if served < 3 {
			t.Errorf("%d targets were served, want some", served)
		}
	})
}

// charged is how many requests a rule let through, as the metrics say.
func (w *world) charged(t *testing.T, rule string) string {
	t.Helper()
	return w.headgate.Metric(t, `headgate_allowed_total{rule="`+rule+`"}`)
}

// readByGo returns the path that the API's server reads in a target.
func readByGo(t *testing.T, target string) string {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
	if err != nil {
		t.Fatalf("the API was asked for %q: %v", target, err)
	}
	return r.URL.Path
}

// passes waits until a request passes: on a busy machine an answer may come too late.
func passes(t *testing.T, at string) {
	t.Helper()
	if !harness.Eventually(time.Minute, func() bool {
		response, _ := send(t, at, "GET", "/free", "")
		return response.StatusCode == 200
	}) {
		t.Fatal("nothing passes although Headgate answers")
	}
}

// While Headgate is away nothing passes, and it passes again once it is back.
func TestOutage(t *testing.T) {
	everyProxy(t, func(t *testing.T, p proxy) {
		w := start(t, p, asWritten)
		passes(t, w.at)
		refused := func(when string, want int) {
			t.Helper()
			before, _ := w.api.last()
			var got []int
			for range 5 {
				response, _ := send(t, w.at, "GET", "/v1/items/1", "")
				got = append(got, response.StatusCode)
			}
			if after, _ := w.api.last(); after != before ||
				slices.ContainsFunc(got, func(status int) bool { return status != want }) {
				t.Errorf("%s: %v, and the API was asked %d times, want %d and none", when, got, after-before, want)
			}
		}
		if err := w.headgate.Freeze(); err != nil {
			t.Fatal(err)
		}
		refused("while it does not answer", p.frozen)
		if err := w.headgate.Thaw(); err != nil {
			t.Fatal(err)
		}
		passes(t, w.at)
		w.headgate.Kill()
		refused("while it is gone", p.away)
	})
}

// Envoy's filter for rate limits asks about descriptors, and tells the client what is left; the
// limits change while it runs, and what was spent stays spent.
func TestDescriptors(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile(filepath.Join(root, "examples", "envoy", "limits.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "limits.yaml"), string(limits))
	write(t, filepath.Join(dir, "headgate.yaml"),
		"listen: none\ndecisions: {grpc: '127.0.0.1:0', ratelimit: [limits.yaml]}\n")
	w := &world{api: newAPI(t)}
	w.headgate = harness.Serve(t, dir, "--config", "headgate.yaml", "--listen", "none")
	w.at = run(t, proxy{"Envoy", "envoy", []string{"bin/garden/venv/bin/envoy", "-c", "ratelimit.yaml", "--concurrency",
		"2", "-l", "off", "--disable-hot-restart"}, 503, 503}, forLong, w.api.Listener.Addr().String(), w.headgate)
	for i, want := range []string{"200 3, 3;w=3600, 100;w=86400 2", "200 3, 3;w=3600, 100;w=86400 1",
		"200 3, 3;w=3600, 100;w=86400 0", "429 3, 3;w=3600, 100;w=86400 0"} {
		got, _ := send(t, w.at, "GET", "/any", "")
		if line := fmt.Sprintf("%d %s %s", got.StatusCode, got.Header.Get("X-RateLimit-Limit"),
			got.Header.Get("X-RateLimit-Remaining")); line != want {
			t.Errorf("request %d: %s, want %s", i, line, want)
		}
		if wait, _ := strconv.Atoi(got.Header.Get("Retry-After")); (got.StatusCode == 429) != (wait > 1100 &&
			wait <= 1200) {
			t.Errorf("request %d: %d with Retry-After %d, want 1200 for the refused one", i, got.StatusCode, wait)
		}
	}
	if n, _ := w.api.last(); n != 3 {
		t.Errorf("the API was asked %d times, want 3", n)
	}
	write(t, filepath.Join(dir, "limits.yaml"), "domain: shop\ndescriptors: [{key: remote_address, rate_limit: "+
		"{unit: day, requests_per_unit: 5, units: 3}}]\n")
	if !w.headgate.Says("limits.yaml:2: \\\"units\\\" is no field of a rate_limit") {
		t.Error("no word of a configuration with a fault")
	}
	write(t, filepath.Join(dir, "limits.yaml"),
		strings.Replace(string(limits), "requests_per_unit: 3", "requests_per_unit: 5", 1))
	if !w.headgate.Says("the limits of descriptors were loaded") {
		t.Fatal("no word of a configuration that changed")
	}
	var got []int
	for range 4 {
		response, _ := send(t, w.at, "GET", "/any", "")
		got = append(got, response.StatusCode)
	}
	if !slices.Equal(got, []int{200, 200, 429, 429}) {
		t.Errorf("with 5 in place of 3 of which none was left: %v, want two more", got)
	}
	if denied := w.headgate.Metric(t,
		`headgate_descriptors_total{limit="shop/remote_address",result="denied"}`); denied != "3" {
		t.Errorf("the metric has %s denied, want 3", denied)
	}
	w.headgate.Kill()
	if response, _ := send(t, w.at, "GET", "/any", ""); response.StatusCode != 503 {
		t.Errorf("while Headgate is gone: %d, want 503", response.StatusCode)
	}
}

// Clients of Redis count by keys of their own, and ask about requests, each at once on many connections; two gateways
// with one store count together.
func TestClientsOfRedis(t *testing.T) {
	shared := redistest.Start(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "password"), "a password of some length\n")
	write(t, filepath.Join(dir, "routes.txt"), "GET /v1/items/{id}\n")
	write(t, filepath.Join(dir, "secret"), strings.Repeat("0123456789abcdef", 4)+"\n")
	var at [2]string
	for i := range at {
		own := t.TempDir()
		write(t, filepath.Join(own, "headgate.yaml"),
			fmt.Sprintf("decisions: {resp: '127.0.0.1:0', resp_password_file: %[1]s/password, scope: strict}\n"+
				"routes: [%[1]s/routes.txt]\nstore: {redis: ['%[2]s'], secret_file: %[1]s/secret, deadline: 5s, "+
				"lease_ttl: 5s}\n", dir, shared.Socket))
		if i == 0 {
			harness.Run(t, own, "policy", "set", "default", "5", "--per", "1h", "--db", "sqlite:headgate.db")
		}
		g := harness.Serve(t, own, "--config", "headgate.yaml", "--listen", "none")
		at[i] = g.RESP
	}
	redisCLI := func(i int, words ...string) string {
		t.Helper()
		_, port, _ := net.SplitHostPort(at[i])
		out, err := exec.Command("redis-cli", append([]string{"-p", port, "--no-auth-warning", "-a",
			"a password of some length"}, words...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("redis-cli: %v\n%s", err, out)
		}
		return strings.Join(strings.Fields(string(out)), " ")
	}
	for i, want := range []string{"0 2 1 -1 3600", "0 2 0 -1 7200", "1 2 0 3600 7200"} {
		if got := redisCLI(i%2, "CL.THROTTLE", "one key of two gateways", "1", "1", "3600"); got != want {
			t.Errorf("%d, at gateway %d: %s, want %s", i, i%2, got, want)
		}
	}
	if got := redisCLI(0, "HG.CHECK", "GET", "/v1/items/7", "192.0.2.1"); got != "0 1 4 -1 720 200 default" {
		t.Errorf("HG.CHECK: %s", got)
	}
	for i := range 12 { // which no shared store can count; and the rules of others go on
		if got := redisCLI(0, "CL.THROTTLE", "large"+strconv.Itoa(i), "4600000000000000", "1000000000",
			"1"); !strings.HasPrefix(got, "ERR the limit cannot be counted") {
			t.Errorf("a limit that cannot be kept: %s", got)
		}
	}
	if got := redisCLI(0, "CL.THROTTLE", "after", "1", "1", "3600"); got != "0 2 1 -1 3600" {
		t.Errorf("after limits that cannot be kept: %s", got)
	}
	if got := redisCLI(0, "GET", "x"); got != "ERR unknown command 'GET'" {
		t.Errorf("GET: %s", got)
	}
	// By their own clients, in both versions of the protocol, alone and in a pipeline.
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string][]string{
		"redis-py": {filepath.Join(root, "bin/garden/venv/bin/python"), "apps/clients_of_redis.py"},
		"ioredis":  {"node", "apps/clients_of_redis.mjs"},
	} {
		_, port, _ := net.SplitHostPort(at[0])
		cmd := exec.Command(command[0], append(command[1:], port, "a password of some length")...)
		cmd.Env = append(os.Environ(), "MODULES="+filepath.Join(root, "bin/garden"))
		out, err := cmd.CombinedOutput()
		want := strings.Repeat("[0, 3, 2, -1, 1200] [0, 3, 1, -1, 2400] [0, 3, 0, -1, 3600] [1, 3, 0, 1200, 3600] "+
			"ERR unknown command 'GET'\n", 2)
		if err != nil || string(out) != want {
			t.Errorf("%s: %v\n%s, want\n%s", name, err, out, want)
		}
	}
	var admitted atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				if strings.HasPrefix(redisCLI(i%2, "CL.THROTTLE", "shared", "9", "1", "3600"), "0 ") {
					admitted.Add(1)
				}
			}
		})
	}
	if all.Wait(); admitted.Load() != 10 {
		t.Errorf("%d of a limit of 10 were admitted at two gateways", admitted.Load())
	}
}
