package endpoint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
)

func table(t testing.TB, p endpoint.Profile, texts ...string) *endpoint.Table {
	t.Helper()
	var templates []endpoint.Template
	for _, text := range texts {
		templates = append(templates, parse(t, text))
	}
	return compile(t, p, templates...)
}

func TestMatch(t *testing.T) {
	api := table(t, endpoint.Profile{},
		"GET /",
		"GET /users", "POST /users",
		"GET /users/{id}", "PUT /users/{id}",
		"GET /users/me", "DELETE /users/me",
		"HEAD /health", "GET /health",
		"GET /a/b/c", "GET /{x}/b/d",
		"GET /users/{id}.json", "GET /users/v{id}.json", "GET /users/u{id}",
		"POST /v1/jobs/{id}:cancel", "POST /v1/jobs/{id}:undelete", "POST /v1/jobs:purge",
		"GET /files/{path...}", "GET /files/{dir}/index", "GET /files/readme",
		"GET /caf%C3%A9/{x}", "GET /odd/{x}3F",
		"GET /compare/{from}...{to}", "GET /compare/{basehead}", "GET /tags/v{major}.{minor}.json",
		"GET /escapes/{x}", "GET /escapes/{x}20{y}", "GET /secrets/%3Acreate", "GET /secrets/{id}",
		"GET /secrets/%3A{id}:x",
	)
	for _, tt := range []struct{ method, target, want string }{
		{"GET", "/", "GET /"},
		{"GET", "/users", "GET /users"},
		{"GET", "/users/", "GET /users"},
		{"POST", "/users?x=1", "POST /users"},
		{"GET", "/users/7", "GET /users/{id}"},
		{"GET", "//users/./%37/", "GET /users/{id}"},

		// Several parameters in a segment, with text between them.
		{"GET", "/compare/main...topic", "GET /compare/{from}...{to}"},
		{"GET", "/compare/v1.0....v1.1", "GET /compare/{from}...{to}"},
		{"GET", "/compare/main", "GET /compare/{basehead}"},
		{"GET", "/compare/main...", "GET /compare/{basehead}"},
		{"GET", "/compare/...topic", "GET /compare/{basehead}"},
		{"GET", "/escapes/a%2520b", "invalid: is percent-encoded twice"},
		{"GET", "/escapes/a%20b", "GET /escapes/{x}"},
		{"GET", "/escapes/a20b", "GET /escapes/{x}20{y}"},
		{"GET", "/escapes/a%20320b", "GET /escapes/{x}20{y}"},
		{"GET", "/secrets/:create", "GET /secrets/%3Acreate"},
		{"GET", "/secrets/%3acreate", "GET /secrets/%3Acreate"},
		{"GET", "/secrets/%3a7:x", "GET /secrets/%3A{id}:x"},
		{"GET", "/secrets/create", "GET /secrets/{id}"},
		{"GET", "/tags/v1.2.json", "GET /tags/v{major}.{minor}.json"},
		{"GET", "/tags/1.2.json", "unknown path"},

		// The most specific template that has the method.
		{"GET", "/users/me", "GET /users/me"},
		{"PUT", "/users/me", "PUT /users/{id}"},
		{"DELETE", "/users/me", "DELETE /users/me"},

		// Methods.
		{"HEAD", "/health", "HEAD /health"},
		{"HEAD", "/users", "GET /users"},
		{"HEAD", "/users/me", "GET /users/me"},
		{"DELETE", "/users", "unknown method"},
		{"DELETE", "/users/7", "unknown method"},
		{"OPTIONS", "/users", "unknown method"},
		{"get", "/users", "unknown method"},
		{"", "/users", "invalid: comes with a method that is not a token"},
		{"BREW", "/users", "unknown method"},
		{"HEAD", "/v1/jobs:purge", "unknown method"},

		// A literal branch that ends leads on where a parameter would have.
		{"GET", "/a/b/c", "GET /a/b/c"},
		{"GET", "/a/b/d", "GET /{x}/b/d"},
		{"GET", "/a/b/e", "unknown path"},

		// Text around parameters: more of it first.
		{"GET", "/users/7.json", "GET /users/{id}.json"},
		{"GET", "/users/v7.json", "GET /users/v{id}.json"},
		{"GET", "/users/u7.json", "GET /users/{id}.json"},
		{"GET", "/users/u7", "GET /users/u{id}"},
		{"GET", "/users/u", "GET /users/{id}"},
		{"GET", "/users/.json", "GET /users/{id}"},
		{"GET", "/users/v.json", "GET /users/{id}.json"},
		{"POST", "/v1/jobs/7:cancel", "POST /v1/jobs/{id}:cancel"},
		{"POST", "/v1/jobs/7%3acancel", "POST /v1/jobs/{id}:cancel"},
		{"POST", "/v1/jobs/7:undelete", "POST /v1/jobs/{id}:undelete"},
		{"POST", "/v1/jobs/:undelete", "unknown path"},
		{"POST", "/v1/jobs/7:purge", "unknown path"},
		{"POST", "/v1/jobs:purge", "POST /v1/jobs:purge"},

		// Tails take one segment or more.
		{"GET", "/files", "unknown path"},
		{"GET", "/files/", "unknown path"},
		{"GET", "/files/a", "GET /files/{path...}"},
		{"GET", "/files/readme", "GET /files/readme"},
		{"GET", "/files/readme/x", "GET /files/{path...}"},
		{"GET", "/files/a/b/c/d", "GET /files/{path...}"},
		{"GET", "/files/a/index", "GET /files/{dir}/index"},
		{"GET", "/files/a/index/b", "GET /files/{path...}"},

		// Decoded text.
		{"GET", "/caf%c3%a9/%2B", "GET /caf%C3%A9/{x}"},
		{"GET", "/odd/a3F", "GET /odd/{x}3F"},
		{"GET", "/odd/a%3F", "unknown path"},
		{"GET", "/odd/%3F3F", "GET /odd/{x}3F"},

		// No guesses.
		{"GET", "/users/7/x", "unknown path"},
		{"GET", "/Users", "unknown path"},
		{"GET", "/user", "unknown path"},
		{"GET", "/userss", "unknown path"},
		{"GET", "/users%2F7", "invalid: holds an encoded / or \\"},
		{"GET", "users", "invalid: does not start with /"},
		{"CONNECT", "/users/7", "invalid: is that of CONNECT, which opens a tunnel and has no endpoint"},
		{"CONNECT", "/nothing", "invalid: is that of CONNECT, which opens a tunnel and has no endpoint"},
		{"GET /v1?", "/users/7", "invalid: comes with a method that is not a token"},
		{"G\xc3\x89T", "/nothing", "invalid: comes with a method that is not a token"},
		{"BREW", "/users/%zz", "invalid: holds a % without two hexadecimal digits"},
	} {
		if got := describe(api, api.Match(tt.method, tt.target)); got != tt.want {
			t.Errorf("Match(%q, %q) = %s, want %s", tt.method, tt.target, got, tt.want)
		}
	}
}

