package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/config"
)

// Those who ask do so over TLS, with a certificate that is signed for them: by HTTP, and as redis-cli; nobody else is
// answered, and one who says nothing keeps nobody waiting. A new certificate is taken over by a reload.
func TestWhoAsksOverTLS(t *testing.T) {
	files, askers, others := newAuthority(t, "files"), newAuthority(t, "askers"), newAuthority(t, "others")
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	cert, key := files.server(t)
	ca, _ := pemOf(t, askers.cert, nil)
	d, _ := tlsGateway(t, files, nil, "none", func(c *config.Config) {
		c.Decisions.Listen, c.Decisions.RESP, c.Decisions.GRPC, c.Decisions.SPOE = "127.0.0.1:0", "127.0.0.1:0",
			"127.0.0.1:0", "127.0.0.1:0"
		c.Decisions.TLS = config.DecisionsTLS{
			CertFile:     write("ask.pem", cert),
			KeyFile:      write("ask.key", key),
			ClientCAFile: write("askers.pem", ca),
		}
	})
	at := map[string]string{}
	for _, l := range d.Decisions() {
		at[l.Setting] = l.Address
		silent, err := net.Dial("tcp", l.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	roots := x509.NewCertPool()
	roots.AddCert(files.cert)
	asker, other := askers.client(t, "proxy", time.Now().Add(time.Hour)),
		others.client(t, "proxy", time.Now().Add(time.Hour))

	for name, c := range map[string]struct {
		certs  []tls.Certificate
		served bool
	}{
		"its certificate": {[]tls.Certificate{asker}, true},
		"another's":       {[]tls.Certificate{other}, false},
		"none":            {nil, false},
	} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: c.certs}}
		client := &http.Client{Transport: transport, Timeout: time.Minute}
		response, err := client.Post("https://"+at["decisions.listen"]+"/v1/check", "application/json",
			strings.NewReader(`{"method":"GET","target":"/x","client":"192.0.2.1"}`))
		if c.served && err == nil {
			text, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if !strings.Contains(string(text), `"allowed":true`) {
				t.Errorf("HTTP with %s: %d %s", name, response.StatusCode, text)
			}
		} else if c.served || err == nil {
			t.Errorf("HTTP with %s: %v, want an answer: %v", name, err, c.served)
		}
		transport.CloseIdleConnections()

		for _, setting := range []string{"decisions.resp", "decisions.grpc", "decisions.spoe"} {
			conn, err := tls.Dial("tcp", at[setting], &tls.Config{
				RootCAs:      roots,
				Certificates: c.certs,
				NextProtos:   map[bool][]string{true: {"h2"}}[setting == "decisions.grpc"],
			})
			if err != nil {
				t.Fatalf("%s with %s: %v", setting, name, err)
			}
			// In TLS 1.3 a client learns that its certificate was refused when it reads.
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			switch setting {
			case "decisions.resp":
				_, _ = io.WriteString(conn, "PING\r\n")
			case "decisions.grpc":
				_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			default: // a frame that is none: its answer says so
				_, _ = io.WriteString(conn, "\x00\x00\x00\x07\x01\x00\x00\x00\x01\x00\x00")
			}
			n, err := conn.Read(make([]byte, 7))
			if (n > 0) != c.served {
				t.Errorf("%s with %s: %d bytes, %v; want an answer: %v", setting, name, n, err, c.served)
			}
			_ = conn.Close()
		}
	}

	own, secret := askers.sign(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	ownPEM, secretPEM := pemOf(t, own, secret)
	rootPEM, _ := pemOf(t, files.cert, nil)
	host, port, _ := net.SplitHostPort(at["decisions.resp"])
	out, err := exec.Command("redis-cli", "-h", host, "-p", port, "--tls", "--cacert", write("root.pem", rootPEM),
		"--cert", write("own.pem", ownPEM), "--key", write("own.key", secretPEM), "CL.THROTTLE", "ann", "2", "10",
		"60").CombinedOutput()
	if got := strings.Join(strings.Fields(string(out)), " "); err != nil || !strings.HasPrefix(got, "0 3 2 -1") {
		t.Errorf("redis-cli: %v, %q", err, got)
	}

	plain, err := net.Dial("tcp", at["decisions.resp"])
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	_, _ = io.WriteString(plain, "PING\r\n")
	_ = plain.SetReadDeadline(time.Now().Add(time.Minute))
	if text, _ := io.ReadAll(plain); strings.Contains(string(text), "PONG") {
		t.Errorf("without TLS: %q", text)
	}

	// Those who sign change: whoever they signed for before may ask no more.
	otherCA, _ := pemOf(t, others.cert, nil)
	write("askers.pem", otherCA)
	if _, err := d.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cert   tls.Certificate
		served bool
	}{{asker, false}, {other, true}} {
		conn, err := tls.Dial("tcp", at["decisions.resp"],
			&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{c.cert}})
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, "PING\r\n")
		if n, err := conn.Read(make([]byte, 7)); (n > 0) != c.served {
			t.Errorf("after the reload: %d bytes, %v; want an answer: %v", n, err, c.served)
		}
		_ = conn.Close()
	}
}
