package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/admin"
)

func TestKeysAreRotated(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "key", "create", "--project", "acme", "--name", "ci", "--tier", "gold", "--scope", "GET")
	must(t, dir, "key", "create", "--project", "globex", "--name", "other")
	list := func(args ...string) (keys []admin.KeyEntry) {
		if err := json.Unmarshal([]byte(must(t, dir, append([]string{"key", "list", "--json"}, args...)...)),
			&keys); err != nil {
			t.Fatal(err)
		}
		return keys
	}
	old := list("--project", "acme")
	if len(old) != 1 || len(list()) != 2 {
		t.Fatalf("acme has %d keys of %d", len(old), len(list()))
	}
	var made admin.MadeKey
	if err := json.Unmarshal([]byte(must(t, dir, "key", "rotate", old[0].ID, "--grace", "1d", "--json")),
		&made); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(made.Key, "hg_") || made.Project != "acme" || made.Name != "ci" || made.Tier != "gold" ||
		strings.Join(made.Scopes, " ") != "GET" || !made.Expires.IsZero() {
		t.Errorf("the new key is %+v, want one like the other", made)
	}
	now := list("--project", "acme")
	if len(now) != 2 || now[0].Expires.Sub(now[1].Created).Round(time.Minute) != 24*time.Hour {
		t.Errorf("then there are %+v, want the other to end in a day", now)
	}
	must(t, dir, "key", "revoke", made.ID)
	for _, wrong := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"key", "rotate", made.ID}, exitFailure, "the key is revoked or expired already"},
		{[]string{"key", "rotate", "k_none"}, exitFailure, "`headgate key list` shows those there are"},
		{[]string{"key", "rotate", old[0].ID, "--grace", "2161h"}, exitUsage,
			"grace is 2161h0m0s, want 0s to 2160h0m0s"},
	} {
		if code, _, text := call(t, dir, wrong.args...); code != wrong.code || !strings.Contains(text, wrong.want) {
			t.Errorf("%v = %d %s, want %d %s", wrong.args, code, text, wrong.code, wrong.want)
		}
	}
	must(t, dir, "key", "rotate", old[0].ID)
	if got := list("--project", "acme")[0]; got.Expires.After(time.Now()) {
		t.Errorf("rotated without grace: it ends at %v, want at once", got.Expires)
	}
}

func TestKeysAreShownOnceAndRevocable(t *testing.T) {
	dir := t.TempDir()
	key := strings.TrimSpace(must(t, dir, "key", "create", "--project", "acme", "--name", "ci"))
	if !strings.HasPrefix(key, "hg_") {
		t.Fatalf("key create printed %q, want the key alone", key)
	}
	for _, command := range []string{"revoke", "rotate"} { // a key in place of its ID is not repeated
		if code, out, text := call(t, dir, "key", command, key); code != exitUsage ||
			!strings.Contains(text, "ID is a key itself") || strings.Contains(out+text, key) {
			t.Errorf("key %s KEY = %d %s %s", command, code, out, text)
		}
	}
	list := must(t, dir, "key", "list")
	if strings.Contains(list, key) || !strings.Contains(list, "acme") || !strings.Contains(list, "active") {
		t.Errorf("list =\n%s\nwant the key's project and state, never the key", list)
	}
	if out, err := exec.Command("grep", "-rc", key, dir).CombinedOutput(); err == nil {
		t.Errorf("the key stands in a file:\n%s", out)
	}
	var keys []admin.KeyEntry
	if err := json.Unmarshal([]byte(must(t, dir, "key", "list", "--json")), &keys); err != nil || len(keys) != 1 {
		t.Fatalf("list --json: %v, %v", keys, err)
	}
	if code, _, stderr := call(t, dir, "key", "revoke", "k_none"); code != exitFailure ||
		!strings.Contains(stderr, "k_none") || !strings.Contains(stderr, "headgate key list") {
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
	if _, _, stderr := call(t, dir, "key", "create", "--project", "acme", "--name", "one"); strings.Contains(stderr,
		"another secret") {
		t.Errorf("the first key: %s, want no warning", stderr)
	}
	write(t, dir, "other.secret", strings.Repeat("ab", 32)+"\n")
	const want = "1 key of the database is under another secret than that of other.secret"
	if code, _, stderr := call(t, dir, "key", "create", "--project", "acme", "--name", "two", "--secret-file",
		"other.secret"); code != exitOK || !strings.Contains(stderr, want) {
		t.Errorf("a key under another secret: exit %d, %s, want %q", code, stderr, want)
	}
}
