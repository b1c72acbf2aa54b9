package token_test

import (
	"context"
	"encoding/base64"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/token"
)

var fuzzSecret = []byte(strings.Repeat("secret! ", 4))

// FuzzVerify holds the verifier against golang-jwt: it never panics, and
// believes nothing that the other one does not, nor of somebody else. The
// header and the payload are signed for the fuzzer, so that it reaches what
// stands behind the signature; the text is tried as it is, too.
func FuzzVerify(f *testing.F) {
	f.Add(`{"alg":"HS256","kid":"k1"}`, claims(nil), "")
	f.Add(`{"alg":"HS256"}`, claims(map[string]any{"aud": []string{"x", "api"}, "nbf": 1.5}), ".")
	f.Add(`{"typ":"JWT","alg":"HS256"}`, `{"iss":"https://issuer.example","aud":"api","sub":"\u0061","exp":9999999999}`,
		"=")
	for _, a := range []string{`{"alg":"none"}`, `{"alg":"HS256","crit":["x"]}`, `{"alg":"HS256","alg":"none"}`,
		`{"alg":"RS256"}`} {
		f.Add(a, claims(nil), "AAAA")
	}
	for _, p := range []string{`{"sub":"a","sub":"b"}`, `{"SUB":"a"}`,
		strings.Replace(claims(nil), "alice", `\ud800`, 1), strings.Repeat("[", 500)} {
		f.Add(`{"alg":"HS256","kid":"k1"}`, p, "\n")
	}
	set, err := token.ParseJWKS(jwks(`{"kty":"oct","kid":"k1","k":"`+b64(fuzzSecret)+`"}`), []string{"HS256"}, false)
	if err != nil {
		f.Fatal(err)
	}
	v := newVerifier(f, &keySource{set: set}, func(o *token.Options) { o.Algorithms = []string{"HS256"} })
	reference := jwt.NewParser(jwt.WithValidMethods([]string{"HS256"}), jwt.WithIssuer("https://issuer.example"),
		jwt.WithAudience("api"),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithTimeFunc(func() time.Time { return now }))
	f.Fuzz(func(t *testing.T, header, payload, tail string) {
		signed := sign(header, payload, fuzzSecret)
		for _, text := range []string{signed, signed + tail, header, payload,
			b64([]byte(header)) + "." + b64([]byte(payload)) + "." + tail} {
			got, err := v.Verify(context.Background(), text)
			if err != nil {
				if !reflect.DeepEqual(got, identity.Claims{}) {
					t.Fatalf("%q: claims %+v beside %v", text, got, err)
				}
				continue
			}
			var other jwt.RegisteredClaims
			parsed, err := reference.ParseWithClaims(text, &other,
				func(*jwt.Token) (any, error) { return fuzzSecret, nil })
			if err != nil || !parsed.Valid || other.Subject != got.Subject {
				t.Fatalf("%q: %+v is believed; the reference: %q, %v", text, got, other.Subject, err)
			}
			if got.Subject == "" || len(got.Subject) > 256 || !got.Until.After(now) {
				t.Fatalf("%q: %+v", text, got)
			}
			if strings.Count(text, ".") != 2 ||
				base64.RawURLEncoding.EncodeToString(signaturePart(text)) != text[strings.LastIndex(text, ".")+1:] {
				t.Fatalf("%q is believed, and is not the one spelling of its token", text)
			}
		}
	})
}

// FuzzJWKS holds that no set of keys makes the reader panic, and that what it
// makes of one is within the limits.
func FuzzJWKS(f *testing.F) {
	f.Add(oneKey)
	f.Add(jwks(ecJWK("e", &ecKey.PublicKey, `,"use":"sig"`), `{"kty":"OKP","crv":"Ed25519","x":"`+b64(edPublic)+`"}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQ","e":"AQ","x5c":["AA"]}]}`))
	f.Add([]byte(strings.Repeat(`{"keys":[`, 100)))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := token.ParseJWKS(data, []string{"RS256", "ES256", "EdDSA"}, true)
		if (set == nil) != (err != nil) || set != nil && (set.Len() == 0 || set.Len() > 100) {
			t.Fatalf("%+v, %v", set, err)
		}
	})
}
