//go:build unix

package doors

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/freeport"
)

// application is a server in another language, which asks by a package of clients/.
type application struct {
	name    string
	command func(t *testing.T, root string, port int) []string
	local   bool // it has a limit of its own for outages
}

var applications = []application{
	{"Starlette on uvicorn", func(_ *testing.T, root string, port int) []string {
		return []string{filepath.Join(root, "bin/garden/venv/bin/uvicorn"), "asgi:app", "--port", strconv.Itoa(port),
			"--no-proxy-headers", "--log-level", "warning"}
	}, true},
	{"Flask on gunicorn", func(_ *testing.T, root string, port int) []string {
		return []string{filepath.Join(root, "bin/garden/venv/bin/gunicorn"), "wsgi:app", "-b",
			fmt.Sprintf("127.0.0.1:%d", port), "--threads", "4"}
	}, true},
	{"Express", func(*testing.T, string, int) []string { return []string{"node", "node.mjs", "express"} }, true},
	{"Fastify", func(*testing.T, string, int) []string { return []string{"node", "node.mjs", "fastify"} }, true},
	{"nginx with Lua", func(t *testing.T, root string, port int) []string {
		dir := t.TempDir()
		text, err := os.ReadFile(filepath.Join(root, "eval/doors/apps/nginx.conf"))
		if err := errors.Join(err, os.Chmod(dir, 0o777)); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "nginx.conf"), strings.ReplaceAll(string(text), "PORT", strconv.Itoa(port)))
		path, err := exec.LookPath("nginx")
		if err != nil {
			path = "/usr/sbin/nginx"
		}
		return []string{path, "-p", dir, "-c", "nginx.conf", "-g", "daemon off;", "-e", "stderr"}
	}, false},
}

// serve starts an application beside a Headgate that allows three requests an hour for an item.
func (a application) serve(t *testing.T, fallback string, timeout time.Duration) (at string,
	headgate *harness.Gateway) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "routes.txt"), "GET /v1/items/{id}\nGET /v1/socket\n")
	db := "sqlite:" + filepath.Join(dir, "headgate.db")
	harness.Run(t, dir, "policy", "set", "GET /v1/items/{id}", "3", "--per", "1h", "--db", db)
	harness.Run(t, dir, "policy", "set", "default", "1", "--per", "1h", "--db", db)
	headgate = harness.Serve(t, dir, "--listen", "none", "--decisions", "127.0.0.1:0", "--routes", "routes.txt")
	return a.start(t, headgate.Decisions, fallback, timeout), headgate
}

// start starts an application that asks a decision service.
func (a application) start(t *testing.T, headgate, fallback string, timeout time.Duration) (at string) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	command := a.command(t, root, port)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = filepath.Join(root, "eval/doors/apps")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(root, "clients/python"), "PYTHONDONTWRITEBYTECODE=1",
		"MODULES="+filepath.Join(root, "bin/garden"), "PACKAGE="+filepath.Join(root, "clients/lua"),
		"KIND="+command[len(command)-1], "PORT="+strconv.Itoa(port), "HEADGATE="+headgate,
		"FALLBACK="+fallback, fmt.Sprintf("TIMEOUT=%g", timeout.Seconds()))
	at = fmt.Sprintf("127.0.0.1:%d", port)
	launch(t, a.name, cmd, at)
	return at
}

func everyApplication(t *testing.T, test func(t *testing.T, a application)) {
	for _, a := range applications {
		t.Run(a.name, func(t *testing.T) { t.Parallel(); test(t, a) })
	}
}

