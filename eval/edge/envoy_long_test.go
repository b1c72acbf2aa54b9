//go:build long

package edge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/wasm"
)

// envoy is a process with two workers, which reads its listener from a file again whenever another takes its place.
type envoy struct {
	t            testing.TB
	filter       filter
	dir          string
	clients      int
	base, admin  string
	cmd          *exec.Cmd
	log          *logged
	exited       chan struct{}
	versions     int
	environment  []string
	acknowledged int // versions of the listener that Envoy has answered yes or no to
}

// filter is what stands before the fixed answer.
type filter struct {
	module        []byte // none: no filter
	configuration string // of the plugin
	failure       string // failure_policy, FAIL_CLOSED if it is empty
	hops          int    // xff_num_trusted_hops: whose entry of X-Forwarded-For Envoy takes for the client's
}

// logged is what a process has said so far.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func moduleOf(t testing.TB, o wasm.Options) []byte {
	t.Helper()
	module, err := wasm.Build(wasm.Filter, o)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// object is a part of Envoy's configuration.
type object = map[string]any

// typed is an object of a type of Envoy's API.
func typed(name string, o object) object {
	o["@type"] = "type.googleapis.com/" + name
	return o
}

// listener is the filter before a fixed answer. Its module has a file of its own, as Envoy asks of what changes.
func (e *envoy) listener() object {
	e.t.Helper()
	router := object{"name": "envoy.filters.http.router",
		"typed_config": typed("envoy.extensions.filters.http.router.v3.Router", object{})}
	filters := []object{router}
	if e.filter.module != nil {
		file := filepath.Join(e.dir, fmt.Sprintf("filter%d.wasm", e.versions))
		e.write(file, e.filter.module)
		plugin := object{"name": "headgate", "vm_config": object{"vm_id": "headgate",
			"runtime": "envoy.wasm.runtime.v8",
			"code":    object{"local": object{"filename": file}}}}
		if e.filter.configuration != "" {
			plugin["configuration"] = typed("google.protobuf.StringValue", object{"value": e.filter.configuration})
		}
		if e.filter.failure != "" {
			plugin["failure_policy"] = e.filter.failure
			plugin["reload_config"] = object{"backoff": object{"base_interval": "0.1s"}} // default 1 s
		}
		filters = []object{{"name": "envoy.filters.http.wasm",
			"typed_config": typed("envoy.extensions.filters.http.wasm.v3.Wasm", object{"config": plugin})}, router}
	}
	answer := object{"status": 200, "body": object{"inline_string": "ok"}}
	connections := object{
		"stat_prefix": "clients", "use_remote_address": true, "xff_num_trusted_hops": e.filter.hops,
		"delayed_close_timeout": "0s", // after Envoy's own refusals; default 1 s
		"route_config": object{"virtual_hosts": []object{{"name": "api", "domains": []string{"*"},
			"routes": []object{{"match": object{"prefix": ""}, "direct_response": answer}}}}},
		"http_filters": filters,
	}
	return typed("envoy.config.listener.v3.Listener", object{
		"name":    "clients",
		"address": object{"socket_address": object{"address": "127.0.0.1", "port_value": e.clients}},
		"filter_chains": []object{{"filters": []object{{"name": "envoy.filters.network.http_connection_manager",
			"typed_config": typed("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
				connections)}}}},
	})
}

// write puts a file where another may stand, whole, as those that watch it need.
func (e *envoy) write(file string, content []byte) {
	e.t.Helper()
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		e.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		e.t.Fatal(err)
	}
}

func (e *envoy) writeJSON(name string, o object) {
	e.t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		e.t.Fatal(err)
	}
	e.write(filepath.Join(e.dir, name), text)
}

func (e *envoy) writeListener() {
	e.t.Helper()
	e.versions++
	e.writeJSON("listeners.json", object{"version_info": strconv.Itoa(e.versions), "resources": []object{e.listener()}})
}

