package operations_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// ledger is an API that notes when whose requests reach it.
type ledger struct {
	*httptest.Server
	began time.Time

	mu   sync.Mutex
	came map[string][]time.Duration // guarded by mu; by path and caller
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{began: time.Now(), came: map[string][]time.Duration{}}
	l.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at := time.Since(l.began)
		who := r.URL.Path + " " + r.URL.Query().Get("caller")
		l.mu.Lock()
		defer l.mu.Unlock()
		l.came[who] = append(l.came[who], at)
	}))
	t.Cleanup(l.Close)
	return l
}

// caller is a client with an address of its own, so with buckets of its own.
type caller struct {
	name string
	http *http.Client

	mu       sync.Mutex
	statuses map[string]map[int]int   // guarded by mu; by path
	longest  map[string]time.Duration // guarded by mu; that an admitted request took, by path
	held     map[string]int64         // guarded by mu; admitted requests that took longer than usual, by path
	late     int                      // guarded by mu; requests that took longer than slow
	// guarded by mu; the shortest time in which a request was refused with 503, by path
	hasty map[string]time.Duration
}

// slow is what no request may take, with a deadline of the store far below it:
// as much as a busy machine can need.
const slow = 5 * time.Second

// usual is what the way to the API takes at most, but for requests that a fault
// holds: each of those adds at most its one token to what comes in an interval.
const usual = 300 * time.Millisecond

func newCaller(t *testing.T, n byte) *caller {
	t.Helper()
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, n)}
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: from}).DialContext, MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{
		name: from.IP.String(), http: &http.Client{Transport: transport, Timeout: time.Minute},
		statuses: map[string]map[int]int{}, longest: map[string]time.Duration{}, held: map[string]int64{},
		hasty: map[string]time.Duration{},
	}
}

// get sends a request and reports its status, 0 if the gateway does not answer.
func (c *caller) get(g *harness.Gateway, path string) int {
	began := time.Now()
	response, err := c.http.Get(g.URL + path + "?caller=" + url.QueryEscape(c.name))
	status := 0
	if err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		status = response.StatusCode
	}
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.statuses[path] == nil {
		c.statuses[path] = map[int]int{}
	}
	c.statuses[path][status]++
	switch {
	case status == http.StatusOK && took > usual:
		c.held[path]++
		c.longest[path] = usual
	case status == http.StatusOK:
		c.longest[path] = max(c.longest[path], took)
	case status == http.StatusServiceUnavailable && (c.hasty[path] == 0 || took < c.hasty[path]):
		c.hasty[path] = took
	}
	if took > slow {
		c.late++
	}
	return status
}

// count is how many requests for a path got a status.
func (c *caller) count(path string, status int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.statuses[path][status]
}

// refusedWithin is the shortest time in which a request for a path was answered
// with 503, 0 if none was.
func (c *caller) refusedWithin(path string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hasty[path]
}

// answers is how many requests for a path got which status.
func (c *caller) answers(path string) map[int]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.statuses[path])
}

// keepAsking sends requests for every path, four times what fifty admits, to all
// gateways in turn, until it is told to stop.
func (c *caller) keepAsking(t *testing.T, gateways []*harness.Gateway, paths ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	every := atOnce * time.Duration(len(gateways)) * fifty.Per / time.Duration(4*fifty.Tokens)
	for _, g := range gateways {
		for _, path := range paths {
			for range atOnce {
				all.Go(func() {
					for tick := time.NewTicker(every); ctx.Err() == nil; <-tick.C {
						c.get(g, path)
					}
				})
			}
		}
	}
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(stop)
	return stop
}

// atOnce is how many requests of a caller for one path are under way at once.
const atOnce = 2

// upstream is the API as gateways of other tests have it.
func (l *ledger) upstream() *harness.Upstream { return &harness.Upstream{Server: l.Server} }

// within checks what the API received of a caller: no more in any interval than
// a limit promises in a scope, and extra tokens that a fault may add.
func (l *ledger) within(t *testing.T, c *caller, path string, limit rate.Limit, scope bucket.Scope, replicas int,
	extra int64) {
	t.Helper()
	promised := bucket.Sharing{Replicas: replicas, TTL: ttl, Free: free, Interval: interval}.Envelope(limit, scope)
	shape, err := rate.Compile(rate.Limit{Tokens: promised.Tokens, Per: promised.Per, Burst: promised.Burst})
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	came := slices.Sorted(slices.Values(l.came[path+" "+c.name]))
	l.mu.Unlock()
	received := simulate.Envelope{Shape: shape}
	for _, at := range came {
		received.Admit(at, 1)
	}
	c.mu.Lock()
	// What was admitted over a longer time arrives in a shorter one, if the first of it took longest.
	way := shape.Drained(c.longest[path])/shape.Unit + 1 + c.held[path]
	c.mu.Unlock()
	said := fmt.Sprintf(
		"GET %s of %s: %d received, %d of them beyond burst and rate; promised %d, the fault %d, the way %d", path,
		c.name, len(came), received.Excess(), promised.Excess, extra, way)
	if received.Excess() > promised.Excess+extra+way {
		t.Error(said)
		return
	}
	t.Log(said)
}

// ttl is that of leases where a test sets no other, as long as what is patient has
// it; free is how many percent gateways have to themselves, and interval how long
// what was admitted waits to be told.
const (
	ttl      = 500 * time.Millisecond
	free     = 20
	interval = 100 * time.Millisecond
)

// headroom is how much each of so many gateways may have admitted under scope
// sync, and the store does not know.
func headroom(t *testing.T, l rate.Limit, gateways int) int64 {
	t.Helper()
	shape, err := rate.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return bucket.Headroom(shape, interval, gateways)
}

// leased is the part of a limit that is in the store, where it is leased to so
// many gateways, and own what each has to itself.
func leased(t *testing.T, l rate.Limit, gateways int) (rest, own rate.Limit) {
	t.Helper()
	shape, err := rate.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	lane, store, ok := shape.SetAside(free, gateways)
	if !ok {
		return l, rate.Limit{}
	}
	rest = rate.Limit{Tokens: l.Tokens * (100 - free) / 100, Per: l.Per, Burst: store.Burst()}
	return rest, rate.Limit{Tokens: l.Tokens * free / 100, Per: l.Per, Burst: lane.Burst()}
}
