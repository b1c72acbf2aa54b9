package engine

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// bytesConn is a connection in memory: what the client sends is known, and then it sends no more.
type bytesConn struct {
	in     []byte
	out    []byte // that was answered, if kept
	keep   bool
	closed chan struct{}
	once   sync.Once
}

var nowhere = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}

func (c *bytesConn) Read(p []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	if len(c.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}

func (c *bytesConn) Write(p []byte) (int, error) {
	if c.keep {
		c.out = append(c.out, p...)
	}
	return len(p), nil
}

func (c *bytesConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}
func (c *bytesConn) LocalAddr() net.Addr              { return nowhere }
func (c *bytesConn) RemoteAddr() net.Addr             { return nowhere }
func (c *bytesConn) SetDeadline(time.Time) error      { return nil }
func (c *bytesConn) SetReadDeadline(time.Time) error  { return nil }
func (c *bytesConn) SetWriteDeadline(time.Time) error { return nil }

// memory is a listener of such connections.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newMemory() *memory { return &memory{conns: make(chan net.Conn), done: make(chan struct{})} }

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.once.Do(func() { close(m.done) })
	return nil
}

func (m *memory) Addr() net.Addr { return nowhere }

// request is a request as a handler sees it.
type request struct {
	Method, Target, Host, Proto  string
	Path, RawPath, Query         string
	ForceQuery, Closes, NoBody   bool
	Length                       int64
	Coding, Trailer, MultiHeader int
	Header                       http.Header
	Body                         string
	Failed                       bool // the body broke off
}

func seen(r *http.Request) request {
	body, err := io.ReadAll(r.Body)
	s := request{
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

// oracle is a server that reads what it is sent.
type oracle struct {
	listener *memory
	serve    func(net.Listener) error
	end      func() error
	seen     []request
}

// newOracle has net/http read.
func newOracle() *oracle {
	o := &oracle{listener: newMemory()}
	server := &http.Server{
		Handler: o.handler(), DisableGeneralOptionsHandler: true,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	o.serve, o.end = server.Serve, server.Close
	go func() { _ = o.serve(o.listener) }()
	return o
}

func (o *oracle) handler() http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { o.seen = append(o.seen, seen(r)) })
}

// read returns the requests in a stream, as far as the oracle takes them.
func (o *oracle) read(stream []byte) []request {
	o.seen = nil
	c := &bytesConn{in: stream, closed: make(chan struct{})}
	o.listener.conns <- c
	<-c.closed
	return o.seen
}
