package bucket

import (
	"math"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// A limit may change more than once before its bucket is charged again. Each limit then governs its
// own part of that time: what is owed drains at the first rate until the first change, is
// converted, drains at the second rate until the second, and so on, just as if the bucket had been
// converted at every change; but where windows begin for its key matters only under the last. With
// a burst of 10, spent at 0 s, and limits of 1 per second, 1 per hour from 2 s on and 5 per second
// from 9 s on:
//
//	at 9 s   owed
//	         8     1 per second for 2 s, then next to nothing
//	         1     were the hour skipped, and 7 tokens granted that no limit gave back

// Held is a bucket as a store finds it: of any algorithm, as it was left under a shape.
type Held struct {
	Shape rate.Shape // of a sliding log Algorithm and Tick alone matter
	State State
	Log   Log // in place of State, if Shape is a sliding log

	alone bool // nothing was admitted since it was converted to Shape
}

// Follow takes h, the bucket of t.Key, through all the changes of its limit since it was last
// written, to t.Shape, and reports false if there were none.
//
// Which changes those are is told by the time of the last write. Where windows are counted, that is
// only known to lie in the window: then a limit that is as it was counts as unchanged. A change
// that lies in the future, for clocks that differ, counts as one of now.
func (h *Held) Follow(now int64, t *Take) (changed bool) {
	var room [rate.MaxPast + 1]*rate.Past
	steps, grown := room[:0], false
	own := rate.Past{Shape: t.Shape, Since: t.Since, Before: t.Before}
	first, last := h.written()
	for e := &own; e != nil; e = e.Before {
		since := min(e.Since, now)
		if since <= last && alike(&h.Shape, &e.Shape) {
			break
		}
		if since <= first && e != &own && e.Shape != (rate.Shape{}) {
			// Written while this one was in force, but in another shape: by a request that had
			// resolved its rules before the change, or with an allowance on top. It goes on at this
			// one's rate.
			h.convert(t.Key, &e.Shape, first, rate.MaxCapacity)
			grown = true
			break
		}
		if steps = append(steps, e); since <= first {
			break
		}
	}
	for i := len(steps) - 1; i >= 0; i-- {
		to, since := &steps[i].Shape, min(steps[i].Since, now)
		if h.Shape.Algorithm == rate.TokenBucket { // what is owed has drained at the rate in force
			h.State.Stamp = t.Slower().Since(h.State.Stamp, since)
		}
		switch {
		case i > 0 && *to == (rate.Shape{}):
			h.hold(since, min(steps[i-1].Since, now), steps[i].Window > 0)
			changed = true
		case grown || !alike(&h.Shape, to):
			h.convert(t.Key, to, since, to.Capacity)
			changed, grown = true, false
		default:
			h.Shape = *to
		}
	}
	if h.Shape.Algorithm != rate.SlidingLog {
		h.State = h.State.Align(t.Key, &h.Shape)
	}
	return changed
}

// Unused is the bucket of t if nobody ever charged it and its past says that it was spent
// (rate.Past.Spent), in terms of t.Shape. It reports false if the past says nothing of the kind:
// then it is full.
func (t *Take) Unused(now int64) (h Held, spent bool) {
	oldest := rate.Past{Shape: t.Shape, Since: t.Since, Before: t.Before}
	for oldest.Before != nil && !oldest.Before.Spent {
		oldest = *oldest.Before
	}
	if oldest.Before == nil {
		return h, false
	}
	h.Shape = oldest.Shape
	h.owe(t.Key, oldest.Shape.Burst(), min(oldest.Since, now))
	h.Follow(now, t)
	return h, true
}

// alike says whether a bucket means the same under both shapes. The counts of a log do under every limit of one window.
func alike(a, b *rate.Shape) bool {
	if a.Algorithm == rate.SlidingLog {
		return b.Algorithm == rate.SlidingLog && a.Tick == b.Tick
	}
	return *a == *b
}

// written is when h was last charged: then or in between.
func (h *Held) written() (first, last int64) {
	switch {
	case h.Shape.Algorithm == rate.SlidingLog:
		return h.Log.Stamp, addSaturating(h.Log.Stamp, cell(&h.Shape)-1)
	case !h.Shape.Algorithm.Drains():
		return h.State.Stamp, addSaturating(h.State.Stamp, h.Shape.Tick-1)
	}
	return h.State.Stamp, h.State.Stamp
}

// convert is State.Convert for every algorithm, with a bound on debt that drains.
func (h *Held) convert(k key.Key, to *rate.Shape, at, most int64) {
	from := h.Shape
	h.Shape = *to
	fromLog, toLog := from.Algorithm == rate.SlidingLog, to.Algorithm == rate.SlidingLog
	alone := h.alone
	h.alone = true
	switch {
	case fromLog && toLog && from.Tick == to.Tick:
	case fromLog && toLog:
		// All of it, as where the window stays: what is given back later is given back of all.
		at = max(at, h.Log.Stamp)
		owed := h.Log.Owed(&from, at)
		h.owe(k, 0, at)
		h.Log.Counts[0] = uint32(min(owed, math.MaxUint32))
	case fromLog:
		at = max(at, h.Log.Stamp)
		h.owe(k, h.Log.Owed(&from, at), at)
	case toLog:
		at = max(at, h.State.Stamp)
		h.owe(k, h.owed(&from, alone, at), at)
	case from.Algorithm.Drains() && to.Algorithm.Drains():
		h.State = h.State.convertDebt(from, *to, at, most)
	default:
		h.State = h.State.convertWindow(&from, to, at, alone)
	}
}

func (h *Held) owed(sh *rate.Shape, alone bool, at int64) int64 {
	if alone {
		return h.State.owedAlone(sh, at)
	}
	return h.State.Owed(sh, at)
}

// owe makes h the bucket that owes so many tokens since at.
func (h *Held) owe(k key.Key, tokens, at int64) {
	if h.Shape.Algorithm == rate.SlidingLog {
		h.State, h.Log = State{}, OwingLog(k, &h.Shape, tokens, at)
		return
	}
	h.State, h.Log = Owing(&h.Shape, tokens, at), Log{}
}

// tokens is a shape of tokens that do not drain to speak of.
var tokens = rate.Shape{Drain: 1, Unit: 1, Capacity: rate.MaxCapacity, Tick: 1_000_000}

// hold lets a time pass in which nobody knows what drained: nothing. If whole tokens were counted
// in it, parts of one are owed as one.
func (h *Held) hold(from, until int64, counted bool) {
	switch {
	case h.Shape.Algorithm == rate.SlidingLog:
		from = max(from, h.Log.Stamp)
		h.State, h.Log, h.Shape = State{Debt: h.Log.Owed(&h.Shape, from), Stamp: max(from, until)}, Log{}, tokens
	case !h.Shape.Algorithm.Drains():
		from = max(from, h.State.Stamp)
		h.State, h.Shape = State{Debt: h.owed(&h.Shape, h.alone, from), Stamp: max(from, until)}, tokens
	case counted:
		h.State, h.Shape = State{Debt: h.State.Owed(&h.Shape, from), Stamp: max(h.State.Stamp, until)}, tokens
	default:
		d, credit := h.State.drain(from, &h.Shape)
		h.State = State{Debt: d.Debt - credit, Stamp: max(h.State.Stamp, until)}
	}
	h.alone = true
}
