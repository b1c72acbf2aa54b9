package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// differs are what two runs of the same commands may say differently: times, IDs,
// where the rules are, and who it was, whom a gateway knows by the token.
var differs = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]+(Z|[+-]\d\d:\d\d)|r_[0-9a-f]{20}|[^ "]*\.db|http://127\.0\.0\.1:\d+|local:\w+|token token( \([^)]*\))?`)

// requestsIn files two requests for a higher limit in a database, and returns
// what stands for their IDs in a command.
func requestsIn(t *testing.T, dir string) *strings.Replacer {
	t.Helper()
	db, err := database.Open(t.Context(), "sqlite:"+filepath.Join(dir, "headgate.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var ids []string
	for _, endpoint := range []string{"GET /v1/items/{id}", "POST /v1/items"} {
		filed, err := db.File(t.Context(), record.LimitRequest{Actor: "api_key k", Claimed: "Ann", Project: "acme",
			Reason: "the launch",
			Asked:  record.Asked{Endpoint: endpoint, Limit: 40, Per: time.Minute, For: time.Hour}}, 5)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, filed.ID)
	}
	return strings.NewReplacer("{first}", ids[0], "{second}", ids[1])
}

// What is done through a gateway is done and said as it is in the database.
func TestPolicyCommandsThroughAGateway(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	must(t, here, "policy", "set", "default", "3")
	must(t, there, "policy", "set", "default", "3")
	write(t, there, "token", must(t, there, "admin", "token", "create", "token", "--role", "write", "--role", "grant"))
	_, side := running(t, there)
	idsHere, idsThere := requestsIn(t, here), requestsIn(t, there)
	for _, dir := range []string{here, there} {
		write(t, dir, "rules.json",
			`{"projects":{"acme":"gold"},"rules":[{"endpoint":"default","limit":4},{"endpoint":"GET /v1/items/{id}","tier":"gold","limit":9}]}`)
		write(t, dir, "bad.yaml",
			"rules:\n  - endpoint: default\n    limit: 0\n  - endpoint: GET /v1/itms\n    limit: 5\n")
		write(t, dir, "none.json", "{\n")
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
		"request list",
		"request list --project nobody --json",
		"request list --state declined --limit 0",
		"request show {first}",
		"request show r_00000000000000000000",
		"request approve {first} --limit 50 --per 1h --expires 48h --note half",
		"request approve {first}",
		"request approve {second} --expires 1s --limit 0",
		"request decline {second}",
		"request decline {second} --note no",
		"request decline {second} --note no",
		"request list --state any",
		"request show {second}",
		"policy get GET:/v1/items/{id} --project acme --temporary",
		"policy lint --ROUTES",
		"policy lint --ROUTES --ignore no_unknown --fail-on warning",
		"policy lint --ROUTES --json",
		"policy lint rules.json bad.yaml none.json --ROUTES",
		"policy lint bad.yaml --ROUTES --format sarif",
		"policy lint --ignore limit",
		"policy lint missing.json",
	} {
		line := strings.Fields(args)
		for i := range line {
			line[i] = strings.Replace(line[i], ":/", " /", 1)
		}
		write(t, here, "routes.txt", routesFile)
		write(t, here, "gateway.yaml", "routes: [routes.txt]\n")
		var lineHere, lineThere []string
		for _, word := range line {
			if word == "--ROUTES" { // what the gateway knows
				lineHere = append(lineHere, "--config", "gateway.yaml")
				continue
			}
			lineHere, lineThere = append(lineHere, idsHere.Replace(word)), append(lineThere, idsThere.Replace(word))
		}
		codeHere, outHere, errHere := call(t, here, lineHere...)
		codeThere, outThere, errThere := call(t, there, append(lineThere, "--server", side, "--token-file", "token")...)
		plain := func(s string) string {
			return strings.Join(strings.Fields(differs.ReplaceAllString(s, "_")), " ")
		}
		if codeHere != codeThere || !strings.Contains(args, "history") && plain(outHere) != plain(outThere) ||
			(errHere == "") != (errThere == "") {
			t.Errorf("%s: in the database %d\n%s%s\nthrough the gateway %d\n%s%s", args, codeHere, outHere, errHere,
				codeThere, outThere, errThere)
		}
	}
	for _, args := range [][]string{{"request", "approve", "r_0"}, {"policy", "lint"}} {
		if code, _, errs := call(t, there, append(args, "--routes", "routes.txt", "--server", side, "--token-file",
			"token")...); code != exitUsage || !strings.Contains(errs, "the gateway knows its own endpoints") {
			t.Errorf("%v with --routes through a gateway = %d %s", args, code, errs)
		}
	}
	seconds := regexp.MustCompile(`[0-9.]+[a-zµ]+ ago|[0-9.]+(ms|s|µs)|\d{4}-.*Z`)
	plain := func(s string) string { return strings.Join(strings.Fields(seconds.ReplaceAllString(s, "_")), " ") }
	for deadline := time.Now().Add(time.Minute); ; { // a replica may tell of itself between the two
		direct, through := must(t, there, "fleet"), must(t, there, "fleet", "--server", side, "--token-file", "token")
		if plain(direct) == plain(through) && strings.Contains(through, "REPLICA") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("in the database\n%s\nthrough the gateway\n%s", direct, through)
		}
	}
	if history := must(t, there, "policy", "history"); !strings.Contains(history, "token token ("+localUser()+")") ||
		!strings.Contains(history, "spring") {
		t.Errorf("the history does not name the token, the user and the reason:\n%s", history)
	}
	if code, _, errs := call(t, there, "policy", "history", "--why", "room"); code != exitUsage ||
		!strings.Contains(errs, "--why is for --forget-before") {
		t.Errorf("history --why = %d %q, want a refusal", code, errs)
	}
	if code, _, errs := call(t, there, "policy", "history", "--forget-before", "2", "--yes", "--server",
		side); code != exitUsage || !strings.Contains(errs, "want --db and not --server") {
		t.Errorf("forgetting through a gateway = %d %s", code, errs)
	}
	// Rows that are no rules are findings of lint, whoever looks.
	var texts [2]string
	for i, dir := range []string{here, there} {
		typed(t, dir, "PRAGMA ignore_check_constraints = 1; INSERT INTO policies (endpoint, rps_limit, mode) "+
			"VALUES ('GET /v1/a', 5, 'enforced')")
		args := []string{"policy", "lint", "--routes", filepath.Join(here, "routes.txt")}
		if dir == there {
			args = []string{"policy", "lint", "--server", side, "--token-file", "token"}
		}
		code, out, errs := call(t, dir, args...)
		if texts[i] = differs.ReplaceAllString(out+errs, "_"); code != exitFailure ||
			!strings.Contains(out, "enforced") {
			t.Errorf("%v = %d %s%s, want the row", args, code, out, errs)
		}
	}
	if texts[0] != texts[1] {
		t.Errorf("lint of the database:\n%s\nthrough the gateway:\n%s", texts[0], texts[1])
	}
}
