package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Commands without --json, and why.
var withoutJSON = map[string]string{
	"headgate clients from-log": "its lines are the workload that `make clients` reads",
	"headgate config schema":    "what it prints is JSON",
	"headgate demo":             "it draws",
	"headgate kube admission":   "it runs until it is stopped; its log is JSON by log.format",
	"headgate manual":           "it writes files",
	"headgate policy export":    "what it prints is a policy file, in JSON",
	"headgate secret rotate": "it tells people what to do next; `headgate secret show --json` tells programs " +
		"what there is",
	"headgate serve":         "it runs until it is stopped; its log is JSON by log.format",
	"headgate telemetry":     "it runs until it is stopped",
	"headgate telemetry key": "what it prints is one word, the key",
}

// Commands that open a database and cannot ask a gateway instead, and why.
var withoutServer = map[string]string{
	"headgate attack":         "it tries rules in virtual time, or what answers at a URL",
	"headgate doctor":         "it checks what a gateway would start with",
	"headgate edge build":     "the digests of keys, and what checks them, go over no network",
	"headgate fleet forget":   "a gateway that is alive is no authority on one that is not",
	"headgate key import":     "the text of a key that others made goes over no network",
	"headgate kube admission": "it is a decision service",
	"headgate replay":         "it decides here, by a file of rules too; `headgate policy export --server` writes one",
	"headgate secret rotate":  "the secret is in a file of this machine",
	"headgate secret show":    "the secret is in a file of this machine",
	"headgate serve":          "it is the gateway",
}

// TestCommandsSpeakToPrograms: whatever a command prints can be had as JSON, and whatever it does in a database can be
// done by a gateway; else a reason is written down, and one that is out of date is not left there.
func TestCommandsSpeakToPrograms(t *testing.T) {
	seen := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		name := cmd.CommandPath()
		for _, child := range cmd.Commands() {
			visit(child)
		}
		if strings.Contains(name, " completion") || cmd.Name() == "help" ||
			len(cmd.Commands()) > 0 && !cmd.LocalNonPersistentFlags().HasFlags() {
			return
		}
		seen[name] = true
		asJSON := cmd.Flags().Lookup("json") != nil
		if why := withoutJSON[name]; asJSON == (why != "") {
			t.Errorf("%s has --json: %v, and the reason to have none is %q", name, asJSON, why)
		}
		database, server := cmd.Flags().Lookup("db") != nil, cmd.Flags().Lookup("server") != nil
		if why := withoutServer[name]; (database && !server) != (why != "") {
			t.Errorf("%s has --db: %v, --server: %v, and the reason to have no --server is %q", name,
				database, server, why)
		}
	}
	visit(newRoot(io.Discard, io.Discard))
	for _, reasons := range []map[string]string{withoutJSON, withoutServer} {
		for name := range reasons {
			if !seen[name] {
				t.Errorf("there is a reason for %s, and no such command", name)
			}
		}
	}
}

// TestOutcomesAsJSON: what commands did can be read by programs.
func TestOutcomesAsJSON(t *testing.T) {
	dir := t.TempDir()
	rulesFile := write(t, dir, "rules.yaml",
		"rules:\n- {endpoint: default, limit: 7}\n- {endpoint: UNKNOWN, limit: 1}\n")
	for _, step := range []struct {
		args string
		code int
		want map[string]any // members, and what they are
	}{
		{"policy set default 20/s --burst 40", 0, map[string]any{"endpoint": "default", "limit": 20.0, "burst": 40.0}},
		{"policy apply " + rulesFile + " --dry-run", exitChanges,
			map[string]any{"add": 1.0, "change": 1.0, "remove": 0.0}},
		{"policy apply " + rulesFile + " --yes", 0, map[string]any{"add": 1.0, "change": 1.0, "version": 3.0}},
		{"policy apply " + rulesFile + " --yes", 0, map[string]any{"add": 0.0, "change": 0.0, "changes": []any{}}},
		{"policy rollback 2 --yes", 0, map[string]any{"remove": 1.0, "change": 1.0, "version": 4.0}},
		{"policy import " + rulesFile, 0, map[string]any{"imported": 2.0, "from": rulesFile}},
		{"policy delete UNKNOWN", 0, map[string]any{"deleted": `rule for "UNKNOWN" per principal`}},
		{"project set acme --tier gold", 0, map[string]any{"project": "acme", "tier": "gold"}},
		{"project delete acme", 0, map[string]any{"project": "acme", "tier": ""}},
		{"admin token create ops --role read", 0, map[string]any{"name": "ops", "roles": []any{"read"}}},
		{"admin token revoke ops", 0, map[string]any{"revoked": "ops"}},
		{"key create --project acme --name ci", 0, map[string]any{"project": "acme", "name": "ci"}},
		{"secret show", 0, map[string]any{"previous": nil}},
		{"version", 0, map[string]any{"version": programVersion()}},
	} {
		code, out, errs := call(t, dir, append(strings.Fields(step.args), "--json")...)
		var got map[string]any
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != step.code {
			t.Errorf("%s --json: exit %d, %v, want %d and an object\n%s%s", step.args, code, err, step.code, out, errs)
			continue
		}
		for name, want := range step.want {
			if text, _ := json.Marshal(got[name]); string(text) != marshalled(want) {
				t.Errorf("%s --json: %s is %s, want %v", step.args, name, text, want)
			}
		}
	}
}

func marshalled(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // a literal of this file
	}
	return string(text)
}