// startEnvoy writes a configuration and starts Envoy by it.
func startEnvoy(t testing.TB, f filter, environment ...string) *envoy {
	t.Helper()
	clients, admin := freePort(t), freePort(t)
	e := &envoy{t: t, filter: f, environment: environment, dir: t.TempDir(), clients: clients,
		base:  fmt.Sprintf("http://127.0.0.1:%d", clients),
		admin: fmt.Sprintf("http://127.0.0.1:%d", admin)}
	e.writeJSON("envoy.json", object{
		"admin": object{"address": object{"socket_address": object{"address": "127.0.0.1", "port_value": admin}}},
		"node":  object{"id": "edge", "cluster": "edge"},
		"dynamic_resources": object{"lds_config": object{"resource_api_version": "V3",
			"path_config_source": object{"path": filepath.Join(e.dir, "listeners.json")}}},
	})
	e.writeListener()
	e.start()
	return e
}

// start starts the process, which reads what has been written.
func (e *envoy) start() {
	e.t.Helper()
	program, err := filepath.Abs("../../bin/garden/venv/bin/envoy")
	if err != nil {
		e.t.Fatal(err)
	}
	e.log, e.exited, e.acknowledged = new(logged), make(chan struct{}), 0
	cmd := exec.Command(program, "-c", filepath.Join(e.dir, "envoy.json"), "--concurrency", "2", "-l", "warning",
		"--disable-hot-restart", "--drain-time-s", "1")
	cmd.Dir, cmd.Stderr, cmd.Env = e.dir, e.log, append(os.Environ(), e.environment...)
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	exited := e.exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	e.cmd = cmd
	e.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
}

// kill ends the process as a fault of it would: all workers at once, without a word.
func (e *envoy) kill() {
	_ = e.cmd.Process.Signal(syscall.SIGKILL)
	<-e.exited
}

func freePort(t testing.TB) int {
	t.Helper()
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// ready waits until Envoy has read the listener, and says whether it has taken it.
func (e *envoy) ready() bool {
	e.t.Helper()
	e.acknowledged++
	took, refused := 0, 0
	if !harness.Eventually(time.Minute, func() bool {
		took, refused = e.counter("listener_manager.lds.update_success"),
			e.counter("listener_manager.lds.update_rejected")
		return took+refused >= e.acknowledged && e.counter("server.live") == 1
	}) {
		e.t.Fatalf("Envoy reads no listener:\n%s", e.log)
	}
	return refused == 0
}

// reload has Envoy read another filter, and says whether it has taken it.
func (e *envoy) reload(f filter) bool {
	e.t.Helper()
	refused := e.counter("listener_manager.lds.update_rejected")
	e.filter = f
	e.writeListener()
	e.ready()
	return e.counter("listener_manager.lds.update_rejected") == refused
}

// counter is a number of Envoy's, or -1.
func (e *envoy) counter(name string) int {
	r, err := http.Get(e.admin + "/stats?filter=" + regexp.QuoteMeta(name))
	if err != nil {
		return -1
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
	e.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.cmd.Process.Pid))
	if err != nil {
		e.t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+)`).FindSubmatch(b)
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// get asks for a path, as a proxy before Envoy would for a client's address; status is 0 if there is no answer.
func (e *envoy) get(client *http.Client, path, from string) (status int, h http.Header, body string) {
	r, err := http.NewRequest("GET", e.base+path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", from)
	got, err := client.Do(r)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer got.Body.Close()
	b, _ := io.ReadAll(got.Body)
	return got.StatusCode, got.Header, string(b)
}

// flood sends n requests over so many connections, the i-th for what from says, and counts answers by their status.
func (e *envoy) flood(n, connections int, path string, from func(i int) string) map[int]int {
	var next atomic.Int64
	return e.floodWhile(connections, path, func() (string, bool) {
		i := next.Add(1)
		return from(int(i)), i <= int64(n)
	}, nil)
}

// floodWhile sends requests as long as more says so; of each that passes, passed is told.
func (e *envoy) floodWhile(connections int, path string, more func() (from string, ok bool),
	passed func(from string),
) map[int]int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := map[int]int{}
	for range connections {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			own := map[int]int{}
			for from, ok := more(); ok; from, ok = more() {
				status, _, _ := e.get(client, path, from)
				own[status]++
				if status == http.StatusOK && passed != nil {
					passed(from)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for status, n := range own {
				answers[status] += n
			}
		})
	}
	wg.Wait()
	return answers
}

func one(int) string { return "192.0.2.1" }