func describe(table *endpoint.Table, m endpoint.Match) string {
	switch m.Status {
	case endpoint.Known:
		return table.Template(m.ID).String()
	case endpoint.Invalid:
		return "invalid: " + m.Fault.String()
	}
	return m.Status.String()
}

func TestMatchUnderOptions(t *testing.T) {
	folded := table(t, endpoint.Profile{CaseInsensitive: true}, "GET /pet/findByStatus", "GET /pet/{id}.JSON",
		"GET /caf%C3%A9")
	for target, want := range map[string]string{
		"/PET/FINDBYSTATUS":  "GET /pet/findByStatus",
		"/pet/findbystatus":  "GET /pet/findByStatus",
		"/pet/%46indbystatu": "unknown path",
		"/pet/X.Json":        "GET /pet/{id}.JSON",
		"/CAF%c3%a9":         "GET /caf%C3%A9",
	} {
		if got := describe(folded, folded.Match("GET", target)); got != want {
			t.Errorf("case-insensitive: Match(GET, %q) = %s, want %s", target, got, want)
		}
	}
	if path, fault := folded.Canonical("/A"); path != "/a" || fault != 0 {
		t.Errorf("Canonical(/A) = %q, %v, want /a", path, fault)
	}
	kept := table(t, endpoint.Profile{Params: endpoint.KeepParams, EncodedSlash: endpoint.DecodeEncodedSlash},
		"GET /a;v=1/{x}", "GET /a/{x}")
	for target, want := range map[string]string{
		"/a;v=1/b":  "GET /a;v=1/{x}",
		"/a/b;v=1":  "GET /a/{x}",
		"/a%2fb":    "GET /a/{x}",
		"/a%2fb%2f": "GET /a/{x}",
		"/a;v=2/b":  "unknown path",
	} {
		if got := describe(kept, kept.Match("GET", target)); got != want {
			t.Errorf("parameters kept: Match(GET, %q) = %s, want %s", target, got, want)
		}
	}
}

