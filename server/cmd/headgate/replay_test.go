package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReplay(t *testing.T) {
	dir := t.TempDir()
	line := `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5` + "\n"
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write([]byte(line + line + line))
	zip.Close()
	for name, text := range map[string]string{
		"routes.txt": "GET /a\n", "narrow.yaml": "rules: [{endpoint: default, limit: 2, per: 1h}]",
		"wrong.yaml": "rules: [{endpoint: default, limit: -2}]",
		"access.log": line, "access.log.1.gz": packed.String(), "nothing.log": "nothing\n", "empty.log": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	base := []string{"replay", in("access.log.1.gz"), in("access.log"), "--routes", in("routes.txt"), "--db",
		"sqlite:" + in("headgate.db")}
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no logs":      {[]string{"replay"}, exitUsage, "want at least one"},
		"no endpoints": {[]string{"replay", in("access.log")}, exitUsage, "the endpoints are missing"},
		"no database":  {base, exitFailure, "does not exist"},
		"a wrong share": {append(base, "--fail-on", "5"), exitUsage,
			`--fail-on is "5", want a percentage such as 0.5%`},
		"a wrong field": {append(base, "--field", "ip"), exitUsage, `--field is "ip", want PART=MEMBER`},
		"a wrong format": {append(base, "--format", "iis"), exitUsage,
			`format is "iis", want combined, json, envoy, alb`},
		"wrong rules": {[]string{"replay", in("access.log"), "--routes", in("routes.txt"), "--rules",
			in("wrong.yaml")}, exitFailure, "limit is"},
		"no such log": {[]string{"replay", in("none"), "--routes", in("routes.txt"), "--rules", in("narrow.yaml")},
			exitFailure, "no such file"},
		"an empty log": {[]string{"replay", in("empty.log"), "--routes", in("routes.txt"), "--rules",
			in("narrow.yaml")}, exitOK, "requests  none\n"},
		"no log at all": {[]string{"replay", in("nothing.log"), "--routes", in("routes.txt"), "--rules",
			in("narrow.yaml")}, exitFailure, "no line of"},
	} {
		if code, out, text := call(t, dir, test.args...); code != test.code || !strings.Contains(out+text, test.want) {
			t.Errorf("%s: %d %s%s, want %d %s", name, code, out, text, test.code, test.want)
		}
	}
	must(t, dir, "policy", "set", "default", "100", "--db", "sqlite:"+in("headgate.db"))
	var report struct {
		Requests int64
		Sides    []struct {
			Name   string
			Denied int64
			Newly  int64 `json:"newly_denied"`
		}
	}
	if err := json.Unmarshal([]byte(must(t, dir, append(base, "--rules", in("narrow.yaml"), "--json")...)),
		&report); err != nil {
		t.Fatal(err)
	}
	if len(report.Sides) != 2 || report.Requests != 4 || report.Sides[0].Denied != 0 || report.Sides[1].Denied != 2 ||
		report.Sides[1].Newly != 2 {
		t.Errorf("%+v, want 2 of 4 requests newly denied", report)
	}
	if code, _, text := call(t, dir, append(base, "--rules", in("narrow.yaml"), "--fail-on",
		"49%")...); code != exitFailure || !strings.Contains(text, "50.00 % would have been denied, more than 49%") {
		t.Errorf("--fail-on 49%%: %d %s", code, text)
	}
	if code, _, text := call(t, dir, append(base, "--rules", in("narrow.yaml"), "--fail-on",
		"50%")...); code != exitOK {
		t.Errorf("--fail-on 50%%: %d %s", code, text)
	}
}
