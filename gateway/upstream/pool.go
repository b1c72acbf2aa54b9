package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/internal/silence"
)

// Options configures a Pool. Servers is required; every other zero value is a safe default.
type Options struct {
	// Servers are those of the API, which all answer alike.
	Servers []Server

	// TLS is spoken with the servers, if it is set. ServerName is required then: servers are addresses.
	TLS *tls.Config

	// HeaderTimeout bounds the wait for the head of an answer, from when the request is sent, and
	// for a connection if MaxConns are in use. Default 60 s.
	HeaderTimeout time.Duration

	// DialTimeout bounds the wait until a connection is open, and TLS agreed on. Default 10 s.
	DialTimeout time.Duration

	// IdleTimeout is how long a connection is kept that nobody uses. More than what the servers
	// keep theirs is of no use. Default 90 s.
	IdleTimeout time.Duration

	// MaxConns bounds the connections to all servers; requests beyond wait for one. Default 0: there is no bound.
	MaxConns int

	// MaxIdle bounds those to each server that nobody uses. Default 1024.
	MaxIdle int

	// MaxFails is how many requests in a row may fail at a server of several before it gets none for FailTimeout:
	// because it cannot be reached, or answers late, not at all or what is no HTTP. Defaults 3 and 10 s.
	MaxFails    int
	FailTimeout time.Duration

	// Health, if its Path is set, asks each server in between how it is.
	Health Health

	// Changed, if set, is told when a server that gets no requests gets some again, and the other way round.
	Changed func(server string, up bool, why error)

	// Dial opens a connection; network is tcp or unix. Default a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Server is one of those that answer for an API.
type Server struct {
	// Address is HOST:PORT, or unix:PATH.
	Address string

	// Weight is its part of the requests beside that of others: the one with the fewest requests
	// under way for its weight gets the next. Default 1.
	Weight int
}

// Pool keeps connections to the servers of an API. Its methods may be called by many at once.
type Pool struct {
	o     Options
	http2 atomic.Bool

	mu       sync.Mutex
	servers  []*server
	open     int             // guarded by mu: connections, and those that are being opened
	least    []*server       // guarded by mu: for pick alone
	waiting  []chan struct{} // guarded by mu: told, one each, that it may look again
	sweeping bool            // guarded by mu
	closed   bool            // guarded by mu

	end     context.CancelFunc // of the questions about health
	healthy sync.WaitGroup
}

// server is a Server and what is known of it.
type server struct {
	Server
	network, address string

	fails atomic.Int32 // requests in a row

	idle   []*conn   // guarded by Pool.mu: the last one was used last
	busy   int       // guarded by Pool.mu: requests under way
	credit int       // guarded by Pool.mu: how much it is its turn among equals
	seen   int       // guarded by Pool.mu: in idle, where the sweep goes on
	out    time.Time // guarded by Pool.mu: it gets no requests until then, as they failed
	down   bool      // guarded by Pool.mu: it said that it is not well
	passed int       // questions about its health in a row that agree; touched by who asks alone
}

// ErrHTTP2 says that a server chose HTTP/2, which a Pool does not speak. From then on every Do returns it.
var ErrHTTP2 = errors.New("the server speaks HTTP/2")

// New returns a Pool, or an error that names every field at fault. It opens no connection yet.
func New(o Options) (*Pool, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("upstream options: %w", err)
	}
	p := &Pool{o: o}
	for _, s := range o.Servers {
		made := &server{Server: s, network: "tcp", address: s.Address}
		if path, ok := strings.CutPrefix(s.Address, unixPrefix); ok {
			made.network, made.address = "unix", path
		}
		p.servers = append(p.servers, made)
	}
	p.askAboutHealth()
	return p, nil
}

const unixPrefix = "unix:"

