package attack_test

import (
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/server/attack"
)

func TestAtOnce(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		spans []attack.Span
		lasts time.Duration
		want  int
	}{
		{"nothing", nil, 100 * ms, 0},
		{"alone", []attack.Span{{0, 110 * ms}}, 100 * ms, 1},
		{"together", []attack.Span{{0, 110 * ms}, {5 * ms, 120 * ms}}, 100 * ms, 2},
		{"one after the other", []attack.Span{{0, 110 * ms}, {110 * ms, 220 * ms}}, 100 * ms, 1},
		// The second may have begun when the first ended: it took as long as both.
		{"perhaps one after the other", []attack.Span{{0, 110 * ms}, {0, 220 * ms}}, 100 * ms, 1},
		{"answered too soon", []attack.Span{{0, 110 * ms}, {0, 90 * ms}}, 100 * ms, 1},
		{"the end of one is the begin of the next", []attack.Span{{0, 150 * ms}, {50 * ms, 200 * ms}}, 100 * ms, 1},
	} {
		if got := attack.AtOnce(c.spans, c.lasts); got != c.want {
			t.Errorf("%s: AtOnce(%v, %v) = %d, want %d", c.name, c.spans, c.lasts, got, c.want)
		}
	}
}

// TestAtOnceInventsNothing has requests be under way at a server, over a network, perhaps behind a queue. What is seen
// outside is never more than were under way, and where nothing delays anybody it is all of them.
func TestAtOnceInventsNothing(t *testing.T) {
	const ms = time.Millisecond
	seen, were := 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d) + 1)) }
		lasts, late, queued := 50*ms+upTo(200*ms), upTo(100*ms)*time.Duration(r.IntN(2)), r.IntN(2) == 0
		var spans, real []attack.Span
		for range 1 + r.IntN(12) {
			sent := upTo(lasts)
			from := sent + upTo(late)
			if queued {
				from += upTo(3 * lasts)
			}
			to := from + lasts + upTo(lasts/4)
			spans = append(spans, attack.Span{Sent: sent, Seen: to + upTo(late)})
			real = append(real, attack.Span{Sent: from, Seen: to})
		}
		most := 0
		for _, one := range real { // whenever most are, one has just begun
			n := 0
			for _, other := range real {
				if other.Sent <= one.Sent && one.Sent < other.Seen {
					n++
				}
			}
			most = max(most, n)
		}
		got := attack.AtOnce(spans, lasts)
		if got > most {
			t.Fatalf("seed %d: AtOnce(%v, %v) = %d, and %d were under way", seed, spans, lasts, got, most)
		}
		if late == 0 && !queued {
			seen, were = seen+got, were+most
		}
	}
	if seen*10 < were*7 {
		t.Errorf("%d of %d requests were seen that nothing delayed: too few to find anything by", seen, were)
	}
}

// places is a limit on requests under way, for every name that its request is given, of which the endpoint takes a
// second.
type places struct {
	most  int
	name  func(*http.Request) string
	skips func(*http.Request) bool // has no place
	lets  bool                     // gives a place back when the client has said that it sends no more
	drops bool                     // and gives it up
	turns bool                     // into a WebSocket what asks for that, until its client closes it
	early bool                     // and gives its place back at once
	hasty bool                     // looks whether there is room, and takes it a moment later
	late  time.Duration            // on the way of a request that claims no address
	all   int                      // requests that are served in all; 0 for any

	mu     sync.Mutex
	taken  map[string]int // guarded by mu
	served int            // guarded by mu
}

func (p *places) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := p.name(r)
	if p.skips != nil && p.skips(r) {
		name = "no place"
	}
	if _, claims := r.Header["X-Forwarded-For"]; !claims && p.late > 0 {
		time.Sleep(p.late)
	}
	p.mu.Lock()
	room := (p.taken[name] < p.most || name == "no place") && (p.all == 0 || p.served < p.all)
	if p.hasty {
		p.mu.Unlock()
		time.Sleep(time.Millisecond)
		p.mu.Lock()
	}
	if room {
		p.served++
		p.taken[name]++
	}
	p.mu.Unlock()
	if !room {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	back := sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken[name]--
	})
	defer back()
	if p.lets {
		defer context.AfterFunc(r.Context(), back)()
	}
	if p.turns && r.Header.Get("Upgrade") == "websocket" {
		conn, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		if p.early {
			back()
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"+
			"Connection: Upgrade\r\n\r\n")
		_, _ = io.Copy(io.Discard, in)
		return
	}
	if p.drops {
		select {
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		case <-time.After(time.Second):
		}
	} else {
		time.Sleep(time.Second)
	}
	if path.Clean(r.URL.Path) != "/v1/report" && !strings.HasPrefix(r.URL.Path, "/v1/reports/") {
		w.WriteHeader(http.StatusNotFound)
	}
}

