package edge_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/kinds"
	"github.com/headgate-io/headgate/wasm"
)

// corpus is every text of endpoint's corpora: what servers were measured with, the Core Rule Set's and the Web Platform
// Tests' targets, those of CVEs, and lists that attackers use.
func corpus(t testing.TB) []string {
	t.Helper()
	var texts []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			texts = append(texts, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for k, e := range v {
				texts = append(texts, k)
				walk(e)
			}
		}
	}
	files, err := filepath.Glob("../../endpoint/testdata/*.json")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d corpora: %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		walk(v)
	}
	lists, err := filepath.Glob("../../endpoint/testdata/*.txt.gz")
	if err != nil || len(lists) < 2 {
		t.Fatalf("%d lists: %v", len(lists), err)
	}
	for _, file := range lists {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(z); lines.Scan(); {
			texts = append(texts, lines.Text(), "/"+lines.Text())
		}
		f.Close()
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// profiles are each setting with each other, as far as they are few, and each kind of server that was measured.
func profiles() []endpoint.Profile {
	var all []endpoint.Profile
	for _, slash := range []endpoint.EncodedSlash{endpoint.RejectEncodedSlash, endpoint.DecodeEncodedSlash,
		endpoint.KeepEncodedSlash} {
		for _, params := range []endpoint.Params{endpoint.RejectParams, endpoint.StripParams, endpoint.KeepParams} {
			for _, fold := range []bool{false, true} {
				for _, twice := range []bool{false, true} {
					p := endpoint.Profile{EncodedSlash: slash, Params: params, CaseInsensitive: fold,
						AllowDoubleEncoding: twice}
					strict := p
					strict.Refuse = endpoint.Strictest().Refuse
					all = append(all, p, strict)
				}
			}
		}
	}
	for refuse := range endpoint.Strictest().Refuse + 1 {
		all = append(all, endpoint.Profile{Refuse: refuse})
	}
	for _, k := range kinds.All() {
		all = append(all, k.Profile())
	}
	return all
}

// templates are of all kinds: literal, with parameters of every shape, that overlap, and written
// with a slash at the end.
var templates = []string{
	"GET /", "GET /a", "GET /a/b", "GET /a/b/c", "POST /a/b", "GET /{x}/b/d", "GET /A/Mixed", "DELETE /etc/passwd",
	"GET /v1/items", "GET /v1/items/{id}", "GET /v1/items/{id}.json", "POST /v1/items/{id}:copy", "PUT /v1/items/{id}/",
	"GET /compare/{from}...{to}", "GET /files/{path...}", "GET /files/fixed/", "GET /x%2Fy", "GET /%3Aodd/{a}-{b}-{c}",
	"HEAD /v1/items", "OPTIONS /a", "GET /etc/{name}", "GET /admin/{rest...}", "GET /pre{x}", "GET /prefix{x}",
	"GET /{x}suf", "GET /pre{x}suf", "GET /q/{a}.{b}", "GET /q/{a}.json", "GET /slash/", "GET /slash/{tail...}",
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "", "A B"}

// fits leaves out what cannot be under a profile.
func fits(t testing.TB, p endpoint.Profile) *endpoint.Table {
	return tableOf(t, p, templates...)
}

// mutate is a target that is like others.
func mutate(rng *rand.Rand, texts []string) string {
	pieces := []string{"/", "//", ".", "..", "%2F", "%2f", "%5C", "\\", ";", ";a=b", "%3B", "%2E", "%252F", "%25", "%",
		"?", "#", "{", "}", "%7B", "A", "a", "%41", "\x00", "%00", "%C0%AF", "%E2%82%AC", "%FF", " ", "é",
		"/v1/items/7",
		"/a/b", "...", "pre", "suf", ".json", "-", ":copy", "%3A", "/files/x", "+", "|", "\"",
		"%ED%A0%80", "%F4%90%80%80"}
	b := []byte(texts[rng.IntN(len(texts))])
	if rng.IntN(4) == 0 {
		b = []byte("/")
	}
	for range 1 + rng.IntN(5) {
		at := rng.IntN(len(b) + 1)
		switch rng.IntN(4) {
		case 0:
			if at < len(b) {
				b = slices.Delete(b, at, at+1)
			}
		case 1:
			if at < len(b) {
				b[at] = byte(rng.Uint32())
			}
		default:
			b = slices.Insert(b, at, []byte(pieces[rng.IntN(len(pieces))])...)
		}
	}
	return string(b)
}

// TestSameEndpoints compares, under every profile, the canonical form, the template and the fault
// that the library and the module find, for the whole corpus and what is made of it at random.
func TestSameEndpoints(t *testing.T) {
	texts := corpus(t)
	all := profiles()
	const random = 800
	valid, known := 0, 0
	for n, p := range all {
		rng := rand.New(rand.NewPCG(*seed, uint64(n)))
		table := fits(t, p)
		m := run(t, wasm.Options{Policies: setOf(t, table, "default 10/s", "UNKNOWN 5/s")})
		check := func(method, target string) {
			t.Helper()
			path, fault := p.Canonical(target)
			gotPath, gotFault := m.canonical(target)
			if gotPath != path || gotFault != fault {
				t.Fatalf("%+v: canonical form of %q is %q, %v; want %q, %v", p, target, gotPath, gotFault, path, fault)
			}
			want := table.Match(method, target)
			if got := m.match(method, target); got != want {
				t.Fatalf("%+v: %s %q is %+v, want %+v", p, method, target, got, want)
			}
			valid += int(bit(fault == endpoint.NoFault))
			known += int(bit(want.Status == endpoint.Known))
		}
		for i, target := range texts {
			check(methods[i%len(methods)], target)
			check("GET", target)
		}
		for range random {
			check(methods[rng.IntN(len(methods))], mutate(rng, texts))
		}
		for _, template := range templates { // their own targets, and those a little off
			method, path, _ := strings.Cut(template, " ")
			for _, filled := range []string{"x", "x-y-z", "a.b", "%3F", "x/y"} {
				target := fill(path, filled)
				check(method, target)
				check(method, strings.ToUpper(target))
				check(method, target+"/")
				check(method, strings.TrimSuffix(target, "/"))
				check("PATCH", target)
			}
		}
	}
	t.Logf("%d profiles, %d texts and %d mutations each: %d valid targets, %d known", len(all), len(texts), random,
		valid, known)
	if valid < 10_000 || known < 1000 {
		t.Error("this shows too little")
	}
}

// fill replaces the parameters of a template's path.
func fill(path, with string) string {
	for strings.Contains(path, "{") {
		before, after, _ := strings.Cut(path, "{")
		_, after, _ = strings.Cut(after, "}")
		path = before + with + after
	}
	return path
}

// FuzzSameEndpoints is TestSameEndpoints for what a fuzzer finds.
func FuzzSameEndpoints(f *testing.F) {
	for _, text := range corpus(f)[:200] {
		f.Add("GET", text, uint8(3))
	}
	type pair struct {
		p     endpoint.Profile
		table *endpoint.Table
		m     *plain
	}
	var pairs []pair
	for _, p := range profiles()[:72] {
		table := fits(f, p)
		set := setOf(f, table, "default 10/s", "UNKNOWN 5/s")
		pairs = append(pairs, pair{p, table, run(f, wasm.Options{Policies: set})})
	}
	f.Fuzz(func(t *testing.T, method, target string, n uint8) {
		if len(method)+len(target) > 60_000 {
			return
		}
		one := pairs[int(n)%len(pairs)]
		if got, want := one.m.match(method, target), one.table.Match(method, target); got != want {
			t.Fatalf("%+v: %q %q is %+v, want %+v", one.p, method, target, got, want)
		}
	})
}
