package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
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
