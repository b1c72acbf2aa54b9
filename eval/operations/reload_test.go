package operations

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/headgate-io/headgate/eval/harness"
)

// configured writes the configuration of a gateway, and returns how to write it again with more lines.
func configured(t *testing.T, dir, upstream string) (write func(more ...string)) {
	t.Helper()
	write = func(more ...string) {
		t.Helper()
		text := "upstream: " + upstream + "\nroutes: [routes.txt]\n" + strings.Join(more, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(dir, "headgate.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	return write
}

func routes(t *testing.T, dir string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "routes.txt"), []byte(strings.Join(lines, "\n")+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
}

// TestHangup: SIGHUP under load. No request fails, those in flight finish, clients keep their connections, the local
// bucket keeps what it holds, systemd is told, and the log says what changed.
func TestHangup(t *testing.T) {
	dir := t.TempDir()
	told := notified(t)
	finish := make(chan struct{})
	arrived := make(chan struct{}, 1)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			arrived <- struct{}{}
			<-finish
		}
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(api.Close)
	write := configured(t, dir, api.URL)
	routes(t, dir, "GET /items/{id}", "GET /slow", "GET /spent")
	for _, rule := range []string{"default 1000000", "GET /spent 1 --per 24h"} {
		at := strings.LastIndex(strings.TrimSuffix(rule, " --per 24h"), " ")
		harness.Run(t, dir, append([]string{"policy", "set", rule[:at]},
			append(strings.Fields(rule[at:]), "--db", "sqlite:headgate.db")...)...)
	}
	g := harness.Serve(t, dir, "--config", "headgate.yaml")
	told.want(t, "READY=1")
	status := func(path string) int {
		response, err := http.Get(g.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		return response.StatusCode
	}
	if a, b := status("/spent"), status("/spent"); a != 200 || b != 429 {
		t.Fatalf("/spent: %d and %d, want 200 and 429", a, b)
	}
	slow := make(chan int, 1)
	go func() { slow <- status("/slow") }()
	<-arrived

	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var served, failed atomic.Int64
	for range 4 {
		clients.Go(func() { // each by one connection, which would not do if the gateway ended it
			conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for answers := bufio.NewReader(conn); ctx.Err() == nil; {
				_, errWrite := io.WriteString(conn, "GET /items/7 HTTP/1.1\r\nHost: api\r\n\r\n")
				response, err := http.ReadResponse(answers, nil)
				if err := errors.Join(errWrite, err); err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				if response.StatusCode != 200 || response.Close {
					failed.Add(1)
				}
				served.Add(1)
			}
		})
	}
	for i := range 20 {
		lines := []string{"GET /slow", "GET /items/{id}", "GET /spent"}
		if i%2 == 0 {
			lines = append(lines, "GET /a", "GET /new")
		}
		routes(t, dir, lines...)
		write(fmt.Sprintf("headers: {legacy: %s}", []string{"delta", "epoch"}[i%2]))
		if err := syscall.Kill(g.PID(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		told.want(t, "RELOADING=1")
		told.want(t, "READY=1")
		if got, want := status("/new"), []int{200, 404}[i%2]; got != want {
			t.Errorf("reload %d: /new is %d, want %d", i, got, want)
		}
		if got := status("/spent"); got != 429 {
			t.Errorf("reload %d: /spent is %d, want 429", i, got)
		}
	}
	harness.Eventually(patience, func() bool { return served.Load() > 1000 })
	stop()
	clients.Wait()
	close(finish)
	if got := <-slow; got != 200 {
		t.Errorf("the request in flight: %d, want 200", got)
	}
	if failed.Load() != 0 {
		t.Errorf("of %d requests %d failed, or were said to be the last of their connection", served.Load(),
			failed.Load())
	}
	if log := g.Log(); !strings.Contains(log, `msg=reloaded endpoints=5 added=2 removed=0 changed=headers.legacy`) {
		t.Errorf("the log does not say what changed:\n%s", log)
	}
	if err := g.Stop(); err != nil {
		t.Errorf("the process ended with %v", err)
	}
	told.want(t, "STOPPING=1")
}

// TestReloadCommand: what changed, what waits for a restart, and why nothing did.
func TestReloadCommand(t *testing.T) {
	dir := t.TempDir()
	write := configured(t, dir, "http://127.0.0.1:9001")
	routes(t, dir, "GET /a")
	harness.Run(t, dir, "policy", "set", "default", "10", "--db", "sqlite:headgate.db")
	g := harness.Serve(t, dir, "--config", "headgate.yaml")
	routes(t, dir, "GET /a", "GET /b")
	write("unknown: limit", "max_buckets: 1000")
	if got, want := harness.Run(t, dir, "reload", "--server", g.Admin),
		"rules      1\nendpoints  2, 1 of them new, 0 gone\nchanged    unknown\nrestart    wanted for "+
			"max_buckets\n"; got != want {
		t.Errorf("reload says %q, want %q", got, want)
	}
	var done struct{ Reload struct{ Endpoints int } }
	if err := json.Unmarshal([]byte(harness.Run(t, dir, "reload", "--json", "--server", g.Admin)), &done); err != nil ||
		done.Reload.Endpoints != 2 {
		t.Errorf("reload --json: %+v, %v", done, err)
	}
	write("unknown: limit", "max_bucket: 1000")
	_, err := harness.Output(dir, "reload", "--server", g.Admin)
	if err == nil || !strings.Contains(err.Error(), "max_bucket is no setting, did you mean max_buckets") ||
		!strings.Contains(err.Error(), "What was in force before stays") {
		t.Errorf("reload of a faulty file: %v", err)
	}
}

// TestWatchedFiles: under watch_files nobody has to say that a document changed; one with a fault is tried once, and
// good ones until the database has the rules for them.
func TestWatchedFiles(t *testing.T) {
	dir := t.TempDir()
	configured(t, dir, harness.NewUpstream(t).URL)("watch_files: true")
	routes(t, dir, "GET /a")
	harness.Run(t, dir, "policy", "set", "default", "10000", "--db", "sqlite:headgate.db")
	g := harness.Serve(t, dir, "--config", "headgate.yaml")
	serves := func(path string, want int) func() bool {
		return func() bool {
			response, err := http.Get(g.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			return response.StatusCode == want
		}
	}
	routes(t, dir, "GET /a", "GET /b")
	if !harness.Eventually(patience, serves("/b", 200)) {
		t.Error("a new route is not served")
	}
	routes(t, dir, "GET /a", "GET /{")
	if !harness.Eventually(patience, func() bool { return strings.Contains(g.Log(), "reload failed") }) {
		t.Error("a fault is not said")
	}
	routes(t, dir, "GET /c")
	if !harness.Eventually(patience, serves("/c", 200)) {
		t.Error("the mended document is not in force")
	}
	if n := strings.Count(g.Log(), "reload failed"); n != 1 {
		t.Errorf("a fault is said %d times, want once", n)
	}
	// Good files that come while the database is away are taken when it is back.
	move := func(from, to string) {
		for _, ending := range []string{"", "-wal", "-shm"} {
			_ = os.Rename(filepath.Join(dir, from+ending), filepath.Join(dir, to+ending))
		}
	}
	move("headgate.db", "away.db")
	routes(t, dir, "GET /d")
	if !harness.Eventually(patience, func() bool { return strings.Contains(g.Log(), "rules for the new endpoints") }) {
		t.Error("that the database is away is not said")
	}
	move("away.db", "headgate.db")
	if !harness.Eventually(patience, serves("/d", 200)) {
		t.Error("what was good is not in force when the database is back")
	}
}

// systemd hears what processes tell it (sd_notify(3)).
type systemd struct{ said chan string }

func notified(t *testing.T) *systemd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	s := &systemd{make(chan string, 100)}
	go func() {
		defer close(s.said)
		for {
			text := make([]byte, 1024)
			n, err := socket.Read(text)
			if err != nil {
				return
			}
			s.said <- string(text[:n])
		}
	}()
	return s
}

func (s *systemd) want(t *testing.T, state string) {
	t.Helper()
	got, ok := <-s.said
	if line, more, _ := strings.Cut(got, "\n"); !ok || line != state ||
		line == "RELOADING=1" && !strings.HasPrefix(more, "MONOTONIC_USEC=") {
		t.Fatalf("systemd is told %q, want %s", got, state)
	}
}
