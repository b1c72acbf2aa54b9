package upstream_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/gateway/upstream"
)

// fleet is servers in memory, for virtual time: a request is answered by its server's name, and connections
// are refused to those that are down.
type fleet struct {
	mu     sync.Mutex
	down   map[string]bool // guarded by mu
	status map[string]int  // guarded by mu: of answers to /healthz
	served map[string]int  // guarded by mu
	asked  map[string]int  // guarded by mu: /healthz
	hold   chan struct{}   // requests wait for it, if it is set
}

func newFleet() *fleet {
	return &fleet{down: map[string]bool{}, status: map[string]int{}, served: map[string]int{}, asked: map[string]int{}}
}

func (f *fleet) dial(_ context.Context, _, address string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down[address] {
		return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
	}
	ours, theirs := net.Pipe()
	go f.serve(theirs, address)
	return ours, nil
}

func (f *fleet) serve(c net.Conn, address string) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		head, err := readHead(in)
		if err != nil {
			return
		}
		status := 200
		f.mu.Lock()
		if strings.HasPrefix(head, "GET /healthz ") {
			f.asked[address]++
			if f.status[address] != 0 {
				status = f.status[address]
			}
		} else {
			f.served[address]++
		}
		down := f.down[address]
		f.mu.Unlock()
		if f.hold != nil && !strings.HasPrefix(head, "GET /healthz ") {
			<-f.hold
		}
		if down {
			return
		}
		if _, err := fmt.Fprintf(c, "HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", status, len(address),
			address); err != nil {
			return
		}
	}
}

func (f *fleet) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// A server gets requests by its weight and by how many it has under way.
func TestRequestsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.hold = make(chan struct{})
		p, err := upstream.New(upstream.Options{
			Servers: []upstream.Server{{Address: "a:1", Weight: 3}, {Address: "b:1"}, {Address: "c:1"}},
			Dial:    f.dial,
		})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if _, _, err := ask(p); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if f.served["a:1"] != 30 || f.served["b:1"] != 10 || f.served["c:1"] != 10 {
			t.Errorf("of 50 requests at once %v, want 30, 10 and 10", f.served)
		}
		close(f.hold)
		all.Wait()
		// One after the other all servers are equally idle.
		f.set(func() { clear(f.served) })
		for range 30 {
			_, _, _ = ask(p)
		}
		if f.served["a:1"] != 18 || f.served["b:1"] != 6 || f.served["c:1"] != 6 {
			t.Errorf("of 30 requests one after the other %v, want 18, 6 and 6", f.served)
		}
		p.Close()
	})
}

// A server that cannot be reached fails no request as long as there is another, is left out after some failures,
// and tried again later.
func TestServersThatFailAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var told []string
		dials := 0
		p, err := upstream.New(upstream.Options{
			Servers: []upstream.Server{{Address: "a:1"}, {Address: "b:1"}}, MaxFails: 3, FailTimeout: 10 * time.Second,
			Changed: func(server string, up bool, _ error) { told = append(told, fmt.Sprint(server, up)) },
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == "a:1" {
					dials++
				}
				return f.dial(ctx, network, address)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.down["a:1"] = true })
		for range 20 {
			if _, body, err := ask(p); body != "b:1" || err != nil {
				t.Fatal(body, err)
			}
		}
		if dials != 3 || fmt.Sprint(told) != "[a:1false]" || p.Servers()[0].Up {
			t.Errorf("it was tried %d times, and told of were %v; want 3, and that it is left out", dials, told)
		}
		time.Sleep(10 * time.Second) // virtual
		for range 20 {
			_, _, _ = ask(p)
		}
		if dials != 4 {
			t.Errorf("after the time it was tried %d times, want once more", dials-3)
		}
		f.set(func() { f.down["a:1"] = false })
		time.Sleep(10 * time.Second)
		for range 20 {
			_, _, _ = ask(p)
		}
		if f.served["a:1"] == 0 || fmt.Sprint(told) != "[a:1false a:1true]" {
			t.Errorf("once it is well again %v, told of %v", f.served, told)
		}
		// When all fail, each is tried, and the request fails.
		f.set(func() { f.down["a:1"], f.down["b:1"] = true, true })
		p.Close()
		if _, _, err := ask(p); !errors.Is(err, upstream.ErrNotSent) {
			t.Errorf("without a server: %v, want ErrNotSent", err)
		}
	})
}

// Servers that say that they are not well get no requests until they are, and are asked as often as was said.
func TestHealthIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		p, err := upstream.New(upstream.Options{
			Servers: []upstream.Server{{Address: "a:1"}, {Address: "b:1"}}, Dial: f.dial,
			Health: upstream.Health{Path: "/healthz", Every: time.Second},
		})
		if err != nil {
			t.Fatal(err)
		}
		up := func() string { return fmt.Sprint(p.Servers()[0].Up, p.Servers()[1].Up) }
		steps := []struct {
			status int // of a's answers
			after  time.Duration
			up     string
		}{
			{200, 3500 * time.Millisecond, "true true"}, {503, 2 * time.Second, "true true"},
			{503, time.Second, "false true"},
			{200, time.Second, "false true"}, {503, time.Second, "false true"}, {302, 2 * time.Second, "true true"},
		}
		for i, s := range steps {
			f.set(func() { f.status["a:1"] = s.status })
			time.Sleep(s.after)
			synctest.Wait()
			if up() != s.up {
				t.Errorf("step %d, %d for %v: up is %s, want %s", i, s.status, s.after, up(), s.up)
			}
			if i == 2 {
				f.set(func() { clear(f.served) })
				for range 10 {
					_, _, _ = ask(p)
				}
				if f.served["a:1"] != 0 {
					t.Errorf("a server that is not well got %d of 10 requests", f.served["a:1"])
				}
			}
		}
		if n := f.asked["a:1"]; n < 10 || n > 12 {
			t.Errorf("in 10.5 s it was asked %d times, want once a second", n)
		}
		p.Close()
	})
}

