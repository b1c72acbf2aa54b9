// Package harness starts the real `headgate serve` process, an API behind it,
// and what else an evaluation needs, on free ports and in temporary folders.
package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/livelog"
)

// build makes the command, in bin/eval of the repository: the next process that
// wants it finds it there, and links it anew only if its code has changed.
var build = sync.OnceValues(func() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "eval")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	turn, err := os.Open(dir) // one process at a time
	if err != nil {
		return "", err
	}
	defer turn.Close()
	if err := syscall.Flock(int(turn.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("wait for who builds in %s: %w", dir, err)
	}
	binary := filepath.Join(dir, "headgate")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/headgate")
	cmd.Dir = filepath.Join(root, "server")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, out)
	}
	return binary, nil
})

// Root returns the folder of the repository.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "server", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no folder above holds server/go.mod: run this inside the repository")
		}
		dir = filepath.Dir(dir)
	}
}

// Binary returns the path of the built command.
func Binary(t testing.TB) string {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// Upstream is an API that answers 200 to everything and counts.
type Upstream struct {
	*httptest.Server
	Served atomic.Int64
}

// NewUpstream starts an Upstream that ends with the test.
func NewUpstream(t testing.TB) *Upstream {
	t.Helper()
	u := &Upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		u.Served.Add(1)
		_, _ = io.WriteString(w, "ok\n")
	}))
	t.Cleanup(u.Close)
	return u
}

// Gateway is a running `headgate serve`.
type Gateway struct {
	URL       string // of the gateway; empty without one
	Decisions string // URL where proxies ask; empty if none does
	GRPC      string // the address where they ask over gRPC; empty if none does
	RESP      string // the address where clients of Redis ask; empty if none does
	SPOE      string // where HAProxy asks by messages
	Admin     string // URL of the admin listener
	Dir       string // its working directory
	DB        string // DSN of its database

	cmd  *exec.Cmd
	log  *livelog.Text
	done chan error
}

// Serve starts `headgate serve` in dir with args, on free ports, with the
// database headgate.db in dir. It is stopped with the test.
func Serve(t testing.TB, dir string, args ...string) *Gateway {
	t.Helper()
	g, err := start(Binary(t), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Kill()
		if t.Failed() {
			t.Logf("log of the gateway:\n%s", g.Log())
		}
	})
	return g
}

// Engine is a variable of the environment: which engine reads the requests of the gateways that are started, as the
// setting of that name says. Default what their configurations say.
const Engine = "HEADGATE_TEST_ENGINE"

// Start is Serve for programs: the caller ends what it starts, with Kill.
func Start(dir string, args ...string) (*Gateway, error) {
	binary, err := build()
	if err != nil {
		return nil, err
	}
	return start(binary, dir, args...)
}

