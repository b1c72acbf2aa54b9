package endpoint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
)

func TestMatchByQuery(t *testing.T) {
	rpc := []string{"GET /rpc", "GET /rpc?action=login", "GET /rpc?action=logout", "GET /rpc?action={action}",
		"POST /rpc?action=login",
		"GET /rpc?action=login&device={device}", "GET /{bucket}?acl={acl}", "PUT /{bucket}?acl={acl}", "GET /s/{x}",
		"GET /s/{y}?q=a%20b", "GET /none?only=1"}
	strict, fold, lenient := endpoint.Profile{}, endpoint.Profile{CaseInsensitive: true},
		endpoint.Profile{AllowDoubleEncoding: true}
	for _, tt := range []struct {
		profile        endpoint.Profile
		method, target string
		want           string
	}{
		{strict, "GET", "/rpc", "GET /rpc"},
		{strict, "GET", "/rpc?", "GET /rpc"},
		{strict, "GET", "/rpc?x=1&&y", "GET /rpc"},
		{strict, "GET", "/rpc?action=login", "GET /rpc?action=login"},
		{strict, "HEAD", "//rpc/?x=1&action=login", "GET /rpc?action=login"},
		{strict, "GET", "/rpc?%61ction=log%69n", "GET /rpc?action=login"},
		{strict, "GET", "/rpc?action=Login", "invalid: ambiguous"},
		{fold, "GET", "/RPC?Action=LOGIN", "invalid: ambiguous"},
		{fold, "GET", "/RPC?action=login", "GET /rpc?action=login"},
		{strict, "GET", "/rpc?Action=login", "invalid: ambiguous"},
		{strict, "GET", "/rpc?action", "GET /rpc?action={action}"},
		{strict, "GET", "/rpc?action=", "GET /rpc?action={action}"},
		{strict, "GET", "/rpc?action=login&device=x", "GET /rpc?action=login&device={device}"},
		{strict, "GET", "/rpc?action=login&devices[]=x&d%5Baction%5D=1", "GET /rpc?action=login"},
		{strict, "GET", "/rpc?device=&action=login", "GET /rpc?action=login&device={device}"},
		{strict, "GET", "/rpc?action=login%26device=x", "GET /rpc?action={action}"},
		{strict, "GET", "/rpc?actions=login", "GET /rpc"},
		{strict, "GET", "/rpc?x=action=login", "GET /rpc"},
		{strict, "GET", "/rpc?x=%zz;%zz", "invalid: holds a % without two hexadecimal digits"},
		{strict, "GET", "/rpc?x=%zz", "GET /rpc"},

		// What servers read in more than one way.
		{strict, "GET", "/rpc?action=login&action=logout", "invalid: ambiguous"},
		{strict, "GET", "/rpc?action=login&action=login", "invalid: ambiguous"},
		{strict, "GET", "/rpc?action=x&%61ction=login", "invalid: ambiguous"},
		{strict, "GET", "/rpc?x=1;action=login", "invalid: ambiguous"},
		{strict, "GET", "/rpc?action=login;x=1", "invalid: ambiguous"},
		{strict, "GET", "/rpc?action;x=login", "invalid: ambiguous"},
		{strict, "GET", "/rpc?x=1;y=2", "GET /rpc"},
		{strict, "GET", "/rpc?action[]=login", "invalid: ambiguous"},
		{strict, "GET", "/rpc?action%5B0%5D=login", "invalid: ambiguous"},
		{strict, "GET", "/rpc?+action=login", "invalid: ambiguous"},
		{strict, "GET", "/rpc?action%20=login", "invalid: ambiguous"},
		{strict, "GET", "/rpc?action=%zz", "invalid: holds a % without two hexadecimal digits"},
		{strict, "GET", "/rpc?%u0061ction=login", "invalid: holds a % without two hexadecimal digits"},
		{strict, "GET", "/rpc?action=login%00", "invalid: holds an encoded control byte"},
		{strict, "GET", "/rpc?action%00=login", "invalid: holds an encoded control byte"},
		{strict, "GET", "/rpc?action=%256cogin", "invalid: is percent-encoded twice"},
		{strict, "GET", "/rpc?%2561ction=login", "invalid: is percent-encoded twice"},
		{lenient, "GET", "/rpc?action=%256cogin", "GET /rpc?action={action}"},
		{strict, "DELETE", "/rpc?action=login&action=logout", "invalid: ambiguous"},

		// Methods.
		{strict, "POST", "/rpc?action=login", "POST /rpc?action=login"},
		{strict, "POST", "/rpc?action=other", "unknown method"},
		{strict, "POST", "/rpc", "unknown method"},
		{strict, "DELETE", "/rpc?action=login", "unknown method"},

		// The path decides first, and a template whose query is not met does not match.
		{strict, "GET", "/rpc?acl", "GET /rpc"},
		{strict, "GET", "/photos?acl", "GET /{bucket}?acl={acl}"},
		{strict, "PUT", "/photos?acl=x", "PUT /{bucket}?acl={acl}"},
		{strict, "PUT", "/photos", "unknown path"},
		{strict, "DELETE", "/photos?acl", "unknown method"},
		{strict, "GET", "/s/1?q=a+b", "GET /s/{y}?q=a%20b"},
		{strict, "GET", "/s/1?q=a%20b", "GET /s/{y}?q=a%20b"},
		{strict, "GET", "/s/1?q=a%2Bb", "GET /s/{x}"},
		{strict, "GET", "/none", "unknown path"},
		{strict, "GET", "/none?acl", "GET /{bucket}?acl={acl}"},
		{strict, "GET", "/none?acl&only=1", "GET /none?only=1"},
		{strict, "GET", "/other/x?action=1&action=2", "unknown path"},
	} {
		table := table(t, tt.profile, rpc...)
		m := table.Match(tt.method, tt.target)
		got := m.Status.String()
		switch {
		case m.Status == endpoint.Known:
			got = table.Template(m.ID).String()
		case m.Fault == endpoint.AmbiguousQuery:
			got = "invalid: ambiguous"
		case m.Status == endpoint.Invalid:
			got = "invalid: " + m.Fault.String()
		}
		if got != tt.want {
			t.Errorf("%+v: Match(%q, %q) = %s, want %s", tt.profile, tt.method, tt.target, got, tt.want)
		}
	}
}

