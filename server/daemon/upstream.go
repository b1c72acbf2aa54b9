package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"sync"

	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/gateway/upstream"
	"github.com/headgate-io/headgate/server/config"
)

// carriers are what requests are sent on by. They stay over reloads that do not change them.
type carriers struct {
	pool      *upstream.Pool
	own       bool            // requests go by the pool
	transport *http.Transport // by which all others go, to servers that the pool chooses
}

// sameCarriers reports whether two configurations send requests on in the same way. What the file with those who sign
// says may have changed.
func sameCarriers(a, b *config.Config) bool {
	return a.Upstreams.TLS.CAFile == "" && a.Upstream == b.Upstream && a.UpstreamTimeout == b.UpstreamTimeout &&
		reflect.DeepEqual(a.Upstreams, b.Upstreams)
}

// newCarriers makes them for a configuration; most is how many connections there may be.
func newCarriers(c *config.Config, most int, log *slog.Logger) (made carriers, err error) {
	base, err := url.Parse(c.Upstream)
	if err != nil {
		return made, err // Complete has checked it
	}
	secure, err := upstreamTLS(base, c.Upstreams.TLS, log)
	if err != nil {
		return made, err
	}
	o := upstream.Options{
		TLS: secure, HeaderTimeout: c.UpstreamTimeout, MaxConns: most,
		Health: upstream.Health{
			Path: c.Upstreams.Health.Path, Host: base.Host, Every: c.Upstreams.Health.Interval,
			Timeout: c.Upstreams.Health.Timeout,
		},
		Changed: func(server string, up bool, why error) {
			if up {
				log.Info("a server of the API is well again", "server", server)
				return
			}
			log.Warn("a server of the API gets no requests", "server", server, "error", why)
		},
	}
	for _, s := range c.Upstreams.Servers {
		o.Servers = append(o.Servers, upstream.Server{Address: s.Address, Weight: s.Weight})
	}
	pool, err := gateway.NewPool(base, o)
	if err != nil {
		return made, err
	}
	made.transport = gateway.NewTransport(c.UpstreamTimeout, most)
	made.transport.DialContext = pool.DialContext
	made.transport.TLSClientConfig = secure
	made.pool, made.own = pool, c.Upstreams.Client == "own"
	return made, nil
}

// close ends what nobody uses, and the questions about health. What is under way stays.
func (c *carriers) close() {
	if c.pool == nil {
		return // there is no gateway
	}
	c.transport.CloseIdleConnections()
	c.pool.Close()
}

// upstreamTLS is how the gateway speaks TLS with an API, nil if it does not.
func upstreamTLS(base *url.URL, c config.UpstreamTLS, log *slog.Logger) (*tls.Config, error) {
	if base.Scheme != "https" {
		return nil, nil
	}
	made := &tls.Config{ServerName: c.ServerName, MinVersion: tls.VersionTLS12}
	if made.ServerName == "" {
		made.ServerName = base.Hostname()
	}
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("upstream_tls.ca_file: %w", err)
		}
		made.RootCAs = x509.NewCertPool()
		if !made.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("upstream_tls.ca_file is %q, which has no certificate in PEM", c.CAFile)
		}
	}
	if c.CertFile != "" {
		own := &ownCertificate{
			conf: c,
			warn: seldom(log, "the gateway's certificate for the API cannot be read, and the one from before is shown"),
		}
		if _, err := own.get(nil); err != nil {
			return nil, fmt.Errorf("upstream_tls.cert_file: %w", err)
		}
		made.GetClientCertificate = own.get
	}
	return made, nil
}

// ownCertificate is the gateway's, as its files say at the moment: they are replaced while it runs.
type ownCertificate struct {
	conf config.UpstreamTLS
	warn func(error)

	mu   sync.Mutex
	last *tls.Certificate // guarded by mu
}

func (o *ownCertificate) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(o.conf.CertFile, o.conf.KeyFile)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.last = &pair
	case o.last == nil:
		return nil, err
	default:
		o.warn(err)
	}
	return o.last, nil
}
