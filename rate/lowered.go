package rate

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// A rate that is lowered for a while is the same rate by a clock that runs slower for a while. So a bucket needs
// no other shape for it: what drains between two times is what the full rate drains in the time that such a clock
// counts between them. With half the rate from 10 s to 14 s, it counts
//
//	from 8 s to 10 s   2 s
//	from 8 s to 12 s   3 s
//	from 8 s to 20 s   10 s
//
// It never counts more than the time that has passed. So a bucket by it never holds more than one at the full rate
// that was charged the same, and no bound on that is exceeded; the burst is what it was.

// Whole is the part that stands for a rate that is not lowered.
const Whole = 1 << wholeBits

const wholeBits = 10

const (
	// maxSteps is how many changes are remembered. Of older ones every second is forgotten, and what drained between
	// the others is taken to have done so evenly.
	maxSteps = 64

	// longAgo is how far back changes are remembered, in nanoseconds: 30 days. Before, the rate counts as full.
	longAgo = 30 * 24 * int64(time.Hour)
)

// Lowered is which part of a rate was in force, and since when. It never changes, so takes share it. Nil is a rate
// that was never lowered.
type Lowered struct {
	steps []step // the earliest first, one at least; before it the rate was full
	part  int64  // since the last step
}

// step is a change of the part.
type step struct {
	at      int64 // Unix nanoseconds
	counted int64 // by the slower clock since the first step, in 1024ths of a nanosecond
}

// From is l with another part in force from the Unix time at on, in nanoseconds, which is not before that of the last
// change. Part is in 1024ths, 1 to Whole.
func (l *Lowered) From(at int64, part int) *Lowered {
	next := &Lowered{part: int64(min(max(part, 1), Whole))}
	if l == nil {
		next.steps = []step{{at: at}}
		return next
	}
	at = max(at, l.steps[len(l.steps)-1].at)
	recent := l.steps
	for len(recent) > 0 && recent[0].at < at-longAgo {
		recent = recent[1:]
	}
	if len(recent) == 0 {
		// The part that was in force all this time goes on to count, for as long as is remembered.
		recent = []step{{at: at - longAgo, counted: 0}}
		next.steps = append(recent, step{at: at, counted: longAgo * l.part})
		return next
	}
	counted := l.countedAt(at)
	if len(recent) >= maxSteps {
		recent = thinned(recent)
	}
	next.steps = make([]step, 0, len(recent)+1)
	for _, s := range recent {
		next.steps = append(next.steps, step{s.at, s.counted - recent[0].counted})
	}
	next.steps = append(next.steps, step{at, counted - recent[0].counted})
	return next
}

// thinned is steps without every second of their older half, whose first stays.
func thinned(steps []step) []step {
	kept := make([]step, 0, len(steps))
	for i, s := range steps {
		if i >= len(steps)/2 || i%2 == 0 {
			kept = append(kept, s)
		}
	}
	return kept
}

// Part is the part in force since the last change, in 1024ths; Whole for nil.
func (l *Lowered) Part() int {
	if l == nil {
		return Whole
	}
	return int(l.part)
}

// countedAt is what the slower clock has counted from the first step to t, in 1024ths of a nanosecond; 0 before it. The
// last step is less than longAgo before t.
func (l *Lowered) countedAt(t int64) int64 {
	last := len(l.steps) - 1
	if s := l.steps[last]; t >= s.at {
		return s.counted + (t-s.at)*l.part
	}
	i := last
	for ; i >= 0 && t < l.steps[i].at; i-- { // nearly always one of the latest
	}
	if i < 0 {
		return 0
	}
	s, next := l.steps[i], l.steps[i+1]
	hi, lo := bits.Mul64(uint64(t-s.at), uint64(next.counted-s.counted))
	q, _ := bits.Div64(hi, lo, uint64(next.at-s.at))
	return s.counted + int64(q)
}

