package token_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/token"
)

func block(kind string, der []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func pkix(key any) []byte {
	der, err := x509.MarshalPKIXPublicKey(key)
	return block("PUBLIC KEY", der, err)
}

func TestPEM(t *testing.T) {
	short, _ := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // to be refused
	p224, _ := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &rsaKey.PublicKey, rsaKey)
	private, _ := x509.MarshalPKCS8PrivateKey(rsaKey)
	for _, c := range []struct {
		name string
		text []byte
		algs []string
		want string // of the error; empty if there is a key
	}{
		{"public", pkix(&rsaKey.PublicKey), []string{"RS256"}, ""},
		{"PKCS 1", block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey), nil), []string{"RS256"}, ""},
		{"certificate", block("CERTIFICATE", cert, err), []string{"RS256"}, ""},
		{"two", append(pkix(&rsaKey.PublicKey), pkix(&otherRSA.PublicKey)...), []string{"RS256"}, ""},
		{"EC", pkix(&ecKey.PublicKey), []string{"ES256"}, ""},
		{"Ed25519", pkix(edPublic), []string{"EdDSA"}, ""},
		{"RSA for ES256", pkix(&rsaKey.PublicKey), []string{"ES256"}, "no algorithm of ES256 fits the key"},
		{"RSA for HS256", pkix(&rsaKey.PublicKey), []string{"HS256"}, "no algorithm of HS256 fits the key"},
		{"P-256 for ES384", pkix(&ecKey.PublicKey), []string{"ES384"}, "no algorithm of ES384 fits the key"},
		{"P-224", pkix(&p224.PublicKey), []string{"ES256"}, "no algorithm of ES256 fits the key"},
		{"1024 bits", pkix(&short.PublicKey), []string{"RS256"}, "1024 bits, want 2048 to 8192"},
		{"private", block("PRIVATE KEY", private, nil), []string{"RS256"}, "holds a private key"},
		{"private, old", block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey), nil), []string{"RS256"},
			"holds a private key"},
		{"other block", block("CERTIFICATE REQUEST", []byte{1}, nil), []string{"RS256"}, `"CERTIFICATE REQUEST"`},
		{"garbage", []byte("hello"), []string{"RS256"}, "no PEM block"},
		{"empty", []byte(" \n"), []string{"RS256"}, "is empty"},
		{"broken", block("PUBLIC KEY", []byte{1, 2, 3}, nil), []string{"RS256"}, "asn1"},
	} {
		keys, err := token.ParsePEM(c.text, c.algs)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) ||
			err == nil && len(keys) == 0 {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestSecrets(t *testing.T) {
	raw := []byte(strings.Repeat("secret! ", 4))
	for _, c := range []struct {
		name    string
		text    string
		encoded bool
		alg     string
		want    string
	}{
		{"raw", string(raw), false, "HS256", ""},
		{"raw with a line end", string(raw) + "\r\n", false, "HS256", ""},
		{"base64", base64.StdEncoding.EncodeToString(raw) + "\n", true, "HS256", ""},
		{"base64url", base64.RawURLEncoding.EncodeToString(raw), true, "HS256", ""},
		{"short", string(raw[1:]), false, "HS256", "31 bytes, want 32 or more"},
		{"short for the longest", string(raw), false, "HS512", "32 bytes, want 64 or more"},
		{"raw taken for base64", string(raw), true, "HS256", "is no base64"},
		{"for a public algorithm", string(raw), false, "RS256", "no algorithm of RS256 fits"},
	} {
		key, err := token.ParseSecret([]byte(c.text), c.encoded, []string{c.alg})
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "secret! ")) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if shown := fmt.Sprintf("%v %+v %#v %s", key, key, key, key); strings.Contains(shown, "secret!") ||
			strings.Contains(shown, "115") {
			t.Errorf("%s: the key prints as %s", c.name, shown)
		}
	}
}

