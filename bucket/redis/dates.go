package redis

import (
	"math/big"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Buckets are dated by the server's clock, changes of limits and charges by the caller's, and
// nobody knows how far apart those are set: a gateway may be an hour ahead, and another server may
// take over with a clock of its own. So no time of the caller's is ever compared with one of the
// server's. A message says how long ago something was, and the server counts back from its own
// time.
//
// What is left is how long messages take. A server that answers now has seen that time at some
// moment since the message was sent:
//
//	caller    sent ──────────────────────────────▶ came
//	                   ╲                        ╱
//	server              ╲───────▶ now ─────────╱        a change at the caller's time t was between now - (came-t) and now - (sent-t)
//
// Where it matters which, the one is taken that admits less.

// moment is the time by which Take.Since is, for a decision that the caller makes at now.
func (s *Store) moment(now int64) int64 {
	if s.callers {
		return now
	}
	return s.now()
}

// trip is when a message was sent and its answer came, by Options.Now.
type trip struct{ sent, came int64 }

// dates restates times of Options.Now by the server's clock: from adds to them gives the earliest
// time it may have been, to adds to them the latest.
type dates struct{ from, to int64 }

// dates is what an answer tells that the server gave at now, in Unix nanoseconds of its clock.
func (s *Store) dates(now int64, t trip) dates {
	if s.callers {
		return dates{}
	}
	return dates{from: now - t.came, to: now + int64(time.Microsecond) - t.sent}
}

// take is t with its changes by the server's clock. Between the earliest and the latest time at
// which a limit may have changed, what is owed drains at the slower rate of both. When its rate was
// lowered is not as exact: nothing is promised of that.
func (d dates) take(t bucket.Take) bucket.Take {
	if d == (dates{}) {
		return t
	}
	if t.Lowered = t.Slower().Moved(d.to); t.Before == nil {
		return t
	}
	t.Since = d.date(t.Since, &t.Before.Shape, &t.Shape)
	t.Before = d.past(t.Before)
	return t
}

func (d dates) past(p *rate.Past) *rate.Past {
	if p == nil {
		return nil
	}
	dated := *p
	dated.Before = d.past(p.Before)
	before := &rate.Shape{} // nobody knows, so nothing drained
	if p.Before != nil {
		before = &p.Before.Shape
	}
	dated.Since = d.date(p.Since, before, &p.Shape)
	return &dated
}

// date is when a limit became another one.
func (d dates) date(at int64, before, after *rate.Shape) int64 {
	switch {
	case at == 0:
		return 0 // always
	case slower(after, before):
		return at + d.from
	}
	return ceilMicros(at + d.to)
}

// slower reports whether a drains no faster than b. The zero Shape drains nothing.
func slower(a, b *rate.Shape) bool {
	if a.Unit <= 0 || a.Tick <= 0 {
		return true
	}
	if b.Unit <= 0 || b.Tick <= 0 {
		return false
	}
	return perSecond(a).Cmp(perSecond(b)) <= 0
}

func perSecond(s *rate.Shape) *big.Rat {
	r := big.NewRat(s.Drain, s.Unit)
	return r.Mul(r, big.NewRat(int64(time.Second), s.Tick))
}

// age is how many microseconds ago the limit of c took effect, or -1 if nothing of before can
// matter at the moment; and whether the limit was the same at some time before, so that a bucket of
// its shape may be of then.
func (c *claim) age(moment int64) (age, back int64) {
	t := &c.take
	if t.Before == nil {
		return -1, 0
	}
	since := max(0, moment-t.Since)
	if since > t.Shape.Settled(0, t.Before) {
		return -1, 0
	}
	for p := t.Before; p != nil; p = p.Before {
		if p.Shape == (rate.Shape{}) || p.Shape == t.Shape {
			back = 1
		}
	}
	return micros(since), back
}

// clocks knows of each server, or in a cluster of each slot, how far its clock is ahead of Options.Now, at least.
type clocks []atomic.Int64 // nanoseconds; 0 for nothing known

func newClocks(cluster bool) clocks {
	if cluster {
		return make(clocks, Slots)
	}
	return make(clocks, 1)
}

func (c clocks) of(tag uint16) *atomic.Int64 {
	if len(c) == 1 {
		return &c[0]
	}
	return &c[Slot(tag)]
}

// observe learns from an answer that a server gave at now. What an answer contradicts is forgotten:
// a clock was set, or another server took over.
func (c clocks) observe(tag uint16, d dates) {
	own := c.of(tag)
	if known := own.Load(); known == 0 || d.from > known || d.to < known {
		own.Store(d.from)
	}
}
