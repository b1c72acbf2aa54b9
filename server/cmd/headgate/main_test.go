package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
		"unknown command": {
			args: "polcy list",
			code: 2,
			want: []string{`unknown command "polcy"`, `did you mean "policy"?`, "headgate --help"},
		},
		"unknown subcommand": {args: "policy lst", code: 2,
			want: []string{`unknown command "lst"`, "headgate policy --help"}},
		"unknown help topic": {args: "help polcy", code: 2,
			want: []string{`unknown command "polcy"`, `did you mean "policy"?`}},
		"unknown flag": {args: "policy list --jsn", code: 2,
			want: []string{"--jsn; did you mean --json? see `headgate policy list --help`"}},
		"unknown command with a flag": {args: "polcy --json", code: 2,
			want: []string{`unknown command "polcy"`, `did you mean "policy"?`}},
		"unknown subcommand with a flag": {args: "policy sett default 5 --burst 6", code: 2,
			want: []string{`unknown command "sett"`, `did you mean "set"?`, "headgate policy --help"}},
		"every flag at fault": {
			args: "policy set default abc --project a --tier b --subject c --mode d --burst -1 --enforce-percent 0",
			code: 2,
			want: []string{`LIMIT is "abc"`, `--project is "a" and --tier "b"`, `subject is "c"`, `mode is "d"`,
				"--burst is -1", "--enforce-percent is 0"},
		},
		"too many arguments": {args: "policy get a b", code: 2, want: []string{"takes 1 argument (ENDPOINT), got 2"}},
		"a command of others": {args: "check", code: 2,
			want: []string{`unknown command "check" for "headgate"; did you mean "doctor"?`}},
		"arguments with flags": {args: "project set a b", code: 2,
			want: []string{"project set takes 1 argument (PROJECT), got 2"}},
		"too few arguments": {args: "explain GET", code: 2,
			want: []string{"explain takes 2 arguments (METHOD TARGET), got 1"}},
		"a command of a group": {args: "lint rules.yaml", code: 2,
			want: []string{`unknown command "lint" for "headgate"; did you mean "policy lint"?`}},
		"limit of no time": {
			args: "policy set default 5/fortnight",
			code: 2,
			want: []string{`LIMIT is "5/fortnight"`, "such as 20/s or 100/m"},
		},
		"limit of two times": {
			args: "policy set default 5/m --per 1h",
			code: 2,
			want: []string{"--per is given", "want the time in one place"},
		},
		"limit in a time on requests under way": {
			args: "policy set default 5/s --subject in_flight:principal",
			code: 2,
			want: []string{`LIMIT is "5/s", want 5, because so many requests are under way at once`},
		},
		"a second for places": {
			args: "policy set default 5 --subject in_flight:principal --per 1s",
			code: 2,
			want: []string{`--per is "1s", want 5s to 1h`},
		},
		"no project": {args: "policy delete default --project= --tier=", code: 2,
			want: []string{"--project is empty, want a value, or no such flag", "--tier is empty, want"}},
		"no end": {args: "key create --project acme --name ci --expires=", code: 2,
			want: []string{"--expires is empty, want a value, or no such flag"}},
		"no file": {args: "serve --routes=a --routes=", code: 2,
			want: []string{"--routes is empty, want a value, or no such flag"}},
		"a body of nothing": {args: "explain POST /b --body @/dev/null", code: 2,
			want: []string{"@/dev/null is empty, want a body that an API would take"}},
		"no token": {args: "serve --admin-token-file=", code: 2,
			want: []string{"--admin-token-file is empty, want a value, or no such flag"}},
		"a name that is a file": {args: "policy set default 5 --name " + strings.Repeat("x", 5000), code: 1,
			want: []string{`rule "` + strings.Repeat("x", 128) + `…": name is 5000 bytes long`}},
		"limit of zero": {args: "policy set default 0", code: 2,
			want: []string{`LIMIT is "0"`, "1 to 9223372036854775807"}},
		"limit below zero": {args: "policy set default -1", code: 2,
			want: []string{`LIMIT is "-1"`, "want a whole number"}},
		"limit with a point": {args: "policy set default 1.5", code: 2,
			want: []string{`LIMIT is "1.5"`, "want a whole number"}},
		"limit of 10^30": {
			args: "policy set default 1000000000000000000000000000000",
			code: 2,
			want: []string{`LIMIT is "1000000000000000000000000000000"`},
		},
		"limit too large to count": {
			args: "policy set default 9223372036854775807", code: 1,
			want: []string{"limit is 9223372036854775807", "want"},
		},
		"burst of zero": {args: "policy set default 1 --burst 0", code: 2,
			want: []string{"--burst is 0, want 1 or more"}},
		"per of nothing": {args: "policy set default 1 --per 0s", code: 2,
			want: []string{`per is "0s"`, "whole seconds"}},
		"per of a half": {args: "policy set default 1 --per 1500ms", code: 2,
			want: []string{`per is "1500ms"`}},
		"a long reason": {
			args: "policy set default 1 --why " + strings.Repeat("x", 501),
			code: 2,
			want: []string{"--why is 501 bytes long, want one line of text, at most 500 bytes"},
		},
		"burst of letters": {
			args: "policy set default 1 --burst x",
			code: 2,
			want: []string{`--burst is "x", want a whole number`},
		},
		"unknown flag of set": {
			args: "policy set default 1 --nope",
			code: 2,
			want: []string{"--nope", "headgate policy set --help"},
		},
		"unknown flag of grant": {
			args: "bucket grant GET /a 1 --nope",
			code: 2,
			want: []string{"--nope", "headgate bucket grant --help"},
		},
		"version below zero": {args: "policy diff -1", code: 2,
			want: []string{`version is "-1", want a whole number`}},
		"rollback below zero": {args: "policy rollback -1", code: 2,
			want: []string{`version is "-1", want a whole number`}},
		"lag below zero":  {args: "fleet --max-lag -1s", code: 2, want: []string{"--max-lag is -1s, want 0s or more"}},
		"watch all times": {args: "fleet --watch=1ms", code: 2, want: []string{"--watch is 1ms, want 100ms or more"}},
		"watch without =": {
			args: "fleet --watch 1ms",
			code: 2,
			want: []string{"--watch takes its time after =, want --watch=1ms"},
		},
		"watch and more": {args: "fleet --watch a b", code: 2, want: []string{"fleet takes no arguments, got 2"}},
		"json and wide": {
			args: "audit --json --wide",
			code: 2,
			want: []string{"--json and --wide are both given, want one of the two"},
		},
		"expired already": {
			args: "policy set default 1 --expires 2020-01-01T00:00:00Z",
			code: 2,
			want: []string{`--expires is "2020-01-01T00:00:00Z"`},
		},
		"a log without requests": {args: "suggest empty.log --routes routes.txt",
			files: map[string]string{"empty.log": "", "routes.txt": routesFile},
			code:  1, want: []string{"empty.log: no request is in it, want an access log"}},
		"the nearest of several commands": {args: "policy lst", code: 2, want: []string{`did you mean "list"?`}},
		"an admin token that is nowhere": {
			args:  "serve --upstream http://127.0.0.1:1 --routes routes.txt --admin-token-file none",
			files: map[string]string{"routes.txt": routesFile},
			code:  1, want: []string{`admin_token_file is "none": admin token: open none: no such file`},
		},
		"a document that is nowhere": {args: "routes --openapi none.yaml", code: 1,
			want: []string{"none.yaml: no such file: openapi and routes name files from the working directory"}},
		"unknown subject": {
			args: "policy set default 1 --subject user",
			code: 2,
			want: []string{`subject is "user"`, `"principal"`},
		},
		"unknown mode": {args: "policy set default 1 --mode dry", code: 2, want: []string{`mode is "dry"`, `"shadow"`}},
		"no template": {
			args: "policy set v1/items 1",
			code: 1,
			want: []string{`endpoint is "v1/items"`, "GET /v1/items/{id}"},
		},
		"project and tier": {
			args: "policy set default 1 --project a --tier b", code: 2,
			want: []string{`--project is "a" and --tier "b", want one of the two`},
		},
		"a template no endpoint has": {
			args:  "policy set GET:/v1/item/{id} 1 --routes routes.txt",
			files: map[string]string{"routes.txt": routesFile},
			code:  1, want: []string{`endpoint is "GET /v1/item/{id}"`, "GET /v1/items/{id}"},
		},
		"routes that are none": {
			args: "routes --routes routes.txt", files: map[string]string{"routes.txt": "GET v1\nNOSLASH\n"},
			code: 1, want: []string{"routes.txt:1", "routes.txt:2"},
		},
		"routes without a document": {args: "routes", code: 2, want: []string{"--openapi"}},
		"missing document":          {args: "routes --openapi none.yaml", code: 1, want: []string{"none.yaml"}},
		"malformed OpenAPI": {
			args:  "routes --openapi api.yaml",
			files: map[string]string{"api.yaml": "openapi: 3.0.0\npaths:\n  /a: [get\n"},
			code:  1, want: []string{"api.yaml"},
		},
		"OpenAPI without paths": {
			args: "routes --openapi api.json", files: map[string]string{"api.json": `{"openapi":"3.0.0","info":{}}`},
			code: 1, want: []string{"api.json", "paths"},
		},
		"malformed configuration": {
			args: "serve --config c.yaml", files: map[string]string{"c.yaml": "listen: [\n"},
			code: 2, want: []string{"config c.yaml", "line"},
		},
		"configuration that is no UTF-8": {
			args:  "serve --config c.yaml",
			files: map[string]string{"c.yaml": "# caf\u00e9\nupstream: http://caf\xe9\n"},
			code:  2, want: []string{"config c.yaml: line 2: is not UTF-8"},
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
			files: map[string]string{
				"c.yaml": "listen: nowhere\nupstream: ftp://x\nunknown: maybe\nipv6_prefix: 200\nroutes: [r]\n" +
					"costs: {GET /a: -1}\n"},
			want: []string{`listen is "nowhere"`, `upstream is "ftp://x"`, `unknown is "maybe"`, `ipv6_prefix is "200"`,
				`costs[GET /a] is "-1"`},
		},
		"no upstream": {
			args:  "serve --routes routes.txt",
			files: map[string]string{"routes.txt": routesFile},
			code:  2,
			want:  []string{`upstream is ""`, "http://127.0.0.1:9000"},
		},
		"no endpoints": {
			args: "serve --upstream http://127.0.0.1:1",
			code: 2,
			want: []string{"openapi", "--unknown", "routes"},
		},
		"open admin listener": {
			args: "serve --upstream http://127.0.0.1:1 --unknown limit --admin 0.0.0.0:0",
			code: 2,
			want: []string{`admin is "0.0.0.0:0"`, "admin_token_file"},
		},
		"trusted proxy": {
			args: "serve --upstream http://127.0.0.1:1 --unknown limit --trusted-proxy 10.0.0.0/33",
			code: 2,
			want: []string{`trusted_proxies is "10.0.0.0/33"`},
		},
		"malformed DSN": {
			args: "policy list --db headgate.db",
			code: 1,
			want: []string{`database is "headgate.db"`, "sqlite:PATH"},
		},
		"other database": {
			args: "policy list --db oracle://u:hidden@h/d",
			code: 1,
			want: []string{`database is "oracle://u:xxxxx@h/d"`, "sqlite:PATH, postgres://"},
		},
		"database away": {
			args: "policy list --db postgres://u:hidden@/d?host=/nowhere",
			code: 1,
			want: []string{"postgres://u@/nowhere (d): cannot be reached"},
		},
		"nobody listens for the database": { // which is tried twice, with TLS and without, and told once
			args: "policy list --db postgres://u:hidden@127.0.0.1:1/d",
			code: 1,
			want: []string{"cannot be reached (connect: connection refused), want the database running there"},
		},
		"no such database": {args: "policy list --db sqlite:none.db", code: 1, want: []string{"none.db"}},
		"a database that is none": {
			args:  "policy list --db sqlite:junk.db",
			files: map[string]string{"junk.db": strings.Repeat("this is no database. ", 100)},
			code:  1, want: []string{"junk.db"},
		},
		"occupied port": {
			args: "serve --upstream http://127.0.0.1:1 --routes routes.txt --admin 127.0.0.1:0 --listen " +
				occupied.Addr().String(),
			files: map[string]string{"routes.txt": routesFile},
			code:  1, want: []string{"listen is", "in use", "--listen"},
		},
		"an address of another machine": {
			args: "serve --upstream http://127.0.0.1:1 --routes routes.txt --admin 127.0.0.1:0 " +
				"--listen 192.0.2.1:8080", // of a network for documentation, RFC 5737
			files: map[string]string{"routes.txt": routesFile},
			code:  1, want: []string{`listen is "192.0.2.1:8080", which is no address of this machine: want one`},
		},
		"policy file with a wrong field": {
			args: "policy import p.json", files: map[string]string{
				"p.json": `{"rules":[{"endpoint":"default","limt":1},{"endpoint":"UNKNOWN","limit":1.5}]}`},
			code: 1, want: []string{"p.json", "limt", "1.5"},
		},
		"policy file in YAML with a wrong value": {
			args:  "policy import p.yaml",
			files: map[string]string{"p.yaml": "rules:\n- endpoint: default\n  limit: -1\n"},
			code:  1, want: []string{"p.yaml:3: rules[0]", "limit is -1"},
		},
		"key without a project": {args: "key create --name ci", code: 2, want: []string{"--project"}},
		"key of no database": {args: "key revoke k_none", code: 1,
			want: []string{"headgate.db", "does not exist"}},
		"nobody to ask": {
			args: "explain GET /v1/items/1 --server http://" + freeAddress(t),
			code: 1,
			want: []string{"no gateway answers", "--offline"},
		},
		"bucket of nobody to ask": {
			args: "bucket inspect GET:/v1/items/{id} --server http://" + freeAddress(t),
			code: 1,
			want: []string{"no gateway answers", "name its admin listener with --server"},
		},
		"bucket without a gateway": {args: "bucket reset * --server nowhere", code: 2,
			want: []string{`--server is "nowhere"`}},
		"bucket of no address": {
			args: "bucket reset * --address here --peer there",
			code: 2,
			want: []string{`address is "here"`, `peer is "there"`},
		},
		"bucket of no subject": {args: "bucket reset * --subject user", code: 2, want: []string{`subject is "user"`}},
		"bucket header": {args: "bucket inspect * --header hidden", code: 2,
			want: []string{"want Name: value"}},
		"bucket of no endpoint": {args: "bucket inspect", code: 2,
			want: []string{"takes 1 argument (ENDPOINT), got 0"}},
		"grant of nothing": {args: "bucket grant * 0", code: 2,
			want: []string{`AMOUNT is "0", want a whole number of tokens`}},
		"grant below zero": {args: "bucket grant * -5", code: 2, want: []string{`AMOUNT is "-5"`}},
		"grant of a half":  {args: "bucket grant * 1.5", code: 2, want: []string{`AMOUNT is "1.5"`}},
		"grant that has expired": {
			args: "bucket grant * 5 --expires 2020-01-01T00:00:00Z",
			code: 2,
			want: []string{`--expires is "2020-01-01T00:00:00Z"`},
		},
		"audit of nothing":     {args: "audit --limit 0", code: 2, want: []string{"--limit is 0, want 1 to 1000000"}},
		"audit of no database": {args: "audit --db sqlite:none.db", code: 1, want: []string{"none.db"}},
		"table of nothing": {
			args: "serve --upstream http://127.0.0.1:1 --unknown limit --max-bytes 1KiB",
			code: 2,
			want: []string{`max_bytes is "1KiB", want 64KiB or more`},
		},
		"table of no size": {
			args: "serve --max-bytes lots",
			code: 2,
			want: []string{`--max-bytes is "lots", want an amount of memory such as 64MiB`},
		},
		"table of two sizes": {
			args: "serve --upstream http://127.0.0.1:1 --unknown limit --max-bytes 1MiB --max-buckets 5",
			code: 2,
			want: []string{"max_buckets left out"},
		},
		"peer that is none": {args: "explain GET /v1/items/1 --peer localhost", code: 2,
			want: []string{`peer is "localhost"`}},
		"header without a name": {
			args: "explain GET /v1/items/1 --header nonsense",
			code: 2,
			want: []string{"header", "Name: value"},
		},
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
				if !strings.HasPrefix(line, "headgate: ") || strings.Contains(line, "hidden") ||
					strings.Contains(line, "goroutine") {
					t.Errorf("line %q is not one of ours", line)
				}
			}
			if stdout != "" {
				t.Errorf("stdout holds %q, want nothing", stdout)
			}
		})
	}
}

