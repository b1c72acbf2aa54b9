package bucket

import (
	"math"
	"math/bits"
	"time"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Change corrects the debt of one bucket outside of any request: a cost that became known only after it was spent, tokens that an operator
// gives back.
type Change struct {
	Key   key.Key
	Shape rate.Shape
	Since int64 // as in Take

	// Units of Shape are added to the debt, up to Shape.MaxDebt; or taken off it, when below zero, until the bucket is full. Fill takes
	// off everything.
	Units int64
}

// Fill is the Units of a Change that makes a bucket full.
const Fill = math.MinInt64

// Shift adds units of debt, or takes them off when below zero, and reports how many it did. Debt that is added may lie beyond the burst, up
// to sh.MaxDebt: it was spent already, so refusing it would not bring it back, and later takes wait until it has drained. A bucket that
// owes more than that for another reason keeps what it owes.
func (s State) Shift(now int64, sh rate.Shape, units int64) (after State, moved int64) {
	d, credit := s.drain(now, &sh)
	owed := d.Debt - credit
	switch {
	case units == 0:
		return s, 0
	case units > 0:
		moved = min(units, max(0, sh.MaxDebt()-owed))
		d.Debt += moved
	case units <= -owed: // also Fill, whose negation would overflow
		return State{Stamp: max(now, s.Stamp)}, -owed
	default:
		// What has drained in the tick that has begun is counted at every decision, so it is not taken off here.
		moved = units
		d.Debt += units
	}
	return d, moved
}

// Unspent is what may be given back at now, in units of to, of a charge of units under from at the Unix time charged, of which back turned
// out to be too much. That is all of back as long as so much of the charge has not drained, and then what has not: the part that was
// rightly charged drains first. It is rounded down, because a refund must never grant; with it the bucket owes at least what it would had
// only the right part been charged.
//
// When the limit has changed meanwhile, the charge is taken to have drained at the faster of both rates all the time. And as Convert may
// have forgiven what did not fit under a smaller burst, the difference of both bursts is not given back either. If a limit changes more than
// once under one charge, what the limits between forgave is not known here; it is bounded by their steps up, as after every change.
func Unspent(from, to rate.Shape, units, back, charged, now int64) int64 {
	if units <= 0 || back <= 0 || from.Unit <= 0 || to.Unit <= 0 {
		return 0
	}
	back = min(back, units)
	elapsed := time.Duration(0)
	if now > charged {
		elapsed = time.Duration(min(uint64(now)-uint64(charged), math.MaxInt64))
	}
	if from == to {
		return min(back, undrained(from, units, elapsed))
	}
	left := min(scale(min(back, undrained(from, units, elapsed)), from, to), undrained(to, scale(units, from, to), elapsed))
	if most := scale(from.Capacity, from, to); most >= to.Capacity {
		left -= most - to.Capacity + 1 // scale rounds down
	}
	return max(0, left)
}

// undrained is what is left of units after elapsed, rounded down.
func undrained(sh rate.Shape, units int64, elapsed time.Duration) int64 {
	units -= min(units, sh.Drained(elapsed))
	if sh.Tick > 1 && elapsed > 0 {
		units-- // Drained rounds down
	}
	return max(0, units)
}

// scale restates units of one shape in those of another, rounded down, at most rate.MaxCapacity.
func scale(units int64, from, to rate.Shape) int64 {
	hi, lo := bits.Mul64(uint64(units), uint64(to.Unit))
	if hi >= uint64(from.Unit) {
		return rate.MaxCapacity
	}
	q, _ := bits.Div64(hi, lo, uint64(from.Unit))
	return int64(min(q, rate.MaxCapacity))
}
