package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/server/config"
)

// TestLoginPageNamesAll holds docs/login.md to what an entry of identifiers may
// say, and to the vectors that parsers may take either way.
func TestLoginPageNamesAll(t *testing.T) {
	root := repository(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "login.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string) {
		if !strings.Contains(string(page), what) {
			t.Errorf("docs/login.md does not name %s", what)
		}
	}
	settings(reflect.TypeFor[config.Identifier](), "", func(name string) { want("| `" + name + "` |") })
	for _, name := range []string{"trim", "case", "width", "invisible", "final_dot", config.NFKC, "plus_tag", "gmail",
		"ascii", "exact"} {
		if _, _, err := (config.Identifier{Normalise: []string{name}}).Spellings(); err != nil {
			t.Errorf("normalise does not take %s: %v", name, err)
		}
		want("| `" + name + "` |")
	}
	vectors, err := filepath.Glob(filepath.Join(root, "body", "testdata", "test_parsing", "i_*.json"))
	if err != nil || len(vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	for _, file := range vectors {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		// the first of a row has its name, the others what differs
		_, inGroup, _ := strings.Cut(strings.TrimPrefix(name, "i_"), "_")
		if !strings.Contains(string(page), "`"+name+"`") {
			want("`_" + inGroup + "`")
		}
	}
	if body.DefaultBytes != 8<<10 || body.DefaultDepth != 8 || body.DefaultLength != 256 {
		t.Error("the page has other defaults")
	}
}
