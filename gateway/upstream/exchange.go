package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// Request is what is sent.
type Request struct {
	// Head is the request line, the fields and the empty line, and the body if that is short enough to
	// be there already. It frames the body: by Content-Length, or as chunked.
	Head []byte

	// ToHEAD says that the method is HEAD: its answer has no body, whatever it announces.
	ToHEAD bool

	// Again says that the request may be sent a second time, to a server that may have seen it: its method is
	// idempotent (RFC 9110 section 9.2.2), and it has no Body.
	Again bool

	// Body is the rest of the request, nil if there is none, and Length its length in bytes. If
	// that is below 0, Body is sent in chunks, and behind them what Trailer appends: lines with
	// their ends. Body is read by another goroutine, which Close does not wait for: a Read that
	// begins afterwards has to fail.
	Body    io.Reader
	Length  int64
	Trailer func(to []byte) []byte // may be nil

	// Expect says that the head has "Expect: 100-continue": Body is sent once the server asks for it, or after a
	// second.
	Expect bool

	// Interim is told of an answer of 1xx before the answer; may be nil. The fields are good until it returns.
	Interim func(status int, text []byte, fields []Field)
}

// ErrNotSent says that no server has seen any of a request.
var ErrNotSent = errors.New("not sent")

// errStale says that a connection was closed while it was idle, and that nothing was sent.
var errStale = errors.New("the connection is not open any more")

// ErrBody says that the body of a request could not be read.
var ErrBody = errors.New("the body of the request could not be read")

// quick is how long an answer may take before it is watched whether ctx ends. Most are there sooner, and to
// watch costs more than their limits are worth.
const quick = 20 * time.Millisecond

// patient is how long a server may let a client wait that asked whether to send a body (RFC 9110 section 10.1.1).
const patient = time.Second

// Do sends a request and reads the head of its answer. When ctx ends, so does the exchange, its
// connection too, within 20 ms; its error is then that of ctx. Errors else are ErrMalformed for an
// answer that is none, ErrNotSent, ErrBody, ErrHTTP2, os.ErrDeadlineExceeded, or what the
// connection failed by. After an error nothing is to be closed.
func (p *Pool) Do(ctx context.Context, q *Request, a *Answer) error {
	fresh := false
	var failed *server // of this request, on a new connection
	for {
		a.began = time.Now()
		c, err := p.take(ctx, fresh, a.began, failed)
		if err != nil {
			return err
		}
		a.pool, a.conn, a.ctx = p, c, ctx
		a.head.reset()
		a.ended, a.failed, a.stop, a.part, a.left, a.sending, a.Status, a.Trailer = false, nil, nil, chunkSize,
			0, nil, 0, nil
		answered, err := a.exchange(q)
		if err == nil {
			p.well(c.server)
			return nil
		}
		a.ended = false
		a.Close() // so the connection is closed
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errStale):
			continue // with another one of those that are there, or a new one
		case errors.Is(err, ErrBody):
			return err
		case answered || !q.Again || isTimeout(err):
		case c.reused && !fresh: // it was about to be closed
			fresh = true
			continue
		case failed == nil && len(p.servers) > 1:
			// One other server, and not all of them: it may be the request that ends them.
			p.ill(c.server, err)
			fresh, failed = true, c.server
			continue
		}
		p.ill(c.server, err)
		return fmt.Errorf("%s: %w", c.server.Address, err)
	}
}

