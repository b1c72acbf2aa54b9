package nemesis

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
)

var background = context.Background()

// happen has an event happen, from its beginning to its end.
func (w *world) happen(e Event) {
	if e.Kind == Failover {
		time.Sleep(max(0, e.At-e.By))
		before := w.engine.Snapshot()
		time.Sleep(min(e.At, e.By))
		w.forgotten(0)
		w.engine.Become(before)
		return
	}
	time.Sleep(e.At)
	until := w.now() + e.Lasts
	switch e.Kind {
	case Noise:
		w.noise(e.Network)
		time.Sleep(e.Lasts)
		w.noise(calmNetwork)
	case CutTo, CutFrom:
		w.cutOff(e)
	case Freeze:
		w.freeze(e)
	case Reset, Grant:
		w.give(e)
	case Kill, Stop:
		w.end(e)
	case Join:
		w.join()
	case Strand:
		w.strand(e.Lasts)
	case Down, Restart:
		w.setDown(true)
		time.Sleep(e.Lasts)
		if e.Kind == Restart {
			w.forgotten(0)
			w.engine.Become(nil)
		}
		w.setDown(false)
	case Unlearn:
		w.engine.Forget()
	case Step:
		w.drained(e.By, until)
		w.step(e.By)
	case Glitch:
		w.drained(max(e.By, -e.By), until)
		w.step(e.By)
		w.engine.Sweep()
		time.Sleep(e.Lasts)
		w.step(-e.By)
	case Change:
		w.change(e)
	case ChangePlaces:
		w.changePlaces(e)
	case ResetPlaces:
		w.resetPlaces(e)
	case Reservation:
		w.mu.Lock()
		w.reserve = append(w.reserve, e)
		w.mu.Unlock()
		time.Sleep(e.Lasts)
		w.mu.Lock()
		w.reserve = nil
		w.mu.Unlock()
	}
}

func (w *world) setDown(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

func (w *world) step(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offset += by
}

// drained says that the store's clock is set forward: what drains in so long is given away, and at most a burst.
func (w *world) drained(by, until time.Duration) {
	w.add(until, func(l Limit, _ bucket.Envelope) float64 {
		return min(float64(l.Burst), float64(l.Tokens)*max(0, by.Seconds())/l.Per.Seconds()) + 1
	})
}

// forgotten says that the store lost what it held, or some of it: a burst, and a headroom for each gateway.
func (w *world) forgotten(lasts time.Duration) {
	most, _ := w.plan.count()
	w.add(w.now()+lasts, func(l Limit, e bucket.Envelope) float64 {
		return float64(l.Burst) + w.headroom(l, e)*float64(most)
	})
}

// headroom is that of one gateway.
func (w *world) headroom(l Limit, e bucket.Envelope) float64 {
	if l.Scope != policy.Sync {
		return 0
	}
	most, _ := w.plan.count()
	return float64(e.Excess) / float64(most)
}

// own is what a gateway has of a burst, and of what drains in a time, for itself.
func (w *world) own(l Limit, lasts time.Duration) float64 {
	_, fewest := w.plan.count()
	most := (float64(l.Burst) + float64(l.Tokens)*lasts.Seconds()/l.Per.Seconds()) / float64(fewest)
	switch {
	case l.Scope == policy.Split:
		return most
	case l.Scope == policy.Lease:
		return most * float64(w.plan.Free) / 100
	}
	return 0
}

func (w *world) noise(n Network) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.network = n
	for _, g := range w.gateways {
		if g != nil {
			g.wire.set(n)
		}
	}
}

// cutOff cuts a gateway off in one direction.
func (w *world) cutOff(e Event) {
	w.mu.Lock()
	g := w.gateways[e.Gateway]
	w.mu.Unlock()
	if g == nil {
		return
	}
	direction := 0
	if e.Kind == CutFrom {
		direction = 1
	}
	w.add(w.now()+e.Lasts, func(l Limit, _ bucket.Envelope) float64 { return w.own(l, e.Lasts) })
	g.wire.setCut(direction, true)
	time.Sleep(e.Lasts)
	g.wire.setCut(direction, false)
}

// freeze has a gateway stand still: for the others it is as if it were cut off.
func (w *world) freeze(e Event) {
	w.mu.Lock()
	g := w.gateways[e.Gateway]
	w.mu.Unlock()
	if g == nil {
		return
	}
	w.add(w.now()+e.Lasts, func(l Limit, _ bucket.Envelope) float64 { return w.own(l, e.Lasts) })
	g.wire.freeze()
	time.Sleep(e.Lasts)
	g.wire.thaw()
}

// give has an operator fill a bucket or give it tokens, and ask again as the command does where no answer came.
func (w *world) give(e Event) {
	q := inspect.Query{
		Endpoint: bucketNames[e.Bucket],
		Address:  client,
		Once:     bucket.Once{Name: uint64(e.At) | 1, Of: 1},
	}
	const longest = 5 * time.Second // that a message is under way
	for n := range 3 {
		w.mu.Lock()
		g := w.gateways[e.Gateway]
		if n == 0 {
			w.given(e, w.now()+longest)
		}
		w.mu.Unlock()
		if g == nil {
			return
		}
		g.wire.awake()
		within, cancel := context.WithTimeout(background, time.Second)
		var err error
		if e.Kind == Reset {
			_, err = inspect.Reset(within, g.Limiter, q, nil)
		} else {
			_, _, err = inspect.Grant(within, g.Limiter, q, e.Tokens, time.Time{}, nil)
		}
		cancel()
		if err == nil {
			return
		}
	}
}

