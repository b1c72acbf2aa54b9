package openapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/openapi"
)

// documents are the real ones, with what somebody else's extract says of them.
var documents = []struct {
	file, ops string
	base      string
	count     int
}{
	{"testdata/stripe-spec3.json.gz", "testdata/stripe.ops.json", "", 594},
	{"testdata/digitalocean-public.v2.yaml.gz", "testdata/digitalocean.ops.json", "", 659},
	{"testdata/petstore-openapi.yaml", "testdata/petstore.ops.json", "/api/v3", 19},
}

func TestLoadRealDocuments(t *testing.T) {
	for _, d := range documents {
		ops, err := openapi.Load(d.file)
		if err != nil {
			t.Errorf("Load(%s): %v", d.file, err)
			continue
		}
		if len(ops) != d.count {
			t.Errorf("Load(%s) = %d operations, want %d", d.file, len(ops), d.count)
		}
		var got []string
		for _, op := range ops {
			got = append(got, op.Method+" "+op.Path+" "+op.OperationID)
			if want := op.Method + " " + d.base + op.Path; op.BasePath != d.base || op.Template.String() != want ||
				op.Source != d.file {
				t.Errorf("%s %s: base %q, template %q, source %q, want %q, %q, %q",
					op.Method, op.Path, op.BasePath, op.Template, op.Source, d.base, want, d.file)
			}
		}
		slices.Sort(got)
		if want := extract(t, d.ops); !slices.Equal(got, want) {
			t.Errorf("Load(%s) differs from %s:\n%s", d.file, d.ops, difference(got, want))
		}
	}
}

// extract reads the operations of an .ops.json file, sorted.
func extract(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Ops []struct{ Method, Path, OperationID string }
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	var ops []string
	for _, op := range doc.Ops {
		ops = append(ops, op.Method+" "+op.Path+" "+op.OperationID)
	}
	slices.Sort(ops)
	return ops
}

func difference(got, want []string) string {
	var b strings.Builder
	for _, g := range got {
		if !slices.Contains(want, g) {
			fmt.Fprintf(&b, "  not wanted: %s\n", g)
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			fmt.Fprintf(&b, "  missing: %s\n", w)
		}
	}
	return b.String()
}

