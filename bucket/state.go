package bucket

import (
	"math"
	"math/bits"
	"time"

	"github.com/headgate-io/headgate/rate"
)

// State is a bucket at rest: Debt units were outstanding at Stamp, a Unix time in nanoseconds. The
// zero State is a full bucket. Under an algorithm that counts in windows both words mean something
// else, see window.go.
//
// All methods are pure. They take the present as Unix nanoseconds and hand back new states; whoever
// stores a State guards it. A present before Stamp, because the clock was set back, counts as
// Stamp: it drains nothing, and Stamp is never lowered.
//
// Under a shape with a coarse tick, Debt only shrinks by whole ticks and Stamp stays on the last of
// them, so that nothing is lost between two ticks; what has drained since, in fractions of a tick,
// is counted at every decision. A coarse shape thus decides exactly as the same limit in
// nanoseconds would, and Debt may be above Capacity by less than one tick's drain.
type State struct{ Debt, Stamp int64 }

// Take removes cost tokens, or none when the bucket holds fewer. A denied take leaves the bucket as
// it was. A cost of 0 is allowed always and takes nothing.
func (s State) Take(now int64, sh rate.Shape, cost int64) (after State, o Outcome) {
	units, ok := sh.Units(cost)
	if !ok {
		s.Report(&o, now, &sh, -1, false)
		return s, o
	}
	after, ok = s.Answer(&o, now, &sh, units)
	if ok && units > 0 {
		o.Wait = s.Wait(now, &sh)
	}
	return after, o
}

// Charge is Take without the report: it adds units of debt if they fit, and says whether they did.
func (s State) Charge(now int64, sh rate.Shape, units int64) (State, bool) {
	return s.Try(now, &sh, units)
}

// Try is Charge without copying the shape, which is larger than what the compiler keeps in
// registers (24 against 30 ns for the whole decision: BenchmarkHotKey).
func (s State) Try(now int64, sh *rate.Shape, units int64) (State, bool) {
	after, _, allowed := s.Admit(now, sh, units)
	return after, allowed
}

// Admit is Try, and what ReportOf needs to drain the bucket no second time. It can wait until nobody waits for the
// bucket any more.
func (s State) Admit(now int64, sh *rate.Shape, units int64) (after State, credit int64, allowed bool) {
	if !sh.Algorithm.Drains() {
		after, allowed = s.tryWindow(now, sh, units)
		return after, 0, allowed
	}
	if units == 0 {
		return s, 0, true
	}
	d, credit := s.drain(now, sh)
	if d.Debt-credit > sh.Capacity-units {
		return s, 0, false
	}
	d.Debt += units
	return d, credit, true
}

// ReportOf is Report of what Admit answered.
func (s State) ReportOf(o *Outcome, now int64, sh *rate.Shape, units, credit int64, allowed bool) {
	if !allowed || units <= 0 || !sh.Algorithm.Drains() {
		s.Report(o, now, sh, units, allowed)
		return
	}
	*o = Outcome{Allowed: true, Remaining: s.remaining(credit, sh)}
	if s.Stamp == now { // as in whole nanoseconds, which most limits count in
		o.ResetAfter = rate.TimeToFull(sh, s.Debt)
	} else {
		o.ResetAfter = s.until(now, sh, s.Debt)
	}
}

// Report writes into o how the bucket stands at now, after Charge was asked for units and answered
// allowed. Units below zero stand for a cost that no bucket holds. It writes through a pointer
// because the copies of an Outcome by value cost more than computing it (8 against 15 ns for the
// whole take: BenchmarkReport and BenchmarkTake).
func (s State) Report(o *Outcome, now int64, sh *rate.Shape, units int64, allowed bool) {
	o.Allowed, o.Unknown = allowed, false
	o.RetryAfter, o.Wait, o.Later = 0, 0, 0
	o.Never = !allowed && (units < 0 || units > sh.Capacity)
	if sh.Drain <= 0 {
		o.Remaining, o.ResetAfter = 0, 0
		return // the zero Shape holds nothing
	}
	if !sh.Algorithm.Drains() {
		s.reportWindow(o, now, sh, units)
		return
	}
	d, credit := s.drain(now, sh)
	o.Remaining, o.ResetAfter = d.remaining(credit, sh), d.until(now, sh, d.Debt)
	if !allowed && !o.Never {
		o.RetryAfter = d.until(now, sh, d.Debt+units-sh.Capacity)
	}
}

// remaining is how many tokens a drained bucket has, of which units have drained beside what it owes.
func (s State) remaining(credit int64, sh *rate.Shape) int64 {
	return int64(uint64(max(0, sh.Capacity-s.Debt+credit)) / uint64(sh.Unit))
}

// Answer is Try, and Report of what became of it.
func (s State) Answer(o *Outcome, now int64, sh *rate.Shape, units int64) (after State, allowed bool) {
	after, credit, allowed := s.Admit(now, sh, units)
	after.ReportOf(o, now, sh, units, credit, allowed)
	return after, allowed
}

