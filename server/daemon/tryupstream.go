package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/server/config"
)

// upstreamPatience is how long a server of the API may take to accept a connection.
const upstreamPatience = 2 * time.Second

// Tried is a server of the API that a connection was opened to, or was not.
type Tried struct {
	Server string // its address

	Wrong, Want string // why it was not, and what would be right; "" if it was

	// Refused says that requests cannot work until something is changed: it answered, and not as is needed.
	Refused bool
}

// TryUpstream opens a connection to each server of the API, with TLS where upstream is https, and ends it. No request
// is sent: where upstream is http, the first message of TLS is, which is no request, so that a server answers by which
// it can be told whether it speaks TLS. It takes a few seconds at most. The error is of the gateway's own files.
func TryUpstream(ctx context.Context, c *config.Config) ([]Tried, error) {
	base, err := url.Parse(c.Upstream)
	if err != nil || base.Host == "" || !c.Gateway() {
		return nil, nil // there is none, or Complete has said what is wrong with it
	}
	secure, err := upstreamTLS(base, c.Upstreams.TLS, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	servers := c.Upstreams.Servers
	if len(servers) == 0 {
		port := cmp.Or(base.Port(), map[string]string{"http": "80", "https": "443"}[base.Scheme])
		servers = []config.UpstreamServer{{Address: net.JoinHostPort(base.Hostname(), port)}}
	}
	tried := make([]Tried, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { tried[i] = try(ctx, s.Address, base.Host, secure) })
	}
	all.Wait()
	return tried, nil
}

func try(ctx context.Context, server, host string, secure *tls.Config) Tried {
	t := Tried{Server: server}
	ctx, cancel := context.WithTimeout(ctx, upstreamPatience)
	defer cancel()
	conn, err := connect(ctx, server)
	if err != nil {
		t.Wrong, t.Want = unconnected(err)
		return t
	}
	defer func() { _ = conn.Close() }()
	switch {
	case secure != nil:
		t.Wrong, t.Want = handshake(ctx, conn, secure)
	case answersTLS(ctx, conn, host) && !answersPlain(ctx, server, host):
		t.Wrong = "it speaks TLS, and no plain HTTP"
		t.Want = "upstream with https://, or the port where it speaks plain HTTP"
	}
	t.Refused = t.Wrong != ""
	return t
}

func connect(ctx context.Context, server string) (net.Conn, error) {
	if path, ok := strings.CutPrefix(server, "unix:"); ok {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", server)
}

// answersTLS reports whether a server answers the first message of TLS by another of TLS, be it that it refuses.
// Servers of plain HTTP take it for a request line that is none, which the empty line ends, so that they need not wait.
func answersTLS(ctx context.Context, conn net.Conn, host string) bool {
	var hello firstWrite
	_ = tls.Client(&hello, &tls.Config{ServerName: bare(host), MinVersion: tls.VersionTLS12}).HandshakeContext(ctx)
	got := exchange(conn, append(hello.text, "\r\n\r\n"...), 2)
	const alert, handshake, major = 21, 22, 3 // RFC 8446, section 5.1
	return len(got) == 2 && (got[0] == alert || got[0] == handshake) && got[1] == major
}

// answersPlain reports whether a server that speaks TLS takes plain requests as well, on the same port. Those that do
// not answer by an alert, by 400, or by where to come with TLS.
func answersPlain(ctx context.Context, server, host string) bool {
	conn, err := connect(ctx, server)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	const like = "HTTP/1.1 200"
	asked := "OPTIONS * HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
	got := string(exchange(conn, []byte(asked), len(like)))
	if len(got) < len(like) || !strings.HasPrefix(got, "HTTP/1.") {
		return false
	}
	status := got[len(like)-3:]
	return status != "400" && status[0] != '3'
}

// exchange sends a text and returns the first n bytes of the answer, or less if there are not so many in time.
func exchange(conn net.Conn, text []byte, n int) []byte {
	_ = conn.SetDeadline(time.Now().Add(upstreamPatience / 4))
	if _, err := conn.Write(text); err != nil {
		return nil
	}
	got := make([]byte, n)
	n, _ = io.ReadFull(conn, got)
	return got[:n]
}

// firstWrite is a connection that keeps what is written first, and ends.
type firstWrite struct {
	net.Conn
	text []byte
}

func (f *firstWrite) Write(text []byte) (int, error) {
	f.text = append(f.text, text...)
	return len(text), nil
}

func (f *firstWrite) Read([]byte) (int, error) { return 0, io.EOF }
func (f *firstWrite) Close() error             { return nil }

// bare is a host without its port.
func bare(host string) string { return (&url.URL{Host: host}).Hostname() }

// unconnected is why there is no connection, and what would be right.
func unconnected(err error) (wrong, want string) {
	var name *net.DNSError
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return fmt.Sprintf("the name %q does not resolve", clip.To(name.Name, 253)),
			"a name that this machine can resolve, or an address"
	case errors.As(err, &name):
		return fmt.Sprintf("asking for the name %q failed: %s", clip.To(name.Name, 253), name.Err),
			"a DNS server that answers"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: connection refused", "the API started, or the address that it listens on"
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such socket", "the API started, or the path that it listens on"
	case errors.Is(err, fs.ErrPermission):
		return "this user may not connect to it", "write permission on it for the user of the gateway"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no way to that address", "an address that the network of this machine reaches"
	case late(err):
		return fmt.Sprintf("no connection within %v", upstreamPatience),
			"the address of the API, and no firewall on the way"
	}
	return inWords(err), "the API where this machine can connect to it"
}

