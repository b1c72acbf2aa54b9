package openapi_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"github.com/headgate-io/headgate/server/openapi"
)

// The library that builds the whole object model is the slow, obvious twin:
// in a document that it reads, Load must find the same operations. The library
// itself cannot do Load's work: it stops at references to files that are not
// there, says neither line nor duplicate key, and takes twenty times as long
// (BenchmarkObjectModel).
func TestLoadAgreesWithTheObjectModel(t *testing.T) {
	files := []string{
		"testdata/petstore-openapi.yaml",
		write(t, "shop.yaml", shop),
		write(t, "old.yaml", oldShop),
	}
	for _, file := range files {
		ops, err := openapi.Load(file)
		if err != nil {
			t.Errorf("Load(%s): %v", file, err)
			continue
		}
		var got []string
		for _, op := range ops {
			got = append(got, op.Method+" "+op.Path+" "+op.OperationID)
		}
		slices.Sort(got)
		if want := twin(t, file); !slices.Equal(got, want) {
			t.Errorf("Load(%s) differs from the object model:\n%s", file, difference(got, want))
		}
	}
}

const shop = `
openapi: 3.1.0
info: {title: shop, version: "1"}
servers: [{url: /v1}]
paths:
  /items:
    summary: all of them
    parameters: [{name: q, in: query, schema: {type: string}}]
    get: {operationId: list, responses: {}}
    post: {operationId: add, responses: {}}
    x-owner: {get: nobody}
  /items/{id}: &item
    get: {operationId: read, responses: {}}
    delete: {responses: {}}
  /things/{id}: *item
webhooks:
  sold: {post: {responses: {}}}
`

const oldShop = `
swagger: "2.0"
info: {title: shop, version: "1"}
basePath: /v1
paths:
  /items:
    get: {operationId: list, responses: {}}
    head: {responses: {}}
    options: {responses: {}}
  /items/{id}:
    patch: {responses: {}}
    put: {responses: {}}
`

// twin reads a document with the library, without resolving references.
func twin(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(file, ".json") {
		data = toJSON(t, data)
	}
	var ops []string
	if strings.Contains(string(data), `"swagger":"2.0"`) {
		var doc openapi2.T
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		for path, item := range doc.Paths {
			for method, op := range item.Operations() {
				ops = append(ops, method+" "+path+" "+op.OperationID)
			}
		}
	} else {
		var doc openapi3.T
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		for path, item := range doc.Paths.Map() {
			for method, op := range item.Operations() {
				ops = append(ops, method+" "+path+" "+op.OperationID)
			}
		}
	}
	slices.Sort(ops)
	return ops
}

func toJSON(t *testing.T, data []byte) []byte {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(withTextKeys(doc))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// withTextKeys makes texts of keys that YAML takes for numbers, such as 200.
func withTextKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = withTextKeys(v[k])
		}
	case map[any]any:
		m := make(map[string]any, len(v))
		for k := range v {
			m[fmt.Sprint(k)] = withTextKeys(v[k])
		}
		return m
	case []any:
		for i := range v {
			v[i] = withTextKeys(v[i])
		}
	}
	return v
}

// BenchmarkObjectModel is what Load would cost with the library, the packed
// file read beforehand.
func BenchmarkObjectModel(b *testing.B) {
	f, err := os.Open("testdata/stripe-spec3.json.gz")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		b.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var doc openapi3.T
		if err := json.Unmarshal(data, &doc); err != nil {
			b.Fatal(err)
		}
	}
}
