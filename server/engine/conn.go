package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/internal/silence"
	"github.com/headgate-io/headgate/internal/values"
)

// What a connection is waiting for, in the low bits of conn.phase. The tick at which the wait began stands above them.
const (
	nothing  int64 = iota // it is told apart, or being closed
	forHead               // the rest of a head, or the first one
	forNext               // the next request
	drowsy                // the same, and whoever looked asked for what the wait holds
	resting               // the same, and the wait holds nothing
	serving               // the answer of the handler
	overdue               // whoever looked found the wait too long
	tickBits = 3
	kinds    = 1<<tickBits - 1
)

// conn is a connection that is served here.
type conn struct {
	*session // nil while it rests
	server   *Server
	net      net.Conn
	raw      syscall.RawConn // under net; nil where nobody can look
	given    bool            // to net/http, which ends it
	last     string          // the method of the last request
	slot     int             // guarded by Server.mu
	remote   string
	secure   *tls.ConnectionState // nil without TLS
	ctx      context.Context
	cancel   context.CancelFunc
	phase    atomic.Int64

	owes     atomic.Bool // the body of the request was not read to its end
	deadline atomic.Bool // somebody set one since the request began

	writeBy atomic.Int64 // the tick by which the answer is to be sent; 0 if none is, below 0 if it was not

	served atomic.Uint64 // requests
	watch  watch
}

// session is what a connection needs for one request after the other, and the next connection after it.
type session struct {
	head    head
	blank   *http.Request // of the connection
	request http.Request
	url     url.URL
	parsed  url.URL // of the last target
	target  string
	header  http.Header
	values  []string
	answer  answer

	buf   []byte // buf[r:w] was read and not used
	r, w  int
	least int // bytes that a request has at least: behind the first one net/http looks at fewer in no case
}

const leastNext = 4 // what least is behind the first request

var sessions = sync.Pool{New: func() any {
	return &session{
		buf: make([]byte, maxHead), header: http.Header{},
		answer: answer{header: http.Header{}, room: new(values.Room), small: make([]byte, 0, smallOut)},
	}
}}

// serve serves a connection until it ends, rests or is handed over.
func (e *Server) serve(raw net.Conn) {
	c := &conn{server: e, net: raw, raw: under(raw), session: sessions.Get().(*session)}
	c.state(http.StateNew)
	// Behind a balancer this waits for what names the client, and so would whoever looks after the connection.
	c.remote = raw.RemoteAddr().String()
	c.phase.Store(e.tick.Load()<<tickBits | forHead)
	e.join(c)
	rests := false
	defer func() { c.end(rests, recover()) }()
	if e.leaving.Load() {
		return
	}
	c.ctx, c.cancel = context.WithCancel(context.WithValue(e.base, http.LocalAddrContextKey, raw.LocalAddr()))
	if e.http.ConnContext != nil {
		c.ctx = e.http.ConnContext(c.ctx, raw)
	}
	if secure, ok := raw.(*tls.Conn); ok && !c.handshake(secure) {
		return
	}
	c.least = 1
	rests = c.requests()
}

// requests serves one request after the other, and reports whether the connection rests then.
func (c *conn) requests() (rests bool) {
	c.blank = new(http.Request).WithContext(c.ctx)
	for {
		switch c.readHead() {
		case plain:
			if !c.serveOne() {
				return false
			}
		case other:
			c.handOver()
			return false
		case later:
			c.session.free()
			c.session = nil
			return true
		default:
			return false
		}
	}
}

// end is what comes after requests; err is what the handler panicked with.
func (c *conn) end(rests bool, err any) {
	if rests {
		go c.rest() // whose stack never grew
		return
	}
	c.server.recovered(c, err)
	c.close()
}

// handshake speaks TLS, and reports whether what comes behind is HTTP/1.1. Everything else is handed over.
func (c *conn) handshake(secure *tls.Conn) bool {
	err := secure.HandshakeContext(c.ctx)
	if err == nil {
		state := secure.ConnectionState()
		c.secure = &state
		if p := state.NegotiatedProtocol; p == "" || p == "http/1.1" {
			return true
		}
	}
	if c.phase.Swap(nothing)&kinds != overdue {
		c.give(c.net) // which finds the handshake done, or failed
	}
	return false
}

func (c *conn) state(s http.ConnState) {
	if hook := c.server.http.ConnState; hook != nil {
		hook(c.net, s)
	}
}

// close ends the connection, unless it was handed over.
func (c *conn) close() {
	c.phase.Store(nothing)
	if c.cancel != nil {
		c.cancel()
	}
	if !c.given {
		_ = c.net.Close()
		c.state(http.StateClosed)
	}
	c.server.leave(c)
	c.watch.wait()
	if c.session != nil && !c.owes.Load() { // else its handler panicked, and somebody may still read into it
		c.session.free()
	}
}

