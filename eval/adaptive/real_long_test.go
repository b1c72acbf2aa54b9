//go:build long

package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/mortal"
)

// asAPI makes the test's program an API of its own process.
const asAPI = "HEADGATE_ADAPTIVE_API"

func TestMain(m *testing.M) {
	if os.Getenv(asAPI) != "" {
		serveAPI()
		return
	}
	os.Exit(m.Run())
}

// serveAPI answers one request after the other, each after what /takes/NANOSECONDS said last.
func serveAPI() {
	var takes atomic.Int64
	var turn sync.Mutex
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if said, ok := strings.CutPrefix(r.URL.Path, "/takes/"); ok {
			n, _ := strconv.ParseInt(said, 10, 64)
			takes.Store(n)
			return
		}
		turn.Lock()
		defer turn.Unlock()
		if r.Context().Err() == nil {
			time.Sleep(time.Duration(takes.Load()))
		}
	})))
}

// TestRealAPIHalves has the capacity of a process behind a gateway halve and return, by each engine: the multiplier
// follows it down, and up again, and says so.
func TestRealAPIHalves(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) { halve(t, engine) })
	}
}

func halve(t *testing.T, engine string) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env, cmd.Stderr = append(os.Environ(), asAPI+"=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := mortal.Start(cmd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	api := "http://" + strings.TrimSpace(address)
	capacity := func(perSecond int) {
		harness.Get(t, fmt.Sprint(api, "/takes/", int(time.Second)/perSecond))
	}
	capacity(160)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"routes.txt": "GET /work\n",
		"headgate.yaml": "upstream: " + api + "\nroutes: [routes.txt]\nengine: " + engine +
			"\ntrusted_proxies: [127.0.0.1]\nclients: {max_requests_per_address: 4000}\n" +
			"adaptive: [{endpoints: [GET /work], slo: 500ms}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	harness.Run(t, dir, "policy", "set", "default", "120/s", "--burst", "20", "--subject", "endpoint", "--db",
		"sqlite:headgate.db")
	g := harness.Serve(t, dir, "--config", "headgate.yaml")

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	stop := make(chan struct{})
	var all sync.WaitGroup
	var answered atomic.Int64
	for caller := range 20 { // each asks ten times a second, whatever becomes of it
		all.Go(func() {
			for tick := time.NewTicker(100 * time.Millisecond); ; {
				select {
				case <-stop:
					tick.Stop()
					return
				case <-tick.C:
				}
				all.Go(func() {
					r, err := http.NewRequest(http.MethodGet, g.URL+"/work", nil)
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", caller))
					if answer, err := client.Do(r); err == nil {
						_ = answer.Body.Close()
						if answer.StatusCode == http.StatusOK {
							answered.Add(1)
						}
					}
				})
			}
		})
	}
	defer all.Wait()
	defer close(stop)
	const patience = 2 * time.Minute
	number := func(name string) float64 {
		n, err := strconv.ParseFloat(g.Metric(t, name), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	multiplier := func() float64 { return number("headgate_adaptive_multiplier") }
	comesTo := func(what string, ok func() bool) {
		t.Helper()
		if !harness.Eventually(patience, ok) {
			t.Fatalf("%s does not come about: multiplier %.2f, %d answered", what, multiplier(), answered.Load())
		}
	}
	comesTo("that requests are answered", func() bool { return answered.Load() > 300 })
	capacity(80)
	comesTo("that rates are lowered to what the API can do", func() bool { return multiplier() < 0.75 })
	raised := number(`headgate_adaptive_windows_total{outcome="raised"`)
	comesTo("that it is well by that", func() bool {
		return number(`headgate_adaptive_windows_total{outcome="raised"`) >= raised+2
	})
	said := harness.Run(t, dir, "explain", "GET", "/work", "--server", g.Admin)
	if !strings.Contains(said, "is lowered to 0.") {
		t.Errorf("explain says\n%s", said)
	}
	capacity(160)
	comesTo("that rates are what the rule says again", func() bool { return multiplier() > 0.97 })
	if !g.Says("adaptive: rates are lowered") {
		t.Error("the log does not say so")
	}
}
