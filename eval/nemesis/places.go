package nemesis

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
)

// Places are limits on how many requests may be under way at once, beside the rates of a Plan.
type Places struct {
	Limit int64         // of a client in all
	Own   int64         // of them at the first endpoint; 0 if it has no limit of its own
	Per   time.Duration // for which a place is kept that nobody takes anew
	Scope policy.Scope  // strict, lease or local
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
		Per:   drawKept(r),
		Scope: policy.Strict,
		Loss:  []policy.StoreLoss{policy.LossClosed, policy.LossClosed, policy.LossShare, policy.LossOpen}[r.IntN(4)],
		Hold:  time.Duration((0.3 + 3*r.Float64()) * float64(limit) / asked * float64(time.Second)),
	}
	if r.IntN(3) == 0 { // some for longer than places are kept
		p.Places.Hold, p.Places.Per = 10*time.Second, 5*time.Second
	}
	p.drawChanges(rand.New(rand.NewPCG(seed, 13))) // beside r, so that plans stay what they were
	return p
}

func drawKept(r *rand.Rand) time.Duration { return []time.Duration{5, 6, 9}[r.IntN(3)] * time.Second }

// drawChanges has half of the plans have a second limit, a scope of its own, and other limits later.
func (p *Plan) drawChanges(r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	draw := func(places *Places) {
		if places.Own = 0; r.IntN(2) == 0 {
			places.Own = 1 + r.Int64N(places.Limit)
		}
		places.Scope = []policy.Scope{policy.Strict, policy.Strict, policy.Lease, policy.Lease, policy.Local}[r.IntN(5)]
	}
	draw(p.Places)
	at := func() time.Duration { return time.Duration(r.Int64N(int64(chaos * 3 / 4))) }
	for range r.IntN(4) {
		to := *p.Places
		to.Limit, to.Loss = 1+r.Int64N(20), policy.StoreLoss(r.IntN(3))
		if r.IntN(2) == 0 {
			to.Per = drawKept(r)
		}
		draw(&to)
		p.Events = append(p.Events, Event{
			Kind: ChangePlaces, At: at(), Spread: time.Duration(r.Int64N(int64(300 * time.Millisecond))), Places: &to,
		})
	}
	if r.IntN(4) == 0 {
		p.Events = append(p.Events, Event{Kind: ResetPlaces, At: at(), Gateway: r.IntN(p.Replicas)})
	}
}

var underWayOfIP = policy.SubjectIP.Counting(policy.CountsUnderWay)

// rules are those of places.
func (p *Places) rules() (all []policy.Rule) {
	if p == nil {
		return nil
	}
	one := policy.Rule{
		Endpoint: policy.All, Limit: p.Limit, Per: p.Per, Scope: p.Scope, OnStoreLoss: p.Loss, Subject: underWayOfIP,
	}
	if p.Scope == policy.Local {
		one.OnStoreLoss = policy.LossClosed // which is none
	}
	if all = append(all, one); p.Own > 0 {
		one.Endpoint, one.Limit = bucketNames[0], p.Own
		all = append(all, one)
	}
	return all
}

// everyPlaces are those of a plan, from its beginning on.
func (p *Plan) everyPlaces() []*Places {
	all := []*Places{p.Places}
	for _, e := range p.Events {
		if e.Kind == ChangePlaces {
			all = append(all, e.Places)
		}
	}
	return all
}

// kept are the shortest and the longest time for which places of a plan are.
func (p *Plan) kept() (least, most time.Duration) {
	least = p.Places.Per
	for _, one := range p.everyPlaces() {
		least, most = min(least, one.Per), max(most, one.Per)
	}
	return least, most
}

// alwaysClosed reports whether nobody is ever admitted without the store.
func (p *Plan) alwaysClosed() bool {
	return !slices.ContainsFunc(p.everyPlaces(), func(one *Places) bool { return one.Loss != policy.LossClosed })
}

// span is from when to when, since the world began.
type span struct{ from, to time.Duration }

// renewedAfter is for how long after a fault places may not be what they should be: until they are due, are looked at,
// and breakers have closed.
func (p *Plan) renewedAfter() time.Duration {
	_, most := p.kept()
	if p.keepsSpares() {
		return most/2 + 2*time.Second
	}
	return most/3 + 2*time.Second
}

// keepsSpares reports whether places are ever kept for requests to come, so that they may be old when they are taken.
func (p *Plan) keepsSpares() bool {
	return slices.ContainsFunc(p.everyPlaces(), func(one *Places) bool { return one.Scope == policy.Lease })
}