// exchange sends the request on a connection that was just taken, and reads the head of its answer. It reports
// whether any byte of an answer came.
func (a *Answer) exchange(q *Request) (answered bool, err error) {
	c := a.conn
	if err := a.send(q); err != nil {
		return false, err
	}
	most := maxHead
	for interims := 0; ; {
		whole := false
		if text := c.unused(); len(text) > a.head.scanned {
			answered = true
			if whole, err = a.head.more(text, q.ToHEAD); err != nil {
				return true, err
			}
		}
		if !whole {
			if len(c.unused()) >= most {
				return true, malformed("its head has more than %d bytes", maxHead)
			}
			if err := a.fill(); err != nil {
				if err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return answered, err
			}
			continue
		}
		text := c.unused()[:a.head.size]
		c.r += a.head.size
		if a.head.status >= 200 {
			a.Status, a.Head, a.Fields, a.shape = a.head.status, text, a.head.fields, a.head.length
			break
		}
		if most -= a.head.size; interims == maxInterim || most <= 0 {
			return true, malformed("more than %d answers of 1xx, or %d bytes of them, come before the answer",
				maxInterim, maxHead)
		}
		interims++
		if q.Interim != nil {
			q.Interim(a.head.status, text, a.head.fields)
		}
		if a.head.status == 100 && a.sending != nil {
			a.sending.begin() // not before: to read the body may tell the client the same
		}
		a.head.reset()
	}
	a.Length, a.left = max(-1, a.shape), max(0, a.shape)
	if a.shape == chunked {
		a.Length = -1
	}
	a.ended = a.shape == 0
	return true, a.headIsHere()
}

// send sends the request, but for a body beside.
func (a *Answer) send(q *Request) error {
	c := a.conn
	short := q.Body == nil && len(q.Head) <= bufferBytes && c.secure == nil
	until := time.Time{}
	switch {
	case short: // then it fits into the socket's buffer, and the write does not wait
		until = a.began.Add(min(quick, a.pool.o.HeaderTimeout))
	case q.Body == nil:
		until = a.began.Add(a.pool.o.HeaderTimeout)
	}
	err := c.Conn.SetReadDeadline(until)
	if err == nil && short && c.plain {
		return c.ask(q.Head)
	}
	if err == nil && c.reused {
		quiet, moved := c.quiet()
		if !quiet {
			return errStale
		}
		if moved {
			err = c.Conn.SetReadDeadline(until)
		}
	}
	if err != nil {
		return err
	}
	if !short {
		a.watch()
	}
	if n, err := c.Conn.Write(q.Head); err != nil {
		if n == 0 && c.reused {
			return errStale
		}
		return err
	}
	if q.Body != nil {
		a.sending = newSending(c, q, a.pool.o.HeaderTimeout)
		go a.sending.run()
	}
	return nil
}

// watch has the connection closed when ctx ends.
func (a *Answer) watch() {
	c := a.conn.Conn
	a.stop = context.AfterFunc(a.ctx, func() { _ = c.Close() })
}

// headIsHere takes away what bounded the wait for the head.
func (a *Answer) headIsHere() error {
	if a.sending != nil {
		return a.sending.headIsHere()
	}
	if a.stop != nil && !a.ended {
		return a.conn.Conn.SetReadDeadline(time.Time{})
	}
	return nil
}

// goesOn says what an error of a read means: nil to read again.
func (a *Answer) goesOn(err error) error {
	switch {
	case a.ctx.Err() != nil:
		return context.Cause(a.ctx)
	case a.sending != nil:
		return a.sending.or(err)
	case !isTimeout(err) || a.stop != nil:
		return err
	}
	// The answer takes longer than most, so from now on ctx is watched.
	until := time.Time{}
	if a.Status == 0 {
		until = a.began.Add(a.pool.o.HeaderTimeout)
		if !time.Now().Before(until) {
			return os.ErrDeadlineExceeded
		}
	}
	if err := a.conn.Conn.SetReadDeadline(until); err != nil {
		return err
	}
	a.watch()
	return nil
}

// sending sends the body of a request while its answer is read.
type sending struct {
	conn    *conn
	q       Request
	timeout time.Duration

	asked   chan struct{} // closed when the body may be sent
	done    chan struct{} // closed when nothing more is
	askOnce sync.Once

	mu    sync.Mutex
	whole bool  // guarded by mu: the body was sent to its end
	head  bool  // guarded by mu: the head of the answer is there
	ends  bool  // guarded by mu: nobody needs it any more
	fault error // guarded by mu: why the body could not be read
}

