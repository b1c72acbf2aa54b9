package hold

import (
	"container/heap"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Options configures a Limiter. All numbers are required to be above 0. Use puts others in their place, but for those
// that say so.
type Options struct {
	// MaxConnections and MaxPerAddress bound connections, in total and for each
	// Group. A descriptor goes with each.
	MaxConnections, MaxPerAddress int

	// MaxRequests and MaxRequestsPerAddress bound requests under way. Over HTTP/2
	// a connection has up to MaxStreams of them, which Prepare alone takes over.
	MaxRequests, MaxRequestsPerAddress int
	MaxStreams                         int

	// MaxHeaders is how many header fields a request may have, MaxTarget how long its target may be.
	MaxHeaders, MaxTarget int

	// MaxHeaderBytes is how large the head of a request may be. HeadTimeout bounds the TLS handshake and the arrival
	// of a head, Idle the wait for the next one. Prepare alone takes them over.
	MaxHeaderBytes    int
	HeadTimeout, Idle time.Duration

	// Pace is asked of clients that owe bytes; see the package's comment.
	Pace

	// StreamIdle is how long a connection or stream on which a request is under
	// way may be silent in both directions.
	StreamIdle time.Duration

	// Group returns the prefix of addresses that are one client. Exempt says who
	// is many clients, such as a proxy of the operator's: only the totals bind it.
	// Both are first called when a connection is accepted.
	Group  func(netip.Addr) netip.Prefix
	Exempt func(netip.Addr) bool

	// Plain says that HTTP comes right after the socket: no TLS, no PROXY header.
	Plain bool

	// Log is told, at most every ten seconds, what was refused or ended.
	Log *slog.Logger
}

// Reason says why something was refused or ended.
type Reason uint8

const (
	ConnectionsOfAddress Reason = iota // MaxPerAddress, and none of the address was idle
	ConnectionsInTotal                 // MaxConnections, and none of a larger holder was idle
	RequestsOfAddress                  // MaxRequestsPerAddress
	RequestsInTotal                    // MaxRequests
	Headers                            // MaxHeaders
	Target                             // MaxTarget
	Displaced                          // a connection that did nothing, closed for a newcomer
	SlowBody                           // the body came slower than Pace
	SlowAnswer                         // the answer was taken slower than Pace
	Silent                             // StreamIdle
	reasons                            // how many there are
)

// String returns a metric's label.
func (r Reason) String() string {
	return [reasons]string{"connections_of_address", "connections_in_total", "requests_of_address", "requests_in_total",
		"headers", "target", "displaced", "slow_body", "slow_answer", "silent"}[r]
}

// Stats is the state of a Limiter.
type Stats struct {
	Connections, MaxConnections int
	Addresses                   int // groups that hold a connection
	Requests                    int
	Ended                       map[string]uint64 // by Reason, since the start
}

// Limiter bounds what clients hold of one server.
type Limiter struct {
	set   atomic.Pointer[settings]
	tick  atomic.Int64 // counts sweeps from 1; the clock of connections
	start time.Time
	ended [reasons]atomic.Uint64

	requests atomic.Int64

	mu      sync.Mutex
	groups  map[netip.Prefix]*group // guarded by mu: as many as there are connections at most
	largest byConnections           // guarded by mu: the groups that are not exempt
	total   int                     // guarded by mu
}

// settings are those in force, with the time between two sweeps.
type settings struct {
	Options
	every time.Duration
}

func (l *Limiter) o() *settings { return l.set.Load() }

// group is a client: addresses that are counted together.
type group struct {
	key      netip.Prefix
	exempt   bool
	conns    []*conn // guarded by Limiter.mu
	hand     int     // guarded by Limiter.mu: where the next search for an idle one begins
	place    int     // guarded by Limiter.mu: in Limiter.largest
	empty    atomic.Bool
	requests atomic.Int64
	turn     turn

	// Since the last sweep, both guarded by Limiter.mu.
	refused int // connections
	gaveUp  int // connections on which requests were under way, for newcomers of the group

	makesRoom time.Duration // guarded by Limiter.mu: since Limiter.start, when it gives up another one
}

// New returns a Limiter.
func New(o Options) *Limiter {
	l := &Limiter{groups: map[netip.Prefix]*group{}, start: time.Now()}
	l.tick.Store(1)
	l.set.Store(&settings{o, sweepEvery(o)})
	return l
}

func sweepEvery(o Options) time.Duration {
	return min(time.Second, max(5*time.Millisecond, min(o.Patience, o.StreamIdle)/20))
}

// Use puts other Options in force. Nothing that is held by then is ended for it, but a client that is too slow, or
// silent for too long, by them. Only one goroutine may call it at a time.
func (l *Limiter) Use(o Options) {
	// The clock of connections never gets coarser: what it counted before would be longer than it was.
	l.set.Store(&settings{o, min(l.o().every, sweepEvery(o))})
}

// Prepare sets what net/http itself bounds, and lets l know the states of
// connections.
func (l *Limiter) Prepare(s *http.Server) {
	o := l.o()
	s.ReadHeaderTimeout, s.IdleTimeout, s.MaxHeaderBytes = o.HeadTimeout, o.Idle, o.MaxHeaderBytes
	s.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: o.MaxStreams,
		// What a connection holds of bodies that nobody reads yet.
		MaxReceiveBufferPerConnection: 256 << 10, MaxReceiveBufferPerStream: 256 << 10,
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if c := find(c); c != nil {
			c.enter(state)
		}
	}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, find(c))
	}
}

