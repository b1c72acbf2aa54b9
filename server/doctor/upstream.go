package doctor

import (
	"fmt"
	"strings"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/kinds"
)

// upstream is a kind of server that may stand behind the gateway.
type upstream struct{ kinds.Kind }

// Kinds are the kinds of servers that Upstream knows.
func Kinds() []string { return kinds.Names() }

// Routes is what the comparison must know about the endpoints.
type Routes struct {
	Tails   bool // some end in {name...}
	Queries bool // some are told apart by a query parameter
}

// Upstream compares the settings under endpoint with how a kind of server reads requests.
func Upstream(kind string, e config.Endpoint, routes Routes) (Report, error) {
	k, err := kinds.Find(kind)
	if err != nil {
		return Report{}, fmt.Errorf("--upstream is %w", err)
	}
	u, p := upstream{k}, e.Profile()
	r := Report{Upstream: u.Name, Source: u.Source()}
	r.add(u.slash(p))
	r.add(u.params(p))
	r.add(u.letters(p))
	r.add(u.twice(p))
	r.add(u.refusal(p, "repeated_slashes", endpoint.RefuseRepeatedSlashes, u.KeepsEmpty, "/a//b",
		"merges slashes", "keeps // apart from /",
		"an empty parameter, or the route that takes what is left, is served on the budget of /a/b"))
	r.add(u.refusal(p, "dot_segments", endpoint.RefuseDotSegments, u.KeepsDots, "/a/%2e%2e/b",
		"removes dot segments", "keeps . and .. as names, at least encoded ones",
		"/a/{name}/b is served on the budget of /b"))
	r.add(u.refusal(p, "unreserved_escapes", endpoint.RefuseUnreservedEscapes, u.ComparesRaw, "/%61dmin",
		"decodes before it compares", "compares escapes as they are written",
		"a parameter, or the route that takes what is left, is served on the budget of /admin"))
	r.add(u.bytes(p))
	r.add(u.last(p, routes.Tails))
	if u.KeepsOthers || u.ComparesRaw {
		r.add(Finding{Setting: "templates", Level: Note, Target: "/%40me",
			Server: "compares escapes of other bytes, such as @ : and [, as they are written",
			Wrong:  "counted as /@me, and served as /{name} if there is such a route",
			Set:    "templates whose text has letters, digits and - . _ ~ alone"})
	}
	r.add(u.query(p, routes.Queries))
	r.add(parameters("form fields", u.Form))
	r.add(Finding{
		Setting: "fixed",
		Value:   "invalid",
		Level:   OK,
		Server:  `a raw \, a #, a raw byte that is not ASCII and an encoded control byte never reach it`,
	})
	return r, nil
}

// parameters says how a server reads names that may mean the same. All of it is refused where a
// parameter matters, so nothing can be set.
func parameters(what string, p kinds.Parameters) Finding {
	f := Finding{Setting: what, Level: OK, Server: "does not read them"}
	if p.Unread {
		return f
	}
	f.Server = map[string]string{
		"first":  "takes the first of two",
		"last":   "takes the last of two",
		"both":   "makes a list of two",
		"either": "is content with either of two",
	}[p.Twice]
	if p.Semicolon {
		f.Server += "; splits at ; too"
	}
	if p.Question {
		f.Server += "; splits at ? too"
	}
	if p.Aliases != "" {
		f.Server += "; takes " + strings.ReplaceAll(strings.ReplaceAll(p.Aliases, "action", "a"), "ACTION",
			"A") + " for a"
	}
	f.Value = "refused where it matters"
	return f
}

func (u upstream) query(p endpoint.Profile, matter bool) Finding {
	f := parameters("query", u.Query)
	raw := u.Query.RawName || u.Query.RawValue
	if raw {
		f.Server += "; compares them as they are written"
	}
	if raw && p.Refuse&endpoint.RefuseUnreservedEscapes == 0 {
		f.Level, f.Target, f.Wrong, f.Set = Note, "/rpc?%61=b",
			"no endpoint here is told apart by a query parameter, so nobody gains by it",
			"refuse: add unreserved_escapes, before you add one that is"
		if matter {
			f.Level, f.Wrong, f.Set = Mismatch, "counted as /rpc?a=b, and served as /rpc",
				"refuse: add unreserved_escapes"
		}
	}
	return f
}

