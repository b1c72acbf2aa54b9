package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/lint"
)

func TestPolicyRoundTrip(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "GET /v1/items/{id}", "5", "--burst", "10", "--per", "60s", "--subject", "ip",
		"--mode", "shadow", "--name", "items")
	must(t, dir, "policy", "set", "default", "20", "--project", "acme", "--expires", "1d")
	must(t, dir, "policy", "set", "default", "30", "--tier", "gold", "--on-store-loss", "open")
	must(t, dir, "policy", "set", "*", "9")
	if got := must(t, dir, "policy", "set", "POST /v1/login", "3", "--per", "1m", "--algorithm",
		"sliding_window"); got != "set POST /v1/login: 3 per 1m, as a sliding_window for each principal\n" {
		t.Errorf("set --algorithm says %q", got)
	}
	if code, _, text := call(t, dir, "policy", "set", "default", "3", "--algorithm", "gcra"); code != exitUsage ||
		!strings.Contains(text, `algorithm is "gcra"`) {
		t.Errorf("set --algorithm gcra: exit %d, %q", code, text)
	}
	exported := must(t, dir, "policy", "export")
	write(t, dir, "all.json", exported)
	must(t, dir, "policy", "import", "all.json", "--replace", "--db", "sqlite:other.db")
	exported = strings.Replace(exported, `"version": 6`, `"version": 2`, 1) // one import
	if again := must(t, dir, "policy", "export", "--db", "sqlite:other.db"); again != exported {
		t.Errorf("export after import:\n%s\nwant\n%s", again, exported)
	}
	one := must(t, dir, "policy", "get", "GET /v1/items/{id}", "--subject", "ip", "--json")
	var rules []map[string]any
	if err := json.Unmarshal([]byte(one), &rules); err != nil || len(rules) != 1 {
		t.Fatalf("get --json = %s, %v", one, err)
	}
	for field, want := range map[string]any{"limit": 5.0, "burst": 10.0, "per": "60s", "mode": "shadow",
		"name": "items"} {
		if rules[0][field] != want {
			t.Errorf("%s = %v, want %v", field, rules[0][field], want)
		}
	}
	must(t, dir, "policy", "set", "*", "8") // replaces
	must(t, dir, "policy", "delete", "default", "--tier", "gold")
	list := must(t, dir, "policy", "list")
	if lines := strings.Count(list, "\n"); lines != 5 || !strings.Contains(list, "8 per 1s") ||
		strings.Contains(list, "gold") {
		t.Errorf("list =\n%s\nwant a heading and 4 rules, * at 8, none for gold", list)
	}
}

// Deleting the last rule leaves nothing limited, so it says so.
func TestDeletingTheLastRuleWarns(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "1")
	must(t, dir, "policy", "set", "UNKNOWN", "1")
	if _, _, stderr := call(t, dir, "policy", "delete", "default"); stderr != "" {
		t.Errorf("deleting one of two rules says %q, want nothing", stderr)
	}
	code, _, stderr := call(t, dir, "policy", "delete", "UNKNOWN")
	if code != exitOK || !strings.Contains(stderr, "the last rule") {
		t.Errorf("deleting the last rule = exit %d, %q, want a warning", code, stderr)
	}
}

func TestPolicyLint(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "routes.txt", routesFile)
	must(t, dir, "policy", "set", "GET /v1/itmes/{id}", "5")
	out := must(t, dir, "policy", "lint", "--routes", "routes.txt")
	for _, want := range []string{"no_endpoint", "GET /v1/items/{id}", "no_default", "no_unknown",
		"1 rule, 0 errors, 3 warnings"} {
		if !strings.Contains(out, want) {
			t.Errorf("lint does not say %q:\n%s", want, out)
		}
	}
	bad := write(t, dir, "bad.json",
		`{"rules":[{"endpoint":"default","limit":5,"burst":-1},{"endpoint":"default","limit":6}]}`)
	code, stdout, _ := call(t, dir, "policy", "lint", bad, "--json")
	var found lint.Report
	if err := json.Unmarshal([]byte(stdout), &found); err != nil || code != exitFailure {
		t.Fatalf("lint --json = exit %d, %v\n%s", code, err, stdout)
	}
	if f := found.Findings; len(f) != 2 || f[0].Code != "no_unknown" || f[1].Field != "burst" || f[1].Value != "-1" ||
		f[1].Line != 1 || found.Count.Errors != 1 || found.Documents[0].Broken != 1 {
		t.Errorf("findings = %+v, want the burst of -1, and what the other rule lacks", found)
	}
}