// TestNamesThatServersTakeForOne: a name that another one becomes in some server decides nothing beside it.
func TestNamesThatServersTakeForOne(t *testing.T) {
	table := table(t, endpoint.Profile{}, "POST /rpc", "POST /rpc?api_key={k}", "POST /f?filter[type]=a", "POST /f",
		"POST /d?a.b=1", "POST /d")
	for target, want := range map[string]string{
		"/rpc?api_key=1":                                    "POST /rpc?api_key={k}",
		"/rpc?api.key=1":                                    "invalid",
		"/rpc?api+key=1":                                    "invalid",
		"/rpc?api_key=1&api%2ekey=2":                        "invalid",
		"/rpc?[api.key]=1":                                  "invalid",
		"/rpc?api_keys=1&x.y=2&[z]=3":                       "POST /rpc",
		"/rpc?x[api_key]=1":                                 "POST /rpc",
		"/f?filter[type]=a":                                 "POST /f?filter[type]=a",
		"/f?filter[type]=a&filter[x]=b":                     "POST /f?filter[type]=a",
		"/f?[filter][type]=a":                               "invalid",
		"/f?filter][type]=a":                                "invalid",
		"/f?filter[type][]=a":                               "invalid",
		"/d?a.b=1":                                          "POST /d?a.b=1",
		"/d?a_b=1":                                          "invalid",
		"/rpc?api_key=1" + strings.Repeat("&", 999):         "POST /rpc?api_key={k}",
		"/rpc?api_key=1" + strings.Repeat("&", 1000):        "invalid",
		"/rpc?" + strings.Repeat("x&", 1000) + "api_key=1":  "invalid",
		"/rpc?" + strings.Repeat("x;", 1000) + "&api_key=1": "invalid",
	} {
		m := table.Match("POST", target)
		got := m.Status.String()
		if m.Status == endpoint.Known {
			got = table.Template(m.ID).String()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("Match(POST, %.60q) = %s (%v), want %s", target, got, m.Fault, want)
		}
	}
}

