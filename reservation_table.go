package headgate

import (
	"container/heap"
	"crypto/rand"
	"sync"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// ReservationStats describes the table of reservations. All but Outstanding,
// Capacity and Remembered only grow.
type ReservationStats struct {
	Outstanding int // neither settled nor known to have expired
	Remembered  int // settled, and still known to be
	Capacity    int

	Made, Settled, Expired, Refused uint64
}

// Reservations reports the state of the table of reservations.
func (l *Limiter) Reservations() ReservationStats { return l.reservations.stats(l.clock.Now()) }

// entry is a reservation in the table.
type entry struct {
	id        ReservationID
	at, until int64 // Unix nanoseconds
	cost      int64 // tokens
	match     endpoint.Match
	project   string
	tier      string
	charges   []charge
	uncharged int64 // tokens of the difference, where it is not charged at all

	place    int  // in reservations.open; -1 when it is not there
	settling bool // a call is at it
	settled  bool
	result   Settlement // once settled
}

// reservations is the table of those outstanding. It is bounded, and nothing
// tends it: who comes to reserve removes what has expired. Settled ones are
// remembered until their timeout, so that a second call hears what the first
// did, but only in room that nobody else needs.
type reservations struct {
	most int

	mu       sync.Mutex
	byID     map[ReservationID]*entry // guarded by mu, as is all that follows
	open     openHeap                 // outstanding, by when they expire
	settled  []*entry                 // by when they were settled, oldest first
	begun    int                      // places of requests that are being decided
	counters ReservationStats
}

func newReservations(most int) *reservations {
	return &reservations{most: most, byID: map[ReservationID]*entry{}}
}

// begin takes a place for a request that is about to be decided, or reports
// false when all are taken.
func (t *reservations) begin(now int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.purgeLocked(now)
	if len(t.open)+t.begun >= t.most {
		t.counters.Refused++
		return false
	}
	t.begun++
	return true
}

// abandon gives back the place of a request that was denied.
func (t *reservations) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun--
}

// add puts an entry into the place that begin took, and names it.
func (t *reservations) add(e entry) ReservationID {
	_, _ = rand.Read(e.id[:]) // never fails: crypto/rand
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun--
	t.counters.Made++
	t.byID[e.id] = &e
	heap.Push(&t.open, &e)
	for len(t.byID) > t.most && len(t.settled) > 0 {
		t.forgetLocked()
	}
	return e.id
}

// purgeLocked removes what has expired, and forgets settled ones whose time is
// over.
func (t *reservations) purgeLocked(now int64) {
	for len(t.open) > 0 && t.open[0].until <= now {
		e := heap.Pop(&t.open).(*entry)
		t.counters.Expired++
		delete(t.byID, e.id)
	}
	for len(t.settled) > 0 && t.settled[0].until <= now {
		t.forgetLocked()
	}
}

func (t *reservations) forgetLocked() {
	delete(t.byID, t.settled[0].id)
	t.settled[0] = nil
	t.settled = t.settled[1:]
}

// claim finds a reservation to settle. The caller has it to itself until it
// calls release or finish. If it returns nil, the Settlement or the error says
// why there is nothing to settle.
func (t *reservations) claim(id ReservationID, now int64) (*entry, Settlement, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.byID[id]
	switch {
	case !ok:
		return nil, Settlement{Status: NoReservation}, nil
	case e.settled:
		s := e.result
		s.Status = AlreadySettled
		return nil, s, nil
	case e.settling:
		return nil, Settlement{}, ErrSettling
	case e.until <= now:
		return nil, Settlement{Status: ReservationExpired, Reserved: e.cost}, nil
	}
	// It leaves the heap, so that it does not expire under the caller's hands,
	// and keeps its place.
	heap.Remove(&t.open, e.place)
	t.begun++
	e.settling = true
	return e, Settlement{Status: Settled, Reserved: e.cost}, nil
}

// release gives back what claim gave: it could not be settled.
func (t *reservations) release(id ReservationID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[id]
	t.begun--
	e.settling = false
	heap.Push(&t.open, e)
}

// finish records how a reservation was settled.
func (t *reservations) finish(id ReservationID, s Settlement) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[id]
	t.begun--
	t.counters.Settled++
	e.settling, e.settled, e.result, e.charges = false, true, s, nil
	t.settled = append(t.settled, e)
}

// void has outstanding reservations give nothing back to a bucket that is about
// to be filled: what they took is given back by that. It looks at all of them,
// which is for operators, not for requests. One that is being settled right now
// counts as settled before.
func (t *reservations) void(k key.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.open {
		for i := range e.charges {
			if e.charges[i].key == k {
				e.charges[i].units = 0
			}
		}
	}
}

// spend has outstanding reservations give back so many units less, each of them,
// to a bucket that was given them: by that, others may have the room already,
// and how much of it was whose is not known. Under another limit they give
// nothing.
func (t *reservations) spend(k key.Key, shape rate.Shape, units int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.open {
		for i := range e.charges {
			own := &e.charges[i]
			switch {
			case own.key != k || units == 0:
			case own.shape != shape:
				own.units = 0
			default:
				own.units -= min(units, own.units)
			}
		}
	}
}

func (t *reservations) stats(now int64) ReservationStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.purgeLocked(now)
	s := t.counters
	s.Outstanding, s.Remembered, s.Capacity = len(t.open)+t.begun, len(t.settled), t.most
	return s
}

// openHeap orders entries by when they expire.
type openHeap []*entry

func (h openHeap) Len() int           { return len(h) }
func (h openHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h openHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push appends an entry; it is heap.Interface's.
func (h *openHeap) Push(x any) {
	e := x.(*entry)
	e.place = len(*h)
	*h = append(*h, e)
}

// Pop removes the last entry; it is heap.Interface's.
func (h *openHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	e.place = -1
	*h = old[:len(old)-1]
	return e
}
