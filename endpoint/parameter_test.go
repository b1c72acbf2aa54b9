package endpoint_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
)

var parameterTemplates = []string{
	"GET /c/{customer}",
	"GET /c/{customer}/orders/{order}",
	"GET /c/{customer}.json",
	"GET /v{version}/c/{customer}:copy",
	"GET /compare/{from}...{to}",
	"GET /files/{path...}",
	"GET /s/%3A{name}x",
	"GET /",
}

func TestParameter(t *testing.T) {
	table := compileParameters(t, endpoint.Profile{}, parameterTemplates...)
	for _, c := range []struct{ target, name, want string }{
		{"/c/42", "customer", "42"},
		{"/c/42?customer=7", "customer", "42"},
		{"/c/%34%32", "customer", "42"},
		{"/c//x/../42/", "customer", "42"},
		{"/c/0042", "customer", "42"},
		{"/c/000", "customer", "0"},
		{"/c/0x42", "customer", "0x42"},
		{"/c/a%20b", "customer", "a%20b"},
		{"/c/A", "customer", "A"},
		{"/c/0B8C9f2e-1111-4222-8333-9AaBbCcDdEeF", "customer", "0b8c9f2e-1111-4222-8333-9aabbccddeef"},
		{"/c/0B8C9f2e-1111-4222-8333-9AaBbCcDdEeg", "customer", "0B8C9f2e-1111-4222-8333-9AaBbCcDdEeg"},
		{"/c/7/orders/8", "customer", "7"},
		{"/c/7/orders/8", "order", "8"},
		{"/c/7/orders/8", "orders", ""},
		{"/c/7.json", "customer", "7"},
		{"/v2/c/7:copy", "customer", "7"},
		{"/v2/c/7%3Acopy", "version", "2"},
		{"/compare/a...b", "from", ""},
		{"/compare/a...b", "to", ""},
		{"/files/a/b/", "path", "a/b"},
		{"/files/a", "path", "a"},
		{"/s/:abx", "name", "ab"},
		{"/", "customer", ""},
		{"/nothing", "customer", ""},
		{"/c/42", "", ""},
	} {
		got, ok := table.Parameter(table.Match("GET", c.target).ID, c.target, c.name)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("Parameter(%q, %q) = %q, %v, want %q", c.target, c.name, got, ok, c.want)
		}
	}
	folded := compileParameters(t, endpoint.Profile{CaseInsensitive: true}, parameterTemplates...)
	if got, _ := folded.Parameter(folded.Match("GET", "/C/Acme").ID, "/C/Acme", "customer"); got != "acme" {
		t.Errorf("without letter case, the parameter is %q, want acme", got)
	}
	want := map[string]string{
		"GET /c/{customer}/orders/{order}": "customer order", "GET /compare/{from}...{to}": "",
		"GET /files/{path...}":              "path",
		"GET /v{version}/c/{customer}:copy": "version customer", "GET /": "",
	}
	for id := range want {
		template, err := endpoint.ParseTemplate(id)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(slices.Collect(template.Parameters()), " "); got != want[id] {
			t.Errorf("Parameters of %q are %q, want %q", id, got, want[id])
		}
	}
}

// TestParameterOfAllSpellings writes one path in many ways: the value is that which a regular expression finds in the
// decoded path, however it is written.
func TestParameterOfAllSpellings(t *testing.T) {
	table := compileParameters(t, endpoint.Profile{}, "GET /c/{customer}/o/{order}.json")
	slow := regexp.MustCompile(`^/c/([^/]+)/o/([^/]+)\.json$`)
	random := rand.New(rand.NewPCG(16, 1))
	values := []string{"42", "1", "ab", "a.json", "~-_", "x y", "ü", "0", "a{b}", "a=b&c", "{order}", "%"}
	for range 20_000 {
		customer, order := values[random.IntN(len(values))], values[random.IntN(len(values))]
		path := "/c/" + customer + "/o/" + order + ".json"
		var spelled strings.Builder
		for i := range len(path) {
			switch c := path[i]; {
			case c == '/' && random.IntN(8) == 0:
				spelled.WriteString([]string{"//", "/./", "/x/../"}[random.IntN(3)])
			case c == '/':
				spelled.WriteByte('/')
			case random.IntN(4) == 0 || c <= ' ' || c >= 0x7f || strings.IndexByte("%?#{}", c) >= 0:
				fmt.Fprintf(&spelled, []string{"%%%02x", "%%%02X"}[random.IntN(2)], c)
			default:
				spelled.WriteByte(c)
			}
		}
		target := spelled.String()
		m := table.Match("GET", target)
		if m.Status == endpoint.Invalid {
			continue // as %25 before two hexadecimal digits
		}
		decoded := slow.FindStringSubmatch(path)
		for n, name := range []string{"customer", "order"} {
			got, ok := table.Parameter(m.ID, target, name)
			text, err := url.PathUnescape(got)
			if !ok || err != nil || text != decoded[1+n] {
				t.Fatalf("Parameter(%q, %q) = %q, %v, want %q", target, name, got, ok, decoded[1+n])
			}
		}
	}
}

func TestParameterAllocatesNothing(t *testing.T) {
	table := compileParameters(t, endpoint.Profile{}, parameterTemplates...)
	id := table.Match("GET", "/c/7/orders/8").ID
	if n := testing.AllocsPerRun(100, func() { table.Parameter(id, "/c/7/orders/8?x", "order") }); n != 0 {
		t.Errorf("Parameter allocates %v times, want 0", n)
	}
}

// FuzzParameter: whatever matches and is written anew in its canonical form has the same values.
func FuzzParameter(f *testing.F) {
	for _, target := range []string{"/c/42", "/c//%34%32/", "/c/7.json", "/v2/c/7:copy", "/files/a%2fb", "/s/:abx",
		"/c/0B8C9f2e-1111-4222-8333-9AaBbCcDdEeF"} {
		f.Add(target, false)
	}
	tables := map[bool]*endpoint.Table{
		false: compileParameters(f, endpoint.Profile{}, parameterTemplates...),
		true: compileParameters(f, endpoint.Profile{
			CaseInsensitive: true,
			EncodedSlash:    endpoint.KeepEncodedSlash,
			Params:          endpoint.StripParams,
		}, parameterTemplates...),
	}
	f.Fuzz(func(t *testing.T, target string, other bool) {
		table := tables[other]
		m := table.Match("GET", target)
		canonical, fault := table.Canonical(target)
		if m.Status != endpoint.Known || fault != endpoint.NoFault || table.Match("GET", canonical) != m {
			return // beside a kept %2F some canonical forms are no targets
		}
		for name := range table.Template(m.ID).Parameters() {
			got, ok := table.Parameter(m.ID, target, name)
			again, _ := table.Parameter(m.ID, canonical, name)
			if !ok || got == "" || got != again || got != endpoint.ParameterValue(got) {
				t.Errorf("Parameter(%q, %q) = %q, %v, and of its canonical form %q %q", target, name, got, ok,
					canonical, again)
			}
		}
	})
}

func compileParameters(t testing.TB, p endpoint.Profile, texts ...string) *endpoint.Table {
	t.Helper()
	var templates []endpoint.Template
	for _, text := range texts {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	table, err := endpoint.Compile(templates, p)
	if err != nil {
		t.Fatal(err)
	}
	return table
}