// free keeps what is not large for another connection.
func (s *session) free() {
	clear(s.header)
	clear(s.values)
	clear(s.answer.header)
	s.answer.room.Clear()
	clear(s.head.fields)
	s.head = head{fields: s.head.fields[:0], marks: s.head.marks[:0]}
	s.blank, s.target, s.r, s.w, s.least = nil, "", 0, 0, 0
	s.request, s.url, s.parsed = http.Request{}, url.URL{}, url.URL{}
	clear(s.answer.order[:cap(s.answer.order)])
	s.answer = answer{header: s.answer.header, room: s.answer.room, small: s.answer.small, held: s.answer.held[:0],
		order: s.answer.order[:0]}
	sessions.Put(s)
}

// readHead reads until a head is whole, or not plain. It is incomplete if the client left, was too slow, or is not
// waited for any more, and later if nothing has come for a while.
func (c *conn) readHead() verdict {
	for asked := false; ; {
		if c.w-c.r >= c.least {
			if k := c.phase.Load() & kinds; k == forNext || k == drowsy {
				c.enter(forHead)
			}
			v := c.head.read(c.buf[c.r:c.w])
			if v != incomplete {
				next := nothing // nobody reads on behalf of net/http
				if v == plain {
					next = serving
					c.owes.Store(c.head.length > 0) // before whoever looks may read on behalf of the request
				}
				if !c.leavePhase(next) {
					return incomplete
				}
				c.state(http.StateActive)
				return v
			}
		}
		if c.r > 0 { // make room
			c.w = copy(c.buf, c.buf[c.r:c.w])
			c.r = 0
		}
		n, err := c.net.Read(c.buf[c.w:])
		c.w += n
		switch {
		case n > 0 || err == nil:
		case c.w == 0 && c.wakes(err, resting):
			return later
		case c.w > 0 && !asked && c.wakes(err, drowsy): // it holds a part of a head, and is not asked again
			asked = true
		case err == io.EOF && c.w >= c.least && c.leavePhase(nothing):
			return other // for an answer that says so
		default:
			return incomplete
		}
	}
}

// enter notes that a wait begins. The wait before must not have been found too long.
func (c *conn) enter(kind int64) {
	for {
		was := c.phase.Load()
		switch was & kinds {
		case overdue:
			return // it stays so, and the next Read fails
		case drowsy:
			c.wakes(os.ErrDeadlineExceeded, forNext)
			continue
		}
		if c.phase.CompareAndSwap(was, c.server.tick.Load()<<tickBits|kind) {
			return
		}
	}
}

// leavePhase ends a wait for what comes next, and reports false if it was found too long.
func (c *conn) leavePhase(next int64) bool {
	was := c.phase.Swap(c.server.tick.Load()<<tickBits | next)
	return was&kinds != overdue
}

// wakes reports whether err is that somebody has asked for what the connection holds while it waits. The wait goes on
// as kind, since when it began, and nothing bounds it any more but those who look.
func (c *conn) wakes(err error, kind int64) bool {
	if c.phase.Load()&kinds != drowsy || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	c.server.mu.Lock() // until the deadline that woke it is set
	defer c.server.mu.Unlock()
	was := c.phase.Load()
	if was&kinds != drowsy {
		return false // it was too long as well
	}
	_ = c.net.SetReadDeadline(time.Time{})
	c.phase.Store(was&^kinds | kind)
	return true
}

// rest waits for the next request with no more than it takes to wait: neither a buffer nor a stack that handlers grew.
func (c *conn) rest() {
	if c.readable() {
		c.again()
		return
	}
	c.close()
}

// readable waits until there is something to read, or the end, and reports false if that is not waited for any more.
func (c *conn) readable() bool {
	looked := false
	return c.raw.Read(func(fd uintptr) bool {
		// What came before is not told again, so it is looked for first. What comes later is.
		if looked {
			return true
		}
		looked = true
		return !silence.Of(fd)
	}) == nil
}

// again serves a connection that rested.
func (c *conn) again() {
	c.session = sessions.Get().(*session)
	c.least = leastNext
	rests := false
	defer func() { c.end(rests, recover()) }()
	for was := c.phase.Load(); was&kinds == resting; was = c.phase.Load() {
		c.phase.CompareAndSwap(was, was&^kinds|forNext)
	}
	rests = c.requests()
}

