package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestWindowsAreLocal asks for every other scope with every kind of window, at every door. None
// takes such a rule, each says what would be right, and the rules in force stay.
func TestWindowsAreLocal(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "3")
	_, side := running(t, dir)
	policies := func(method, body string) (status int, text string) {
		request, err := http.NewRequest(method, side+"/v1/policies", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		all, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, strings.ReplaceAll(string(all), `\"`, `"`)
	}
	type refused struct{ algorithm, scope, want string }
	var all []refused
	for _, algorithm := range []string{"fixed_window", "sliding_window", "sliding_log"} {
		for _, scope := range []string{"split", "lease", "sync", "strict"} {
			all = append(all, refused{algorithm, scope,
				fmt.Sprintf(
					`scope is %q, want "local", because a %s is counted in one place alone; or algorithm token_bucket`,
					scope, algorithm)})
		}
	}
	for _, c := range all {
		flags := []string{"--algorithm", c.algorithm, "--scope", c.scope}
		rule := fmt.Sprintf(`{"endpoint": "POST /v1/items", "limit": 5, "algorithm": %q, "scope": %q}`,
			c.algorithm, c.scope)
		write(t, dir, "rules.json", `{"rules": [{"endpoint": "default", "limit": 3}, `+rule+`]}`)
		write(t, dir, "rules.yaml",
			fmt.Sprintf("rules:\n  - {endpoint: default, limit: 3}\n  - {endpoint: POST /v1/items, limit: 5, "+
				"algorithm: %s, scope: %s}\n", c.algorithm, c.scope))
		for _, args := range [][]string{
			{"policy", "lint", "rules.yaml", "--routes", "routes.txt"},
			{"policy", "import", "rules.json"},
			{"policy", "import", "rules.yaml"},
			{"policy", "apply", "rules.yaml", "--yes"},
			append([]string{"policy", "set", "POST /v1/items", "5"}, flags...),
			append([]string{"policy", "set", "POST /v1/items", "5", "--server", side}, flags...),
		} {
			if code, stdout, stderr := call(t, dir, args...); code == exitOK ||
				!strings.Contains(stdout+stderr, c.want) {
				t.Errorf("headgate %s: exit %d, %s%s\nwant %s", strings.Join(args, " "), code, stdout, stderr, c.want)
			}
		}
		if status, text := policies(http.MethodPut, rule); status != http.StatusUnprocessableEntity ||
			!strings.Contains(text, c.want) {
			t.Errorf("PUT /v1/policies of %s: %d, %s\nwant 422, %s", rule, status, text, c.want)
		}
	}
	for i, c := range all { // what a shell writes nobody can refuse: it does not come into force
		typed(t, dir,
			fmt.Sprintf("INSERT INTO policies (endpoint, project_id, rps_limit, algorithm, scope) VALUES ('POST "+
				"/v1/items', 'p%d', 5, '%s', '%s')", i, c.algorithm, c.scope))
	}
	text := ""
	if !eventually(time.Minute, func() bool {
		_, text = policies(http.MethodGet, "")
		for _, c := range all {
			if !strings.Contains(text, c.want) {
				return false
			}
		}
		return true
	}) {
		t.Errorf("GET /v1/policies with %d rows that have another scope: %s\nwant each of them in last_error",
			len(all), text)
	}
	if !strings.Contains(text, `"rules":1,`) {
		t.Errorf("GET /v1/policies says %s, want the one rule from before", text)
	}
}
