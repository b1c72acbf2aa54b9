package nemesis

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/simulate"
)

// world is a run of a Plan, in the bubble of a test.
type world struct {
	plan    *Plan
	began   time.Time
	engine  *Engine
	grave   *Engine // which answers those who are dead
	started int

	mu       sync.Mutex
	offset   time.Duration                // guarded by mu; of the store's clock
	down     bool                         // guarded by mu
	promises [buckets]simulate.Promise    // guarded by mu
	inForce  [buckets]map[string]*inForce // guarded by mu; limits that some gateway has, or had until a moment ago
	// guarded by mu; which parts of limits gateways that have lost the store admit besides
	shares [buckets]float64
	open   [buckets]bool // guarded by mu; nothing is promised
	found  []string      // guarded by mu; promises that were broken
	driven bool          // a test asks, and wants a log of what is admitted
	log    []admission   // guarded by mu
	turns  []Turn        // guarded by mu

	underWay underWay       // guarded by mu
	exempt   map[int][]span // guarded by mu; of gateways by slot, see uncounted
	chaos    time.Duration  // when events begin

	gateways []*gateway // by slot, nil where there is none
	limits   [][]Limit  // by slot
	places   []*Places  // by slot; guarded by mu
	newest   *Places    // guarded by mu; who joins has heard of it
	network  Network
	reserve  []Event // of reservations, under way
	settling sync.WaitGroup
}

type inForce struct {
	limit    Limit
	gateways int // that have it
}

// calm is a network as it should be.
var calmNetwork = Network{Delay: 200 * time.Microsecond, Jitter: 600 * time.Microsecond}

// client is who asks all the time.
var client = netip.MustParseAddr("192.0.2.1")

// Run runs a plan, and returns what promises were broken. It is to be called in the bubble of testing/synctest.
func Run(p *Plan) []string {
	w := begin(p)
	var all sync.WaitGroup
	end := w.now() + chaos
	if w.chaos = w.now(); p.Places != nil {
		w.underWay = underWay{at: map[*running]bool{}, without: map[*gateway]span{}}
		w.underWay.inForce = []inForcePlaces{{of: p.Places, until: 1 << 62}}
		w.exempt = map[int][]span{}
		for slot := range p.Replicas + len(p.Events) {
			w.exempt[slot] = w.uncounted(slot)
		}
	}
	for _, e := range p.Events {
		all.Go(func() { w.happen(e) })
	}
	for i := range p.Load {
		all.Go(func() { w.load(i, end) })
	}
	if p.Crowd > 0 {
		all.Go(func() { w.crowd(end) })
	}
	if p.orderly() {
		all.Go(func() { w.parts(end) })
	}
	all.Wait()
	if p.Places != nil {
		w.judgePlaces()
	} else {
		w.judge()
	}
	w.close()
	return w.found
}

// begin makes the world of a plan, in which all gateways have heard of each other.
func begin(p *Plan) *world {
	w := &world{plan: p, began: time.Now(), network: calmNetwork}
	w.engine = NewEngine(func() int64 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return time.Now().Add(w.offset).UnixMicro()
	})
	w.grave = NewEngine(func() int64 { return time.Now().UnixMicro() })
	w.offset = p.Store
	for i := range w.inForce {
		w.inForce[i] = map[string]*inForce{}
	}
	w.newest = p.Places
	for slot := range p.Replicas {
		w.places = append(w.places, p.Places)
		w.limits = append(w.limits, append([]Limit(nil), p.Limits[:]...))
		w.gateways = append(w.gateways, nil)
		w.place(slot, false)
	}
	time.Sleep(memberTTL) // all have heard of each other
	for i := range w.promises {
		w.promises[i] = simulate.Promise{}
		w.publish(i)
	}
	return w
}

// close ends a world, once nothing is under way in it.
func (w *world) close() {
	for _, g := range w.gateways {
		if g != nil {
			w.stop(g, false)
		}
	}
	w.settling.Wait()
	time.Sleep(3 * time.Minute) // nothing may be under way when the bubble ends
	w.engine.Close()
	w.grave.Close()
}

// now is the time since the world began.
func (w *world) now() time.Duration { return time.Since(w.began) }

func (w *world) isDown() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down
}

// place starts a gateway in a slot, whose clock is off by what the plan says.
func (w *world) place(slot int, stranded bool) {
	offset := time.Duration(0)
	for _, e := range w.plan.Events {
		if e.Kind == Offset && e.Gateway == slot {
			offset += e.By
		}
	}
	g := w.start(slot, offset, stranded)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gateways[slot] = g
	for i, l := range w.limits[slot] {
		w.have(i, l)
		w.publishLocked(i)
	}
}

// have notes that a gateway has a limit. w is locked.
func (w *world) have(i int, l Limit) {
	f := w.inForce[i][l.String()]
	if f == nil {
		f = &inForce{limit: l}
		w.inForce[i][l.String()] = f
	}
	f.gateways++
}

