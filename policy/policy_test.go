package policy_test

import (
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// table compiles templates, which must be right.
func table(t testing.TB, texts ...string) *endpoint.Table {
	t.Helper()
	var templates []endpoint.Template
	for _, text := range texts {
		templates = append(templates, template(t, text))
	}
	endpoints, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	return endpoints
}

func template(t testing.TB, text string) endpoint.Template {
	t.Helper()
	tmpl, err := endpoint.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func lookup(t testing.TB, endpoints *endpoint.Table, text string) endpoint.ID {
	t.Helper()
	id, ok := endpoints.Lookup(template(t, text))
	if !ok {
		t.Fatalf("no endpoint %q", text)
	}
	return id
}

// compile compiles a document, which must have no error.
func compile(t testing.TB, doc policy.Document, o policy.CompileOptions) *policy.Set {
	t.Helper()
	set, problems := policy.Compile(doc, o)
	if set == nil {
		t.Fatalf("Compile: %v", problems)
	}
	return set
}
