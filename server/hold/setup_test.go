package hold_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/hold"
)

// bound is how long a machine that is busy may take to what takes a fraction of
// a second.
const bound = 30 * time.Second

// small are limits that a test can wait for.
func small() hold.Options {
	return hold.Options{
		MaxConnections: 100, MaxPerAddress: 10, MaxRequests: 100, MaxRequestsPerAddress: 10, MaxStreams: 50,
		MaxHeaders: 32, MaxHeaderBytes: 16 << 10, MaxTarget: 1 << 10,
		HeadTimeout: time.Second, Idle: bound, Pace: hold.Pace{Patience: 300 * time.Millisecond, MinRate: 10_000},
		StreamIdle: time.Second,
		Group:      func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) },
		Exempt:     func(netip.Addr) bool { return false },
		Plain:      true, Log: slog.New(slog.DiscardHandler),
	}
}

// site is a server behind a Limiter.
type site struct {
	*httptest.Server
	limiter *hold.Limiter
}

func serve(t *testing.T, o hold.Options, handler http.Handler, change ...func(*httptest.Server)) *site {
	t.Helper()
	s := unswept(t, o, handler, change...)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.limiter.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return s
}

// unswept is serve without sweeps, for which no time passes: however long a machine takes, all that is under way began
// just now.
func unswept(t *testing.T, o hold.Options, handler http.Handler, change ...func(*httptest.Server)) *site {
	t.Helper()
	l := hold.New(o)
	s := httptest.NewUnstartedServer(l.Handler(handler))
	s.Listener = l.Listen(s.Listener)
	for _, f := range change {
		f(s)
	}
	// httptest has a ConnState of its own, which calls the one that is there.
	l.Prepare(s.Config)
	if s.EnableHTTP2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return &site{s, l}
}

// client is a connection that a test writes to by hand.
type client struct {
	net.Conn
	answers *bufio.Reader
}

// dial connects from 127.0.0.host.
func (s *site) dial(t *testing.T, host byte) *client {
	t.Helper()
	c := s.knock(t, host)
	if c == nil {
		t.Fatal("the connection was reset at once")
	}
	return c
}

// knock is dial where there may be no room: nil if the connection is reset at once.
func (s *site) knock(t *testing.T, host byte) *client {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}, Timeout: bound}
	c, err := d.Dial("tcp", s.Listener.Addr().String())
	if errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(bound))
	return &client{c, bufio.NewReader(c)}
}

// get asks for path and returns the status, 0 if the connection is closed.
func (c *client) get(t *testing.T, path string) int {
	t.Helper()
	if c == nil {
		return 0
	}
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return 0
	}
	return c.status()
}

func (c *client) status() int {
	if c == nil {
		return 0
	}
	response, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// ended reports whether the server closes the connection in time.
func (c *client) ended() bool {
	_, err := io.Copy(io.Discard, c.answers)
	timeout, ok := err.(net.Error)
	return !ok || !timeout.Timeout()
}

// eventually waits for what happens in its own time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(bound)
	for !ok() {
		select {
		case <-late:
			t.Fatalf("%s: not within %v", what, bound)
		case <-tick.C:
		}
	}
}

func (s *site) count(why hold.Reason) uint64 { return s.limiter.Stats().Ended[why.String()] }