func (o *Options) complete() error {
	var errs []error
	wrong := func(format string, about ...any) { errs = append(errs, fmt.Errorf(format, about...)) }
	if len(o.Servers) == 0 {
		wrong("Servers is empty, want one or more")
	}
	o.Servers = append([]Server(nil), o.Servers...)
	seen := map[string]bool{}
	for i := range o.Servers {
		s := &o.Servers[i]
		if seen[s.Address] {
			wrong("Servers[%d] is %q, which is there twice: give it a weight", i, s.Address)
		}
		seen[s.Address] = true
		if err := CheckAddress(s.Address); err != nil {
			wrong("Servers[%d]: %w", i, err)
		}
		if s.Weight == 0 {
			s.Weight = 1
		}
		if s.Weight < 1 || s.Weight > MaxWeight {
			wrong("Servers[%d] has weight %d, want 1 to %d", i, s.Weight, MaxWeight)
		}
	}
	if o.TLS != nil {
		o.TLS = o.TLS.Clone()
		if o.TLS.ServerName == "" {
			wrong("TLS has no ServerName, want the name that certificates of the servers have")
		}
		if o.TLS.NextProtos == nil {
			o.TLS.NextProtos = []string{"h2", "http/1.1"}
		}
	}
	for _, d := range []struct {
		name string
		at   *time.Duration
		or   time.Duration
	}{
		{"HeaderTimeout", &o.HeaderTimeout, 60 * time.Second}, {"DialTimeout", &o.DialTimeout, 10 * time.Second},
		{"IdleTimeout", &o.IdleTimeout, 90 * time.Second}, {"FailTimeout", &o.FailTimeout, 10 * time.Second},
	} {
		if *d.at < 0 {
			wrong("%s is %v, want 0 or more", d.name, *d.at)
		}
		if *d.at == 0 {
			*d.at = d.or
		}
	}
	for _, n := range []struct {
		name string
		at   *int
		or   int
	}{{"MaxConns", &o.MaxConns, 0}, {"MaxIdle", &o.MaxIdle, 1024}, {"MaxFails", &o.MaxFails, 3}} {
		if *n.at < 0 {
			wrong("%s is %d, want 0 or more", n.name, *n.at)
		}
		if *n.at == 0 {
			*n.at = n.or
		}
	}
	if err := o.Health.complete(); err != nil {
		errs = append(errs, err)
	}
	if o.Changed == nil {
		o.Changed = func(string, bool, error) {}
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	return errors.Join(errs...)
}

// MaxWeight is the largest Server.Weight.
const MaxWeight = 1000

// CheckAddress says what is wrong with a Server.Address.
func CheckAddress(address string) error {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		if path == "" || strings.ContainsRune(path, 0) {
			return fmt.Errorf("address is %q, want unix: and the path of a socket", address)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || strings.ContainsAny(address, "/?#@ ") {
		return fmt.Errorf("address is %q, want HOST:PORT, or unix: and the path of a socket", address)
	}
	return nil
}

// take returns a connection to the server whose turn it is, but for one that failed: one that is idle, unless it is to
// be fresh, or a new one.
func (p *Pool) take(ctx context.Context, fresh bool, now time.Time, but *server) (*conn, error) {
	if p.http2.Load() {
		return nil, ErrHTTP2
	}
	var tried []*server
	var failed error
	if but != nil {
		tried = append(tried, but)
	}
	p.mu.Lock()
	for {
		s := p.pick(now, tried)
		if s == nil {
			p.mu.Unlock()
			return nil, failed
		}
		if n := len(s.idle) - 1; n >= 0 && !fresh {
			c := s.idle[n]
			s.idle[n], s.idle = nil, s.idle[:n]
			s.busy++
			p.mu.Unlock()
			c.reused = true
			return c, nil
		}
		if p.o.MaxConns > 0 && p.open >= p.o.MaxConns && !p.makeRoomLocked() {
			if err := p.waitLocked(ctx, now); err != nil {
				p.mu.Unlock()
				return nil, err
			}
			continue
		}
		p.open++
		s.busy++
		p.mu.Unlock()
		c, err := p.dial(ctx, s)
		if err == nil {
			return c, nil
		}
		p.mu.Lock()
		p.leaveLocked(s)
		if ctx.Err() != nil || errors.Is(err, ErrHTTP2) {
			p.mu.Unlock()
			return nil, err
		}
		p.mu.Unlock()
		p.ill(s, err)
		p.mu.Lock()
		tried, failed = append(tried, s), fmt.Errorf("%w: %s: %w", ErrNotSent, s.Address, err)
	}
}

// pick returns the server that gets the next request, nil if all were tried. It is called with mu held.
func (p *Pool) pick(now time.Time, tried []*server) *server {
	if len(p.servers) == 1 && len(tried) == 0 {
		return p.servers[0]
	}
	best := p.least[:0]
	well := false
	for _, s := range p.servers {
		w := s.wellLocked(now)
		switch {
		case contains(tried, s) || well && !w:
			continue
		case w && !well, len(best) > 0 && s.busy*best[0].Weight < best[0].busy*s.Weight:
			well, best = w, best[:0]
		case len(best) > 0 && s.busy*best[0].Weight > best[0].busy*s.Weight:
			continue
		}
		best = append(best, s)
	}
	p.least = best
	// Among equals each has its turn, as often as its weight says, and those of one not all together.
	var next *server
	total := 0
	for _, s := range best {
		s.credit += s.Weight
		total += s.Weight
		if next == nil || s.credit > next.credit {
			next = s
		}
	}
	if next != nil {
		next.credit -= total
	}
	return next
}

func contains(all []*server, s *server) bool {
	for _, other := range all {
		if other == s {
			return true
		}
	}
	return false
}

// wellLocked reports whether a server gets requests. If none is well, all do.
func (s *server) wellLocked(now time.Time) bool { return !s.down && !now.Before(s.out) }

// makeRoomLocked closes a connection that nobody uses, if there is one.
func (p *Pool) makeRoomLocked() bool {
	for _, s := range p.servers {
		if len(s.idle) > 0 {
			_ = s.idle[0].Close()
			s.idle = append(s.idle[:0], s.idle[1:]...)
			p.open--
			return true
		}
	}
	return false
}

// waitLocked waits until a connection is given back or closed. It gives mu away meanwhile.
func (p *Pool) waitLocked(ctx context.Context, began time.Time) error {
	ready := make(chan struct{})
	p.waiting = append(p.waiting, ready)
	p.mu.Unlock()
	late := time.NewTimer(time.Until(began.Add(p.o.HeaderTimeout)))
	defer late.Stop()
	var err error
	select {
	case <-ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-late.C:
		err = fmt.Errorf("%w: all %d connections are in use: %w", ErrNotSent, p.o.MaxConns, os.ErrDeadlineExceeded)
	}
	p.mu.Lock()
	if err != nil {
		for i, other := range p.waiting {
			if other == ready {
				p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
				return err
			}
		}
		p.wakeLocked() // it was told, and somebody else can use it
	}
	return err
}

func (p *Pool) wakeLocked() {
	if len(p.waiting) > 0 {
		close(p.waiting[0])
		p.waiting = p.waiting[1:]
	}
}

// leaveLocked is called when a request has no connection any more.
func (p *Pool) leaveLocked(s *server) {
	s.busy--
	p.open--
	p.wakeLocked()
}

// dial opens a connection.
func (p *Pool) dial(ctx context.Context, s *server) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.DialTimeout)
	defer cancel()
	c, err := p.o.Dial(ctx, s.network, s.address)
	if err != nil {
		return nil, err
	}
	if p.o.TLS == nil {
		return newConn(c, s), nil
	}
	secure := tls.Client(c, p.o.TLS)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		_ = secure.Close()
		p.http2.Store(true)
		return nil, ErrHTTP2
	}
	return newConn(secure, s), nil
}