// under returns the socket of a connection, if one can look at it.
func under(c net.Conn) syscall.RawConn {
	for silence.Known {
		switch at := c.(type) {
		case syscall.Conn:
			raw, err := at.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		case interface{ NetConn() net.Conn }:
			c = at.NetConn()
		default:
			return nil
		}
	}
	return nil
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

const notSent = -1 // in conn.writeBy

// look is called twice a second, with the lock of the Server held.
func (c *conn) look(now, head, idle int64) {
	if by := c.writeBy.Load(); by > 0 && now >= by && c.writeBy.CompareAndSwap(by, notSent) {
		_ = c.net.SetWriteDeadline(past)
	}
	was := c.phase.Load()
	since, most := now-was>>tickBits, int64(0) // below 0 if it was stored a newer tick meanwhile
	switch was & kinds {
	case forHead:
		most = head
	case forNext, drowsy, resting:
		most = idle
	case serving:
		if since > 1 && !c.owes.Load() {
			c.watch.begin(c, was)
		}
		return
	default:
		return
	}
	if most > 0 && since >= most {
		c.overdue(was)
		return
	}
	if was&kinds == forNext && since >= c.server.restAfter && c.raw != nil && c.server.wake > 0 &&
		c.phase.CompareAndSwap(was, was&^kinds|drowsy) {
		c.server.wake--
		_ = c.net.SetReadDeadline(past)
	}
}

// unnote forgets the deadline that was noted for the answer. One that was over is set, and is for others to replace.
func (c *conn) unnote() {
	if c.writeBy.Load() != 0 && c.writeBy.Swap(0) == notSent {
		c.server.looked()
		c.deadline.Store(true)
	}
}

// overdue ends a wait, and reports false if it is not the one any more that was seen.
func (c *conn) overdue(was int64) bool {
	seen := c.phase.CompareAndSwap(was, overdue)
	if seen {
		_ = c.net.SetDeadline(past)
	}
	return seen
}

// endIdle ends a connection that waits for a request; it is called while the Server ends. One on which nothing came
// yet has a moment, since its request may be on its way.
func (c *conn) endIdle() {
	for {
		switch was := c.phase.Load(); was & kinds {
		case forNext, drowsy, resting:
			if !c.overdue(was) {
				continue
			}
		}
		return
	}
}

// serveOne serves the request whose head was read, and reports whether another one may follow.
func (c *conn) serveOne() (more bool) {
	c.served.Add(1)
	h := &c.head
	if h.target != c.target || c.target == "" {
		if !readTarget(&c.parsed, h.target) {
			c.watch.end(c) // what it has read is net/http's
			c.owes.Store(false)
			c.handOver()
			return false
		}
		c.target = h.target
	}
	if c.r += h.size; c.w == len(c.buf) {
		c.makeRoom()
	}
	c.least = leastNext
	r := &c.request
	*r = *c.blank
	c.last = h.method
	c.url = c.parsed
	r.Method, r.URL, r.RequestURI, r.Host, r.Header = h.method, &c.url, h.target, h.host, c.header
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.RemoteAddr, r.TLS, r.Close, r.ContentLength = c.remote, c.secure, h.closes, h.length
	c.setHeader()
	r.Body = http.NoBody
	var b *body
	if h.length > 0 {
		b = &body{c: c, left: h.length}
		r.Body = b
	}
	a := &c.answer
	a.begin(c, r.Method == http.MethodHead, h.closes)
	c.server.http.Handler.ServeHTTP(a, r)
	stayed := c.watch.end(c)
	whole := b.finish()
	if !a.finish(whole) || !stayed {
		if !whole {
			c.closeGently()
		}
		return false
	}
	c.unnote()
	if c.deadline.Load() {
		c.deadline.Store(false)
		_ = c.net.SetDeadline(time.Time{})
	}
	c.state(http.StateIdle)
	c.phase.Store(c.server.tick.Load()<<tickBits | forNext)
	// Who ends the Server sees the wait, or is seen here.
	return !c.server.leaving.Load()
}

// makeRoom moves what was read of the body, or of the next request, to where the head was: else
// whoever watches the client has nowhere to read to.
func (c *conn) makeRoom() {
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	c.w = copy(c.buf, c.buf[c.r:c.w])
	c.r = 0
}

// setHeader fills the header with the fields of the head.
func (c *conn) setHeader() {
	clear(c.header)
	c.values = c.values[:0]
	for _, f := range c.head.fields { // which are bounded, so that values never move
		if cap(c.values) == 0 {
			c.values = make([]string, 0, maxFields)
		}
		if before, ok := c.header[f.name]; ok {
			c.header[f.name] = append(before, f.value)
			continue
		}
		c.values = append(c.values, f.value)
		last := len(c.values)
		c.header[f.name] = c.values[last-1 : last : last]
	}
}

// closeGently ends what is sent, and waits for a moment: a socket with unread bytes is reset when it
// is closed, and the answer is lost to a client that still sends. It reads no more than a part of that.
func (c *conn) closeGently() {
	half, ok := c.net.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	by := time.Now().Add(lingers)
	_ = c.net.SetReadDeadline(by)
	if _, err := io.CopyN(io.Discard, c.net, 256<<10); err == nil {
		time.Sleep(time.Until(by)) // as net/http does: Shutdown waits for it, Close does not
	}
}

const lingers = 500 * time.Millisecond