func TestRealDocumentsMakeOneTable(t *testing.T) {
	var files []string
	want := 0
	for _, d := range documents {
		files = append(files, d.file)
		want += d.count
	}
	ops, err := openapi.Load(files...)
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.Compile(openapi.Templates(ops), endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	if table.Len() != want {
		t.Errorf("the table has %d endpoints, want %d", table.Len(), want)
	}
}

func TestLoad(t *testing.T) {
	tests := []struct {
		name string
		doc  string
		want []string // templates
	}{
		{"a path item holds more than operations", `
openapi: 3.0.3
paths:
  /a:
    summary: s
    description: d
    parameters: [{name: p}]
    x-audience: {teams: [b]}
    get: {}
    put: {}
    post: {}
    delete: {}
    options: {}
    head: {}
    patch: {}
    trace: {}
  x-internal: {get: {}}
`, []string{"GET /a", "PUT /a", "POST /a", "DELETE /a", "OPTIONS /a", "HEAD /a", "PATCH /a", "TRACE /a"}},
		{"3.2 has query and methods of its own", `
openapi: 3.2.0
paths:
  /a:
    query: {}
    additionalOperations: {LINK: {}}
`, []string{"QUERY /a", "LINK /a"}},
		{"operations and bodies may refer to files that are not there", `
openapi: 3.0.0
paths:
  /a:
    get: {$ref: "resources/a/get.yml"}
    post: {requestBody: {$ref: "nowhere.yml#/x"}}
`, []string{"GET /a", "POST /a"}},
		{"a version may be written as a number", `
swagger: 2.0
paths: {/a: {get: {}}}
`, []string{"GET /a"}},
		{"Swagger's basePath, and no servers", `
swagger: "2.0"
host: api.example.com
basePath: /v1/
servers: [{url: /no}]
paths: {/a: {get: {}}}
`, []string{"GET /v1/a"}},
		{"Swagger's basePath at the root", `
swagger: "2.0"
basePath: /
paths: {/a: {get: {}}}
`, []string{"GET /a"}},
		{"servers that differ in the host are one", `
openapi: 3.0.0
servers: [{url: "https://eu.example.com/v1"}, {url: "https://us.example.com/v1/"}]
paths: {/a: {get: {}}}
`, []string{"GET /v1/a"}},
		{"servers that differ in the path are several", `
openapi: 3.0.0
servers: [{url: "https://example.com"}, {url: "https://example.com/beta"}]
paths: {/a: {get: {}}}
`, []string{"GET /a", "GET /beta/a"}},
		{"a path's servers go before the document's, an operation's before both", `
openapi: 3.0.0
servers: [{url: /doc}]
paths:
  /a:
    servers: [{url: /path}]
    get: {}
    post: {servers: [{url: /op}, {url: "https://uploads.example.com/up"}]}
  /b: {get: {}}
`, []string{"GET /path/a", "POST /op/a", "POST /up/a", "GET /doc/b"}},
		{"server variables have defaults", `
openapi: 3.0.0
servers:
  - url: "https://{region}.example.com:{port}/{version}"
    variables:
      region: {default: eu, enum: [eu, us]}
      port: {default: "8443"}
      version: {default: v2}
paths: {/a: {get: {}}}
`, []string{"GET /v2/a"}},
		{"server URLs may be relative", `
openapi: 3.0.0
servers: [{url: /v1}, {url: ./v2}, {url: v3}, {url: ../v4}, {url: .}, {url: ""}, {url: //host/v5}]
paths: {/a: {get: {}}}
`, []string{"GET /v1/a", "GET /v2/a", "GET /v3/a", "GET /v4/a", "GET /a", "GET /v5/a"}},
		{"an empty list of servers is the root", `
openapi: 3.0.0
servers: []
paths: {/a: {get: {}}}
`, []string{"GET /a"}},
		{"a parameter may be part of a segment", `
openapi: 3.0.0
paths: {"/Accounts/{Sid}.json": {get: {}}, "/v{version}/a": {get: {}}}
`, []string{"GET /Accounts/{Sid}.json", "GET /v{version}/a"}},
		{"a parameter may have any name", `
openapi: 3.0.0
paths: {"/a/{user id}/{größe}": {get: {}}}
`, []string{"GET /a/{user_id}/{gr__e}"}},
		{"a parameter may have several segments, where a document says so our way", `
openapi: 3.0.0
paths: {"/files/{path...}": {get: {}}}
`, []string{"GET /files/{path...}"}},
		{"a path item may be elsewhere in the document", `
openapi: 3.1.0
paths:
  /a: {$ref: "#/components/pathItems/a%20b~1c"}
  /b: {$ref: "#/paths/~1a", post: {}}
components:
  pathItems:
    a b/c: {get: {}, post: {operationId: inner}}
`, []string{"GET /a", "POST /a", "POST /b", "GET /b"}},
		{"YAML aliases and merges are followed", `
openapi: 3.0.0
x-both: &both {get: {}, post: {}}
x-self: &self {<<: *both}
paths:
  /a: *both
  /b: {<<: *self, post: {operationId: own}}
  /c: {<<: [*both, *self], put: {}}
`, []string{"GET /a", "POST /a", "POST /b", "GET /b", "PUT /c", "GET /c", "POST /c"}},
		{"since 3.1 webhooks are not endpoints", `
openapi: 3.1.0
webhooks: {a: {post: {}}}
paths: {/a: {get: {}}}
`, []string{"GET /a"}},
		{"JSON, with escapes and a mark at its start", "\uFEFF" + ` {"openapi":"3.0.0","x-\"brace\\":"}{\"",
			"paths":{"\/a\u002fb":{"get":{"description":"\\"}}}, "n":[1,-2.5e3,null,true,[],{}]}`, []string{"GET /a/b"}},
	}
	for _, tt := range tests {
		ops, err := openapi.Load(write(t, "doc.txt", tt.doc))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := texts(ops); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
		}
	}
}

