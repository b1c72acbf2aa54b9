package config_test

import (
	"strings"
	"testing"
	"time"
)

// What cannot be read is said in the words of settings, all of it at once.
func TestReadSaysWhatWouldBeRight(t *testing.T) {
	for text, want := range map[string]string{
		"tokens: {leeway: abc}":                          `line 1: tokens.leeway is "abc", want a duration such as 250ms, 10s or 1h30m`,
		"refresh: 5":                                     `line 1: refresh is "5", want a duration such as 250ms, 10s or 1h30m`,
		"tokens: [a]":                                    `line 1: tokens is a list, want settings inside it, each as NAME: VALUE`,
		"client_address: trusted_count":                  `line 1: client_address is "trusted_count", want settings inside it, each as NAME: VALUE`,
		"api_keys: {prefixes: hg_}":                      `line 1: api_keys.prefixes is "hg_", want a list: [hg_]`,
		"api_keys:\n  imported:\n  - {min_length: long}": `line 3: api_keys.imported[0].min_length is "long", want a whole number`,
		"db_notify: perhaps\ndb_tabel: x":                `line 1: db_notify is "perhaps", want true or false` + "\n" + `line 2: db_tabel is no setting, did you mean db_table?`,
		"max_waiters: 1.5":                               `line 1: max_waiters is "1.5", want a whole number`,
		"costs: {GET /a: 1e-3}":                          `line 1: costs[GET /a] is "1e-3", want a whole number`,
		"ipv6_prefix: 64.0":                              `line 1: ipv6_prefix is "64.0", want a whole number`,
		"adaptive: [{floor: 10%}]":                       `line 1: adaptive[0].floor is "10%", want a number such as 0.1`,
		"headers: {ratelimit: perhaps}":                  `line 1: headers.ratelimit is "perhaps", want true or false`,
		"listen: [a]":                                    `line 1: listen is a list, want a text`,
		"costs: {POST /v1/a: dear}":                      `line 1: costs[POST /v1/a] is "dear", want a whole number`,
		"costs: [a]":                                     `line 1: costs is a list, want settings inside it, each as NAME: VALUE`,
		"listn: a":                                       `line 1: listn is no setting, did you mean listen?`,
		"tls: {cert: a}":                                 `line 1: tls.cert is no setting, did you mean tls.cert_file?`,
		"wibble: a":                                      `line 1: wibble is no setting; docs/settings.md lists them`,
		"upstream: http://h\ntls:\n\tcert_file: a\n":     "line 3: begins with a tab, want spaces",
		"upstream: http://h\nadaptive:\n- endpoints: [GET /v1/items/{id}]\n": `line 3: between brackets or braces a text with { in it wants quotes, such as ["GET /v1/items/{id}"]`,
		"costs: {GET /v1/items/{id}: 3}":                                     `line 1: between brackets or braces a text`,
		"upstream_health: {every: 5s}":                                       `line 1: upstream_health.every is no setting, want one of path, interval, timeout`,
		"costs: {a: {b: 1}\n":                                                `did not find expected`,
		"- listen":                                                           `line 1: the file is a list, want settings, each as NAME: VALUE`,
		"listn: a\nipv6_prefix: x\n":                                         `line 1: listn is no setting, did you mean listen?` + "\n" + `line 2: ipv6_prefix is "x", want a whole number`,
		"listen: a\nlisten: b\nrefresh: x":                                   `line 2: mapping key "listen" already defined at line 1`,
		"a: &a [*a]":                                                         `line 1: a is no setting; docs/settings.md lists them`,
		"trusted_proxies: &a [*a]":                                           `config`,
		"listen: " + strings.Repeat("[", 80) + strings.Repeat("]", 80):       `line 1: listen is a list, want a text`,
	} {
		_, err := read(t, text)
		if err == nil {
			t.Errorf("%q: Read = %v, want %q", text, err, want)
			continue
		}
		for line := range strings.SplitSeq(want, "\n") {
			if !strings.Contains(err.Error(), line) {
				t.Errorf("%q: Read = %v, want %q", text, err, line)
			}
		}
		for _, goWord := range []string{"unmarshal", "time.Duration", "[]string", "!!", "config.C"} {
			if strings.Contains(err.Error(), goWord) {
				t.Errorf("%q: Read = %v, which speaks of Go's types", text, err)
			}
		}
	}
}

// docs/settings.md says where a zero that is written means zero, and where it
// means the default.
func TestZerosThatAreWritten(t *testing.T) {
	c, err := read(t, whole+`
tokens: {key_files: [a], algorithms: [RS256], issuer: a, audiences: [b], leeway: 0s}
identifiers: [{endpoint: POST /v1/login, field: email, max_depth: 0, read_timeout: 0s}]
`)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if i := c.Identifiers[0]; c.Tokens.Leeway != 0 || i.MaxDepth != 8 || i.ReadTimeout != 10*time.Second {
		t.Errorf("tokens.leeway = %v, identifiers[0] = %+v, want 0, and the defaults of the entry", c.Tokens.Leeway, i)
	}
	c, err = read(t, whole+"refresh: 0s\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Complete(); err == nil || !strings.Contains(err.Error(), `refresh is "0s"`) {
		t.Errorf("refresh: 0s: Complete = %v, want it refused", err)
	}
}
