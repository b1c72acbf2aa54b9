package daemon

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = a.sign(t, &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	})
	return a
}

func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func pemOf(t *testing.T, cert *x509.Certificate, key crypto.Signer) (certPEM, keyPEM []byte) {
	t.Helper()
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	if key != nil {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	return certPEM, keyPEM
}

func (a *authority) server(t *testing.T) (cert, key []byte) {
	c, k := a.sign(t, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return pemOf(t, c, k)
}

func (a *authority) client(t *testing.T, name string, ends time.Time) tls.Certificate {
	t.Helper()
	c, k := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: ends.Add(-2 * time.Hour), NotAfter: ends,
	})
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: k}
}

// tlsSettings are those of a gateway whose files are in dir.
func tlsSettings(t *testing.T, dir string, files, clients *authority, auth string) config.TLS {
	t.Helper()
	path := func(name string, data []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	cert, key := files.server(t)
	c := config.TLS{
		CertFile:      path("cert.pem", cert),
		KeyFile:       path("key.pem", key),
		ClientAuth:    auth,
		ClientName:    "common_name",
		ClientProject: "none",
	}
	if auth != "none" {
		ca, _ := pemOf(t, clients.cert, nil)
		c.ClientCAFile = path("ca.pem", ca)
	}
	return c
}

// MutualTLS has a gateway ask clients for certificates. A client shows one of its name, or none without a name.
func MutualTLS(t *testing.T) (change func(*config.Config), client func(name string) *http.Client) {
	t.Helper()
	ours, clients := newAuthority(t, "ours"), newAuthority(t, "clients")
	made := tlsSettings(t, t.TempDir(), ours, clients, "request")
	return func(c *config.Config) { c.TLS = made }, func(name string) *http.Client {
		conf := &tls.Config{RootCAs: x509.NewCertPool()}
		conf.RootCAs.AddCert(ours.cert)
		if name != "" {
			conf.Certificates = []tls.Certificate{clients.client(t, name, time.Now().Add(time.Hour))}
		}
		transport := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
}

// tlsGateway starts a daemon with TLS whose rule is one request an hour.
func tlsGateway(t *testing.T, files *authority, clients *authority, auth string,
	change ...func(*config.Config)) (d *Daemon, dir string) {
	t.Helper()
	dir = t.TempDir()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(api.Close)
	c := config.Default()
	c.Listen, c.Admin, c.Upstream = "127.0.0.1:0", "127.0.0.1:0", api.URL
	c.DB, c.Routes = "sqlite:"+filepath.Join(dir, "headgate.db"), []string{filepath.Join(dir, "routes.txt")}
	if err := os.WriteFile(c.Routes[0], []byte("GET /x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.TLS = tlsSettings(t, dir, files, clients, auth)
	for _, f := range change {
		f(&c)
	}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	db, err := database.Open(context.Background(), c.DB)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Import(context.Background(), record.Author{Actor: "test"},
		policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 1, Per: time.Hour}}}, true); err != nil {
		t.Fatal(err)
	}
	db.Close()
	d, err = Start(context.Background(), c, Options{Log: slog.New(slog.DiscardHandler), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return d, dir
}

// get makes one request on a connection of its own. Its status is 0 if there
// was no answer.
func get(t *testing.T, d *Daemon, roots *authority, cert *tls.Certificate, edit ...func(*http.Transport)) (status int,
	version string, err error) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(roots.cert)
	conf := &tls.Config{RootCAs: pool}
	if cert != nil {
		// Sent whoever the server says it trusts, as an attacker would.
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	transport := &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true, ForceAttemptHTTP2: true}
	for _, f := range edit {
		f(transport)
	}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("https://" +
		d.Gateway().String() + "/x")
	if err != nil {
		return 0, "", err
	}
	response.Body.Close()
	return response.StatusCode, response.Proto, nil
}

// TestClientCertificatesHaveBudgets: each certificate has a budget of its own;
// whoever shows none has that of the address, and whoever shows a bad one no
// connection.
func TestClientCertificatesHaveBudgets(t *testing.T) {
	ours, clients, strangers := newAuthority(t, "ours"), newAuthority(t, "clients"), newAuthority(t, "strangers")
	d, _ := tlsGateway(t, ours, clients, "request")
	later := time.Now().Add(time.Hour)
	billing, shop := clients.client(t, "billing", later), clients.client(t, "shop", later)
	again, expired := clients.client(t, "billing", later), clients.client(t, "billing", time.Now().Add(-time.Minute))
	forged, bare := strangers.client(t, "billing", later), clients.client(t, "", later)
	for i, step := range []struct {
		cert *tls.Certificate
		want int
	}{
		{&billing, 200}, {&billing, 429},
		{&again, 429}, // another key, the same name
		{&shop, 200},
		{nil, 200}, {nil, 429}, // the address
		{&bare, 429}, // no name: the address's
		{&forged, 0}, {&expired, 0},
	} {
		status, version, err := get(t, d, ours, step.cert)
		if status != step.want || status != 0 && version != "HTTP/2.0" {
			t.Errorf("step %d: %d %s, %v, want %d", i, status, version, err, step.want)
		}
	}
	old := func(t *http.Transport) {
		t.TLSClientConfig.MinVersion, t.TLSClientConfig.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	}
	if status, _, err := get(t, d, ours, nil, old); status != 0 {
		t.Errorf("TLS 1.1: %d, %v, want no connection", status, err)
	}
	if response, err := http.Get("http://" + d.Gateway().String() + "/x"); err == nil {
		response.Body.Close()
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP: %d, want 400", response.StatusCode)
		}
	}
}

// TestClientCertificatesBehindABalancer: the PROXY header comes before TLS, so
// the certificate is the client's. That of a trusted proxy is not.
func TestClientCertificatesBehindABalancer(t *testing.T) {
	ours, clients := newAuthority(t, "ours"), newAuthority(t, "clients")
	d, _ := tlsGateway(t, ours, clients, "request", func(c *config.Config) {
		c.ProxyProtocol.From, c.TrustedProxies = []string{"127.0.0.1"}, []string{"10.0.0.0/8"}
	})
	from := func(address string) func(*http.Transport) {
		return func(t *http.Transport) {
			t.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, to)
				if err == nil {
					_, err = io.WriteString(c, "PROXY TCP4 "+address+" 192.0.2.1 4660 443\r\n")
				}
				return c, err
			}
		}
	}
	billing := clients.client(t, "billing", time.Now().Add(time.Hour))
	for i, step := range []struct {
		from string
		cert *tls.Certificate
		want int
	}{
		{"203.0.113.1", &billing, 200}, {"203.0.113.2", &billing, 429},
		{"203.0.113.1", nil, 200}, {"203.0.113.1", nil, 429}, {"203.0.113.2", nil, 200},
		{"10.0.0.1", &billing, 200}, {"10.0.0.1", &billing, 429}, {"10.0.0.2", &billing, 200}, // the proxies' addresses
	} {
		if status, _, err := get(t, d, ours, step.cert, from(step.from)); status != step.want {
			t.Errorf("step %d: %d, %v, want %d", i, status, err, step.want)
		}
	}
}