// FullAt is the Unix time in nanoseconds from which on the bucket is full; math.MaxInt64 if that lies beyond an int64.
func (s State) FullAt(sh rate.Shape) int64 {
	if !sh.Algorithm.Drains() {
		return addSaturating(s.Stamp, s.lasts(&sh))
	}
	return addSaturating(s.Stamp, int64(sh.TimeToFull(s.Debt)))
}

// Convert restates the bucket for a limit that changes at the Unix time at. What is owed stays
// owed, in tokens, rounded up to a unit, but never more than the new burst. So over any window
// across the change at most the larger of both bursts is admitted on top of what drains, and nobody
// is locked out for longer than the new limit takes to fill.
//
// Debt is what is kept, not the level, because then a full bucket stays full: forgetting it makes
// no difference under any policy.
//
// When the algorithm changes, or the length of a window, what is owed then counts as taken at the
// time at. Align it afterwards.
func (s State) Convert(from, to rate.Shape, at int64) State {
	if !from.Algorithm.Drains() || !to.Algorithm.Drains() {
		return s.convertWindow(&from, &to, at, false)
	}
	return s.convertDebt(from, to, at, to.Capacity)
}

// convertDebt is Convert where debt drains, and no more than most is owed then.
func (s State) convertDebt(from, to rate.Shape, at, most int64) State {
	d, credit := s.drain(at, &from)
	d = State{Debt: d.Debt - credit, Stamp: max(s.Stamp, at)}
	if d.Debt == 0 || from.Unit == 0 {
		return State{Stamp: d.Stamp}
	}
	hi, lo := bits.Mul64(uint64(d.Debt), uint64(to.Unit))
	lo, carry := bits.Add64(lo, uint64(from.Unit)-1, 0)
	hi += carry
	d.Debt = most
	if hi < uint64(from.Unit) {
		owed, _ := bits.Div64(hi, lo, uint64(from.Unit))
		d.Debt = int64(min(owed, uint64(most)))
	}
	return d
}

// Refund gives back units that were charged at the Unix time charged: for a login that succeeded,
// or a part of a decision that failed elsewhere. What has drained since then was given back by time
// already, and giving it back twice would grant tokens that nobody paid for.
func (s State) Refund(now int64, sh rate.Shape, units, charged int64) State {
	if !sh.Algorithm.Drains() {
		return s.refundWindow(now, &sh, units, charged)
	}
	d, _ := s.drain(now, &sh)
	if latest := max(now, s.Stamp); latest > charged {
		elapsed := min(uint64(latest)-uint64(charged), math.MaxInt64)
		units -= min(units, sh.Drained(time.Duration(elapsed)))
		if sh.Tick > 1 {
			units-- // Drained rounds down, and a refund must not
		}
	}
	d.Debt = max(0, d.Debt-max(0, units))
	return d
}

// drain lets time pass until now. In d whole ticks have passed; credit is how many of d's units
// have drained since d.Stamp on top, always 0 under ticks of a nanosecond. It is small enough to be
// inlined, because Report asks again at the time that Try moved the bucket to: half a nanosecond of
// 23 (BenchmarkHotKey).
func (s State) drain(now int64, sh *rate.Shape) (d State, credit int64) {
	if now <= s.Stamp {
		return s, 0
	}
	return s.drainFor(now, sh)
}

// drainFor is drain when now is later than s.Stamp.
func (s State) drainFor(now int64, sh *rate.Shape) (d State, credit int64) {
	// the difference wraps around to the right unsigned number
	hi, lo := bits.Mul64(uint64(now-s.Stamp), uint64(sh.Drain))
	if sh.Tick != 1 {
		return s.drainCoarse(now, sh, hi, lo)
	}
	if hi != 0 || lo > uint64(s.Debt) {
		lo = uint64(s.Debt)
	}
	return State{s.Debt - int64(lo), now}, 0
}

// drainCoarse is drain for ticks above a nanosecond. (hi, lo) is what has drained, in Tick-ths of a unit.
func (s State) drainCoarse(now int64, sh *rate.Shape, hi, lo uint64) (d State, credit int64) {
	tick := uint64(sh.Tick)
	if tick == 0 {
		return s, 0 // the zero Shape drains nothing
	}
	oweHi, oweLo := bits.Mul64(uint64(s.Debt), tick)
	if hi > oweHi || hi == oweHi && lo >= oweLo {
		return State{Stamp: now}, 0 // full: the tick of the next debt starts with it
	}
	elapsed := uint64(now - s.Stamp)
	whole, part := elapsed/tick, elapsed%tick
	d = State{Debt: s.Debt - int64(whole)*sh.Drain, Stamp: s.Stamp + int64(whole*tick)}
	return d, int64(part * uint64(sh.Drain) / tick)
}

// until is the time from now until units of debt have drained since s.Stamp.
func (s State) until(now int64, sh *rate.Shape, units int64) time.Duration {
	if units <= 0 {
		return 0
	}
	wait := int64(rate.TimeToFull(sh, units))
	if now >= s.Stamp {
		return time.Duration(uint64(wait) - min(uint64(wait), uint64(now)-uint64(s.Stamp)))
	}
	back := min(uint64(s.Stamp)-uint64(now), math.MaxInt64)
	return time.Duration(addSaturating(wait, int64(back)))
}

// addSaturating adds b >= 0 to a.
func addSaturating(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
