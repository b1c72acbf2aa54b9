package token_test

import (
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/headgate-io/headgate/server/token"
)

// BenchmarkVerify is what an uncached token costs, BenchmarkLibrary what
// go-jose takes of that. The tokens have about 600 bytes.
func BenchmarkVerify(b *testing.B) {
	for alg, c := range benchTokens() {
		b.Run(alg, func(b *testing.B) {
			v := newVerifier(b, &keySource{set: parseSet(b, []string{alg}, c.jwk)},
				func(o *token.Options) { o.Algorithms = []string{alg} })
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), c.token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLibrary(b *testing.B) {
	for alg, c := range benchTokens() {
		b.Run(alg, func(b *testing.B) {
			var key jose.JSONWebKey
			if err := key.UnmarshalJSON([]byte(c.jwk)); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				parsed, err := jose.ParseSignedCompact(c.token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(alg)})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := parsed.Verify(key.Key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRefuse is what tokens cost that are refused before their signature.
func BenchmarkRefuse(b *testing.B) {
	v := newVerifier(b, &keySource{set: parseSet(b, []string{"RS256"}, rsaJWK("k1", &rsaKey.PublicKey, ""))}, nil)
	cheap := func(kid, payload string) string {
		return b64([]byte(`{"alg":"RS256","kid":"`+kid+`"}`)) + "." + b64([]byte(payload)) + "." +
			strings.Repeat("A", 342)
	}
	var many strings.Builder
	for i := range 250 {
		many.WriteString(`"` + strings.Repeat("x", 12) + string(rune('a'+i%26)) + string(rune('a'+i/26)) + `":1,`)
	}
	for name, text := range map[string]string{
		"unknown kid":      cheap("k2", claims(nil)),
		"expired":          cheap("k1", claims(map[string]any{"exp": 1})),
		"8 KiB, one claim": cheap("k1", `{"x":"`+strings.Repeat("y", 5700)+`"}`),
		"8 KiB, 250 names": cheap("k1", "{"+many.String()+`"x":"`+strings.Repeat("y", 800)+`"}`),
		"8 KiB of nothing": strings.Repeat("x", 8192),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), text); err == nil {
					b.Fatal("it is believed")
				}
			}
		})
	}
}

type benchToken struct{ token, jwk string }

func benchTokens() map[string]benchToken {
	payload := claims(map[string]any{"scope": strings.Repeat("read write ", 8)})
	return map[string]benchToken{
		"RS256": {sign(`{"alg":"RS256","kid":"k1"}`, payload, rsaKey), rsaJWK("k1", &rsaKey.PublicKey, "")},
		"ES256": {sign(`{"alg":"ES256","kid":"k1"}`, payload, ecKey), ecJWK("k1", &ecKey.PublicKey, "")},
		"EdDSA": {sign(`{"alg":"EdDSA","kid":"k1"}`, payload, edKey), `{"kty":"OKP","crv":"Ed25519","kid":"k1","x":"` +
			b64(edPublic) + `"}`},
	}
}