func TestClientCertificatesAreRequired(t *testing.T) {
	ours, clients := newAuthority(t, "ours"), newAuthority(t, "clients")
	d, _ := tlsGateway(t, ours, clients, "require")
	if status, _, err := get(t, d, ours, nil); status != 0 {
		t.Errorf("without a certificate: %d, %v", status, err)
	}
	cert := clients.client(t, "billing", time.Now().Add(time.Hour))
	if status, _, err := get(t, d, ours, &cert); status != 200 {
		t.Errorf("with one: %d, %v", status, err)
	}
}

// TestTLSFilesAreReadAnew: a certificate that is replaced is shown, one that
// cannot be used is not, and clients of an authority that was removed are no
// longer known.
func TestTLSFilesAreReadAnew(t *testing.T) {
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	clients, others := newAuthority(t, "clients"), newAuthority(t, "others")
	d, dir := tlsGateway(t, first, clients, "request")
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(step string, roots *authority, cert *tls.Certificate, ok bool) {
		t.Helper()
		if status, _, err := get(t, d, roots, cert); (status != 0) != ok {
			t.Errorf("%s: %d, %v", step, status, err)
		}
	}
	later := time.Now().Add(time.Hour)
	billing, other := clients.client(t, "billing", later), others.client(t, "other", later)
	expect("at first", first, &billing, true)
	write("cert.pem", []byte("half written"))
	d.parts.tls.reload()
	d.parts.tls.reload()
	expect("broken", first, &billing, true)
	if n := d.parts.tls.failures.Load(); n < 2 { // and what the gateway sees by itself
		t.Errorf("%d failures, want 2", n)
	}
	cert, key := second.server(t)
	write("cert.pem", cert)
	d.parts.tls.reload()
	expect("the key is still the old one", first, &billing, true)
	write("key.pem", key)
	d.parts.tls.reload()
	expect("replaced", second, &billing, true)
	expect("the old one", first, &billing, false)
	ca, _ := pemOf(t, others.cert, nil)
	write("ca.pem", ca)
	d.parts.tls.reload()
	expect("authority replaced", second, &other, true)
	expect("authority removed", second, &billing, false)
	write("ca.pem", nil)
	d.parts.tls.reload()
	expect("no authority", second, &other, true)
	if err := os.Remove(filepath.Join(dir, "cert.pem")); err != nil {
		t.Fatal(err)
	}
	d.parts.tls.reload()
	expect("gone", second, &other, true)
}