type connKey struct{}

// Stats reports what is held now.
func (l *Limiter) Stats() Stats {
	s := Stats{
		MaxConnections: l.o().MaxConnections,
		Requests:       int(l.requests.Load()),
		Ended:          make(map[string]uint64, reasons),
	}
	for why := range reasons {
		s.Ended[why.String()] = l.ended[why].Load()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Connections, s.Addresses = l.total, len(l.groups)
	return s
}

func (l *Limiter) count(why Reason) { l.ended[why].Add(1) }

// join counts c as one of the group of addr, and returns the connection that has
// to be closed for it, if any. It reports false, and why, if there is no room.
func (l *Limiter) join(c *conn, addr netip.Addr) (displaced *conn, why Reason, ok bool) {
	o := l.o()
	key, exempt := o.Group(addr), o.Exempt(addr)
	if exempt { // it alone, whoever else is in its network
		key = netip.PrefixFrom(addr, addr.BitLen())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[key]
	held := 0
	if g != nil {
		held = len(g.conns)
	}
	switch {
	case !exempt && held >= o.MaxPerAddress:
		if displaced = l.idleOfOwn(g); displaced == nil {
			g.refused++
			c.untold = g.refused > mostTold
			return nil, ConnectionsOfAddress, false
		}
	case l.total >= o.MaxConnections:
		if displaced = l.idleOfLarger(held); displaced == nil {
			return nil, ConnectionsInTotal, false
		}
	}
	if displaced != nil {
		l.removeLocked(displaced)
	}
	if g = l.groups[key]; g == nil {
		g = &group{key: key, exempt: exempt, turn: turn{start: l.start}}
		l.groups[key] = g
		if !exempt {
			heap.Push(&l.largest, g)
		}
	}
	g.empty.Store(false)
	c.slot = len(g.conns)
	g.conns = append(g.conns, c)
	c.group.Store(g)
	l.total++
	l.fixLocked(g)
	return displaced, 0, true
}

// leave takes c out, once.
func (l *Limiter) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(c)
}

func (l *Limiter) removeLocked(c *conn) {
	g := c.group.Load()
	if g == nil || c.slot < 0 {
		return
	}
	last := len(g.conns) - 1
	g.conns[c.slot] = g.conns[last]
	g.conns[c.slot].slot = c.slot
	g.conns[last] = nil
	g.conns = g.conns[:last]
	c.slot = -1
	l.total--
	l.fixLocked(g)
	if last == 0 {
		g.empty.Store(true)
		l.forgetLocked(g)
	}
}

// fixLocked puts g in its place among the largest.
func (l *Limiter) fixLocked(g *group) {
	if !g.exempt {
		heap.Fix(&l.largest, g.place)
	}
}

// forgetLocked forgets a group that holds nothing.
func (l *Limiter) forgetLocked(g *group) {
	if len(g.conns) > 0 || g.requests.Load() > 0 || l.groups[g.key] != g {
		return
	}
	delete(l.groups, g.key)
	if !g.exempt {
		heap.Remove(&l.largest, g.place)
	}
}

const (
	mostGroups = 8  // looked at for a connection to displace
	mostConns  = 64 // looked at in each, so that accepting costs the same whoever holds how much
)

// find returns a connection that fits, or nil. The search goes on where the last
// one ended.
func (g *group) find(fits func(*conn) bool) *conn {
	for range min(len(g.conns), mostConns) {
		g.hand = (g.hand + 1) % len(g.conns)
		if c := g.conns[g.hand]; fits(c) {
			return c
		}
	}
	return nil
}

// mostTold is how many refused connections of a group are told why, between two
// sweeps. To tell costs more than all else about a connection that is refused,
// and a flood does not listen.
const mostTold = 16

// idleOfOwn returns a connection of the newcomer's group, which has its share.
// Not one that came just now: to take turns with oneself costs more than to be
// refused, and that is what a flood would do. Nor all of the others at once, as a
// flood would have them given up after each sweep, and whoever connects meanwhile
// waits until all is done: as many between two sweeps as the group may hold, one
// after the other. And of those with a request under way an eighth: what begins in
// their place are requests, and those of a whole group that begin at once keep all
// others waiting.
func (l *Limiter) idleOfOwn(g *group) *conn {
	o := l.o()
	at := time.Since(l.start)
	if g.makesRoom > at+o.every/atOnce {
		return nil
	}
	now, busy := l.tick.Load(), g.gaveUp < max(1, o.MaxPerAddress/8)
	found := g.find(func(c *conn) bool { return (busy || c.betweenRequests()) && c.idle(now, 1) })
	if found == nil {
		return nil
	}
	g.makesRoom = max(g.makesRoom, at) + o.every/time.Duration(o.MaxPerAddress)
	if !found.betweenRequests() {
		g.gaveUp++
	}
	return found
}

// atOnce is the part of a group's connections that it gives up without a pause: one of so many.
const atOnce = 16

// idleOfLarger returns a connection of a group that holds more than the
// newcomer's, from one of the largest: one that is idle, else one of a group that
// holds many on which nothing has passed for Patience, whatever for. In the heap
// the largest stand in front.
func (l *Limiter) idleOfLarger(held int) *conn {
	now, quiet := l.tick.Load(), int64(l.o().Patience/l.o().every)
	largest := l.largest[:min(len(l.largest), mostGroups)]
	for _, g := range largest {
		if len(g.conns) > held {
			if c := g.find(func(c *conn) bool { return c.idle(now, 0) }); c != nil {
				return c
			}
		}
	}
	for _, g := range largest {
		if len(g.conns) > max(held, many) {
			if c := g.find(func(c *conn) bool { return now-c.active.Load() >= quiet }); c != nil {
				return c
			}
		}
	}
	return nil
}

// many are more connections than a browser has.
const many = 8

// byConnections is a heap, the group that holds most first.
type byConnections []*group

func (h byConnections) Len() int           { return len(h) }
func (h byConnections) Less(i, j int) bool { return len(h[i].conns) > len(h[j].conns) }
func (h byConnections) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *byConnections) Push(x any) {
	g := x.(*group)
	g.place = len(*h)
	*h = append(*h, g)
}
func (h *byConnections) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return g
}

// begin counts a request of g, which may be nil, and says why if there is no
// room. What its address has no room for is never counted in total, where it
// would take the room of others for a moment.
func (l *Limiter) begin(g *group) (why Reason, ok bool) {
	o := l.o()
	if g != nil {
		most := o.MaxRequestsPerAddress
		if g.exempt {
			most = o.MaxRequests
		}
		if !oneMore(&g.requests, most) {
			return RequestsOfAddress, false
		}
	}
	if !oneMore(&l.requests, o.MaxRequests) {
		l.oneLess(g)
		return RequestsInTotal, false
	}
	return 0, true
}

// oneMore adds one, unless there are as many as there may be.
func oneMore(n *atomic.Int64, most int) bool {
	for {
		now := n.Load()
		if now >= int64(most) {
			return false
		}
		if n.CompareAndSwap(now, now+1) {
			return true
		}
	}
}

func (l *Limiter) end(g *group) {
	l.requests.Add(-1)
	l.oneLess(g)
}

func (l *Limiter) oneLess(g *group) {
	if g != nil && g.requests.Add(-1) == 0 && g.empty.Load() {
		l.mu.Lock()
		l.forgetLocked(g)
		l.mu.Unlock()
	}
}
