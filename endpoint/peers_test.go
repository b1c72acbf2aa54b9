package endpoint_test

import (
	"fmt"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
)

// TestBugsOfPeers replays how others' limits per endpoint were walked around: each of the targets
// got a bucket of its own there, and must be one endpoint, or invalid, here.
func TestBugsOfPeers(t *testing.T) {
	tokens := func(format string) (targets []string) {
		for i := range 1000 {
			targets = append(targets, fmt.Sprintf(format, i))
		}
		return targets
	}
	for _, tt := range []struct {
		bug     string
		want    string
		targets []string
	}{
		{"coder#27273: a doubled slash had a fresh bucket", "POST /api/v2/users/login",
			[]string{"//api/v2/users/login", "/api//v2/users/login", "/api/v2/users//login", "/api/v2/users/login//"}},
		{"envoy#6435, CVE-2019-9901: paths were matched as they came", "POST /api/v2/users/login",
			[]string{"/public/../api/v2/users/login", "/api/./v2/users/login", "/api/v2/users/%6cogin",
				"/api/v2/users/x/%2e%2e/login"}},
		{"envoy#22584, istio#36153: the query was part of the path", "POST /api/v2/users/login",
			tokens("/api/v2/users/login?x=%d")},
		{"limits keyed by the raw path (httprate.KeyByEndpoint): every name is a key", "GET /items/{id}",
			tokens("/items/%d")},
		{"and every unknown path", "", tokens("/wp-%d/login.php")},
		{"a slash at the end", "POST /api/v2/users/login",
			[]string{"/api/v2/users/login/", "/api/v2/users/login/?", "/api/v2/users/login/."}},
	} {
		table := table(t, endpoint.Profile{}, "POST /api/v2/users/login", "GET /items/{id}")
		for _, target := range tt.targets {
			method := "POST"
			if tt.want == "GET /items/{id}" {
				method = "GET"
			}
			if m := table.Match(method, target); table.Template(m.ID).String() != tt.want ||
				m.Status == endpoint.Invalid {
				t.Errorf("%s: Match(%q, %q) = %s, want %q", tt.bug, method, target, describe(table, m), tt.want)
			}
		}
	}
	stripped := table(t, endpoint.Profile{Params: endpoint.StripParams}, "POST /api/v2/users/login")
	for _, target := range []string{"/api/v2/users/login;jsessionid=1", "/api/v2;x/users/login"} {
		if m := stripped.Match("POST", target); m.Status != endpoint.Known {
			t.Errorf("a parameter of the path: Match(POST, %q) = %s, want the login", target, describe(stripped, m))
		}
	}
}
