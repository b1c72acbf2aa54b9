package httplimit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/headgate-io/headgate"
)

// Bytes makes the requests of an endpoint cost what their bodies and those of their answers have, in bytes, as they
// pass; heads are free. The zero value counts both, a token a byte.
//
// What a request costs before it is served is what it says of its length (Content-Length), or what the endpoint costs
// if it says nothing. More is taken as more passes, in steps that grow, and what was not used is given back at
// the end. A connection that is taken over, as by a WebSocket, counts all that is sent on it.
type Bytes struct {
	// Of says whose bodies count. Default OfBoth.
	Of Direction

	// PerToken makes a token of so many bytes, or part of them, of a request with its answer; one at least. Default 1.
	PerToken int64
}

// Direction says which bodies count.
type Direction uint8

// What counts: the bodies of requests and of answers, or those of one of the two.
const (
	OfBoth Direction = iota
	OfRequests
	OfAnswers
)

// compile fills in what is left out.
func (b *Bytes) compile() (*Bytes, error) {
	made := *b
	var errs []error
	if made.PerToken == 0 {
		made.PerToken = 1
	}
	if made.PerToken < 0 {
		errs = append(errs, fmt.Errorf("Bytes.PerToken is %d, want 1 or more", made.PerToken))
	}
	if made.Of > OfAnswers {
		errs = append(errs, fmt.Errorf("Bytes.Of is %d, want OfBoth, OfRequests or OfAnswers", made.Of))
	}
	return &made, errors.Join(errs...)
}

// tokens is what so many bytes cost.
func (b *Bytes) tokens(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return (n-1)/b.PerToken + 1
}

// begin returns what follows a request, and what it costs by what it says of itself; 0 if it says nothing.
func (b *Bytes) begin(r *http.Request) (*transfer, int64) {
	x := &transfer{of: b, head: r.Method == http.MethodHead, whole: r.Method == http.MethodGet}
	if b.Of == OfAnswers || r.ContentLength <= 0 {
		return x, 0
	}
	return x, b.tokens(r.ContentLength)
}

// transfer is an Exchange that counts bytes.
type transfer struct {
	of       *Bytes
	head     bool  // a body of the answer is not sent
	whole    bool  // an answer that is announced and does not fit is refused whole: nothing was changed for it
	in, out  int64 // bytes that have passed
	announce int64 // that the answer is to have
}

// Begin is told how the answer begins.
func (x *transfer) Begin(status int, header http.Header) {
	if x.of.Of == OfRequests || x.head || status < 200 || status == http.StatusNoContent ||
		status == http.StatusNotModified {
		return
	}
	if n, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64); err == nil && n > 0 {
		x.announce = n
	}
}

// Write is told of a piece of the answer.
func (x *transfer) Write(p []byte) {
	if x.of.Of != OfRequests && !x.head {
		x.out += int64(len(p))
	}
}

// unwritten is told of bytes that were to pass, and have not.
func (x *transfer) unwritten(n int) {
	if x.of.Of != OfRequests && !x.head {
		x.out -= int64(n)
	}
}

// read is told of a piece of the request.
func (x *transfer) read(n int) {
	if x.of.Of != OfAnswers {
		x.in += int64(n)
	}
}

// SoFar is what the request costs with what has passed, and what is announced.
func (x *transfer) SoFar() int64 { return x.of.tokens(plus(x.in, max(x.out, x.announce))) }

// Cost is what it has cost in the end, complete or not: what has passed.
func (x *transfer) Cost(bool) int64 { return max(1, x.of.tokens(plus(x.in, x.out))) }

// plus adds two numbers that are not negative; a client may announce anything.
func plus(a, b int64) int64 {
	if sum := a + b; sum >= 0 {
		return sum
	}
	return 1<<63 - 1
}

// upload is the body of a request whose bytes count.
type upload struct {
	io.ReadCloser
	tab   *tab
	spent bool
}

func (b *upload) Read(p []byte) (int, error) {
	if b.spent { // there may be enough for a smaller piece, but one before it is missing
		return 0, errSpent
	}
	n, err := b.ReadCloser.Read(p)
	if n > 0 && !b.tab.read(n) {
		b.spent = true
		return 0, errSpent
	}
	return n, err
}

// carried is a connection that was taken over and whose bytes count.
type carried struct {
	net.Conn
	tab    *tab
	closed sync.Once
}

// carry has what passes on a connection count: also what was read of it before. What is buffered for writing passes
// through it too.
func carry(conn net.Conn, rw *bufio.ReadWriter, t *tab) (*carried, *bufio.ReadWriter) {
	c := &carried{Conn: conn, tab: t}
	t.mu.Lock()
	t.open = c
	t.mu.Unlock()
	early, _ := rw.Reader.Peek(rw.Reader.Buffered())
	early = slices.Clone(early)
	if len(early) > 0 && !t.read(len(early)) {
		_, early = c.Close(), nil
	}
	rw.Reader.Reset(io.MultiReader(bytes.NewReader(early), c))
	_, _ = rw.Reader.Peek(len(early)) // there are handlers that ask for it by what is buffered, and read conn then
	rw.Writer.Reset(c)
	return c, rw
}

func (c *carried) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.tab.read(n) {
		_ = c.Close() // towards both
		return 0, errSpent
	}
	return n, err
}

func (c *carried) Write(p []byte) (int, error) {
	if err := c.tab.write(p); err != nil {
		_ = c.Close()
		return 0, err
	}
	n, err := c.Conn.Write(p)
	c.tab.unwritten(len(p) - n)
	return n, err
}

// CloseWrite closes one direction, where the connection can.
func (c *carried) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close ends what is counted.
func (c *carried) Close() error {
	err := c.Conn.Close()
	c.closed.Do(func() { c.tab.left(c) })
	return err
}

// refuseInstead answers in the place of whoever is about to, since the caller has no more.
func (m *meter) refuseInstead(d *headgate.Decision) {
	header := m.Header()
	clear(header) // it was that of another answer
	for name, values := range m.before {
		header[name] = values
	}
	m.refused, m.instead = true, true
	m.refuse(d)
}