func TestCompileSaysWhatIsWrong(t *testing.T) {
	strict, fold := endpoint.Profile{}, endpoint.Profile{CaseInsensitive: true}
	for _, tt := range []struct {
		profile   endpoint.Profile
		templates []string
		want      []string // one line for each problem
	}{
		{strict, []string{"GET /a/{x}", "GET /a/{x}", "GET /a/{x}/"}, nil},
		{strict, []string{"GET /a/{x}", "POST /a/{y}"}, nil},
		{strict, []string{"GET /a/{x}", "HEAD /a/{y}"}, nil},
		{strict, []string{"GET /a/{x}", "GET /a/{y}"}, []string{
			`templates "GET /a/{x}" and "GET /a/{y}" both match /a/x with equal specificity: remove one, or make one more specific`}},
		{strict, []string{"GET /a/{x...}", "GET /a/{y...}", "GET /b/{x}", "GET /b/{y}"}, []string{
			`templates "GET /a/{x...}" and "GET /a/{y...}" both match /a/x with equal specificity: remove one, or make one more specific`,
			`templates "GET /b/{x}" and "GET /b/{y}" both match /b/x with equal specificity: remove one, or make one more specific`}},
		{strict, []string{"GET /a/v{x}", "GET /a/{x}z"}, []string{
			`templates "GET /a/v{x}" and "GET /a/{x}z" both match /a/vxz with equal specificity: remove one, or make one more specific`}},
		{strict, []string{"GET /a/v{x}", "GET /a/w{x}", "GET /a/{x}yz", "GET /a/{x}", "GET /a/vw"}, nil},
		{strict, []string{"GET /a/ab{x}", "GET /a/a{x}c"}, []string{
			`templates "GET /a/ab{x}" and "GET /a/a{x}c" both match /a/abxc with equal specificity: remove one, or make one more specific`}},
		{strict, []string{"GET /{x}%3F", "GET /a{x}3F", "GET /b{x}%3F"}, nil},
		{strict, []string{"GET /A", "GET /a"}, nil},
		{fold, []string{"GET /A", "GET /a"}, []string{
			`templates "GET /A" and "GET /a" both match /a with equal specificity: remove one, or make one more specific`}},
		{strict, []string{"GET /a;v=1"}, []string{
			`template "GET /a;v=1": path holds ;parameters, so no target can match it`}},
		{strict, []string{"GET /%2541", "GET /b;c/{x}"}, []string{
			`template "GET /%2541": path is percent-encoded twice, so no target can match it`,
			`template "GET /b;c/{x}": path holds ;parameters, so no target can match it`}},
	} {
		var templates []endpoint.Template
		for _, text := range tt.templates {
			templates = append(templates, parse(t, text))
		}
		_, err := endpoint.Compile(templates, tt.profile)
		if want := strings.Join(tt.want, "\n"); fmt.Sprint(err) != want && !(err == nil && tt.want == nil) {
			t.Errorf("Compile(%q) = %v, want\n%s", tt.templates, err, want)
		}
	}
	if _, err := endpoint.Compile(make([]endpoint.Template, 1), strict); err == nil ||
		err.Error() != "template is empty, want one made by ParseTemplate" {
		t.Errorf("Compile of the zero Template = %v, want an error that says so", err)
	}
}

func TestCompileHasBounds(t *testing.T) {
	var methods, lengths, combinations []endpoint.Template
	for i := range 65 {
		methods = append(methods, parse(t, fmt.Sprintf("M%d /", i)))
	}
	for i := range endpoint.MaxProbes + 1 {
		lengths = append(lengths, parse(t, fmt.Sprintf("GET /{x}.%s", strings.Repeat("a", i))))
	}
	const n = 20 // literal at one of n places, parameters elsewhere: 2^n combinations
	for i := range n {
		segments := slices.Repeat([]string{"{p}"}, n)
		segments[i] = "x"
		combinations = append(combinations, parse(t, "GET /"+strings.Join(segments, "/")))
	}
	for _, tt := range []struct {
		templates []endpoint.Template
		want      string
	}{
		{methods, "templates have 65 methods, want at most 64"},
		{lengths, `parameters of "GET /{x}." and others have text of 65 different lengths around them in one place, want at most 64`},
		{combinations,
			"templates overlap so widely that matching them in one pass takes more than 29696 states and edges: "},
	} {
		if _, err := endpoint.Compile(tt.templates, endpoint.Profile{}); err == nil ||
			!strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("Compile(%d templates) = %v, want %s", len(tt.templates), err, tt.want)
		}
	}
	within := compile(t, endpoint.Profile{}, combinations[:9]...)
	if m := within.Match("GET", strings.Repeat("/x", n)); within.Template(m.ID) != combinations[0] {
		t.Errorf("Match = %s, want %s", describe(within, m), combinations[0])
	}
	compile(t, endpoint.Profile{}, lengths[:endpoint.MaxProbes]...)
	compile(t, endpoint.Profile{}, methods[:64]...)
}

