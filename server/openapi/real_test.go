package openapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/openapi"
)

// realDocuments are the paths, methods and servers of 145 public APIs, see testdata/ORIGIN.md.
func realDocuments(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	packed, err := os.ReadFile("testdata/documents.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	documents := map[string]json.RawMessage{}
	if err := json.NewDecoder(z).Decode(&documents); err != nil {
		t.Fatal(err)
	}
	return documents
}

var (
	braced   = regexp.MustCompile(`\{[^{}]*\}`)
	asksWith = regexp.MustCompile(`=\{[^{}]*\}`)
)

// example is a target of an operation, with values that are no literals of any document.
func example(t endpoint.Template) string {
	target := strings.ReplaceAll(t.Path(), "%3A", ":")
	if t.Query() != "" {
		target += "?" + asksWith.ReplaceAllString(t.Query(), "=zq7")
	}
	return braced.ReplaceAllString(target, "zq7")
}

// TestRealDocumentsLoad: of each document every operation but those named here is loaded, and what
// its own example matches is that operation, or the one that it is merged with.
func TestRealDocumentsLoad(t *testing.T) {
	left := map[string]int{"clicksend.com": 1}                 // a parameter in the name of a query parameter
	unmatchable := map[string]int{"oxforddictionaries.com": 1} // a literal ; which the profile refuses
	operations := 0
	for name, text := range realDocuments(t) {
		ops, warnings, err := openapi.LoadMost(write(t, "api.json", string(text)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		table, problems, err := endpoint.CompileMost(openapi.Templates(ops), endpoint.Profile{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var paths struct{ Paths map[string]map[string]any }
		if err := json.Unmarshal(text, &paths); err != nil {
			t.Fatal(err)
		}
		declared := 0
		for _, item := range paths.Paths {
			declared += len(item)
		}
		atFault := map[endpoint.Template]bool{}
		for _, p := range problems {
			if p.Err != nil {
				atFault[p.Template] = true
			}
		}
		if len(atFault) != unmatchable[name] {
			t.Errorf("%s: %v, want %d left out", name, problems, unmatchable[name])
		}
		loaded := map[string]bool{}
		for _, op := range ops {
			loaded[op.Method+" "+op.Path] = true
			if atFault[op.Template] {
				continue
			}
			id, ok := table.Lookup(op.Template)
			if m := table.Match(op.Method, example(op.Template)); !ok || m.ID != id || m.Status != endpoint.Known {
				t.Errorf("%s: Match(%s, %s) = %v, %q, want %q", name, op.Method, example(op.Template), m,
					table.Template(m.ID), op.Template)
			}
		}
		if got := declared - len(loaded); got != left[name] {
			t.Errorf("%s: %d of %d operations left out, want %d: %v", name, got, declared, left[name], warnings)
		}
		operations += len(ops)
	}
	if operations < 15000 {
		t.Errorf("%d operations in all documents, want 15000 and more", operations)
	}
}

// What each of these documents is known for.
func TestRealDocumentsByName(t *testing.T) {
	documents := realDocuments(t)
	for name, want := range map[string]struct {
		method, target, template string
		warning                  string
	}{
		"github.com/api.github.com": {"GET", "/repos/o/r/compare/main...topic",
			"GET /repos/{owner}/{repo}/compare/{basehead}", ""},
		"xero.com/xero_accounting": {"GET", "/Invoices/1/Attachments/2",
			"GET /Invoices/{InvoiceID}/Attachments/{AttachmentID}",
			`"GET /api.xro/2.0/Invoices/{InvoiceID}/Attachments/{FileName}" both match`},
		"box.com": {"POST", "/oauth2/token", "POST /oauth2/token",
			`nobody sends the fragment "#refresh"`},
		"okta.com/management":      {"GET", "/api/v1/users/7", "GET /api/v1/users/{id}", ""},
		"adyen.com/TerminalAPI-v1": {"POST", "/login", "POST /login", ""},
		"adafruit.com": {"POST", "/webhooks/feed/:token",
			"POST /webhooks/feed/%3Atoken", ""},
		"microsoft.com/cognitiveservices-ComputerVision": {"POST", "/vision/v2.1/analyze", "POST /vision/v2.1/analyze",
			`nobody sends the fragment "#overload=stream"`},
	} {
		ops, warnings, err := openapi.LoadMost(write(t, "api.json", string(documents[name])))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		table, problems, err := endpoint.CompileMost(openapi.Templates(ops), endpoint.Profile{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var said strings.Builder
		for _, w := range warnings {
			said.WriteString(w.String() + "\n")
		}
		for _, p := range problems {
			said.WriteString(p.String() + "\n")
		}
		var got string
		for _, base := range []string{"", ops[0].BasePath} {
			if m := table.Match(want.method, base+want.target); m.Status == endpoint.Known {
				got = strings.Replace(table.Template(m.ID).String(), " "+base+"/", " /", 1)
			}
		}
		if got != want.template || !strings.Contains(said.String(), want.warning) {
			t.Errorf("%s: %s %s is %q, want %q, with a warning of %q among\n%s", name, want.method, want.target, got,
				want.template, want.warning, said.String())
		}
	}
}

// One operation at fault costs itself alone; Load, for whoever wants no such thing, refuses.
func TestOneOperationAtFault(t *testing.T) {
	const document = `{"openapi": "3.0.0", "servers": [{"url": "https://{tenant}.example.com:{port}/v1"}, {"url": "https://example.com/{base}"}],
		"paths": {"/a": {"get": {}}, "b": {"get": {}}, "/c/{+x}": {"get": {}}, "/d": {"fetch": {}, "get": {}}, "/e": {"$ref": "other.yaml"}, "/f//g h": {"get": {}}}}`
	file := write(t, "api.json", document)
	ops, warnings, err := openapi.LoadMost(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(texts(ops), ", "), "GET /v1/a, GET /v1/d, GET /v1/f/g%20h"; got != want {
		t.Errorf("LoadMost = %s, want %s", got, want)
	}
	for i, want := range []string{`names the variable "base"`, `"b" does not begin with a slash`, `{+x}`,
		`"fetch" is not a method`, `outside the document`} {
		if i >= len(warnings) || !warnings[i].LeftOut || !strings.Contains(warnings[i].Text, want) ||
			!strings.HasSuffix(warnings[i].String(), ": left out") {
			t.Fatalf("warnings are %v, want %d to say %s", warnings, i, want)
		}
	}
	if _, err := openapi.Load(file); err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("Load = %v, want all five faults", err)
	}
	nothing := strings.Replace(document, `"https://{tenant}.example.com:{port}/v1"`, `"nowhere.example.com"`, 1)
	if ops, _, err := openapi.LoadMost(write(t, "api.json", nothing)); err == nil ||
		!strings.Contains(err.Error(), "has no scheme") || !strings.Contains(err.Error(), `variable "base"`) {
		t.Errorf("LoadMost without a server = %v, %v, want both faults", ops, err)
	}
}
