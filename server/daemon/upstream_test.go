package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/gateway/upstream"
	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/server/config"
)

// TestUpstreamByCertificate: servers are known by a name and a CA of one's own, and see the gateway's certificate, the
// one that stands in its files at the time.
func TestUpstreamByCertificate(t *testing.T) {
	signs, other := newAuthority(t, "signs"), newAuthority(t, "another")
	pair := func(template *x509.Certificate) tls.Certificate {
		cert, key := signs.sign(t, template)
		return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(signs.cert)
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.ServerName+" sees "+r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	api.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	api.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair(&x509.Certificate{DNSNames: []string{"api.internal"}})},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: trusted,
	}
	api.StartTLS()
	t.Cleanup(api.Close)

	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gateway := func(name string) (cert, key string) {
		own, ownKey := signs.sign(t, &x509.Certificate{
			Subject:     pkix.Name{CommonName: name},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		certPEM, keyPEM := pemOf(t, own, ownKey)
		return file("gateway.pem", certPEM), file("gateway.key", keyPEM)
	}
	caPEM, _ := pemOf(t, signs.cert, nil)
	conf := config.Default()
	conf.Upstream = "https://api.internal:8443"
	conf.Upstreams.Servers = []config.UpstreamServer{{Address: api.Listener.Addr().String(), Weight: 1}}
	conf.Upstreams.TLS.CAFile = file("ca.pem", caPEM)
	conf.Upstreams.TLS.CertFile, conf.Upstreams.TLS.KeyFile = gateway("gateway one")
	var log livelog.Text
	ask := func(conf config.Config) (string, error) {
		made, err := newCarriers(&conf, 10, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			return "", err
		}
		defer made.close()
		var said []string
		for _, name := range []string{"gateway one", "gateway two", ""} {
			if name == "" {
				file("gateway.pem", []byte("no certificate"))
			} else {
				gateway(name)
			}
			var a upstream.Answer
			request := &upstream.Request{Head: []byte(
				"GET / HTTP/1.1\r\nHost: api.internal\r\nConnection: close\r\n\r\n")}
			if err := made.pool.Do(context.Background(), request, &a); err != nil {
				return "", err
			}
			body, err := io.ReadAll(&a)
			a.Close()
			said = append(said, string(body))
			if err != nil {
				return "", err
			}
		}
		return strings.Join(said, ", "), nil
	}
	got, err := ask(conf)
	if want := "api.internal sees gateway one, api.internal sees gateway two, api.internal sees gateway two"; got !=
		want || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if !strings.Contains(log.String(), "the one from before is shown") {
		t.Errorf("of the broken file the log says %q", log.String())
	}
	gateway("gateway one")
	for name, change := range map[string]func(*config.UpstreamTLS){
		"not a name of the certificate": func(c *config.UpstreamTLS) { c.ServerName = "other.internal" },
		"another authority": func(c *config.UpstreamTLS) {
			text, _ := pemOf(t, other.cert, nil)
			c.CAFile = file("other.pem", text)
		},
		"upstream_tls.ca_file":   func(c *config.UpstreamTLS) { c.CAFile = file("none.pem", []byte("nothing")) },
		"upstream_tls.cert_file": func(c *config.UpstreamTLS) { c.CertFile = filepath.Join(dir, "absent.pem") },
	} {
		wrong := conf
		change(&wrong.Upstreams.TLS)
		_, err := ask(wrong)
		if err == nil || strings.HasPrefix(name, "upstream_tls") && !strings.Contains(err.Error(), name) ||
			!strings.HasPrefix(name, "upstream_tls") && !errors.Is(err, upstream.ErrNotSent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if next := conf; sameCarriers(&next, &conf) {
		t.Error("a reload keeps what the CA's file said before")
	}
}

// Servers are chosen among, whichever client sends the requests on, and what both keep ends with close.
func TestBothClientsChooseServers(t *testing.T) {
	var conf config.Config
	var all []*httptest.Server
	for i := range 2 {
		all = append(all,
			httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, i) })))
		t.Cleanup(all[i].Close)
	}
	conf = config.Default()
	conf.Upstream = "http://api.internal"
	conf.Upstreams.Servers = []config.UpstreamServer{{Address: all[0].Listener.Addr().String(), Weight: 1},
		{Address: all[1].Listener.Addr().String(), Weight: 1}}
	conf.UpstreamTimeout = 10 * time.Second
	made, err := newCarriers(&conf, 10, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if !made.own {
		t.Error("the own client is not the default")
	}
	seen := map[string]bool{}
	for range 4 {
		request, _ := http.NewRequest("GET", "http://api.internal/", nil)
		request.Close = true
		answer, err := made.transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		seen[string(body)] = true
	}
	if len(seen) != 2 {
		t.Errorf("net/http reached the servers %v, want both", seen)
	}
	if next := conf; !sameCarriers(&next, &conf) {
		t.Error("a reload that changes nothing makes new connections")
	}
	made.close()
	all[0].Close()
	all[1].Close()
	if _, err := made.pool.DialContext(context.Background(), "", ""); err == nil {
		t.Error("a connection to servers that are gone was opened")
	}
}