// Elapsed is how long the full rate takes to drain what drained from one Unix time to a later one, in nanoseconds,
// rounded down. It is at most the time between them.
func (l *Lowered) Elapsed(from, to int64) int64 {
	if to <= from {
		return 0
	}
	if l == nil {
		return int64(min(uint64(to)-uint64(from), math.MaxInt64))
	}
	first, last := l.steps[0].at, l.steps[len(l.steps)-1].at
	full := uint64(0) // before the first step
	if from < first {
		full = min(uint64(min(to, first))-uint64(from), math.MaxInt64/2)
		from = first
	}
	hi, lo := uint64(0), uint64(0) // by the slower clock, in 1024ths
	if from < last {
		lo = uint64(max(0, l.countedAt(min(to, last))-l.countedAt(from)))
		from = last
	}
	if to > from {
		more, rest := bits.Mul64(uint64(to)-uint64(from), uint64(l.part))
		var carry uint64
		lo, carry = bits.Add64(lo, rest, 0)
		hi = more + carry
	}
	return int64(min(full+(hi<<(64-wholeBits)|lo>>wholeBits), math.MaxInt64))
}

// Since is the time since which the full rate would have drained what has drained since at: at itself for nil. Both
// are Unix nanoseconds; it lies between at and now, and is at unless that is before now.
func (l *Lowered) Since(at, now int64) int64 {
	if l == nil || at >= now {
		return at
	}
	return max(at, now-l.Elapsed(at, now))
}

// Reached is the other way around: the latest time that Since moves to since. A bucket that drains in long ticks is
// written as of the end of one, and what has passed of the next would be slowed again each time.
func (l *Lowered) Reached(since, now int64) int64 {
	if l == nil || since >= now {
		return since
	}
	counted := now - since
	// No part is below one in Whole.
	least, most := counted, int64(min(uint64(counted), math.MaxInt64/Whole-1)+1)*Whole
	for least < most {
		if age := least + (most-least)/2; l.Elapsed(now-age, now) < counted {
			least = age + 1
		} else {
			most = age
		}
	}
	return now - least
}

// Moved is l by a clock that is so many nanoseconds ahead.
func (l *Lowered) Moved(ahead int64) *Lowered {
	if l == nil {
		return nil
	}
	moved := &Lowered{part: l.part, steps: slices.Clone(l.steps)}
	for i := range moved.steps {
		moved.steps[i].at += ahead
	}
	return moved
}

// Stretch is how long it takes from now on to drain what the full rate drains in d, if the part in force stays what it
// is. It is rounded up.
func (l *Lowered) Stretch(d time.Duration) time.Duration {
	if l == nil || d <= 0 || l.part == Whole {
		return d
	}
	hi, lo := bits.Mul64(uint64(d), Whole)
	lo, carry := bits.Add64(lo, uint64(l.part)-1, 0)
	hi += carry
	if hi >= uint64(l.part) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(l.part))
	return time.Duration(min(q, math.MaxInt64))
}

// Lowerings are by how much the rates at an endpoint are lowered: Own for buckets that this process alone takes
// from, and Shared for those that others take from as well, which all of them agree on. Own is nil where nothing was
// lowered of late. Shared is so only while Own is too, or where the store of shared buckets cannot lower rates.
//
// AtOnce is by how much limits on how many requests are under way are lowered, of buckets that this process alone takes
// from. It has no past: what is under way is.
type Lowerings struct{ Own, Shared, AtOnce *Lowered }

// Span says what the slower clock has counted from Age ago until now, both in nanoseconds.
type Span struct{ Age, Counted int64 }

// MaxSpans is how many spans tell all that a store needs to know of a Lowered.
const MaxSpans = 8

// Spans appends to dst what the slower clock has counted up to now, for a store that has another clock: from the latest
// span to the longest, at most MaxSpans. Between two of them time counts evenly, and before the longest all of it does.
// Counted is never more than Age.
func (l *Lowered) Spans(dst []Span, now int64) []Span {
	if l == nil {
		return dst
	}
	first, last := len(dst), int64(0)
	for i := len(l.steps) - 1; i >= 0; i-- {
		age := now - l.steps[i].at
		// What is long ago need not be told as exactly; and the first of all has the last place.
		if age <= last || i > 0 && (age < 2*last || len(dst)-first == MaxSpans-1) {
			continue
		}
		dst = append(dst, Span{Age: age, Counted: l.Elapsed(l.steps[i].at, now)})
		last = age
	}
	return dst
}
