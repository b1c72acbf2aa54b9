package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/config"
)

// reading is how a server reads targets. Its zero value is a server that reads
// as the default profile does: it decodes escapes once, removes dots, merges
// slashes, and takes a slash at the end for none.
type reading struct {
	encodedSlash slashes
	keepsParams  bool // ; is a byte like any other
	foldsCase    bool
	decodesTwice bool
	keepsEmpty   bool // // is not /
	keepsDots    bool // . and .. are names, at least when they are encoded
	comparesRaw  bool // %61 is not a
	keepsOthers  bool // %40 is not @
	tellsSlash   bool // /a/ is not /a
	replaces     bool // bytes that are not UTF-8 become U+FFFD
}

// slashes is what a server makes of %2F.
type slashes uint8

const (
	refusesSlash slashes = iota
	decodesSlash         // to one that separates segments
	keepsSlash           // within its segment
)

// upstream is a kind of server that may stand behind the gateway.
type upstream struct {
	kind   string
	name   string // with the settings that the facts hold for
	source string
	reading
}

const (
	measured   = "measured"                    // endpoint/testdata/path-oracles.json
	compared   = "compared request by request" // eval/routers
	once       = "measured once with version 4.22.3, not repeated by a test"
	documented = "documentation, not measured here" // or published source
)

var upstreams = []upstream{
	{"nginx", "nginx, merge_slashes on", measured, reading{encodedSlash: decodesSlash, keepsParams: true, tellsSlash: true}},
	{"nginx-unmerged", "nginx, merge_slashes off", measured, reading{encodedSlash: decodesSlash, keepsParams: true, keepsEmpty: true, tellsSlash: true}},
	{"haproxy", "HAProxy, no normalize-uri", measured, reading{encodedSlash: keepsSlash, keepsParams: true, keepsEmpty: true, keepsDots: true, comparesRaw: true, tellsSlash: true}},
	{"haproxy-normalized", "HAProxy, normalize-uri for dots, slashes and escapes", measured, reading{encodedSlash: keepsSlash, keepsParams: true, keepsOthers: true, tellsSlash: true}},
	{"apache", "Apache httpd, AllowEncodedSlashes Off", measured, reading{keepsParams: true, tellsSlash: true}},
	{"apache-nodecode", "Apache httpd, AllowEncodedSlashes NoDecode", measured, reading{encodedSlash: keepsSlash, keepsParams: true, tellsSlash: true}},
	{"envoy", "Envoy, normalize_path and merge_slashes on, escaped slashes kept", documented, reading{encodedSlash: keepsSlash, keepsParams: true, comparesRaw: true, tellsSlash: true}},
	{"go", "Go's http.ServeMux since 1.22", compared, reading{encodedSlash: keepsSlash, keepsParams: true, keepsDots: true, tellsSlash: true}},
	{"chi", "chi", compared, reading{encodedSlash: keepsSlash, keepsParams: true, keepsEmpty: true, keepsDots: true, comparesRaw: true, tellsSlash: true}},
	{"gin", "gin, UseRawPath off", compared, reading{encodedSlash: decodesSlash, keepsParams: true, keepsEmpty: true, keepsDots: true, tellsSlash: true}},
	{"echo", "echo", compared, reading{encodedSlash: keepsSlash, keepsParams: true, keepsEmpty: true, keepsDots: true, comparesRaw: true, tellsSlash: true}},
	{"express", "Express, case sensitive routing and strict routing off", once, reading{encodedSlash: keepsSlash, keepsParams: true, foldsCase: true, keepsEmpty: true, keepsDots: true, comparesRaw: true}},
	{"tomcat", "Tomcat and other servlet containers, encoded slashes refused", documented, reading{tellsSlash: true, replaces: true}},
	{"iis", "ASP.NET Core, on IIS or Kestrel", documented, reading{encodedSlash: keepsSlash, keepsParams: true, foldsCase: true, keepsEmpty: true, replaces: true}},
	{"grpc", "a gRPC server", documented, reading{encodedSlash: keepsSlash, keepsParams: true, keepsEmpty: true, keepsDots: true, comparesRaw: true, tellsSlash: true}},
}

// Kinds are the kinds of servers that Upstream knows.
func Kinds() (kinds []string) {
	for _, u := range upstreams {
		kinds = append(kinds, u.kind)
	}
	return kinds
}

// Upstream compares the settings under endpoint with how a kind of server reads targets. Tails says that the registry
// has endpoints with {name...}.
func Upstream(kind string, e config.Endpoint, tails bool) (Report, error) {
	i := slices.IndexFunc(upstreams, func(u upstream) bool { return u.kind == kind })
	if i < 0 {
		return Report{}, fmt.Errorf("--upstream is %q, want one of %s", kind, strings.Join(Kinds(), ", "))
	}
	u, p := upstreams[i], e.Profile()
	r := Report{Upstream: u.name, Source: u.source}
	r.add(u.slash(p))
	r.add(u.params(p))
	r.add(u.letters(p))
	r.add(u.twice(p))
	r.add(u.refusal(p, "repeated_slashes", endpoint.RefuseRepeatedSlashes, u.keepsEmpty, "/a//b",
		"merges slashes", "keeps // apart from /", "an empty parameter, or the route that takes what is left, is served on the budget of /a/b"))
	r.add(u.refusal(p, "dot_segments", endpoint.RefuseDotSegments, u.keepsDots, "/a/%2e%2e/b",
		"removes dot segments", "keeps . and .. as names, at least encoded ones", "/a/{name}/b is served on the budget of /b"))
	r.add(u.refusal(p, "unreserved_escapes", endpoint.RefuseUnreservedEscapes, u.comparesRaw, "/%61dmin",
		"decodes before it compares", "compares escapes as they are written", "a parameter, or the route that takes what is left, is served on the budget of /admin"))
	r.add(u.bytes(p))
	r.add(u.last(p, tails))
	if u.keepsOthers || u.comparesRaw {
		r.add(Finding{Setting: "templates", Level: Note, Target: "/%40me", Server: "compares escapes of other bytes, such as @ : and [, as they are written",
			Wrong: "counted as /@me, and served as /{name} if there is such a route", Set: "templates whose text has letters, digits and - . _ ~ alone"})
	}
	r.add(Finding{Setting: "fixed", Value: "invalid", Level: OK, Server: `a raw \, a #, a raw byte that is not ASCII and an encoded control byte never reach it`})
	return r, nil
}

