package scoped

import (
	"sync"
	"sync/atomic"
	"time"
)

// A breaker takes a server of the shared store for lost after inRow failures in a row, or when half
// of at least enough answers within a second were failures. Then it lets one request through every
// pause or so, and takes the server for back after good of them have succeeded. One failure is none
// too many: an answer that comes late may have been charged.
//
// A row of failures that are all for want of time must last for silence besides: where this process
// or the server waits for a processor for some milliseconds, the time of all requests under way is
// up at once, which is one event and not five.
const (
	inRow   = 5
	silence = 50 * time.Millisecond
	enough  = 20
	good    = 3

	cells = 10
	cell  = 100 * time.Millisecond // the second in which answers are counted is cells of these

	pause = 100 * time.Millisecond
	apart = 50 * time.Millisecond // by how much pauses differ at most: half of it less, half of it more
)

// breaker says whether to ask a server. Times are Unix nanoseconds of decisions.
type breaker struct {
	vary  func(n int64) int64     // a random number below n
	begin func(now int64) *outage // makes the next one

	// outage is the present one, nil while the store is there. It is changed under mu.
	outage atomic.Pointer[outage]
	since  atomic.Int64 // when the last one began, the present one if there is one

	mu      sync.Mutex
	row     row           // guarded by mu, as is all that follows
	answers [cells]answer // by cell
	at      int64         // the latest cell, in cells since 1970
	probing bool
	next    int64 // when the next request may try, while open
	back    int   // tries that succeeded since the last that did not
}

type answer struct{ failed, all int }

// row is the failures since the last success.
type row struct {
	all, sure int   // sure are those that are not for want of time
	began     int64 // with the first
}

// reply is how a server answered.
type reply uint8

const (
	well    reply = iota
	badly         // it is not there, or cannot do what it should
	nothing       // within the time there was
)

// route is how a decision gets to the buckets of a server: the usual way, by a try, or not at all.
type route struct{ lost, probe bool }

// transition is what an answer changed.
type transition uint8

const (
	same transition = iota
	opened
	closed
)

// route says how the decision of a request begins. After a try release has to follow.
func (b *breaker) route(now int64) route {
	if b.outage.Load() == nil {
		return route{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	early := now < b.next && b.next-now < int64(2*pause) // a clock that was set back does not keep the store lost
	lost := b.outage.Load() != nil
	if b.probing || early || !lost {
		return route{lost: lost}
	}
	b.probing = true
	return route{probe: true}
}

// release ends a try, whether or not the store was asked.
func (b *breaker) release() {
	b.mu.Lock()
	b.probing = false
	b.mu.Unlock()
}

// answered notes how the store answered, the usual way or to a try. When it is there again, over is
// the outage that has ended.
func (b *breaker) answered(now int64, way route, how reply) (turn transition, over *outage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case way.probe:
		return b.tried(now, how == well)
	case b.outage.Load() != nil:
		return same, nil // it was asked before
	}
	b.count(now, how)
	if !b.row.long(now) && !b.half() {
		return same, nil
	}
	b.since.Store(now)
	b.outage.Store(b.begin(now))
	b.back = 0
	b.rest(now)
	return opened, nil
}

// tried notes how a try ended.
func (b *breaker) tried(now int64, ok bool) (transition, *outage) {
	b.rest(now)
	if !ok {
		b.back = 0
		return same, nil
	}
	if b.back++; b.back < good {
		return same, nil
	}
	b.row, b.answers = row{}, [cells]answer{}
	return closed, b.outage.Swap(nil)
}

// end ends an outage without a try, and returns it, nil if there is none.
func (b *breaker) end() *outage {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.row, b.answers = row{}, [cells]answer{}
	return b.outage.Swap(nil)
}

// rest waits for the next try.
func (b *breaker) rest(now int64) { b.next = now + int64(pause-apart/2) + b.vary(int64(apart)+1) }

// count counts an answer.
func (b *breaker) count(now int64, how reply) {
	at := now / int64(cell)
	if at-b.at >= cells || at < b.at {
		b.answers = [cells]answer{}
		b.at = at
	}
	for b.at < at {
		b.at++
		b.answers[b.at%cells] = answer{}
	}
	own := &b.answers[at%cells]
	own.all++
	if how == well {
		b.row = row{}
		return
	}
	own.failed++
	if b.row.all == 0 || now < b.row.began {
		b.row.began = now
	}
	b.row.all++
	if how == badly {
		b.row.sure++
	}
}

// long reports whether a row says enough about the server.
func (r row) long(now int64) bool {
	return r.sure >= inRow || r.all >= inRow && now-r.began >= int64(silence)
}

// half reports whether half of enough answers were failures.
func (b *breaker) half() bool {
	var sum answer
	for _, a := range b.answers {
		sum.failed += a.failed
		sum.all += a.all
	}
	return sum.all >= enough && 2*sum.failed >= sum.all
}
