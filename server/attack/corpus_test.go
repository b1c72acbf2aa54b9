package attack_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/attack"
)

var plain = attack.Request{Method: "GET", Target: "/v1/items/1"}

func all() []attack.Attack {
	return []attack.Attack{attack.Plain, attack.Headers, attack.Spelling, attack.Keys, attack.Tokens, attack.Unknown,
		attack.Parameters}
}

// TestFamiliesVary holds that an attack does not spend its requests on repetitions, and that every
// request is one line and one header block.
func TestFamiliesVary(t *testing.T) {
	for _, a := range all() {
		if a.Name == attack.Plain.Name {
			continue
		}
		for _, f := range a.Families {
			t.Run(a.Name+"/"+f.Name, func(t *testing.T) {
				base := plain
				if a.Name == attack.Parameters.Name {
					base.Target = "/v1/items/{id}"
				}
				different := map[string]bool{}
				const n = 200
				for i := range n {
					r := f.Make(base, i)
					text := r.Method + " " + r.Target
					for _, h := range r.Header {
						text += "\n" + h.Name + ": " + h.Value
					}
					if strings.ContainsAny(r.Target, " \r\n") || strings.Contains(text, "\r") || len(text) > 8192 {
						t.Fatalf("request %d is no request: %q", i, text)
					}
					different[text] = true
				}
				// Few letters have few cases.
				if len(different) < 30 || a.Name != attack.Spelling.Name && len(different) < n {
					t.Errorf("%d of %d requests differ", len(different), n)
				}
				if len(plain.Header) != 0 || plain.Target != "/v1/items/1" {
					t.Error("the plain request was changed")
				}
			})
		}
	}
}

// TestSpellingsAreOneEndpoint holds every spelling against Headgate's own canonical form: it is the
// endpoint or is refused, and none is another endpoint, but those that only some servers read as
// the same and Headgate as unknown.
func TestSpellingsAreOneEndpoint(t *testing.T) {
	var templates []endpoint.Template
	for _, text := range []string{"GET /v1/items/{id}", "GET /v1/orders/{id}"} {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	table, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for _, f := range attack.Spelling.Families {
		for i := range 100 {
			r := f.Make(plain, i)
			match := table.Match("GET", r.Target)
			if match.Status == endpoint.Known {
				same++
				if got := table.Template(match.ID).String(); got != "GET /v1/items/{id}" {
					t.Errorf("%s: %s is %s", f.Name, r.Target, got)
				}
			}
		}
	}
	if same < 500 {
		t.Errorf("%d spellings are the endpoint: too few to show anything", same)
	}
}

func TestKeysOfHeadgatesForm(t *testing.T) {
	forms := map[bool]int{}
	for _, f := range attack.Keys.Families {
		r := f.Make(plain, 7)
		for _, h := range r.Header {
			text := strings.TrimPrefix(h.Value, "Bearer ")
			if strings.HasPrefix(text, "hg_") {
				if len(text) != 52 {
					t.Errorf("%s: %q has %d bytes, want 52", f.Name, text, len(text))
				}
				forms[identity.WellFormedKey(text)]++
			}
		}
	}
	if forms[true] != 2 || forms[false] != 1 {
		t.Errorf("%d keys are well formed and %d have a wrong checksum, want 2 and 1", forms[true], forms[false])
	}
}

func TestFill(t *testing.T) {
	for in, want := range map[string]string{"/a/{b}/c/{d...}": "/a/7/c/7", "/a": "/a", "/a/{b": "/a/{b",
		"/}{x}": "/}7"} {
		if got := attack.Fill(in, "7"); got != want {
			t.Errorf("Fill(%q) = %q, want %q", in, got, want)
		}
	}
}
