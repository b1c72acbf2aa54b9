package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/lint"
)

// call runs one command line in a folder of its own, as the shell would.
func call(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Chdir(dir)
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

// must runs a command line that has to succeed.
func must(t *testing.T, dir string, args ...string) string {
	t.Helper()
	code, stdout, stderr := call(t, dir, args...)
	if code != exitOK {
		t.Fatalf("headgate %s: exit %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const routesFile = "GET /v1/items/{id}\nPOST /v1/items\n"

// TestBadInput holds the promise of every error: one line that names file,
// field, value and remedy; exit status 2 for usage, 1 for the rest; nothing
// half done.
func TestBadInput(t *testing.T) {
	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer occupied.Close()
	for name, c := range map[string]struct {
		args  string
		files map[string]string
		code  int
		want  []string
	}{
		"unknown command":    {args: "polcy list", code: 2, want: []string{`unknown command "polcy"`, `did you mean "policy"?`, "headgate --help"}},
		"unknown subcommand": {args: "policy lst", code: 2, want: []string{`unknown command "lst"`, "headgate policy --help"}},
		"unknown help topic": {args: "help polcy", code: 2, want: []string{`unknown command "polcy"`, `did you mean "policy"?`}},
		"unknown flag":       {args: "policy list --jsn", code: 2, want: []string{"--jsn", "headgate policy list --help"}},
		"too many arguments": {args: "policy get a b", code: 2, want: []string{"takes 1 argument, got 2"}},
		"limit of zero":      {args: "policy set default 0", code: 2, want: []string{`LIMIT is "0"`, "1 to 9223372036854775807"}},
		"limit below zero":   {args: "policy set default -1", code: 2, want: []string{`LIMIT is "-1"`, "want a whole number"}},
		"limit with a point": {args: "policy set default 1.5", code: 2, want: []string{`LIMIT is "1.5"`, "want a whole number"}},
		"limit of 10^30":     {args: "policy set default 1000000000000000000000000000000", code: 2, want: []string{`LIMIT is "1000000000000000000000000000000"`}},
		"limit too large to count": {
			args: "policy set default 9223372036854775807", code: 1, want: []string{"limit is 9223372036854775807", "want"},
		},
		"burst of zero":         {args: "policy set default 1 --burst 0", code: 2, want: []string{"--burst is 0, want 1 or more"}},
		"per of nothing":        {args: "policy set default 1 --per 0s", code: 2, want: []string{`per is "0s"`, "whole seconds"}},
		"per of a half":         {args: "policy set default 1 --per 1500ms", code: 2, want: []string{`per is "1500ms"`}},
		"a long reason":         {args: "policy set default 1 --why " + strings.Repeat("x", 501), code: 2, want: []string{"--why is 501 bytes long, want one line of text, at most 500 bytes"}},
		"burst of letters":      {args: "policy set default 1 --burst x", code: 2, want: []string{`--burst is "x", want a whole number`}},
		"unknown flag of set":   {args: "policy set default 1 --nope", code: 2, want: []string{"--nope", "headgate policy set --help"}},
		"unknown flag of grant": {args: "bucket grant GET /a 1 --nope", code: 2, want: []string{"--nope", "headgate bucket grant --help"}},
		"version below zero":    {args: "policy diff -1", code: 2, want: []string{`version is "-1", want a whole number`}},
		"rollback below zero":   {args: "policy rollback -1", code: 2, want: []string{`version is "-1", want a whole number`}},
		"lag below zero":        {args: "fleet --max-lag -1s", code: 2, want: []string{"--max-lag is -1s, want 0s or more"}},
		"watch all times":       {args: "fleet --watch=1ms", code: 2, want: []string{"--watch is 1ms, want 100ms or more"}},
		"watch without =":       {args: "fleet --watch 1ms", code: 2, want: []string{"--watch takes its time after =, want --watch=1ms"}},
		"watch and more":        {args: "fleet --watch a b", code: 2, want: []string{"fleet takes no arguments, got 2"}},
		"json and wide":         {args: "audit --json --wide", code: 2, want: []string{"--json and --wide are both given, want one of the two"}},
		"expired already":       {args: "policy set default 1 --expires 2020-01-01T00:00:00Z", code: 2, want: []string{`--expires is "2020-01-01T00:00:00Z"`}},
		"unknown subject":       {args: "policy set default 1 --subject user", code: 2, want: []string{`subject is "user"`, `"principal"`}},
		"unknown mode":          {args: "policy set default 1 --mode dry", code: 2, want: []string{`mode is "dry"`, `"shadow"`}},
		"no template":           {args: "policy set v1/items 1", code: 1, want: []string{`endpoint is "v1/items"`, "GET /v1/items/{id}"}},
		"project and tier": {
			args: "policy set default 1 --project a --tier b", code: 2, want: []string{`--project is "a" and --tier "b", want one of the two`},
		},
		"a template no endpoint has": {
			args: "policy set GET:/v1/item/{id} 1 --routes routes.txt", files: map[string]string{"routes.txt": routesFile},
			code: 1, want: []string{`endpoint is "GET /v1/item/{id}"`, "GET /v1/items/{id}"},
		},
		"routes that are none": {
			args: "routes --routes routes.txt", files: map[string]string{"routes.txt": "GET v1\nNOSLASH\n"},
			code: 1, want: []string{"routes.txt:1", "routes.txt:2"},
		},
		"routes without a document": {args: "routes", code: 2, want: []string{"--openapi"}},
		"missing document":          {args: "routes --openapi none.yaml", code: 1, want: []string{"none.yaml"}},
		"malformed OpenAPI": {
			args: "routes --openapi api.yaml", files: map[string]string{"api.yaml": "openapi: 3.0.0\npaths:\n  /a: [get\n"},
			code: 1, want: []string{"api.yaml"},
		},
		"OpenAPI without paths": {
			args: "routes --openapi api.json", files: map[string]string{"api.json": `{"openapi":"3.0.0","info":{}}`},
			code: 1, want: []string{"api.json", "paths"},
		},
		"malformed configuration": {
			args: "serve --config c.yaml", files: map[string]string{"c.yaml": "listen: [\n"},
			code: 2, want: []string{"config c.yaml", "line"},
		},
		"unknown configuration field": {
			args: "serve --config c.yaml", files: map[string]string{"c.yaml": "listn: 127.0.0.1:0\n"},
			code: 2, want: []string{"config c.yaml: line 1: listn is no setting, did you mean listen?"},
		},
		"configuration of the wrong kind": {
			args: "serve --config c.yaml", files: map[string]string{"c.yaml": "max_buckets: many\n"},
			code: 2, want: []string{`config c.yaml: line 1: max_buckets is "many", want a whole number`},
		},
		"every field at fault": {
			args: "serve --config c.yaml", code: 2,
			files: map[string]string{"c.yaml": "listen: nowhere\nupstream: ftp://x\nunknown: maybe\nipv6_prefix: 200\nroutes: [r]\ncosts: {GET /a: -1}\n"},
			want:  []string{`listen is "nowhere"`, `upstream is "ftp://x"`, `unknown is "maybe"`, `ipv6_prefix is "200"`, `costs[GET /a] is "-1"`},
		},
		"no upstream":         {args: "serve --routes routes.txt", files: map[string]string{"routes.txt": routesFile}, code: 2, want: []string{`upstream is ""`, "http://127.0.0.1:9000"}},
		"no endpoints":        {args: "serve --upstream http://127.0.0.1:1", code: 2, want: []string{"openapi", "--unknown", "routes"}},
		"open admin listener": {args: "serve --upstream http://127.0.0.1:1 --unknown limit --admin 0.0.0.0:0", code: 2, want: []string{`admin is "0.0.0.0:0"`, "admin_token_file"}},
		"trusted proxy":       {args: "serve --upstream http://127.0.0.1:1 --unknown limit --trusted-proxy 10.0.0.0/33", code: 2, want: []string{`trusted_proxies is "10.0.0.0/33"`}},
		"malformed DSN":       {args: "policy list --db headgate.db", code: 1, want: []string{`database is "headgate.db"`, "sqlite:PATH"}},
		"other database":      {args: "policy list --db oracle://u:hidden@h/d", code: 1, want: []string{`database is "oracle://u:xxxxx@h/d"`, "sqlite:PATH, postgres://"}},
		"database away":       {args: "policy list --db postgres://u:hidden@/d?host=/nowhere", code: 1, want: []string{"postgres://u@/nowhere (d): cannot be reached"}},
		"no such database":    {args: "policy list --db sqlite:none.db", code: 1, want: []string{"none.db"}},
		"a database that is none": {
			args: "policy list --db sqlite:junk.db", files: map[string]string{"junk.db": strings.Repeat("this is no database. ", 100)},
			code: 1, want: []string{"junk.db"},
		},
		"occupied port": {
			args:  "serve --upstream http://127.0.0.1:1 --routes routes.txt --admin 127.0.0.1:0 --listen " + occupied.Addr().String(),
			files: map[string]string{"routes.txt": routesFile},
			code:  1, want: []string{"listen is", "in use", "--listen"},
		},
		"policy file with a wrong field": {
			args: "policy import p.json", files: map[string]string{"p.json": `{"rules":[{"endpoint":"default","limt":1},{"endpoint":"UNKNOWN","limit":1.5}]}`},
			code: 1, want: []string{"p.json", "limt", "1.5"},
		},
		"policy file in YAML with a wrong value": {
			args: "policy import p.yaml", files: map[string]string{"p.yaml": "rules:\n- endpoint: default\n  limit: -1\n"},
			code: 1, want: []string{"p.yaml:3: rules[0]", "limit is -1"},
		},
		"key without a project":    {args: "key create --name ci", code: 2, want: []string{"--project"}},
		"key of no database":       {args: "key revoke k_none", code: 1, want: []string{"headgate.db", "does not exist"}},
		"nobody to ask":            {args: "explain GET /v1/items/1 --server http://" + unused(t), code: 1, want: []string{"no gateway answers", "--offline"}},
		"bucket of nobody to ask":  {args: "bucket inspect GET:/v1/items/{id} --server http://" + unused(t), code: 1, want: []string{"no gateway answers", "name its admin listener with --server"}},
		"bucket without a gateway": {args: "bucket reset * --server nowhere", code: 2, want: []string{`--server is "nowhere"`}},
		"bucket of no address":     {args: "bucket reset * --address here --peer there", code: 2, want: []string{`address is "here"`, `peer is "there"`}},
		"bucket of no subject":     {args: "bucket reset * --subject user", code: 2, want: []string{`subject is "user"`}},
		"bucket header":            {args: "bucket inspect * --header hidden", code: 2, want: []string{"want Name: value"}},
		"bucket of no endpoint":    {args: "bucket inspect", code: 2, want: []string{"takes 1 argument, got 0"}},
		"grant of nothing":         {args: "bucket grant * 0", code: 2, want: []string{`AMOUNT is "0", want a whole number of tokens`}},
		"grant below zero":         {args: "bucket grant * -5", code: 2, want: []string{`AMOUNT is "-5"`}},
		"grant of a half":          {args: "bucket grant * 1.5", code: 2, want: []string{`AMOUNT is "1.5"`}},
		"grant that has expired":   {args: "bucket grant * 5 --expires 2020-01-01T00:00:00Z", code: 2, want: []string{`--expires is "2020-01-01T00:00:00Z"`}},
		"audit of nothing":         {args: "audit --limit 0", code: 2, want: []string{"--limit is 0, want 1 to 1000000"}},
		"audit of no database":     {args: "audit --db sqlite:none.db", code: 1, want: []string{"none.db"}},
		"table of nothing":         {args: "serve --upstream http://127.0.0.1:1 --unknown limit --max-bytes 1KiB", code: 2, want: []string{`max_bytes is "1KiB", want 64KiB or more`}},
		"table of no size":         {args: "serve --max-bytes lots", code: 2, want: []string{`--max-bytes is "lots", want an amount of memory such as 64MiB`}},
		"table of two sizes":       {args: "serve --upstream http://127.0.0.1:1 --unknown limit --max-bytes 1MiB --max-buckets 5", code: 2, want: []string{"max_buckets left out"}},
		"peer that is none":        {args: "explain GET /v1/items/1 --peer localhost", code: 2, want: []string{`peer is "localhost"`}},
		"header without a name":    {args: "explain GET /v1/items/1 --header nonsense", code: 2, want: []string{"header", "Name: value"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range c.files {
				write(t, dir, file, content)
			}
			args := strings.Fields(c.args)
			for i := range args {
				args[i] = strings.Replace(args[i], "GET:", "GET ", 1)
			}
			code, stdout, stderr := call(t, dir, args...)
			if code != c.code {
				t.Errorf("exit %d, want %d\n%s%s", code, c.code, stdout, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr does not say %q:\n%s", want, stderr)
				}
			}
			for line := range strings.Lines(stderr) {
				if !strings.HasPrefix(line, "headgate: ") || strings.Contains(line, "hidden") || strings.Contains(line, "goroutine") {
					t.Errorf("line %q is not one of ours", line)
				}
			}
			if stdout != "" {
				t.Errorf("stdout holds %q, want nothing", stdout)
			}
		})
	}
}

// unused returns an address where nobody listens.
func unused(t *testing.T) string {
	t.Helper()
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

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
	if want := "set POST /v1/payments: 5 per 1s for each principal, scope strict, share while the store is lost\n"; set != want {
		t.Errorf("set says %q, want %q", set, want)
	}
	_, set, said := call(t, dir, "policy", "set", "default", "20", "--on-store-loss", "open") // which says nothing of a local rule
	if set != "set default: 20 per 1s for each principal\n" || !strings.Contains(said, "--on-store-loss does nothing for scope local") {
		t.Errorf("set --on-store-loss of a local rule says %q and %q", set, said)
	}
	listed := strings.Join(strings.Fields(must(t, dir, "policy", "list")), " ")
	if want := "SCOPE STORE LOST POST /v1/payments - - principal 5 per 1s - enforce - strict share default - - principal 20 per 1s - enforce - - -"; !strings.HasSuffix(listed, want) {
		t.Errorf("list says %q, want %q at the end", listed, want)
	}
	for config, want := range map[string]struct{ warns, silent string }{
		"":            {"[unshared]", "[scattered]"},
		"shared.yaml": {"[scattered]", "[unshared]"},
	} {
		_, out, _ := call(t, dir, "policy", "lint", "--config", config)
		if !strings.Contains(out, want.warns) || strings.Contains(out, want.silent) || !strings.Contains(out, "[unused_store_loss]") {
			t.Errorf("lint --config %q says\n%s, want %s and unused_store_loss, and not %s", config, out, want.warns, want.silent)
		}
	}
	uncounted := []string{"policy", "set", "GET /v1/items/{id}", "11", "--per", "86399s", "--burst", "53000000000", "--scope", "strict"}
	if code, _, text := call(t, dir, append(uncounted, "--config", "shared.yaml")...); code == 0 || !strings.Contains(text, "a limit that the shared store can count") {
		t.Errorf("a limit that the store cannot count: exit %d, %q, want it refused as a start would", code, text)
	}
}

func TestPolicyRoundTrip(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "GET /v1/items/{id}", "5", "--burst", "10", "--per", "60s", "--subject", "ip", "--mode", "shadow", "--name", "items")
	must(t, dir, "policy", "set", "default", "20", "--project", "acme", "--expires", "2h")
	must(t, dir, "policy", "set", "default", "30", "--tier", "gold", "--on-store-loss", "open")
	must(t, dir, "policy", "set", "*", "9")
	if got := must(t, dir, "policy", "set", "POST /v1/login", "3", "--per", "1m", "--algorithm", "sliding_window"); got != "set POST /v1/login: 3 per 1m, as a sliding_window for each principal\n" {
		t.Errorf("set --algorithm says %q", got)
	}
	if code, _, text := call(t, dir, "policy", "set", "default", "3", "--algorithm", "gcra"); code != exitUsage || !strings.Contains(text, `algorithm is "gcra"`) {
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
	for field, want := range map[string]any{"limit": 5.0, "burst": 10.0, "per": "60s", "mode": "shadow", "name": "items"} {
		if rules[0][field] != want {
			t.Errorf("%s = %v, want %v", field, rules[0][field], want)
		}
	}
	must(t, dir, "policy", "set", "*", "8") // replaces
	must(t, dir, "policy", "delete", "default", "--tier", "gold")
	list := must(t, dir, "policy", "list")
	if lines := strings.Count(list, "\n"); lines != 5 || !strings.Contains(list, "8 per 1s") || strings.Contains(list, "gold") {
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
	for _, want := range []string{"no_endpoint", "GET /v1/items/{id}", "no_default", "no_unknown", "1 rule, 0 errors, 3 warnings"} {
		if !strings.Contains(out, want) {
			t.Errorf("lint does not say %q:\n%s", want, out)
		}
	}
	bad := write(t, dir, "bad.json", `{"rules":[{"endpoint":"default","limit":5,"burst":-1},{"endpoint":"default","limit":6}]}`)
	code, stdout, _ := call(t, dir, "policy", "lint", bad, "--json")
	var found lint.Report
	if err := json.Unmarshal([]byte(stdout), &found); err != nil || code != exitFailure {
		t.Fatalf("lint --json = exit %d, %v\n%s", code, err, stdout)
	}
	if f := found.Findings; len(f) != 2 || f[0].Code != "no_unknown" || f[1].Field != "burst" || f[1].Value != "-1" || f[1].Line != 1 || found.Count.Errors != 1 || found.Documents[0].Broken != 1 {
		t.Errorf("findings = %+v, want the burst of -1, and what the other rule lacks", found)
	}
}

// TestPolicyLintExits: a script tells "there are findings" from "nothing could
// be checked".
func TestPolicyLintExits(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "routes.txt", routesFile)
	write(t, dir, "good.yaml", "rules:\n  - {endpoint: default, subject: ip, limit: 5}\n  - {endpoint: UNKNOWN, limit: 5}\n")
	write(t, dir, "note.yaml", "rules:\n  - {endpoint: default, subject: ip, limit: 1, burst: 200}\n  - {endpoint: UNKNOWN, limit: 5}\n")
	write(t, dir, "warn.yaml", "rules:\n  - {endpoint: default, subject: ip, limit: 5}\n")
	write(t, dir, "bad.yaml", "rules:\n  - {endpoint: default, limit: 0}\n")
	write(t, dir, "broken.yaml", "rules: [\n")
	tests := []struct {
		args string
		want int
		says string // on either stream
	}{
		{"good.yaml", 0, "2 rules, 0 errors, 0 warnings\n"},
		{"good.yaml --fail-on warning", 0, ""},
		{"note.yaml --fail-on warning", 0, "0 warnings, 1 note"},
		{"warn.yaml", 0, "[no_unknown]"},
		{"warn.yaml --fail-on warning", 1, "--fail-on is warning"},
		{"warn.yaml --fail-on warning --ignore no_unknown", 0, "1 accepted"},
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
		{"--list", 0, "no_unknown           warning   There is no rule for"},
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
		if out := must(t, t.TempDir(), "policy", "lint", "--explain", code); !strings.HasPrefix(out, code+"\n\n") || strings.Contains(out, "<!--") {
			t.Errorf("--explain %s prints\n%s", code, out)
		}
	}
}

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

// TestRoutesHoldExactlyTheOperations compares with the lists that were
// extracted from the documents independently.
func TestRoutesHoldExactlyTheOperations(t *testing.T) {
	data, err := filepath.Abs("../../openapi/testdata")
	if err != nil {
		t.Fatal(err)
	}
	documents := map[string]string{
		"stripe-spec3.json.gz":           "stripe.ops.json",
		"digitalocean-public.v2.yaml.gz": "digitalocean.ops.json",
		"petstore-openapi.yaml":          "petstore.ops.json",
	}
	all := []string{"routes", "--json"}
	var everything []string
	for document, list := range documents {
		path := filepath.Join(data, document)
		all = append(all, "--openapi", path)
		want := operations(t, filepath.Join(data, list))
		everything = append(everything, want...)
		t.Run(document, func(t *testing.T) {
			sameSet(t, listed(t, "routes", "--json", "--openapi", path), want)
		})
	}
	t.Run("all three", func(t *testing.T) { sameSet(t, listed(t, all...), everything) })
}

func operations(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Ops []struct{ Method, Path string }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	var ops []string
	for _, op := range list.Ops {
		ops = append(ops, op.Method+" "+op.Path)
	}
	return ops
}

func listed(t *testing.T, args ...string) []string {
	t.Helper()
	var routes []route
	if err := json.Unmarshal([]byte(must(t, t.TempDir(), args...)), &routes); err != nil {
		t.Fatal(err)
	}
	var ops []string
	for _, r := range routes {
		ops = append(ops, r.Method+" "+r.Path)
	}
	return ops
}

func sameSet(t *testing.T, got, want []string) {
	t.Helper()
	got, want = slices.Clone(got), slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%d routes, want the %d operations of the list", len(got), len(want))
	}
}

func TestExplainOffline(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "routes.txt", routesFile)
	must(t, dir, "policy", "set", "GET /v1/items/{id}", "5")
	key := strings.TrimSpace(must(t, dir, "key", "create", "--project", "acme", "--name", "ci"))
	out := must(t, dir, "explain", "GET", "//v1/./items/7?x=1", "--offline", "--routes", "routes.txt", "--header", "X-Api-Key: "+key, "--peer", "2001:db8::1")
	for _, want := range []string{"/v1/items/7", "GET /v1/items/{id} (known)", "project acme", "2001:db8::/64", "the most specific rule", "verdict  allowed", "offline"} {
		if !strings.Contains(out, want) {
			t.Errorf("explain does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, key) {
		t.Errorf("explain repeats the key:\n%s", out)
	}
}

// To look is to leave no trace.
func TestExplainOfflineWritesNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "routes.txt", routesFile)
	if code, _, stderr := call(t, dir, "explain", "GET", "/v1/items/1", "--offline", "--routes", "routes.txt"); code != exitFailure || !strings.Contains(stderr, "headgate.db") {
		t.Errorf("explain --offline without a database = exit %d, %s, want it said", code, stderr)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("explain --offline made files: %v", files)
	}
	must(t, dir, "policy", "set", "default", "5")
	write(t, dir, "headgate.db.last-good.json", "kept")
	must(t, dir, "explain", "GET", "/v1/items/1", "--offline", "--routes", "routes.txt")
	if text, _ := os.ReadFile(filepath.Join(dir, "headgate.db.last-good.json")); string(text) != "kept" {
		t.Errorf("explain --offline wrote the last good copy: %s", text)
	}
	for _, name := range []string{"headgate.db.secret", ".keys.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("explain --offline made %s", name)
		}
	}
}

// A database that vanished is not begun anew by whoever writes next.
func TestWritersDoNotReplaceALostDatabase(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "headgate.db.last-good.json", "kept")
	for _, args := range [][]string{{"policy", "set", "default", "5"}, {"key", "create", "--project", "p", "--name", "n"}} {
		if code, _, stderr := call(t, dir, args...); code != exitFailure || !strings.Contains(stderr, "is gone") {
			t.Errorf("%v = exit %d, %s, want it refused", args, code, stderr)
		}
	}
}