// TestQueryCannotSplit sends every way to say action=login that some server understands: none may reach the
// template without the parameter.
func TestQueryCannotSplit(t *testing.T) {
	table := table(t, endpoint.Profile{}, "POST /rpc", "POST /rpc?action=login")
	login, _ := table.Lookup(parse(t, "POST /rpc?action=login"))
	for _, query := range []string{
		"action=login", "%61ction=%6cogin", "action=login&", "&action=login", "x&action=login", "action=login&action=x",
		"action=x&action=login",
		// HAProxy
		"x;action=login", "action=login;x", "x?action=login", "?action=login", "x=1?action=login", "action=login?x",
		"action[]=login", "action[0]=login", "action%5b%5d=login", "%20action=login", "+action=login",
		"action+=login", "%u0061ction=login", "action=%u006cogin", "action=%256cogin", "%2561ction=login",
		"action%00=login", "action=login%00",
		"action%00x=login", "action%0a=login", "[action]=login", "%5Baction%5D=login", "action]=login", "]action=login",
		"[action][]=login",
		"x=1&[action]=login", "action=x&[action]=login", "[action]x=login", "[action]z[0]=login", "[action].=login",
		"[]action=login", "action[x]y=login",
		"ACTION=login", "action%5D%5Bx=login", strings.Repeat("[", 300) + "action=login",
		strings.Repeat("+", 300) + "action=login",
	} {
		if m := table.Match("POST", "/rpc?"+query); m.ID != login && m.Status != endpoint.Invalid {
			t.Errorf("Match(POST, %q) = %s, want the login or invalid", "/rpc?"+query, describe(table, m))
		}
	}
}

func TestCompileSaysWhatIsWrongWithQueries(t *testing.T) {
	many := []string{}
	for i := range 17 {
		many = append(many, fmt.Sprintf("GET /a?kind=%d&p%d=1", i, i))
	}
	for _, tt := range []struct {
		fold  bool
		texts []string
		want  string
	}{
		{false, []string{"GET /a?x=1", "GET /a?y=2"},
			`templates "GET /a?x=1" and "GET /a?y=2" both match /a?x=1&y=2 with equal specificity: remove one, or make one more specific`},
		{false, []string{"GET /{a}?x={x}", "GET /{b}?x={y}"}, `both match /x?x=x with equal specificity`},
		{true, []string{"GET /a?x=A", "GET /a?X=a"}, `both match /a?X=a&x=A with equal specificity`},
		{true, []string{"GET /a?x=A&X=a"}, `query parameter "x" is named twice but for letter case, want it once`},
		{false, []string{"GET /a?x=1", "GET /a?x=2", "GET /a?x={x}", "GET /a", "POST /a?x=1", "GET /a?x=1&y={y}"}, ""},
		{false, []string{"GET /{a}?x=1&y={y}", "GET /{b}?x=2&z={z}"}, ""},
		{false, many, `name 18 query parameters, want at most 16`},
	} {
		var templates []endpoint.Template
		for _, text := range tt.texts {
			templates = append(templates, parse(t, text))
		}
		_, err := endpoint.Compile(templates, endpoint.Profile{CaseInsensitive: tt.fold})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("Compile(%q) = %v, want %q", tt.texts, err, tt.want)
		}
	}
}

func BenchmarkMatchQuery(b *testing.B) {
	table := table(b, endpoint.Profile{}, "POST /rpc", "POST /rpc?action=login", "POST /rpc?action=logout")
	b.ReportAllocs()
	for b.Loop() {
		table.Match("POST", "/rpc?version=2011-06-15&action=logout")
	}
}

func TestKeptSlashesInTemplates(t *testing.T) {
	p := endpoint.Profile{EncodedSlash: endpoint.KeepEncodedSlash}
	table := table(t, p, "GET /projects/{id}/issues", "GET /projects/top%2Fone/issues", "GET /projects/a%2Fb/{x}")
	for target, want := range map[string]string{
		"/projects/group%2Fname/issues": "GET /projects/{id}/issues",
		"/projects/top%2fone/issues":    "GET /projects/top%2Fone/issues",
		"/projects/a%2Fb/c":             "GET /projects/a%2Fb/{x}",
		"/projects/group/name/issues":   "",
		"/projects/x%2F..%2Fy/issues":   "",
	} {
		if m := table.Match("GET", target); table.Template(m.ID).String() != want {
			t.Errorf("Match(GET, %q) = %s, want %q", target, describe(table, m), want)
		}
	}
	_, err := endpoint.Compile([]endpoint.Template{parse(t, "GET /a%2Fb")}, endpoint.Profile{})
	if err == nil || !strings.Contains(err.Error(),
		`template "GET /a%2Fb": path holds an encoded / or \, so no target can match it`) {
		t.Errorf("Compile under the default = %v, want an error", err)
	}
}
