package main

import (
	"strings"

	"github.com/headgate-io/headgate/server/kinds"
)

// measure asks a server directly what it makes of the spellings that a profile decides about.
func measure(addr string, window int) kinds.Reading {
	routes := make(map[string]string)
	var probes []request
	probe := func(targets ...string) {
		for _, t := range targets {
			probes = append(probes, request{method: "GET", target: t})
		}
	}
	probe("/v1/items/a%2Fb", "/v1/items/7/parts%2F3", "/public/a%2Fb", "/v1/exports;x", "/v1/items/search;x",
		"/v1/items/;x",
		"/V1/exports", "/v1/EXPORTS", "/v1/getthing", "/V1/ITEMS/7", "/PUBLIC/a",
		"/v1/%2565xports", "/v1//exports", "//v1/exports", "/v1/items//parts/3", "/v1/items//", "/v1/items/7//parts/3",
		"/v1/x/../exports", "/v1/./exports", "/v1/x/%2e%2e/exports", "/v1/%2e/exports", "/v1/items/..",
		"/v1/items/%2e%2e", "/v1/items/.", "/v1/items/%2e", "/public/../v1/exports", "/public/%2e%2e/v1/exports",
		"/v1/%65xports", "/v1/items/s%65arch", "/v1/items/%73earch", "/v1%2Dx", "/v1/exports/", "/v1/items/",
		"/v1/items/7/", "/public/", "/public", "/v1/items/search/",
		"/v1/items/%E9", "/v1/items/%C0%AF", "/v1/items/%ff%fe", "/rpc", "/rpc?action=login")
	query := func(pairs string) string { return "/rpc?" + pairs }
	for _, pairs := range queries {
		probe(query(pairs))
	}
	for i, a := range ask(addr, window, probes) {
		routes[probes[i].target] = a.route
		switch {
		case a.status/100 == 3:
			routes[probes[i].target] = redirected
		case !a.reached():
			routes[probes[i].target] = "-"
		}
	}
	// What is redirected to the plain spelling is served under no other.
	is := func(target, route string) bool { return routes[target] == route || routes[target] == redirected }
	any := func(route string, targets ...string) bool {
		for _, t := range targets {
			if routes[t] == route {
				return true
			}
		}
		return false
	}
	const exports, search, item, part, public = "GET /v1/exports", "GET /v1/items/search", "GET /v1/items/{id}",
		"GET /v1/items/{id}/parts/{part}", "GET /public/{path...}"
	var r kinds.Reading
	switch {
	case any(item, "/v1/items/a%2Fb"):
		r.EncodedSlash = kinds.Keeps
	case any(part, "/v1/items/7/parts%2F3"):
		r.EncodedSlash = kinds.Decodes
	default:
		r.EncodedSlash = kinds.Refuses
	}
	r.KeepsParams = !is("/v1/exports;x", exports)
	r.FoldsCase = any(exports, "/V1/exports", "/v1/EXPORTS") || any("GET /v1/getThing", "/v1/getthing") ||
		any(item, "/V1/ITEMS/7") || any(public, "/PUBLIC/a")
	r.TellsCase = !is("/v1/EXPORTS", exports) || !is("/V1/ITEMS/7", item) || !is("/PUBLIC/a", public)
	r.DecodesTwice = any(exports, "/v1/%2565xports")
	r.KeepsEmpty = !is("/v1//exports", exports) || !is("//v1/exports", exports) || !is("/v1/items/7//parts/3", part) ||
		any(part, "/v1/items//parts/3")
	r.KeepsDots = !is("/v1/x/../exports", exports) || !is("/v1/./exports", exports) ||
		!is("/v1/x/%2e%2e/exports", exports) || !is("/v1/%2e/exports", exports) ||
		any(item, "/v1/items/..", "/v1/items/%2e%2e", "/v1/items/.", "/v1/items/%2e") ||
		any(public, "/public/../v1/exports", "/public/%2e%2e/v1/exports")
	r.ComparesRaw = !is("/v1/%65xports", exports) || !is("/v1/items/%73earch", search) ||
		!is("/v1/items/s%65arch", search)
	r.TellsSlash = !is("/v1/exports/", exports) || !is("/v1/items/search/", search) || !is("/v1/items/7/", item) ||
		!is("/v1/items/", "GET /v1/items") ||
		any(public, "/public/", "/public")
	r.Replaces = any(item, "/v1/items/%E9", "/v1/items/%C0%AF", "/v1/items/%ff%fe")
	r.Query = parameters(func(pairs string) bool { return is(query(pairs), "GET /rpc?action=login") })
	r.Form = form(addr, window)
	return r
}

const redirected = "redirected"

// queries ask whether the parameter action has the value login; the names of others stand for what they are.
var queries = append([]string{
	"action=login", "action=x&action=login", "action=login&action=x", "x=1;action=login", "x=1?action=login",
	"%61ction=login", "action=log%69n", "action=login+", "action=login%20",
}, aliasQueries()...)

// spellings are the names that some server may take for action.
var spellings = []string{
	"[action]", "[action]x", "[action]z[0]", "[action].", "action[]", "action[0]", "action]", "]action", "[]action",
	"[[action]]", "action[x]y", "action]x", "action[", "Action", "ACTION",
	"+action", "action+", "action.", ".action", "_action", "action%00", "action%00x", "%2561ction",
}

func aliasQueries() (all []string) {
	for _, s := range spellings {
		all = append(all, s+"=login")
	}
	return all
}

func parameters(login func(pairs string) bool) (p kinds.Parameters) {
	if !login("action=login") {
		return kinds.Parameters{Unread: true}
	}
	switch first, last := login("action=login&action=x"), login("action=x&action=login"); {
	case first && last:
		p.Twice = "either"
	case first:
		p.Twice = "first"
	case last:
		p.Twice = "last"
	default:
		p.Twice = "both"
	}
	p.Semicolon = login("x=1;action=login")
	p.Question = login("x=1?action=login")
	p.RawName = !login("%61ction=login")
	p.RawValue = !login("action=log%69n")
	var aliases []string
	for _, s := range spellings {
		if login(s + "=login") {
			aliases = append(aliases, s)
		}
	}
	p.Aliases = strings.Join(aliases, " ")
	return p
}

// form asks the same of the field user of a form.
func form(addr string, window int) kinds.Parameters {
	var probes []request
	for _, pairs := range queries {
		body := strings.NewReplacer("action", "user", "%61ction", "us%65r", "%2561ction", "%2575ser", "Action", "User",
			"ACTION", "USER").Replace(pairs)
		probes = append(probes, request{method: "POST", target: "/login", form: body})
	}
	login := make(map[string]bool)
	for i, a := range ask(addr, window, probes) {
		twice := strings.Contains(queries[i], "=x")
		login[queries[i]] = a.reached() && (strings.Contains(a.user, "login") && !twice || a.user == "login")
	}
	return parameters(func(pairs string) bool { return login[pairs] })
}