func TestShadowInTheEnforcedRulesPlaceIsSaid(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "5")
	_, stdout, stderr := call(t, dir, "policy", "set", "default", "3", "--mode", "shadow")
	if !strings.Contains(stderr, "was an enforced rule") || stdout != "set default: 3 per 1s for each principal, in shadow\n" {
		t.Errorf("set = %q, %q", stdout, stderr)
	}
}

func TestVersionAndHelp(t *testing.T) {
	dir := t.TempDir()
	if out := must(t, dir, "version"); !strings.HasPrefix(out, "headgate ") || !strings.Contains(out, "go1.") {
		t.Errorf("version = %q", out)
	}
	for _, args := range []string{"", "policy", "key", "serve", "policy set", "explain", "demo", "routes", "bucket", "bucket grant", "bucket reset", "bucket inspect", "audit"} {
		out := must(t, dir, append(strings.Fields(args), "--help")...)
		if !strings.Contains(out, "Usage:") {
			t.Errorf("headgate %s --help = %q", args, out)
		}
	}
}

func TestDemoShowsTheClients(t *testing.T) {
	out := must(t, t.TempDir(), "demo", "--for", "2500ms", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	for _, want := range []string{"polite", "greedy", "attacker", "curl -i -H 'X-Api-Key: hg_", "policy set", "█", "░"} {
		if !strings.Contains(out, want) {
			t.Errorf("the demonstration does not show %q:\n%s", want, out)
		}
	}
	// Whoever sends ten times the limit is admitted the burst and 5 a second,
	// whatever the disguise.
	last := map[string]int{}
	for line := range strings.Lines(out) {
		for _, name := range []string{"greedy", "attacker"} {
			var admittedRate, deniedRate float64
			var admitted, denied int
			fields := strings.Fields(line)
			if len(fields) > 5 && fields[0] == name {
				if _, err := fmt.Sscan(strings.Join(fields[len(fields)-4:], " "), &admittedRate, &deniedRate, &admitted, &denied); err == nil {
					last[name] = admitted
				}
			}
		}
	}
	for name, admitted := range last {
		if admitted < 10 || admitted > 10+5*3 {
			t.Errorf("%s was admitted %d times in 2.5 s, want 10 to 25", name, admitted)
		}
	}
	if len(last) != 2 {
		t.Errorf("counts of %v were drawn, want greedy and attacker", last)
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

// A rule that is over is not taken for one that holds.
func TestListSaysWhatIsOver(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "5", "--expires", "2h")
	must(t, dir, "policy", "set", "UNKNOWN", "5")
	typed(t, dir, "INSERT INTO policies (endpoint, project_id, rps_limit, expires_at) VALUES ('default', 'acme', 7, 1735689600)")
	list := must(t, dir, "policy", "list")
	if n := strings.Count(list, ", over"); n != 1 || !strings.Contains(list, "enforce  2025-01-01T00:00:00Z, over") {
		t.Errorf("list =\n%s\nwant that acme's rule alone is over", list)
	}
}
