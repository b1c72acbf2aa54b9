package token_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/token"
)

// edJWK is a key as directories have it, and its thumbprint.
func edJWK(key ed25519.PublicKey, more string) (jwk, thumbprint string) {
	text := `{"crv":"Ed25519","kty":"OKP","x":"` + b64(key) + `"`
	sum := sha256.Sum256([]byte(text + "}"))
	return text + more + "}", b64(sum[:])
}

func TestParseDirectory(t *testing.T) {
	whole, name := edJWK(edPublic, "")
	for title, c := range map[string]struct {
		text    string
		keys    int
		ignored string
		fault   string
	}{
		"one":           {`{"keys":[` + whole + `]}`, 1, "", ""},
		"one twice":     {`{"keys":[` + whole + `,` + whole + `]}`, 1, "", ""},
		"none":          {`{"keys":[]}`, 0, "", ""},
		"other members": {`{"keys":[` + whole + `],"purpose":"ai"}`, 1, "", ""},
		"with its name": {`{"keys":[` + first(edJWK(edPublic, `,"kid":"`+name+`","use":"sig","nbf":1,"exp":2`)) +
			`]}`, 1, "", ""},
		"with another's":   {`{"keys":[` + first(edJWK(edPublic, `,"kid":"x"`)) + `]}`, 1, "", ""},
		"its algorithm":    {`{"keys":[` + first(edJWK(edPublic, `,"alg":"ed25519"`)) + `]}`, 1, "", ""},
		"as JOSE has it":   {`{"keys":[` + first(edJWK(edPublic, `,"alg":"EdDSA"`)) + `]}`, 1, "", ""},
		"as RFC 9864 does": {`{"keys":[` + first(edJWK(edPublic, `,"alg":"Ed25519"`)) + `]}`, 1, "", ""},
		"another use":      {`{"keys":[` + first(edJWK(edPublic, `,"use":"enc"`)) + `]}`, 0, "its use is not sig", ""},
		"another one": {`{"keys":[` + first(edJWK(edPublic, `,"alg":"rsa-pss-sha512"`)) + `]}`, 0,
			`its alg is "rsa-pss-sha512"`, ""},
		"RSA": {`{"keys":[` + rsaJWK("k", &rsaKey.PublicKey, "") + `,` + whole + `]}`, 1, "keys[0]: ", ""},
		"private": {`{"keys":[` + first(edJWK(edPublic, `,"d":"`+b64(edKey.Seed())+`"`)) + `]}`, 0,
			"private key", ""},
		"a secret":    {`{"keys":[{"kty":"oct","k":"AAAA"}]}`, 0, "keys[0]: ", ""},
		"a short key": {`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AAAA"}]}`, 0, "keys[0]: ", ""},
		"no keys":     {`{}`, 0, "", "no directory of keys"},
		"null":        {`{"keys":null}`, 0, "", "no directory of keys"},
		"no JSON":     {`<html>`, 0, "", "no directory of keys"},
		"a list":      {`[` + whole + `]`, 0, "", "no directory of keys"},
		"too many":    {`{"keys":[` + strings.Repeat("{},", 100) + `{}]}`, 0, "", "has 101 keys"},
	} {
		set, err := token.ParseDirectory([]byte(c.text))
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v, want %q", title, err, c.fault)
			}
			continue
		}
		if err != nil || set.Len() != c.keys || !strings.Contains(strings.Join(set.Ignored, ";"), c.ignored) {
			t.Errorf("%s: %v, %v, want %d keys, ignored %q", title, set, err, c.keys, c.ignored)
			continue
		}
		if key, ok := set.Published(name); ok != (c.keys == 1) || ok && !key.Equal(edPublic) {
			t.Errorf("%s: Published = %v, %v", title, key, ok)
		}
		if _, ok := set.Published("x"); ok {
			t.Errorf("%s: a name that a key gives itself finds it", title)
		}
	}
}

func first(jwk, _ string) string { return jwk }

// TestAnEmptyDirectoryWithdrawsKeys: what a directory says replaces what it said; one that is away leaves it.
func TestAnEmptyDirectoryWithdrawsKeys(t *testing.T) {
	whole, name := edJWK(edPublic, "")
	server := &issuer{}
	at := httptest.NewServer(server)
	defer at.Close()
	var c clock
	s := newSource(t, token.SourceOptions{JWKSURL: at.URL, Directory: true, Now: c.now, MaxStale: time.Hour})
	for i, step := range []struct {
		answer http.HandlerFunc
		good   bool
		there  bool
	}{
		{func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept"); got != "application/http-message-signatures-directory+json" {
				t.Errorf("it is asked for %s", got)
			}
			_, _ = w.Write([]byte(`{"keys":[` + whole + `]}`))
		}, true, true},
		{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, false, true},
		{func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, false, true},
		{serves([]byte("<html>")), false, true},
		{serves([]byte(`{"keys":[]}`)), true, false},
		{serves([]byte(`{"keys":[` + whole + `]}`)), true, true},
	} {
		server.set(step.answer)
		err := s.Start(t.Context())
		if _, there := s.Set().Published(name); (err == nil) != step.good || there != step.there {
			t.Errorf("step %d: %v, the key is there %t, want %t, %t", i, err, there, step.good, step.there)
		}
	}
	c.advance(time.Hour + 1)
	if s.Set() != nil {
		t.Error("keys count after MaxStale")
	}
}

func FuzzParseDirectory(f *testing.F) {
	whole, _ := edJWK(edPublic, `,"alg":"ed25519"`)
	f.Add([]byte(`{"keys":[` + whole + `]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := token.ParseDirectory(data)
		if err == nil && set.Len()+len(set.Ignored) > 100 {
			t.Errorf("%d keys and %d ignored", set.Len(), len(set.Ignored))
		}
	})
}
