package streams

import (
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Conn is a connection in memory: what the client sends is known, and then it sends no more.
type Conn struct {
	In   []byte // what comes
	Out  []byte // what was answered, if Keep says so
	Keep bool

	closed chan struct{}
	once   sync.Once
}

// NewConn returns a connection on which in comes.
func NewConn(in []byte) *Conn { return &Conn{In: in, closed: make(chan struct{})} }

var nowhere = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}

// Read reads what comes, and then that the client has ended.
func (c *Conn) Read(p []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	if len(c.In) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.In)
	c.In = c.In[n:]
	return n, nil
}

// Write keeps an answer, or forgets it.
func (c *Conn) Write(p []byte) (int, error) {
	if c.Keep {
		c.Out = append(c.Out, p...)
	}
	return len(p), nil
}

// Close ends the connection.
func (c *Conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// Closed is closed when the server has closed the connection.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

func (c *Conn) LocalAddr() net.Addr              { return nowhere }
func (c *Conn) RemoteAddr() net.Addr             { return nowhere }
func (c *Conn) SetDeadline(time.Time) error      { return nil }
func (c *Conn) SetReadDeadline(time.Time) error  { return nil }
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// Listener is one of such connections.
type Listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewListener returns a Listener on which nobody has connected yet.
func NewListener() *Listener { return &Listener{conns: make(chan net.Conn), done: make(chan struct{})} }

// Connect has a server accept a connection.
func (l *Listener) Connect(c net.Conn) { l.conns <- c }

// Accept is for the server.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr is that of nobody.
func (l *Listener) Addr() net.Addr { return nowhere }

// Request is a request as a handler sees it.
type Request struct {
	Method, Target, Host, Proto string
	Path, RawPath, Query        string
	ForceQuery, Closes, NoBody  bool
	Length                      int64
	Coding, Trailer             int
	Header                      http.Header
	Body                        string
	Failed                      bool // the body broke off
}

// Seen reads a request to its end.
func Seen(r *http.Request) Request {
	body, err := io.ReadAll(r.Body)
	s := Request{
		Method: r.Method, Target: r.RequestURI, Host: r.Host, Proto: r.Proto,
		Path: r.URL.Path, RawPath: r.URL.RawPath, Query: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery,
		Closes: r.Close, NoBody: r.Body == http.NoBody, Length: r.ContentLength, Coding: len(r.TransferEncoding),
		Trailer: len(r.Trailer), Header: r.Header.Clone(), Body: string(body), Failed: err != nil,
	}
	if r.URL.Host != "" || r.URL.Scheme != "" || r.URL.Opaque != "" || r.URL.User != nil || r.URL.Fragment != "" {
		s.Path = "a URL that is more than a path: " + r.URL.String()
	}
	return s
}
