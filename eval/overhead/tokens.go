package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/token"
)

const (
	issuer   = "https://login.example"
	audience = "https://api.example"
)

// tokens is an issuer and the verifier that believes it.
type tokens struct {
	verifier *token.Verifier
	key      *ecdsa.PrivateKey
	projects []string
	issued   int
}

func openTokens(dir string, projects []string) (*tokens, error) {
	t := &tokens{projects: projects}
	var err error
	if t.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&t.key.PublicKey)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "issuer.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600); err != nil {
		return nil, err
	}
	algorithms := []string{"ES256"}
	source, err := token.NewSource(token.SourceOptions{
		KeyFiles:   []string{file},
		Algorithms: algorithms,
		Log:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	if err := source.Start(ctx); err != nil {
		return nil, err
	}
	t.verifier, err = token.New(token.Options{
		Keys: source, Algorithms: algorithms, Issuer: issuer, Audiences: []string{audience}, Project: "tenant",
	})
	return t, err
}

// issue makes a token of some 600 bytes for another subject each time.
func (t *tokens) issue() (string, error) {
	t.issued++
	claims, err := json.Marshal(map[string]any{
		"iss": issuer, "aud": audience, "sub": fmt.Sprintf("user-%08d", t.issued),
		"tenant": t.projects[t.issued%len(t.projects)],
		"exp":    time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "jti": fmt.Sprintf("%032d", t.issued),
		"scope": "read:orders write:orders read:customers write:customers read:invoices",
		"email": "somebody@customer.example",
		"name":  "Some Body", "roles": []string{"buyer", "approver", "auditor"},
	})
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, t.key, sum[:])
	if err != nil {
		return "", err
	}
	var signature [64]byte // r and s, 32 bytes each (RFC 7518 section 3.4)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature[:]), nil
}

// fresh returns n tokens that nobody saw before.
func (t *tokens) fresh(n int) ([]string, error) {
	texts := make([]string, n)
	for i := range texts {
		var err error
		if texts[i], err = t.issue(); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// evidence is of requests with n different tokens.
func (t *tokens) evidence(peer netip.Addr, n int) ([]identity.Evidence, error) {
	texts, err := t.fresh(n)
	if err != nil {
		return nil, err
	}
	found := make([]identity.Evidence, n)
	for i, text := range texts {
		found[i] = identity.Evidence{Peer: peer, Header: http.Header{"Authorization": {"Bearer " + text}}}
	}
	return found, nil
}