func texts(ops []openapi.Operation) []string {
	var s []string
	for _, op := range ops {
		s = append(s, op.Template.String())
	}
	return s
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestLoadFaults reads every file in testdata/bad, each named after its fault,
// and compares with the messages in testdata/bad.txt.
func TestLoadFaults(t *testing.T) {
	want, err := os.ReadFile("testdata/bad.txt")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/bad/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var got strings.Builder
	for _, file := range files {
		ops, err := openapi.Load(file)
		if err == nil {
			t.Errorf("Load(%s) = %d operations, want an error", file, len(ops))
			continue
		}
		if ops != nil {
			t.Errorf("Load(%s) = %d operations beside its error, want none", file, len(ops))
		}
		got.WriteString(strings.ReplaceAll(err.Error(), "testdata/bad/", "") + "\n")
	}
	if got.String() != string(want) {
		t.Errorf("messages differ from testdata/bad.txt:\n%s",
			difference(strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")))
	}
}

func TestLoadReportsEveryFile(t *testing.T) {
	_, err := openapi.Load("testdata/bad/no_paths.yaml", "testdata/petstore-openapi.yaml",
		"testdata/bad/json_syntax.json", "testdata/bad", "nowhere.json")
	if err == nil {
		t.Fatal("Load of four bad files succeeded")
	}
	for _, want := range []string{"no_paths.yaml:1:1: paths is missing", "json_syntax.json:4:",
		"testdata/bad: is a folder", "nowhere.json: no such file"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Load reports\n%v\nwant also %q", err, want)
		}
	}
	if _, err := openapi.Load(); err == nil {
		t.Error("Load() without a file succeeded")
	}
}

// A small file that unpacks to a huge one is refused, not read.
func TestLoadRefusesABomb(t *testing.T) {
	var member bytes.Buffer
	z := gzip.NewWriter(&member)
	if _, err := z.Write(bytes.Repeat([]byte{' '}, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	bomb := strings.Repeat(member.String(), openapi.MaxBytes>>20+1) // gzip files may follow each other
	_, err := openapi.Load(write(t, "bomb.json.gz", bomb))
	if err == nil || !strings.Contains(err.Error(), "is longer than 64 MiB unpacked") {
		t.Errorf("Load of a bomb = %v, want a refusal", err)
	}
}

// Aliases of aliases, each doubling, and mappings that merge one another must
// cost no more than their text.
func TestLoadStaysSmallOnAliases(t *testing.T) {
	var b strings.Builder
	b.WriteString("openapi: 3.0.0\nx0: &x0 {get: {}}\n")
	for i := 1; i < 60; i++ {
		fmt.Fprintf(&b, "x%d: &x%d {<<: [*x%d, *x%d]}\n", i, i, i-1, i-1)
	}
	b.WriteString("paths:\n  /a: *x59\n")
	ops, err := openapi.Load(write(t, "laughs.yaml", b.String()))
	if err != nil || !slices.Equal(texts(ops), []string{"GET /a"}) {
		t.Errorf("Load = %q, %v, want GET /a", texts(ops), err)
	}
}

func TestRoutes(t *testing.T) {
	ops, err := openapi.Routes(write(t, "routes",
		"# the shop\r\nGET /items\r\n\n\t POST   /items # new\nGET /items/{id}#frag\n"))
	if err == nil || !strings.Contains(err.Error(), "routes:5: ") {
		t.Errorf("Routes = %q, %v, want a fault in line 5", texts(ops), err)
	}
	file := write(t, "routes", "# the shop\r\nGET /items\r\n\n\t POST   /items # new\nGET /files/{path...}\n")
	ops, err = openapi.Routes(file)
	if want := []string{"GET /items", "POST /items", "GET /files/{path...}"}; err != nil ||
		!slices.Equal(texts(ops), want) {
		t.Errorf("Routes = %q, %v, want %q", texts(ops), err, want)
	}
	if len(ops) > 0 && (ops[1].Method != "POST" || ops[1].Path != "/items" || ops[1].Source != file) {
		t.Errorf("Routes: the second is %+v", ops[1])
	}
}

func TestRoutesReportsEveryLine(t *testing.T) {
	_, err := openapi.Routes(write(t, "routes", "GET\nGET /ok\n/items\nGET items\nGET /a /b\nGET /a/{id\n"))
	if err == nil {
		t.Fatal("Routes succeeded")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 5 {
		t.Fatalf("Routes reports %d faults, want 5:\n%v", len(lines), err)
	}
	for i, number := range []string{":1: ", ":3: ", ":4: ", ":5: ", ":6: "} {
		if !strings.Contains(lines[i], number) {
			t.Errorf("fault %d is %q, want it in line %s", i, lines[i], number)
		}
	}
	if _, err := openapi.Routes(write(t, "routes", "# nothing\n")); err == nil ||
		!strings.Contains(err.Error(), "holds no endpoint") {
		t.Errorf("Routes of an empty list = %v, want a refusal", err)
	}
	if _, err := openapi.Routes("testdata/nowhere"); err == nil || errors.Is(err, fs.ErrExist) {
		t.Errorf("Routes of no file = %v, want an error", err)
	}
}

func ExampleLoad() {
	ops, err := openapi.Load("testdata/petstore-openapi.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, op := range ops[:3] {
		fmt.Println(op.Template, op.OperationID)
	}
	// Output:
	// PUT /api/v3/pet updatePet
	// POST /api/v3/pet addPet
	// GET /api/v3/pet/findByStatus findPetsByStatus
}