func TestTLSFilesAreCheckedAtTheStart(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := newAuthority(t, "a")
	cert, key := a.server(t)
	_, other := a.server(t)
	good := config.TLS{CertFile: write("c", cert), KeyFile: write("k", key), ClientAuth: "none"}
	for want, edit := range map[string]func(*config.TLS){
		"":                       func(*config.TLS) {},
		"private key does not":   func(c *config.TLS) { c.KeyFile = write("k2", other) },
		"no such file":           func(c *config.TLS) { c.CertFile += "x" },
		"holds no certificate":   func(c *config.TLS) { c.ClientCAFile, c.ClientAuth = write("ca", key), "require" },
		"failed to find any PEM": func(c *config.TLS) { c.CertFile = write("c2", []byte("x")) },
	} {
		conf := good
		edit(&conf)
		_, err := newTLS("tls", conf, slog.New(slog.DiscardHandler))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("newTLS: %v, want %q", err, want)
		}
	}
}

// TestReloadTLS: whom the gateway asks for a certificate changes while it runs, with everything else or not at all;
// whether it speaks TLS does not.
func TestReloadTLS(t *testing.T) {
	ours, clients := newAuthority(t, "ours"), newAuthority(t, "clients")
	d, dir := tlsGateway(t, ours, nil, "none")
	next := d.conf
	d.reloads.read = func() (config.Config, error) { return next, next.Complete() }
	ca, _ := pemOf(t, clients.cert, nil)
	next.TLS.ClientCAFile, next.TLS.ClientAuth = filepath.Join(dir, "ca.pem"), "require"
	if err := os.WriteFile(next.TLS.ClientCAFile, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	if done, err := d.Reload(t.Context()); err != nil ||
		strings.Join(done.Changed, " ") != "tls.client_ca_file tls.client_auth" || len(done.Restart) > 0 {
		t.Fatalf("reload: %+v, %v", done, err)
	}
	shop := clients.client(t, "shop", time.Now().Add(time.Hour))
	if status, _, err := get(t, d, ours, nil); status != 0 {
		t.Errorf("without a certificate: %d, %v, want no connection", status, err)
	}
	if status, _, err := get(t, d, ours, &shop); status != 200 {
		t.Errorf("with one: %d, %v, want 200", status, err)
	}
	good := next
	next.TLS.ClientCAFile, next.TLS.ClientAuth, next.Routes = "", "none", []string{filepath.Join(dir, "none.txt")}
	if _, err := d.Reload(t.Context()); err == nil {
		t.Error("a missing file of routes: no error")
	}
	if status, _, err := get(t, d, ours, nil); status != 0 {
		t.Errorf("without a certificate after a reload that failed: %d, %v, want no connection", status, err)
	}
	next = good
	next.TLS = config.TLS{ClientAuth: "none", ClientName: "public_key", ClientProject: "none"}
	if done, err := d.Reload(t.Context()); err != nil || len(done.Changed) > 0 || len(done.Restart) == 0 {
		t.Errorf("to plain HTTP: %+v, %v, want a restart", done, err)
	}
}
