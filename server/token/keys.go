package token

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/headgate-io/headgate/internal/clip"
)

// Limits on a set of keys.
const (
	maxKeys     = 100
	maxNameless = 4 // keys without an ID that one token is tried with
	minRSA      = 2048
	maxRSA      = 8192 // bits: a check of 16384 takes a millisecond
)

// hmacBytes is the length of each HMAC, which is also the least its secret may
// have (RFC 7518 section 3.2).
var hmacBytes = map[string]int{"HS256": 32, "HS384": 48, "HS512": 64}

var publicAlgorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
	"ES512", "EdDSA"}

// CheckAlgorithms says what is wrong with a list of algorithms, or nothing.
func CheckAlgorithms(algorithms []string) error {
	if len(algorithms) == 0 {
		return errors.New("is empty, want those that your tokens are signed with, such as RS256")
	}
	secret, public := 0, 0
	for _, alg := range algorithms {
		switch {
		case hmacBytes[alg] > 0:
			secret++
		case slices.Contains(publicAlgorithms, alg):
			public++
		default:
			return fmt.Errorf("holds %q, want %s, HS256, HS384 or HS512", alg, strings.Join(publicAlgorithms, ", "))
		}
	}
	if secret > 0 && public > 0 {
		return fmt.Errorf("is %q, want HS256, HS384, HS512 alone: with a public algorithm beside them, a public "+
			"key could be taken for a secret", algorithms)
	}
	return nil
}

// Key is a key that tokens may be signed under. It prints without the key.
type Key struct {
	id         string   // kid; empty if it has none
	algorithms []string // that it may be used with
	key        any      // *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey or the []byte of a secret
}

// String shows the ID alone.
func (k *Key) String() string { return fmt.Sprintf("token.Key %q", k.id) }

// Format shows the ID alone, whatever the verb.
func (k *Key) Format(f fmt.State, _ rune) { fmt.Fprint(f, k.String()) }

// KeySource tells which keys are in force.
type KeySource interface {
	// Set returns the keys; nil means that none are known at present.
	Set() *Set

	// Missing says that a token named a key that is not in the set. It returns
	// at once.
	Missing()
}

// Set is an immutable set of keys.
type Set struct {
	keys  []*Key
	byAlg map[string]*algKeys

	published map[string]ed25519.PublicKey // those of a directory, by their thumbprints

	Ignored []string // why keys that were found are not in it
}

// algKeys are the keys that an algorithm may be used with.
type algKeys struct {
	byID     map[string][]*Key
	nameless []*Key
	all      []*Key
}

// Len returns the number of keys.
func (s *Set) Len() int { return len(s.keys) + len(s.published) }

// find returns the keys that may have signed a token. A kid decides, if any
// key has it; keys without one, such as those of PEM files, fit every token.
func (s *Set) find(alg string, kid []byte, named bool) ([]*Key, error) {
	keys := s.byAlg[alg]
	switch {
	case keys == nil:
		return nil, errKey
	case named:
		if exact := keys.byID[string(kid)]; exact != nil {
			return exact, nil
		}
	case len(keys.all) == 1:
		return keys.all, nil
	case len(keys.nameless) == 0:
		return nil, errManyKeys
	}
	if len(keys.nameless) == 0 {
		return nil, errKey
	}
	return keys.nameless, nil
}

// newSet makes a set of keys, or says why they cannot be one.
func newSet(keys []*Key, ignored []string) (*Set, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("there is no usable key%s", because(ignored))
	}
	s := &Set{keys: keys, byAlg: map[string]*algKeys{}, Ignored: ignored}
	seen := map[string]bool{}
	for _, key := range keys {
		if key.id != "" && seen[key.id] {
			// Which of the two made a signature would depend on their order.
			return nil, fmt.Errorf("two keys have the kid %q", said(key.id))
		}
		seen[key.id] = true
		for _, alg := range key.algorithms {
			if err := s.add(alg, key); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *Set) add(alg string, key *Key) error {
	a := s.byAlg[alg]
	if a == nil {
		a = &algKeys{byID: map[string][]*Key{}}
		s.byAlg[alg] = a
	}
	a.all = append(a.all, key)
	if key.id != "" {
		a.byID[key.id] = []*Key{key}
		return nil
	}
	if a.nameless = append(a.nameless, key); len(a.nameless) > maxNameless {
		return fmt.Errorf("more than %d keys for %s have no kid: each token would be tried with all of them",
			maxNameless, alg)
	}
	return nil
}

func because(ignored []string) string {
	if len(ignored) == 0 {
		return ""
	}
	return ": " + strings.Join(ignored, "; ")
}

// said is what an issuer wrote, for a log line.
func said(s string) string { return clip.To(s, 64) }

// newKey returns a key for those of the algorithms that fit its type, or says
// why there is none.
func newKey(id string, key any, algorithms []string) (*Key, error) {
	var fit []string
	switch k := key.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSA || maxRSA < bits {
			return nil, fmt.Errorf("the RSA key has %d bits, want %d to %d", bits, minRSA, maxRSA)
		}
		if guessable(k.N) {
			return nil,
				errors.New("the RSA key was made by a faulty smart card or TPM, and its private key can be " +
					"computed (CVE-2017-15361): replace it")
		}
		fit = keep(algorithms, "RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
	case *ecdsa.PublicKey:
		fit = keep(algorithms, map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}[k.Params().Name])
	case ed25519.PublicKey:
		fit = keep(algorithms, "EdDSA")
	case []byte:
		fit = keep(algorithms, "HS256", "HS384", "HS512")
		for _, alg := range fit {
			if len(k) < hmacBytes[alg] {
				return nil, fmt.Errorf("the secret has %d bytes, want %d or more for %s", len(k), hmacBytes[alg], alg)
			}
		}
	default:
		return nil, errors.New("keys of this type are not supported")
	}
	if len(fit) == 0 {
		return nil, fmt.Errorf("no algorithm of %s fits the key", strings.Join(algorithms, ", "))
	}
	return &Key{id: id, algorithms: fit, key: key}, nil
}

