package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite", for what a shell would do

	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// typed runs statements as somebody with a shell would.
func typed(t *testing.T, dir string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "headgate.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func TestHistoryOfRules(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "GET /v1/items/{id}", "5", "--project", "acme")
	must(t, dir, "policy", "set", "GET /v1/items/{id}", "50", "--burst", "100", "--project", "acme", "--why",
		"they bought more")
	must(t, dir, "project", "set", "globex", "--tier", "gold")
	if got, want := must(t, dir, "policy", "diff", "3"),
		"~ GET /v1/items/{id} project acme: limit 5 → 50, burst - → 100\n"; got != want {
		t.Errorf("diff 3 = %q, want %q", got, want)
	}
	if got, want := must(t, dir, "policy", "diff", "4", "2"),
		"~ GET /v1/items/{id} project acme: limit 50 → 5, burst 100 → -\n- project globex: tier gold\n"; got != want {
		t.Errorf("diff 4 2 = %q, want %q", got, want)
	}
	if got := must(t, dir, "policy", "diff", "3", "3"); got != "nothing is different\n" {
		t.Errorf("diff 3 3 = %q", got)
	}

	typed(t, dir, "UPDATE policies SET rps_limit = 7")
	who := "unknown"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	var rows []map[string]any
	if err := json.Unmarshal([]byte(must(t, dir, "policy", "history", "--json")), &rows); err != nil || len(rows) != 5 {
		t.Fatalf("history --json = %v, %v", rows, err)
	}
	if rows[0]["pending"] != true || rows[0]["actor"] != "sql" || rows[2]["actor"] != "local:"+who ||
		rows[2]["why"] != "they bought more" || rows[2]["changed"] != 1.0 {
		t.Errorf("history --json = %v", rows)
	}
	table := must(t, dir, "policy", "history", "--limit", "2")
	for _, want := range []string{"VERSION  WHEN", "pending  ", "sql: 1 changed", "tier: 1 added", "they bought more"} {
		if !strings.Contains(table, want) {
			t.Errorf("history =\n%s, want %q", table, want)
		}
	}

	if got := must(t, dir, "policy", "rollback", "3", "--yes", "--why", "a slip"); !strings.Contains(got,
		"~ GET /v1/items/{id} project acme: limit 7 → 50\n- project globex: tier gold\nplan: 0 to add, 1 to "+
			"change, 1 to remove\nversion 6: rollback to 3: 1 changed, 1 removed\n") {
		t.Errorf("rollback = %q", got)
	}
	if got := must(t, dir, "policy", "rollback", "3", "--yes"); got != "nothing to change\n" {
		t.Errorf("rollback again = %q", got)
	}
	for _, sure := range []string{"--yes", "--dry-run"} {
		if code, out, text := call(t, dir, "policy", "rollback", "1", sure); code != exitFailure || out != "" ||
			!strings.Contains(text, "version 1: it has no rules, want one that has") {
			t.Errorf("rollback to nothing %s: exit %d, %s%s", sure, code, out, text)
		}
	}
	if got := must(t, dir, "policy", "export", "--version", "2"); !strings.Contains(got, `"version": 2`) ||
		!strings.Contains(got, `"limit":5`) {
		t.Errorf("export --version 2 = %s", got)
	}
	if got := must(t, dir, "policy", "history", "--forget-before", "4",
		"--yes"); got != "gave up 3 changes of the versions before 4\n" {
		t.Errorf("history --forget-before = %q", got)
	}
	for _, args := range [][]string{{"policy", "diff", "2"}, {"policy", "diff", "99"},
		{"policy", "rollback", "2", "--yes"}, {"policy", "export", "--version", "2"}} {
		if code, _, text := call(t, dir, args...); code != exitFailure || !strings.Contains(text, "not found") ||
			!strings.Contains(text, "`headgate policy history` lists those there are") {
			t.Errorf("%v: exit %d, %s", args, code, text)
		}
	}
}

// numberedSoon is how many changes by SQL a load gives their number by itself.
const numberedSoon = 10_000