// DialContext opens a connection to the server whose turn it is, for those who speak something else on it, and
// agree on TLS themselves. Neither argument is looked at; they make it a dialer of net/http.
func (p *Pool) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.DialTimeout)
	defer cancel()
	var tried []*server
	for {
		p.mu.Lock()
		s := p.pick(time.Now(), tried)
		p.mu.Unlock()
		c, err := p.o.Dial(ctx, s.network, s.address)
		if err == nil {
			return c, nil
		}
		if tried = append(tried, s); len(tried) == len(p.servers) || ctx.Err() != nil {
			return nil, err
		}
	}
}

// HTTP2 reports whether a server has chosen HTTP/2.
func (p *Pool) HTTP2() bool { return p.http2.Load() }

// release gives a connection back or, if it is not to be kept, closes it.
func (p *Pool) release(c *conn, keep bool, now time.Time) {
	if !keep {
		_ = c.Close()
	}
	s := c.server
	p.mu.Lock()
	defer p.mu.Unlock()
	if keep && !p.closed && len(s.idle) < p.o.MaxIdle {
		c.since = now
		s.idle = append(s.idle, c)
		s.busy--
		p.wakeLocked()
		p.sweepLaterLocked()
		return
	}
	if keep {
		_ = c.Close()
	}
	p.leaveLocked(s)
}

