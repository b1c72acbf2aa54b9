package token_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"testing"

	"github.com/headgate-io/headgate/server/token"
)

// TestSaltIsAsLongAsTheHash: RFC 7518 section 3.5. A signature with another salt
// is sound RSASSA-PSS, and none of these algorithms.
func TestSaltIsAsLongAsTheHash(t *testing.T) {
	for alg, hash := range map[string]crypto.Hash{"PS256": crypto.SHA256, "PS384": crypto.SHA384,
		"PS512": crypto.SHA512} {
		v := newVerifier(t, &keySource{set: parseSet(t, []string{alg}, rsaJWK("k1", &rsaKey.PublicKey, ""))},
			func(o *token.Options) { o.Algorithms = []string{alg} })
		for salt, believed := range map[int]bool{
			// the longest there is room for
			hash.Size(): true, hash.Size() - 1: false, hash.Size() + 1: false, 20: false, 100: false,
			rsa.PSSSaltLengthAuto: false,
		} {
			input := b64([]byte(`{"alg":"`+alg+`","kid":"k1"}`)) + "." + b64([]byte(claims(nil)))
			h := hash.New()
			h.Write([]byte(input))
			signature, err := rsa.SignPSS(rand.Reader, rsaKey, hash, h.Sum(nil), &rsa.PSSOptions{SaltLength: salt})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := v.Verify(t.Context(), input+"."+b64(signature)); (err == nil) != believed {
				t.Errorf("%s with a salt of %d bytes: %v, want believed %v", alg, salt, err, believed)
			}
		}
	}
}
