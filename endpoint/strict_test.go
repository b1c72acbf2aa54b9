package endpoint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
)

// TestStrictestRefusesWhatServersReadDifferently: every spelling here is another endpoint to some
// server of eval/garden.
func TestStrictestRefusesWhatServersReadDifferently(t *testing.T) {
	table := table(t, endpoint.Strictest(), "GET /v1/items", "GET /v1/items/{id}", "GET /v1/items/search",
		"GET /v1/getUser", "GET /public/{path...}", "GET /orders/", "GET /orders/{id}/", "POST /orders")
	for target, want := range map[string]string{
		"/v1/items":            "GET /v1/items",
		"/v1/items/7":          "GET /v1/items/{id}",
		"/v1/items/Seven":      "GET /v1/items/{id}",
		"/v1/items/search?a=B": "GET /v1/items/search",
		"/v1/items/caf%C3%A9":  "GET /v1/items/{id}",
		"/v1/items/a%20b":      "GET /v1/items/{id}",
		"/v1/getUser":          "GET /v1/getUser",
		"/public/a/B":          "GET /public/{path...}",
		"/orders/":             "GET /orders/",
		"/orders/7/?x=1":       "GET /orders/{id}/",
		"/nothing":             "unknown path",
		"/Nothing/At/All":      "unknown path",

		"/v1/items/Search":    "differs from an endpoint in letter case alone",
		"/V1/items":           "differs from an endpoint in letter case alone",
		"/v1/getuser":         "differs from an endpoint in letter case alone",
		"/PUBLIC/x":           "differs from an endpoint in letter case alone",
		"/v1/items/":          "ends in a slash",
		"/public/":            "ends in a slash",
		"/public":             "ends where {name...} of an endpoint begins", // Spring serves it by that
		"/public?x=/../y":     "ends where {name...} of an endpoint begins",
		"/Public":             "ends where {name...} of an endpoint begins",
		"/public/x/":          "ends in a slash",
		"/nothing/":           "ends in a slash",
		"/orders":             "lacks the slash at the end",
		"/orders/7":           "lacks the slash at the end",
		"/Orders/":            "ends in a slash",
		"//v1/items":          "holds repeated slashes",
		"/v1/./items":         "holds a . or .. segment",
		"/v1/x/../items":      "holds a . or .. segment",
		"/v1/x/%2e%2e/items":  "holds an escape of a letter, a digit or one of - . _ ~",
		"/v1/items/;x":        "holds ;parameters",
		"/v1/items/search%3b": "holds ;parameters",
		"/v1/items/%73earch":  "holds an escape of a letter, a digit or one of - . _ ~",
		"/v1/items/a%2Fb":     `holds an encoded / or \`,
		"/v1/items/%C0%AF":    "holds escapes that are not UTF-8",
	} {
		m := table.Match("GET", target)
		got := m.Status.String()
		switch m.Status {
		case endpoint.Known:
			got = "GET " + table.Template(m.ID).Path()
			if want == got+"/" {
				got += "/"
			}
		case endpoint.Invalid:
			got = m.Fault.String()
		}
		if got != want {
			t.Errorf("Match(GET, %q) = %s, want %s", target, got, want)
		}
	}
}

// TestSlashAsDeclared: under RefuseTrailingSlash a slash at the end stands where the template has it.
func TestSlashAsDeclared(t *testing.T) {
	p := endpoint.Profile{Refuse: endpoint.RefuseTrailingSlash}
	for _, tt := range []struct {
		templates []string
		target    string
		fault     endpoint.Fault
	}{
		{[]string{"GET /a"}, "/a", 0},
		{[]string{"GET /a"}, "/a/", endpoint.TrailingSlash},
		{[]string{"GET /a/"}, "/a/", 0},
		{[]string{"GET /a/"}, "/a", 0}, // nothing else could take it
		{[]string{"GET /a/", "GET /{x...}"}, "/a", endpoint.MissingSlash},
		{[]string{"GET /a/", "GET /{x}"}, "/a", endpoint.MissingSlash}, // which a router serves by the latter
		{[]string{"GET /a/", "GET /{x}"}, "/a/", 0},
		{[]string{"GET /a/", "POST /{x}", "GET /b/{x}", "GET /{x}/"}, "/a", 0},
		{[]string{"GET /a/", "GET /a", "GET /{x}"}, "/a", 0},
		{[]string{"GET /a/", "GET /a", "GET /{x...}"}, "/a", 0},
		{[]string{"GET /a/", "GET /a", "GET /{x...}"}, "/a/", 0},
		{[]string{"GET /a/", "GET /{x...}"}, "/b/", endpoint.TrailingSlash},
		{[]string{"GET /a/"}, "/b/", endpoint.TrailingSlash},
		{[]string{"GET /a/"}, "/", 0},
		{[]string{"GET /{x...}"}, "/", endpoint.EmptyTail}, // ServeMux serves it by that
		{[]string{"GET /{x...}", "GET /"}, "/", 0},
		{[]string{"GET /{x...}?a=b", "POST /"}, "/", endpoint.EmptyTail},
		{[]string{"POST /{x...}"}, "/", 0},
		{[]string{"GET /a/{x}/{y...}", "GET /a/{z}/{y...}?v=1"}, "/a/b", endpoint.EmptyTail},
	} {
		if m := table(t, p, tt.templates...).Match("GET", tt.target); m.Fault != tt.fault {
			t.Errorf("%q: Match(GET, %q) = %v, %v, want %v", tt.templates, tt.target, m.Status, m.Fault, tt.fault)
		}
		if allowed := table(t, p, tt.templates...).Allowed(tt.target); tt.fault == endpoint.TrailingSlash &&
			len(allowed) > 0 {
			t.Errorf("%q: Allowed(%q) = %q, want none", tt.templates, tt.target, allowed)
		}
	}
}

// TestEitherEnd: a template may stand for both, and one that ends in {name...} takes folders then. It does not take
// what another such template begins with: /b/ is what /b/{y...} takes, and /b is not.
func TestEitherEnd(t *testing.T) {
	var templates []endpoint.Template
	for _, text := range []string{"GET /a", "GET /files/{path...}", "GET /b/{y...}", "GET /{x...}", "GET /c"} {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		if text != "GET /c" {
			template = template.EitherEnd()
		}
		templates = append(templates, template)
	}
	table, err := endpoint.Compile(templates, endpoint.Profile{Refuse: endpoint.RefuseTrailingSlash})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"/a": "/a", "/a/": "/a", "/a/?x=1": "/a", "/c": "/c", "/c/": "ends in a slash",
		"/files/a": "/files/{path...}", "/files/a/": "/files/{path...}", "/files/a/b/?x=1": "/files/{path...}",
		"/b": "/{x...}", "/b/": "ends where {name...} of an endpoint begins", "/b/c/": "/b/{y...}", "/d/": "/{x...}",
	} {
		m := table.Match("GET", target)
		if got := table.Template(m.ID).Path(); m.Status == endpoint.Known && got != want ||
			m.Status != endpoint.Known && m.Fault.String() != want {
			t.Errorf("%s is %s %s, %v, want %s", target, m.Status, got, m.Fault, want)
		}
	}
}

// TestOtherCaseNeedsATable: what cannot be compiled without letter case is said, unless two
// templates differ in that alone.
func TestOtherCaseNeedsATable(t *testing.T) {
	var templates []endpoint.Template
	for i := range 80 { // 40 lengths of text in each of two places, which are one without letter case
		template, err := endpoint.ParseTemplate(fmt.Sprintf("GET /%c/%s{p}", "Aa"[i/40], strings.Repeat("x", i+1)))
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	if _, err := endpoint.Compile(templates, endpoint.Profile{}); err != nil {
		t.Fatal(err)
	}
	if _, err := endpoint.Compile(templates, endpoint.Strictest()); err == nil ||
		!strings.Contains(err.Error(), "other_case") {
		t.Errorf("Compile under other_case says %v, want why it cannot judge letter case", err)
	}
}

// TestOtherCaseWithAQuery: the query that only the endpoint in the other letter case reads makes it
// no less that endpoint.
func TestOtherCaseWithAQuery(t *testing.T) {
	table := table(t, endpoint.Strictest(), "GET /rpc", "GET /rpc?action=login")
	for _, target := range []string{"/rPc", "/rPc?]action", "/rPc?action=x&action=y", "/Rpc?action=%25zz",
		"/Rpc?a%00=b"} {
		if m := table.Match("GET", target); m.Status != endpoint.Invalid {
			t.Errorf("Match(GET, %q) = %s, want it invalid", target, describe(table, m))
		}
	}
}

// TestTemplatesThatDifferInCaseAlone: then no server behind ignores case, and all is read as it is written.
func TestTemplatesThatDifferInCaseAlone(t *testing.T) {
	table := table(t, endpoint.Strictest(), "GET /a/Users", "GET /a/users", "GET /a/{x}")
	for _, target := range []string{"/a/Users", "/a/users", "/a/USERS"} {
		if m := table.Match("GET", target); m.Status != endpoint.Known {
			t.Errorf("Match(GET, %q) = %v, %v, want known", target, m.Status, m.Fault)
		}
	}
}

// TestQueriesThatAreComparedUndecoded: nginx, HAProxy and Envoy do not decode a query before they compare it.
func TestQueriesThatAreComparedUndecoded(t *testing.T) {
	p := endpoint.Profile{Refuse: endpoint.RefuseUnreservedEscapes}
	table := table(t, p, "GET /rpc", "GET /rpc?action=login", "GET /s?q[a]=x%20y", "GET /s")
	for target, want := range map[string]string{
		"/rpc?action=login": "GET /rpc?action=login", "/rpc?action=other": "GET /rpc",
		"/rpc?action=a+b%20c": "GET /rpc", "/rpc?x=%61+": "GET /rpc",
		"/rpc?%61ction=login": "", "/rpc?action=log%69n": "", "/rpc?%61ction=other": "",
		"/s?q[a]=x%20y": "GET /s?q[a]=x%20y", "/s?q[a]=x+y": "", "/s?q%5Ba%5D=x%20y": "", "/s?q[a]=%78": "GET /s",
	} {
		if m := table.Match("GET", target); table.Template(m.ID).String() != want ||
			(want == "") != (m.Fault == endpoint.AmbiguousQuery) {
			t.Errorf("Match(GET, %q) = %s, want %q", target, describe(table, m), want)
		}
	}
}
