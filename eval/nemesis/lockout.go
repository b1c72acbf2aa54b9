package nemesis

import (
	"sync"
	"time"
)

// LockOut runs a plan, and returns for how long at most a client was admitted nothing that has room
// all the time and asks each gateway of the beginning again and again; another gateway where that
// one is gone. It is to be called in the bubble of testing/synctest.
func LockOut(p *Plan) time.Duration {
	w := begin(p)
	var all sync.WaitGroup
	for _, e := range p.Events {
		all.Go(func() { w.happen(e) })
	}
	longest := make([]time.Duration, p.Replicas)
	for slot := range longest {
		all.Go(func() { longest[slot] = w.probe(slot) })
	}
	all.Wait()
	w.close()
	most := time.Duration(0)
	for _, d := range longest {
		most = max(most, d)
	}
	return most
}

const probes = 60 * time.Millisecond // between two requests of a client at a gateway

// probe is the longest time in which nothing was admitted to a client at a gateway.
func (w *world) probe(slot int) (longest time.Duration) {
	var mu sync.Mutex
	var asked sync.WaitGroup
	last, end := w.now(), w.now()+chaos
	for w.now() < end {
		if g := w.near(slot); g != nil {
			asked.Go(func() {
				g.wire.awake()
				if !g.Check(background, ask(client, targets[0], 1)).Allowed || g.dead.Load() {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				longest, last = max(longest, w.now()-last), max(last, w.now())
			})
		}
		time.Sleep(probes)
	}
	asked.Wait()
	return max(longest, end-last)
}

// near is the gateway in a slot, or else the next that is there.
func (w *world) near(slot int) *gateway {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.gateways {
		if g := w.gateways[(slot+i)%len(w.gateways)]; g != nil && !g.dead.Load() {
			return g
		}
	}
	return nil
}