func TestVersionAndHelp(t *testing.T) {
	dir := t.TempDir()
	if out := must(t, dir, "version"); !strings.HasPrefix(out, "headgate ") || !strings.Contains(out, "go1.") {
		t.Errorf("version = %q", out)
	}
	for _, args := range []string{"", "policy", "key", "serve", "policy set", "explain", "demo", "routes", "bucket",
		"bucket grant", "bucket reset", "bucket inspect", "audit"} {
		out := must(t, dir, append(strings.Fields(args), "--help")...)
		if !strings.Contains(out, "Usage:") {
			t.Errorf("headgate %s --help = %q", args, out)
		}
	}
}

// screenful takes what a demonstration draws until it has seen enough.
type screenful struct {
	strings.Builder
	enough func(text string) bool
}

func (s *screenful) Write(p []byte) (int, error) {
	if s.enough(s.String()) {
		return 0, io.ErrClosedPipe
	}
	return s.Builder.Write(p)
}

func TestDemoShowsTheClients(t *testing.T) {
	// last is how many requests of each were admitted, when it was drawn last.
	last := func(out string) map[string]int {
		all := map[string]int{}
		for line := range strings.Lines(out) {
			var admittedRate, deniedRate float64
			var admitted, denied int
			fields := strings.Fields(line)
			if len(fields) < 6 || fields[0] != "greedy" && fields[0] != "attacker" {
				continue
			}
			if _, err := fmt.Sscan(strings.Join(fields[len(fields)-4:], " "), &admittedRate, &deniedRate, &admitted,
				&denied); err == nil {
				all[fields[0]] = admitted
			}
		}
		return all
	}
	drawn := &screenful{enough: func(text string) bool {
		counts := last(text)
		return counts["greedy"] >= 10 && counts["attacker"] >= 10 && strings.Contains(text, "█░")
	}}
	var errs strings.Builder
	began := time.Now()
	code := run(t.Context(), []string{"demo", "--for", "1m", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"},
		drawn, &errs)
	took, out := time.Since(began), drawn.String()
	if code != exitOK {
		t.Errorf("exit %d, want %d\n%s", code, exitOK, errs.String())
	}
	for _, want := range []string{"polite", "greedy", "attacker", `curl -i -H "X-Api-Key: $KEY"`,
		"policy set", "█", "░"} {
		if !strings.Contains(out, want) {
			t.Errorf("the demonstration does not show %q:\n%s", want, out)
		}
	}
	// Whoever sends ten times the limit is admitted the burst and 5 a second,
	// whatever the disguise.
	for _, name := range []string{"greedy", "attacker"} {
		if admitted, most := last(out)[name], 10+5*took.Seconds(); admitted < 10 || float64(admitted) > most {
			t.Errorf("%s was admitted %d times in %v, want 10 to %.0f", name, admitted, took, most)
		}
	}
}
