package nemesis

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/policy"
)

// Places is a limit on how many requests may be under way at once, over all gateways, beside the rates of a Plan.
type Places struct {
	Limit int64
	Per   time.Duration // for which a place is kept that nobody takes anew
	Loss  policy.StoreLoss
	Hold  time.Duration // for which a request is under way, on average
}

// DrawPlaces is the plan of a seed in which requests are under way for a time.
func DrawPlaces(seed uint64) *Plan {
	p := Draw(seed)
	r := rand.New(rand.NewPCG(seed, 11))
	p.Crowd = 0
	p.Events = slices.DeleteFunc(p.Events, func(e Event) bool { return e.Kind == Reservation })
	asked := (p.Load[0].Rate + p.Load[1].Rate) / 2
	limit := 1 + r.Int64N(20)
	p.Places = &Places{
		Limit: limit,
		Per:   []time.Duration{5, 6, 9}[r.IntN(3)] * time.Second,
		Loss:  []policy.StoreLoss{policy.LossClosed, policy.LossClosed, policy.LossShare, policy.LossOpen}[r.IntN(4)],
		Hold:  time.Duration((0.3 + 3*r.Float64()) * float64(limit) / asked * float64(time.Second)),
	}
	if r.IntN(3) == 0 { // some for longer than places are kept
		p.Places.Hold, p.Places.Per = 10*time.Second, 5*time.Second
	}
	return p
}

// rule is that of places.
func (p *Places) rule() policy.Rule {
	return policy.Rule{Endpoint: policy.All, Limit: p.Limit, Per: p.Per, Scope: policy.Strict, OnStoreLoss: p.Loss,
		Subject: policy.SubjectIP.Counting(policy.CountsUnderWay)}
}

// span is from when to when, since the world began.
type span struct{ from, to time.Duration }

// renewedAfter is for how long after a fault places may not be what they should be: until they are due, are looked at,
// and breakers have closed.
func (p *Places) renewedAfter() time.Duration { return p.Per/3 + 2*time.Second }

// uncounted is when requests at a gateway may be under way and not counted, as published: from when it is out of touch
// with the store for so long that places end, or the store loses what it held, until all have been taken anew.
func (w *world) uncounted(slot int) (all []span) {
	p := w.plan.Places
	type trouble struct {
		span
		loses bool
	}
	var troubles []trouble
	ahead := time.Duration(0) // that the store's clock is set
	for _, e := range w.plan.Events {
		t := trouble{span: span{w.chaos + e.At, w.chaos + e.At + e.Lasts}}
		switch e.Kind {
		case Noise, Down:
		case CutTo, CutFrom, Freeze:
			if e.Gateway != slot {
				continue
			}
		case Failover, Restart:
			t.loses = true
		case Glitch, Step:
			if ahead += max(0, e.By, -e.By); e.Kind == Glitch {
				t.loses = true
			}
		case Strand:
			t.to += 2 * memberTTL
		default:
			continue
		}
		troubles = append(troubles, t)
	}
	slices.SortFunc(troubles, func(a, b trouble) int { return int(a.from - b.from) })
	const recovers = 1500 * time.Millisecond
	for len(troubles) > 0 {
		one := troubles[0]
		for troubles = troubles[1:]; len(troubles) > 0 && troubles[0].from <= one.to+recovers; troubles = troubles[1:] {
			one.to, one.loses = max(one.to, troubles[0].to), one.loses || troubles[0].loses
		}
		if one.loses || one.to-one.from > p.Per*2/3-recovers-ahead {
			all = append(all, span{one.from, one.to + p.renewedAfter()})
		}
	}
	return all
}

// underWay is what is under way at gateways.
type underWay struct {
	at      map[*gateway]int64
	without map[*gateway]span // when it last admitted some without the store
	most    int64
	served  int
}

// serve has a request be under way for a time.
func (w *world) serve(g *gateway, one request) {
	made, d, _ := g.WaitAnswer(background, ask(client, targets[one.which], one.cost), headgate.UntilSettled)
	if !d.Allowed || !w.begun(g) {
		return
	}
	w.admitted(g, one.which, one.cost)
	time.Sleep(1 + time.Duration(min(6, rand.New(rand.NewPCG(uint64(one.guess*1e9), 3)).ExpFloat64())*
		float64(w.plan.Places.Hold)))
	g.wire.awake()
	w.mu.Lock()
	if g.dead.Load() {
		w.mu.Unlock()
		return // it ended with its gateway
	}
	w.underWay.at[g]--
	w.mu.Unlock()
	if _, err := g.Settle(background, made.ID, made.Cost); err != nil {
		w.broken("liveness", "the end of a request at gateway %d: %v", g.slot, err)
	}
}

