package framework_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/framework"
)

var update = flag.Bool("update", false, "write testdata/*.want")

// TestReal reads what real applications printed: eval/approutes records it, and holds the endpoints against what the
// applications serve.
func TestReal(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) != 8 {
		t.Fatalf("%d files, %v, want 8", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			kind, _, _ := strings.Cut(strings.TrimSuffix(name, "4"), "-")
			found, err := framework.Read(kind, name, string(text))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(found.Templates, "\n") + "\n"
			for _, n := range found.Notes {
				got += n.String() + "\n"
			}
			want := strings.TrimSuffix(file, ".txt") + ".want"
			if *update {
				if err := os.WriteFile(want, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if before, err := os.ReadFile(want); err != nil || string(before) != got {
				t.Errorf("%v; got\n%swant\n%s", err, got, before)
			}
		})
	}
}

// django and express are lines as the scripts print them.
func django(routes ...string) string {
	var b strings.Builder
	for _, r := range routes {
		fmt.Fprintf(&b, `{"framework":"django","methods":["GET"],"path":[{"text":%q}]}`+"\n", r)
	}
	return b.String()
}

func express4(routes ...string) string {
	return strings.ReplaceAll(django(routes...), "django", "express4")
}

// TestNotations says what becomes of patterns, and why some are left.
func TestNotations(t *testing.T) {
	spring := func(pattern string) string {
		return fmt.Sprintf(`{"contexts":{"a":{"mappings":{"dispatcherServlets":{"d":[{"details":`+
			`{"requestMappingConditions":{"methods":["GET"],"patterns":[%q]}}}]}}}}}`, pattern)
	}
	regex := func(expression string) string {
		return fmt.Sprintf(`{"framework":"django","methods":["GET"],"path":[{"text":"/"},{"regex":%q}]}`, expression)
	}
	rails := func(path string) string { return "  GET " + path + " x#y\n" }
	for _, c := range []struct{ name, text, want string }{
		{"django", django("/a/<int:id>"), "GET /a/{id}"},
		{"django", django("/a/<path:p>/b", "/c"), "GET /c; takes slashes and stands before the end"},
		{"django", django("/a/<x><y>", "/c"), "GET /c; {x} and {y} touch"},
		{"django", django("/a/<nope:x>", "/c"), `GET /c; converter "nope" is not known here`},
		{"django", django("/a/<int:id>", "/a/7", "/a/x"), "GET /a/{id} GET /a/x; \"/a/7\" is never served"},
		{"django", django("/a/<x>", "/a/b/"), `GET /a/{x} GET /a/b; differ by a slash at the end`},
		{"django", django("/50%/{x}?"), "GET /50%25/%7Bx%7D%3F"},
		{"django", regex(`^a/(?P<id>\d+)/$`), "GET /a/{id}"},
		{"django", regex(`^a(/b)?/$`), "GET /a GET /a/b"},
		{"django", regex(`^a/(?:b|c)/$`), "GET /a/{part}"},
		{"django", regex(`^a/(?P<rest>.*)\Z`), "GET /a GET /a/{rest...}"},
		{"express", strings.ReplaceAll(express4("/a{/:b}/*c"), "express4", "express"),
			"GET /a/{c...}"},
		{"express", express4("/a/:b?", "/c/:d(\\d+).json"), "GET /a GET /a/{b} GET /c/{d}.json"},
		{"express", express4("/a/(b|c)/:d", "/ab?cd"), `GET /a/{part}/{d}; "?" behind plain text`},
		{"express", express4("/A/:x", "/a/new"), `GET /A/{x}; "/a/new" is never served`},
		{"rails", rails("/a(.:format)"), "GET /a GET /a.{format}; an extension"},
		{"rails", rails("/a/:id(.:format)"), "GET /a/{id}"},
		{"rails", rails("(/:l)/a"), "GET /a GET /{l}/a"},
		{"rails", "  GET /a/:id x#y {id: /[a-z\\/]+/}\n", "GET /a/{id...}"},
		{"spring", spring("/a/{x:[a-z]{2}}/b"), "GET /a/{x}/b"},
		{"spring", spring("/a/*.json"), "GET /a/.json GET /a/{part}.json"},
		{"spring", spring("/a/{*p}"), "GET /a GET /a/{p...}"},
	} {
		found, err := framework.Read(c.name, "list", c.text)
		if err != nil {
			t.Errorf("Read(%s, %s) = %v", c.name, c.text, err)
			continue
		}
		templates, note, _ := strings.Cut(c.want, "; ")
		if got := strings.Join(found.Templates, " "); got != templates {
			t.Errorf("Read(%s, %s) = %s, want %s", c.name, c.text, got, templates)
		}
		said := ""
		for _, n := range found.Notes {
			said += n.String() + "\n"
		}
		if !strings.Contains(said, note) || note == "" && said != "" {
			t.Errorf("Read(%s, %s) notes %q, want %q", c.name, c.text, said, note)
		}
	}
}

