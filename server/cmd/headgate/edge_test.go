package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEdgeBuild: what cannot be built is said with its file, field and value, and leaves no file.
func TestEdgeBuild(t *testing.T) {
	dir := t.TempDir()
	routes := write(t, dir, "routes.txt", "GET /v1/items/{id}\n")
	good := write(t, dir, "good.yaml",
		"rules:\n  - {endpoint: default, limit: 20, name: all}\n  - {endpoint: UNKNOWN, limit: 5}\n")
	window := write(t, dir, "window.yaml", "rules:\n  - {endpoint: default, limit: 5, algorithm: fixed_window}\n")
	wrong := write(t, dir, "wrong.yaml", "rules:\n  - {endpoint: default, limit: -5}\n")
	out := filepath.Join(dir, "filter.wasm")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--routes", routes}, []string{"--policy is empty"}},
		{[]string{"--policy", good}, []string{"no document: give --openapi FILE, --routes FILE"}},
		{[]string{"--policy", filepath.Join(dir, "none.yaml"), "--routes", routes}, []string{"none.yaml"}},
		{[]string{"--policy", wrong, "--routes", routes}, []string{"wrong.yaml", "limit is -5", "1 to 9"}},
		{[]string{"--policy", window, "--routes", routes}, []string{"window.yaml",
			"algorithm is fixed_window, want token_bucket"}},
		{[]string{"--policy", good, "--routes", routes, "--shared", "logins"}, []string{"good.yaml", `Shared names "logins", want the title of a rule`}},
		{[]string{"--policy", good, "--routes", routes, "--buckets", "-1"}, []string{"Buckets is -1, want 64 to"}},
		{[]string{"--policy", good, "--routes", routes, "--trusted-hops", "-1"},
			[]string{"TrustedHops is -1, want 0 to 64"}},
	} {
		code, _, text := call(t, dir, append([]string{"edge", "build", "-o", out}, c.args...)...)
		for _, want := range c.want {
			if code == 0 || !strings.Contains(text, want) {
				t.Errorf("%q: exit status %d and %q, want an error that says %q", c.args, code, text, want)
			}
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%q leaves a file", c.args)
		}
	}
	code, said, text := call(t, dir, "edge", "build", "-o", out, "--policy", good, "--routes", routes, "--shared",
		"all", "--json")
	module, err := os.ReadFile(out)
	if code != 0 || err != nil || !strings.HasPrefix(string(module), "\x00asm") ||
		!strings.Contains(said, `"bytes"`) {
		t.Errorf("exit status %d, %q, %q, %v, and a file of %d bytes", code, said, text, err, len(module))
	}
}