func (u upstream) slash(p endpoint.Profile) Finding {
	does := map[kinds.Slashes]string{
		kinds.Refuses: "refuses %2F", kinds.Decodes: "decodes %2F to a slash that separates segments",
		kinds.Keeps: "keeps %2F within its segment",
	}[u.EncodedSlash]
	f := Finding{Setting: "encoded_slash", Value: config.EndpointOf(p).EncodedSlash, Level: OK, Server: does}
	switch {
	case p.EncodedSlash == endpoint.RejectEncodedSlash && u.EncodedSlash != kinds.Refuses:
		f.Level, f.Target, f.Wrong = Note, "/a%2Fb", "refused here though it could be served; nobody gains by it"
		f.Set = u.slashSetting()
	case u.EncodedSlash == kinds.Decodes && p.EncodedSlash == endpoint.KeepEncodedSlash:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/a%2Fb",
			"served as /a/b, counted as one segment: two budgets for one resource", "decode, or reject"
	case u.EncodedSlash == kinds.Refuses && p.EncodedSlash == endpoint.DecodeEncodedSlash:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/a%2Fb", "counted as /a/b and refused by the server, which "+
			"may look for it only after it has removed dots and parameters", "reject"
	case u.EncodedSlash == kinds.Keeps && p.EncodedSlash == endpoint.DecodeEncodedSlash:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/a%2Fb",
			"served as one segment, counted as /a/b: another endpoint's budget", "keep, or reject"
	}
	return f
}

func (u upstream) slashSetting() string {
	if u.EncodedSlash == kinds.Decodes {
		return "decode, if clients need it"
	}
	return "keep, if clients need it"
}

func (u upstream) params(p endpoint.Profile) Finding {
	f := Finding{Setting: "params", Value: config.EndpointOf(p).Params, Level: OK, Server: "removes ;parameters"}
	if u.KeepsParams {
		f.Server = "takes ; for a byte like any other"
	}
	switch {
	case u.KeepsParams && p.Params == endpoint.StripParams:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/a/b;x", "/a/{name} is served on the budget of /a/b",
			"keep, or reject"
	case !u.KeepsParams && p.Params == endpoint.KeepParams:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/a;x",
			"served as /a, counted as another path: two budgets for one resource", "strip, or reject"
	}
	return f
}

func (u upstream) letters(p endpoint.Profile) Finding {
	f := Finding{
		Setting: "case_insensitive",
		Value:   fmt.Sprint(p.CaseInsensitive),
		Level:   OK,
		Server:  "tells /A from /a",
	}
	judged := p.Refuse&endpoint.RefuseOtherCase != 0 && !p.CaseInsensitive
	switch {
	case u.FoldsCase && u.TellsCase:
		f.Server = "takes /A for /a on some routes, and not on others"
	case u.FoldsCase:
		f.Server = "takes /A for /a"
	}
	switch {
	case judged:
		f.Value = "false, and refuse: other_case"
		if !u.FoldsCase {
			return f
		}
		f.Level, f.Target, f.Wrong, f.Set = Note, "/Admin", "refused here though it is served; nobody gains by it",
			"true, if clients need it"
		if u.TellsCase {
			f.Level, f.Target, f.Wrong, f.Set = OK, "", "", ""
		}
	case u.FoldsCase && u.TellsCase:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/Admin", "one route of two is served on the budget of another",
			"refuse: add other_case"
	case u.FoldsCase && !p.CaseInsensitive:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/Admin",
			"served as /admin, counted as unknown or as /{name}: two budgets for one resource", "true"
	case !u.FoldsCase && p.CaseInsensitive:
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/Admin", "/{name} is served on the budget of /admin", "false"
	}
	return f
}

func (u upstream) twice(p endpoint.Profile) Finding {
	f := Finding{
		Setting: "allow_double_encoding",
		Value:   fmt.Sprint(p.AllowDoubleEncoding),
		Level:   OK,
		Server:  "decodes once",
	}
	if u.DecodesTwice {
		f.Server = "decodes twice"
	}
	if p.AllowDoubleEncoding && u.DecodesTwice {
		f.Level, f.Target, f.Wrong, f.Set = Mismatch, "/%2561dmin", "served as /admin, counted as another path", "false"
	} else if p.AllowDoubleEncoding {
		f.Level, f.Target, f.Wrong, f.Set = Note, "/%2561dmin",
			"right as long as nothing behind the server decodes again", "false, if you do not need it"
	}
	return f
}

func (u upstream) refusal(p endpoint.Profile, name string, one endpoint.Refusal, needed bool,
	target, reads, keeps, wrong string) Finding {
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
	f := u.refusal(p, "bad_utf8", endpoint.RefuseBadUTF8, u.Replaces, "/caf%E9",
		"keeps bytes that are not UTF-8, or refuses them", "may replace bytes that are not UTF-8",
		"several targets are one to it; they differ here only in a parameter, so nobody gains by it")
	if f.Level == Mismatch {
		f.Level = Note
	}
	return f
}

func (u upstream) last(p endpoint.Profile, tails bool) Finding {
	f := u.refusal(p, "trailing_slash", endpoint.RefuseTrailingSlash, u.TellsSlash, "/a/",
		"takes a slash at the end for none", "may tell /a/ from /a",
		"the route that takes what is left is served on the budget of /a")
	if f.Level == Mismatch && !tails {
		f.Level, f.Wrong, f.Set = Note,
			"counted as /a; no endpoint here takes what is left, so another is hardly served",
			"refuse: add trailing_slash, if /a and /a/ are different"
	}
	return f
}
