package bucket

import (
	"errors"
	"math"
	"math/bits"
	"time"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Change corrects the debt of one bucket outside of any request: a cost that became known only
// after it was spent, tokens that an operator gives back.
type Change struct {
	Key    key.Key
	Shape  rate.Shape
	Tag    uint16     // as in Take
	Reach  Reach      // as in Take
	Since  int64      // as in Take
	Before *rate.Past // as in Take

	Lowered *rate.Lowered // as in Take

	// Units of Shape are added to the debt, up to Shape.MaxDebt; or taken off it, when below zero,
	// until the bucket is full. Fill takes off everything.
	Units int64

	// Charged is the Unix time in nanoseconds at which what Units below zero give back was taken; 0
	// if it was not taken at one time. A limit that counts in windows gives back where it counted,
	// and nothing once that counts no longer. Where debt drains it does not matter: see Unspent.
	// But a store that several processes share gives back so much less as others were given since,
	// by a Change that says 0: none of them knows of the others'.
	Charged int64

	// Left is how much of that charge had not drained when the change was made, in units of Shape:
	// a change that reaches the bucket later takes off no more than is left by then. 0 stands for
	// as much as is given back. See Undrained and Due.
	Left int64

	// Renew has what Units below zero stand for counted from now on instead of given back: it is taken anew at the same
	// instant, also where the limit has become smaller. What counts no longer is taken anew if there is room. It is for
	// sliding logs alone. What moved is how many units count from now on.
	Renew bool

	// Place is which place among the requests under way Units below zero stand for, as in Take: that
	// one and no other is given back, or taken anew, however often the message arrives. A place that
	// counts no longer is taken anew whether or not there is room, because its request is under way.
	Place uint32

	// Once names a change that gives units, so that a repeat of it, by whatever process, gives none
	// again. That is for stores that several processes share; of its own buckets a process knows
	// what it has done. The zero value is for a change that is never repeated.
	Once Once
}

// Once names a change of a bucket that may be asked for again, because an answer got lost. Zero is no name.
type Once struct {
	Name uint64 // which nobody else takes by chance
	// stands for all that was asked for: a change under the same Name and of something else is
	// another one, and ErrAnother
	Of uint64
}

// Undrained is Left, where 0 stands for as much as is given back.
func (c *Change) Undrained() int64 {
	if c.Left == 0 {
		return magnitude(min(0, c.Units))
	}
	return c.Left
}

// Due is what Units are worth for a bucket that was last written at stamp, when the change was made
// at now: what has drained between the two of a charge that is given back is not given back again.
// Windows see to that themselves.
func (c *Change) Due(now, stamp int64) int64 {
	if c.Units >= 0 || c.Units == Fill || c.Charged == 0 || stamp <= now || !c.Shape.Algorithm.Drains() {
		return c.Units
	}
	late := time.Duration(min(uint64(stamp)-uint64(now), math.MaxInt64))
	return -min(-c.Units, undrained(c.Shape, c.Undrained(), late))
}

// ErrAnother is that something else was asked for under the name of a change. Nothing was changed then.
var ErrAnother = errors.New("another change was made under the same name")

// Fill is the Units of a Change that makes a bucket full.
const Fill = math.MinInt64

// Shift adds units of debt, or takes them off when below zero, and reports how many it did. Debt
// that is added may lie beyond the burst, up to sh.MaxDebt: it was spent already, so refusing it
// would not bring it back, and later takes wait until it has drained. A bucket that owes more than
// that for another reason keeps what it owes.
//
// Under a limit that counts in windows see shiftWindow.
func (s State) Shift(now int64, sh rate.Shape, units, charged int64) (after State, moved int64) {
	if !sh.Algorithm.Drains() {
		return s.shiftWindow(now, &sh, units, charged)
	}
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

// shiftWindow is Shift for windows. Tokens that are added count from now on, up to the limit: a
// window has no room for more, and passes as a whole. Those that were charged at one time leave the
// window that counted them. Others leave the latest window first, and moved says how many did, of
// which those of the last sliding window only weighed a part.
func (s State) shiftWindow(now int64, sh *rate.Shape, units, charged int64) (after State, moved int64) {
	w := s.roll(now, sh)
	switch {
	case units > 0:
		moved = min(units, max(0, sh.Capacity-w.used(now, sh)))
		w.Debt += moved
	case units < 0 && charged != 0:
		before := w.counted(sh)
		w = w.refundWindow(now, sh, magnitude(units), charged)
		moved = w.counted(sh) - before
	case units < 0:
		prev, cur := int64(0), w.Debt
		if sh.Algorithm == rate.SlidingWindow {
			prev, cur = w.counts()
		}
		back := min(magnitude(units), prev+cur)
		latest := min(back, cur)
		w.Debt = (prev-(back-latest))<<32 | (cur - latest)
		moved = -back
	}
	if moved == 0 {
		return s, 0
	}
	return w, moved
}

// counted is how many tokens both windows counted, whatever they weigh now.
func (s State) counted(sh *rate.Shape) int64 {
	if sh.Algorithm != rate.SlidingWindow {
		return s.Debt
	}
	prev, cur := s.counts()
	return prev + cur
}

// magnitude is -units, for units below zero.
func magnitude(units int64) int64 {
	if units == Fill {
		return math.MaxInt64
	}
	return -units
}

// Shift is State.Shift for sliding logs, with cells in place of windows.
func (l Log) Shift(now int64, sh *rate.Shape, units, charged int64) (after Log, moved int64) {
	moving := l.roll(now, sh)
	before := moving.used()
	switch {
	case units > 0:
		moving.Counts[0] += uint32(min(units, max(0, sh.Capacity-before)))
	case units < 0 && charged != 0:
		moving = moving.Refund(now, sh, magnitude(units), charged)
	case units < 0:
		back := magnitude(units)
		for i := range moving.Counts {
			latest := min(back, int64(moving.Counts[i]))
			moving.Counts[i] -= uint32(latest)
			back -= latest
		}
	}
	if moved = moving.used() - before; moved == 0 {
		return l, 0
	}
	return moving, moved
}

// Renew counts units from now on that were charged at the Unix time charged, and reports how many: all that counted
// still, and of the rest what there is room for. They count in the cell that holds now, even if others came before
// whose now was later: there they are looked for the next time.
func (l Log) Renew(now int64, sh *rate.Shape, units, charged int64) (after Log, renewed int64) {
	l = l.roll(now, sh)
	before := l.used()
	after = l.Refund(now, sh, units, charged)
	kept := before - after.used()
	renewed = min(units, kept+max(0, sh.Capacity-before))
	i := after.cellOf(now, sh)
	if i > LogCells {
		i = 0 // by such a clock they would not count at all
	}
	after.Counts[i] = uint32(min(int64(after.Counts[i])+renewed, math.MaxUint32))
	return after, renewed
}

// Unspent is what may be given back at now, in units of to, of a charge of units under from at the
// Unix time charged, of which back turned out to be too much. That is all of back as long as so
// much of the charge has not drained, and then what has not: the part that was rightly charged
// drains first. It is rounded down, because a refund must never grant; with it the bucket owes at
// least what it would had only the right part been charged.
//
// When the limit has changed meanwhile, the charge is taken to have drained at the faster of both
// rates all the time. And as Convert may have forgiven what did not fit under a smaller burst, the
// difference of both bursts is not given back either. If a limit changed more than once under one
// charge, what the limits between gave back or forgave is not known here, so nothing should be:
// that is for the caller to see.
//
// A limit that counts in windows takes the charge out of the window that counted it
// (Change.Charged), so all of back may be given back; but only if it is the same limit, because
// nobody knows what became of one charge when counts were converted.
func Unspent(from, to rate.Shape, units, back, charged, now int64) int64 {
	if units <= 0 || back <= 0 || from.Unit <= 0 || to.Unit <= 0 {
		return 0
	}
	back = min(back, units)
	if !from.Algorithm.Drains() || !to.Algorithm.Drains() {
		if from != to {
			return 0
		}
		return back
	}
	elapsed := time.Duration(0)
	if now > charged {
		elapsed = time.Duration(min(uint64(now)-uint64(charged), math.MaxInt64))
	}
	if from == to {
		return min(back, undrained(from, units, elapsed))
	}
	left := min(scale(min(back, undrained(from, units, elapsed)), from, to),
		undrained(to, scale(units, from, to), elapsed))
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
	return min(Rescale(units, to.Unit, from.Unit, false), rate.MaxCapacity)
}

// Rescale restates units of 0 or more, of which a token has from, as those of which it has to, at
// most math.MaxInt64. What is not whole is rounded up or down.
func Rescale(units, to, from int64, up bool) int64 {
	hi, lo := bits.Mul64(uint64(units), uint64(to))
	if up {
		var carry uint64
		lo, carry = bits.Add64(lo, uint64(from)-1, 0)
		hi += carry
	}
	if hi >= uint64(from) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(from))
	return int64(min(q, math.MaxInt64))
}
