package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// credentials makes what all proxies have: a certificate (ECDSA on P-256), and a token that Headgate verifies.
func (s *site) credentials() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	about := x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	made, err := x509.CreateCertificate(rand.Reader, &about, &about, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	s.pem = filepath.Join(s.folder("certificate"), "both.pem")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	s.trusts = &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}

	secret := rand.Text() + rand.Text()
	text64 := base64.RawURLEncoding.EncodeToString
	said := text64([]byte(`{"alg":"HS256"}`)) + "." + text64(fmt.Appendf(nil,
		`{"iss":"x","aud":"y","sub":"reader","exp":%d}`, time.Now().Add(24*time.Hour).Unix()))
	sign := hmac.New(sha256.New, []byte(secret))
	sign.Write([]byte(said))
	s.token = said + "." + text64(sign.Sum(nil))
	return errors.Join(os.WriteFile(s.pem, text, 0o600), os.WriteFile(s.secretFile(), []byte(secret), 0o600))
}

// secretFile is where the secret is that tokens are signed by.
func (s *site) secretFile() string { return filepath.Join(s.dir, "certificate", "secret") }

// tokens has gateways verify the token, if there is one.
func (s *site) tokens() string {
	if s.token == "" {
		return ""
	}
	return "tokens:\n  secret_files: [" + s.secretFile() + "]\n  algorithms: [HS256]\n  issuer: \"*\"\n" +
		"  audiences: [\"*\"]\n"
}