// TestPolicyLintNamesSettings: what is wrong with a setting is said of the configuration, and not of the rules.
func TestPolicyLintNamesSettings(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "headgate.yaml",
		"anomalies: {window: 5m, tiers: [{score: 40, tier: gold}, {score: 70, tier: glod}]}\n"+
			"priority: {tiers: {none: low}}\n")
	write(t, dir, "rules.yaml", "rules:\n  - {endpoint: default, subject: ip, limit: 5}\n"+
		"  - {endpoint: default, tier: gold, limit: 5}\n  - {endpoint: UNKNOWN, limit: 5}\n")
	must(t, dir, "policy", "import", "rules.yaml")
	for _, args := range [][]string{nil, {"rules.yaml"}} {
		args = append(append([]string{"policy", "lint"}, args...), "--config", "headgate.yaml")
		out := must(t, dir, args...)
		for _, want := range []string{`warning: headgate.yaml: anomalies.tiers[1]: tier is "glod", want `,
			`note: headgate.yaml: priority: tiers is "none", want `} {
			if !strings.Contains(out, want) {
				t.Errorf("%v says\n%swant %s", args, out, want)
			}
		}
		var found lint.Report
		if err := json.Unmarshal([]byte(must(t, dir, append(args, "--json")...)), &found); err != nil {
			t.Fatal(err)
		}
		for _, f := range found.Findings {
			if of := f.Code == "tier_without_rule" || strings.HasPrefix(f.Where, "priority"); of !=
				(f.Source == "headgate.yaml") {
				t.Errorf("%v --json says %+v, want headgate.yaml of settings alone", args, f)
			}
		}
		out = must(t, dir, append(args, "--format", "sarif")...)
		if !strings.Contains(out, `"uri": "headgate.yaml"`) {
			t.Errorf("%v --format sarif says\n%s, want headgate.yaml", args, out)
		}
	}
}