// What clients are answered is what Headgate decides, for whoever is logged in, or else for their address.
func TestApplications(t *testing.T) {
	everyApplication(t, func(t *testing.T, a application) {
		at, _ := a.serve(t, "deny", 30*time.Second)
		for _, c := range []struct {
			method, target, session string
			status                  int
			ratelimit, served       string
		}{
			{"GET", "/v1/items/7", "", 200, `"GET /v1/items/{id}";r=2;`, "served 7"},
			{"GET", "/v1/items/7?x=%2F&y", "", 200, `"GET /v1/items/{id}";r=1;`, "served 7"},
			{"HEAD", "/v1/items/8", "", 200, `"GET /v1/items/{id}";r=0;`, ""},
			{"GET", "/v1/items/9", "", 429, `"GET /v1/items/{id}";r=0;`, `"title":"Quota exceeded"`},
			{"HEAD", "/v1/items/9", "", 429, `"GET /v1/items/{id}";r=0;`, ""},
			{"GET", "/v1/items/9", "ann", 200, `"GET /v1/items/{id}";r=2;`, "served 9"},
			{"GET", "/v1/items/9", "bob", 200, `"GET /v1/items/{id}";r=2;`, "served 9"},
			{"GET", "/v1/items/9", "ann", 200, `"GET /v1/items/{id}";r=1;`, "served 9"},
			{"GET", "/v1//items/9", "ann", 400, "", `"status":400`},
			{"GET", "/v1/items/a%2fb", "ann", 400, "", `"status":400`},
			{"GET", "/v1/nothing", "ann", 404, "", "No endpoint has this path"},
			{"DELETE", "/v1/items/9", "ann", 405, "", "no such method"},
		} {
			fields := []string{"Cookie: secret=1", "X-Forwarded-For: 198.51.100.1"}
			if c.session != "" {
				fields = append(fields, "Session: "+c.session)
			}
			got, body := send(t, at, c.method, c.target, "", fields...)
			compact := strings.ReplaceAll(body, `": `, `":`)
			if got.StatusCode != c.status || !strings.HasPrefix(got.Header.Get("RateLimit"), c.ratelimit) ||
				!strings.Contains(compact, c.served) {
				t.Errorf("%s %s of %q: %d with RateLimit %s, %q; want %d with %s…, %q", c.method, c.target, c.session,
					got.StatusCode, got.Header.Get("RateLimit"), body, c.status, c.ratelimit, c.served)
			}
			// Fastify names a charset
			problem := strings.HasPrefix(got.Header.Get("Content-Type"), "application/problem+json")
			if (c.status == 429) != (got.Header.Get("Retry-After") != "") || (c.status >= 400) != problem {
				t.Errorf("%s %s: %d with %v", c.method, c.target, got.StatusCode, got.Header)
			}
		}
	})
}

// While Headgate is away, each fallback does what it says, without waiting for long; and limits hold
// again once it is back.
func TestApplicationsWithoutHeadgate(t *testing.T) {
	everyApplication(t, func(t *testing.T, a application) {
		for fallback, want := range map[string]string{
			"deny":  "[503 503 503 503 503]",
			"allow": "[200 200 200 200 200]",
			"local": "[200 200 429 429 429]",
		} {
			if fallback == "local" && !a.local {
				continue
			}
			t.Run(fallback, func(t *testing.T) {
				at, headgate := a.serve(t, fallback, 250*time.Millisecond)
				five := func() string {
					var got []int
					for range 5 {
						response, _ := send(t, at, "GET", "/v1/items/7", "", "Session: "+fallback)
						got = append(got, response.StatusCode)
					}
					return fmt.Sprint(got)
				}
				if err := headgate.Freeze(); err != nil {
					t.Fatal(err)
				}
				if got := five(); got != want {
					t.Errorf("while Headgate does not answer: %s, want %s", got, want)
				}
				if err := headgate.Thaw(); err != nil {
					t.Fatal(err)
				}
				back := harness.Eventually(time.Minute, func() bool {
					response, _ := send(t, at, "GET", "/v1/nothing", "")
					return response.StatusCode == 404 && strings.HasPrefix(response.Header.Get("Content-Type"),
						"application/problem+json")
				})
				if !back {
					t.Error("Headgate is not asked again")
				}
				headgate.Kill()
				if got := five(); fallback != "local" && got != want {
					t.Errorf("while Headgate is gone: %s, want %s", got, want)
				}
			})
		}
	})
}

// A WebSocket is asked about when it is opened.
func TestWebSocketsOfApplications(t *testing.T) {
	at, _ := applications[0].serve(t, "deny", 30*time.Second)
	for _, want := range []int{101, 429} {
		got, _ := send(t, at, "GET", "/v1/socket", "", "Upgrade: websocket", "Connection: Upgrade",
			"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
		if got.StatusCode != want {
			t.Errorf("opened with %d, want %d", got.StatusCode, want)
		}
	}
}

// The packages' own tests.
func TestPackages(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "routes.txt"), "POST /v1/chat\n")
	harness.Run(t, dir, "policy", "set", "default", "1000", "--per", "24h", "--db", "sqlite:headgate.db")
	headgate := harness.Serve(t, dir, "--listen", "none", "--decisions", "127.0.0.1:0", "--routes", "routes.txt")
	python := filepath.Join(root, "bin/garden/venv/bin/python")
	for _, p := range []struct {
		dir     string
		command []string
	}{
		{"clients/python", []string{python, "-m", "unittest", "discover", "-s", "tests"}},
		{"clients/python", []string{python, "-m", "unittest", "tests/with_headgate.py"}},
		{"clients/js", []string{"node", "--test"}},
	} {
		cmd := exec.Command(p.command[0], p.command[1:]...)
		cmd.Dir = filepath.Join(root, p.dir)
		cmd.Env = append(os.Environ(), "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1", "HEADGATE="+headgate.Decisions)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %v\n%s", p.dir, p.command, err, out)
		}
	}
}
