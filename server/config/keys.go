package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/identity"
)

// Keys says where API keys stand in a request and what they look like; see
// docs/api-keys.md.
type Keys struct {
	// Header is the header that holds a key and nothing else; "" is none.
	// Default X-Api-Key.
	Header string `yaml:"header"`

	// Bearer reads keys from Authorization: Bearer. Default true.
	Bearer bool `yaml:"bearer"`

	// Query is the query parameter that holds a key. Default none.
	Query string `yaml:"query"`

	// Strip takes keys out of what is passed on to the API. Default false.
	Strip bool `yaml:"strip"`

	// Prefixes begin the keys that are made here; new ones have the first.
	// Default hg_.
	Prefixes []string `yaml:"prefixes"`

	// Imported are the shapes of keys that were made elsewhere. Default none.
	Imported []KeyShape `yaml:"imported"`

	// MaxStale is how long keys are believed while the database cannot be
	// read; then they count as their addresses. Default 0: for ever.
	MaxStale time.Duration `yaml:"max_stale"`
}

// KeyShape is what keys look like that were made elsewhere.
type KeyShape struct {
	// Prefix is what such a key begins with; empty for keys that have none in common.
	Prefix string `yaml:"prefix"`

	// MinLength and MaxLength are of the whole key, in bytes.
	MinLength int `yaml:"min_length"`
	MaxLength int `yaml:"max_length"`
}

func defaultKeys() Keys {
	return Keys{Header: "X-Api-Key", Bearer: true, Prefixes: []string{"hg_"}}
}

// Sources are the places of keys, as identity takes them.
func (k Keys) Sources() identity.KeySources {
	return identity.KeySources{Header: k.Header, Bearer: k.Bearer, Query: k.Query}
}

// Formats are the shapes of keys, as identity takes them. The first is that of
// new keys.
func (k Keys) Formats() (all []identity.KeyFormat) {
	for _, prefix := range k.Prefixes {
		all = append(all, identity.KeyFormat{Prefix: prefix})
	}
	for _, s := range k.Imported {
		all = append(all, identity.KeyFormat{Prefix: s.Prefix, MinLength: s.MinLength, MaxLength: s.MaxLength})
	}
	return all
}

const maxKeyFormats = 8

// parameterName is what a query parameter may be called, so that its name has
// one spelling besides percent-encoded ones.
var parameterName = regexp.MustCompile("^[A-Za-z0-9_.~-]{1,32}$")

func (c *checker) keys(k Keys) {
	switch {
	case k.Header == "" && !k.Bearer && k.Query == "":
		c.wrong("api_keys.header", k.Header,
			"the name of a header, or api_keys.bearer or api_keys.query set: keys stand nowhere else")
	case k.Header == "":
	case !fieldName.MatchString(k.Header):
		c.wrong("api_keys.header", k.Header, "the name of a header such as X-Api-Key")
	case slices.ContainsFunc([]string{"Authorization", "Forwarded", "X-Forwarded-For"},
		func(taken string) bool { return strings.EqualFold(taken, k.Header) }):
		c.wrong("api_keys.header", k.Header,
			"a header of its own; api_keys.bearer reads keys from Authorization: Bearer")
	}
	if k.Query != "" && !parameterName.MatchString(k.Query) {
		c.wrong("api_keys.query", k.Query, "the name of a parameter: at most 32 letters, digits and _-.~")
	}
	if len(k.Prefixes) == 0 {
		c.wrong("api_keys.prefixes", "", "at least one, such as hg_: new keys begin with the first")
	}
	if n := len(k.Prefixes) + len(k.Imported); n > maxKeyFormats {
		c.wrong("api_keys.prefixes and api_keys.imported", fmt.Sprint(n),
			fmt.Sprintf("at most %d together", maxKeyFormats))
	}
	for i, prefix := range k.Prefixes {
		if prefix == "" || (identity.KeyFormat{Prefix: prefix}).Check() != nil {
			c.wrong(fmt.Sprintf("api_keys.prefixes[%d]", i), prefix,
				"1 to 32 letters, digits, _ and -, such as acme_live_")
		}
	}
	for i, s := range k.Imported {
		c.keyShape(fmt.Sprintf("api_keys.imported[%d]", i), s)
	}
	if k.MaxStale != 0 {
		c.duration("api_keys.max_stale", k.MaxStale, time.Second, 30*24*time.Hour)
	}
}

// keysBesideTokens wants what tells the two apart in Authorization: Bearer.
func (c *checker) keysBesideTokens(k Keys, t Tokens) {
	if !t.On() || !k.Bearer {
		return
	}
	for i, s := range k.Imported {
		if s.Prefix == "" {
			c.wrong(fmt.Sprintf("api_keys.imported[%d].prefix", i), "",
				"one, or api_keys.bearer: false: tokens are accepted there too, and nothing else tells the two apart")
		}
	}
}

func (c *checker) keyShape(field string, s KeyShape) {
	if s.Prefix != "" && (identity.KeyFormat{Prefix: s.Prefix}).Check() != nil {
		c.wrong(field+".prefix", s.Prefix, "at most 32 letters, digits, _ and -")
		return
	}
	least := max(identity.MinForeignKey, len(s.Prefix)+identity.MinForeignKey/2)
	c.between(field+".min_length", int64(s.MinLength), int64(least), identity.MaxKeyLength)
	c.between(field+".max_length", int64(s.MaxLength), int64(max(least, s.MinLength)), identity.MaxKeyLength)
}
