package main

import (
	"regexp"
	"strings"
	"testing"
)

// differs are what two runs of the same commands may say differently: times, and
// who it was, whom a gateway knows by the token.
var differs = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]+(Z|[+-]\d\d:\d\d)|local:\w+|token token \([^)]*\)`)

// What is done through a gateway is done and said as it is in the database.
func TestPolicyCommandsThroughAGateway(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	must(t, here, "policy", "set", "default", "3")
	must(t, there, "policy", "set", "default", "3")
	write(t, there, "token", must(t, there, "admin", "token", "create", "token", "--role", "write"))
	_, side := running(t, there)
	for _, dir := range []string{here, there} {
		write(t, dir, "rules.json", `{"projects":{"acme":"gold"},"rules":[{"endpoint":"default","limit":4},{"endpoint":"GET /v1/items/{id}","tier":"gold","limit":9}]}`)
		write(t, dir, "more.json", `{"rules":[{"endpoint":"POST /v1/items","limit":2}]}`)
	}
	for _, args := range []string{
		"policy set GET:/v1/items/{id} 5 --burst 9 --project acme --why spring",
		"policy set GET:/v1/items/{id} 50 --expires 1h --project acme --temporary", // no such flag
		"policy get GET:/v1/items/{id} --project acme --json",
		"policy get GET:/v1/items/{id}",
		"policy list",
		"policy list --json",
		"policy delete GET:/v1/items/{id} --project acme",
		"policy delete GET:/v1/items/{id} --project acme",
		"policy apply rules.json --dry-run",
		"policy apply rules.json --yes --why whole",
		"policy apply rules.json --yes",
		"policy apply rules.json --yes --base 2",
		"policy import more.json",
		"policy export",
		"project set b --tier silver",
		"project list",
		"project delete b",
		"project delete b",
		"policy diff 2 5",
		"policy diff 4 --json",
		"policy history",
		"policy rollback 3 --yes",
		"policy rollback 99 --yes",
		"policy set POST:/v1/nothing 5 --routes routes.txt",
		"policy history --json",
	} {
		line := strings.Fields(args)
		for i := range line {
			line[i] = strings.Replace(line[i], ":/", " /", 1)
		}
		routes := append([]string{}, line...)
		if strings.Contains(args, "--routes") {
			write(t, here, "routes.txt", routesFile)
		}
		codeHere, outHere, errHere := call(t, here, routes...)
		codeThere, outThere, errThere := call(t, there, append(line, "--server", side, "--token-file", "token")...)
		plain := func(s string) string {
			return strings.Join(strings.Fields(differs.ReplaceAllString(s, "_")), " ")
		}
		if codeHere != codeThere || !strings.Contains(args, "history") && plain(outHere) != plain(outThere) || (errHere == "") != (errThere == "") {
			t.Errorf("%s: in the database %d\n%s%s\nthrough the gateway %d\n%s%s", args, codeHere, outHere, errHere, codeThere, outThere, errThere)
		}
	}
	if history := must(t, there, "policy", "history"); !strings.Contains(history, "token token ("+localUser()+")") || !strings.Contains(history, "spring") {
		t.Errorf("the history does not name the token, the user and the reason:\n%s", history)
	}
	if code, _, errs := call(t, there, "policy", "history", "--forget-before", "2", "--yes", "--server", side); code != exitUsage || !strings.Contains(errs, "want --db and not --server") {
		t.Errorf("forgetting through a gateway = %d %s", code, errs)
	}
}
