package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/server/attack"
)

// lab is where attacks run: one API, the limiters before it, and clients with addresses of loopback's network.
type lab struct {
	ctx    context.Context
	api    *api
	dir    string
	nginx  string // its version
	next   *atomic.Int64
	mu     sync.Mutex
	closes []func() // guarded by mu

	issued map[string]attack.Field // valid credentials, by the limiter's URL; guarded by mu
}

// The addresses of the cast: all of 127.0.0.0/8 is this machine.
var (
	balancer = netip.MustParseAddr("127.0.0.3") // a balancer of the operator's, which speaks the PROXY protocol
	// a proxy of the operator's, whose forwarding header limiters are told to believe
	proxy    = netip.MustParseAddr("127.0.0.2")
	attacker = netip.MustParseAddr("127.1.0.1")
	victim   = netip.MustParseAddr("127.2.0.1")
)

// accomplice is the k-th address of an attacker who has several.
func accomplice(k int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 1, byte(k >> 8), byte(1 + k)})
}

func openLab(ctx context.Context) (*lab, error) {
	dir, err := os.MkdirTemp("", "headgate-attacks-")
	if err != nil {
		return nil, err
	}
	l := &lab{ctx: ctx, api: newAPI(), dir: dir, next: new(atomic.Int64)}
	l.atEnd(l.api.Close)
	if l.nginx, err = nginxVersion(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) atEnd(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closes = append(l.closes, f)
}

// issue keeps a credential that is valid at a limiter.
func (l *lab) issue(url string, f attack.Field) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.issued == nil {
		l.issued = map[string]attack.Field{}
	}
	l.issued[url] = f
}

// credential is one that is valid at a limiter.
func (l *lab) credential(url string) (attack.Field, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, ok := l.issued[url]
	return f, ok
}

// close ends everything that was started, the latest first.
func (l *lab) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.closes) - 1; i >= 0; i-- {
		l.closes[i]()
	}
	l.closes = nil
	_ = os.RemoveAll(l.dir)
}

// room is a part of the lab that can be closed alone.
func (l *lab) room() (*lab, error) {
	dir, err := l.folder()
	return &lab{ctx: l.ctx, api: l.api, dir: dir, nginx: l.nginx, next: l.next}, err
}

// folder makes a folder for one process.
func (l *lab) folder() (string, error) { return os.MkdirTemp(l.dir, "") }

// shot is a request and who sends it.
type shot struct {
	attack.Request
	from netip.Addr

	// preface is what a connection begins with, before any request: a PROXY header.
	preface string
}

// caller is whose connection it is.
type caller struct {
	from    netip.Addr
	preface string
}

// barrage is many shots at one limiter.
type barrage struct {
	url  string
	n    int
	rate float64 // a second; 0: as fast as it goes
	make func(i int) shot
}

// seen is a shot that reached the API.
type seen struct {
	i int // which shot
	attack.Span
	arrival
}

// record is what became of a barrage.
type record struct {
	sent     int
	took     time.Duration // from the first sending to the last answer
	statuses map[int]int   // by what was answered; 0: nothing
	reached  []seen
}

const workers = 8

// fire sends a barrage and returns what the API saw of it.
func (l *lab) fire(b barrage) record {
	low := int(l.next.Add(int64(b.n))) - b.n
	sent := make([]time.Duration, b.n)
	statuses := make([]int, b.n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(workers, b.n) {
		wg.Go(func() {
			clients := newClients(b.url)
			defer clients.close()
			for i := range next {
				s := b.make(i)
				sent[i] = l.api.since()
				statuses[i] = clients.do(l.ctx, s, low+i)
			}
		})
	}
	start := l.api.since()
	l.feed(b, next)
	wg.Wait()
	r := record{sent: b.n, took: l.api.since() - start, statuses: map[int]int{}}
	for _, status := range statuses {
		r.statuses[status]++
	}
	arrived := l.api.take(low, low+b.n)
	for i := range b.n {
		if a, ok := arrived[low+i]; ok {
			r.reached = append(r.reached, seen{i, attack.Span{Sent: sent[i], Seen: a.at}, a})
		}
	}
	return r
}

// feed hands out the numbers of a barrage's shots at its rate.
func (l *lab) feed(b barrage, next chan<- int) {
	defer close(next)
	var pace <-chan time.Time
	if b.rate > 0 {
		ticker := time.NewTicker(time.Duration(1e9 / b.rate))
		defer ticker.Stop()
		pace = ticker.C
	}
	for i := range b.n {
		select {
		case next <- i:
		case <-l.ctx.Done():
			return
		}
		if pace != nil {
			select {
			case <-pace:
			case <-l.ctx.Done():
				return
			}
		}
	}
}

// clients are the connections of one worker, one for every caller.
type clients struct {
	server   string
	byCaller map[caller]*attack.Client
}

func newClients(url string) *clients {
	return &clients{server: url[len("http://"):], byCaller: map[caller]*attack.Client{}}
}

func (c *clients) do(ctx context.Context, s shot, n int) int {
	who := caller{s.from, s.preface}
	client := c.byCaller[who]
	if client == nil {
		if len(c.byCaller) >= 64 {
			c.close()
		}
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: s.from.AsSlice()}}
		client = &attack.Client{Host: "api.example", Agent: "attacks",
			Dial: func(ctx context.Context) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, "tcp", c.server)
				if err == nil && s.preface != "" {
					_, err = io.WriteString(conn, s.preface)
				}
				return conn, err
			}}
		c.byCaller[who] = client
	}
	status, err := client.Do(ctx, s.With(attack.Field{Name: number, Value: strconv.Itoa(n)}))
	if err != nil {
		return 0
	}
	return status
}

func (c *clients) close() {
	for who, client := range c.byCaller {
		client.Close()
		delete(c.byCaller, who)
	}
}

// await repeats until ok or the time is over.
func await(ctx context.Context, within time.Duration, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v", what, within)
		case <-ticker.C:
		}
	}
	return nil
}
