// Package conns serves protocols that are no HTTP over TCP: it says who may
// connect and how many, and ends in order.
package conns

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Options configures a Server. All but Patience, Refused and Panicked are required.
type Options struct {
	// Trusted says who may connect.
	Trusted func(netip.Addr) bool

	// Most bounds the connections that are open.
	Most int

	// Patience is how long a client may take to send what it has begun, and at least how long to take what it is
	// sent: at most twice as long. Default 10 s.
	Patience time.Duration

	// Answer serves a connection until it is to be closed.
	Answer func(*Conn)

	// Refusal is what those are told who may not connect, and those who are one too
	// many.
	Refusal func(why Why) []byte

	// Refused, if set, is told of connections of those who may not connect, and
	// Panicked of mistakes in Answer: they end the connection and not the process.
	Refused  func(error)
	Panicked func(error)
}

// Why says why a connection is refused.
type Why uint8

const (
	Untrusted Why = iota // its address may not connect
	TooMany              // there are as many as there may be, or the server ends
)

// Server serves connections.
type Server struct {
	options Options

	closing atomic.Bool
	mu      sync.Mutex
	open    map[*Conn]bool // guarded by mu
	all     sync.WaitGroup
}

// Conn is a connection that is served.
type Conn struct {
	net.Conn
	server *Server
	asked  atomic.Int64 // how many questions are being answered

	// Deadlines cost as much as a decision, so they are set where somebody has to be waited for. Of what is read:
	begun, hurried bool // something has begun; and has a deadline
	armed          bool // the connection has one, of this or of what came before
	sendBy         time.Time
}

// New returns a Server.
func New(o Options) *Server {
	if o.Patience == 0 {
		o.Patience = 10 * time.Second
	}
	if o.Refused == nil {
		o.Refused = func(error) {}
	}
	if o.Panicked == nil {
		o.Panicked = func(error) {}
	}
	return &Server{options: o, open: map[*Conn]bool{}}
}

// Serve serves what l accepts until Shutdown. It waits while the system has no descriptor
// to spare, as net/http does.
func (s *Server) Serve(l net.Listener) error {
	wait := time.Duration(0)
	for {
		accepted, err := l.Accept()
		switch {
		case err == nil:
		case s.closing.Load():
			return nil
		case isShort(err):
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			time.Sleep(wait)
			continue
		default:
			return err
		}
		wait = 0
		c := &Conn{Conn: accepted, server: s}
		if why, ok := s.admit(c); !ok {
			if _, secured := accepted.(*tls.Conn); !secured { // which would wait for a handshake
				_ = c.SetWriteDeadline(time.Now().Add(time.Second))
				_, _ = c.Write(s.options.Refusal(why))
			}
			_ = c.Close()
			continue
		}
		go s.serve(c)
	}
}

// isShort reports whether accept(2) failed for want of descriptors or memory, which passes.
func isShort(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM)
}

func (s *Server) admit(c *Conn) (Why, bool) {
	if from, err := netip.ParseAddrPort(c.RemoteAddr().String()); err != nil || !s.options.Trusted(from.Addr()) {
		s.options.Refused(fmt.Errorf("%v may not ask", c.RemoteAddr()))
		return Untrusted, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() || len(s.open) >= s.options.Most {
		return TooMany, false
	}
	s.open[c] = true
	s.all.Add(1) // here, so that Shutdown waits for it or refuses it
	return 0, true
}

func (s *Server) serve(c *Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.open, c)
		s.mu.Unlock()
		_ = c.Close()
		s.all.Done()
	}()
	defer c.Recover()
	if secured, ok := c.Conn.(*tls.Conn); ok {
		ctx, cancel := context.WithTimeout(context.Background(), handshakeWithin)
		err := secured.HandshakeContext(ctx)
		if cancel(); err != nil {
			s.options.Refused(fmt.Errorf("%v: %w", c.RemoteAddr(), err))
			return
		}
	}
	s.options.Answer(c)
}

// handshakeWithin is how long a handshake of TLS may take.
const handshakeWithin = 10 * time.Second

// Await waits until a client begins to send something, which it may put off for as long as it likes. In reads
// from c; what begins then has Patience to come.
func (c *Conn) Await(in *bufio.Reader) error {
	if c.begun = false; c.armed && in.Buffered() == 0 {
		_ = c.SetReadDeadline(time.Time{})
		c.armed = false
	}
	_, err := in.Peek(1)
	c.Begin()
	return err
}

// Begin says that what is read from now on is something new, which has Patience to come as a whole.
func (c *Conn) Begin() { c.begun, c.hurried = true, false }

// Read reads what is there, or waits for it.
func (c *Conn) Read(b []byte) (int, error) {
	if c.begun && !c.hurried {
		_ = c.SetReadDeadline(time.Now().Add(c.server.options.Patience))
		c.hurried, c.armed = true, true
	}
	return c.Conn.Read(b)
}

// Send sends b, and reports false if the client does not take it. One goroutine at a time may send.
func (c *Conn) Send(b []byte) bool {
	if now := time.Now(); c.sendBy.Sub(now) < c.server.options.Patience {
		c.sendBy = now.Add(2 * c.server.options.Patience)
		_ = c.SetWriteDeadline(c.sendBy)
	}
	_, err := c.Write(b)
	return err == nil
}

// Recover, deferred, ends the connection where the goroutine panics, as net/http
// does.
func (c *Conn) Recover() {
	if v := recover(); v != nil {
		c.server.options.Panicked(fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		_ = c.Close()
	}
}

// Shutdown closes idle connections, and the others once what they asked is
// answered, or when ctx ends, which is its error. The listener is to be closed
// before.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing.Store(true) // before it is asked who is busy: see Busy
	for c := range s.open {
		if c.asked.Load() == 0 {
			_ = c.Close()
		}
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.all.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		for c := range s.open {
			_ = c.Close()
		}
		s.mu.Unlock()
		<-done
		return ctx.Err()
	}
}

// Busy notes that n more questions are being answered on the connection, or that so
// many are answered, if n is below zero. It reports whether more may be read from it;
// once nothing is being answered and the server ends, the connection is closed.
func (c *Conn) Busy(n int) (goOn bool) {
	asked, closing := c.asked.Add(int64(n)), c.server.closing.Load()
	if closing && asked == 0 {
		_ = c.Close()
	}
	return !closing
}