// TestJWKSLeavesOutWhatIsOfNoUse reads a set as issuers publish them.
func TestJWKSLeavesOutWhatIsOfNoUse(t *testing.T) {
	good := rsaJWK("k1", &rsaKey.PublicKey, `,"use":"sig","alg":"RS256"`)
	offCurve := strings.Replace(ecJWK("e", &ecKey.PublicKey, ""), `"x":"`, `"x":"AAAA`, 1)
	set, err := token.ParseJWKS(jwks(good,
		rsaJWK("enc", &otherRSA.PublicKey, `,"use":"enc"`),
		rsaJWK("alg", &otherRSA.PublicKey, `,"alg":"RSA-OAEP"`),
		rsaJWK("other", &otherRSA.PublicKey, `,"alg":"PS256"`),
		rsaJWK(strings.Repeat("k", 257), &otherRSA.PublicKey, ""),
		rsaJWK("d", &otherRSA.PublicKey, `,"d":"`+b64(otherRSA.D.Bytes())+`","p":"`+b64(otherRSA.Primes[0].Bytes())+
			`","q":"`+b64(otherRSA.Primes[1].Bytes())+`"`),
		ecJWK("ec", &ecKey.PublicKey, ""), offCurve,
		`{"kty":"new","kid":"x"}`, `{"kid":"x"}`, `[]`, `7`, `{"kty":"RSA","kid":"x","n":"AQAB","e":"AQAB"}`,
		rsaJWK("twice", &otherRSA.PublicKey, `,"kid":"k9"`),
	), []string{"RS256"}, true)
	if err != nil || set.Len() != 1 || len(set.Ignored) != 13 {
		t.Fatalf("%v, %+v, want one key and 13 that are ignored", err, set)
	}
	v := newVerifier(t, &keySource{set: set}, nil)
	if _, err := v.Verify(context.Background(), sign(head, claims(nil), rsaKey)); err != nil {
		t.Error(err)
	}
	for _, why := range set.Ignored {
		if len(why) > 200 || strings.Contains(why, b64(otherRSA.D.Bytes())) {
			t.Errorf("ignored: %s", why)
		}
	}
}

// TestWhichKey holds that kid and alg decide, and how far.
func TestWhichKey(t *testing.T) {
	k1, k2 := rsaJWK("k1", &rsaKey.PublicKey, ""), rsaJWK("k2", &otherRSA.PublicKey, "")
	plain := nameless(1)[0]
	for _, c := range []struct {
		name   string
		keys   []string
		header string
		ok     bool
		missed int
	}{
		{"kid", []string{k1, k2}, `{"alg":"RS256","kid":"k1"}`, true, 0},
		{"kid of another key", []string{k1, k2}, `{"alg":"RS256","kid":"k2"}`, false, 0},
		{"kid nobody has", []string{k1, k2}, `{"alg":"RS256","kid":"k3"}`, false, 1},
		{"no kid, one key", []string{k1}, `{"alg":"RS256"}`, true, 0},
		{"no kid, two keys", []string{k1, k2}, `{"alg":"RS256"}`, false, 0},
		{"any kid, nameless key", []string{plain}, `{"alg":"RS256","kid":"k3"}`, true, 0},
		{"no kid, nameless key among others", []string{k2, plain}, `{"alg":"RS256"}`, true, 0},
		{"kid decides before nameless keys", []string{k2, plain}, `{"alg":"RS256","kid":"k2"}`, false, 0},
		{"escaped kid", []string{k1}, `{"alg":"RS256","kid":"k\u0031"}`, true, 0},
		{"alg no key has", []string{k1}, `{"alg":"PS256","kid":"k1"}`, false, 0},
	} {
		source := &keySource{set: parseSet(t, []string{"RS256"}, c.keys...)}
		v := newVerifier(t, source, nil)
		_, err := v.Verify(context.Background(), sign(c.header, claims(nil), rsaKey))
		if (err == nil) != c.ok || source.missed != c.missed {
			t.Errorf("%s: %v, %d missed", c.name, err, source.missed)
		}
	}
}
