package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/record"
)

func TestAdminTokenCommands(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, "policy", "set", "default", "3")
	write(t, dir, "ops.token", must(t, dir, "admin", "token", "create", "ops", "--role", "write", "--role", "grant"))
	_, side := running(t, dir)
	through := []string{"--server", side, "--token-file", "ops.token"}
	run := func(args ...string) string { return must(t, dir, append(args, through...)...) }

	text := strings.TrimSpace(run("admin", "token", "create", "ci", "--role", "read", "--expires", "1h"))
	if !record.AdminTokenFormat.Match(text) {
		t.Fatalf("admin token create = %d bytes, want a token", len(text))
	}
	write(t, dir, "ci.token", text+"\n")
	if code, out, errs := call(t, dir, "admin", "token", "create", "other", "--role", "read", "--server", side,
		"--token-file", "ci.token"); code != exitFailure || out != "" || !strings.Contains(errs,
		"answers 403: This needs a token with the roles read, write and grant, which token ci lacks") {
		t.Errorf("create by a reader = %d %s%s", code, out, errs)
	}
	direct := must(t, dir, "admin", "token", "list")
	if got := run("admin", "token", "list"); got != direct && !strings.Contains(got, "ci") {
		t.Errorf("the list through the gateway is\n%s, want\n%s", got, direct)
	}
	if got := run("admin", "token", "revoke", "ci"); got != "revoked ci\n" {
		t.Errorf("revoke = %q", got)
	}
	var list []admin.TokenEntry
	if err := json.Unmarshal([]byte(must(t, dir, "admin", "token", "list", "--json")), &list); err != nil ||
		len(list) != 2 || list[1].Revoked.IsZero() || list[1].Expires.Before(time.Now()) {
		t.Errorf("list --json = %+v, %v", list, err)
	}
	if code, _, errs := call(t, dir, "admin", "token", "list", "--server", side, "--token-file",
		"ci.token"); code != exitFailure || !strings.Contains(errs, "The admin token ci was revoked") {
		t.Errorf("list with a revoked token = %d %s", code, errs)
	}
	run("bucket", "reset", "GET /v1/items/{id}", "--address", "192.0.2.7")
	if direct, got := must(t, dir, "audit"), run("audit"); direct == "" || strings.ReplaceAll(got, "Z", "") == "" ||
		!strings.Contains(got, "token ops") || !strings.Contains(direct, "token ops") {
		t.Errorf("the audit through the gateway is\n%s, want\n%s", got, direct)
	}
	calls := run("admin", "calls", "--limit", "1000")
	for _, want := range []string{"resetBucket", "createToken", "403", "revokeToken", "admin token ci", "token ops",
		"127.0.0.1"} {
		if !strings.Contains(calls, want) {
			t.Errorf("the calls lack %q:\n%s", want, calls)
		}
	}
	if strings.Contains(calls+direct+must(t, dir, "admin", "calls", "--json"), text[6:]) {
		t.Error("the token is told")
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"admin token create a", exitUsage, "--role is needed: read, write or grant"},
		{"admin token create a --role root", exitUsage, `role is "root", want read, write or grant`},
		{"admin token create a/b --role read", exitUsage, `name is "a/b", want 1 to 63 letters`},
		{"admin token create ops --role read", exitFailure, `name is "ops", want another: the name is taken`},
		{"admin token create a --role read --expires 0s", exitUsage, `--expires is "0s"`},
		{"admin token revoke nobody", exitFailure, "`headgate admin token list` shows those there are"},
		{"admin token list --token-file ops.token", exitUsage, "want --server too"},
		{"admin token list --db sqlite:x.db --server " + side, exitUsage, "--server and --db are both given"},
		{"admin token list --server here", exitUsage, `--server is "here", want a URL`},
		{"admin token list --server " + side + " --token-file none", exitFailure, "admin token: open none"},
		{"admin token list --server http://127.0.0.1:1", exitFailure, "no gateway answers at http://127.0.0.1:1"},
		{"admin calls --limit 0", exitUsage, "--limit is 0"},
	} {
		if code, _, errs := call(t, dir, strings.Fields(c.args)...); code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%s = %d %s, want %d that says %q", c.args, code, errs, c.code, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "x.db")); err == nil {
		t.Error("a refused command has made a database")
	}
}
