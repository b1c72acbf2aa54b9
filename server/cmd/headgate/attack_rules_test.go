package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/attack"
)

// rulesInVirtualTime has a database with rules, and a configuration.
func rulesInVirtualTime(t *testing.T, priority string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"routes.txt": "POST /v1/payments\nGET /v1/items/{id}\nGET /v1/reports\n",
		"headgate.yaml": "routes: [routes.txt]\nupstream: http://127.0.0.1:9000\n" +
			"costs: {\"GET /v1/reports\": 5}\n",
		"rules.yaml": "rules:\n  - {endpoint: \"*\", limit: 20/h, subject: endpoint" + priority + "}\n" +
			"  - {endpoint: POST /v1/payments, limit: 15/h" + strings.Replace(priority[:min(1, len(priority))], ",",
			", priority: high", 1) + "}\n  - {endpoint: default, limit: 15/h}\n  - {endpoint: UNKNOWN, limit: 5}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, stderr := call(t, dir, "policy", "import", "rules.yaml", "--config", "headgate.yaml"); code != 0 {
		t.Fatalf("import: %s", stderr)
	}
	return dir
}

// TestAttackOnRules: classes get what they are promised, one of whose requests is dearer than what it is guaranteed
// holds does not, and what decides is what serve would read.
func TestAttackOnRules(t *testing.T) {
	dir := rulesInVirtualTime(t, `, priority: "high:20,normal:50"`)
	code, stdout, stderr := call(t, dir, "attack", "--config", "headgate.yaml")
	for _, want := range []string{"rule       * per endpoint: 20 per 1h, burst 20\n", "\nhigh      its 20 %",
		"\nnormal    its 50 %", " held     POST /v1/payments, anybody\n", "\ntogether  all ",
		"\nnormal: 240 requests claimed another class: held\n"} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("exit %d, stdout does not say %q:\n%s%s", code, want, stdout, stderr)
		}
	}
	dir = rulesInVirtualTime(t, `, priority: "high:20,normal:10"`)
	fewer := []byte("POST /v1/payments\nGET /v1/reports\n")
	if err := os.WriteFile(filepath.Join(dir, "routes.txt"), fewer, 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = call(t, dir, "attack", "--config", "headgate.yaml", "--json")
	var found struct{ Budgets []attack.Budget }
	if err := json.Unmarshal([]byte(stdout), &found); err != nil || len(found.Budgets) != 1 || code != exitFailure ||
		!strings.Contains(stdout, "a request costs 5, and what the class is guaranteed holds 2") ||
		stderr != "headgate: less than is promised was had by class normal\n" {
		t.Errorf("exit %d, %v\n%s%s", code, err, stdout, stderr)
	}
}

// TestAttackOnRulesRefuses what is about a deployment, and rules that say nothing of classes.
func TestAttackOnRulesRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"--limit is for a deployment, want its URL beside it": {"--limit", "5"},
		"--config is for rules that are tried in virtual time, want no URL beside it": {
			"http://127.0.0.1:1", "--config", "headgate.yaml"},
		"no rule has a budget that classes share": {"--config", "headgate.yaml"},
	} {
		code, stdout, stderr := call(t, rulesInVirtualTime(t, ""), append([]string{"attack"}, args...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, want %d and %q\n%s%s", args, code, exitUsage, want, stdout, stderr)
		}
	}
}
