package main

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/headgate-io/headgate/server/attack"
)

// issuer signs bearer tokens. Whoever attacks has its public key, and tokens of others that were
// good once or elsewhere.
type issuer struct {
	key *rsa.PrivateKey
	pub []byte // PEM
}

var theIssuer = sync.OnceValue(func() issuer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // the operating system has no randomness to give
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		panic(err) // an RSA key has this form
	}
	return issuer{key, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})}
})

const (
	issuerName = "https://issuer.example"
	audience   = "items-api"
	year2001   = 1000000000
	year2100   = 4102444800
)

// headgateTokens believes what the issuer signed, as docs/tokens.md has it.
var headgateTokens = setup{"Headgate", "tokens verified", "[tokens](../tokens.md)",
	func(l *lab, lim limit) (string, error) {
		dir, err := l.folder()
		if err != nil {
			return "", err
		}
		file := filepath.Join(dir, "issuer.pub")
		if err := os.WriteFile(file, theIssuer().pub, 0o600); err != nil {
			return "", err
		}
		settings := fmt.Sprintf("tokens:\n  key_files: [%s]\n  algorithms: [RS256]\n  issuer: %s\n  audiences: [%s]\n",
			file, issuerName, audience)
		return gateWith(l, settings, routes, [][]string{lim.rule("default"), lim.rule("UNKNOWN")})
	}}

// token is one for the i-th subject, signed by RS256, with some claims that differ.
func (s issuer) token(i int, differ map[string]any) string {
	input := encode64(map[string]any{"alg": "RS256", "typ": "JWT"}) + "." + encode64(claims(i, differ))
	sum := sha256.Sum256([]byte(input))
	signature, err := rsa.SignPKCS1v15(nil, s.key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err) // the key is large enough for the hash
	}
	return input + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func claims(i int, differ map[string]any) map[string]any {
	c := map[string]any{"iss": issuerName, "aud": audience, "sub": fmt.Sprint("user", i), "exp": year2100}
	for name, value := range differ {
		c[name] = value
	}
	return c
}

func encode64(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func bearer(name string, token func(i int) string) attack.Family {
	return attack.Family{Name: name, Make: func(r attack.Request, i int) attack.Request {
		return r.With(attack.Field{Name: "Authorization", Value: "Bearer " + token(i)})
	}}
}

// forgeries are tokens that only the issuer's own material makes possible.
func (s issuer) forgeries() []attack.Family {
	signed := func(name string, differ map[string]any) attack.Family {
		return bearer(name, func(i int) string { return s.token(i, differ) })
	}
	good := s.token(0, nil)
	return []attack.Family{
		signed("signed, and long expired", map[string]any{"exp": year2001}),
		signed("signed, and not valid before 2100", map[string]any{"nbf": year2100 - 1}),
		signed("signed for another API", map[string]any{"aud": "other-api"}),
		signed("signed by the issuer in another's name", map[string]any{"iss": "https://other.example"}),
		bearer("the public key as the secret of HS256", func(i int) string {
			input := encode64(map[string]any{"alg": "HS256", "typ": "JWT"}) + "." + encode64(claims(i, nil))
			mac := hmac.New(sha256.New, s.pub)
			mac.Write([]byte(input))
			return input + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
		}),
		bearer("another token's signature", func(i int) string {
			return encode64(map[string]any{"alg": "RS256", "typ": "JWT"}) + "." + encode64(claims(1+i, nil)) +
				good[len(good)-343:]
		}),
	}
}