// had notes that a gateway has a limit no more. It counts for another moment.
func (w *world) had(i int, l Limit) {
	w.settling.Go(func() {
		time.Sleep(actsWithin)
		w.mu.Lock()
		defer w.mu.Unlock()
		f := w.inForce[i][l.String()]
		if f.gateways--; f.gateways == 0 && len(w.inForce[i]) > 1 { // what nobody has is not met
			delete(w.inForce[i], l.String())
		}
		w.publishLocked(i)
	})
}

// actsWithin is within what time a change of a limit acts where a gateway has heard of it.
const actsWithin = time.Second

func (w *world) publish(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.publishLocked(i)
}

// publishLocked says what a bucket promises from now on: the most of what limits do that are in force somewhere, by
// rate, burst and excess, each. Who has spent the burst of one limit may have the excess of another besides: what
// replicas have admitted unasked is beyond what the store knows of, whatever that allowed.
func (w *world) publishLocked(i int) {
	rate, burst, excess := 0.0, 0.0, 0.0
	w.open[i] = false
	for _, f := range w.inForce[i] {
		e := w.sharing().Envelope(f.limit.Limit, bucket.Scope(f.limit.Scope))
		r := float64(e.Tokens) / e.Per.Seconds()
		beyond := float64(e.Excess)
		if f.limit.Scope == policy.Strict || f.limit.Scope == policy.Sync {
			// a decision is seen when its answer comes, which is a deadline later than the store
			// decides, at most
			beyond += r * w.plan.Deadline.Seconds()
		}
		if f.limit.Loss != policy.LossClosed {
			r *= 1 + w.shares[i]
		}
		rate, burst, excess = max(rate, r), max(burst, float64(e.Burst)), max(excess, beyond)
		w.open[i] = w.open[i] || f.limit.Loss == policy.LossOpen && w.shares[i] > 0
	}
	w.promises[i].Set(w.now(), rate, burst+excess+1)
}

// sharing is how limits are shared, by the most and the fewest gateways that there are in the plan.
func (w *world) sharing() bucket.Sharing {
	most, fewest := w.plan.count()
	return bucket.Sharing{Replicas: most, Fewest: fewest, TTL: w.plan.TTL, Free: w.plan.Free, Interval: w.plan.Interval}
}

// count is how many gateways there are at most and at least.
func (p *Plan) count() (most, fewest int) {
	most, fewest = p.Replicas, p.Replicas
	for _, e := range p.Events {
		switch e.Kind {
		case Join:
			most++
		case Strand:
			most, fewest = most+1, 1
		case Kill, Stop, CutTo, CutFrom, Restart, Freeze:
			fewest = 1
		}
	}
	return most, fewest
}

// add says that something may add to what a bucket admits: a part of its burst, and what gateways
// have reported of it so far, each.
func (w *world) add(until time.Duration, tokens func(l Limit, e bucket.Envelope) float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.promises {
		most := 0.0
		for _, f := range w.inForce[i] {
			most = max(most, tokens(f.limit, w.sharing().Envelope(f.limit.Limit, bucket.Scope(f.limit.Scope))))
		}
		w.promises[i].Add(w.now(), until+2*time.Second, most)
	}
}

// lost hears that a gateway has lost the store, or has it back.
func (w *world) lost(g *gateway, is bool) {
	_, fewest := w.plan.count()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turns = append(w.turns, Turn{w.now(), g.slot, is})
	w.goesWithout(g, is)
	if n := g.wire.failures(); is && n < leastFailures {
		w.breakLocked("liveness", "at %.3fs gateway %d has taken the store for lost after %d failures, want %d",
			w.now().Seconds(), g.slot, n, leastFailures)
	}
	for i := range w.promises {
		most := 0.0
		for _, f := range w.inForce[i] {
			share := 0.0
			if f.limit.Loss == policy.LossShare {
				share = float64(f.limit.Burst) / float64(fewest)
			}
			most = max(most, share+3*maxCost) // the requests that try it
		}
		if is {
			w.shares[i] += 1 / float64(fewest)
		} else {
			w.shares[i] -= 1 / float64(fewest)
		}
		w.promises[i].Add(w.now(), w.now()+4*time.Second, most)
		w.publishLocked(i)
	}
}

// leastFailures is after how many messages without an answer the store is taken for lost, at least.
const leastFailures = 5

const maxCost = 2

// admitted notes a request that was, at a gateway.
func (w *world) admitted(g *gateway, which int, cost int64) {
	partless := g.members.Replicas() == 0
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.driven {
		w.log = append(w.log, admission{w.now(), g.slot, which, cost})
	}
	for _, i := range [...]int{which, buckets - 1} {
		if partless && w.limits[g.slot][i].Scope == policy.Split && !w.plan.changes(i) {
			w.breakLocked("safety", "at %.3fs gateway %d has admitted a request of %s, of which it has no part yet",
				w.now().Seconds(), g.slot, bucketNames[i])
		}
		before, _ := w.promises[i].Worst()
		if w.promises[i].Admit(w.now(), cost); w.open[i] {
			continue
		}
		if worst, _ := w.promises[i].Worst(); worst > before && worst > tolerance && before <= tolerance {
			w.breakLocked("safety", "at %.3fs %s has admitted more than %.1f tokens beyond its promise",
				w.now().Seconds(), bucketNames[i], tolerance)
		}
	}
}

