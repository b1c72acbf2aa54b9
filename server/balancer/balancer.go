// Package balancer accepts connections whose client is named by a load
// balancer, in the header of the PROXY protocol, version 1 or 2
// (https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt).
//
// The header comes before everything else on a connection, TLS too, so a
// Listener goes around the socket and TLS around the Listener. The client that
// the header names becomes the connection's RemoteAddr, and so the peer whose
// forwarding headers are judged like any other's.
//
// A header is believed from the networks in Options.From alone. Others who send
// one are not understood: what they wrote is no HTTP.
package balancer

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	proxyproto "github.com/pires/go-proxyproto"
)

// Options says who may name clients.
type Options struct {
	// From are the addresses of the balancers. Whoever has one of them, and
	// whoever a balancer lets through without writing a header itself, chooses
	// whose budget is spent.
	From []netip.Prefix

	// Required closes connections from elsewhere, and those without a header.
	// Otherwise such a connection is that of its own address.
	Required bool

	// Timeout bounds the wait for the header. Each connection waits by itself.
	Timeout time.Duration

	// Named, if set, is told whom a header names, and may close the connection by
	// an error. It is given the connection that the Listener accepted.
	Named func(net.Conn, net.Addr) error
}

// Refusal says why a connection was closed.
type Refusal uint8

const (
	NotBalancer Refusal = iota // a header is required and the connection is from elsewhere
	NoHeader                   // a header is required, and there was none in time
	BadHeader                  // the header is malformed, incomplete, too long, or names no TCP client
	refusals                   // how many there are
)

// String returns a metric's label.
func (r Refusal) String() string {
	return [...]string{"not_balancer", "no_header", "bad_header"}[r]
}

// Listener accepts connections and lets balancers name their clients.
type Listener struct {
	net.Listener
	o        atomic.Pointer[Options]
	accepted atomic.Uint64
	refused  [refusals]atomic.Uint64
}

// Listen returns a Listener around l.
func Listen(l net.Listener, o Options) *Listener {
	b := &Listener{Listener: l}
	b.Use(o)
	return b
}

// Use puts other Options in force, for connections that come from then on.
func (l *Listener) Use(o Options) { l.o.Store(&o) }

// Accepted returns how many connections had a header that was believed, one
// that names no client included.
func (l *Listener) Accepted() uint64 { return l.accepted.Load() }

// Refusals yields how many connections were closed for each reason.
func (l *Listener) Refusals() map[string]uint64 {
	all := make(map[string]uint64, refusals)
	for why := range refusals {
		all[why.String()] = l.refused[why].Load()
	}
	return all
}

// Accept returns the next connection. It reads nothing, so that nobody who is
// slow holds up others; the header is read when the connection is first used.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		switch {
		case l.from(c.RemoteAddr()):
			return &conn{Conn: c, l: l, o: l.o.Load(), reader: bufio.NewReaderSize(c, bufferBytes)}, nil
		case !l.o.Load().Required:
			return c, nil
		}
		l.refused[NotBalancer].Add(1)
		_ = c.Close() // whoever it is
	}
}

func (l *Listener) from(remote net.Addr) bool {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return false
	}
	a := tcp.AddrPort().Addr().Unmap().WithZone("")
	for _, p := range l.o.Load().From {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// bufferBytes holds any header of version 1, which has to arrive in one piece,
// and those of version 2 without much of an appendix, which need not.
const bufferBytes = 256

// conn is a connection from a balancer.
type conn struct {
	net.Conn
	l      *Listener
	o      *Options // when it was accepted
	once   sync.Once
	reader *bufio.Reader // what was read with the header; nil when it is used up
	client net.Addr      // whom the header names, if anybody
	err    error         // why the connection was refused
}

// begin reads the header, once.
func (c *conn) begin() error {
	c.once.Do(func() {
		if err := c.Conn.SetReadDeadline(time.Now().Add(c.o.Timeout)); err != nil {
			c.refuse(BadHeader, err)
			return
		}
		client, err := readHeader(c.reader)
		switch {
		case err == nil:
			c.l.accepted.Add(1)
			if client != nil && c.o.Named != nil {
				if err := c.o.Named(c.Conn, client); err != nil {
					c.err = err
					_ = c.Close()
					return
				}
			}
			c.client = client
		case errors.Is(err, errNone) && !c.o.Required:
		case errors.Is(err, errNone):
			c.refuse(NoHeader, err)
			return
		default:
			c.refuse(BadHeader, err)
			return
		}
		c.err = c.Conn.SetReadDeadline(time.Time{})
	})
	return c.err
}

func (c *conn) refuse(why Refusal, err error) {
	c.l.refused[why].Add(1)
	c.err = fmt.Errorf("PROXY protocol: %w", err)
	_ = c.Close() // there is nobody to tell
}

// errNone means that a connection does not begin with a header. None of it was
// used up.
var errNone = errors.New("the connection does not begin with a header")

// readHeader reads a header and returns whom it names, nil for nobody. It reads
// at most 16 bytes and 4 KiB of a header, and buffers what comes behind.
func readHeader(r *bufio.Reader) (net.Addr, error) {
	if _, err := r.Peek(1); err != nil {
		return nil, fmt.Errorf("%w: %w", errNone, err) // not a byte, so no part of one either
	}
	header, err := proxyproto.Read(r)
	switch {
	case err == proxyproto.ErrNoProxyProtocol:
		return nil, errNone
	case err != nil:
		return nil, err
	case header.Command.IsLocal(): // the balancer's own, or of a client it does not know
		return nil, nil
	}
	client, ok := header.SourceAddr.(*net.TCPAddr)
	if !ok || client.IP.IsUnspecified() || client.IP.IsMulticast() {
		return nil, fmt.Errorf("the header names a client by %v, want a TCP address", header.TransportProtocol)
	}
	return client, nil
}

// RemoteAddr returns the client that the header names, or the balancer.
func (c *conn) RemoteAddr() net.Addr {
	if c.begin() == nil && c.client != nil {
		return c.client
	}
	return c.Conn.RemoteAddr()
}

// Read reads what comes behind the header.
func (c *conn) Read(b []byte) (int, error) {
	if err := c.begin(); err != nil {
		return 0, err
	}
	if c.reader != nil {
		if c.reader.Buffered() > 0 {
			return c.reader.Read(b)
		}
		c.reader = nil
	}
	return c.Conn.Read(b)
}

// NetConn returns the connection that the Listener accepted.
func (c *conn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends what is sent and goes on reading: without it an answer to a
// request that was not read to its end is lost when the connection is closed.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SetDeadline waits for the header, whose own deadline it would replace.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.begin(); err != nil {
		return err
	}
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline waits for the header, whose own deadline it would replace.
func (c *conn) SetReadDeadline(t time.Time) error {
	if err := c.begin(); err != nil {
		return err
	}
	return c.Conn.SetReadDeadline(t)
}