// sweepEvery is how often connections are looked for that servers have closed, or nobody has used for long.
const (
	sweepEvery = time.Second
	sweepMost  = 64 // of each server, at a time
)

func (p *Pool) sweepLaterLocked() {
	if !p.sweeping {
		p.sweeping = true
		time.AfterFunc(sweepEvery, p.sweep)
	}
}

func (p *Pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweeping = false
	now := time.Now()
	for _, s := range p.servers {
		p.sweepServerLocked(s, now)
		if len(s.idle) > 0 {
			p.sweepLaterLocked()
		}
	}
}

func (p *Pool) sweepServerLocked(s *server, now time.Time) {
	kept := s.idle[:0]
	if s.seen >= len(s.idle) {
		s.seen = 0
	}
	for i, c := range s.idle {
		over := now.Sub(c.since) > p.o.IdleTimeout
		if !over && silence.Known && i >= s.seen && i < s.seen+sweepMost && c.SetReadDeadline(time.Time{}) == nil {
			quiet, _ := c.quiet()
			over = !quiet
		}
		if over {
			_ = c.Close()
			p.open--
			p.wakeLocked()
			continue
		}
		kept = append(kept, c)
	}
	clear(s.idle[len(kept):])
	s.idle, s.seen = kept, s.seen+sweepMost
}

// well is told of an answer.
func (p *Pool) well(s *server) {
	if len(p.servers) == 1 || s.fails.Load() == 0 {
		return
	}
	s.fails.Store(0)
	p.mu.Lock()
	was := !s.out.IsZero()
	s.out = time.Time{}
	p.mu.Unlock()
	if was {
		p.o.Changed(s.Address, true, nil)
	}
}

// ill is told of a failure.
func (p *Pool) ill(s *server, why error) {
	if len(p.servers) == 1 || int(s.fails.Add(1)) < p.o.MaxFails {
		return
	}
	p.mu.Lock()
	was := s.out.IsZero()
	s.out = time.Now().Add(p.o.FailTimeout) // and then one more failure is enough
	p.mu.Unlock()
	if was {
		p.o.Changed(s.Address, false, why)
	}
}

// Close closes the connections that nobody uses, and the others once their requests are done. Requests may still
// be sent, each on a connection of its own.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	for _, s := range p.servers {
		for _, c := range s.idle {
			_ = c.Close()
			p.open--
		}
		s.idle = nil
	}
	p.mu.Unlock()
	p.end()
	p.healthy.Wait()
}

// ServerState is what is known of a Server.
type ServerState struct {
	Address    string
	Up         bool // it gets requests
	Busy, Idle int  // connections with a request under way, and without
}

// Servers tells of all servers, in the order of Options.Servers.
func (p *Pool) Servers() []ServerState {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	all := make([]ServerState, len(p.servers))
	for i, s := range p.servers {
		all[i] = ServerState{s.Address, len(p.servers) == 1 || s.wellLocked(now), s.busy, len(s.idle)}
	}
	return all
}