// serveInVirtualTime serves connections that exist in the bubble of a test alone.
func serveInVirtualTime(t *testing.T, h http.Handler) attack.Site {
	l := &virtualNetwork{arrive: make(chan net.Conn), gone: make(chan struct{})}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return attack.Site{
		Scheme:    "http",
		Host:      "api.example",
		Addresses: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:80")},
		Connect: func(_ context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
			if !from.IsValid() {
				from = netip.AddrFrom4([4]byte{127, 0, 0, 1})
			}
			client, server := virtualConn(from, to)
			select {
			case l.arrive <- server:
				return client, nil
			case <-l.gone:
				return nil, net.ErrClosed
			}
		},
	}
}

type virtualNetwork struct {
	arrive chan net.Conn
	gone   chan struct{}
	once   sync.Once
}

func (l *virtualNetwork) Addr() net.Addr { return &net.TCPAddr{} }

func (l *virtualNetwork) Accept() (net.Conn, error) {
	select {
	case c := <-l.arrive:
		return c, nil
	case <-l.gone:
		return nil, net.ErrClosed
	}
}

func (l *virtualNetwork) Close() error {
	l.once.Do(func() { close(l.gone) })
	return nil
}

// duplex is a connection of two one-way pipes: either may end before the other.
type duplex struct {
	net.Conn // what is read
	out      net.Conn
	peer     net.Addr
}

func virtualConn(from netip.Addr, to netip.AddrPort) (client, server net.Conn) {
	a1, a2 := net.Pipe()
	b1, b2 := net.Pipe()
	return &duplex{b2, a1, net.TCPAddrFromAddrPort(to)},
		&duplex{a2, b1, net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 1024))}
}

func (d *duplex) Write(b []byte) (int, error) { return d.out.Write(b) }
func (d *duplex) CloseWrite() error           { return d.out.Close() }
func (d *duplex) RemoteAddr() net.Addr        { return d.peer }

func (d *duplex) Close() error {
	_ = d.out.Close()
	return d.Conn.Close()
}

func (d *duplex) SetDeadline(at time.Time) error {
	_ = d.out.SetDeadline(at)
	return d.Conn.SetDeadline(at)
}

func (d *duplex) SetWriteDeadline(at time.Time) error { return d.out.SetDeadline(at) }

func atOncePlan() attack.Plan {
	return attack.Plan{Endpoint: "GET /v1/report", AtOnce: 3, Duration: 10 * time.Minute, Agent: "headgate-attack/test"}
}