// Command runs the command with args in dir, for programs.
func Command(dir string, args ...string) error {
	binary, err := build()
	if err != nil {
		return err
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("headgate %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Output is Command, and returns what is printed to stdout.
func Output(dir string, args ...string) (string, error) {
	binary, err := build()
	if err != nil {
		return "", err
	}
	var said bytes.Buffer
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Stderr = dir, &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("headgate %s: %w\n%s", strings.Join(args, " "), err, said.Bytes())
	}
	return string(out), nil
}

// StartWithin is Start for a process that may open so many descriptors, and may use the processors of a list as
// taskset reads it, or all where that is empty.
func StartWithin(descriptors int, processors, dir string, args ...string) (*Gateway, error) {
	binary, err := build()
	if err != nil {
		return nil, err
	}
	command := []string{"/bin/sh", "-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(descriptors)}
	if processors != "" {
		command = append(command, "taskset", "-c", processors)
	}
	return startBy(append(command, binary), dir, args...)
}

func start(binary, dir string, args ...string) (*Gateway, error) {
	return startBy([]string{binary}, dir, args...)
}

func startBy(command []string, dir string, args ...string) (*Gateway, error) {
	g := &Gateway{
		Dir: dir, DB: "sqlite:" + filepath.Join(dir, "headgate.db"),
		log: &livelog.Text{}, done: make(chan error, 1),
	}
	g.cmd = exec.Command(command[0], append(append(command[1:len(command):len(command)], "serve", "--listen",
		"127.0.0.1:0", "--admin", "127.0.0.1:0", "--db", g.DB), args...)...)
	if engine := os.Getenv(Engine); engine != "" {
		g.cmd.Args = append(g.cmd.Args, "--engine", engine)
	}
	g.cmd.Dir, g.cmd.Stderr = dir, g.log
	stdout, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	for g.Admin == "" && lines.Scan() { // which is told last
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "gateway":
			g.URL = fields[1]
		case "decisions":
			g.Decisions = fields[1]
		case "grpc":
			g.GRPC = fields[1]
		case "resp":
			g.RESP = fields[1]
		case "spoe":
			g.SPOE = fields[1]
		case "admin":
			g.Admin = fields[1]
		}
	}
	go func() {
		_, _ = io.Copy(g.log, stdout)
		g.done <- g.cmd.Wait()
	}()
	if g.Admin == "" {
		<-g.done
		return nil, fmt.Errorf("headgate serve did not start:\n%s", g.Log())
	}
	return g, nil
}

// PID is the number of the process.
func (g *Gateway) PID() int { return g.cmd.Process.Pid }

// Kill ends the process as a power cut would.
func (g *Gateway) Kill() {
	_ = g.cmd.Process.Kill()
	g.wait()
}

// Stop asks the process to finish and returns its exit error.
func (g *Gateway) Stop() error {
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return g.wait()
}

// Freeze stops the process where it is: it keeps its connections and does
// nothing. Thaw lets it go on.
func (g *Gateway) Freeze() error {
	if err := g.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	// The signal is on its way when it was sent: a thread may still answer a request.
	if runtime.GOOS == "linux" && !Eventually(patience, g.stands) {
		return errors.Join(fmt.Errorf("it has threads that run %v after it was stopped", patience), g.Thaw())
	}
	return nil
}

func (g *Gateway) Thaw() error { return g.cmd.Process.Signal(syscall.SIGCONT) }

// stands reports whether all threads of the process are stopped.
func (g *Gateway) stands() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", g.PID()))
	for _, thread := range threads {
		text, errRead := os.ReadFile(thread)
		_, after, _ := strings.Cut(string(text), ") ") // of its name
		if err = errors.Join(err, errRead); err != nil || !strings.HasPrefix(after, "T") {
			return false
		}
	}
	return err == nil && len(threads) > 0
}

func (g *Gateway) wait() error {
	err := <-g.done
	g.done <- err // for the next caller
	return err
}

// Log returns what the process has written so far, but for the two lines that
// say where it listens.
func (g *Gateway) Log() string { return g.log.String() }

// patience is how long a machine that is busy may take to what comes about.
const patience = 30 * time.Second

// Says waits until the log holds a text, and reports whether it came to. What a
// line is about may be seen before the line: it comes through a pipe.
func (g *Gateway) Says(text string) bool {
	return Eventually(patience, func() bool { return strings.Contains(g.Log(), text) })
}

// Metric returns the value of a metric's line that begins with name, which
// may hold labels: `headgate_denied_total{reason="over_limit"`.
func (g *Gateway) Metric(t testing.TB, name string) string {
	t.Helper()
	for line := range strings.Lines(Get(t, g.Admin+"/metrics")) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			fields := strings.Fields(rest)
			return fields[len(fields)-1]
		}
	}
	return ""
}

// Run runs the command with args and fails the test if it fails.
func Run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(Binary(t), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("headgate %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Get returns the body of a URL that answers 200.
func Get(t testing.TB, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s = %s, %v\n%s", url, response.Status, err, body)
	}
	return string(body)
}

// Eventually checks until ok or the time is over, and reports whether it came
// to be. It is for what another process does in its own time; the bound is
// the promise under test.
func Eventually(within time.Duration, ok func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ok()
		case <-ticker.C:
		}
	}
	return true
}