// A plan after a large change by SQL, which has no number yet, is made from a
// version all the same. So the next change of somebody else is not lost, and a
// file of the version before is refused with the reason.
func TestPlansAfterALargeChangeBySQL(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "20") // version 2
	write(t, dir, "old.json", must(t, dir, "policy", "export"))
	write(t, dir, "plain.yaml", "rules:\n- {endpoint: default, limit: 30}\n")
	many := fmt.Sprintf("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT INTO "+
		"policies (endpoint, project_id, rps_limit) SELECT 'GET /many', 'p' || i, 5 FROM n", numberedSoon+1)
	typed(t, dir, many)

	code, _, text := call(t, dir, "policy", "apply", "old.json", "--yes")
	for _, want := range []string{"since version 2 the rules were changed:\n  3 at ", " by sql, sql: 10001 added",
		"nothing was changed: the rules are at version 3, and this is made from version 2"} {
		if code != exitFailure || !strings.Contains(text, want) {
			t.Errorf("apply of a file from before: exit %d, %s, want %q", code, text, want)
		}
	}

	typed(t, dir, "UPDATE policies SET rps_limit = 6 WHERE endpoint = 'GET /many'")
	db, err := database.Open(t.Context(), "sqlite:"+filepath.Join(dir, "headgate.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	cmd := newPolicyApply()
	now, err := loadAll(t.Context(), cmd, db)
	if err != nil || now.Number != 4 {
		t.Fatalf("a plan is made from version %d, %v, want 4", now.Number, err)
	}
	must(t, dir, "policy", "set", "default", "21") // while it is looked at
	_, err = db.Apply(t.Context(), author(""), record.Edit{Base: now.Number, Set: now.Rules, Replace: true})
	if conflict := (*record.Conflict)(nil); !errors.As(err, &conflict) {
		t.Errorf("the change that was planned: %v, want a conflict", err)
	}

	typed(t, dir, "UPDATE policies SET rps_limit = 7 WHERE endpoint = 'GET /many'")
	if got := must(t, dir, "policy", "rollback", "2", "--yes"); !strings.Contains(got,
		"\nversion 7: rollback to 2: 1 changed, 10001 removed\n") {
		t.Errorf("rollback = %q", got[max(0, len(got)-200):])
	}
	typed(t, dir, many)
	if got := must(t, dir, "policy", "apply", "plain.yaml", "--yes"); !strings.Contains(got,
		"\nversion 9: apply: 1 changed, 10001 removed\n") {
		t.Errorf("apply = %q", got[max(0, len(got)-200):])
	}
}

func TestApply(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "20")
	must(t, dir, "policy", "set", "GET /v1/items/{id}", "5")
	exported := must(t, dir, "policy", "export")
	write(t, dir, "rules.json", strings.Replace(exported, `"limit":20`, `"limit":30`, 1))

	const plan = "~ default: limit 20 → 30\nplan: 0 to add, 1 to change, 0 to remove\n"
	if code, out, _ := call(t, dir, "policy", "apply", "rules.json", "--dry-run"); code != exitChanges || out != plan {
		t.Errorf("apply --dry-run: exit %d, %q, want %d, %q", code, out, exitChanges, plan)
	}
	if code, _, text := call(t, dir, "policy", "apply", "rules.json"); code != exitUsage ||
		!strings.Contains(text, "pass --yes") {
		t.Errorf("apply without a terminal: exit %d, %s", code, text)
	}
	if got := must(t, dir, "policy", "apply", "rules.json", "--yes"); got != plan+"version 4: apply: 1 changed\n" {
		t.Errorf("apply = %q", got)
	}

	// The same file again is of a version that is no more.
	code, _, text := call(t, dir, "policy", "apply", "rules.json", "--yes")
	for _, want := range []string{"since version 3 the rules were changed:\n  4 at ", "~ default: limit 20 → 30",
		"nothing was changed: the rules are at version 4, and this is made from version 3", "--base 4"} {
		if code != exitFailure || !strings.Contains(text, want) {
			t.Errorf("apply of an old file: exit %d, %s, want %q", code, text, want)
		}
	}
	if code, _, text := call(t, dir, "policy", "apply", "rules.json", "--yes", "--base", "99"); code != exitFailure ||
		!strings.Contains(text, "version 99, which there is not: the newest is 4") {
		t.Errorf("apply of a version to come: exit %d, %s", code, text)
	}
	if got := must(t, dir, "policy", "apply", "rules.json", "--dry-run", "--base", "4"); got != "nothing to change\n" {
		t.Errorf("apply of what is there = %q", got)
	}

	// Part of the rules: the others go, or stay.
	write(t, dir, "part.yaml", "rules:\n- {endpoint: GET /v1/orders, limit: 3}\nprojects: {acme: gold}\n")
	if code, out, _ := call(t, dir, "policy", "apply", "part.yaml", "--dry-run"); code != exitChanges ||
		!strings.Contains(out, "- default: limit 30\n") ||
		!strings.Contains(out, "plan: 2 to add, 0 to change, 2 to remove") {
		t.Errorf("apply of a part: exit %d, %s", code, out)
	}
	if got := must(t, dir, "policy", "apply", "part.yaml", "--keep",
		"--yes"); got != "+ GET /v1/orders: limit 3\n+ project acme: tier gold\nplan: 2 to add, 0 to change, 0 to "+
		"remove\nversion 5: apply: 2 added\n" {
		t.Errorf("apply --keep = %q", got)
	}

	// What does not fit with the documents, or at all, changes nothing.
	before := must(t, dir, "policy", "export")
	write(t, dir, "routes.txt", routesFile)
	write(t, dir, "wrong.yaml", "rules:\n- {endpoint: GET /v1/nowhere, limit: 3}\n")
	if code, out, text := call(t, dir, "policy", "apply", "wrong.yaml", "--dry-run", "--routes",
		"routes.txt"); code != exitFailure || out != "" || !strings.Contains(text, `rule "GET /v1/nowhere"`) ||
		!strings.Contains(text, "headgate routes") {
		t.Errorf("apply of a rule for no endpoint: exit %d, %s", code, text)
	}
	write(t, dir, "empty.yaml", "rules: []\n")
	for _, sure := range []string{"--yes", "--dry-run"} {
		if code, out, text := call(t, dir, "policy", "apply", "empty.yaml", sure); code != exitFailure || out != "" ||
			!strings.Contains(text, "empty.yaml: rules is empty, want at least one rule") {
			t.Errorf("apply of nothing %s: exit %d, %s%s", sure, code, out, text)
		}
	}
	if after := must(t, dir, "policy", "export"); after != before {
		t.Errorf("refused files changed the rules to %s", after)
	}
}

