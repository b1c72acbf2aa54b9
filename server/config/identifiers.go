package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/body"
)

// Identifier says where the requests of one endpoint name what they try to be,
// for rules by identifier. Endpoint and Field are required.
type Identifier struct {
	// Endpoint is one of openapi or routes: "POST /v1/login".
	Endpoint string `yaml:"endpoint"`

	// Field is the name of the field: "email"; in JSON also a path, "user.email".
	Field string `yaml:"field"`

	// Format is what bodies are read as: json (default), form or any, which goes
	// by the Content-Type.
	Format string `yaml:"format"`

	// MaxBytes is the longest body that is read. Default 8KiB.
	MaxBytes Bytes `yaml:"max_bytes"`

	// MaxDepth is how many objects and arrays may be open at once. Default 8.
	MaxDepth int `yaml:"max_depth"`

	// MaxLength is the longest identifier in bytes. Default 256.
	MaxLength int `yaml:"max_length"`

	// Normalise lists which spellings are one identifier. Default trim, case,
	// width, invisible, final_dot and nfkc.
	Normalise []string `yaml:"normalise"`

	// ReadTimeout is how long a body may take to arrive. Default 10s.
	ReadTimeout time.Duration `yaml:"read_timeout"`

	// Unparsable says what happens to a request whose identifier cannot be
	// read: strict (default) limits it with all others of its kind, reject
	// answers 400.
	Unparsable string `yaml:"unparsable"`

	// Count says which requests the endpoint's rules count: all (default), or
	// failures.
	Count string `yaml:"count"`

	// FailureStatuses are the answers below 500 that are failures. Default all
	// but 200 to 299.
	FailureStatuses []int `yaml:"failure_statuses"`
}

// NFKC is the one name in Normalise that package body does not know.
const NFKC = "nfkc"

// Spellings returns what Normalise names, and whether NFKC is among it.
func (i Identifier) Spellings() (all body.Spelling, nfkc bool, err error) {
	if len(i.Normalise) == 0 {
		return body.DefaultSpellings, true, nil
	}
	var names []string
	for _, name := range i.Normalise {
		if name == NFKC {
			nfkc = true
		} else {
			names = append(names, name)
		}
	}
	all, err = body.ParseSpellings(names)
	if all&body.Exact != 0 && (nfkc || all != body.Exact) {
		err = errors.Join(err, errors.New("exact"))
	}
	if nfkc && len(names) == 0 {
		all = body.Exact // and nothing else
	}
	return all, nfkc, err
}

// identifiers checks the list and fills in what its entries leave out; whether
// the registry has the endpoints is found when it is built.
func (c *checker) identifiers(list []Identifier) {
	for n := range list {
		i := &list[n]
		field := func(name string) string { return fmt.Sprintf("identifiers[%d].%s", n, name) }
		c.text(field("endpoint"), i.Endpoint, "an endpoint such as POST /v1/login")
		if slices.ContainsFunc(list[:n], func(o Identifier) bool { return o.Endpoint == i.Endpoint }) {
			c.wrong(field("endpoint"), i.Endpoint, "each endpoint once")
		}
		fill(&i.Format, "json")
		fill(&i.Unparsable, "strict")
		fill(&i.Count, "all")
		fill(&i.MaxBytes, body.DefaultBytes)
		fill(&i.MaxDepth, body.DefaultDepth)
		fill(&i.MaxLength, body.DefaultLength)
		fill(&i.ReadTimeout, 10*time.Second)
		c.oneOf(field("format"), i.Format, "json", "form", "any")
		c.oneOf(field("unparsable"), i.Unparsable, "strict", "reject")
		c.oneOf(field("count"), i.Count, "all", "failures")
		c.size(field("max_bytes"), i.MaxBytes, 64, body.MostBytes)
		c.between(field("max_depth"), int64(i.MaxDepth), 1, body.MostDepth)
		c.between(field("max_length"), int64(i.MaxLength), 1, body.MostLength)
		c.duration(field("read_timeout"), i.ReadTimeout, time.Millisecond, 10*time.Minute)
		var format body.Format
		_ = format.UnmarshalText([]byte(i.Format)) // checked above
		if _, err := body.New(body.Field{Name: i.Field, Format: format}); err != nil {
			c.wrong(field("field"), i.Field,
				"the name of a field such as email, or in json a path of up to 4 such as user.email")
		}
		if _, _, err := i.Spellings(); err != nil {
			c.wrong(field("normalise"), strings.Join(i.Normalise, ", "),
				"names among trim, case, width, invisible, final_dot, nfkc, plus_tag, gmail and ascii, or exact alone")
		}
		for _, status := range i.FailureStatuses {
			c.between(field("failure_statuses"), int64(status), 200, 499)
		}
		if len(i.FailureStatuses) > 0 && i.Count != "failures" {
			c.wrong(field("count"), i.Count, "failures, since failure_statuses says which")
		}
	}
}

func fill[T comparable](value *T, otherwise T) {
	if *value == *new(T) {
		*value = otherwise
	}
}
