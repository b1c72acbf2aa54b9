//go:build long

package edge_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/wasm"
)

// envoyConf is an Envoy of which the filter stands before a fixed answer. %s are the ports of
// clients and of the administrator, the module, and what configures it.
const envoyConf = `admin: { address: { socket_address: { address: 127.0.0.1, port_value: %s } } }
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: %s } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          use_remote_address: true
          xff_num_trusted_hops: 1
          route_config:
            virtual_hosts:
            - name: api
              domains: ["*"]
              routes:
              - match: { prefix: "/" }
                direct_response: { status: 200, body: { inline_string: "ok" } }
          http_filters:
          - name: envoy.filters.http.wasm
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config:
                name: headgate
                vm_config: { vm_id: headgate, runtime: envoy.wasm.runtime.v8, code: { local: { filename: %q } } }
%s          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
`

// envoy is a process with two workers.
type envoy struct {
	t           testing.TB
	cmd         *exec.Cmd
	log         *bytes.Buffer
	base, admin string
	exited      chan struct{}
}

func startEnvoy(t testing.TB, o wasm.Options, configuration string) *envoy {
	t.Helper()
	module, err := wasm.Build(wasm.Filter, o)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, conf := filepath.Join(dir, "filter.wasm"), filepath.Join(dir, "envoy.yaml")
	clients, admin := freePort(t), freePort(t)
	if configuration != "" {
		configuration = `                configuration: { "@type": type.googleapis.com/google.protobuf.StringValue, value: "` +
			configuration + "\" }\n"
	}
	text := fmt.Sprintf(envoyConf, admin, clients, file, configuration)
	for name, content := range map[string][]byte{file: module, conf: []byte(text)} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program, err := filepath.Abs("../../bin/garden/venv/bin/envoy")
	if err != nil {
		t.Fatal(err)
	}
	e := &envoy{t: t, log: new(bytes.Buffer), base: "http://127.0.0.1:" + clients, admin: "http://127.0.0.1:" + admin,
		exited: make(chan struct{})}
	e.cmd = exec.Command(program, "-c", conf, "--concurrency", "2", "-l", "error", "--disable-hot-restart")
	e.cmd.Dir, e.cmd.Stderr = dir, e.log
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = e.cmd.Wait()
		close(e.exited)
	}()
	t.Cleanup(func() {
		_ = e.cmd.Process.Kill()
		<-e.exited
	})
	return e
}

func freePort(t testing.TB) string {
	t.Helper()
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// ready waits until requests are answered; it is false if the process ends instead.
func (e *envoy) ready() bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		select {
		case <-e.exited:
			return false
		default:
		}
		if r, err := http.Get(e.admin + "/ready"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return true
			}
		}
	}
	e.t.Fatalf("Envoy is not ready:\n%s", e.log)
	return false
}

func (e *envoy) get(client *http.Client, path, from string) (status int, h http.Header, body string) {
	r, err := http.NewRequest("GET", e.base+path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", from)
	got, err := client.Do(r)
	if err != nil {
		e.t.Errorf("%s: %v", path, err)
		return 0, nil, ""
	}
	defer got.Body.Close()
	b, _ := io.ReadAll(got.Body)
	return got.StatusCode, got.Header, string(b)
}

// flood sends n requests over so many connections, and says how many passed.
func (e *envoy) flood(n, connections int, path string, from func(i int) string) int {
	var passed, next atomic.Int64
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if status, _, _ := e.get(client, path, from(int(i))); status == http.StatusOK {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return int(passed.Load())
}

func (e *envoy) counter(name string) int {
	r, err := http.Get(e.admin + "/stats?filter=" + name)
	if err != nil {
		e.t.Fatal(err)
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	m := regexp.MustCompile(regexp.QuoteMeta(name) + `: (\d+)`).FindSubmatch(b)
	if m == nil {
		return -1
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// resident is the process's memory in KiB.
func (e *envoy) resident() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.cmd.Process.Pid))
	if err != nil {
		e.t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+)`).FindSubmatch(b)
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

func one(int) string { return "192.0.2.1" }

// TestEnvoyKeepsTheBound floods two workers of a real Envoy: they admit together exactly what a
// shared burst holds, and each for itself what another does; the answers are those of every door.
func TestEnvoyKeepsTheBound(t *testing.T) {
	rules := ruled(t, "GET /shared 1/d burst 500", "GET /own 1/d burst 50", "GET /many 1/d burst 2 by ip",
		"UNKNOWN 1/s")
	rules[0].Name = "shared"
	table := tableOf(t, endpoint.Profile{}, "GET /shared", "GET /own", "GET /many")
	set := compile(t, table, policy.Document{Rules: rules})
	e := startEnvoy(t, wasm.Options{Policies: set, Shared: []string{"shared"}, RejectUnknown: true}, "")
	if !e.ready() {
		t.Fatalf("Envoy ends:\n%s", e.log)
	}
	if status, h, body := e.get(http.DefaultClient, "/shared", "192.0.2.9"); status != 200 ||
		h.Get("RateLimit") != `"shared";r=499;t=86400` || h.Get("RateLimit-Policy") == "" {
		t.Errorf("%d %v %s", status, h, body)
	}
	if status, _, body := e.get(http.DefaultClient, "/nowhere", "192.0.2.9"); status != 404 ||
		!strings.Contains(body, "No endpoint has this path.") {
		t.Errorf("%d %s", status, body)
	}
	if got := e.flood(3000, 16, "/shared", one); got != 500 {
		t.Errorf("two workers admit %d of a shared burst of 500", got)
	}
	if got := e.flood(1000, 16, "/own", one); got < 50 || got > 100 {
		t.Errorf("two workers admit %d of a burst of 50 each", got)
	}
	status, h, body := e.get(http.DefaultClient, "/shared", "192.0.2.1")
	if status != 429 || h.Get("Retry-After") == "" || h.Get("Content-Type") != "application/problem+json" ||
		!strings.Contains(body, `"violated-policies":["shared"]`) {
		t.Errorf("%d %v %s", status, h, body)
	}
	if denied := e.counter("headgate_edge_denied"); denied < 2500 {
		t.Errorf("headgate_edge_denied is %d", denied)
	}

	caller := func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i/65536, i/256%256, i%256) }
	e.flood(10_000, 16, "/many", caller)
	before := e.resident()
	passed := e.flood(100_000, 16, "/many", func(i int) string { return caller(i % 50_000) })
	if passed > 2*2*50_000 {
		t.Errorf("%d of 50,000 callers pass, want at most two each in each worker", passed)
	}
	after := e.resident()
	t.Logf("memory %d KiB, then %d KiB after 100,000 requests of 50,000 callers; %d passed", before, after, passed)
	if after > before+16<<10 {
		t.Errorf("memory grew from %d to %d KiB", before, after)
	}
}

// TestEnvoyRefusesBadConfiguration: a filter that is given what it does not read does not load.
func TestEnvoyRefusesBadConfiguration(t *testing.T) {
	set := setOf(t, tableOf(t, endpoint.Profile{}, "GET /a"), "default 1/s", "UNKNOWN 1/s")
	e := startEnvoy(t, wasm.Options{Policies: set}, "shadow=true")
	if e.ready() {
		t.Fatalf("Envoy starts:\n%s", e.log)
	}
	if !strings.Contains(e.log.String(), "rules are built into the module") {
		t.Errorf("Envoy does not say why:\n%s", e.log)
	}
}
