// Package kinds says how kinds of servers read requests, as eval/garden measured it.
package kinds

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/edits"
)

// Kind is a kind of server that may stand behind the gateway.
type Kind struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"` // with the settings that were measured
	Version string `json:"version"`
	Date    string `json:"date"` // when, such as 2026-11-22
	Reading
}

// Reading is how a server reads a request. Its zero value is a server that reads as [endpoint.Profile] does with
// params stripped: it decodes escapes once, removes dots, merges slashes, and takes a slash at the end for none.
type Reading struct {
	EncodedSlash Slashes `json:"encoded_slash"`
	KeepsParams  bool    `json:"keeps_params,omitempty"`  // ; is a byte like any other
	FoldsCase    bool    `json:"folds_case,omitempty"`    // /A is /a, at least for some routes
	TellsCase    bool    `json:"tells_case,omitempty"`    // /A is not /a, at least for some routes
	DecodesTwice bool    `json:"decodes_twice,omitempty"` // %2561 is a
	KeepsEmpty   bool    `json:"keeps_empty,omitempty"`   // // is not /
	KeepsDots    bool    `json:"keeps_dots,omitempty"`    // . and .. are names, at least when they are encoded
	ComparesRaw  bool    `json:"compares_raw,omitempty"`  // %61 is not a
	KeepsOthers  bool    `json:"keeps_others,omitempty"`  // %40 is not @
	TellsSlash   bool    `json:"tells_slash,omitempty"`   // another route may serve /a/ than /a
	Replaces     bool    `json:"replaces,omitempty"`      // bytes that are not UTF-8 become others

	Query Parameters `json:"query"`
	Form  Parameters `json:"form"`
}

// Parameters is how a server reads the parameters of a query, or the fields of a form.
type Parameters struct {
	Unread bool `json:"unread,omitempty"` // not at all
	// of two values it takes: first, last, both (a list), or either (a rule that one of them meets)
	Twice     string `json:"twice,omitempty"`
	Semicolon bool   `json:"semicolon,omitempty"` // ; separates parameters
	Question  bool   `json:"question,omitempty"`  // a second ? separates parameters
	PlusKept  bool   `json:"plus_kept,omitempty"` // + is not a space
	RawName   bool   `json:"raw_name,omitempty"`  // escapes in a name are compared as they are written
	RawValue  bool   `json:"raw_value,omitempty"` // escapes in a value are compared as they are written
	Aliases   string `json:"aliases,omitempty"`   // spellings of the name a that it takes for it, separated by spaces
}

// Slashes is what a server makes of %2F.
type Slashes string

const (
	Refuses Slashes = "refuses" // 400, 404, or a route that no endpoint has
	Decodes Slashes = "decodes" // to a slash that separates segments
	Keeps   Slashes = "keeps"   // within its segment
)

//go:embed kinds.json
var measured []byte

// All returns the kinds, in the order of the file that eval/garden writes.
var All = sync.OnceValue(func() []Kind {
	var all []Kind
	if err := json.Unmarshal(measured, &all); err != nil {
		panic("kinds.json: " + err.Error()) // our bug: a test reads it
	}
	return all
})

// Names returns what Find takes.
func Names() (names []string) {
	for _, k := range All() {
		names = append(names, k.Kind)
	}
	return names
}

// called are other names of kinds: of what is built on one, and routes as it does.
var called = map[string]string{"fastapi": "starlette", "spring-boot": "spring", "werkzeug": "flask"}

// instead is what to say for names that are no kind, since several run under them, or none was measured.
var instead = map[string]string{
	"node":   "express, express4, fastify or koa, whichever runs on it",
	"python": "flask, django or starlette, whichever runs on it",
	"java":   "spring, tomcat or jetty, whichever runs on it",
	"ruby":   unmeasured, "rails": unmeasured, "nestjs": unmeasured, "laravel": unmeasured, "aspnet": unmeasured,
	"dotnet": unmeasured, "phoenix": unmeasured, "quarkus": unmeasured, "actix": unmeasured, "axum": unmeasured,
	"fiber": unmeasured, "caddy": unmeasured, "traefik": unmeasured,
}

const unmeasured = "none, because it was not measured: without a kind, what servers read in different ways is refused"

// Find returns the kind of a name, or an error that lists the names.
func Find(name string) (Kind, error) {
	asked := strings.ToLower(name)
	if kind, ok := called[asked]; ok {
		asked = kind
	}
	if i := slices.IndexFunc(All(), func(k Kind) bool { return k.Kind == asked }); i >= 0 {
		return All()[i], nil
	}
	if want, ok := instead[asked]; ok {
		return Kind{}, fmt.Errorf("%q, want %s", name, want)
	}
	for _, near := range slices.Concat(Names(), slices.Sorted(maps.Keys(called))) {
		if edits.Distance(asked, near, 3) < 3 {
			return Kind{}, fmt.Errorf("%q, want perhaps %s; or another one of %s", name, near,
				strings.Join(Names(), ", "))
		}
	}
	return Kind{}, fmt.Errorf("%q, want one of %s", name, strings.Join(Names(), ", "))
}

// Source says where the facts are from.
func (k Kind) Source() string { return fmt.Sprintf("measured with %s on %s", k.Version, k.Date) }

// Profile returns the profile that understands as many spellings as are read in one way by the server.
func (r Reading) Profile() endpoint.Profile {
	p := endpoint.Profile{CaseInsensitive: r.FoldsCase && !r.TellsCase}
	switch {
	case r.EncodedSlash == Decodes:
		p.EncodedSlash = endpoint.DecodeEncodedSlash
	case r.EncodedSlash == Keeps && !r.ComparesRaw:
		p.EncodedSlash = endpoint.KeepEncodedSlash
	}
	p.Params = endpoint.StripParams
	if r.KeepsParams {
		p.Params = endpoint.KeepParams
	}
	for _, refuse := range []struct {
		needed bool
		one    endpoint.Refusal
	}{
		{r.KeepsEmpty, endpoint.RefuseRepeatedSlashes},
		{r.KeepsDots, endpoint.RefuseDotSegments},
		{r.NeedsPlain(), endpoint.RefuseUnreservedEscapes},
		{r.Replaces, endpoint.RefuseBadUTF8},
		{r.TellsSlash, endpoint.RefuseTrailingSlash},
		{r.FoldsCase && r.TellsCase, endpoint.RefuseOtherCase},
	} {
		if refuse.needed {
			p.Refuse |= refuse.one
		}
	}
	return p
}

// NeedsPlain reports whether letters must be written as themselves to be read in one way: in the path, or in the query.
func (r Reading) NeedsPlain() bool {
	return r.ComparesRaw || r.Query.RawName || r.Query.RawValue || r.Query.PlusKept
}
