package main

import (
	"fmt"
	"path"
	"strings"
	"testing"
)

// Every planted bug can still be planted: where the code has changed, the list follows.
func TestPlanted(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	names, packages := map[string]bool{}, map[string]int{}
	for _, m := range all() {
		if _, err := m.planted(root); err != nil {
			t.Error(err)
		}
		if names[m.Name] || !strings.HasPrefix(m.Name, path.Dir(m.File)+": ") || m.Why == "" {
			t.Errorf("%q in %s: want a name of its own, that begins with the package, and why it matters", m.Name, m.File)
		}
		names[m.Name] = true
		packages[path.Dir(m.File)]++
	}
	if len(names) < 60 {
		t.Errorf("%d bugs are planted, want 60 or more", len(names))
	}
	for _, want := range append([]string{"bucket", "bucket/memory", "endpoint", "identity", "httplimit", "gateway"}, protocols...) {
		if packages[want] < 4 {
			t.Errorf("%d bugs are planted in %s, want 4 or more", packages[want], want)
		}
	}
}

// A result counts for what it is, and a bug that survives unexpectedly fails the command.
func TestVerdict(t *testing.T) {
	in := func(file, test, nemesis, survives string) result {
		return result{Mutant: Mutant{Name: file + ": x", File: file + "/x.go", Survives: survives}, outcome: outcome{Test: test, Nemesis: nemesis}}
	}
	good := []result{in("bucket", "TestA", "", ""), in("bucket/lease", "TestB", "TestC", "")}
	if err := summarize(good).verdict(options{}); err != nil {
		t.Errorf("all are caught: %v", err)
	}
	for want, r := range map[string]result{
		"no test catches bucket: x": in("bucket", "", "", ""),
		"simulation and nemesis":    in("bucket/lease", "TestB", "", ""),
		"does not build":            {Mutant: Mutant{Name: "bucket: x"}, err: fmt.Errorf("does not build")},
	} {
		if err := summarize(append(good, r)).verdict(options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("verdict is %v, want %q in it", err, want)
		}
	}
	if got := culprit("--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/one_of_them (0.1s)\n        x\nFAIL\n"); got != "TestA/one of them" {
		t.Errorf("the culprit is %q", got)
	}
	text := page(append(good, in("bucket/scoped", "", "TestD", "nobody can see it")))
	for _, want := range []string{"| by tests | 2 | 3 | 67 % |", "- bucket/scoped: x, by tests: nobody can see it", "## bucket/lease"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page is\n%s\nwant %q in it", text, want)
		}
	}
}
