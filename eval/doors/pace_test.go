//go:build unix

package doors

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/eval/harness"
)

// paced is a gateway before an API with pages, and an aggregator: what the packages for clients are tried at.
func paced(t *testing.T, root string) (env []string) {
	t.Helper()
	files := http.FileServer(http.Dir(filepath.Join(root, "clients/pace-js")))
	mux := http.NewServeMux()
	mux.Handle("GET /dist/", files)
	page := func(path, file, kind string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			http.ServeFile(w, r, filepath.Join(root, "clients/pace-js/with-gateway", file))
		})
	}
	page("GET /{$}", "page.html", "text/html")
	page("GET /sw.js", "sw.js", "text/javascript")
	mux.HandleFunc("GET /v1/items/{id}", func(w http.ResponseWriter,
		r *http.Request) {
		fmt.Fprint(w, "item ", r.PathValue("id"))
	})
	mux.HandleFunc("POST /v1/items", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Item", "made")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	})
	// What a worker holds when it is killed: the first request breaks off in the middle, the next is answered.
	var seen log
	mux.HandleFunc("/v1/queue/{id}", seen.listed(func(w http.ResponseWriter, r *http.Request, _ bool) {
		fmt.Fprint(w, "turn ", r.PathValue("id"))
	}))
	mux.HandleFunc("/v1/held/{id}", seen.listed(func(w http.ResponseWriter, r *http.Request, first bool) {
		if first {
			<-r.Context().Done()
		}
		fmt.Fprint(w, "held ", r.PathValue("id"))
	}))
	mux.HandleFunc("GET /v1/halves/{kind}", seen.listed(func(w http.ResponseWriter, r *http.Request, first bool) {
		half := strings.Repeat("x", 40_000)
		if r.PathValue("kind") == "changed" && !first {
			half = strings.Repeat("y", 40_000)
		}
		fmt.Fprint(w, half)
		if _ = http.NewResponseController(w).Flush(); first {
			<-r.Context().Done()
		}
		fmt.Fprint(w, half)
	}))
	mux.HandleFunc("GET /seen", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, seen.about(r.URL.RawQuery))
	})
	mux.HandleFunc("GET /v1/{rest}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	api := httptest.NewServer(mux)
	t.Cleanup(api.Close)

	dir := t.TempDir()
	write(t, filepath.Join(dir, "routes.txt"),
		"GET /\nGET /sw.js\nGET /dist/{file}\nGET /v1/items/{id}\nPOST /v1/items\nGET /v1/scarce\nGET /v1/free\n"+
			"POST /v1/queue/{id}\nGET /v1/held/{id}\nPOST /v1/held/{id}\nGET /v1/halves/{kind}\n")
	db := "sqlite:" + filepath.Join(dir, "headgate.db")
	for _, rule := range [][]string{{"default", "1000"}, {"GET /v1/items/{id}", "10"}, {"POST /v1/items", "10"},
		{"GET /v1/scarce", "2", "--per", "1h"}, {"POST /v1/queue/{id}", "1", "--per", "2s", "--burst", "1"}} {
		harness.Run(t, dir, append(append([]string{"policy", "set"}, rule...), "--db", db)...)
	}
	gateway := harness.Serve(t, dir, "--upstream", api.URL, "--routes", "routes.txt")
	return append(os.Environ(), "GATEWAY="+gateway.URL, "ADMIN="+gateway.Admin, "API="+api.URL)
}

// log is what an API was asked, in order.
type log struct {
	sync.Mutex
	asked []string
}

// listed lists requests, and says of each whether it is the first of its kind.
func (l *log) listed(answer func(w http.ResponseWriter, r *http.Request, first bool)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		line := fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, body)
		l.Lock()
		first := !slices.Contains(l.asked, line)
		l.asked = append(l.asked, line)
		l.Unlock()
		answer(w, r, first)
	}
}

// about returns the lines that hold a text.
func (l *log) about(text string) string {
	l.Lock()
	defer l.Unlock()
	return strings.Join(slices.DeleteFunc(slices.Clone(l.asked), func(line string) bool {
		return !strings.Contains(line, text)
	}), "\n")
}

// aggregator is a running `headgate telemetry`.
func aggregator(t *testing.T) (env []string) {
	t.Helper()
	const secret = "0123456789abcdef0123456789abcdef"
	dir := t.TempDir()
	write(t, filepath.Join(dir, "secret"), secret+"\n")
	cmd := exec.Command(harness.Binary(t), "telemetry", "--quota", "api=80/60s,burst=100", "--secret-file", "secret",
		"--udp", "127.0.0.1:0", "--http", "127.0.0.1:0")
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	env = []string{"SECRET=" + secret}
	for lines := bufio.NewScanner(out); len(env) < 3 && lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		env = append(env, map[string]string{"udp": "TELEMETRY_UDP=", "http": "TELEMETRY="}[name]+
			strings.TrimSpace(value))
	}
	return env
}

// The packages that pace requests: their own tests, and against a real gateway and a real aggregator.
func TestPacedClients(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	env := append(paced(t, root), aggregator(t)...)
	python := filepath.Join(root, "bin/garden/venv/bin/python")
	for _, p := range []struct {
		name, dir string
		command   []string
	}{
		{"Python", "clients/pace-python", []string{python, "-m", "unittest", "discover", "-s", "tests"}},
		{"Python at a gateway", "clients/pace-python", []string{python, "-m", "unittest", "tests/with_gateway.py"}},
		{"Node", "clients/pace-js", []string{"node", "--test", "test/"}},
		{"Node at a gateway", "clients/pace-js", []string{"node", "--test", "with-gateway/fetch.mjs"}},
	} {
		t.Run(p.name, func(t *testing.T) { packageTest(t, root, p.dir, p.command, env) })
	}
}

// A real browser with two tabs, whose worker is killed.
func TestPacedBrowser(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	packageTest(t, root, "clients/pace-js", []string{"node", "--test", "with-gateway/browser.mjs"}, paced(t, root))
}

func packageTest(t *testing.T, root, dir string, command, env []string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = filepath.Join(root, dir)
	cmd.Env = append(env, "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if t.Log(string(out)); err != nil {
		t.Errorf("%s: %v: %v", dir, command, err)
	}
}

// What is in clients/pace-js/dist is what TypeScript makes of its sources, without a complaint about their types.
func TestPaceIsBuilt(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	built, dir := t.TempDir(), filepath.Join(root, "clients/pace-js")
	cmd := exec.Command(filepath.Join(root, "bin/garden/node_modules/.bin/tsc"), "--outDir", built)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}
	made, err := os.ReadDir(built)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadDir(filepath.Join(dir, "dist"))
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != len(kept) || len(made) == 0 {
		t.Errorf("clients/pace-js/dist has %d files, tsc makes %d; npm run build", len(kept), len(made))
	}
	for _, f := range made {
		want, err1 := os.ReadFile(filepath.Join(built, f.Name()))
		got, err2 := os.ReadFile(filepath.Join(dir, "dist", f.Name()))
		if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("clients/pace-js/dist/%s is not what tsc makes: npm run build (%v, %v)", f.Name(), err1, err2)
		}
	}
}
