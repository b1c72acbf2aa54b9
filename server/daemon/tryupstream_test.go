package daemon

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/server/config"
)

// TestTryUpstreamSaysWhy holds what is said of APIs that cannot be used, and that none of them gets a request.
func TestTryUpstreamSaysWhy(t *testing.T) {
	signs, other := newAuthority(t, "signs"), newAuthority(t, "another")
	caPEM, _ := pemOf(t, signs.cert, nil)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, caPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int32
	api := func(by *authority, template *x509.Certificate, change ...func(*tls.Config)) string {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		t.Cleanup(s.Close)
		if by == nil {
			s.Start()
			return s.Listener.Addr().String()
		}
		cert, key := by.sign(t, template)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}
		for _, f := range change {
			f(s.TLS)
		}
		s.StartTLS()
		return s.Listener.Addr().String()
	}
	named := func(name string) *x509.Certificate { return &x509.Certificate{DNSNames: []string{name}} }
	silent, err := net.Listen("tcp", "127.0.0.1:0") // which accepts nothing: the kernel does
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	asks := func(version uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, version }
	}
	const plain, secure = "http://api.internal", "https://api.internal"
	old := func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }
	expired := named("api.internal")
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		upstream, server, wrong, want string
		refused                       bool
	}{
		"it answers":         {plain, api(nil, nil), "", "", false},
		"it answers, by TLS": {secure, api(signs, named("api.internal")), "", "", false},
		"refused":            {plain, "127.0.0.1:1", "connection refused", "the API started", false},
		"no such name":       {plain, "api.invalid:80", `the name "api.invalid"`, "", false},
		"no such socket":     {plain, "unix:/nowhere/api.sock", "no such socket", "the path", false},
		"another authority": {secure, api(other, named("api.internal")), "nobody who is trusted",
			"upstream_tls.ca_file", true},
		"another name": {secure, api(signs, named("api.example")), `not for "api.internal", but for api.example`,
			"upstream_tls.server_name", true},
		"no TLS": {secure, api(nil, nil), "does not speak TLS", "http://", true},
		"a certificate, by TLS 1.3": {secure, api(signs, named("api.internal"), asks(tls.VersionTLS13)),
			"wants a certificate of the gateway", "upstream_tls.cert_file", true},
		"a certificate, by TLS 1.2": {secure, api(signs, named("api.internal"), asks(tls.VersionTLS12)),
			"wants a certificate of the gateway", "upstream_tls.cert_file", true},
		"TLS where none is asked for": {plain, api(signs, named("api.internal")), "it speaks TLS", "https://",
			true},
		"old TLS where none is asked for": {plain, api(signs, named("api.internal"), old), "it speaks TLS", "https://",
			true},
		"TLS, and plain too":        {plain, both(t, "204 No Content"), "", "", false},
		"TLS, and 400 where plain":  {plain, both(t, "400 Bad Request"), "it speaks TLS", "https://", true},
		"TLS, and whither if plain": {plain, both(t, "301 Moved Permanently"), "it speaks TLS", "https://", true},
		"it says nothing":           {plain, silent.Addr().String(), "", "", false},
		"old TLS": {secure, api(signs, named("api.internal"), old), "protocol version", "TLS 1.2 or later",
			true},
		"expired":      {secure, api(signs, expired), "is good from", "new certificate", true},
		"says nothing": {secure, silent.Addr().String(), "said nothing of TLS", "with TLS", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := config.Default()
			conf.Upstream, conf.Upstreams.Servers = c.upstream, []config.UpstreamServer{{Address: c.server, Weight: 1}}
			conf.Upstreams.TLS.CAFile = ca
			tried, err := TryUpstream(t.Context(), &conf)
			if err != nil || len(tried) != 1 {
				t.Fatalf("TryUpstream = %+v, %v, want one server", tried, err)
			}
			got := tried[0]
			if (c.wrong == "") != (got.Wrong == "") || !strings.Contains(got.Wrong, c.wrong) ||
				!strings.Contains(got.Want, c.want) || got.Refused != c.refused {
				t.Errorf("TryUpstream = %+v, want %q, %q, refused %v", got, c.wrong, c.want, c.refused)
			}
		})
	}
	t.Cleanup(func() {
		if n := requests.Load(); n > 0 {
			t.Errorf("%d requests were sent, want none", n)
		}
	})
}

// both is a server that answers the first message of TLS by an alert, and plain requests by a status.
func both(t *testing.T, status string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { _ = l.Close() })
	serve := func(conn net.Conn) {
		defer conn.Close()
		text := bufio.NewReader(conn)
		if first, err := text.Peek(1); err != nil || first[0] == 22 {
			_, _ = conn.Write([]byte{21, 3, 3, 0, 2, 2, 40})
		} else if _, err := http.ReadRequest(text); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 "+status+"\r\n\r\n")
		}
	}
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { serve(conn) })
		}
	})
	return l.Addr().String()
}

// TestAnAPIThatIsDownIsSaidAtTheStart: the gateway starts, and its log says what no request can reach.
func TestAnAPIThatIsDownIsSaidAtTheStart(t *testing.T) {
	var log livelog.Text
	conf := config.Default()
	conf.Upstream, conf.Upstreams.Servers = "http://api.internal", []config.UpstreamServer{
		{Address: "unix:/nowhere/api.sock", Weight: 1}}
	d := &Daemon{conf: conf, log: slog.New(slog.NewTextHandler(&log, nil))}
	d.tryUpstream(t.Context(), &d.conf)
	if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "no such socket") ||
		!strings.Contains(text, "server=unix:/nowhere/api.sock") {
		t.Errorf("the log is %q, want a warning", text)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	before := log.String()
	if d.tryUpstream(ended, &d.conf); log.String() != before {
		t.Errorf("a gateway that ends says %q, want nothing", log.String()[len(before):])
	}
}
