package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/inspect"
)

func TestExplainOffline(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "routes.txt", routesFile)
	must(t, dir, "policy", "set", "GET /v1/items/{id}", "5")
	key := strings.TrimSpace(must(t, dir, "key", "create", "--project", "acme", "--name", "ci"))
	out := must(t, dir, "explain", "GET", "/v1/items/7?x=1", "--offline", "--routes", "routes.txt", "--header",
		"X-Api-Key: "+key, "--peer", "2001:db8::1")
	for _, want := range []string{"/v1/items/7", "GET /v1/items/{id} (known)", "project acme", "2001:db8::/64",
		"the most specific rule", "verdict  allowed", "offline"} {
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
	if code, _, stderr := call(t, dir, "explain", "GET", "/v1/items/1", "--offline", "--routes",
		"routes.txt"); code != exitFailure || !strings.Contains(stderr, "headgate.db") {
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

// Which limit a descriptor has, and what Envoys that decide by themselves admit beyond it, is read from the files.
func TestExplainDescriptor(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "headgate.yaml",
		"decisions: {grpc: 127.0.0.1:8083, ratelimit: [a.yaml, b.yaml], ratelimit_merge: true, quota_ttl: 10s}\n")
	write(t, dir, "a.yaml", "domain: shop\ndescriptors:\n- {key: ip, rate_limit: {unit: minute, requests_per_unit: "+
		"60}}\n- key: plan\n  value: free\n  descriptors:\n  - {key: ip, rate_limit: {name: frugal, unit: hour, "+
		"requests_per_unit: 5}}\n")
	write(t, dir, "b.yaml", "domain: shop\ndescriptors:\n- {key: none, rate_limit: {unit: day, requests_per_unit: "+
		"0}}\n- {key: free, rate_limit: {unlimited: true}}\n- {key: tried, shadow_mode: true, rate_limit: {unit: "+
		"hour, requests_per_unit: 1}}\n")
	for _, c := range []struct{ args, want string }{
		{"ip=192.0.2.7", "limit       shop/ip, at a.yaml:3\nmode        enforce\nadmits      60 at once and 60 per " +
			"1m, by Envoys that ask about each request\n            60 at once and 60 per 1m, and 11 more, which " +
			"drain in 11s, by"},
		{"plan=free ip=1", "limit       shop/plan=free/ip, at a.yaml:7\n"},
		{"ip=1 plan=free", "admits      everything, by Envoys that ask about each request: it stands in another " +
			"order in the file\n            5 at once and 5 per 1h, and 1 more, which drain in 11s, by"},
		{"none", "admits      nothing\n"}, {"free=x", "mode        unlimited\n"}, {"tried=x", "mode        shadow\n"},
		{"other=x", "limit       none fits: it passes, and is not counted\n"},
	} {
		args := append([]string{"explain", "--config", "headgate.yaml", "--descriptor", "shop"},
			strings.Fields(c.args)...)
		if out := must(t, dir, args...); !strings.Contains(out, c.want) {
			t.Errorf("%s: %s, want %q in it", c.args, out, c.want)
		}
	}
	if out := must(t, dir, "explain", "--config", "headgate.yaml", "--descriptor", "shop", "ip=1",
		"--json"); !strings.Contains(out, `"excess": 11`) {
		t.Errorf("in JSON: %s", out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--descriptor", "shop", "ip=1"}, "decisions.ratelimit is empty"},
		{[]string{"--descriptor", "shop", "--config", "headgate.yaml"}, "explain takes 2 to 17 arguments, got 1"},
		{[]string{"--descriptor", "shop", "=1", "--config", "headgate.yaml"}, `an entry is "=1", want KEY=VALUE`},
	} {
		if code, _, stderr := call(t, dir, append([]string{"explain"}, c.args...)...); code != exitUsage ||
			!strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit %d, %s, want %s", c.args, code, stderr, c.want)
		}
	}
}

// TestExplainTellsOfPlaces: how many requests of the caller are under way, and how many may be.
func TestExplainTellsOfPlaces(t *testing.T) {
	bucket := func(places, taken int64) inspect.Attempt {
		return inspect.Attempt{
			Bucket: inspect.Bucket{
				Rule: "default at once", Subject: "in_flight:principal", Limit: 3, Per: 30e9, Burst: 3,
			},
			Algorithm: "concurrency", Places: places, Taken: taken,
		}
	}
	for _, c := range []struct {
		attempt inspect.Attempt
		want    string
	}{
		{bucket(0, 2), "default at once: 2 of 3 places are taken\n"},
		{bucket(2, 3),
			"default at once: 3 of 2 places are taken\n  default at once is lowered to 2 of its 3 at once\n"},
	} {
		var out strings.Builder
		writeBuckets(&out, inspect.Explanation{Buckets: []inspect.Attempt{c.attempt}}, false)
		if got := out.String(); !strings.Contains(got, c.want) || !strings.Contains(got, "3 at once") {
			t.Errorf("explain says\n%s\nwant %q and 3 at once", got, c.want)
		}
	}
}
