package scoped

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// A rule of scope split means a k-th of its limit, and k changes: that is a change of limit like
// any other, so buckets go through it as bucket.Held says. A take then has two pasts, that of its
// rule and that of k, which are merged: at any time the limit was a part of what the rule said
// then, and how large a part k said then.
//
//	rule     100 per second ─────────────────────────────┬─ 40 per second ──────▶
//	k        2 ───────────────────────┬─ 4 ──────────────────────────────────────▶
//	part     50 ──────────────────────┬─ 25 ─────────────┬─ 10 ──────────────────▶
//
// Who joins others knows nothing of what they admitted for it until now, and begins with empty buckets.

// splits divides the limits of rules of scope split.
type splits struct {
	replicas func() int
	learner  bucket.Learner // nil if the local store need not hear of changes

	// lifetime is how long buckets owe at most by the rules that were heard of, in nanoseconds; 0 if there are none.
	lifetime atomic.Int64

	mu   sync.Mutex // held by who changes view
	view atomic.Pointer[view]

	parts parts
}

// parts has a k-th of a limit for each replica.
type parts struct{ divisions[portion] }

func (p *parts) part(whole rate.Shape, k int) *portion { return p.of(&whole, k) }

// view is how many replicas there were since when. It never changes.
type view struct {
	counts []count // the latest first

	// first is what was before the first count: nothing, for one that was alone; all spent, for one
	// that joined others; or what nobody remembers, where there were too many.
	first rate.Past
}

// most is the largest number of replicas.
func (v *view) most() (k int) {
	for _, c := range v.counts {
		k = max(k, c.replicas)
	}
	return k
}

// count is that there were so many replicas since a time in Unix nanoseconds.
type count struct {
	replicas int
	since    int64
}

func (s *splits) init(o Options) {
	s.replicas = o.Replicas
	s.parts.divide = func(whole rate.Shape, k int) portion { return newPortion(whole.Divide(k)) }
	s.learner, _ = o.Local.(bucket.Learner)
	if k := s.now(); k > 1 {
		s.view.Store(&view{counts: []count{{k, o.Began}}, first: rate.Past{Spent: true}})
		return
	}
	s.view.Store(&view{counts: []count{{replicas: 1}}})
}

// none stands for a replica that has no part: others have to hear of it first. It is given the
// smallest, which is next to nothing.
const none = rate.MaxParts

// now is by how many to divide.
func (s *splits) now() int {
	k := s.replicas()
	if k < 1 {
		return none
	}
	return min(k, none)
}

// learn tells the local store of a change since which a limit may be divided in k parts. A part fills within k times
// what the whole takes: it holds a k-th, or one token. What is set aside for leases holds more than one, and fills as
// the whole does.
func (s *splits) learn(since int64, k int) {
	if s.learner == nil {
		return
	}
	settled, lifetime := int64(math.MaxInt64), s.lifetime.Load()
	if parts := int64(max(k, 1)); lifetime != 0 && lifetime <= (math.MaxInt64-max(since, 0))/parts {
		settled = since + lifetime*parts
	}
	s.learner.Learn(since, settled)
}

// hear is learn of a change of the rules' limits.
func (s *splits) hear(since, settled int64) {
	lifetime := int64(math.MaxInt64)
	if settled != math.MaxInt64 {
		lifetime = max(settled-since, 1)
	}
	for known := s.lifetime.Load(); known < lifetime && !s.lifetime.CompareAndSwap(known, lifetime); {
		known = s.lifetime.Load()
	}
	s.learn(since, s.view.Load().most())
}

// at is the view at a time.
func (s *splits) at(now int64) *view {
	v, k := s.view.Load(), s.now()
	if v.counts[0].replicas == k {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v = s.view.Load(); v.counts[0].replicas == k {
		return v
	}
	since := max(now, v.counts[0].since) // a clock that stepped back orders nothing
	next := &view{counts: append([]count{{k, since}}, v.counts...), first: v.first}
	if v.counts[0].replicas == none { // it gets its part now, and it is empty
		next = &view{counts: []count{{k, since}}, first: rate.Past{Spent: true}}
	}
	if last := len(next.counts) - 1; last > rate.MaxPast-2 {
		next.counts, next.first = next.counts[:last], rate.Past{Since: next.counts[last].since}
	}
	s.learn(since, next.most()) // before any take under it
	s.view.Store(next)
	return next
}

// share makes t a take from this replica's part, and says in how many parts the limit is divided.
func (s *splits) share(now int64, t *bucket.Take, room *[rate.MaxPast + 1]rate.Past) int {
	v := s.at(now)
	s.shareAt(v, now, t, room, &s.parts)
	return v.counts[0].replicas
}

// divider says what part of a limit one of k replicas has.
type divider interface {
	part(whole rate.Shape, k int) *portion
}

// shareAt makes t a take from the part that a replica has by a view.
func (s *splits) shareAt(v *view, now int64, t *bucket.Take, room *[rate.MaxPast + 1]rate.Past, by divider) {
	if p := by.part(t.Shape, v.counts[0].replicas); t.Before == nil && p.shape != (rate.Shape{}) {
		if since := max(t.Since, v.counts[0].since); p.settled(now, since) {
			t.Shape, t.Since = p.shape, since
			return
		}
	}
	m := merge{by: by, view: v, rule: rate.Past{Shape: t.Shape, Since: t.Since, Before: t.Before}}
	first := m.next()
	t.Shape, t.Since, t.Before = first.Shape, first.Since, nil
	if m.over {
		return
	}
	at := &t.Before
	for i := range room {
		room[i] = m.next()
		if i == len(room)-1 && !m.over {
			room[i] = rate.Past{Since: room[i].Since, Window: m.rule.Window} // there were more, which nobody remembers
		}
		*at, at = &room[i], &room[i].Before
		if m.over {
			break
		}
	}
}

// merge walks back through both pasts at once.
type merge struct {
	by    divider
	view  *view
	count int       // in view.counts: how many there were
	rule  rate.Past // what the rule said meanwhile
	over  bool      // nothing is known of before
}

// next is the limit before the one that it was last.
func (m *merge) next() rate.Past {
	if m.count == len(m.view.counts) {
		m.over = true
		return m.view.first
	}
	c := m.view.counts[m.count]
	p := rate.Past{
		Shape:  m.by.part(m.rule.Shape, c.replicas).shape,
		Since:  max(m.rule.Since, c.since),
		Window: m.rule.Window,
	}
	if p.Shape == (rate.Shape{}) && m.rule.Shape != p.Shape {
		m.over = true
		return rate.Past{Spent: true} // others had it
	}
	if c.since >= m.rule.Since {
		m.count++
	}
	switch {
	case m.rule.Since < c.since:
	case m.rule.Before == nil:
		m.over = true // it held always, or is new
	default:
		m.rule = *m.rule.Before
	}
	return p
}