// tolerance is for what is rounded.
const tolerance = 1.0

func (w *world) breakLocked(kind, format string, args ...any) {
	w.found = append(w.found, kind+": "+fmt.Sprintf(format, args...))
}

func (w *world) broken(kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breakLocked(kind, format, args...)
}

// load sends the requests for an endpoint until end.
func (w *world) load(which int, end time.Duration) {
	l := w.plan.Load[which]
	r := rand.New(rand.NewPCG(w.plan.Seed, uint64(100+which)))
	begin := w.now()
	for {
		rate := l.Rate
		if (w.now()-begin)/l.Wave%2 == 1 {
			rate /= 100
		}
		time.Sleep(1 + time.Duration(min(r.ExpFloat64()/rate, 0.3)*float64(time.Second)))
		if w.now() >= end {
			return
		}
		one := request{
			which:    which,
			cost:     1 + r.Int64N(maxCost),
			held:     r.Float64(),
			guess:    r.Float64(),
			spent:    r.Float64(),
			twice:    r.IntN(3) == 0,
			reserved: r.IntN(4) == 0,
		}
		g := w.pick(r, l.Skew)
		if g != nil {
			w.settling.Go(func() { w.send(g, one) })
		}
	}
}

// crowd sends the requests of other clients until end. What they are answered says nothing of the
// one that is watched, but gateways have to forget buckets, and find room for new ones.
func (w *world) crowd(end time.Duration) {
	r := rand.New(rand.NewPCG(w.plan.Seed, 200))
	for {
		time.Sleep(1 + time.Duration(r.ExpFloat64()/w.plan.Crowd*float64(time.Second)))
		if w.now() >= end {
			return
		}
		n := r.IntN(10_000)
		one := ask(netip.AddrFrom4([4]byte{10, 200, byte(n >> 8), byte(n)}), targets[r.IntN(len(targets))], 1)
		if g := w.pick(r, 0); g != nil {
			w.settling.Go(func() {
				g.wire.awake()
				g.Check(background, one)
			})
		}
	}
}

// pick is a gateway that is there.
func (w *world) pick(r *rand.Rand, skew float64) *gateway {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, at := r.Float64() < skew, r.IntN(len(w.gateways))
	for i := range w.gateways {
		slot := (at + i) % len(w.gateways)
		if first {
			slot = i
		}
		if g := w.gateways[slot]; g != nil && !g.dead.Load() {
			return g
		}
	}
	return nil
}

// request is one, with what becomes of it if it is a reservation.
type request struct {
	which    int
	cost     int64
	held     float64 // of the longest time
	guess    float64 // of the largest estimate
	spent    float64 // of the estimate
	twice    bool    // is settled
	reserved bool    // if any are
}

var targets = [...]string{"/a", "/b"}

func (w *world) send(g *gateway, one request) {
	var hold time.Duration
	w.mu.Lock()
	for _, e := range w.reserve {
		hold = max(hold, 1+time.Duration(one.held*one.held*float64(e.By)))
	}
	w.mu.Unlock()
	g.wire.awake()
	if w.plan.Places != nil {
		w.serve(g, one)
		return
	}
	if hold == 0 || !one.reserved {
		if d := g.Check(background, ask(client, targets[one.which], one.cost)); d.Allowed && !g.dead.Load() {
			w.admitted(g, one.which, one.cost)
		}
		return
	}
	estimate := w.estimate(one)
	spent := int64(one.spent * float64(estimate+1))
	made, d := g.Reserve(background, ask(client, targets[one.which], estimate), time.Minute)
	if !d.Allowed || g.dead.Load() {
		return
	}
	w.admitted(g, one.which, spent)
	time.Sleep(hold)
	g.wire.awake()
	if one.twice {
		w.settling.Go(func() { _, _ = g.Settle(background, made.ID, spent) })
	}
	for range 3 { // as one does that hears of an error
		if _, err := g.Settle(background, made.ID, spent); err == nil {
			break
		}
		time.Sleep(hold / 4)
	}
}

// estimate is what a request reserves: up to half of what the smallest of its bursts holds.
func (w *world) estimate(one request) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	least := int64(math.MaxInt64)
	for slot := range w.limits {
		least = min(least, w.limits[slot][one.which].Burst, w.limits[slot][buckets-1].Burst)
	}
	return one.cost + int64(one.guess*float64(least)/2)
}

// Broken joins what was found into one text.
func Broken(found []string) string { return strings.Join(found, "\n") }
