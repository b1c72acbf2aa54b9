package upstream

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/internal/silence"
)

// conn is a connection to a server. One request at a time uses it.
type conn struct {
	net.Conn
	server *server
	secure *tls.Conn       // nil without TLS
	raw    syscall.RawConn // nil where nobody can look
	plain  bool            // nothing stands between Conn and raw
	peek   func(fd uintptr) bool
	silent bool // what the last peek found: open, and nothing to read
	turn   turn

	buf    []byte // read and not used: buf[r:w]; nil while idle
	r, w   int
	reused bool      // not the first request
	since  time.Time // idle
}

const bufferBytes = 4 << 10

var buffers = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

func newConn(c net.Conn, s *server) *conn {
	made := &conn{Conn: c, server: s}
	if made.secure, _ = c.(*tls.Conn); made.secure != nil {
		c = made.secure.NetConn()
	}
	if under, ok := c.(syscall.Conn); ok {
		made.raw, _ = under.SyscallConn()
	}
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
		made.plain = silence.Known && made.raw != nil && made.secure == nil
	}
	made.peek, made.turn.take = made.look, made.takeTurn
	return made
}

// unused are the bytes that were read and not used.
func (c *conn) unused() []byte { return c.buf[c.r:c.w] }

// fill reads once, into what is free of the buffer or into a larger one.
func (c *conn) fill() error {
	switch {
	case c.buf == nil:
		c.buf = buffers.Get().(*[bufferBytes]byte)[:]
	case c.r == c.w:
		c.r, c.w = 0, 0
	case c.w == len(c.buf) && c.r > 0:
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	case c.w == len(c.buf):
		larger := make([]byte, 2*len(c.buf))
		c.w = copy(larger, c.buf)
		c.giveBack()
		c.buf = larger
	}
	n, err := c.Conn.Read(c.buf[c.w:])
	c.w += n
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// giveBack gives the buffer back.
func (c *conn) giveBack() {
	if len(c.buf) == bufferBytes {
		buffers.Put((*[bufferBytes]byte)(c.buf))
	}
	c.buf = nil
}

// rest takes what the connection held of an answer that is over. Nothing may be left.
func (c *conn) rest() (clean bool) {
	clean = c.r == c.w
	c.giveBack()
	c.r, c.w = 0, 0
	return clean
}

// look is called by the runtime with the descriptor, which does not block.
func (c *conn) look(fd uintptr) bool {
	c.silent = silence.Of(fd)
	return true
}

// quiet reports whether the server has neither closed an idle connection nor said anything, and whether the read
// deadline is another one now: none. That must not be over when it is called.
func (c *conn) quiet() (quiet, moved bool) {
	if c.secure == nil && c.raw != nil && silence.Known {
		c.silent = false
		return c.raw.Read(c.peek) == nil && c.silent, false
	}
	// There is no system call that only looks, and none that shows what TLS has decrypted, or read
	// and not decrypted. What is read here ends the connection.
	wait := time.Now().Add(time.Millisecond)
	if c.raw != nil && silence.Known {
		wait = past
	}
	var one [1]byte
	if c.Conn.SetReadDeadline(wait) != nil {
		return false, true
	}
	n, err := c.Conn.Read(one[:])
	if n > 0 || !isTimeout(err) || c.Conn.SetReadDeadline(time.Time{}) != nil {
		return false, true
	}
	if c.raw != nil && silence.Known {
		c.silent = false
		return c.raw.Read(c.peek) == nil && c.silent, true
	}
	return true, true
}

// turn is a request that is short enough for one write, and the wait for its answer.
type turn struct {
	take   func(fd uintptr) bool
	text   []byte
	sent   int // bytes of text
	failed error
	began  bool // the server was silent, and text was sent
}

// ask sends text to a server that is silent, and waits until it says something or the deadline is over, which the next
// Read tells. A Write and a Read do the same, but for a Read each time that finds nothing yet.
func (c *conn) ask(text []byte) error {
	c.turn = turn{take: c.turn.take, text: text}
	err := c.raw.Read(c.turn.take)
	t := c.turn
	c.turn.text = nil
	switch {
	case !t.began && c.reused:
		return errStale
	case !t.began: // whoever speaks before it is asked says what is no answer; the head's reader finds out
		t.sent, t.failed = 0, nil
	case t.sent == 0 && t.failed != nil && c.reused:
		return errStale
	case t.failed != nil:
		return t.failed
	case err != nil && !isTimeout(err):
		return err
	}
	if t.sent < len(text) {
		_, err := c.Conn.Write(text[t.sent:])
		return err
	}
	return nil
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
