package nemesis

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// judge sees to it that all is well once the faults are over.
func (w *world) judge() {
	time.Sleep(5 * time.Second) // words, breakers, and what is still under way
	w.settleAll()
	w.settled()
	for slot, g := range w.gateways {
		if g == nil || g.dead.Load() {
			continue
		}
		for which := range targets {
			if w.splits(which) {
				continue
			}
			fresh := netip.AddrFrom4([4]byte{10, byte(w.plan.Seed), byte(slot), byte(which)})
			if waited, ok := w.obey(g, fresh, which, freshWithin); !ok {
				w.broken("liveness", "a client that was never seen before is denied %s at gateway %d and told to "+
					"wait %v, want it served within %v", targets[which], slot, waited, freshWithin)
			}
			within := w.within(which)
			if waited, ok := w.obey(g, client, which, within); !ok {
				w.broken("liveness",
					"a client that obeys is denied %s at gateway %d and told to wait %v, want it served within %v",
					targets[which], slot, waited, within)
			}
		}
	}
	if len(w.found) == 0 {
		w.guaranteed()
		w.use()
	}
}

// parts sees that the parts of limits that gateways have for themselves never add up to more than one.
func (w *world) parts(end time.Duration) {
	for ; w.now() < end; time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		sum := 0.0
		for _, g := range w.gateways {
			if g == nil || g.dead.Load() {
				continue
			}
			if k := g.members.Replicas(); k > 0 {
				sum += 1 / float64(k)
			}
		}
		if sum > 1+1e-9 {
			w.breakLocked("safety", "at %.3fs the gateways' parts of limits are %.3f together, want 1 at most",
				w.now().Seconds(), sum)
			end = 0
		}
		w.mu.Unlock()
	}
}

// orderly reports whether all gateways of a plan hear of each other all the time, so that parts add up.
func (p *Plan) orderly() bool {
	for _, e := range p.Events {
		switch e.Kind {
		case Noise, CutTo, CutFrom, Freeze, Down, Restart, Failover, Step, Glitch, Strand:
			return false
		}
	}
	return true
}

// changes reports whether the limit of a bucket is another one at some time, or an operator gives to
// it: a bucket of which a gateway has no part yet holds a token when it is filled.
func (p *Plan) changes(i int) bool {
	for _, e := range p.Events {
		if (e.Kind == Change || e.Kind == Reset || e.Kind == Grant) && e.Bucket == i {
			return true
		}
	}
	return false
}

// settled sees that nothing is left of faults: gateways know of those that are there and of no other, and what they
// admitted is reported.
func (w *world) settled() {
	live := 0
	for _, g := range w.gateways {
		if g != nil && !g.dead.Load() {
			live++
		}
	}
	for slot, g := range w.gateways {
		if g == nil || g.dead.Load() {
			continue
		}
		if k, n := g.members.Replicas(), g.members.Count(); k != live || n != live {
			w.broken("liveness",
				"gateway %d divides limits by %d and counts %d gateways when all faults are over, want %d",
				slot, k, n, live)
		}
		if pending := g.reports.Status().Pending; pending != 0 {
			w.broken("liveness", "gateway %d has %d tokens to report when all faults are over, want none",
				slot, pending)
		}
	}
}

// settleAll waits until limits of a moment ago count no more.
func (w *world) settleAll() { time.Sleep(2 * actsWithin) }

// freshWithin is how long a client waits at most that was never seen before.
const freshWithin = 5 * time.Second

// splits reports whether an endpoint meets a limit of scope split: who joined others has to wait
// for that, as published.
func (w *world) splits(which int) bool {
	for _, i := range [...]int{which, buckets - 1} {
		for slot := range w.limits {
			if w.limits[slot][i].Scope == policy.Split {
				return true
			}
		}
	}
	return false
}

// within is how long a client waits at most that obeys: until twice the burst has drained, which is
// what a bucket owes at most, and its cost.
func (w *world) within(which int) (longest time.Duration) {
	for _, i := range [...]int{which, buckets - 1} {
		for slot := range w.limits {
			l := w.limits[slot][i]
			perToken := l.Per.Seconds() / float64(l.Tokens)
			// a replica may have a fifth of the limit to itself
			longest = max(longest, time.Duration((2*float64(l.Burst)+1)*perToken*float64(time.Second)*1.3))
		}
	}
	return longest + 2*time.Second
}

// obey has a client ask until it is served, and wait as it is told. It reports how long it was told
// to wait, and whether it was served in time.
func (w *world) obey(g *gateway, who netip.Addr, which int, within time.Duration) (waits time.Duration, served bool) {
	const patience = 2 * time.Minute
	begin := w.now()
	for tries := 1; ; tries++ {
		d := g.Check(background, ask(who, targets[which], 1))
		if d.Allowed {
			if who == client {
				w.admitted(g, which, 1)
			}
			return w.now() - begin, true
		}
		wait := max(d.RetryAfter, 10*time.Millisecond)
		switch waited := w.now() - begin; {
		case waited+wait > within || tries == mostTries:
			return waited + wait, false
		case wait > patience:
			// it is told a wait that is within the bound, and the world will not live to see it
			return waited + wait, true
		}
		time.Sleep(wait)
	}
}

// mostTries is how often a client asks at most that obeys: nobody else takes meanwhile, but for a breaker or two.
const mostTries = 200

// use sends more than limits admit, and sees that they are used.
func (w *world) use() {
	const span = 4 * time.Second
	for which := range targets {
		if w.splits(which) || !w.usable(which) {
			continue
		}
		time.Sleep(2 * time.Second)
		most := math.Inf(1)
		for _, i := range [...]int{which, buckets - 1} {
			l := w.limits[w.alive()][i]
			most = min(most, float64(l.Tokens)/l.Per.Seconds()*span.Seconds())
		}
		got, begin, r := int64(0), w.now(), rand.New(rand.NewPCG(w.plan.Seed, 7))
		var mu sync.Mutex
		var all sync.WaitGroup
		for w.now()-begin < span {
			time.Sleep(time.Duration(r.ExpFloat64() * float64(span) / (2 * most)))
			g := w.pick(r, 0)
			all.Go(func() {
				if g.Check(background, ask(client, targets[which], 1)).Allowed {
					w.admitted(g, which, 1)
					mu.Lock()
					got++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if used := float64(got) / most; used < leastUsed {
			w.broken("liveness",
				"%.2f of what limits admit of %s is used, of twice as much that is asked for, want %.2f", used,
				targets[which], leastUsed)
		}
	}
}

// leastUsed is which part of a limit is used at least where requests suffice.
const leastUsed = 0.6

func (w *world) alive() int {
	for slot, g := range w.gateways {
		if g != nil && !g.dead.Load() {
			return slot
		}
	}
	return 0
}

// usable reports whether limits are such that their use is promised: of some tokens a second, and a
// burst of no less than half of a second's.
func (w *world) usable(which int) bool {
	for _, i := range [...]int{which, buckets - 1} {
		l := w.limits[w.alive()][i]
		if perSecond := float64(l.Tokens) / l.Per.Seconds(); perSecond < 20 || float64(l.Burst) < perSecond/2 {
			return false
		}
	}
	return true
}
