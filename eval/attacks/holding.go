package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/server/attack"
)

// vector is a way to hold something of a gateway without paying for it.
type vector struct {
	name  string
	tls   bool
	hold  func(h *holder, c net.Conn) // returns when the connection ends
	share int                         // one of so many connections is opened: 0 is all
}

// vectors are the ways that are tried, one after the other.
var vectors = []vector{
	{name: "slow head", hold: drip("GET /v1/items/1 HTTP/1.1\r\nHost: x\r\n", "a: b\r\n", 5*time.Second)},
	{
		name: "no body, to a path that is not there",
		hold: drip("POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n", "", 0),
	},
	{
		name: "no body, to the API",
		hold: drip("POST /v1/items HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n", "", 0),
	},
	{
		name: "slow body",
		hold: drip("POST /v1/items HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n", "x", time.Second),
	},
	{name: "slow read", hold: slowRead},
	{
		name: "idle tunnels",
		hold: drip("GET /v1/tunnel HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", "", 0),
	},
	{name: zeroWindowName, tls: true, hold: zeroWindow, share: 16},
	{
		name:  "8,500 header fields",
		hold:  again("GET /nothing HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("a:b\r\n", 8500) + "\r\n"),
		share: 100,
	},
	{
		name:  "a path of 10,000 times a/../",
		hold:  again("GET /" + strings.Repeat("a/../", 10000) + " HTTP/1.1\r\nHost: x\r\n\r\n"),
		share: 100,
	},
}

const zeroWindowName = "zero window, 250 refused requests on each connection"

// drip says something, and then a little now and then.
func drip(say, little string, every time.Duration) func(*holder, net.Conn) {
	return func(h *holder, c net.Conn) {
		if _, err := io.WriteString(c, say); err != nil {
			return
		}
		if little != "" {
			go func() {
				for tick := time.NewTicker(every); ; <-tick.C {
					if _, err := io.WriteString(c, little); err != nil {
						tick.Stop()
						return
					}
				}
			}()
		}
		_, _ = io.Copy(io.Discard, c)
	}
}

// slowRead asks for much and takes nothing.
func slowRead(h *holder, c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4 << 10)
	}
	if _, err := io.WriteString(c, "GET /v1/large HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return
	}
	// A write tells of a reset, where a read would take the answer.
	for tick := time.NewTicker(time.Second); ; <-tick.C {
		if _, err := io.WriteString(c, " "); err != nil || h.ctx.Err() != nil {
			tick.Stop()
			return
		}
	}
}

// zeroWindow makes requests that are refused, and lets no answer come.
func zeroWindow(h *holder, c net.Conn) {
	frames, err := attack.NewHTTP2(c, 0)
	if err != nil {
		return
	}
	for i := range uint32(250) {
		if frames.Request(1+2*i, "GET", "/nothing", true) != nil {
			return
		}
	}
	for {
		if _, err := frames.Next(); err != nil {
			return
		}
	}
}

// again sends the same costly request, on a new connection each time.
func again(request string) func(*holder, net.Conn) {
	return func(h *holder, c net.Conn) {
		if _, err := io.WriteString(c, request); err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, c)
	}
}

// holder is one client with many connections.
type holder struct {
	ctx    context.Context
	vector vector
	to     string
	from   netip.Addr
	yields bool // the processors, to the rest
	opened atomic.Int64

	enough int64  // connections opened that make it an attack
	under  func() // is told once so many are
}

// redial is how long a connection that was ended waits on average before it comes
// again; at the beginning they come within one of these, too.
const redial = 2 * time.Second

// attack keeps n connections until ctx ends. Each comes again when it is ended.
func (h *holder) attack(n int) {
	var wg sync.WaitGroup
	defer wg.Wait()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: h.from.AsSlice()}, Timeout: 10 * time.Second}
	for range n {
		wg.Go(func() {
			for wait := mathrand.N(redial); h.ctx.Err() == nil; wait = redial/2 + mathrand.N(redial) {
				select {
				case <-h.ctx.Done():
				case <-time.After(wait):
					h.once(&dialer)
				}
			}
		})
	}
}

func (h *holder) once(dialer *net.Dialer) {
	c, err := dialer.DialContext(h.ctx, "tcp", h.to)
	if err == nil || errors.Is(err, syscall.ECONNRESET) { // accepted, and already ended
		if h.opened.Add(1) == h.enough {
			h.under()
		}
	}
	if err != nil {
		return
	}
	stop := context.AfterFunc(h.ctx, func() { _ = c.Close() })
	defer stop()
	defer c.Close()
	if h.vector.tls {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // it is our own
	}
	h.vector.hold(h, c)
}

// site is a gateway that is attacked in this way, before an API with an endpoint
// for each vector.
type site struct {
	gate *harness.Gateway
	api  *httptest.Server
	tls  bool
}

// openSite starts one whose process may open so many descriptors, on some of the processors.
func openSite(l *lab, descriptors int, processors string, withTLS bool) (*site, error) {
	dir, err := l.folder()
	if err != nil {
		return nil, err
	}
	s := &site{api: httptest.NewUnstartedServer(http.HandlerFunc(holdable)), tls: withTLS}
	s.api.Config.ConnContext = sendLittle
	s.api.Start()
	l.atEnd(func() { s.api.CloseClientConnections(); s.api.Close() })
	routes := "GET /v1/items/{id}\nPOST /v1/items\nGET /v1/large\nGET /v1/tunnel\n"
	conf := "clients: {max_streams: 100}\n"
	if withTLS {
		if err := writePair(dir); err != nil {
			return nil, err
		}
		conf += "tls: {cert_file: cert.pem, key_file: key.pem}\n"
	}
	for name, text := range map[string]string{"routes.txt": routes, "headgate.yaml": conf} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	for _, rule := range [][]string{{"default", "20", "--burst", "1000"}, {"GET /v1/items/{id}", "1000"}} {
		if err := harness.Command(dir, append([]string{"policy", "set", "--db", "sqlite:headgate.db"},
			rule...)...); err != nil {
			return nil, err
		}
	}
	s.gate, err = harness.StartWithin(descriptors, processors, dir, "--upstream", s.api.URL, "--routes", "routes.txt",
		"--config", "headgate.yaml")
	if err != nil {
		return nil, err
	}
	l.atEnd(s.gate.Kill)
	return s, nil
}

// sendLittle keeps the send buffer of the API small: filling 4 MiB for each answer
// takes the processors that the gateway is measured on.
func sendLittle(ctx context.Context, c net.Conn) context.Context {
	_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
	return ctx
}

// holdable is an API: it reads bodies, has large answers, and takes up tunnels.
func holdable(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/large":
		part := make([]byte, 32<<10)
		for range 1024 {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	case "/v1/tunnel":
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(io.Discard, rw)
	default:
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "ok")
	}
}

// address is where the gateway listens.
func (s *site) address() string {
	_, address, _ := strings.Cut(s.gate.URL, "://")
	return address
}

// client returns a client of s with its own address. A fresh one makes a
// connection for each request, as a newcomer does.
func (s *site) client(from netip.Addr, fresh bool, timeout time.Duration) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		// it is our own
		DialContext: dialer.DialContext, DisableKeepAlives: fresh,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

// writePair writes a certificate that nobody signed, and its key.
func writePair(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: cert},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
