package token_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/token"
)

// now is when the tests take place.
var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// keySource is a token.KeySource of one set, and counts who misses a key.
type keySource struct {
	set    *token.Set
	missed int
}

func (k *keySource) Set() *token.Set { return k.set }
func (k *keySource) Missing()        { k.missed++ }

var (
	rsaKey, _          = rsa.GenerateKey(rand.Reader, 2048)
	otherRSA, _        = rsa.GenerateKey(rand.Reader, 2048)
	ecKey, _           = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	edPublic, edKey, _ = ed25519.GenerateKey(rand.Reader)
)

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func rsaJWK(kid string, key *rsa.PublicKey, more string) string {
	return fmt.Sprintf(`{"kty":"RSA","kid":%q,"n":%q,"e":"AQAB"%s}`, kid, b64(key.N.Bytes()), more)
}

func ecJWK(kid string, key *ecdsa.PublicKey, more string) string {
	point, err := key.Bytes()
	if err != nil {
		panic(err)
	}
	half := len(point) / 2
	return fmt.Sprintf(`{"kty":"EC","kid":%q,"crv":%q,"x":%q,"y":%q%s}`, kid, key.Params().Name, b64(point[1:1+half]),
		b64(point[1+half:]), more)
}

func jwks(keys ...string) []byte {
	text := `{"keys":[`
	for i, key := range keys {
		if i > 0 {
			text += ","
		}
		text += key
	}
	return []byte(text + "]}")
}

// sign makes a token of exactly this header and payload.
func sign(header, payload string, key any) string {
	input := b64([]byte(header)) + "." + b64([]byte(payload))
	return input + "." + b64(signature(input, key, false))
}

func signPSS(header, payload string, key *rsa.PrivateKey) string {
	input := b64([]byte(header)) + "." + b64([]byte(payload))
	return input + "." + b64(signature(input, key, true))
}

func signature(input string, key any, pss bool) []byte {
	sum := sha256.Sum256([]byte(input))
	var out []byte
	var err error
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if pss {
			out, err = rsa.SignPSS(rand.Reader, k, crypto.SHA256, sum[:], nil)
		} else {
			out, err = rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:])
		}
	case *ecdsa.PrivateKey:
		r, s, e := ecdsa.Sign(rand.Reader, k, sum[:])
		out, err = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...), e
	case ed25519.PrivateKey:
		out = ed25519.Sign(k, []byte(input))
	case []byte:
		mac := hmac.New(sha256.New, k)
		mac.Write([]byte(input))
		out = mac.Sum(nil)
	default:
		panic("no such key")
	}
	if err != nil {
		panic(err)
	}
	return out
}

// claims is a payload that passes, with the changes; nil removes a claim.
func claims(changes map[string]any) string {
	all := map[string]any{
		"iss": "https://issuer.example", "aud": "api", "sub": "alice",
		"iat": now.Unix() - 60, "exp": now.Unix() + 300,
	}
	for name, value := range changes {
		if value == nil {
			delete(all, name)
		} else {
			all[name] = value
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func parseSet(t testing.TB, algorithms []string, keys ...string) *token.Set {
	t.Helper()
	set, err := token.ParseJWKS(jwks(keys...), algorithms, false)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// newVerifier returns a Verifier of the tests' issuer with the changes of edit.
func newVerifier(t testing.TB, keys token.KeySource, edit func(*token.Options)) *token.Verifier {
	t.Helper()
	o := token.Options{
		Keys: keys, Algorithms: []string{"RS256"}, Issuer: "https://issuer.example", Audiences: []string{"api"},
		Now: func() time.Time { return now },
	}
	if edit != nil {
		edit(&o)
	}
	v, err := token.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