func TestTemporaryRule(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "20")
	if _, _, text := call(t, dir, "policy", "set", "default", "90", "--expires", "2h"); !strings.Contains(text,
		"afterwards the lasting rule is in force again, default: 20 per 1s for each principal") {
		t.Errorf("set --expires says %q", text)
	}
	if got := must(t, dir, "policy", "delete", "default", "--temporary"); !strings.Contains(got,
		"deleted the temporary rule") {
		t.Errorf("delete --temporary = %q", got)
	}
	must(t, dir, "policy", "get", "default")
	if _, _, text := call(t, dir, "policy", "set", "*", "90", "--expires", "2h"); !strings.Contains(text,
		"no lasting rule in its place") {
		t.Errorf("set --expires says %q", text)
	}
	if got := must(t, dir, "policy", "get", "*", "--temporary", "--json"); !strings.Contains(got, `"limit": 90`) {
		t.Errorf("get --temporary = %s", got)
	}
	for _, args := range [][]string{{"policy", "get", "*"}, {"policy", "delete", "*"},
		{"policy", "get", "default", "--temporary"}} {
		if code, _, text := call(t, dir, args...); code != exitFailure || !strings.Contains(text, "not found") {
			t.Errorf("%v: exit %d, %s", args, code, text)
		}
	}
	if got := must(t, dir, "policy", "delete", "*",
		"--temporary"); got != "deleted the temporary rule for \"*\" per principal\n" {
		t.Errorf("delete --temporary = %q", got)
	}
}