// handshake tries TLS. A server of TLS 1.3 says only afterwards that it wants a certificate.
func handshake(ctx context.Context, conn net.Conn, secure *tls.Config) (wrong, want string) {
	asked, shows := false, secure.GetClientCertificate
	secure = secure.Clone()
	secure.GetClientCertificate = func(i *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		asked = true
		if shows != nil {
			return shows(i)
		}
		return new(tls.Certificate), nil
	}
	encrypted := tls.Client(conn, secure)
	err := encrypted.HandshakeContext(ctx)
	if err == nil && asked {
		_ = encrypted.SetReadDeadline(time.Now().Add(upstreamPatience / 4))
		_, err = encrypted.Read(make([]byte, 1))
		if late(err) {
			err = nil // it waits for a request
		}
	}
	var (
		stranger x509.UnknownAuthorityError
		other    x509.HostnameError
		invalid  x509.CertificateInvalidError
		plain    tls.RecordHeaderError
	)
	switch {
	case err == nil:
		return "", ""
	case asked: // after the server's own was found good
		if shows == nil {
			return "it wants a certificate of the gateway: " + inWords(err),
				"upstream_tls.cert_file and upstream_tls.key_file"
		}
		return "it does not take the certificate of the gateway: " + inWords(err),
			"in upstream_tls.cert_file a certificate that the API trusts"
	case errors.As(err, &stranger):
		return "its certificate is signed by nobody who is trusted here",
			"upstream_tls.ca_file, with the certificates of who signs it"
	case errors.As(err, &other):
		return fmt.Sprintf("its certificate is not for %q, but for %s", other.Host, namesOf(other.Certificate)),
			"upstream_tls.server_name, or upstream, with a name in it"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("its certificate is good from %s to %s, and now it is %s", day(invalid.Cert.NotBefore),
			day(invalid.Cert.NotAfter), day(time.Now())), "a new certificate there, or the right clock here"
	case errors.As(err, &plain):
		return "it does not speak TLS", "upstream with http://, or the port where it does"
	case late(err):
		return fmt.Sprintf("it took the connection, and said nothing of TLS within %v", upstreamPatience),
			"an API that answers there, with TLS"
	}
	return "TLS fails: " + inWords(err), "an API that speaks TLS 1.2 or later there"
}

// late reports whether an error is that of a time that is over.
func late(err error) bool {
	var timed net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timed) && timed.Timeout()
}

func day(t time.Time) string { return t.UTC().Format(time.DateTime) }

// namesOf are some of those in a certificate, which a server may have as many of as it likes.
func namesOf(c *x509.Certificate) string {
	all := c.DNSNames
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no name"
	}
	more := ""
	if len(all) > 5 {
		all, more = all[:5], " …"
	}
	return inWords(errors.New(strings.Join(all, ", "))) + more
}

// inWords is an error on one line that is not long: parts of it may come from a server.
func inWords(err error) string {
	return clip.To(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, err.Error()), 300)
}

// tryUpstreams warns of servers of the API that cannot be used as the gateway starts, and when a reload has others. It
// holds up neither.
func (d *Daemon) tryUpstreams(ctx context.Context) {
	for {
		d.tryUpstream(ctx, &d.parts.loaded.Load().conf)
		select {
		case <-ctx.Done():
			return
		case <-d.others:
		}
	}
}

func (d *Daemon) tryUpstream(ctx context.Context, conf *config.Config) {
	tried, _ := TryUpstream(ctx, conf) // its own files were read before
	if ctx.Err() != nil || len(d.others) > 0 {
		return // the gateway ends, or asks other servers by now
	}
	for _, t := range tried {
		if t.Wrong != "" {
			d.log.Warn("a server of the API cannot be used now", "server", t.Server,
				"error", t.Wrong, "want", t.Want)
		}
	}
}

// tryOthers has tryUpstreams try the servers of the configuration that is in force by now.
func (d *Daemon) tryOthers() {
	select {
	case d.others <- struct{}{}:
	default: // it is to look already
	}
}