// Connections that nobody uses are closed after their time, and those that a server closed at once.
func TestIdleConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		p, err := upstream.New(upstream.Options{
			Servers:     []upstream.Server{{Address: "a:1"}},
			Dial:        f.dial,
			IdleTimeout: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _, _ = ask(p)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if n := p.Servers()[0].Idle; n != 1 {
			t.Errorf("after 59 s %d are idle, want 1", n)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n := p.Servers()[0].Idle; n != 0 {
			t.Errorf("after 63 s %d are idle, want none", n)
		}
	})
}

func TestUnixSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	o := serveOn(t, "unix", path, always(ok))
	p := newPool(t, nil, func(o *upstream.Options) { o.Servers = []upstream.Server{{Address: "unix:" + path}} })
	for range 5 {
		if _, body, err := ask(p); body != "ok" || err != nil {
			t.Fatal(body, err)
		}
	}
	if n := o.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// certificate is one for name, and the pool that trusts it.
func certificate(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, trusted
}

// With TLS connections are kept too, the server is asked for by name, and shown the gateway's
// certificate. Who has not the name, or wants a certificate that is not there, gets no request.
func TestTLS(t *testing.T) {
	own, trusted := certificate(t, "api.internal")
	gate, signers := certificate(t, "gateway")
	var names atomic.Value
	for name, c := range map[string]struct {
		version uint16
		as      string
		certs   []tls.Certificate
		unasked string // said behind each answer
		conns   int64
		fails   bool
	}{
		"1.3": {tls.VersionTLS13, "api.internal", []tls.Certificate{gate}, "", 1, false},
		"1.2": {tls.VersionTLS12, "api.internal", []tls.Certificate{gate}, "", 1, false},
		"another answer": {tls.VersionTLS13, "api.internal", []tls.Certificate{gate},
			"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", 4, false},
		"another name":       {tls.VersionTLS13, "other.internal", []tls.Certificate{gate}, "", 0, true},
		"no own certificate": {tls.VersionTLS12, "api.internal", nil, "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := serve(t, nil)
			_ = o.Close()
			o = &origin{Listener: mustListen(t)}
			secure := tls.NewListener(o.Listener, &tls.Config{
				Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: signers,
				MaxVersion: c.version, NextProtos: []string{"http/1.1"},
				GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
					names.Store(hello.ServerName)
					return nil, nil
				},
			})
			go func() {
				for {
					conn, err := secure.Accept()
					if err != nil {
						return
					}
					go func() {
						defer conn.Close()
						if conn.(*tls.Conn).Handshake() != nil {
							return
						}
						o.conns.Add(1)
						in := bufio.NewReader(conn)
						for {
							if _, err := readHead(in); err != nil {
								return
							}
							_, _ = io.WriteString(conn, ok+c.unasked)
						}
					}()
				}
			}()
			p := newPool(t, o, func(o *upstream.Options) {
				o.TLS = &tls.Config{ServerName: c.as, RootCAs: trusted, Certificates: c.certs}
			})
			for i := range 4 {
				_, body, err := ask(p)
				if (err != nil) != c.fails || !c.fails && body != "ok" {
					t.Errorf("request %d: %q, %v", i, body, err)
				}
			}
			if n := o.conns.Load(); n != c.conns {
				t.Errorf("%d connections, want %d", n, c.conns)
			}
			if !c.fails && names.Load() != "api.internal" {
				t.Errorf("the server was asked for as %v", names.Load())
			}
		})
	}
}

func mustListen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// A body is sent while its answer is read; one that breaks off, or is not as long as was said, ends the exchange.
func TestBodies(t *testing.T) {
	for name, c := range map[string]struct {
		head, body string
		length     int64
		read       string
		fails      bool
	}{
		"whole":    {"", "12345678", 8, "12345678", false},
		"expected": {"Expect: 100-continue\r\n", "12345678", 8, "12345678", false},
		"short":    {"", "1234", 8, "1234", true},
		"long":     {"", "123456789", 8, "", true},
		"chunks":   {"", "123", -1, "3\r\n123\r\n", false},
	} {
		var got atomic.Value
		o := serve(t, func(c net.Conn, in *bufio.Reader, head string) bool {
			if strings.Contains(head, "Expect") {
				_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
			}
			body := make([]byte, 8)
			n, _ := io.ReadFull(in, body)
			got.Store(string(body[:n]))
			_, err := io.WriteString(c, ok)
			return err == nil
		})
		p := newPool(t, o)
		q := &upstream.Request{
			Head: []byte("POST / HTTP/1.1\r\nHost: a\r\n" + c.head + "\r\n"), Body: strings.NewReader(c.body),
			Length: c.length, Expect: c.head != "",
		}
		_, _, err := send(context.Background(), p, q)
		if (err != nil) != c.fails || c.fails && !errors.Is(err, upstream.ErrBody) {
			t.Errorf("%s: %v", name, err)
		}
		if !c.fails && got.Load() != c.read {
			t.Errorf("%s: the server read %q, want %q", name, got.Load(), c.read)
		}
	}
}