func TestProjects(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "20")
	must(t, dir, "policy", "set", "default", "30", "--tier", "gold", "--name", "for gold", "--algorithm",
		"sliding_window")
	must(t, dir, "policy", "set", "default", "40", "--project", "globex")
	if got := must(t, dir, "project", "set", "acme", "--tier", "gold"); got != "project acme is in tier gold\n" {
		t.Errorf("project set = %q", got)
	}
	if got := must(t, dir, "project", "list"); got != "PROJECT  TIER\nacme     gold\n" {
		t.Errorf("project list = %q", got)
	}
	if got := must(t, dir, "policy", "list", "--project", "acme"); strings.Count(got, "\n") != 3 ||
		strings.Contains(got, "globex") || !strings.Contains(got, "ALGORITHM       NAME") ||
		!strings.Contains(got, "sliding_window  for gold") {
		t.Errorf("policy list --project acme =\n%s", got)
	}
	must(t, dir, "project", "delete", "acme")
	if code, _, text := call(t, dir, "project", "delete", "acme"); code != exitFailure ||
		!strings.Contains(text, "headgate project list") {
		t.Errorf("project delete again: exit %d, %s", code, text)
	}
	if code, _, text := call(t, dir, "project", "set", "acme"); code != exitUsage ||
		!strings.Contains(text, "--tier is needed") {
		t.Errorf("project set without a tier: exit %d, %s", code, text)
	}
	if got := must(t, dir, "policy", "list", "--project", "acme"); strings.Count(got, "\n") != 2 ||
		strings.Contains(got, "ALGORITHM") {
		t.Errorf("policy list --project acme, in no tier =\n%s", got)
	}
}

// A row that no rule is, past the checks of the table, is mended by the commands
// that its error names, and keeps nobody from going back.
func TestABadRowIsMended(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "UNKNOWN", "3") // version 2
	must(t, dir, "policy", "set", "default", "5", "--project", "acme")
	export := must(t, dir, "policy", "export", "--version", "3")
	spoil := func() {
		t.Helper()
		typed(t, dir,
			"PRAGMA ignore_check_constraints = ON; UPDATE policies SET rps_limit = -4 WHERE endpoint = 'default'")
	}
	spoil()
	const mends = "`headgate policy set default LIMIT --project acme` puts a good rule in its place"
	for _, args := range [][]string{{"policy", "list"}, {"policy", "set", "UNKNOWN", "4"}, {"policy", "export"}} {
		if code, _, text := call(t, dir, args...); code != exitFailure || !strings.Contains(text, mends) {
			t.Errorf("%v: exit %d, %s, want %q", args, code, text, mends)
		}
	}
	if got := must(t, dir, "policy", "export", "--version", "3"); got != export {
		t.Errorf("export --version 3 = %s, want %s", got, export)
	}
	must(t, dir, "policy", "set", "default", "6", "--project", "acme")
	spoil()
	const plan = "~ default project acme: no rule (rps_limit is -4, want a whole number of 1 or more) → limit 5\n" +
		"plan: 0 to add, 1 to change, 0 to remove\n"
	if code, out, text := call(t, dir, "policy", "rollback", "3", "--dry-run"); code != exitChanges || out != plan {
		t.Errorf("rollback --dry-run: exit %d, %s%s, want %q", code, out, text, plan)
	}
	must(t, dir, "policy", "rollback", "3", "--yes")
	if got := must(t, dir, "policy", "export", "--version", "7"); strings.Replace(got, "7,", "3,", 1) != export {
		t.Errorf("rolled back to\n%s, want\n%s", got, export)
	}
	spoil()
	must(t, dir, "policy", "delete", "default", "--project", "acme")
	if got := must(t, dir, "policy", "list"); strings.Contains(got, "acme") {
		t.Errorf("list after delete:\n%s", got)
	}
}

// Whoever sets a lasting rule under a temporary one is told that it waits.
func TestSetSaysThatATemporaryRuleStandsInForIt(t *testing.T) {
	dir := t.TempDir()
	const waits = "it changes nothing yet: a temporary rule stands in for it, default: 100 per 1s for each " +
		"principal, until 20"
	set := func(want bool, args ...string) {
		t.Helper()
		code, _, text := call(t, dir, append([]string{"policy", "set", "default"}, args...)...)
		if code != exitOK || strings.Contains(text, waits) != want {
			t.Errorf("set default %v: exit %d, %s, want it told of the temporary rule: %v", args, code, text, want)
		}
	}
	set(false, "5")
	set(false, "100", "--expires", "2h")
	set(true, "9")
	set(false, "9", "--project", "acme")
	typed(t, dir, "UPDATE policies SET expires_at = 1735689600 WHERE expires_at IS NOT NULL") // 2025
	set(false, "10")
	set(false, "100", "--expires", "2h", "--mode", "shadow")
	set(false, "11")
}
