package endpoint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
)

func TestParseTemplate(t *testing.T) {
	for _, tt := range []struct{ text, method, path string }{
		{"GET /", "GET", "/"},
		{"GET /v1/items", "GET", "/v1/items"},
		{"GET /v1/items/", "GET", "/v1/items"},
		{"POST /v1/items/{id}", "POST", "/v1/items/{id}"},
		{"GET /Accounts/{Sid}.json", "GET", "/Accounts/{Sid}.json"},
		{"GET /v{version}/x", "GET", "/v{version}/x"},
		{"GET /a/pre-{x}-post", "GET", "/a/pre-{x}-post"},
		{"POST /v1/x:cancel", "POST", "/v1/x:cancel"},
		{"POST /v1/{name}:cancel", "POST", "/v1/{name}:cancel"},
		{"GET /compare/{from}...{to}", "GET", "/compare/{from}...{to}"},
		{"GET /{a}{b}/v{major}.{minor}.json", "GET", "/{a}{b}/v{major}.{minor}.json"},
		{"GET /files/{path...}", "GET", "/files/{path...}"},
		{"GET /files/{path...}/", "GET", "/files/{path...}"},
		{"GET /{rest...}", "GET", "/{rest...}"},
		{"GET /a/{filter[name]}/{id.sub}/{user-id}/{x_1}", "GET", "/a/{filter[name]}/{id.sub}/{user-id}/{x_1}"},
		{"GET /{id}/{id}", "GET", "/{id}/{id}"},
		{"GET /caf%C3%A9/a%20b", "GET", "/caf%C3%A9/a%20b"},
		{"GET /%7Bnot a parameter%7D", "", ""},
		{"GET /%7Bnot%20a%20parameter%7D", "GET", "/%7Bnot%20a%20parameter%7D"},
		{"GET /<upload_url>", "GET", "/<upload_url>"},
		{"GET /a;v=1", "GET", "/a;v=1"},
		{"GET /%2541", "GET", "/%2541"},
		{"GET /v1/?b=2&a={a}", "GET", "/v1"},
		{"GET /a%2Fb/{x}", "GET", "/a%2Fb/{x}"},
		{"GET /a%2Fb", "GET", "/a%2Fb"}, // Compile refuses it unless the profile keeps encoded slashes
		{"M-SEARCH /a", "M-SEARCH", "/a"},
	} {
		template, err := endpoint.ParseTemplate(tt.text)
		if tt.method == "" {
			if err == nil {
				t.Errorf("ParseTemplate(%q) = %q, want an error", tt.text, template)
			}
			continue
		}
		text := tt.method + " " + tt.path
		if template.Query() != "" {
			text += "?" + template.Query()
		}
		if err != nil || template.Method() != tt.method || template.Path() != tt.path || template.String() != text {
			t.Errorf("ParseTemplate(%q) = %q %q (%q), %v, want %q %q", tt.text, template.Method(), template.Path(),
				template, err, tt.method, tt.path)
		}
		if again, err := endpoint.ParseTemplate(template.String()); again.String() != template.String() {
			t.Errorf("ParseTemplate(%q) = %q, %v, want the same again", template, again, err)
		}
	}
}

func TestParseTemplateSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", `want a method, a space and a path, like "GET /v1/items/{id}"`},
		{"GET", `want a method, a space and a path, like "GET /v1/items/{id}"`},
		{"/v1/items", `it has no method, want "GET /v1/items"`},
		{"* /v1/items", `method is "*", want one template for each method`},
		{"get /v1/items", `method is "get", want "GET": methods are case-sensitive`},
		{"G(T /v1/items", `method is "G(T", want a token like "GET"`},
		{" /v1/items", `method is "", want a token like "GET"`},
		{"GET v1/items", `path is "v1/items", want one that starts with / after a single space`},
		{"GET  /v1", `path is " /v1", want one that starts with / after a single space`},
		{"GET example.com/v1", `path is "example.com/v1", want one that starts with / after a single space`},
		{"GET /v1?", `query parameter is "", want name=value or name={value}`},
		{"GET /v1?a=1&", `query parameter is "", want name=value or name={value}`},
		{"GET /v1?=1", `query parameter is "=1", want name=value or name={value}`},
		{"GET /v1?acl", `query parameter is "acl", want "acl={value}" for any value or "acl=" for an empty one`},
		{"GET /v1?a=1&a=2", `query parameter "a" is named twice, want it once`},
		{"GET /v1?a={x", `query parameter is "a={x", want "a={value}" with letters, digits and _ - . [ ]`},
		{"GET /v1?a={x...}y", `query parameter is "a={x...}y", want "a={value}" with letters, digits and _ - . [ ]`},
		{"GET /v1?a=b+c", `value of query parameter is "b+c", want its canonical form "b%2Bc"`},
		{"GET /v1?%61=b", `name of query parameter is "%61", want its canonical form "a"`},
		{"GET /v1?a=b%2f", `value of query parameter is "b%2f", want its canonical form "b/"`},
		{"GET /v1?a=x{y}", `value of query parameter is "x{y}", want its canonical form "x%7By%7D"`},
		{"GET /v1?a=%zz", `value of query parameter is "%zz", want its canonical form "%25zz"`},
		{"GET /v1?a=b;c=d", `value of query parameter is "b;c=d", want its canonical form "b%3Bc%3Dd"`},
		{"GET /v1?a=%00", `query parameter "a=%00" holds a control byte, so no target can match it`},
		{"GET /v1?%20a=1", `name of query parameter is "%20a", want no space at its ends: some servers drop it`},
		{"GET /v1?a=1&b=1&c=1&d=1&e=1&f=1&g=1&h=1&i=1", `query names 9 parameters, want at most 8`},
		{"GET /v1/:id", `segment is ":id", want "{id}": a parameter is written in braces`},
		{"GET /v1/*", `segment is "*", want "{name}" for one segment or "{name...}" for all that follow`},
		{"GET /v1/**", `segment is "**", want "{name}" for one segment or "{name...}" for all that follow`},
		{"GET /v1/{id", `segment "{id" opens a parameter and does not close it, want {name}`},
		{"GET /v1/}{", `segment "}{" closes a parameter that it does not open, want {name}`},
		{"GET /v1/id}", `segment "id}" closes a parameter that it does not open, want {name}`},
		{"GET /v1/{name=projects/*}", `segment "{name=projects" opens a parameter and does not close it, want {name}`},
		{"GET /v1/{base}...{he ad}",
			`segment is "{base}...{he ad}", want each parameter in it as {name} with letters, digits and _ - . [ ]`},
		{"GET /v1/{a}{b...}", `segment is "{a}{b...}", want each parameter in it as {name} with letters, digits and _ - . [ ]`},
		{"GET /v1/{{id}}", `segment is "{{id}}", want each parameter in it as {name} with letters, digits and _ - . [ ]`},
		{"GET /v1/{a{id}", `segment "{a{id}" opens a parameter inside another, want {name}`},
		{"GET /v1/{}", `parameter is "{}", want {name} with letters, digits and _ - . [ ]`},
		{"GET /v1/{...}", `parameter is "{...}", want {name} with letters, digits and _ - . [ ]`},
		{"GET /v1/{$}", `parameter is "{$}", want {name} with letters, digits and _ - . [ ]`},
		{"GET /v1/{id:[0-9]+}", `parameter is "{id:[0-9]+}", want {name} with letters, digits and _ - . [ ]`},
		{"GET /v1/{+name}", `parameter is "{+name}", want {name} with letters, digits and _ - . [ ]`},
		{"GET /v1/{rest...}/tail", `segment "{rest...}" is followed by "tail", want it last`},
		{"GET /v1/{rest...}.json", `segment is "{rest...}.json", want "{rest...}" without text around it`},
		{"GET /v1//items", `path is "/v1//items", want its canonical form "/v1/items"`},
		{"GET /v1/items//", `path is "/v1/items//", want its canonical form "/v1/items"`},
		{"GET /v1/./{id}/../x", `path is "/v1/./{id}/../x", want its canonical form "/v1/x"`},
		{"GET /v1/%41/{id}", `path is "/v1/%41/{id}", want its canonical form "/v1/A/{id}"`},
		{"GET /caf%c3%a9", `path is "/caf%c3%a9", want its canonical form "/caf%C3%A9"`},
		{"GET /caf\u00e9", `path holds a raw space, control, # or non-ASCII byte: want %XX instead`},
		{"GET /v1/items ", `path holds a raw space, control, # or non-ASCII byte: want %XX instead`},
		{"GET /a%2fb", `path is "/a%2fb", want its canonical form "/a%2Fb"`},
		{"GET /a%5Cb", `path holds a \, so no target can match it`},
		{`GET /a\b`, `path holds a \, so no target can match it`},
		{"GET /a%zz", `path holds a % without two hexadecimal digits, so no target can match it`},
	} {
		template, err := endpoint.ParseTemplate(tt.text)
		if want := fmt.Sprintf("template %q: %s", tt.text, tt.want); err == nil || err.Error() != want {
			t.Errorf("ParseTemplate(%q) = %q, %v, want error %s", tt.text, template, err, want)
		}
	}
	long := "GET /" + strings.Repeat("a", 8000)
	if _, err := endpoint.ParseTemplate(long); err == nil || len(err.Error()) > 300 ||
		!strings.Contains(err.Error(), "it has 8005 bytes, want at most 8000") {
		t.Errorf("ParseTemplate of a long text = %v, want a short error with both lengths", err)
	}
}

