package config_test

import (
	"strings"
	"testing"
	"time"
)

func TestTokensAndTLSAreChecked(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"keys missing": {"tokens: {issuer: me}", "tokens is \"\", want where the keys come from"},
		"two sources": {"tokens: {jwks_file: a, key_files: [b]}",
			`tokens is "2 sources of keys", want one of`},
		"no algorithm": {"tokens: {jwks_file: a}", "tokens.algorithms is empty"},
		"none":         {"tokens: {jwks_file: a, algorithms: [none]}", `tokens.algorithms holds "none"`},
		"secrets beside public": {"tokens: {jwks_file: a, algorithms: [RS256, HS256]}",
			"a public key could be taken for a secret"},
		"no issuer":      {"tokens: {jwks_file: a}", `tokens.issuer is "", want the iss of your tokens`},
		"no audience":    {"tokens: {jwks_file: a}", `tokens.audiences is "", want the names of this API`},
		"empty audience": {`tokens: {jwks_file: a, audiences: [""]}`, `tokens.audiences is "", want names`},
		"plain HTTP": {"tokens: {jwks_url: 'http://issuer.example/keys'}",
			`tokens.jwks_url is "http://issuer.example/keys", want https`},
		"password": {"tokens: {jwks_url: 'https://u:secret@issuer.example/'}",
			"no user name or password"},
		"claim": {"tokens: {jwks_file: a, project_claim: a..b}",
			`tokens.project_claim is "a..b", want the name of a claim`},
		"no claim":  {"tokens: {jwks_file: a, subject_claim: ''}", `tokens.subject_claim is "", want`},
		"leeway":    {"tokens: {jwks_file: a, leeway: 1h}", `tokens.leeway is "1h0m0s", want 0s to 10m0s`},
		"cache TTL": {"tokens: {jwks_file: a, cache_ttl: 1h}", `tokens.cache_ttl is "1h0m0s"`},
		"cache size": {"tokens: {jwks_file: a, cache_size: 0}",
			`tokens.cache_size is "0", want 1 to 4194304`},
		"failures": {"tokens: {jwks_file: a, failures: -2}",
			`tokens.failures is "-2", want 1 to 1048576`},
		"rate of failures": {"tokens: {jwks_file: a, failures_per_second: 0}",
			`tokens.failures_per_second is "0"`},
		"encoding": {"tokens: {secret_files: [a], secret_encoding: hex}",
			`tokens.secret_encoding is "hex", want raw or base64`},
		"proofs of what": {"tokens: {jwks_file: a, dpop: maybe}", `tokens.dpop is "maybe", want off, bound or required`},
		"proofs without an origin": {"tokens: {jwks_file: a, dpop: bound}",
			`origins is "", want the URLs under which clients know this API`},
		"proofs without tokens": {"tokens: {dpop: bound}", `tokens.dpop is "bound", want off, or where the keys`},
		"algorithms of proofs": {"tokens: {jwks_file: a, dpop_algorithms: [HS256]}",
			`tokens.dpop_algorithms holds "HS256", want RS256`},
		"window of proofs": {"tokens: {jwks_file: a, dpop_window: 2h}", `tokens.dpop_window is "2h0m0s", want 1s to 1h0m0s`},
		"an origin":        {"origins: [https://api.example/v1]", `origins[0] is "https://api.example/v1", want https://HOST`},
		"many origins": {"origins: [" + strings.Repeat("https://api.example, ", 9) + "]",
			`origins is "9 of them", want at most 8`},
		"key without cert": {"tls: {key_file: a}", `tls.cert_file is ""`},
		"cert without key": {"tls: {cert_file: a}", `tls.key_file is ""`},
		"clients without CA": {"tls: {cert_file: a, key_file: b, client_auth: require}",
			`tls.client_ca_file is ""`},
		"CA without clients": {"tls: {cert_file: a, key_file: b, client_ca_file: c}",
			`tls.client_auth is "none", want request or require`},
		"clients, no TLS": {"tls: {client_auth: request}", `tls.cert_file is ""`},
		"how clients are asked": {"tls: {client_auth: maybe}",
			`tls.client_auth is "maybe", want none, request or require`},
		"how clients are called": {"tls: {client_name: ip}", `tls.client_name is "ip"`},
	} {
		conf, err := read(t, whole+c.text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := conf.Complete(); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: Complete = %v, want %q", name, err, c.want)
		}
	}
}

func TestTokensByDefault(t *testing.T) {
	conf, err := read(t,
		whole+"tokens: {jwks_url: 'https://issuer.example/keys', algorithms: [RS256], issuer: '*', audiences: ['*']}")
	if err != nil {
		t.Fatal(err)
	}
	if err := conf.Complete(); err != nil {
		t.Fatal(err)
	}
	if c := conf.Tokens; c.Leeway != 30*time.Second || !c.RequireExp || c.SubjectClaim != "sub" ||
		c.CacheTTL != 30*time.Second || c.Failures != 32 || conf.TLS.On() {
		t.Errorf("%+v", c)
	}
}
