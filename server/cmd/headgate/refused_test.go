package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A change that is refused makes no database where there was none.
func TestRefusedChangesMakeNoDatabase(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "half.json", `{"rules":[{"endpoint":"UNKNOWN","limit":5},{"endpoint":"not a template","limit":5}]}`)
	write(t, dir, "routes.txt", routesFile)
	for _, args := range [][]string{
		{"policy", "set", "nonsense", "5"},
		{"policy", "set", "default", "5", "--algorithm", "fixed_window", "--burst", "9"},
		{"policy", "set", "GET /v1/nothing", "5", "--routes", "routes.txt"},
		{"policy", "import", "half.json"},
		{"policy", "delete", "default"},
		{"key", "revoke", "k_none"},
	} {
		if code, _, stderr := call(t, dir, args...); code != exitFailure {
			t.Errorf("%v: exit %d, %s, want 1", args, code, stderr)
		}
		if _, err := os.Stat(filepath.Join(dir, "headgate.db")); err == nil {
			t.Fatalf("%v made a database", args)
		}
	}
}

// A change that is refused leaves the database as it was.
func TestRefusedChangesChangeNothing(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "10")
	before := must(t, dir, "policy", "export")
	write(t, dir, "half.json", `{"rules":[{"endpoint":"UNKNOWN","limit":5},{"endpoint":"not a template","limit":5}]}`)
	for _, args := range [][]string{
		{"policy", "import", "half.json"},
		{"policy", "import", "half.json", "--replace"},
		{"policy", "set", "nonsense", "5"},
		{"policy", "delete", "GET /a"},
	} {
		if code, _, _ := call(t, dir, args...); code != exitFailure {
			t.Errorf("%v: exit %d, want 1", args, code)
		}
	}
	if after := must(t, dir, "policy", "export"); after != before {
		t.Errorf("rules became\n%s, want\n%s", after, before)
	}
}

// What is said of scopes depends on the store of the configuration, as it does at a start.
func TestRulesAreCheckedAgainstTheStore(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "names", strings.Repeat("ab", 32)+"\n")
	write(t, dir, "shared.yaml", "store: {redis: [\"127.0.0.1:1\"], secret_file: names}\n")
	set := must(t, dir, "policy", "set", "POST /v1/payments", "5", "--scope", "strict", "--on-store-loss", "share")
	if want :=
		"set POST /v1/payments: 5 per 1s for each principal, scope strict, share while the store is lost\n"; set !=
		want {
		t.Errorf("set says %q, want %q", set, want)
	}
	// which says nothing of a local rule
	_, set, said := call(t, dir, "policy", "set", "default", "20", "--on-store-loss", "open")
	if set != "set default: 20 per 1s for each principal\n" ||
		!strings.Contains(said, `on_store_loss is "open", want none, because scope is "local"`) {
		t.Errorf("set --on-store-loss of a local rule says %q and %q", set, said)
	}
	_, _, said = call(t, dir, "policy", "set", "WS-SEND /v1/chat", "20", "--subject", "in_flight:ip")
	if !strings.Contains(said, "this one never applies") {
		t.Errorf("set of a rule that never applies says %q", said)
	}
	must(t, dir, "policy", "delete", "WS-SEND /v1/chat", "--subject", "in_flight:ip")
	listed := strings.Join(strings.Fields(must(t, dir, "policy", "list")), " ")
	if want := "SCOPE STORE LOST POST /v1/payments - - principal 5 per 1s - enforce - strict share default - - " +
		"principal 20 per 1s - enforce - - -"; !strings.HasSuffix(listed, want) {
		t.Errorf("list says %q, want %q at the end", listed, want)
	}
	for config, want := range map[string]struct{ warns, silent string }{
		"":            {"[unshared]", "[scattered]"},
		"shared.yaml": {"[scattered]", "[unshared]"},
	} {
		args := []string{"policy", "lint"}
		if config != "" {
			args = append(args, "--config", config)
		}
		_, out, _ := call(t, dir, args...)
		if !strings.Contains(out, want.warns) || strings.Contains(out, want.silent) ||
			!strings.Contains(out, "[unused_store_loss]") {
			t.Errorf("lint by the configuration %q says\n%s, want %s and unused_store_loss, and not %s", config, out,
				want.warns, want.silent)
		}
	}
	uncounted := []string{"policy", "set", "GET /v1/items/{id}", "11", "--per", "86399s", "--burst", "53000000000",
		"--scope", "strict"}
	if code, _, text := call(t, dir, append(uncounted, "--config", "shared.yaml")...); code == 0 ||
		!strings.Contains(text, "a limit that the shared store can count") {
		t.Errorf("a limit that the store cannot count: exit %d, %q, want it refused as a start would", code, text)
	}
}

// A database that vanished is not begun anew by whoever writes next.
func TestWritersDoNotReplaceALostDatabase(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "headgate.db.last-good.json", "kept")
	for _, args := range [][]string{{"policy", "set", "default", "5"},
		{"key", "create", "--project", "p", "--name", "n"}} {
		if code, _, stderr := call(t, dir, args...); code != exitFailure || !strings.Contains(stderr, "is gone") {
			t.Errorf("%v = exit %d, %s, want it refused", args, code, stderr)
		}
	}
}
