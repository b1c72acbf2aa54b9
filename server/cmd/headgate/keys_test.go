package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeysAreShownOnceAndRevocable(t *testing.T) {
	dir := t.TempDir()
	key := strings.TrimSpace(must(t, dir, "key", "create", "--project", "acme", "--name", "ci"))
	if !strings.HasPrefix(key, "hg_") {
		t.Fatalf("key create printed %q, want the key alone", key)
	}
	list := must(t, dir, "key", "list")
	if strings.Contains(list, key) || !strings.Contains(list, "acme") || !strings.Contains(list, "active") {
		t.Errorf("list =\n%s\nwant the key's project and state, never the key", list)
	}
	if out, err := exec.Command("grep", "-rc", key, dir).CombinedOutput(); err == nil {
		t.Errorf("the key stands in a file:\n%s", out)
	}
	var keys []keyRow
	if err := json.Unmarshal([]byte(must(t, dir, "key", "list", "--json")), &keys); err != nil || len(keys) != 1 {
		t.Fatalf("list --json: %v, %v", keys, err)
	}
	if code, _, stderr := call(t, dir, "key", "revoke", "k_none"); code != exitFailure || !strings.Contains(stderr, "k_none") || !strings.Contains(stderr, "headgate key list") {
		t.Errorf("revoking an unknown key = exit %d, %s, want it named with the remedy", code, stderr)
	}
	must(t, dir, "key", "revoke", keys[0].ID)
	if list := must(t, dir, "key", "list"); !strings.Contains(list, "revoked") {
		t.Errorf("list after revoke =\n%s", list)
	}
}

// A secret that went missing is not silently replaced: every key would die.
func TestMissingSecretIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "key", "create", "--project", "acme", "--name", "ci")
	if err := os.Remove(filepath.Join(dir, "headgate.db.secret")); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := call(t, dir, "key", "create", "--project", "acme", "--name", "second")
	if code != exitFailure || !strings.Contains(stderr, "headgate.db.secret is missing") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// Two machines that each made a secret of their own create keys in one database.
func TestKeysUnderTwoSecretsWarn(t *testing.T) {
	dir := t.TempDir()
	if _, _, stderr := call(t, dir, "key", "create", "--project", "acme", "--name", "one"); strings.Contains(stderr, "another secret") {
		t.Errorf("the first key: %s, want no warning", stderr)
	}
	write(t, dir, "other.secret", strings.Repeat("ab", 32)+"\n")
	const want = "1 key of the database is under another secret than that of other.secret"
	if code, _, stderr := call(t, dir, "key", "create", "--project", "acme", "--name", "two", "--secret-file", "other.secret"); code != exitOK || !strings.Contains(stderr, want) {
		t.Errorf("a key under another secret: exit %d, %s, want %q", code, stderr, want)
	}
}
