// Package penalty remembers callers who were denied again and again, and says until when they are blocked.
//
// A [Table] only ever denies: whoever it does not block still has to be admitted by the buckets. So no fault of a
// Table, no restart and no other replica's table lets more pass than the buckets allow.
//
//	5 in 1m for 10m up to 1h      five denials within a minute
//	at     what                   blocked until
//	0:00   5 denials              10:00
//	10:01  5 denials              30:01, twice as long
//	30:02  5 denials              70:02
//	70:03  5 denials              130:03, an hour, which is the most
//	195:00 5 denials              205:00: it has kept from it for as long as the last one took
//
// Its memory is set when it is first needed. Who is counted has no room taken from it by who is not blocked yet, and a
// caller without room is not counted, which the Stats tell.
package penalty

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/internal/callers"
	"github.com/headgate-io/headgate/key"
)

// Terms say when a caller is blocked, and for how long.
type Terms struct {
	After     int           // denials
	Within    time.Duration // as many in so long always block, and fewer in a seventh more never do
	For       time.Duration // the first time
	UpTo      time.Duration // the most; it doubles until then
	Addresses bool          // of no meaning here: who asks knows whom it is for
}

// DefaultCallers is how many callers are remembered where nobody says.
const DefaultCallers = 1 << 16

// Stats describes a Table. All but Callers only grow.
type Stats struct {
	Callers int    // room, once there is any
	Begun   uint64 // penalties
	Lost    uint64 // denials that were not counted for want of room
}

const cells = 8 // the last of which is not full: seven are Terms.Within

// Table is the callers that were denied. It is safe for concurrent use.
type Table struct {
	all *callers.Table[entry]

	begun, lost atomic.Uint64
	used        atomic.Bool // somebody was denied
}

// entry is a caller: 64 bytes. Times are in nanoseconds, of the clock of who asks.
type entry struct {
	key    key.Key // zero for a free entry
	width  int64   // of a cell
	newest int64   // cell, by its number since 1970
	counts [cells]uint16

	since, length int64 // of the last penalty; no length: there was none
}

// New returns a Table for so many callers, 0 for DefaultCallers.
func New(most int) *Table {
	if most <= 0 {
		most = DefaultCallers
	}
	return &Table{all: callers.New[entry](most)}
}

// Until reports until when a caller is blocked, in Unix nanoseconds, if it is. Terms are those in force: what a
// penalty may last at most they say now, and not when it began.
func (t *Table) Until(now int64, k key.Key, terms *Terms) (until int64, blocked bool) {
	if !t.used.Load() {
		return 0, false
	}
	mu, set := t.all.Lock(k)
	defer mu.Unlock()
	for i := range set {
		if set[i].key == k {
			return set[i].blocks(now, terms)
		}
	}
	return 0, false
}

// blocks reports whether a penalty lasts. A clock that stepped back is where the penalty began.
func (e *entry) blocks(now int64, terms *Terms) (until int64, blocked bool) {
	now = max(now, e.since)
	until = e.since + min(e.length, int64(terms.UpTo))
	return until, e.length > 0 && now < until
}

// Denied counts a denial, and reports until when the caller is blocked by it, if it is.
func (t *Table) Denied(now int64, k key.Key, terms *Terms) (until int64, blocked bool) {
	t.used.Store(true)
	mu, set := t.all.LockMade(k)
	defer mu.Unlock()
	e := find(set, k, now)
	if e == nil {
		t.lost.Add(1)
		return 0, false
	}
	if e.key != k {
		*e = entry{key: k}
	}
	until, blocked, began := e.denied(now, terms)
	if began {
		t.begun.Add(1)
	}
	return until, blocked
}

// Foresee reports what Denied would, and counts nothing.
func (t *Table) Foresee(now int64, k key.Key, terms *Terms) (until int64, blocked bool) {
	mu, set := t.all.Lock(k)
	defer mu.Unlock()
	one := entry{key: k}
	switch e := find(set, k, now); {
	case e == nil && set != nil:
		return 0, false // it is not counted
	case e != nil && e.key == k:
		one = *e
	}
	until, blocked, _ = one.denied(now, terms)
	return until, blocked
}

// denied counts a denial, and reports until when its caller is blocked, if it is, and whether that has just begun.
func (e *entry) denied(now int64, terms *Terms) (until int64, blocked, began bool) {
	if until, blocked := e.blocks(now, terms); blocked {
		return until, true, false
	}
	if !e.count(now, terms) {
		return 0, false, false
	}
	e.begin(now, terms)
	return e.since + e.length, true, true
}

// count adds a denial, and reports whether they are as many as terms say.
func (e *entry) count(now int64, terms *Terms) bool {
	width := (int64(terms.Within) + cells - 2) / (cells - 1)
	if e.width != width { // the rule has changed
		e.width, e.newest, e.counts = width, now/width, [cells]uint16{}
	}
	if at := now / width; at > e.newest { // a clock that stepped back counts where it was
		for n := e.newest + 1; n <= min(at, e.newest+cells); n++ {
			e.counts[n%cells] = 0
		}
		if at-e.newest > cells {
			e.counts = [cells]uint16{}
		}
		e.newest = at
	}
	if c := &e.counts[e.newest%cells]; *c < math.MaxUint16 {
		*c++
	}
	sum := 0
	for _, c := range e.counts {
		sum += int(c)
	}
	return sum >= terms.After
}

// begin begins a penalty: twice as long as the last one, if that is not over for longer than it lasted.
func (e *entry) begin(now int64, terms *Terms) {
	length := int64(terms.For)
	if e.length > 0 && now < e.forgotten() {
		length = max(length, 2*e.length)
	}
	e.since, e.length, e.counts = now, min(length, int64(terms.UpTo)), [cells]uint16{}
}

// forgotten is when the last penalty makes the next one no longer.
func (e *entry) forgotten() int64 { return e.since + 2*e.length }

// over is from when on an entry says nothing any more.
func (e *entry) over() int64 { return max(e.forgotten(), (e.newest+1)*e.width+cells*e.width) }

// find returns the entry of a caller, or one that it may have: a free one, one that says nothing
// any more, or the one of those who were never blocked that will be over first. Nil if there is
// none.
func find(set []entry, k key.Key, now int64) *entry {
	var spare *entry
	for i := range set {
		e := &set[i]
		switch {
		case e.key == k:
			return e
		case e.length > 0 && now < e.over():
		case spare == nil || e.key == (key.Key{}) && spare.key != (key.Key{}) ||
			spare.key != (key.Key{}) && e.over() < spare.over():
			spare = e
		}
	}
	return spare
}

// Forget ends the penalty of a caller, and forgets all that it was denied.
func (t *Table) Forget(k key.Key) {
	if !t.used.Load() {
		return
	}
	mu, set := t.all.Lock(k)
	defer mu.Unlock()
	for i := range set {
		if set[i].key == k {
			set[i] = entry{}
		}
	}
}

// Stats reports what a Table did.
func (t *Table) Stats() Stats {
	return Stats{Callers: t.all.Room(), Begun: t.begun.Load(), Lost: t.lost.Load()}
}
