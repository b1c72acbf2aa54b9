package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/doctor"
)

func TestDoctorUpstream(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--upstream", "express"}, exitOK, "0 mismatches, 0 failures, "},
		{[]string{"--upstream", "tomcat"}, exitOK, "0 mismatches, 0 failures, 0 notes"},
		{[]string{"--upstream", "inetd"}, exitUsage, ""},
		{[]string{"--upstream", "http://127.0.0.1:9000", "--unknown", "limit", "--db",
			"sqlite:" + filepath.Join(t.TempDir(), "a.db")}, exitFailure, "every setting is in its range"},
		{[]string{"--upstream", "ftp://127.0.0.1:9000", "--unknown", "limit"}, exitFailure, "upstream"},
		{[]string{"now"}, exitUsage, ""},
		{[]string{"--fetch", "--upstream", "nginx"}, exitUsage, ""},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"doctor"}, tt.args...), &out, &errs); code != tt.code ||
			!strings.Contains(out.String(), tt.want) {
			t.Errorf("doctor %q = %d, %s%s, want %d and %q", tt.args, code, out.String(), errs.String(),
				tt.code, tt.want)
		}
	}
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"doctor", "--upstream", "express", "--json"}, &out, &errs)
	var r doctor.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || code != exitOK || r.Upstream == "" ||
		r.Count(doctor.Mismatch) != 0 {
		t.Errorf("doctor --json = %d, %s, %v, want no mismatch", code, out.String(), err)
	}
}

// doctor counts the warnings about rules that lint has, with endpoints and without. It knows besides that requests
// which match no endpoint are refused, unless it is told otherwise.
func TestDoctorCountsAsLintDoes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "routes.txt", "GET /v1/items/{id}\n")
	for _, endpoint := range []string{"GET /v1/other", "POST /v1/other"} {
		must(t, dir, "policy", "set", endpoint, "10/s")
	}
	for _, c := range []struct {
		routes                     []string
		linted, unknown, diagnosed string
	}{
		{nil, "2 rules, 0 errors, 2 warnings; compared with no endpoints", "limit", "2 warnings"},
		{nil, "2 rules, 0 errors, 2 warnings; compared with no endpoints", "reject", "1 warning"},
		{[]string{"--routes", "routes.txt"}, "2 rules, 0 errors, 4 warnings", "limit", "4 warnings"},
	} {
		if out := must(t, dir, append([]string{"policy", "lint"}, c.routes...)...); !strings.Contains(out, c.linted) {
			t.Errorf("lint %v: %s, want %q", c.routes, out, c.linted)
		}
		_, out, _ := call(t, dir, append([]string{"doctor", "--upstream", "http://127.0.0.1:9000",
			"--unknown", c.unknown}, c.routes...)...)
		if !strings.Contains(out, " "+c.diagnosed+"\n") {
			t.Errorf("doctor %v: %s, want %q", c.routes, out, c.diagnosed)
		}
	}
}
