package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
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
		if names[m.Name] || !strings.HasPrefix(m.Name, m.folder()+": ") || m.Why == "" {
			t.Errorf("%q in %s: want a name of its own, that begins with the package, and why it matters",
				m.Name, m.File)
		}
		names[m.Name] = true
		packages[path.Dir(m.File)]++
	}
	if len(names) < 60 {
		t.Errorf("%d bugs are planted, want 60 or more", len(names))
	}
	for _, want := range append([]string{"bucket", "bucket/memory", "endpoint", "identity", "httplimit", "gateway"},
		protocols...) {
		if packages[want] < 4 {
			t.Errorf("%d bugs are planted in %s, want 4 or more", packages[want], want)
		}
	}
}

// A result counts for what it is, and a bug that survives unexpectedly fails the command.
func TestVerdict(t *testing.T) {
	in := func(file, test, nemesis, survives string) result {
		return result{
			Mutant:  Mutant{Name: file + ": x", File: file + "/x.go", Survives: survives},
			outcome: outcome{Test: test, Nemesis: nemesis},
		}
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
	if got := culprit("--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/one_of_them (0.1s)\n        x\nFAIL\n"); got !=
		"TestA/one of them" {
		t.Errorf("the culprit is %q", got)
	}
	text := page(append(good, in("bucket/scoped", "", "TestD", "nobody can see it")))
	for _, want := range []string{"| by tests | 2 | 3 | 67 % |", "- bucket/scoped: x, by tests: nobody can see it",
		"## bucket/lease"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page is\n%s\nwant %q in it", text, want)
		}
	}
}

// A test that fails where no bug is planted would catch every bug: it is said before any is tried, unless all that it
// could catch is known already.
func TestClean(t *testing.T) {
	root := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":         "module example.com/x\n",
		"good/x.go":      "package x\n",
		"good/x_test.go": "package x\n\nimport \"testing\"\n\nfunc TestX(*testing.T) {}\n",
		"bad/x.go":       "package x\n",
		"bad/x_test.go":  "package x\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { t.Error(\"it fails\") }\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	good, bad := Mutant{Name: "good", File: "good/x.go"}, Mutant{Name: "bad", File: "bad/x.go"}
	if err := (options{}).clean(root, []Mutant{good}, memory{}); err != nil {
		t.Errorf("tests that pass: %v", err)
	}
	if err := (options{}).clean(root, []Mutant{good, bad}, memory{}); err == nil ||
		!strings.Contains(err.Error(), "it fails") {
		t.Errorf("tests of which one fails: %v, want what it says", err)
	}
	if err := (options{}).clean(root, []Mutant{bad}, memory{"bad\n\n": {Tested: true}}); err != nil {
		t.Errorf("tests that are not to be run: %v", err)
	}
}
