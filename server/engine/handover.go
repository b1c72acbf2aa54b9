package engine

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// handOver gives the connection to net/http, which first reads what was read of it.
func (c *conn) handOver() {
	c.phase.Store(nothing)
	c.server.handed.Add(1)
	if c.last == http.MethodPost { // of old clients some send CR LF behind a body, which net/http forgives
		for range 4 {
			if c.r < c.w && (c.buf[c.r] == '\r' || c.buf[c.r] == '\n') {
				c.r++
			}
		}
	}
	p := prefixed{Conn: c.net, first: append([]byte(nil), c.buf[c.r:c.w]...)}
	if c.secure != nil {
		c.give(&prefixedTLS{p, *c.secure})
		return
	}
	c.give(&p)
}

// give hands a connection to net/http.
func (c *conn) give(to net.Conn) {
	c.given = true
	_ = to.SetDeadline(time.Time{})
	c.server.others.give(to)
}

// prefixed is a connection of which something was read already.
type prefixed struct {
	net.Conn
	first []byte
}

// Read reads what was read already, and then what comes.
func (p *prefixed) Read(to []byte) (int, error) {
	if len(p.first) > 0 {
		n := copy(to, p.first)
		if p.first = p.first[n:]; len(p.first) == 0 {
			p.first = nil
		}
		return n, nil
	}
	return p.Conn.Read(to)
}

// NetConn returns the connection under it.
func (p *prefixed) NetConn() net.Conn { return p.Conn }

// CloseWrite is for net/http, which ends so what it refuses to read.
func (p *prefixed) CloseWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// prefixedTLS is that under TLS, of which net/http asks.
type prefixedTLS struct {
	prefixed
	state tls.ConnectionState
}

// ConnectionState is what http.Request.TLS says.
func (p *prefixedTLS) ConnectionState() tls.ConnectionState { return p.state }

// handover is the listener of the net/http server.
type handover struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close has what comes later refused.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

func (h *handover) Addr() net.Addr { return h.addr }

// give hands a connection over, or closes it if nobody serves any more.
func (h *handover) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		_ = c.Close()
	}
}
