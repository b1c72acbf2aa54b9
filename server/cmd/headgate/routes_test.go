package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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

// TestRoutesFrom makes a list that serve reads of what Rails prints, and says what is lost.
func TestRoutesFrom(t *testing.T) {
	dir := t.TempDir()
	testdata, err := filepath.Abs("../../framework/testdata/rails.txt")
	if err != nil {
		t.Fatal(err)
	}
	list := must(t, dir, "routes", "from", "rails", testdata)
	if err := os.WriteFile(filepath.Join(dir, "routes.txt"), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, "routes", "--json", "--routes", filepath.Join(dir, "routes.txt")); len(got) == 0 ||
		len(got) != strings.Count(list, "\n") {
		t.Errorf("%d routes are read of %d lines", len(got), strings.Count(list, "\n"))
	}
	var found struct {
		Routes []string
		Notes  []conversionNote
	}
	if err := json.Unmarshal([]byte(must(t, dir, "routes", "from", "rails", testdata, "--json")), &found); err != nil ||
		strings.Join(found.Routes, "\n")+"\n" != list || len(found.Notes) != 5 {
		t.Errorf("--json is %v, %v, want the routes and five notes", found, err)
	}
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"routes from rails " + testdata + " --strict", "something could not be carried over", 1},
		{"routes from rocket x", "want one of django, express, fastapi, flask, rails, spring", 2},
		{"routes from rails --script", "which has a command of its own: bin/rails routes", 2},
		{"routes from", "want headgate routes from FRAMEWORK [FILE]", 2},
	} {
		code, _, errs := call(t, dir, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("headgate %s: exit %d, %s, want %d and %s", c.args, code, errs, c.code, c.want)
		}
	}
	if script := must(t, dir, "routes", "from", "django", "--script"); !strings.Contains(script, "get_resolver") {
		t.Errorf("the script is %s", script)
	}
}
