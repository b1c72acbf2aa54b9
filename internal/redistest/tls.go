//go:build unix

package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Authority signs certificates. CA is the file with its own.
type Authority struct {
	CA string

	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one that nobody knows of.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	dir := t.TempDir()
	a := &Authority{t: t, dir: dir, CA: filepath.Join(dir, "ca.pem"), key: newKey(t)}
	template := certificate("headgate test")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.cert = a.sign(template, template, a.key, a.CA)
	return a
}

// Issue writes a certificate for a host, and its key. It will do for clients too.
func (a *Authority) Issue(host string) (certFile, keyFile string) {
	a.t.Helper()
	key := newKey(a.t)
	template := certificate(host)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	dir, err := os.MkdirTemp(a.dir, "") // others may want one for the same host
	if err != nil {
		a.t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, host+".pem"), filepath.Join(dir, host+".key")
	a.sign(template, a.cert, key, certFile)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(keyFile, "EC PRIVATE KEY", der)
	return certFile, keyFile
}

func (a *Authority) sign(template, parent *x509.Certificate, of *ecdsa.PrivateKey, file string) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &of.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(file, "CERTIFICATE", der)
	return cert
}

func (a *Authority) write(file, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

// StartTLS starts a server that speaks TLS alone on its port, by a certificate of the authority for
// 127.0.0.1. Clients need one only if args say so ("--tls-auth-clients", "yes").
func StartTLS(t testing.TB, by *Authority, args ...string) *Server {
	t.Helper()
	port := FreePort(t)
	cert, key := by.Issue("127.0.0.1")
	s := start(t, 0, append([]string{
		"--tls-port", strconv.Itoa(port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", by.CA,
		"--tls-auth-clients", "no",
	}, args...))
	s.Port = port
	return s
}
