//go:build long

package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/eval/harness"
)

// scene is a gateway as one is after some work: several customers, rules of every kind, a page for
// callers, some denied.
type scene struct {
	*harness.Gateway
	keys map[string]string // by project
}

// at sends requests of a project, or of nobody, and reports how many were denied.
func (s *scene) at(t testing.TB, project, method, path string, n int) (denied int) {
	t.Helper()
	for range n {
		r, err := http.NewRequest(method, s.URL+path, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		if project != "" {
			r.Header.Set("X-Api-Key", s.keys[project])
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusTooManyRequests {
			denied++
		}
	}
	return denied
}

func newScene(t testing.TB) *scene {
	t.Helper()
	dir := t.TempDir()
	var routes strings.Builder
	for _, what := range []string{"books", "orders", "customers", "invoices", "exports", "webhooks"} {
		fmt.Fprintf(&routes, "GET /v1/%[1]s\nGET /v1/%[1]s/{id}\nPOST /v1/%[1]s\nDELETE /v1/%[1]s/{id}\n", what)
	}
	for name, text := range map[string]string{
		"routes.txt": routes.String() + "POST /v1/login\n",
		"headgate.yaml": "routes: [routes.txt]\nunknown: limit\ndevelopers: {path: /.headgate}\nwarnings: " +
			"{caller_percent: 80, denied_percent: 5}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set := func(args ...string) { harness.Run(t, dir, append([]string{"policy", "set"}, args...)...) }
	set("default", "60/h", "--burst", "20")
	set("UNKNOWN", "5/m")
	set("*", "3000/h", "--burst", "600", "--subject", "project")
	set("GET /v1/books/{id}", "30/h", "--burst", "10")
	set("POST /v1/orders", "30/m", "--burst", "5", "--name", "orders placed")
	set("POST /v1/exports", "100/d", "--burst", "700")
	set("POST /v1/login", "5/m", "--subject", "ip", "--algorithm", "sliding_log", "--count-when", "401,403",
		"--penalty", "10 in 1m for 15m")
	set("GET /v1/invoices", "10000", "--per", "720h", "--algorithm", "calendar:Europe/Zurich", "--subject", "project")
	set("GET /v1/books/{id}", "300/h", "--project", "orchard", "--why", "contract of October")
	set("GET /v1/customers", "20/m", "--mode", "shadow")
	set("DELETE /v1/webhooks/{id}", "2/m", "--expires", "48h", "--why", "until the new queue is there")
	s := &scene{keys: map[string]string{}}
	for _, project := range []string{"acme", "orchard", "lighthouse"} {
		lines := strings.Fields(harness.Run(t, dir, "key", "create", "--project", project, "--name", "server"))
		s.keys[project] = lines[len(lines)-1]
	}
	s.Gateway = harness.Serve(t, dir, "--upstream", harness.NewUpstream(t).URL, "--config", "headgate.yaml")
	s.at(t, "acme", "GET", "/v1/books/7", 34)
	s.at(t, "acme", "POST", "/v1/orders", 9)
	s.at(t, "orchard", "GET", "/v1/books/7", 40)
	s.at(t, "lighthouse", "GET", "/v1/customers", 26)
	s.at(t, "lighthouse", "DELETE", "/v1/webhooks/3", 5)
	s.at(t, "", "GET", "/v1/nothing", 12)
	s.at(t, "", "POST", "/v1/login", 3)
	return s
}
