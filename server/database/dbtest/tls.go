package dbtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate-io/headgate/internal/freeport"
)

// Secured is a server that listens on a port of the loopback too, and speaks
// TLS alone there.
type Secured struct {
	*Server
	Address   string // host and port
	Authority string // file with the certificate of the authority that the server's is by
	Stranger  string // file with the certificate of another one

	Cert, Key string // files of a certificate by Authority, also for clients, and its key
}

// PostgresTLS starts a PostgreSQL, MariaDBTLS a MariaDB. Stop it.
func PostgresTLS() (*Secured, error) {
	return secured(postgres, func(k *kind, dir string, port int) {
		k.open = func(_, database string) string {
			return fmt.Sprintf("host=127.0.0.1 port=%d sslmode=require user=shell dbname=%s", port, database)
		}
		serve := k.serve
		k.serve = func(data string) []string {
			return append(serve(data), "-c", "listen_addresses=127.0.0.1", "-c", fmt.Sprint("port=", port), "-c",
				"hba_file="+dir+"/hba",
				"-c", "ssl=on", "-c", "ssl_cert_file="+dir+"/cert.pem", "-c", "ssl_key_file="+dir+"/key.pem")
		}
	})
}

func MariaDBTLS() (*Secured, error) {
	return secured(mariadb, func(k *kind, dir string, port int) {
		serve := k.serve
		k.serve = func(data string) []string {
			var args []string
			for _, arg := range serve(data) {
				if arg != "--skip-networking" {
					args = append(args, arg)
				}
			}
			return append(args, "--bind-address=127.0.0.1", fmt.Sprint("--port=", port), "--require-secure-transport",
				"--ssl-ca="+dir+"/ca.pem", "--ssl-cert="+dir+"/cert.pem", "--ssl-key="+dir+"/key.pem")
		}
	})
}

func secured(k kind, change func(k *kind, dir string, port int)) (_ *Secured, err error) {
	dir, err := os.MkdirTemp("/tmp", "headgate-tls-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	if err := certificates(dir); err != nil {
		return nil, err
	}
	port, err := freeport.Pick()
	if err != nil {
		return nil, err
	}
	change(&k, dir, port)
	s, err := start(k)
	if err != nil {
		return nil, err
	}
	s.besides = dir
	return &Secured{s, net.JoinHostPort("127.0.0.1", fmt.Sprint(port)), dir + "/ca.pem", dir + "/stranger.pem",
		dir + "/cert.pem", dir + "/key.pem"}, nil
}

// certificates writes those of an authority, of a server at 127.0.0.1 and of
// an authority that has nothing to do with it.
func certificates(dir string) error {
	authority, err := newAuthority("headgate test")
	if err != nil {
		return err
	}
	stranger, err := newAuthority("somebody else")
	if err != nil {
		return err
	}
	cert, key, err := authority.issue()
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		"ca.pem":       {Type: "CERTIFICATE", Bytes: authority.cert.Raw},
		"stranger.pem": {Type: "CERTIFICATE", Bytes: stranger.cert.Raw},
		"cert.pem":     {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "EC PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	// PostgreSQL's, by which nobody comes in without TLS.
	if err := os.WriteFile(filepath.Join(dir, "hba"), []byte("hostssl all all 127.0.0.1/32 trust\n"),
		0o600); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	files, err := filepath.Glob(dir + "/*")
	for _, path := range append(files, dir) {
		err = errors.Join(err, os.Chown(path, nobody, nobody))
	}
	return err
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(name string) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	template := validity(name)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return authority{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return authority{cert, key}, err
}

// issue makes the certificate of a server at 127.0.0.1.
func (a authority) issue() (cert, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := validity("server")
	template.IPAddresses, template.ExtKeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)},
		[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if cert, err = x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key); err != nil {
		return nil, nil, err
	}
	private, err = x509.MarshalECPrivateKey(key)
	return cert, private, err
}

func validity(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}