func keep(algorithms []string, fitting ...string) (fit []string) {
	for _, alg := range algorithms {
		if slices.Contains(fitting, alg) {
			fit = append(fit, alg)
		}
	}
	return fit
}

// ParseJWKS reads a JSON Web Key Set (RFC 7517 section 5). Keys that are of no
// use here (for encryption, of another algorithm or type, malformed) are left
// out, and Set.Ignored says why. published says that strangers can read the
// set: then it may hold no secrets.
func ParseJWKS(data []byte, algorithms []string, published bool) (*Set, error) {
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, errors.New("this is no JSON Web Key Set: an object with an array \"keys\"")
	}
	if len(document.Keys) > maxKeys {
		return nil, fmt.Errorf("the set has %d keys, want %d at most", len(document.Keys), maxKeys)
	}
	var keys []*Key
	var ignored []string
	secrets, public := 0, 0
	for i, raw := range document.Keys {
		var about jwk
		if err := json.Unmarshal(raw, &about); err != nil {
			ignored = append(ignored, fmt.Sprintf("keys[%d]: is no JSON Web Key", i))
			continue
		}
		if about.Kty == "oct" {
			secrets++
		} else {
			public++
		}
		key, err := parseJWK(raw, about, algorithms)
		if err != nil {
			ignored = append(ignored, fmt.Sprintf("keys[%d]%s: %v", i, named(about.Kid), err))
			continue
		}
		keys = append(keys, key)
	}
	switch {
	case secrets > 0 && published:
		return nil, errors.New("the set was fetched and holds a secret (kty oct), which is none any more")
	case secrets > 0 && public > 0:
		return nil,
			errors.New("the set holds a secret (kty oct) beside public keys: keep them apart, so that no key is " +
				"taken for one of the other kind")
	}
	return newSet(keys, ignored)
}

// named says which key of a set is meant, for those who know it by its kid.
func named(kid string) string {
	if kid == "" {
		return ""
	}
	return fmt.Sprintf(" with kid %q", said(kid))
}

// jwk is what of a key is read here; go-jose reads the rest.
type jwk struct {
	Kty    string   `json:"kty"`
	Use    string   `json:"use"`
	KeyOps []string `json:"key_ops"`
	Alg    string   `json:"alg"`
	Kid    string   `json:"kid"`
}

func parseJWK(raw []byte, about jwk, algorithms []string) (*Key, error) {
	switch {
	case about.Use != "" && about.Use != "sig":
		return nil, errors.New("its use is not sig")
	case about.KeyOps != nil && !slices.Contains(about.KeyOps, "verify"):
		return nil, errors.New("its key_ops lack verify")
	case len(about.Kid) > maxName:
		return nil, fmt.Errorf("its kid has %d bytes, want %d at most", len(about.Kid), maxName)
	}
	if about.Alg != "" {
		if !slices.Contains(algorithms, about.Alg) {
			return nil, fmt.Errorf("its alg is %q, want one of %s", said(about.Alg), strings.Join(algorithms, ", "))
		}
		algorithms = []string{about.Alg}
	}
	var parsed jose.JSONWebKey
	if err := parsed.UnmarshalJSON(raw); err != nil {
		return nil, errors.New("is malformed or of a type that is not supported")
	}
	if _, secret := parsed.Key.([]byte); !secret {
		switch {
		case !parsed.IsPublic():
			return nil, errors.New("is a private key: whoever reads it can make tokens")
		case !parsed.Valid():
			return nil, errors.New("is not valid")
		}
	}
	return newKey(about.Kid, parsed.Key, algorithms)
}

// ParsePEM reads public keys (PKIX or PKCS #1) and certificates, of which only
// the key counts. The keys have no ID.
func ParsePEM(data []byte, algorithms []string) ([]*Key, error) {
	var keys []*Key
	for len(bytes.TrimSpace(data)) > 0 {
		block, rest := pem.Decode(data)
		if block == nil {
			return nil, errors.New("holds something that is no PEM block")
		}
		public, err := parseBlock(block)
		if err != nil {
			return nil, err
		}
		key, err := newKey("", public, algorithms)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
		data = rest
	}
	if len(keys) == 0 {
		return nil, errors.New("is empty, want a public key or certificate in PEM")
	}
	return keys, nil
}

func parseBlock(block *pem.Block) (any, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	}
	if strings.Contains(block.Type, "PRIVATE KEY") {
		return nil, errors.New("holds a private key, which only the issuer may have: want the public one")
	}
	return nil, fmt.Errorf("holds a block %q, want PUBLIC KEY or CERTIFICATE", said(block.Type))
}

// ParseSecret reads the secret of a file: its bytes without one line end, or
// what they stand for in base64 of either alphabet.
func ParseSecret(data []byte, encoded bool, algorithms []string) (*Key, error) {
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if encoded {
		text := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(string(data)), "=")
		decoded, err := base64.RawStdEncoding.Strict().DecodeString(text)
		if err != nil || strings.ContainsAny(text, "\r\n") {
			return nil, errors.New("is no base64")
		}
		data = decoded
	}
	return newKey("", bytes.Clone(data), algorithms)
}
