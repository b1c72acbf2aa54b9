package nemesis

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/inspect"
)

// World is the world of a Plan in which a test asks by itself, for the client that is watched. Times
// are since it began to.
type World struct {
	*world
	from time.Duration
}

// Turn is a moment at which a gateway took the store for lost, or for back.
type Turn struct {
	At      time.Duration
	Gateway int
	Lost    bool
}

// admission is a request that was admitted.
type admission struct {
	at      time.Duration
	gateway int
	which   int
	cost    int64
}

// Drive begins the world of a plan, has its events happen, and its crowd ask for so long, while do
// asks; and ends it, when all is well again. It returns what promises were broken. It is to be called
// in the bubble of testing/synctest.
func Drive(p *Plan, lasts time.Duration, do func(*World)) (found []string) {
	w := begin(p)
	w.driven = true
	from := w.now()
	var all sync.WaitGroup
	for _, e := range p.Events {
		all.Go(func() { w.happen(e) })
	}
	if p.Crowd > 0 {
		all.Go(func() { w.crowd(from + lasts) })
	}
	if p.orderly() {
		all.Go(func() { w.parts(from + max(lasts, 5*time.Second)) })
	}
	do(&World{w, from})
	all.Wait()
	time.Sleep(5 * time.Second)
	w.settled()
	w.close()
	return w.found
}

// Ask asks for a request of an endpoint, 0 or 1, at a gateway.
func (w *World) Ask(gateway, which int, cost int64) (allowed bool) {
	w.mu.Lock()
	g := w.gateways[gateway]
	w.mu.Unlock()
	if g == nil {
		return false
	}
	g.wire.awake()
	if d := g.Check(background, ask(client, targets[which], cost)); !d.Allowed || g.dead.Load() {
		return false
	}
	w.admitted(g, which, cost)
	return true
}

// Load asks for requests of one token, so many a second, at some gateways, until a time.
func (w *World) Load(until time.Duration, which int, perSecond float64, gateways ...int) {
	r := rand.New(rand.NewPCG(w.plan.Seed, 300))
	var all sync.WaitGroup
	for {
		time.Sleep(time.Duration(r.ExpFloat64() / perSecond * float64(time.Second)))
		if w.now() >= w.from+until {
			break
		}
		gateway := gateways[r.IntN(len(gateways))]
		all.Go(func() { w.Ask(gateway, which, 1) })
	}
	all.Wait()
}

// AtOnce asks for so many requests of one token at the same moment.
func (w *World) AtOnce(n, gateway, which int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() { w.Ask(gateway, which, 1) })
	}
	all.Wait()
}

// Admitted is how many tokens were admitted of an endpoint from a time until another, at all gateways or at some.
func (w *World) Admitted(from, until time.Duration, which int, gateways ...int) (tokens int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.log {
		here := len(gateways) == 0
		for _, g := range gateways {
			here = here || g == a.gateway
		}
		if here && a.which == which && a.at >= w.from+from && a.at < w.from+until {
			tokens += a.cost
		}
	}
	return tokens
}

// Turns are when gateways took the store for lost and for back.
func (w *World) Turns() (all []Turn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.turns {
		t.At -= w.from
		all = append(all, t)
	}
	return all
}

// Left is how many tokens are left of an endpoint's bucket, as a gateway says.
func (w *World) Left(gateway, which int) (int64, error) {
	found, err := inspect.Find(background, w.gateways[gateway].Limiter,
		inspect.Query{Endpoint: bucketNames[which], Address: client})
	if err != nil || len(found.Buckets) == 0 {
		return 0, err
	}
	return found.Buckets[0].Remaining, nil
}

// Leases is what the leases of a gateway did.
func (w *World) Leases(gateway int) lease.Status { return w.gateways[gateway].leases.Status() }