// TestPolicyLintExits: a script tells "there are findings" from "nothing could
// be checked".
func TestPolicyLintExits(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "routes.txt", routesFile)
	write(t, dir, "good.yaml",
		"rules:\n  - {endpoint: default, subject: ip, limit: 5}\n  - {endpoint: UNKNOWN, limit: 5}\n")
	write(t, dir, "note.yaml",
		"rules:\n  - {endpoint: default, subject: ip, limit: 1, burst: 200}\n  - {endpoint: UNKNOWN, limit: 5}\n")
	write(t, dir, "warn.yaml", "rules:\n  - {endpoint: default, subject: ip, limit: 5}\n")
	write(t, dir, "bad.yaml", "rules:\n  - {endpoint: default, limit: 0}\n")
	write(t, dir, "rejects.conf", "routes: [routes.txt]\n")
	write(t, dir, "limits.conf", "routes: [routes.txt]\nunknown: limit\n")
	write(t, dir, "broken.yaml", "rules: [\n")
	tests := []struct {
		args string
		want int
		says string // on either stream
	}{
		{"good.yaml", 0, "2 rules, 0 errors, 0 warnings; compared with no endpoints"},
		{"good.yaml --fail-on warning", 0, ""},
		{"note.yaml --fail-on warning", 0, "0 warnings, 1 note"},
		{"warn.yaml", 0, "[no_unknown]"},
		{"warn.yaml --fail-on warning", 1, "--fail-on is warning"},
		{"warn.yaml --fail-on warning --ignore no_unknown", 0, "1 accepted"},
		{"warn.yaml --config rejects.conf", 0, "1 rule, 0 errors, 0 warnings"},
		{"warn.yaml --config limits.conf", 0, "[no_unknown]"},
		{"bad.yaml", 1, "[limit]"},
		{"bad.yaml --fail-on never", 0, "[limit]"},
		{"broken.yaml", 1, "broken.yaml:"},
		{"good.yaml warn.yaml --routes routes.txt", 0, "warn.yaml: 1 rule, 0 errors, 1 warning"},
		{"good.yaml bad.yaml", 1, "good.yaml: 2 rules"},
		{"good.yaml --format sarif", 0, `"version": "2.1.0"`},
		{"bad.yaml --format sarif", 1, `"ruleId": "limit"`},
		{"none.yaml", 2, "none.yaml"},
		{"good.yaml none.yaml", 2, "none.yaml"},
		{"good.yaml --routes none.txt", 2, "none.txt"},
		{"--db none.db", 2, "none.db"},
		{"good.yaml --format xml", 2, `--format is "xml", want text, json or sarif`},
		{"good.yaml --fail-on note", 2, `--fail-on is "note", want error, warning or never`},
		{"good.yaml --ignore no_unknwon", 2, `the closest is "no_unknown"`},
		{"good.yaml --ignore limit", 2, "a document with errors is not loaded"},
		{"--list", 0, "no_unknown             warning   There is no rule for"},
		{"--explain no_unknown", 0, "What to do: "},
		{"--explain unknown", 2, "--list prints them"},
		{"--explain void good.yaml", 2, "stand alone"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			code, stdout, stderr := call(t, dir, append([]string{"policy", "lint"}, strings.Fields(tt.args)...)...)
			if code != tt.want || !strings.Contains(stdout+stderr, tt.says) {
				t.Errorf("exit %d, want %d and %q\n%s%s", code, tt.want, tt.says, stdout, stderr)
			}
		})
	}
}

// Every check that --list names can be explained.
func TestPolicyLintList(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(must(t, t.TempDir(), "policy", "lint", "--list")), "\n")[1:]
	if len(lines) != len(policy.Checks()) {
		t.Errorf("%d checks are listed, want %d", len(lines), len(policy.Checks()))
	}
	for _, line := range lines {
		code := strings.Fields(line)[0]
		if out := must(t, t.TempDir(), "policy", "lint", "--explain", code); !strings.HasPrefix(out, code+"\n\n") ||
			strings.Contains(out, "<!--") {
			t.Errorf("--explain %s prints\n%s", code, out)
		}
	}
}

func TestShadowInTheEnforcedRulesPlaceIsSaid(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "5")
	_, stdout, stderr := call(t, dir, "policy", "set", "default", "3", "--mode", "shadow")
	if !strings.Contains(stderr, "was an enforced rule") ||
		stdout != "set default: 3 per 1s for each principal, in shadow\n" {
		t.Errorf("set = %q, %q", stdout, stderr)
	}
}

// A rule that is over is not taken for one that holds.
func TestListSaysWhatIsOver(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "5", "--expires", "2h")
	must(t, dir, "policy", "set", "UNKNOWN", "5")
	typed(t, dir,
		"INSERT INTO policies (endpoint, project_id, rps_limit, expires_at) VALUES ('default', 'acme', 7, 1735689600)")
	list := must(t, dir, "policy", "list")
	if n := strings.Count(list, ", over"); n != 1 || !strings.Contains(list, "enforce  2025-01-01T00:00:00Z, over") {
		t.Errorf("list =\n%s\nwant that acme's rule alone is over", list)
	}
}

// TestLimitsWithTheirTime: a rate is written as people say it.
func TestLimitsWithTheirTime(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"20/s":    "20 per 1s",
		"100/m":   "100 per 1m",
		"7/15min": "7 per 15m",
		"2/h":     "2 per 1h",
		"5000/d":  "5000 per 24h",
		"9":       "9 per 1s",
	} {
		if got := must(t, dir, "policy", "set", "default", text); !strings.Contains(got, want+" for each principal") {
			t.Errorf("policy set default %s says %q, want %s", text, got, want)
		}
	}
}
