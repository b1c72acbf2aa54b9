package database

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/go-sql-driver/mysql"
)

// mysqlFiles are the certificates that the parameters of a URL name, as MySQL's
// own programs call them. The driver has no such parameters.
type mysqlFiles struct{ ca, cert, key string }

// takeMySQLFiles takes the parameters out of a query.
func takeMySQLFiles(q url.Values) (f mysqlFiles) {
	for name, value := range map[string]*string{"ssl-ca": &f.ca, "ssl-cert": &f.cert, "ssl-key": &f.key} {
		*value = q.Get(name)
		q.Del(name)
	}
	return f
}

// apply makes a connection trust the authority, and show the certificate.
func (f mysqlFiles) apply(c *mysql.Config) error {
	if f == (mysqlFiles{}) {
		return nil
	}
	if c.TLS == nil && c.TLSConfig == "" {
		c.TLS, c.TLSConfig = &tls.Config{}, "true" // who names an authority wants it asked
	}
	if c.TLS == nil || c.TLS.InsecureSkipVerify {
		return fmt.Errorf("tls is %q beside ssl-ca, ssl-cert or ssl-key, want true or none: a server that is not "+
			"verified may be anybody's", c.TLSConfig)
	}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return fmt.Errorf("ssl-ca: %w", err)
		}
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("ssl-ca: %s holds no certificate, want one or more in PEM", f.ca)
		}
	}
	if f.cert == "" && f.key == "" {
		return nil
	}
	if f.cert == "" || f.key == "" {
		return errors.New("of ssl-cert and ssl-key there is one, want both or none")
	}
	own, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return fmt.Errorf("ssl-cert and ssl-key: %w", err)
	}
	c.TLS.Certificates = []tls.Certificate{own}
	return nil
}