func TestZeroTemplate(t *testing.T) {
	var zero endpoint.Template
	if zero.String() != "" || zero.Method() != "" || zero.Path() != "" {
		t.Errorf("zero Template = %q, %q, %q, want empty texts", zero, zero.Method(), zero.Path())
	}
}

func FuzzParseTemplate(f *testing.F) {
	for _, text := range []string{"GET /v1/{id}.json", "GET /v1?b=%20x&a={y}", "GET /?a[b]=", "GET /{rest...}",
		"POST /%7Bx%7D:a", "get /", "GET /{a}{b}", "GET /a/../%41", "PUT /a;b/"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			return
		}
		if again, err := endpoint.ParseTemplate(template.String()); again.String() != template.String() {
			t.Fatalf("ParseTemplate(%q) = %q, which reads back as %q, %v", text, template, again, err)
		}
		lenient := endpoint.Profile{
			EncodedSlash:        endpoint.KeepEncodedSlash,
			Params:              endpoint.KeepParams,
			AllowDoubleEncoding: true,
		}
		table, err := endpoint.Compile([]endpoint.Template{template}, lenient)
		if err != nil {
			t.Fatalf("Compile(%q): %v", template, err)
		}
		if m := table.Match(template.Method(), fill(template, "x")); m.ID != 1 && m.Fault != endpoint.AmbiguousQuery {
			t.Fatalf("Match(%q, %q) = %v with the only template %q", template.Method(),
				fill(template, "x"), m, template)
		}
	})
}

func ExampleParseTemplate() {
	template, err := endpoint.ParseTemplate("POST /v1/orders/{id}:cancel/")
	fmt.Println(template, err)
	_, err = endpoint.ParseTemplate("GET /v1//orders/:id")
	fmt.Println(err)
	_, err = endpoint.ParseTemplate("GET /v1//orders")
	fmt.Println(err)
	// Output:
	// POST /v1/orders/{id}:cancel <nil>
	// template "GET /v1//orders/:id": segment is ":id", want "{id}": a parameter is written in braces
	// template "GET /v1//orders": path is "/v1//orders", want its canonical form "/v1/orders"
}
