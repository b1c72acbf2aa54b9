package engine

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// forFirst is how long a connection may take for its request while the Server ends.
const forFirst = 5 * time.Second

// scanEvery is the time between two looks at who waits for too long.
const scanEvery = 500 * time.Millisecond

// A connection on which nothing has come for some ticks gives back what it holds, for which it has to wake up. So many
// do at a time, as others wait meanwhile.
const (
	restAfter = 2    // ticks, so that it is half a second at least
	mostWake  = 4096 // between two looks
)

// Server serves the connections of a listener. Its deadlines, its handler, its log, and who is told of the states of
// connections are those of the net/http server, which also serves what is not plain.
type Server struct {
	http *http.Server
	base context.Context // of every request

	tick    atomic.Int64 // of scanEvery, from 1
	leaving atomic.Bool
	date    atomic.Pointer[date]

	handed atomic.Uint64 // connections

	restAfter int64 // ticks

	mu       sync.Mutex
	wake     int           // guarded by mu: how many more may wake up before the next look
	listener net.Listener  // guarded by mu
	conns    []*conn       // guarded by mu
	served   uint64        // guarded by mu: requests of connections that have left
	empty    chan struct{} // guarded by mu: closed when the last one has left; nil while nobody waits
	others   handover
	done     chan struct{}
	once     sync.Once
}

// Stats is what a Server did since the start.
type Stats struct {
	Plain  uint64 // requests that it served
	Handed uint64 // connections that it handed to net/http
}

// New returns a Server in front of s, which must not serve by itself.
func New(s *http.Server) *Server {
	e := &Server{
		http: s, base: context.WithValue(context.Background(), http.ServerContextKey, s),
		done: make(chan struct{}), restAfter: restAfter,
	}
	e.others = handover{conns: make(chan net.Conn), done: make(chan struct{})}
	e.tick.Store(1)
	return e
}

// Stats reports what the Server did.
func (e *Server) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Stats{Plain: e.served, Handed: e.handed.Load()}
	for _, c := range e.conns {
		s.Plain += c.served.Load() // each counts its own, as a counter of all would be written by all processors
	}
	return s
}

// Serve accepts connections of l until Shutdown or Close, when it returns http.ErrServerClosed.
func (e *Server) Serve(l net.Listener) error {
	e.mu.Lock()
	e.listener = l
	e.mu.Unlock()
	if e.leaving.Load() {
		_ = l.Close()
		return http.ErrServerClosed
	}
	e.others.addr = l.Addr()
	failed := make(chan error, 1)
	go func() { failed <- e.http.Serve(&e.others) }()
	go e.scan()
	for wait := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case err == nil:
			wait = 0
			go e.serve(c)
		case e.leaving.Load():
			return http.ErrServerClosed
		case isTemporary(err): // no descriptor is left, perhaps
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(wait):
			case <-e.done:
			}
		default:
			_ = e.Close()
			<-failed
			return err
		}
	}
}

func isTemporary(err error) bool {
	var may interface{ Temporary() bool }
	return errors.As(err, &may) && may.Temporary()
}

// Shutdown accepts nothing more, lets requests under way finish, and ends connections that wait for one. The error is
// that of ctx, if it ends before.
func (e *Server) Shutdown(ctx context.Context) error {
	e.stop()
	failed := make(chan error, 1)
	go func() { failed <- e.http.Shutdown(ctx) }()
	err := e.left(ctx)
	if other := <-failed; err == nil {
		err = other
	}
	return err
}

// stop has no connection and no further request begin.
func (e *Server) stop() {
	e.leaving.Store(true)
	e.once.Do(func() { close(e.done) })
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listener != nil {
		_ = e.listener.Close()
	}
	for _, c := range e.conns {
		c.endIdle()
	}
}

// left waits until no connection is left.
func (e *Server) left(ctx context.Context) error {
	e.mu.Lock()
	if len(e.conns) == 0 {
		e.mu.Unlock()
		return nil
	}
	if e.empty == nil {
		e.empty = make(chan struct{})
	}
	empty := e.empty
	e.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends everything at once.
func (e *Server) Close() error {
	e.stop()
	e.mu.Lock()
	for _, c := range e.conns {
		_ = c.net.Close()
	}
	e.mu.Unlock()
	return e.http.Close()
}

// join adds a connection to those that are looked after.
func (e *Server) join(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.slot = len(e.conns)
	e.conns = append(e.conns, c)
}

// leave takes it out.
func (e *Server) leave(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.served += c.served.Load()
	last := len(e.conns) - 1
	e.conns[c.slot] = e.conns[last]
	e.conns[c.slot].slot = c.slot
	e.conns[last] = nil
	e.conns = e.conns[:last]
	if last == 0 && e.empty != nil {
		close(e.empty)
		e.empty = nil
	}
}

// scan looks after connections until the Server ends and the last one has left.
func (e *Server) scan() {
	ticker := time.NewTicker(scanEvery)
	defer ticker.Stop()
	for range ticker.C {
		if e.look() == 0 && e.leaving.Load() {
			return
		}
	}
}

// look ends the waits that are over, has clients watched whose requests take long, and returns how many connections
// there are.
func (e *Server) look() int {
	now := e.tick.Add(1)
	head, idle := ticks(e.http.ReadHeaderTimeout), ticks(e.http.IdleTimeout)
	if fresh := ticks(forFirst); e.leaving.Load() && (head == 0 || head > fresh) {
		head = fresh
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wake = mostWake
	for _, c := range e.conns {
		c.look(now, head, idle)
	}
	return len(e.conns)
}

// looked waits until nobody looks after connections.
func (e *Server) looked() {
	e.mu.Lock()
	defer e.mu.Unlock()
}

// ticks is how many must pass so that d has passed at least; 0 if it never does.
func ticks(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d+scanEvery-1)/scanEvery) + 1
}

// logf tells the log of the net/http server.
func (e *Server) logf(format string, about ...any) {
	if e.http.ErrorLog != nil {
		e.http.ErrorLog.Printf(format, about...)
	}
}

// recovered ends a connection whose handler panicked, as net/http does.
func (e *Server) recovered(c *conn, err any) {
	if err != nil && err != http.ErrAbortHandler {
		e.logf("http: panic serving %v: %v\n%s", c.remote, err, debug.Stack())
	}
}

// date is the field of that name, for a second.
type date struct {
	second int64
	text   string
}

// now is the value of Date.
func (e *Server) now() string {
	now := time.Now()
	if d := e.date.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &date{now.Unix(), now.UTC().Format(http.TimeFormat)}
	e.date.Store(d)
	return d.text
}
