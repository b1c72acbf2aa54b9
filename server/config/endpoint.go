package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/endpoint"
)

// Endpoint is the profile of the canonical form; see docs/endpoints.md.
type Endpoint struct {
	EncodedSlash        string `yaml:"encoded_slash"` // reject (default), decode, keep
	Params              string `yaml:"params"`        // strip (default), keep, reject
	CaseInsensitive     bool   `yaml:"case_insensitive"`
	AllowDoubleEncoding bool   `yaml:"allow_double_encoding"`

	// Refuse makes more targets invalid: repeated_slashes, dot_segments,
	// unreserved_escapes, bad_utf8, trailing_slash. Default none.
	Refuse []string `yaml:"refuse"`
}

// refusals are the names of what a profile refuses.
var refusals = map[string]endpoint.Refusal{
	"repeated_slashes":   endpoint.RefuseRepeatedSlashes,
	"dot_segments":       endpoint.RefuseDotSegments,
	"unreserved_escapes": endpoint.RefuseUnreservedEscapes,
	"bad_utf8":           endpoint.RefuseBadUTF8,
	"trailing_slash":     endpoint.RefuseTrailingSlash,
}

// refusalNames are the keys of refusals, in the order of their values.
var refusalNames = []string{"repeated_slashes", "dot_segments", "unreserved_escapes", "bad_utf8", "trailing_slash"}

// Profile returns the profile. What Complete would not accept is left out.
func (e Endpoint) Profile() endpoint.Profile {
	p := endpoint.Profile{CaseInsensitive: e.CaseInsensitive, AllowDoubleEncoding: e.AllowDoubleEncoding}
	switch e.EncodedSlash {
	case "decode":
		p.EncodedSlash = endpoint.DecodeEncodedSlash
	case "keep":
		p.EncodedSlash = endpoint.KeepEncodedSlash
	}
	switch e.Params {
	case "keep":
		p.Params = endpoint.KeepParams
	case "reject":
		p.Params = endpoint.RejectParams
	}
	for _, name := range e.Refuse {
		p.Refuse |= refusals[name]
	}
	return p
}

// EndpointOf returns what Profile would read as p.
func EndpointOf(p endpoint.Profile) Endpoint {
	e := Endpoint{EncodedSlash: "reject", Params: "strip", CaseInsensitive: p.CaseInsensitive, AllowDoubleEncoding: p.AllowDoubleEncoding}
	switch p.EncodedSlash {
	case endpoint.DecodeEncodedSlash:
		e.EncodedSlash = "decode"
	case endpoint.KeepEncodedSlash:
		e.EncodedSlash = "keep"
	}
	switch p.Params {
	case endpoint.KeepParams:
		e.Params = "keep"
	case endpoint.RejectParams:
		e.Params = "reject"
	}
	for _, name := range refusalNames {
		if p.Refuse&refusals[name] != 0 {
			e.Refuse = append(e.Refuse, name)
		}
	}
	return e
}

func (c *checker) profile(e Endpoint) {
	c.oneOf("endpoint.encoded_slash", e.EncodedSlash, "reject", "decode", "keep")
	c.oneOf("endpoint.params", e.Params, "strip", "keep", "reject")
	for i, name := range e.Refuse {
		field := fmt.Sprintf("endpoint.refuse[%d]", i)
		switch {
		case refusals[name] == 0:
			c.wrong(field, name, "one of "+strings.Join(refusalNames, ", "))
		case slices.Contains(e.Refuse[:i], name):
			c.wrong(field, name, "each name once")
		}
	}
}
