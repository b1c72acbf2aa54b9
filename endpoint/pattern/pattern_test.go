package pattern_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/endpoint/pattern"
)

func routes(method string, patterns ...string) (all []pattern.Route) {
	for _, p := range patterns {
		all = append(all, pattern.Route{Method: method, Pattern: p})
	}
	return all
}

func TestTemplates(t *testing.T) {
	for _, tt := range []struct {
		dialect  pattern.Dialect
		patterns []string
		want     []string
	}{
		{pattern.ServeMux, []string{"GET /items/{id}", "POST /items", "GET /files/{path...}", "GET /{$}",
			"GET /old/{$}"},
			[]string{"GET /items/{id}", "POST /items", "GET /files/{path...}", "GET /files", "GET /", "GET /old"}},
		{pattern.ServeMux, []string{"GET api.example.com/items", "POST  api.example.com/items"},
			[]string{"GET /items", "POST /items"}},
		{pattern.ServeMux, []string{"GET /static/", "GET /{x}"}, []string{"GET /static/{rest...}", "GET /{x}"}},
		{pattern.ServeMux, []string{"GET /caf\u00e9", "GET /a%2fb/%7Bx%7D", "GET /%41/100%"},
			[]string{"GET /caf%C3%A9", "GET /a%2Fb/%7Bx%7D", "GET /A/100%25"}},
		{pattern.Chi, []string{"/", "/items/{id:[0-9]{1,3}}", "/files/*", "/v{n}", "/by/{a}-{b}"},
			[]string{"GET /", "GET /items/{id}", "GET /files/{rest...}", "GET /files", "GET /v{n}", "GET /by/{a-b}"}},
		{pattern.Chi, []string{"/{id:[0-9]+}", "/{slug:[a-z]+}", "/new"}, []string{"GET /{id}", "GET /new"}},
		{pattern.Chi, []string{`/{path:a/b|c}/x`}, []string{"GET /{path}/x"}},
		{pattern.Fiber, []string{"/items/new", "/items/:id", "/files/*", "/more/+"}, []string{"GET /items/new",
			"GET /items/{id}", "GET /files/{rest...}", "GET /files", "GET /more/{rest...}", "GET /more"}},
		{pattern.Gin, []string{"/items/:id", "/files/*path", "/user_:name/", "/x/:id.json"},
			[]string{"GET /items/{id}", "GET /files/{path...}", "GET /files", "GET /user_{name}", "GET /x/{id.json}"}},
		{pattern.Echo, []string{"/items/:id", "/files/*", "/users/:id", "/users/:id/posts"},
			[]string{"GET /items/{id...}", "GET /files/{rest...}", "GET /files", "GET /users/{id}",
				"GET /users/{id}/posts"}},
		{pattern.Echo, []string{"/items/:id/"}, []string{"GET /items/{id}"}},
	} {
		method := "GET"
		if tt.dialect == pattern.ServeMux {
			method = ""
		}
		templates, err := tt.dialect.Templates(routes(method, tt.patterns...)...)
		if err != nil {
			t.Errorf("%v.Templates(%q): %v", tt.dialect, tt.patterns, err)
			continue
		}
		var got []string
		for _, template := range templates {
			got = append(got, template.String())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v.Templates(%q) = %q, want %q", tt.dialect, tt.patterns, got, tt.want)
		}
		if _, err := endpoint.Compile(templates, tt.dialect.Profile()); err != nil {
			t.Errorf("Compile of %v %q: %v", tt.dialect, tt.patterns, err)
		}
	}
	every, err := pattern.ServeMux.Templates(pattern.Route{Pattern: "/health"})
	if err != nil || len(every) != 8 {
		t.Errorf("a pattern without a method = %v, %v, want eight templates", every, err)
	}
}

func TestTemplatesSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		dialect  pattern.Dialect
		patterns []string
		want     string
	}{
		{pattern.ServeMux, []string{"GET a.com/x", "GET b.com/y"},
			`servemux patterns "GET a.com/x" and "GET b.com/y" differ in their hosts "a.com" and "b.com", want one`},
		{pattern.ServeMux, []string{"GET /a{x}"}, `servemux pattern "GET /a{x}": segment is "a{x}", want {name} alone`},
		{pattern.ServeMux, []string{"GET /{x...}/b"}, `"{x...}" stands before the end, want it last`},
		{pattern.ServeMux, []string{"GET /a//b"}, `it holds an empty segment, want single slashes`},
		{pattern.ServeMux, []string{"GET"}, `path is "GET", want one that starts with /`},
		{pattern.ServeMux, []string{"GET /a/../b"}, `segment is "..", which no target keeps`},
		{pattern.ServeMux, []string{"get /a"}, `method is "get", want "GET": methods are case-sensitive`},
		{pattern.Chi, []string{"/a/{x:.+}.json"},
			`chi pattern "/a/{x:.+}.json": parameter "{x:.+}" has an expression, and text after it, want none: chi lets it take slashes then`},
		{pattern.Chi, []string{"/a/{x"}, `its braces do not match, want {name}`},
		{pattern.Chi, []string{"/a*"}, `segment is "a*", want * alone`},
		{pattern.Chi, []string{"/*/b"}, `"*" stands before the end, want it last`},
		{pattern.Chi, []string{"/{}"}, `segment is "{}", want a name in its braces`},
		{pattern.Chi, []string{"/caf\u00e9"}, `want only what needs no escape: chi compares the escapes of a client`},
		{pattern.Chi, []string{"/{id:[0-9]+}/x", "/*"},
			`chi pattern "/{id:[0-9]+}/x": a path may match its template "/{id}/x" although the router refuses it and serves "/*": make them differ in a segment of plain text`},
		{pattern.Chi, []string{"/{id}.json", "/{id}"},
			`chi pattern "/{id}.json": a path may match its template "/{id}.json" although the router refuses it and serves "/{id}"`},
		{pattern.Chi, []string{"/@me", "/{id}"},
			`chi pattern "/@me": a path may match its template "/@me" although the router refuses it and serves "/{id}"`},
		{pattern.Fiber, []string{"/items/:id", "/items/new"},
			`fiber pattern "/items/new": "/items/:id" stands before it, and serves paths of both: register the more specific one first`},
		{pattern.Fiber, []string{"/items/:id", "/Items/:id"},
			`fiber pattern "/Items/:id": it differs from "/items/:id", which stands before it, in letter case, want another path`},
		{pattern.Fiber, []string{"/items/:id?"}, `segment is ":id?", want :name alone`},
		{pattern.Fiber, []string{"/a b"},
			`segment is "a b", want letters, digits and - . _ ~ alone, :name, or * or + at the end`},
		{pattern.Gin, []string{"/a/:"}, `gin pattern "/a/:": segment is ":", want a name after the colon`},
		{pattern.Gin, []string{"/a/*"}, `segment is "*", want a name after it`},
		{pattern.Gin, []string{"/a/:x:y"}, `segment is ":x:y", want one parameter in it`},
		{pattern.Gin, []string{`/a/b\:c`}, `want no \`},
		{pattern.Gin, []string{"/a/b*c"}, `segment is "b*c", want * at its start`},
		{pattern.Echo, []string{"/a/b:x"},
			`echo pattern "/a/b:x": its parameter takes slashes too, because no route goes on behind it`},
		{pattern.Echo, []string{"/*/b"}, `"*" stands before the end, want it last`},
		{pattern.Echo, []string{"items"}, `path is "items", want one that starts with /`},
	} {
		method := "GET"
		if tt.dialect == pattern.ServeMux {
			method = ""
		}
		templates, err := tt.dialect.Templates(routes(method, tt.patterns...)...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v.Templates(%q) = %q, %v, want error %s", tt.dialect, tt.patterns, templates, err, tt.want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, d := range []pattern.Dialect{pattern.ServeMux, pattern.Chi, pattern.Gin, pattern.Echo, pattern.Fiber} {
		if got, err := pattern.Parse(d.String()); got != d || err != nil {
			t.Errorf("Parse(%q) = %v, %v, want %v", d.String(), got, err, d)
		}
	}
	page, err := os.ReadFile("../../docs/routers.md")
	if err != nil {
		t.Fatal(err)
	}
	for d := pattern.ServeMux; !strings.HasPrefix(d.String(), "Dialect("); d++ {
		if !strings.Contains(string(page), "`"+d.String()+":`") {
			t.Errorf("docs/routers.md does not name the notation %v", d)
		}
	}
	if _, err := pattern.Parse("mux"); err == nil ||
		err.Error() != `dialect is "mux", want servemux, chi, gin, echo or fiber` {
		t.Errorf("Parse(mux) = %v, want an error with the names", err)
	}
}

func FuzzTemplates(f *testing.F) {
	for d, p := range map[pattern.Dialect]string{
		pattern.ServeMux: "GET x.com/a/{b...}\n/{$}",
		pattern.Chi:      "/{a:[0-9]{2}}/*\n/{b}-c",
		pattern.Gin:      "/:a/*b",
		pattern.Echo:     "/a/:b\n/a/:b/c/*",
		pattern.Fiber:    "/a/b\n/a/:b\n/c/*",
	} {
		f.Add(uint8(d), p)
	}
	f.Fuzz(func(t *testing.T, dialect uint8, text string) {
		d := pattern.Dialect(1 + dialect%5)
		method := "GET"
		if d == pattern.ServeMux {
			method = ""
		}
		templates, err := d.Templates(routes(method, strings.Split(text, "\n")...)...)
		if err != nil {
			return
		}
		seen := make(map[endpoint.Template]bool)
		for _, template := range templates {
			if seen[template] {
				t.Fatalf("%v.Templates(%q) has %q twice", d, text, template)
			}
			seen[template] = true
		}
	})
}

func ExampleDialect_Templates() {
	templates, err := pattern.Chi.Templates(
		pattern.Route{Method: "GET", Pattern: "/items/{id:[0-9]+}"},
		pattern.Route{Method: "GET", Pattern: "/files/*"},
	)
	for _, t := range templates {
		fmt.Println(t)
	}
	fmt.Println(err)
	_, err = pattern.Gin.Templates(pattern.Route{Method: "GET", Pattern: "/items/:"})
	fmt.Println(err)
	// Output:
	// GET /items/{id}
	// GET /files/{rest...}
	// GET /files
	// <nil>
	// gin pattern "/items/:": segment is ":", want a name after the colon
}
