package token

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

// ParseDirectory reads a directory of the keys that an agent signs requests with
// (draft-meunier-webbotauth-httpsig-protocol section "Directory Format"): a JSON Web Key Set, whose keys
// are known by their thumbprints (RFC 7638), whatever they say of themselves. Those for Ed25519 count;
// Set.Ignored says why others do not. Unlike a set of an issuer it may be empty: then the agent has
// withdrawn its keys.
func ParseDirectory(data []byte) (*Set, error) {
	var document struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &document); err != nil || document.Keys == nil {
		return nil, errors.New("this is no directory of keys: an object with an array \"keys\"")
	}
	if len(*document.Keys) > maxKeys {
		return nil, fmt.Errorf("the directory has %d keys, want %d at most", len(*document.Keys), maxKeys)
	}
	s := &Set{published: map[string]ed25519.PublicKey{}}
	for i, raw := range *document.Keys {
		thumbprint, key, err := parsePublished(raw)
		if err != nil {
			s.Ignored = append(s.Ignored, fmt.Sprintf("keys[%d]: %v", i, err))
			continue
		}
		s.published[thumbprint] = key
	}
	return s, nil
}

// Published returns the key of a directory that has a thumbprint.
func (s *Set) Published(thumbprint string) (key ed25519.PublicKey, ok bool) {
	key, ok = s.published[thumbprint]
	return key, ok
}

func parsePublished(raw json.RawMessage) (thumbprint string, key ed25519.PublicKey, err error) {
	var about jwk
	if err := json.Unmarshal(raw, &about); err != nil {
		return "", nil, errors.New("is no JSON Web Key")
	}
	if about.Alg == "ed25519" || about.Alg == "Ed25519" { // as RFC 9421 section 6.2 has it, and RFC 9864
		about.Alg = "EdDSA"
	}
	parsed, err := parseJWK(raw, about, []string{"EdDSA"})
	if err != nil {
		return "", nil, err
	}
	sum, err := (&jose.JSONWebKey{Key: parsed.key}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", nil, err
	}
	return base64.RawURLEncoding.EncodeToString(sum), parsed.key.(ed25519.PublicKey), nil
}