// TestErrors says what is wrong with what is no list, with file and line.
func TestErrors(t *testing.T) {
	many := strings.Repeat(django("/a"), 10_001)
	for _, c := range []struct{ name, text, want string }{
		{"rocket", "x", `framework is "rocket", want one of django, express, fastapi, flask, rails, spring`},
		{"rails", " \n", "list: is empty, want what \"bin/rails routes\" prints"},
		{"rails", "\nnonsense\n", "list:2: is \"nonsense\", want a row of `rails routes`"},
		{"fastapi", "{\"openapi\": \"3.1.0\"}", "list: is an OpenAPI document: serve reads it by --openapi"},
		{"fastapi", "\n{\"path\": 1}", "list:2: is \"{\\\"path\\\": 1}\", want a line of JSON"},
		{"fastapi", `{"path": [], "more": 1}`, `unknown field "more"`},
		{"express", `{"framework":"express","path":[{"text":"/a"}]} x`, "list:1: is "},
		{"express", `{"framework":"koa","path":[{"text":"/a"}]}`,
			"holds no route that can be carried over, want what " +
				"\"headgate routes from express --script | node - ./app.js\" prints\n" +
				`list:1: not carried over: "/a": framework is "koa"`},
		{"django", many, "list:10001: more than 10000 routes"},
		{"django", strings.Repeat("x", 70_000), "list:1: line has more than 65536 bytes"},
		{"django", django("/" + strings.Repeat("a/", 200)), "it has more than 100 segments"},
		{"spring", `{"contexts": {}} {}`, "list: goes on behind its end"},
		{"spring", `{}`, "list: has no contexts"},
		{"spring", `[`, "list: is no JSON"},
		{"flask", "Rule\n/a", "list: has no line of dashes"},
		{"flask", "Endpoint  Methods  Rule\n--------  -------  ----\na         GET      a\n", `list:3: rule is "a"`},
	} {
		if _, err := framework.Read(c.name, "list", c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Read(%s, %.60q) = %v, want %s", c.name, c.text, err, c.want)
		}
	}
}

// FuzzRead reads anything: what it makes are templates that can be loaded, each once.
func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".txt"), "4"), "-")
		f.Add(name, string(text))
	}
	f.Add("express", express4("/a/:b?", "/c/:d(\\d+).json", "/a/(b|c)*"))
	f.Fuzz(func(t *testing.T, name, text string) {
		found, err := framework.Read(name, "list", text)
		if err != nil {
			return
		}
		if len(found.Templates) == 0 && len(found.Notes) == 0 {
			t.Fatal("neither an endpoint nor a note nor an error")
		}
		var templates []endpoint.Template
		for _, one := range found.Templates {
			parsed, err := endpoint.ParseTemplate(one)
			if err != nil {
				t.Fatalf("%q: %v", one, err)
			}
			if parsed.String() != one {
				t.Fatalf("%q is read as %q", one, parsed)
			}
			templates = append(templates, parsed)
		}
		if _, err := endpoint.Compile(templates, endpoint.Profile{}); err != nil {
			t.Fatalf("%q: %v", found.Templates, err)
		}
		if again, err := framework.Read(name, "list", text); err != nil ||
			!slices.Equal(again.Templates, found.Templates) || !slices.Equal(again.Notes, found.Notes) {
			t.Fatal("read twice, it differs")
		}
	})
}

// TestMany reads many routes, all of which have to be compared.
func TestMany(t *testing.T) {
	var routes []string
	for n := range 1000 {
		routes = append(routes, fmt.Sprintf("/<slug:a>/b%d/<int:c>", n))
	}
	found, err := framework.Read("django", "list", django(routes...))
	if err != nil || len(found.Templates) != 1000 || len(found.Notes) != 0 {
		t.Errorf("%d endpoints, %d notes, %v, want 1000 and none", len(found.Templates), len(found.Notes), err)
	}
}
