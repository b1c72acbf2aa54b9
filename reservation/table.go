package reservation

import (
	"container/heap"
	"crypto/rand"
	"math"
	"sync"

	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// entry is a reservation in the table.
type entry struct {
	id    ID
	until int64 // Unix nanoseconds
	taken *charge.Receipt

	place    int  // in Table.open; -1 when it is not there
	settling bool // a call is at it
	settled  bool
	held     bool       // see Hold
	result   Settlement // once settled
}

// Table is those that are outstanding. It is bounded, and nothing
// tends it: who comes to reserve removes what has expired. Settled ones are
// remembered until their timeout, so that a second call hears what the first
// did, but only in room that nobody else needs. What waiting requests took (Hold)
// is beside all that.
type Table struct {
	most int

	mu       sync.Mutex
	byID     map[ID]*entry // guarded by mu, as is all that follows
	open     openHeap      // outstanding, by when they expire
	settled  []*entry      // by when they were settled, oldest first
	used     int           // places of those outstanding, or being decided or settled
	counters Stats

	entries, receipts sync.Pool // of those that are done with
}

// NewTable makes room for so many, 0 for DefaultOutstanding.
func NewTable(most int) *Table {
	if most == 0 {
		most = DefaultOutstanding
	}
	return &Table{most: most, byID: map[ID]*entry{}}
}

// Begin takes a place for a request that is about to be decided, or reports
// false when all are taken.
func (t *Table) Begin(now int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.purgeLocked(now)
	if t.used >= t.most {
		t.counters.Refused++
		return false
	}
	t.used++
	return true
}

// Abandon gives back the place of a request that was denied.
func (t *Table) Abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used--
}

// Blank is a receipt to be written and given to Add or Hold.
func (t *Table) Blank() *charge.Receipt {
	if r, ok := t.receipts.Get().(*charge.Receipt); ok {
		return r
	}
	return new(charge.Receipt)
}

// Never is when a reservation UntilSettled expires.
const Never = math.MaxInt64

// Add puts what a request took into the place that Begin took, until a time, and
// names it. The receipt is the table's from now on.
func (t *Table) Add(taken *charge.Receipt, until int64) ID {
	e := t.named(entry{until: until, taken: taken})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counters.Made++
	t.putLocked(e)
	for t.used+len(t.settled) > t.most && len(t.settled) > 0 {
		t.forgetLocked()
	}
	return e.id
}

// Hold puts what a request took that waits for its turn beside the room for others, and names it. There are no more of
// those than requests may wait, and none of them may keep others from reserving. The receipt is the table's from now
// on, until LetGo.
func (t *Table) Hold(taken *charge.Receipt) ID {
	e := t.named(entry{until: Never, taken: taken, held: true})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.putLocked(e)
	return e.id
}

// LetGo forgets what is held, settled or not.
func (t *Table) LetGo(id ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[id]
	if e.place >= 0 {
		heap.Remove(&t.open, e.place)
	}
	t.dropLocked(e)
}

// named is an entry with an ID.
func (t *Table) named(of entry) *entry {
	e, ok := t.entries.Get().(*entry)
	if !ok {
		e = new(entry)
	}
	*e = of
	_, _ = rand.Read(e.id[:]) // never fails: crypto/rand
	return e
}

func (t *Table) putLocked(e *entry) {
	t.byID[e.id] = e
	heap.Push(&t.open, e)
}

// dropLocked forgets what is not open any more, to use its memory again.
func (t *Table) dropLocked(e *entry) {
	delete(t.byID, e.id)
	t.receipts.Put(e.taken)
	e.taken = nil
	t.entries.Put(e)
}

// Concurrent appends the receipts of those outstanding that have a place among the requests under way.
func (t *Table) Concurrent(dst []*charge.Receipt, now int64) []*charge.Receipt {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.purgeLocked(now)
	for _, e := range t.open {
		if e.taken.Concurrent() {
			dst = append(dst, e.taken)
		}
	}
	return dst
}

// Places is how many places those outstanding have among the requests under way, by the rule's policy.Terms.ID.
func (t *Table) Places(now int64) map[uint64]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.purgeLocked(now)
	places := map[uint64]int64{}
	for _, e := range t.open {
		e.taken.AddPlaces(places)
	}
	return places
}

// purgeLocked removes what has expired, and forgets settled ones whose time is
// over.
func (t *Table) purgeLocked(now int64) {
	for len(t.open) > 0 && t.open[0].until <= now {
		e := heap.Pop(&t.open).(*entry)
		t.used--
		t.counters.Expired++
		delete(t.byID, e.id)
	}
	for len(t.settled) > 0 && t.settled[0].until <= now {
		t.forgetLocked()
	}
}

func (t *Table) forgetLocked() {
	delete(t.byID, t.settled[0].id)
	t.settled[0] = nil
	t.settled = t.settled[1:]
}

// Claim finds a reservation to settle. The caller has it to itself until it
// calls Release or Finish. If it returns nil, the Settlement or the error says
// why there is nothing to settle.
func (t *Table) Claim(id ID, now int64) (*charge.Receipt, Settlement, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.byID[id]
	switch {
	case !ok:
		return nil, Settlement{Status: None}, nil
	case e.settled:
		s := e.result
		s.Status = AlreadySettled
		return nil, s, nil
	case e.settling:
		return nil, Settlement{}, ErrSettling
	case e.until <= now:
		return nil, Settlement{Status: Expired, Reserved: e.taken.Cost}, nil
	}
	// It leaves the heap, so that it does not expire under the caller's hands,
	// and keeps its place.
	heap.Remove(&t.open, e.place)
	e.settling = true
	return e.taken, Settlement{Status: Settled, Reserved: e.taken.Cost}, nil
}

// Release gives back what Claim gave: it could not be settled at now. One UntilSettled has DefaultTimeout from then on,
// because who does not try again would leave it here for ever.
func (t *Table) Release(id ID, now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[id]
	e.settling = false
	if e.until == Never && !e.held {
		e.until = now + int64(DefaultTimeout)
	}
	heap.Push(&t.open, e)
}

// Finish records how a reservation was settled.
func (t *Table) Finish(id ID, s Settlement) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[id]
	if e.held {
		return
	}
	t.used--
	t.counters.Settled++
	if e.until == Never {
		t.dropLocked(e)
		return
	}
	e.settling, e.settled, e.result, e.taken = false, true, s, nil
	t.settled = append(t.settled, e)
}

// Void has all that are outstanding give nothing back to a bucket that is about
// to be filled. It looks at each of them, which is for operators, not for
// requests. One that is being settled right now counts as settled before.
func (t *Table) Void(k key.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.open {
		e.taken.Void(k)
	}
}

// Spend has each of those outstanding give back so many units less to a bucket
// that was given them; see charge.Receipt.Spend.
func (t *Table) Spend(k key.Key, shape rate.Shape, units int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.open {
		e.taken.Spend(k, shape, units)
	}
}

// Stats reports the state of the table.
func (t *Table) Stats(now int64) Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.purgeLocked(now)
	s := t.counters
	s.Outstanding, s.Remembered, s.Capacity = t.used, len(t.settled), t.most
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
