//go:build unix

package doors

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/redistest"
)

// throttler is a server that has CL.THROTTLE.
type throttler struct {
	address      string
	freeze, thaw func()
	kill         func()
}

// throttlers are redis-cell in a real Redis, and the door of this project that speaks like it.
var throttlers = map[string]func(t *testing.T) throttler{
	"redis-cell": func(t *testing.T) throttler {
		root, err := harness.Root()
		if err != nil {
			t.Fatal(err)
		}
		// scripts/install-redis-cell makes it
		s := redistest.StartOnPort(t, "--loadmodule", filepath.Join(root, "bin", "redis-cell.so"))
		return throttler{s.Address(), s.Freeze, s.Thaw, s.Kill}
	},
	"Headgate": func(t *testing.T) throttler {
		s := harness.Serve(t, t.TempDir(), "--listen", "none", "--decisions-resp", "127.0.0.1:0")
		signal := func(send func() error) func() {
			return func() {
				if err := send(); err != nil {
					t.Error(err)
				}
			}
		}
		return throttler{s.RESP, signal(s.Freeze), signal(s.Thaw), s.Kill}
	},
}

// Two gateways whose store is asked by CL.THROTTLE admit a limit once; while it is frozen, or was killed, each
// rule does what it says for that.
func TestStoreByThrottle(t *testing.T) {
	for name, start := range throttlers {
		t.Run(name, func(t *testing.T) { t.Parallel(); storeByThrottle(t, start(t)) })
	}
}

func storeByThrottle(t *testing.T, store throttler) {
	dir, api := t.TempDir(), newAPI(t)
	write(t, filepath.Join(dir, "secret"), strings.Repeat("0123456789abcdef", 4)+"\n")
	write(t, filepath.Join(dir, "routes.txt"), "GET /closed\nGET /open\nGET /both\nGET /lease\n")
	write(t, filepath.Join(dir, "headgate.yaml"),
		fmt.Sprintf("upstream: %s\nroutes: [routes.txt]\nbad_credentials: ignore\n"+
			"store: {kind: throttle, redis: ['%s'], secret_file: secret, replicas: 2, deadline: 2s}\n", api.URL,
			store.address))
	db := "sqlite:" + filepath.Join(dir, "headgate.db")
	for _, rule := range [][]string{
		{"default", "1000/s"}, {"UNKNOWN", "1/s"},
		{"GET /closed", "10/d", "--scope", "strict"},
		{"GET /open", "10/d", "--scope", "strict", "--on-store-loss", "open"},
		{"GET /both", "4/d", "--scope", "strict"}, {"GET /both", "6/d", "--scope", "strict", "--subject", "endpoint"},
		{"GET /lease", "5/d", "--scope", "lease"},
	} {
		harness.Run(t, dir, append([]string{"policy", "set", "--db", db}, rule...)...)
	}
	var gateways [2]*harness.Gateway
	for i := range gateways {
		gateways[i] = harness.Serve(t, dir, "--config", "headgate.yaml", "--db", db)
	}
	client := &http.Client{Timeout: time.Minute}
	ask := func(i int, path string) *http.Response {
		t.Helper()
		answer, err := client.Get(gateways[i%2].URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer
	}
	passed := func(times int, path string) (n int) {
		t.Helper()
		for i := range times {
			switch status := ask(i, path).StatusCode; status {
			case http.StatusOK:
				n++
			case http.StatusTooManyRequests:
			default:
				t.Errorf("GET %s: %d", path, status)
			}
		}
		return n
	}
	began := time.Now()
	if n := passed(14, "/closed"); n != 10 {
		t.Errorf("%d of a limit of 10 passed at two gateways", n)
	}
	if n := passed(8, "/lease"); n != 5 {
		t.Errorf("%d of a limit of 5 of scope lease passed at two gateways", n)
	}
	denied := ask(0, "/closed")
	// A tenth of a day, less what passed since the first of them, and up to two seconds more where a server rounds up.
	passing := int(time.Since(began).Seconds()) + 1
	if after, err := strconv.Atoi(denied.Header.Get("Retry-After")); denied.StatusCode != 429 || err != nil ||
		after < 8640-passing || after > 8642 || !strings.Contains(denied.Header.Get("RateLimit"), `;r=0;`) {
		t.Errorf("denied after %d s: %d, Retry-After %d, RateLimit %q", passing, denied.StatusCode, after,
			denied.Header.Get("RateLimit"))
	}
	// Of two limits the smaller one holds.
	if n := passed(9, "/both"); n != 4 {
		t.Errorf("%d passed under limits of 6 and 4", n)
	}
	if n := passed(2, "/open"); n != 2 {
		t.Errorf("%d of 2 passed", n)
	}

	without := func(what string) {
		t.Helper()
		for i := range gateways {
			if !harness.Eventually(time.Minute, func() bool {
				return ask(i, "/open").StatusCode == http.StatusOK && ask(i, "/closed").StatusCode == 503
			}) {
				t.Errorf("%s: gateway %d does not do as its rules say", what, i)
			}
		}
	}
	store.freeze()
	without("frozen")
	store.thaw()
	for i := range gateways {
		if !harness.Eventually(time.Minute, func() bool { return ask(i, "/closed").StatusCode == 429 }) {
			t.Errorf("gateway %d does not find the store again", i)
		}
	}
	store.kill()
	without("killed")
}

// A server without the command is refused at the start, with what to do.
func TestStoreWithoutThrottle(t *testing.T) {
	store := redistest.StartOnPort(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "secret"), strings.Repeat("0123456789abcdef", 4)+"\n")
	write(t, filepath.Join(dir, "routes.txt"), "GET /a\n")
	write(t, filepath.Join(dir, "headgate.yaml"),
		fmt.Sprintf("upstream: http://127.0.0.1:9\nroutes: [routes.txt]\nstore: {kind: throttle, redis: ['%s'], "+
			"secret_file: secret}\n", store.Address()))
	_, err := harness.Start(dir, "--config", "headgate.yaml")
	if err == nil || !strings.Contains(err.Error(), "it does not answer CL.THROTTLE") ||
		!strings.Contains(err.Error(), "redis-cell") {
		t.Errorf("a start with a Redis that has no redis-cell: %v", err)
	}
}