// given says that a bucket is given tokens, once for each event. w is locked.
func (w *world) given(e Event, until time.Duration) {
	most := float64(e.Tokens)
	if e.Kind == Reset {
		for _, f := range w.inForce[e.Bucket] {
			owed := w.sharing().Envelope(f.limit.Limit, bucket.Scope(f.limit.Scope))
			most = max(most, float64(owed.Burst+owed.Excess))
		}
	}
	w.promises[e.Bucket].Add(w.now(), until, most)
}

// end ends a gateway, and starts another in its place after a time.
func (w *world) end(e Event) {
	w.mu.Lock()
	g := w.gateways[e.Gateway]
	w.gateways[e.Gateway] = nil
	limits := append([]Limit(nil), w.limits[e.Gateway]...) // changes from now on are the next gateway's
	w.mu.Unlock()
	if g == nil {
		return
	}
	w.arrives(e.Lasts)
	w.stop(g, e.Kind == Stop)
	for i, l := range limits {
		w.had(i, l)
	}
	time.Sleep(e.Lasts)
	w.arrives(0)
	w.place(e.Gateway, false)
}

// arrives says that a gateway comes or goes.
func (w *world) arrives(lasts time.Duration) {
	w.add(w.now()+lasts, func(l Limit, e bucket.Envelope) float64 {
		most := w.own(l, 0) + w.headroom(l, e)
		if l.Scope == policy.Lease { // across the edge of the free part
			free := float64(w.plan.Free) / 100
			most += free * (float64(l.Burst) + 2*float64(l.Tokens)/l.Per.Seconds())
		}
		return most
	})
}

func (w *world) join() {
	w.arrives(0)
	w.place(w.slot(), false)
	time.Sleep(2 * memberTTL)
}

// slot is room for one gateway more.
func (w *world) slot() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gateways = append(w.gateways, nil)
	w.limits = append(w.limits, append([]Limit(nil), w.limits[0]...))
	w.places = append(w.places, w.newest)
	return len(w.gateways) - 1
}

// strand has a gateway join that cannot reach the store for a time.
func (w *world) strand(lasts time.Duration) {
	w.arrives(0)
	w.add(w.now()+lasts, func(l Limit, _ bucket.Envelope) float64 { return w.own(l, lasts) })
	slot := w.slot()
	w.place(slot, true)
	time.Sleep(lasts)
	w.mu.Lock()
	g := w.gateways[slot]
	w.mu.Unlock()
	g.wire.setCut(0, false)
	time.Sleep(2 * memberTTL)
}

// change has all gateways hear of another limit, each at its time.
func (w *world) change(e Event) {
	w.mu.Lock()
	slots := len(w.gateways)
	w.mu.Unlock()
	r := rand.New(rand.NewPCG(w.plan.Seed, uint64(e.At)))
	w.add(w.now()+e.Spread, func(l Limit, _ bucket.Envelope) float64 { return w.moved(l, e.Limit) })
	done := make(chan struct{})
	for slot := range slots {
		after := time.Duration(r.Int64N(int64(e.Spread) + 1))
		go func() {
			time.Sleep(after)
			w.changeAt(slot, e)
			done <- struct{}{}
		}()
	}
	for range slots {
		<-done
	}
}

func (w *world) changeAt(slot int, e Event) {
	w.mu.Lock()
	before := w.limits[slot][e.Bucket]
	w.limits[slot][e.Bucket] = e.Limit
	g := w.gateways[slot]
	if g == nil {
		w.mu.Unlock()
		return // who starts there has it from its start
	}
	w.regrows(e)
	w.have(e.Bucket, e.Limit)
	limits := append([]Limit(nil), w.limits[slot]...)
	w.publishLocked(e.Bucket)
	places := w.places[slot]
	w.mu.Unlock()
	g.load(limits, places, w.plan.Free)
	w.had(e.Bucket, before)
}

// regrows says by how much a burst grows that was smaller a moment ago, and still larger before: the promise is that of
// the largest all the while, and what was owed beyond the smallest is forgiven. w is locked.
func (w *world) regrows(e Event) {
	if w.inForce[e.Bucket][e.Limit.String()] != nil {
		return // another gateway has said so
	}
	least, most := int64(math.MaxInt64), int64(0)
	for _, f := range w.inForce[e.Bucket] {
		least, most = min(least, f.limit.Burst), max(most, f.limit.Burst)
	}
	w.promises[e.Bucket].Add(w.now(), w.now(), float64(min(most, e.Limit.Burst)-least))
}

// moved is what a change of scope may add: buckets that are full in the new place.
func (w *world) moved(from, to Limit) float64 {
	if from.Scope == to.Scope {
		return 0
	}
	if !from.Scope.Shared() || !to.Scope.Shared() {
		return float64(from.Burst + to.Burst)
	}
	if from.Scope == policy.Lease || to.Scope == policy.Lease {
		return float64(w.plan.Free) / 100 * float64(from.Burst+to.Burst)
	}
	return 0
}
