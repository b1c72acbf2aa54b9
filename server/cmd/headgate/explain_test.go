package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExplainOffline(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "routes.txt", routesFile)
	must(t, dir, "policy", "set", "GET /v1/items/{id}", "5")
	key := strings.TrimSpace(must(t, dir, "key", "create", "--project", "acme", "--name", "ci"))
	out := must(t, dir, "explain", "GET", "/v1/items/7?x=1", "--offline", "--routes", "routes.txt", "--header", "X-Api-Key: "+key, "--peer", "2001:db8::1")
	for _, want := range []string{"/v1/items/7", "GET /v1/items/{id} (known)", "project acme", "2001:db8::/64", "the most specific rule", "verdict  allowed", "offline"} {
		if !strings.Contains(out, want) {
			t.Errorf("explain does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, key) {
		t.Errorf("explain repeats the key:\n%s", out)
	}
}

// To look is to leave no trace.
func TestExplainOfflineWritesNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "routes.txt", routesFile)
	if code, _, stderr := call(t, dir, "explain", "GET", "/v1/items/1", "--offline", "--routes", "routes.txt"); code != exitFailure || !strings.Contains(stderr, "headgate.db") {
		t.Errorf("explain --offline without a database = exit %d, %s, want it said", code, stderr)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("explain --offline made files: %v", files)
	}
	must(t, dir, "policy", "set", "default", "5")
	write(t, dir, "headgate.db.last-good.json", "kept")
	must(t, dir, "explain", "GET", "/v1/items/1", "--offline", "--routes", "routes.txt")
	if text, _ := os.ReadFile(filepath.Join(dir, "headgate.db.last-good.json")); string(text) != "kept" {
		t.Errorf("explain --offline wrote the last good copy: %s", text)
	}
	for _, name := range []string{"headgate.db.secret", ".keys.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("explain --offline made %s", name)
		}
	}
}