// uncounted is when requests at a gateway may be under way and not counted, as published: from when it is out of touch
// with the store for so long that places end, or the store loses what it held, until all have been taken anew.
func (w *world) uncounted(slot int) (all []span) {
	least, _ := w.plan.kept()
	if least = least * 2 / 3; w.plan.keepsSpares() {
		least = least * 3 / 4
	}
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
		if one.loses || one.to-one.from > least-recovers-ahead {
			all = append(all, span{one.from, one.to + w.plan.renewedAfter()})
		}
	}
	return all
}

// underWay is what is under way at gateways.
type underWay struct {
	at      map[*running]bool
	without map[*gateway]span // when it last admitted some without the store
	inForce []inForcePlaces   // at some gateway, from the first on
	changed map[int]time.Duration
	reset   time.Duration // until when places are found at gateways that an operator had given back in the store
	served  int
}

// running is a request that is under way.
type running struct {
	g      *gateway
	which  int
	places *Places       // that it was admitted by; nil if they changed at that moment
	own    bool          // it has a place of the endpoint's own limit
	counts time.Duration // from when on it does for certain
}

// inForcePlaces are limits that some gateway has, or had until a moment ago.
type inForcePlaces struct {
	of    *Places
	until time.Duration
}

// changePlaces has all gateways hear of other limits, each at its time.
func (w *world) changePlaces(e Event) {
	w.mu.Lock()
	u := &w.underWay
	w.newest = e.Places
	for i := range u.inForce {
		u.inForce[i].until = min(u.inForce[i].until, w.now()+e.Spread)
	}
	u.inForce = append(u.inForce, inForcePlaces{e.Places, 1 << 62})
	slots := len(w.gateways)
	w.mu.Unlock()
	r := rand.New(rand.NewPCG(w.plan.Seed, uint64(e.At)))
	var all sync.WaitGroup
	for slot := range slots {
		after := time.Duration(r.Int64N(int64(e.Spread) + 1))
		all.Go(func() {
			time.Sleep(after)
			w.changePlacesAt(slot, e.Places)
		})
	}
	all.Wait()
}

func (w *world) changePlacesAt(slot int, to *Places) {
	w.mu.Lock()
	if w.newest != to {
		w.mu.Unlock()
		return // it has heard of later ones, or is about to
	}
	w.places[slot] = to
	g := w.gateways[slot]
	limits := append([]Limit(nil), w.limits[slot]...)
	if w.underWay.changed == nil {
		w.underWay.changed = map[int]time.Duration{}
	}
	w.underWay.changed[slot] = w.now()
	for one := range w.underWay.at {
		one.own = one.own && to.Own > 0 // or nobody takes its place anew until that limit is there again
	}
	w.mu.Unlock()
	if g != nil {
		g.load(limits, to, w.plan.Free)
	}
}

// resetPlaces has an operator give all places of the client back: those under way are counted again later.
func (w *world) resetPlaces(e Event) {
	w.mu.Lock()
	g := w.gateways[e.Gateway]
	w.mu.Unlock()
	if g == nil {
		return
	}
	forget := func() {
		_, most := w.plan.kept()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.plan.keepsSpares() {
			w.underWay.reset = w.now() + most/6
		}
		for one := range w.underWay.at {
			one.counts = max(one.counts, w.now()+most+w.plan.renewedAfter())
			if one.places != nil && one.places.Scope == policy.Local && one.g == g {
				one.places, one.own = nil, false // others may have the places for as long as it lasts
			}
		}
	}
	forget()
	g.wire.awake()
	within, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	by := underWayOfIP
	_, _ = inspect.Reset(within, g.Limiter, inspect.Query{Endpoint: policy.All, Address: client, Subject: &by}, nil)
	forget()
}

