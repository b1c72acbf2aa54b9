package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/metrics"
)

// tlsFiles is our side of TLS, as its files say.
type tlsFiles struct {
	name     string // of the setting
	log      *slog.Logger
	current  atomic.Pointer[tlsLoaded]
	failures atomic.Uint64
	lastErr  string // touched by reload alone
}

type tlsLoaded struct {
	conf    config.TLS
	config  *tls.Config
	content [sha256.Size]byte
	ends    time.Time // of the gateway's certificate
}

// tlsInterval is the time between two looks at the files. Their content
// counts, not their times: certificates are often put in place by links.
const tlsInterval = 5 * time.Second

// newTLS reads the files that a setting names. It returns nil if there is to be no TLS.
func newTLS(name string, conf config.TLS, log *slog.Logger) (*tlsFiles, error) {
	if !conf.On() {
		return nil, nil
	}
	t := &tlsFiles{name: name, log: log}
	loaded, err := t.read(conf)
	if err != nil {
		return nil, err
	}
	t.current.Store(loaded)
	return t, nil
}

// ReadTLS returns what the files of conf, which is on, say at this moment. The name is that of its
// setting.
func ReadTLS(name string, conf config.TLS) (*tls.Config, error) {
	t, err := newTLS(name, conf, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return t.current.Load().config, nil
}

// listen puts TLS before l, over which HTTP is spoken.
func (t *tlsFiles) listen(l net.Listener) net.Listener { return t.listenFor(l, protocols) }

// listenFor is listen for some protocols, as ALPN calls them.
func (t *tlsFiles) listenFor(l net.Listener, protocols []string) net.Listener {
	if t == nil || l == nil {
		return l
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := t.current.Load().config.Clone()
			c.NextProtos = protocols
			return c, nil
		},
	})
}

var protocols = []string{"h2", "http/1.1"}

// read reads the files that conf names.
func (t *tlsFiles) read(conf config.TLS) (*tlsLoaded, error) {
	var contents [3][]byte
	sum := sha256.New()
	for i, path := range []string{conf.CertFile, conf.KeyFile, conf.ClientCAFile} {
		if path == "" {
			continue
		}
		var err error
		if contents[i], err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		fmt.Fprintf(sum, "%d:%s", len(contents[i]), contents[i])
	}
	content := [sha256.Size]byte(sum.Sum(nil))
	certificate, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("%s: cert_file %s and key_file %s: %w", t.name, conf.CertFile, conf.KeyFile, err)
	}
	loaded := &tlsLoaded{conf: conf, content: content, ends: certificate.Leaf.NotAfter, config: &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{certificate},
	}}
	if conf.Clients() {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(contents[2]) {
			return nil, fmt.Errorf("%s: client_ca_file %s holds no certificate in PEM", t.name, conf.ClientCAFile)
		}
		loaded.config.ClientCAs, loaded.config.ClientAuth = pool, clientAuth[conf.ClientAuth]
		// A session that is resumed would be as good as the certificate was
		// when it began, whoever signs for clients by now.
		loaded.config.SessionTicketsDisabled = true
	}
	return loaded, nil
}

// prepare is read for a reload; use puts what it read in force for new connections, and does nothing if the files were
// read again meanwhile.
func (t *tlsFiles) prepare(conf func(now config.TLS) config.TLS) (use func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	before := t.current.Load()
	next, err := t.read(conf(before.conf))
	if err != nil {
		return nil, err
	}
	return func() {
		if (before.content != next.content || before.conf != next.conf) && t.current.CompareAndSwap(before, next) {
			t.log.Info("TLS changed and is in force", "setting", t.name, "certificate_ends", next.ends)
		}
	}, nil
}

func asItIs(now config.TLS) config.TLS { return now }

var clientAuth = map[string]tls.ClientAuthType{
	"request": tls.VerifyClientCertIfGiven,
	"require": tls.RequireAndVerifyClientCert,
}

// run keeps up with the files until ctx ends. What cannot be used is left, and
// what worked stays in force.
func (t *tlsFiles) run(ctx context.Context) {
	if t == nil {
		return
	}
	every(ctx, tlsInterval, t.reload)
}

func (t *tlsFiles) reload() {
	use, err := t.prepare(asItIs)
	if err == nil {
		t.lastErr = ""
		use()
		return
	}
	t.failures.Add(1)
	if err.Error() != t.lastErr { // once, not with every look
		t.lastErr = err.Error()
		t.log.Error("the files of TLS changed and cannot be used: those before stay in force", "setting", t.name,
			"error", errors.Unwrap(err))
	}
}

// status is where the metrics of TLS come from; nil without TLS.
func (t *tlsFiles) status() func() metrics.TLSStatus {
	if t == nil {
		return nil
	}
	return func() metrics.TLSStatus {
		return metrics.TLSStatus{Ends: t.current.Load().ends, Failures: t.failures.Load()}
	}
}