func TestStatesOfRealAPIs(t *testing.T) {
	templates := operations(t, "petstore", "stripe", "digitalocean")
	all := compile(t, endpoint.Profile{}, templates...)
	segments := 0
	for _, template := range templates {
		segments += strings.Count(template.Path(), "/")
	}
	if states, edges := all.States(); states+edges > segments {
		t.Errorf("%d states and %d edges for %d segments, want no more", states, edges, segments)
	}
}

func TestEmptyTable(t *testing.T) {
	empty := compile(t, endpoint.Profile{})
	for _, target := range []string{"/", "/a/b"} {
		if m := empty.Match("GET", target); m != (endpoint.Match{}) {
			t.Errorf("Match(GET, %q) = %+v, want the zero Match", target, m)
		}
	}
	if m := empty.Match("GET", "x"); m.Status != endpoint.Invalid {
		t.Errorf("Match(GET, x) = %+v, want an invalid target", m)
	}
	if empty.Len() != 0 || empty.Template(1) != (endpoint.Template{}) || empty.Allowed("/") != nil {
		t.Errorf("an empty table has Len %d, Template(1) %q, Allowed %q", empty.Len(), empty.Template(1),
			empty.Allowed("/"))
	}
}

func TestAllowed(t *testing.T) {
	api := table(t, endpoint.Profile{}, "PUT /a", "GET /a", "POST /{x}", "DELETE /b/{x...}")
	for target, want := range map[string][]string{
		"/a":     {"GET", "HEAD", "POST", "PUT"},
		"/%61/":  {"GET", "HEAD", "POST", "PUT"},
		"/z":     {"POST"},
		"/b/c/d": {"DELETE"},
		"/z/z":   nil,
		"/%zz":   nil,
	} {
		if got := api.Allowed(target); !slices.Equal(got, want) {
			t.Errorf("Allowed(%q) = %q, want %q", target, got, want)
		}
	}
}

func TestLookupIgnoresNames(t *testing.T) {
	api := table(t, endpoint.Profile{}, "GET /a/{x}", "GET /a/{x...}", "GET /A/{x}.json")
	for text, want := range map[string]string{
		"GET /a/{id}":        "GET /a/{x}",
		"GET /a/{path...}":   "GET /a/{x...}",
		"GET /A/{sid}.json/": "GET /A/{x}.json",
		"GET /a/{sid}.json":  "",
		"POST /a/{id}":       "",
		"GET /a/x":           "",
	} {
		id, ok := api.Lookup(parse(t, text))
		if got := api.Template(id).String(); got != want || ok != (want != "") {
			t.Errorf("Lookup(%q) = %q, %v, want %q", text, got, ok, want)
		}
	}
	folded := table(t, endpoint.Profile{CaseInsensitive: true}, "GET /A/{X}")
	if _, ok := folded.Lookup(parse(t, "GET /a/{x}")); !ok {
		t.Error("case-insensitive: Lookup(GET /a/{x}) = false, want GET /A/{X}")
	}
	if _, ok := api.Lookup(endpoint.Template{}); ok {
		t.Error("Lookup of the zero Template = true, want false")
	}
}

func TestClosest(t *testing.T) {
	api := compile(t, endpoint.Profile{}, operations(t, "stripe")...)
	for text, want := range map[string]string{
		"GET /v1/custmers":              "GET /v1/customers",
		"GET /v1/customer/{id}":         "GET /v1/customers/{customer}",
		"PATCH /v1/balance":             "GET /v1/balance",
		"GET /v1/customers/{other}":     "GET /v1/customers/{customer}",
		"GET /nothing/like/it/at/all/x": "",
	} {
		closest, ok := api.Closest(parse(t, text))
		if closest.String() != want || ok != (want != "") {
			t.Errorf("Closest(%q) = %q, %v, want %q", text, closest, ok, want)
		}
	}
	if closest, ok := api.Closest(endpoint.Template{}); ok {
		t.Errorf("Closest of the zero Template = %q, want none", closest)
	}
}