func newSending(c *conn, q *Request, timeout time.Duration) *sending {
	s := &sending{conn: c, q: *q, timeout: timeout, asked: make(chan struct{}), done: make(chan struct{})}
	if !q.Expect {
		s.begin()
	}
	return s
}

func (s *sending) begin() { s.askOnce.Do(func() { close(s.asked) }) }

// bodyBuffers are for bodies that are passed on.
var bodyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

const chunkRoom = 16 + 2 // for the size of a chunk before its data, and the line end behind it

func (s *sending) run() {
	defer close(s.done)
	if s.q.Expect {
		late := time.AfterFunc(patient, s.begin)
		defer late.Stop()
	}
	<-s.asked
	if s.isOver() {
		return
	}
	buf := bodyBuffers.Get().(*[32 << 10]byte)
	defer bodyBuffers.Put(buf)
	for left := s.q.Length; ; {
		room := buf[:]
		if s.q.Length < 0 {
			room = buf[chunkRoom : len(buf)-2]
		}
		n, err := s.q.Body.Read(room)
		last := err == io.EOF
		piece := room[:n]
		if s.q.Length < 0 {
			piece = s.chunk(buf[:], n, last)
		} else if left -= int64(n); left == 0 {
			last = true
		}
		if err == nil && left < 0 && s.q.Length >= 0 || last && left > 0 {
			err = io.ErrUnexpectedEOF // no more and no less than was announced
		}
		if err != nil && err != io.EOF || s.q.Length >= 0 && err == io.EOF && left != 0 {
			s.failed(err)
			return
		}
		if len(piece) > 0 {
			if _, err := s.conn.Conn.Write(piece); err != nil {
				return // the answer says what became of it, if there is one
			}
		}
		if last {
			s.sent()
			return
		}
	}
}

// chunk puts n bytes that stand behind chunkRoom into a chunk, and the end behind the last one.
func (s *sending) chunk(buf []byte, n int, last bool) []byte {
	from, to := chunkRoom, chunkRoom+n
	if n > 0 {
		var digits [16]byte
		size := strconv.AppendInt(digits[:0], int64(n), 16)
		from -= len(size) + 2
		copy(buf[from:], size)
		copy(buf[from+len(size):], "\r\n")
		to += copy(buf[to:], "\r\n")
	}
	if !last {
		return buf[from:to]
	}
	end := append(buf[from:to:to], "0\r\n"...) // a copy: there may be no room
	if s.q.Trailer != nil {
		end = s.q.Trailer(end)
	}
	return append(end, "\r\n"...)
}

// sent begins the wait for the head of the answer.
func (s *sending) sent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = true
	if !s.head && !s.ends {
		_ = s.conn.Conn.SetReadDeadline(time.Now().Add(s.timeout))
	}
}

func (s *sending) headIsHere() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head = true
	return s.conn.Conn.SetReadDeadline(time.Time{})
}

// failed ends an exchange whose request will never be whole.
func (s *sending) failed(err error) {
	s.mu.Lock()
	ends := s.ends
	s.fault = fmt.Errorf("%w: %w", ErrBody, err)
	s.mu.Unlock()
	if !ends {
		_ = s.conn.Conn.Close()
	}
}

// or is why the body failed, if that is why a read did, else err.
func (s *sending) or(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return s.fault
	}
	return err
}

func (s *sending) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ends
}

// over ends the sending, and reports whether the connection may be used again.
func (s *sending) over(keep bool) bool {
	if keep {
		// The answer may be there before the last write has returned, or long before the body is.
		soon := time.NewTimer(10 * time.Millisecond)
		select {
		case <-s.done:
		case <-soon.C:
		}
		soon.Stop()
	}
	s.mu.Lock()
	s.ends = true
	whole := s.whole
	s.mu.Unlock()
	s.begin()
	return keep && whole
}
