package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// hostile would clear the screen, turn the writing around, and begin a line and
// a column of its own.
const hostile = "x'||char(27)||'[2J'||char(8238)||char(10)||'forged'||char(9)||'y"

// TestListsSayNothingToTheTerminal: whatever somebody wrote into the database,
// lists are lines of printable text, as many as there are entries.
func TestListsSayNothingToTheTerminal(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "5")
	must(t, dir, "admin", "token", "create", "ops", "--role", "read")
	must(t, dir, "key", "create", "--project", "acme", "--name", "ci")
	typed(t, dir,
		"INSERT INTO policies (endpoint, project_id, rps_limit) VALUES ('GET /"+hostile+"', '"+hostile+"', 1)",
		"INSERT INTO policies (endpoint, tier, rps_limit, name) VALUES ('GET /v1', '"+hostile+"', 1, '"+hostile+"')",
		"INSERT INTO projects (project_id, tier) VALUES ('"+hostile+"', '"+hostile+"')",
		"UPDATE api_keys SET project_id = '"+hostile+"', name = '"+hostile+"'",
		"UPDATE admin_tokens SET name = '"+hostile+"'",
		"INSERT INTO audit (at, actor, claimed, action, rule, endpoint, subject, whose) VALUES (1, '"+hostile+"', '"+
			hostile+"', '"+hostile+"', '"+hostile+"', '"+hostile+"', 'ip', '"+hostile+"')",
		"INSERT INTO api_calls (at, actor, peer, operation, changes, about) VALUES (1, '"+hostile+"', '"+hostile+"', '"+
			hostile+"', 0, '"+hostile+"')",
		"INSERT INTO replicas (name, process, program, started_at, rules, rules_number, loaded_at, stale_ms, "+
			"every_ms, last_error, seen_at) VALUES ('"+hostile+"', 'p', '"+hostile+"', 1, '"+hostile+"', 0, 1, 1, 1, '"+
			hostile+"', unixepoch() * 1000)",
		"INSERT INTO policy_versions (id, at, actor, claimed, why, action, added, changed, removed, last_change) "+
			"SELECT max(id) + 1, 1, '"+hostile+"', '"+hostile+"', '"+hostile+"', '"+hostile+
			"', 1, 0, 0, (SELECT max(id) FROM policy_changes) FROM policy_versions",
	)
	for _, c := range []struct {
		lines int // the title's too
		args  []string
	}{
		{4, []string{"policy", "list"}},
		{2, []string{"project", "list"}},
		{2, []string{"key", "list"}},
		{2, []string{"admin", "token", "list"}},
		{2, []string{"admin", "calls"}},
		{3, []string{"audit"}},
		{2, []string{"audit", "--wide"}},
		{2, []string{"fleet"}},
		{2, []string{"policy", "history", "--limit", "1"}},
	} {
		code, out, errs := call(t, dir, c.args...)
		if code != exitOK || !strings.Contains(out, "forged") {
			t.Errorf("%v: exit %d, %s%s, want a list", c.args, code, out, errs)
		}
		if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%v prints %q, want nothing that is not printable", c.args, out)
		}
		if got := strings.Count(out, "\n"); got != c.lines {
			t.Errorf("%v prints %d lines, want %d:\n%s", c.args, got, c.lines, out)
		}
	}
}

// TestErrorsSayNothingToTheTerminal either.
func TestErrorsSayNothingToTheTerminal(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "5")
	typed(t, dir, "INSERT INTO replicas (name, process, program, started_at, rules, rules_number, loaded_at, "+
		"stale_ms, every_ms, last_error, seen_at) VALUES ('"+hostile+
		"', 'p', 'p', 1, 'other', 0, 1, 60000, 1000, '', unixepoch() * 1000)")
	code, _, errs := call(t, dir, "fleet", "--max-lag", "1s")
	if code != exitFailure || !strings.Contains(errs, "lag by more than 1s: x") {
		t.Errorf("fleet --max-lag: exit %d, %q", code, errs)
	}
	if i := strings.IndexFunc(errs, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("fleet --max-lag prints %q, want nothing that is not printable", errs)
	}
}

// TestListsAreMadeByRow: what prints a table without it has to be looked at.
func TestListsAreMadeByRow(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 20 {
		t.Fatal(len(files), err)
	}
	looked := []string{"table.go", "table_test.go", "attack.go", "budgets.go", "explain.go", "explain_descriptor.go",
		"policy_lint.go", "request.go", "routes.go", "token.go"}
	for _, f := range files {
		if text, err := os.ReadFile(f); err != nil || strings.Contains(string(text), "tabwriter.NewWriter") &&
			!slices.Contains(looked, f) {
			t.Errorf("%s writes a table by itself (%v), want newTable, or its cells plain and its name here", f, err)
		}
	}
}