func TestAllIsInOrderOfIDs(t *testing.T) {
	api := compile(t, endpoint.Profile{}, operations(t, "petstore")...)
	next := endpoint.ID(1)
	for id, template := range api.All() {
		if id != next || api.Template(id) != template {
			t.Errorf("All yields %d %q, want %d %q", id, template, next, api.Template(next))
		}
		if next++; next == 5 {
			break
		}
	}
}

func TestStatusSpeaks(t *testing.T) {
	for status, want := range map[endpoint.Status]string{
		endpoint.Known: "known", endpoint.UnknownMethod: "unknown method", endpoint.UnknownPath: "unknown path",
		endpoint.Invalid: "invalid",
	} {
		if got := status.String(); got != want {
			t.Errorf("Status(%d).String() = %q, want %q", status, got, want)
		}
	}
}

// deep returns templates and a path that a backtracking matcher would try 2^n ways, and that matches none.
func deep(t testing.TB) (*endpoint.Table, string) {
	const n = 12
	var texts []string
	for i := range 8 {
		segments := slices.Repeat([]string{"{p}"}, n)
		segments[i] = "x"
		texts = append(texts, "GET /"+strings.Join(segments, "/")+"/end")
	}
	return table(t, endpoint.Profile{}, texts...), strings.Repeat("/x", n) + "/no"
}

func TestNoMatchTakesOneLookASegment(t *testing.T) {
	templates := operations(t, "petstore", "stripe", "digitalocean")
	api := compile(t, endpoint.Profile{}, templates...)
	hard, path := deep(t)
	for _, tt := range []struct {
		table *endpoint.Table
		path  string
	}{
		{hard, path},
		{hard, strings.Repeat("/x", 1000)},
		{api, "/v1/customers/x/sources/y/verify/no"},
		{api, strings.Repeat("/v1", 1000)},
		{api, "/v2/apps/x/deployments/y/components/z/logs/no"},
	} {
		if m := tt.table.Match("GET", tt.path); m.Status != endpoint.UnknownPath {
			t.Errorf("Match(GET, %.60q) = %s, want an unknown path", tt.path, describe(tt.table, m))
		}
		if segments, looks := tt.table.Work(tt.path); looks != segments || segments > strings.Count(tt.path, "/") {
			t.Errorf("%.60q takes %d looks for %d segments, want as many", tt.path, looks, segments)
		}
	}
	verbs := table(t, endpoint.Profile{}, "POST /jobs/{x}:cancel", "POST /jobs/{x}:start", "POST /jobs/{x}:stop",
		"POST /jobs/{x}:retry")
	if segments, looks := verbs.Work("/jobs/" + strings.Repeat("a", 500)); segments != 2 || looks != 5 {
		t.Errorf("no verb takes %d looks for %d segments, want 5 for 2: :start and :retry have one length",
			looks, segments)
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	api := compile(t, endpoint.Profile{}, append(operations(t, "stripe"), parse(t, "GET /rpc?action=login"),
		parse(t, "POST /rpc?action[x]={y}"), parse(t, "GET /v1/rpc?a=1"))...)
	for name, target := range map[string]string{
		"clean":     "/v1/customers/cus_123/sources?limit=3",
		"long":      "/v1/customers/" + strings.Repeat("x", 4000),
		"dirty":     "/v1//customers/%63us_123/./sources/?limit=3",
		"dirty 512": "/v1//customers/" + strings.Repeat("x", 512-15),
		"no match":  "/wp-admin//%2e%2e/x",
		"invalid":   "/v1/%zz",
		"query":     "/rpc?x=1&%61ction=log%69n&" + strings.Repeat("y=%20&", 100),
		"no query":  "/v1//rpc/../rpc",
		"ambiguous": "/rpc?action[" + strings.Repeat("y", 100) + "]=1",
	} {
		if n := testing.AllocsPerRun(100, func() { api.Match("GET", target) }); n != 0 {
			t.Errorf("%s: Match allocates %v times, want 0", name, n)
		}
	}
}
