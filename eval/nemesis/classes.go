package nemesis

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// DrawClasses is the plan of a seed in which requests are of classes, those for /a high and those for /b low, and share
// what a client may have in all; how, and in which scope, changes with the limit. What all take together is promised as
// ever, whatever breaks; and once all is well each class has what it is guaranteed.
func DrawClasses(seed uint64) *Plan {
	p := Draw(seed)
	r := rand.New(rand.NewPCG(seed, 17)) // beside that of Draw, so that plans stay what they were
	share := func(l *Limit) {
		l.Priority = []policy.Priority{"high:30,low:20", "high:20,low:40", "high:20,normal:20,low:20"}[r.IntN(3)]
		if l.Scope = policy.Strict; r.IntN(4) == 0 {
			l.Scope, l.Loss = policy.Split, policy.LossClosed
		}
	}
	share(&p.Limits[buckets-1])
	for i := range targets {
		if l := &p.Limits[i]; r.IntN(3) > 0 { // else the limit that is shared is hardly met
			l.Tokens, l.Burst = 4*l.Tokens, 4*l.Burst
		}
	}
	for i := range p.Events {
		if e := &p.Events[i]; e.Kind == Change && e.Bucket == buckets-1 {
			share(&e.Limit)
		}
	}
	return p
}

// classesBy says of which class requests are, where that matters.
func classesBy(limits []Limit) (by policy.ClassesBy) {
	if limits[buckets-1].Priority != "" {
		by.Endpoints = map[endpoint.ID]policy.Class{}
		for i, class := range [...]policy.Class{policy.High, policy.Low} {
			by.Endpoints[endpoints.Match("GET", targets[i]).ID] = class
		}
	}
	return by
}

// guaranteed sees that a client is never denied what a class is guaranteed, while it asks for all that it can get in
// the other.
func (w *world) guaranteed() {
	w.mu.Lock()
	l := w.limits[w.alive()][buckets-1]
	w.mu.Unlock()
	if l.Priority == "" || l.Scope != policy.Strict {
		return
	}
	terms, err := l.Priority.Terms()
	if err != nil {
		panic(err) // the plan is ours
	}
	for which, class := range [...]policy.Class{policy.High, policy.Low} {
		perSecond := float64(l.Tokens) / l.Per.Seconds()
		each := time.Duration(float64(time.Second) / (perSecond * float64(terms.Guaranteed(class).Percent) / 100))
		if each > 5*time.Second {
			continue // a limit for a day
		}
		who := netip.AddrFrom4([4]byte{10, 201, byte(w.plan.Seed), byte(which)})
		r := rand.New(rand.NewPCG(w.plan.Seed, 23))
		end := w.now() + 12*(each+slack)
		var all sync.WaitGroup
		all.Go(func() {
			for other := rand.New(rand.NewPCG(w.plan.Seed, 29)); w.now() < end; {
				time.Sleep(1 + time.Duration(other.ExpFloat64()*float64(time.Second)/(3*perSecond)))
				g := w.pick(other, 0)
				all.Go(func() { g.Check(background, ask(who, targets[1-which], 1)) })
			}
		})
		for time.Sleep(each); w.now() < end; time.Sleep(each + slack) {
			g := w.pick(r, 0)
			d := g.Check(background, ask(who, targets[which], 1))
			if d.Class != class {
				w.broken("safety", "a request for %s is of class %v, want %v", targets[which], d.Class, class)
			}
			if deniedByShares(&d) {
				w.broken("liveness", "class %v is denied at gateway %d what it is guaranteed of %v", class, g.slot, l)
				break
			}
		}
		all.Wait()
	}
}

// slack is by how much longer the way of one message may be than that of the next.
const slack = 5 * time.Millisecond

// deniedByShares reports whether a request was denied by the rule that classes share, and by no other.
func deniedByShares(d *headgate.Decision) bool {
	shares := false
	for _, v := range d.Verdicts() {
		switch {
		case v.Outcome.Allowed:
		case d.Policies().Rule(v.Rule).Endpoint == policy.All:
			shares = true
		default:
			return false
		}
	}
	return shares && !d.Allowed
}
