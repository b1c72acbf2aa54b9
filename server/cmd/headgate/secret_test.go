package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/admin"
)

// TestSecretRotation walks through a rotation by the command alone.
func TestSecretRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "headgate.db.secret")
	if code, _, stderr := call(t, dir, "secret", "rotate"); code != exitFailure ||
		!strings.Contains(stderr, "headgate.db") {
		t.Errorf("rotating nothing = exit %d, %s", code, stderr)
	}
	must(t, dir, "key", "create", "--project", "acme", "--name", "ci")
	must(t, dir, "key", "create", "--project", "acme", "--name", "reader", "--scope", "GET", "--scope",
		"POST /v1/items")
	var keys []admin.KeyEntry
	list := func() []admin.KeyEntry {
		t.Helper()
		if err := json.Unmarshal([]byte(must(t, dir, "key", "list", "--json")), &keys); err != nil || len(keys) != 2 {
			t.Fatalf("list --json: %v, %v", keys, err)
		}
		return keys
	}
	if before := list(); before[0].Secret != before[1].Secret || len(before[0].Secret) != 8 ||
		strings.Join(before[1].Scopes, ",") != "GET,POST /v1/items" {
		t.Errorf("keys %+v, want one secret, and the scopes of the second", before)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := call(t, dir, "secret", "rotate", "--drop-old"); code != exitFailure ||
		!strings.Contains(stderr, "no rotation is under way") {
		t.Errorf("ending no rotation = exit %d, %s", code, stderr)
	}
	if code, _, stderr := call(t, dir, "secret", "rotate", "--yes"); code != exitUsage ||
		!strings.Contains(stderr, "--yes is for --drop-old") {
		t.Errorf("--yes alone = exit %d, %s", code, stderr)
	}

	out := must(t, dir, "secret", "rotate")
	if !strings.Contains(out, "keys: 2, active: 2") || !strings.Contains(out, "--drop-old") ||
		strings.Contains(out, strings.TrimSpace(string(first))[:16]) {
		t.Errorf("rotate says\n%s\nwant the keys under the previous secret and what comes next, and no secret", out)
	}
	second, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(string(second), "\nprevious "+string(first)) {
		t.Errorf("the file does not keep the first secret as the previous one: %v", err)
	}
	if code, _, stderr := call(t, dir, "secret", "rotate"); code != exitFailure ||
		!strings.Contains(stderr, "holds a previous secret already") {
		t.Errorf("rotating twice = exit %d, %s", code, stderr)
	}
	must(t, dir, "key", "revoke", list()[0].ID)
	code, _, stderr := call(t, dir, "secret", "rotate", "--drop-old")
	if code != exitFailure || !strings.Contains(stderr, "1 active keys are still under the previous secret "+
		keys[0].Secret+" and would be lost") {
		t.Errorf("ending the rotation too soon = exit %d, %s", code, stderr)
	}
	if now, _ := os.ReadFile(path); string(now) != string(second) {
		t.Error("a refused end changed the file")
	}
	if out := must(t, dir, "secret", "rotate", "--drop-old", "--yes"); !strings.Contains(out,
		"1 active keys are lost") {
		t.Errorf("rotate --drop-old --yes says %s", out)
	}
	if out := must(t, dir, "secret", "show"); !strings.Contains(out, "neither") ||
		!strings.Contains(out, "keys: 2, active: 1: no gateway recognises them") {
		t.Errorf("show says\n%s\nwant the lost keys", out)
	}
}

func TestScopesAreChecked(t *testing.T) {
	dir := t.TempDir()
	code, _, stderr := call(t, dir, "key", "create", "--project", "acme", "--name", "ci", "--scope", "get /v1",
		"--scope", "GET")
	if code != exitUsage || !strings.Contains(stderr, `scopes[0] is "get /v1", want a method, a template, or both`) {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("a refused key left %v", entries)
	}
}