// begun notes that a request is under way, and sees that no more are than may be: of those that are counted. It is
// false if its gateway is no more.
func (w *world) begun(g *gateway) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.dead.Load() {
		return false
	}
	u, p, now := &w.underWay, w.plan.Places, w.now()
	u.at[g]++
	u.served++
	sum, counted := int64(0), int64(0)
	for one, n := range u.at {
		sum += n
		if !w.isUncounted(one, now) {
			counted += n
		}
	}
	u.most = max(u.most, sum)
	if counted > p.Limit && !w.isUncounted(g, now) {
		w.breakLocked("safety", "at %.3fs %d requests are under way that are counted, and %d in all, want %d at most",
			now.Seconds(), counted, sum, p.Limit)
	}
	return true
}

func (w *world) isUncounted(g *gateway, now time.Duration) bool {
	if s, ok := w.underWay.without[g]; ok && w.plan.Places.Loss != policy.LossClosed && s.from <= now && now <= s.to {
		return true
	}
	for _, s := range w.exempt[g.slot] {
		if s.from <= now && now <= s.to {
			return true
		}
	}
	return false
}

// goesWithout notes that a gateway has lost the store, or has it back. w is locked.
func (w *world) goesWithout(g *gateway, lost bool) {
	if w.plan.Places == nil {
		return
	}
	s := w.underWay.without[g]
	if lost {
		if s.to < w.now() {
			s.from = w.now()
		}
		s.to = 1 << 62
	} else {
		s.to = w.now() + w.plan.Places.renewedAfter()
	}
	w.underWay.without[g] = s
}

// died notes that what was under way at a gateway has ended with it.
func (w *world) died(g *gateway) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.underWay.at, g)
}

// judgePlaces sees that all places are there again once the faults are over and all requests have ended, and no more
// than that.
func (w *world) judgePlaces() {
	w.settling.Wait()
	for range 20 { // one that nobody asks does not find out that the store is back
		for _, g := range w.gateways {
			if g != nil && !g.dead.Load() {
				g.Check(background, ask(netip.AddrFrom4([4]byte{10, 1, 1, byte(g.slot)}), "/a", 1))
			}
		}
		time.Sleep(150 * time.Millisecond)
	}
	time.Sleep(w.plan.Places.Per + 3*time.Second)
	w.mu.Lock()
	for slot := range w.gateways {
		if g := w.gateways[slot]; g != nil && w.underWay.at[g] != 0 {
			w.breakLocked("liveness", "%d requests are under way at gateway %d when all have ended",
				w.underWay.at[g], slot)
		}
	}
	w.mu.Unlock()
	type begun struct {
		g    *gateway
		made headgate.Reservation
	}
	var all []begun
	end := func() {
		for _, b := range all {
			_, _ = b.g.Settle(background, b.made.ID, b.made.Cost)
		}
		all = nil
	}
	if w.underWay.served == 0 {
		w.broken("liveness", "no request was served")
	}
	r := rand.New(rand.NewPCG(w.plan.Seed, 12))
	for range w.plan.Places.Limit {
		served := false
		for range 200 { // rates have to have room as well, and one that is lost is tried
			g := w.pick(r, 0)
			made, d, _ := g.WaitAnswer(background, ask(client, targets[r.IntN(2)], 1), headgate.UntilSettled)
			if served = d.Allowed; served {
				all = append(all, begun{g, made})
				break
			}
			time.Sleep(min(max(d.RetryAfter, 10*time.Millisecond), 200*time.Millisecond))
		}
		if !served {
			if w.slowRates() {
				end()
				return
			}
			w.broken("liveness", "%d requests may be under way when all faults are over, want %d", len(all),
				w.plan.Places.Limit)
			end()
			return
		}
	}
	g := w.pick(r, 0)
	if made, d, _ := g.WaitAnswer(background, ask(client, "/a", 1), headgate.UntilSettled); d.Allowed {
		all = append(all, begun{g, made})
		w.broken("safety", "more than %d may be under way when all faults are over", w.plan.Places.Limit)
	}
	end()
	time.Sleep(w.plan.Places.Per + time.Second) // what could not be given back ends by itself
	w.engine.Sweep()
	for name, held := range w.engine.Snapshot() {
		if held.scores != nil {
			w.broken("liveness", "places are kept under %q when all requests have ended", name)
		}
	}
}

// slowRates reports whether rates keep a client from having so many requests under way in time.
func (w *world) slowRates() bool {
	for slot := range w.limits {
		for _, l := range w.limits[slot] {
			if l.Per > time.Second || l.Scope == policy.Split || l.Tokens < 5 {
				return true
			}
		}
	}
	return false
}
