package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/kinds"
)

// Endpoint is how request targets are read; see docs/servers.md. What is not set is as Server reads, or, without a
// server, as strict as it takes to be safe before each that was measured.
type Endpoint struct {
	// Server is the kind of the API's server, one that headgate doctor --help lists. Default not
	// known. It decides what is left out of what follows.
	Server string `yaml:"server"`

	// EncodedSlash says what %2F in a path is: refused (reject), a slash (decode), or a byte of a
	// segment (keep). Default reject, or as the server reads.
	EncodedSlash string `yaml:"encoded_slash"`

	// Params says what becomes of ;parameters in a path: reject, strip or keep. Default reject, or as
	// the server reads.
	Params string `yaml:"params"`

	// CaseInsensitive folds ASCII letters of paths. Default false, or as the server reads.
	CaseInsensitive *bool `yaml:"case_insensitive"`

	// AllowDoubleEncoding accepts %25 with two digits behind it. Default false.
	AllowDoubleEncoding bool `yaml:"allow_double_encoding"`

	// Refuse makes more targets invalid: repeated_slashes, dot_segments, unreserved_escapes,
	// bad_utf8, trailing_slash, other_case. A list, even an empty one, takes the place of the
	// default.
	Refuse []string `yaml:"refuse"`
}

// refusals are the names of what a profile refuses.
var refusals = map[string]endpoint.Refusal{
	"repeated_slashes":   endpoint.RefuseRepeatedSlashes,
	"dot_segments":       endpoint.RefuseDotSegments,
	"unreserved_escapes": endpoint.RefuseUnreservedEscapes,
	"bad_utf8":           endpoint.RefuseBadUTF8,
	"trailing_slash":     endpoint.RefuseTrailingSlash,
	"other_case":         endpoint.RefuseOtherCase,
}

// refusalNames are the keys of refusals, in the order of their values.
var refusalNames = []string{"repeated_slashes", "dot_segments", "unreserved_escapes", "bad_utf8",
	"trailing_slash", "other_case"}

// Profile returns the profile. What Complete would not accept is left out.
func (e Endpoint) Profile() endpoint.Profile {
	p := endpoint.Strictest()
	if k, err := kinds.Find(e.Server); err == nil {
		p = k.Profile()
	}
	p.AllowDoubleEncoding = e.AllowDoubleEncoding
	switch e.EncodedSlash {
	case "reject":
		p.EncodedSlash = endpoint.RejectEncodedSlash
	case "decode":
		p.EncodedSlash = endpoint.DecodeEncodedSlash
	case "keep":
		p.EncodedSlash = endpoint.KeepEncodedSlash
	}
	switch e.Params {
	case "reject":
		p.Params = endpoint.RejectParams
	case "strip":
		p.Params = endpoint.StripParams
	case "keep":
		p.Params = endpoint.KeepParams
	}
	if e.CaseInsensitive != nil {
		p.CaseInsensitive = *e.CaseInsensitive
		p.Refuse &^= endpoint.RefuseOtherCase
	}
	if e.Refuse != nil {
		p.Refuse = 0
	}
	for _, name := range e.Refuse {
		p.Refuse |= refusals[name]
	}
	return p
}

// EndpointOf returns what Profile would read as p, with every setting named.
func EndpointOf(p endpoint.Profile) Endpoint {
	e := Endpoint{
		EncodedSlash:        "reject",
		Params:              "reject",
		CaseInsensitive:     &p.CaseInsensitive,
		AllowDoubleEncoding: p.AllowDoubleEncoding,
		Refuse:              []string{},
	}
	switch p.EncodedSlash {
	case endpoint.DecodeEncodedSlash:
		e.EncodedSlash = "decode"
	case endpoint.KeepEncodedSlash:
		e.EncodedSlash = "keep"
	}
	switch p.Params {
	case endpoint.StripParams:
		e.Params = "strip"
	case endpoint.KeepParams:
		e.Params = "keep"
	}
	for _, name := range refusalNames {
		if p.Refuse&refusals[name] != 0 {
			e.Refuse = append(e.Refuse, name)
		}
	}
	return e
}

// Assumes says in a line what is assumed of the server behind.
func (e Endpoint) Assumes() string {
	if k, err := kinds.Find(e.Server); err == nil {
		return fmt.Sprintf("that it reads as %s (%s)", k.Name, k.Source())
	}
	return fmt.Sprintf("nothing, since endpoint.server names none: refused are %s",
		strings.Join(EndpointOf(e.Profile()).refused(), ", "))
}

// refused lists what a client may not write, in words of the settings.
func (e Endpoint) refused() (all []string) {
	if e.EncodedSlash == "reject" {
		all = append(all, "%2F")
	}
	if e.Params == "reject" {
		all = append(all, ";parameters")
	}
	return append(all, e.Refuse...)
}

func (c *checker) profile(e Endpoint) {
	if _, err := kinds.Find(e.Server); err != nil && e.Server != "" {
		c.wrong("endpoint.server", e.Server, "one of "+strings.Join(kinds.Names(), ", "))
	}
	if e.EncodedSlash != "" {
		c.oneOf("endpoint.encoded_slash", e.EncodedSlash, "reject", "decode", "keep")
	}
	if e.Params != "" {
		c.oneOf("endpoint.params", e.Params, "reject", "strip", "keep")
	}
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