// TestRunFindsEveryPlaceThatIsNone gives limits on requests under way one hole each.
func TestRunFindsEveryPlaceThatIsNone(t *testing.T) {
	key := func(r *http.Request) string {
		if r.Header.Get("X-Api-Key") == "valid" && r.Header.Get("Authorization") == "" {
			return "the key"
		}
		return peer(r)
	}
	upgrades := func(r *http.Request) bool { return r.Header.Get("Upgrade") == "websocket" }
	for _, c := range []struct {
		name    string
		limit   *places
		with    string // a credential
		target  string
		widened []string // attacks
		family  string   // of the first that must be named as one that got through; "" for any that is not as it is
	}{
		{"no hole", &places{name: peer}, "", "", nil, ""},
		{"no hole, and a credential", &places{name: func(*http.Request) string { return "the key" }}, "X-Api-Key", "",
			nil, ""},
		{"no hole, and who sends no more is gone", &places{name: peer, drops: true}, "", "", nil, ""},
		{"no hole, and plain requests are slow to arrive", &places{name: peer, late: 150 * time.Millisecond}, "", "",
			nil, ""},
		{"no hole, and WebSockets", &places{name: peer, turns: true}, "", "", nil, ""},
		{"until it is a WebSocket", &places{name: peer, turns: true, early: true}, "", "", []string{"ends"},
			"asks for a WebSocket"},
		{"by the leftmost forwarded address", &places{name: func(r *http.Request) string {
			return r.Header.Get("X-Forwarded-For")
		}}, "", "", []string{"headers"}, "X-Forwarded-For"},
		{"by the path as it came", &places{name: func(r *http.Request) string { return r.URL.EscapedPath() }}, "", "",
			[]string{"spelling"}, "percent-encoding"},
		{"by the API key", &places{name: func(r *http.Request) string { return r.Header.Get("X-Api-Key") }}, "", "",
			[]string{"keys"}, "X-Api-Key"},
		{"by the item", &places{name: func(r *http.Request) string { return path.Base(r.URL.Path) }}, "",
			"GET /v1/reports/{id}", []string{"items", "spelling", "unknown"}, "another item"},
		{"by address where there are two credentials", &places{name: key}, "X-Api-Key", "",
			[]string{"credential", "claimed"}, ""}, // of many that would, the first to come take the places
		{"none for what asks for a WebSocket", &places{name: peer, skips: upgrades}, "", "", []string{"ends"},
			"asks for a WebSocket"},
		{"until the client sends no more", &places{name: peer, lets: true}, "", "", []string{"ends"},
			"says that it sends no more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.limit.most, c.limit.taken = 3, map[string]int{}
				p := atOncePlan()
				if c.with != "" {
					p.Header = []attack.Field{{Name: c.with, Value: "valid"}}
				}
				p.Endpoint = cmp.Or(c.target, p.Endpoint)
				site := serveInVirtualTime(t, c.limit)
				found, err := attack.Run(t.Context(), site, p, func(attack.Finding) {})
				if err != nil || len(found) != len(p.Attacks()) {
					t.Fatalf("%d findings of %d attacks, %v", len(found), len(p.Attacks()), err)
				}
				for _, f := range found {
					named := slices.ContainsFunc(f.Families, func(one attack.FamilyCount) bool {
						asked := one.Name == c.family || c.family == "" && !strings.HasPrefix(one.Name, "as it is")
						return asked && one.Admitted > 0
					})
					widened := slices.Contains(c.widened, f.Attack)
					switch {
					case !widened && (f.Verdict != attack.Held || f.AtOnce > 3):
						t.Errorf("%s: %s, want held: %+v", f.Attack, f.Verdict, f)
					case widened && (f.Verdict != attack.Widened || !named && f.Attack == c.widened[0] || f.Fix == "" ||
						f.Beyond < 1):
						t.Errorf("%+v, want it widened by %q", f, c.family)
					}
				}
			})
		})
	}
}

// TestRunOfPlacesThatAreNotTheLimit is about limits that are not what the plan says.
func TestRunOfPlacesThatAreNotTheLimit(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit *places
		want  string // of the error
		plain attack.Verdict
	}{
		{name: "more", limit: &places{most: 9}, want: "more than the limit already", plain: attack.Widened},
		{name: "fewer", limit: &places{most: 2}, want: "never had all places", plain: attack.Inconclusive},
		{name: "a rate denies first", limit: &places{most: 3, all: 4}, want: "never had all places",
			plain: attack.Inconclusive},
		{name: "looks, and takes later", limit: &places{most: 3, hasty: true}, want: "more than the limit already",
			plain: attack.Widened},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.limit.name, c.limit.taken = peer, map[string]int{}
				site := serveInVirtualTime(t, c.limit)
				found, err := attack.Run(t.Context(), site, atOncePlan(), func(attack.Finding) {})
				if err == nil || !strings.Contains(err.Error(), c.want) || len(found) != 1 ||
					found[0].Verdict != c.plain {
					t.Errorf("Run = %+v, %v, want that the plain request is %s, and %q", found, err, c.plain, c.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		site := serveInVirtualTime(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		found, err := attack.Run(t.Context(), site, atOncePlan(), func(attack.Finding) {})
		if err == nil || !strings.Contains(err.Error(), "is seen only where they last") || len(found) != 0 {
			t.Errorf("Run of what is answered at once = %+v, %v", found, err)
		}
	})
}