// serve has a request be under way for a time.
func (w *world) serve(g *gateway, one request) {
	began := w.now()
	made, d, _ := g.WaitAnswer(background, ask(client, targets[one.which], one.cost), headgate.UntilSettled)
	if !d.Allowed {
		return
	}
	is := w.begun(g, one.which, began)
	if is == nil {
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
	delete(w.underWay.at, is)
	w.mu.Unlock()
	if _, err := g.Settle(background, made.ID, made.Cost); err != nil {
		w.broken("liveness", "the end of a request at gateway %d: %v", g.slot, err)
	}
}

// begun notes that a request is under way that asked at a time, and sees that no more are than may be: of those that
// are counted. It is nil if its gateway is no more.
func (w *world) begun(g *gateway, which int, asked time.Duration) *running {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.dead.Load() {
		return nil
	}
	u, now := &w.underWay, w.now()
	one := &running{g: g, which: which, places: w.places[g.slot]}
	u.at[one] = true
	u.served++
	if at, ok := u.changed[g.slot]; ok && at >= asked-time.Millisecond {
		one.places = nil
		return one
	}
	one.own = which == 0 && one.places.Own > 0
	if now <= u.reset && one.places.Scope == policy.Lease {
		_, most := w.plan.kept()
		one.counts = u.reset + most + w.plan.renewedAfter()
		return one
	}
	most, own := w.mayBe(one, asked)
	inAll, atOwn := int64(0), int64(0)
	for other := range u.at {
		if w.countsFor(other, one, now) {
			if inAll++; other.own {
				atOwn++
			}
		}
	}
	if one.places.Scope.Shared() && w.isUncounted(g, now) {
		return one
	}
	if inAll > most {
		w.breakLocked("safety", "at %.3fs %d requests are under way that are counted (%v), and %d in all, want %d at "+
			"most", now.Seconds(), inAll, one.places.Scope, len(u.at), most)
	}
	if one.own && atOwn > own {
		w.breakLocked("safety", "at %.3fs %d requests are under way at %s that are counted (%v), want %d at most",
			now.Seconds(), atOwn, bucketNames[0], one.places.Scope, own)
	}
	return one
}

// mayBe is how many may be under way at most beside and with one that asked at a time, by all limits that were in force
// at some gateway since: those that others were admitted by meanwhile.
func (w *world) mayBe(one *running, asked time.Duration) (most, own int64) {
	if one.places.Scope == policy.Local {
		return one.places.Limit, one.places.Own
	}
	for _, f := range w.underWay.inForce {
		if f.until+actsWithin >= asked && f.of.Scope.Shared() {
			most, own = max(most, f.of.Limit), max(own, f.of.Own)
		}
	}
	return most, own
}

// countsFor reports whether a request that is under way surely has a place among those of another.
func (w *world) countsFor(one, among *running, now time.Duration) bool {
	switch {
	case one == among:
		return true
	case one.places == nil || one.places.Scope.Shared() != among.places.Scope.Shared() || now < one.counts:
		return false
	case one.places.Scope == policy.Local:
		return one.g == among.g
	}
	return !w.isUncounted(one.g, now)
}

func (w *world) isUncounted(g *gateway, now time.Duration) bool {
	if s, ok := w.underWay.without[g]; ok && !w.plan.alwaysClosed() && s.from <= now && now <= s.to {
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
		s.to = w.now() + w.plan.renewedAfter()
	}
	w.underWay.without[g] = s
}

// died notes that what was under way at a gateway has ended with it.
func (w *world) died(g *gateway) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.underWay.at, func(one *running, _ bool) bool { return one.g == g })
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
	_, kept := w.plan.kept()
	time.Sleep(2*kept + 3*time.Second)
	w.mu.Lock()
	for one := range w.underWay.at {
		w.breakLocked("liveness", "a request is under way at gateway %d when all have ended", one.g.slot)
	}
	w.mu.Unlock()
	if w.underWay.served == 0 {
		w.broken("liveness", "no request was served")
	}
	r := rand.New(rand.NewPCG(w.plan.Seed, 12))
	if w.newest.Scope == policy.Local {
		for _, g := range w.gateways {
			if g != nil && !g.dead.Load() {
				w.judgePlacesAt(func() *gateway { return g })
			}
		}
	} else {
		w.judgePlacesAt(func() *gateway { return w.pick(r, 0) })
	}
	time.Sleep(kept + time.Second) // what could not be given back ends by itself
	w.engine.Sweep()
	for name, held := range w.engine.Snapshot() {
		if held.scores != nil {
			w.broken("liveness", "places are kept under %q when all requests have ended", name)
		}
	}
}

// judgePlacesAt sees that gateways have all places of a limit, and no more.
func (w *world) judgePlacesAt(pick func() *gateway) {
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
	defer end()
	// try has requests of an endpoint begin until so many are under way.
	try := func(which int, want int64) bool {
		for range want {
			served := false
			for range 200 { // rates have to have room as well, and one that is lost is tried
				g := pick()
				made, d, _ := g.WaitAnswer(background, ask(client, targets[which], 1), headgate.UntilSettled)
				if served = d.Allowed; served {
					all = append(all, begun{g, made})
					break
				}
				time.Sleep(min(max(d.RetryAfter, 10*time.Millisecond), 200*time.Millisecond))
			}
			if !served {
				if !w.slowRates() {
					w.broken("liveness", "%d requests for %s may be under way when all faults are over, want %d",
						len(all), targets[which], want)
				}
				return false
			}
		}
		g := pick()
		made, d, _ := g.WaitAnswer(background, ask(client, targets[which], 1), headgate.UntilSettled)
		if d.Allowed {
			all = append(all, begun{g, made})
			w.broken("safety", "more than %d requests for %s may be under way when all faults are over", want,
				targets[which])
			return false
		}
		return true
	}
	if own := w.newest.Own; own > 0 {
		if !try(0, own) {
			return
		}
		if end(); w.newest.Scope.Shared() {
			time.Sleep(time.Second) // a denial is remembered for a moment
		}
	}
	try(1, w.newest.Limit)
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
