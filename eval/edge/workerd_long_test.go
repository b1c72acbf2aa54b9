//go:build long

package edge_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/wasm"
)

// TestWorkerdRunsTheExample serves examples/edge by workerd, the program that runs Cloudflare's workers: it answers as
// every door does, to whom a proxy before it names, and a burst is a burst.
func TestWorkerdRunsTheExample(t *testing.T) {
	set := setOf(t, tableOf(t, endpoint.Profile{}, "GET /v1/items/{id}"), "GET /v1/items/{id} 1/h burst 20 by ip",
		"UNKNOWN 1/s by ip")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// The example names its files as they lie in the repository.
	dir := filepath.Join(t.TempDir(), "examples/edge")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "clients"), filepath.Join(dir, "../../clients")); err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	for _, name := range []string{"worker.js", "worker.capnp", "limits.wasm"} {
		content := plainOf(t, wasm.Options{Policies: set, RejectUnknown: true})
		if name != "limits.wasm" {
			if content, err = os.ReadFile(filepath.Join(root, "examples/edge", name)); err != nil {
				t.Fatal(err)
			}
			content = []byte(strings.ReplaceAll(string(content), "127.0.0.1:8080", address))
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := new(logged)
	cmd := exec.Command(filepath.Join(root, "bin/workerd/node_modules/.bin/workerd"), "serve", "worker.capnp")
	cmd.Dir, cmd.Stderr, cmd.Stdout = dir, log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	get := func(method, path, from string) (status int, h http.Header, body string) {
		r, err := http.NewRequest(method, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("CF-Connecting-IP", from)
		r.Header.Set("Origin", "https://shop.example")
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, nil, err.Error()
		}
		defer got.Body.Close()
		b, _ := io.ReadAll(got.Body)
		return got.StatusCode, got.Header, string(b)
	}
	if !harness.Eventually(time.Minute, func() bool {
		status, _, _ := get("GET", "/nowhere",
			"192.0.2.9")
		return status > 0
	}) {
		t.Fatalf("workerd does not answer:\n%s", log)
	}
	passed := 0
	for i := range 60 {
		status, h, body := get("GET", fmt.Sprintf("/v1/items/%d?x=y", i), "192.0.2.1")
		if status == http.StatusOK {
			passed++
			want := fmt.Sprintf(`"GET /v1/items/{id} per ip";r=%d`, 20-passed)
			if !strings.HasPrefix(h.Get("RateLimit"), want) || body != fmt.Sprintf("served /v1/items/%d\n", i) ||
				h.Get("Access-Control-Expose-Headers") == "" {
				t.Errorf("%v %q, want RateLimit %s", h, body, want)
			}
		} else if status != 429 || h.Get("Retry-After") == "" || h.Get("Content-Type") != "application/problem+json" ||
			!strings.Contains(body, "Quota exceeded") {
			t.Errorf("%d %v %q", status, h, body)
		}
	}
	if passed != 20 {
		t.Errorf("%d pass, want the burst of 20", passed)
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{{"GET", "/v1/items/7", 200}, {"GET", "/nowhere", 404}, {"DELETE", "/v1/items/7", 405}, {"GET",
		"/v1/items/%00", 400},
		{"GET", "/v1/items/a%2fb", 400}, {"HEAD", "/v1/items/7", 200}} {
		if status, h, body := get(c.method, c.path, "192.0.2.2"); status != c.status {
			t.Errorf("%s %s: %d %v %q, want %d", c.method, c.path, status, h, body, c.status)
		}
	}
}