func (u upstream) slash(p endpoint.Profile) Finding {
	does := [...]string{"refuses %2F", "decodes %2F to a slash that separates segments", "keeps %2F within its segment"}[u.encodedSlash]
	f := Finding{Setting: "encoded_slash", Value: config.EndpointOf(p).EncodedSlash, Level: OK, Server: does}
	switch {
	case p.EncodedSlash == endpoint.RejectEncodedSlash && u.encodedSlash != refusesSlash:
		f.Level, f.Target, f.Wrong = Note, "/a%2Fb", "refused here though it could be served; nobody gains by it"
		f.Set = u.slashSetting()
	case u.encodedSlash == decodesSlash && p.EncodedSlash == endpoint.KeepEncodedSlash:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/a%2Fb", "served as /a/b, counted as one segment: two budgets for one resource", "decode, or reject"
	case u.encodedSlash == keepsSlash && p.EncodedSlash == endpoint.DecodeEncodedSlash:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/a%2Fb", "served as one segment, counted as /a/b: another endpoint's budget", "keep, or reject"
	}
	return f
}

func (u upstream) slashSetting() string {
	if u.encodedSlash == decodesSlash {
		return "decode, if clients need it"
	}
	return "keep, if clients need it"
}

func (u upstream) params(p endpoint.Profile) Finding {
	f := Finding{Setting: "params", Value: config.EndpointOf(p).Params, Level: OK, Server: "removes ;parameters"}
	if u.keepsParams {
		f.Server = "takes ; for a byte like any other"
	}
	switch {
	case u.keepsParams && p.Params == endpoint.StripParams:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/a/b;x", "/a/{name} is served on the budget of /a/b", "keep, or reject"
	case !u.keepsParams && p.Params == endpoint.KeepParams:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/a;x", "served as /a, counted as another path: two budgets for one resource", "strip, or reject"
	}
	return f
}

func (u upstream) letters(p endpoint.Profile) Finding {
	f := Finding{Setting: "case_insensitive", Value: fmt.Sprint(p.CaseInsensitive), Level: OK, Server: "tells /A from /a"}
	if u.foldsCase {
		f.Server = "takes /A for /a"
	}
	switch {
	case u.foldsCase && !p.CaseInsensitive:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/Admin", "served as /admin, counted as unknown or as /{name}: two budgets for one resource", "true"
	case !u.foldsCase && p.CaseInsensitive:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/Admin", "/{name} is served on the budget of /admin", "false"
	}
	return f
}

func (u upstream) twice(p endpoint.Profile) Finding {
	f := Finding{Setting: "allow_double_encoding", Value: fmt.Sprint(p.AllowDoubleEncoding), Level: OK, Server: "decodes once"}
	if u.decodesTwice {
		f.Server = "decodes twice"
	}
	if p.AllowDoubleEncoding && u.decodesTwice {
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/%2561dmin", "served as /admin, counted as another path", "false"
	} else if p.AllowDoubleEncoding {
		f.Level, f.Target, f.Wrong, f.Set = Note, "/%2561dmin", "right as long as nothing behind the server decodes again", "false, if you do not need it"
	}
	return f
}

func (u upstream) refusal(p endpoint.Profile, name string, one endpoint.Refusal, needed bool, target, reads, keeps, wrong string) Finding {
	on := p.Refuse&one != 0
	f := Finding{Setting: "refuse", Value: "without " + name, Level: OK, Server: reads}
	if on {
		f.Value = name
	}
	if needed {
		f.Server = keeps
		if !on {
			f.Level, f.Target, f.Wrong, f.Set = Mismatch, target, wrong, "refuse: add "+name
		}
	}
	return f
}

func (u upstream) bytes(p endpoint.Profile) Finding {
	f := u.refusal(p, "bad_utf8", endpoint.RefuseBadUTF8, u.replaces, "/caf%E9",
		"keeps bytes that are not UTF-8, or refuses them", "may replace bytes that are not UTF-8", "several targets are one to it; they differ here only in a parameter, so nobody gains by it")
	if f.Level == Mismatch {
		f.Level = Note
	}
	return f
}

func (u upstream) last(p endpoint.Profile, tails bool) Finding {
	f := u.refusal(p, "trailing_slash", endpoint.RefuseTrailingSlash, u.tellsSlash, "/a/",
		"takes a slash at the end for none", "may tell /a/ from /a", "the route that takes what is left is served on the budget of /a")
	if f.Level == Mismatch && !tails {
		f.Level, f.Wrong, f.Set = Note, "counted as /a; no endpoint here takes what is left, so another is hardly served", "refuse: add trailing_slash, if /a and /a/ are different"
	}
	return f
}
