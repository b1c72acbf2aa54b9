package hold

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

// Listen returns a listener that counts what l accepts. PROXY headers and TLS
// come behind it.
func (l *Limiter) Listen(listener net.Listener) net.Listener {
	return &counted{Listener: listener, l: l}
}

type counted struct {
	net.Listener
	l *Limiter
}

// Accept returns the next connection for which there is room. It never waits for
// a client.
func (a *counted) Accept() (net.Conn, error) {
	for {
		raw, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, l: a.l, slot: -1, left: a.l.o().Patience}
		c.head.on = a.l.o().Plain
		c.active.Store(a.l.tick.Load())
		displaced, why, ok := a.l.join(c, address(raw.RemoteAddr()))
		if displaced != nil {
			a.l.count(Displaced)
			displaced.cut()
		}
		if ok {
			if tcp, ok := raw.(*net.TCPConn); ok {
				_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true})
			}
			keepLittle(raw)
			return c, nil
		}
		a.l.count(why)
		c.refuse()
	}
}

func address(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// errNoRoom closes the connection of a client that a balancer named.
var errNoRoom = errors.New("the client holds too many connections")

// Name counts a connection that l accepted as one of client, whom a balancer
// named: until then it was the balancer's. The error says that there is no room.
func (l *Limiter) Name(under net.Conn, client net.Addr) error {
	c := find(under)
	if c == nil {
		return nil
	}
	l.leave(c)
	displaced, why, ok := l.join(c, address(client))
	if displaced != nil {
		l.count(Displaced)
		displaced.cut()
	}
	if !ok {
		l.count(why)
		return errNoRoom
	}
	return nil
}

// conn is a connection that is counted.
type conn struct {
	net.Conn
	l     *Limiter
	group atomic.Pointer[group]
	slot  int // guarded by Limiter.mu: in group.conns; -1 if it is in none

	untold bool // why it is refused

	state   atomic.Uint32 // an http.ConnState
	active  atomic.Int64  // the tick at which a byte last passed
	writing atomic.Int64  // the tick at which the present Write began, or 0
	waiting atomic.Int64  // the tick at which the present wait for a body began, or 0
	written atomic.Uint64 // bytes that the kernel took
	readBy  atomic.Int64  // the deadline of Read in Unix nanoseconds, or 0
	closed  atomic.Bool

	head head        // touched by Read alone
	next atomic.Bool // a request is over, so what is read now is another head

	// What the sweep remembers.
	stalled bool
	left    time.Duration
	taken   uint64 // bytes that the client had acknowledged
}

// find returns the conn under TLS and PROXY headers, or nil.
func find(c net.Conn) *conn {
	for {
		switch under := c.(type) {
		case *conn:
			return under
		case interface{ NetConn() net.Conn }:
			c = under.NetConn()
		default:
			return nil
		}
	}
}

// enter is told what net/http makes of the connection.
func (c *conn) enter(state http.ConnState) {
	c.state.Store(uint32(state))
	if state == http.StateIdle {
		c.next.Store(true)
	}
	c.active.Store(c.l.tick.Load())
}

// betweenRequests reports whether no request is under way.
func (c *conn) betweenRequests() bool {
	state := http.ConnState(c.state.Load())
	return state == http.StateNew || state == http.StateIdle
}

// idle reports whether the connection may be closed for a newcomer: no request
// is under way and nothing has come for so many ticks, or its client is being
// waited for, and not only now.
func (c *conn) idle(now, ticks int64) bool {
	if c.betweenRequests() {
		return now-c.active.Load() >= ticks
	}
	for _, since := range [...]int64{c.writing.Load(), c.waiting.Load()} {
		if since > 0 && now-since > 1 {
			return true
		}
	}
	return false
}

// Read reads, when it is the client's turn, and keeps heads of too many lines from
// whoever would parse them.
func (c *conn) Read(p []byte) (int, error) {
	if g := c.group.Load(); g != nil && !g.turn.wait(c.mayWait) {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := c.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	c.active.Store(c.l.tick.Load())
	if c.head.on {
		if c.next.Swap(false) || !c.betweenRequests() {
			c.head = head{on: true}
		}
		if c.betweenRequests() && c.head.lines(p[:n]) > c.l.o().MaxHeaders+headSlack {
			c.l.count(Headers)
			c.tooManyHeaders()
			return 0, errTooManyHeaders
		}
	}
	return n, err
}

// Write writes. While it takes long, the sweep looks at what the client takes.
func (c *conn) Write(p []byte) (int, error) {
	c.writing.Store(c.l.tick.Load())
	n, err := c.Conn.Write(p)
	c.writing.Store(0)
	if n > 0 {
		c.written.Add(uint64(n))
		c.active.Store(c.l.tick.Load())
	}
	return n, err
}

// SetReadDeadline also bounds the wait for the client's turn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.noteDeadline(t)
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline is SetReadDeadline, and the same for writes.
func (c *conn) SetDeadline(t time.Time) error {
	c.noteDeadline(t)
	return c.Conn.SetDeadline(t)
}

func (c *conn) noteDeadline(t time.Time) {
	until := int64(0)
	if !t.IsZero() {
		until = t.UnixNano()
	}
	c.readBy.Store(until)
}

// mayWait reports whether a Read may go on waiting.
func (c *conn) mayWait() bool {
	by := c.readBy.Load()
	return !c.closed.Load() && (by == 0 || time.Now().UnixNano() < by)
}

// Close ends the connection, and makes room.
func (c *conn) Close() error {
	c.closed.Store(true)
	err := c.Conn.Close()
	c.l.leave(c)
	return err
}

// NetConn returns the connection that the listener under this one accepted, for those who wait for it to be readable.
func (c *conn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends what is sent and goes on reading: without it an answer to a
// request that was not read to its end is lost when the connection is closed.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// cut ends the connection at once. What the client has not taken is dropped: it
// would stay in the kernel for minutes.
func (c *conn) cut() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

const full = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\nCache-Control: " +
	"no-store\r\nContent-Length: 0\r\n\r\n"

// refuse closes a connection that was never counted. It says why where that can
// be read, and is not said all the time; a write into the empty buffer of a new
// socket does not wait.
func (c *conn) refuse() {
	tcp, ok := c.Conn.(*net.TCPConn)
	switch {
	case c.l.o().Plain && !c.untold:
		_, _ = c.Conn.Write([]byte(full))
	case ok:
		_ = tcp.SetLinger(0) // a reset, after which neither side has anything left to do
	}
	_ = c.Conn.Close()
}
