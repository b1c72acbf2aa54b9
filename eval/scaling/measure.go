package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// traffic is how requests are spread over k gateways.
type traffic struct {
	name  string
	share func(i, k int) float64
}

var traffics = []traffic{
	{"uniform", func(_, k int) float64 { return 1 / float64(k) }},
	{"skewed", func(i, k int) float64 { // nine tenths meet one of them
		if i == 0 {
			return 0.9
		}
		return 0.1 / float64(k-1)
	}},
}

// Cell is what was measured of one scope, one number of gateways, and one traffic.
type Cell struct {
	Scope    string
	Replicas int
	Traffic  string

	Excess   int64   // tokens received beyond burst and rate, in the worst interval
	Bound    int64   // of Excess, as published; and what the way to the API may add
	Used     float64 // of what the limit admits
	Messages float64 // to the store, a second
	Sent     int64
	Longest  time.Duration // that the way of an admitted request took
}

func (c Cell) String() string {
	return fmt.Sprintf("%-7s %d gateways, %-8s excess %4d of %4d, used %.3f, %.0f calls/s, %d sent, longest way %v", c.Scope, c.Replicas, c.Traffic, c.Excess, c.Bound,
		c.Used, c.Messages, c.Sent, c.Longest.Round(time.Millisecond))
}

// api notes when requests reach it.
type api struct {
	*httptest.Server
	began time.Time

	mu   sync.Mutex
	came []time.Duration // guarded by mu
}

func newAPI() *api {
	a := &api{began: time.Now()}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		at := time.Since(a.began)
		a.mu.Lock()
		a.came = append(a.came, at)
		a.mu.Unlock()
		_, _ = io.WriteString(w, "ok\n")
	}))
	return a
}

// measure fills one cell.
func (p plan) measure(store *redis, scope string, k int, spread traffic) (cell Cell, err error) {
	promised, extra, err := promise(p.rule(), scope, k)
	if err != nil {
		return cell, err
	}
	backend := newAPI()
	defer backend.Close()
	dir, err := os.MkdirTemp("", "headgate-scaling-fleet-")
	if err != nil {
		return cell, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	gateways, err := p.start(dir, store, scope, k, backend.URL)
	defer func() {
		for _, g := range gateways {
			g.Kill()
		}
	}()
	if err == nil {
		err = settled(gateways)
	}
	if err != nil {
		return cell, err
	}
	before, err := store.calls()
	if err != nil {
		return cell, err
	}
	began := time.Now()
	sent, longest := p.load(gateways, spread)
	took := time.Since(began)
	after, err := store.calls()
	if err != nil {
		return cell, err
	}

	backend.mu.Lock()
	defer backend.mu.Unlock()
	slices.Sort(backend.came)
	received := simulate.Envelope{Shape: promised}
	for _, at := range backend.came {
		received.Admit(at, 1)
	}
	could := float64(p.limit) * (1 + took.Seconds())
	return Cell{
		Scope: scope, Replicas: k, Traffic: spread.name,
		Excess: received.Excess(), Bound: extra + late(promised, longest),
		Used: float64(len(backend.came)) / could, Messages: float64(after-before) / took.Seconds(), Sent: sent, Longest: longest,
	}, nil
}

// rule is the limit that is measured.
func (p plan) rule() rate.Limit {
	return rate.Limit{Tokens: p.limit, Per: time.Second, Burst: p.limit}
}

// start starts k gateways on one database and one store, with one rule.
func (p plan) start(dir string, store *redis, scope string, k int, upstream string) (gateways []*harness.Gateway, err error) {
	for name, text := range map[string]string{
		"routes.txt":   "GET /v1/items\n",
		"gateway.yaml": fmt.Sprintf("upstream: %s\nroutes: [routes.txt]\nstore: {redis: [%q], prefix: %q}\n", upstream, store.address, "s"+fmt.Sprint(rand.Uint32())),
		"rules.yaml":   fmt.Sprintf("rules:\n  - {endpoint: GET /v1/items, limit: %d, subject: endpoint, scope: %s}\n", p.limit, scope),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	if err := harness.Command(dir, "policy", "import", "rules.yaml", "--config", "gateway.yaml"); err != nil {
		return nil, err
	}
	for range k {
		g, err := harness.Start(dir, "--config", "gateway.yaml")
		if err != nil {
			return gateways, err
		}
		gateways = append(gateways, g)
	}
	return gateways, nil
}

// settled waits until every gateway has heard of all others, and their buckets have filled: while they come and go, a limit that is divided among
// them is in other parts.
func settled(gateways []*harness.Gateway) error {
	want := fmt.Sprintf("\nheadgate_store_split_divisor %d\n", len(gateways))
	for _, g := range gateways {
		if !harness.Eventually(30*time.Second, func() bool {
			response, err := http.Get(g.Admin + "/metrics")
			if err != nil {
				return false
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			return err == nil && strings.Contains(string(text), want)
		}) {
			return fmt.Errorf("a gateway does not divide by %d after 30s:\n%s", len(gateways), g.Log())
		}
	}
	time.Sleep(2 * time.Second)
	return nil
}

// mostAtOnce is how many requests are under way to one gateway; beyond it none is sent, as no client has so many connections.
const mostAtOnce = 256

// load sends requests until the time is over, and reports how many, and how long the longest took that was let through.
func (p plan) load(gateways []*harness.Gateway, spread traffic) (sent int64, longest time.Duration) {
	var count, slowest atomic.Int64
	var all sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: mostAtOnce}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	end := time.Now().Add(p.span)
	for i, g := range gateways {
		each := p.over * float64(p.limit) * spread.share(i, len(gateways))
		all.Go(func() {
			room := make(chan struct{}, mostAtOnce)
			next := time.Now()
			for next.Before(end) {
				time.Sleep(time.Until(next))
				next = next.Add(time.Duration(rand.ExpFloat64() / each * float64(time.Second)))
				select {
				case room <- struct{}{}:
				default:
					continue
				}
				count.Add(1)
				all.Go(func() {
					defer func() { <-room }()
					began := time.Now()
					response, err := client.Get(g.URL + "/v1/items")
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
					if response.StatusCode == http.StatusOK {
						atomicMax(&slowest, int64(time.Since(began)))
					}
				})
			}
		})
	}
	all.Wait()
	return count.Load(), time.Duration(slowest.Load())
}

func atomicMax(into *atomic.Int64, value int64) {
	for {
		old := into.Load()
		if value <= old || into.CompareAndSwap(old, value) {
			return
		}
	}
}
