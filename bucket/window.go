package bucket

import (
	"math"
	"math/bits"
	"time"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// A window is counted in the two words of a State as well. Stamp is when the window began, Debt
// what was admitted in it: the count itself in a fixed window; in a sliding window the count in the
// low half, and that of the window before in the high half. As time passes, the window that began
// at Stamp is followed by others of the same length, in which nothing was admitted yet.
//
// Where windows begin is different for every key, so that they do not all end at once (Full,
// Align); Stamp carries it along.
//
// A sliding window of length W counts cur, and as much of prev as would lie in the last W if it had
// been evenly spread: at el after the beginning of the window prev*(W-el)/W. With 10 per minute:
//
//	   at       take   prev  cur   counts         answer
//	   0:00       10      0    0   0              allowed, 0 remain
//	   0:59        1      0   10   10             retry after 7 s, at 1:06
//	   1:05        1     10    0   9.17, so 10    retry after 1 s
//	   1:06        1     10    0   9              allowed, 0 remain

// Full is the bucket of which nothing was taken yet.
func Full(k key.Key, sh *rate.Shape) State {
	if sh.Algorithm.Drains() {
		return State{}
	}
	return State{Stamp: first(k, sh)}
}

// Align lets the window of a state begin where k's windows do, at the first such time that is not
// before its own: after Convert, which knows no key. What is owed is then owed for a whole window
// at least. At the last such time before, the first window after a change could end at once, and
// admit its limit on top of all that was admitted under the old one. A bucket that owes nothing
// gets the window that one has that was never seen.
func (s State) Align(k key.Key, sh *rate.Shape) State {
	if sh.Algorithm.Drains() {
		return s
	}
	switch at := beginFrom(first(k, sh), sh.Tick, s.Stamp); {
	case s.Debt == 0:
		s.Stamp = at
	case at != s.Stamp:
		s.Stamp = addSaturating(at, sh.Tick)
	}
	return s
}

// Spent is the bucket of a key of which nothing is left until the Unix time until, rounded down to
// the end of one of its windows; how far the last of a sliding window has slid away by then, it
// gives back.
func Spent(k key.Key, sh *rate.Shape, until int64) State {
	end := beginFrom(first(k, sh), sh.Tick, until)
	if sh.Algorithm == rate.SlidingWindow {
		return State{Debt: sh.Capacity<<32 | sh.Capacity, Stamp: subSaturating(end, 2*sh.Tick)}
	}
	return State{Debt: sh.Capacity, Stamp: subSaturating(end, sh.Tick)}
}

// first is when the first window of a bucket begins.
func first(k key.Key, sh *rate.Shape) int64 {
	if sh.Phase > 0 {
		return int64(sh.Phase-1) * 1e9 % sh.Tick
	}
	return phase(k, sh.Tick)
}

// phase is when the first window of a key begins, or its first cell.
func phase(k key.Key, length int64) int64 {
	at, _ := bits.Mul64(k.Lo, uint64(length))
	return int64(at)
}

// begin is when the window of k began that holds at.
func begin(k key.Key, length, at int64) int64 { return beginFrom(phase(k, length), length, at) }

// beginFrom is begin where the first window begins at from, 0 or more.
func beginFrom(from, length, at int64) int64 {
	elapsed := at%length - from
	for elapsed < 0 { // twice at most
		elapsed += length
	}
	return subSaturating(at, elapsed%length)
}

// roll moves s on to the window that holds now.
func (s State) roll(now int64, sh *rate.Shape) State {
	if now <= s.Stamp {
		return s
	}
	windows := (uint64(now) - uint64(s.Stamp)) / uint64(sh.Tick)
	if windows == 0 {
		return s
	}
	s.Stamp += int64(windows * uint64(sh.Tick)) // wraps around to the right time
	if s.Debt = s.Debt << 32; sh.Algorithm != rate.SlidingWindow || windows > 1 {
		s.Debt = 0
	}
	return s
}

// counts takes Debt of a sliding window apart.
func (s State) counts() (prev, cur int64) { return s.Debt >> 32, s.Debt & math.MaxUint32 }

// used is how many tokens count at now, after roll.
func (s State) used(now int64, sh *rate.Shape) int64 {
	if sh.Algorithm != rate.SlidingWindow {
		return s.Debt
	}
	prev, cur := s.counts()
	return cur + s.overlaps(prev, now, sh)
}

// overlaps is how much of the last window's count lies in the last W, rounded up.
func (s State) overlaps(prev, now int64, sh *rate.Shape) int64 {
	hi, lo := bits.Mul64(uint64(prev), uint64(sh.Tick-s.into(now)))
	lo, carry := bits.Add64(lo, uint64(sh.Tick)-1, 0)
	counting, _ := bits.Div64(hi+carry, lo, uint64(sh.Tick)) // at most prev
	return int64(counting)
}

// into is how much of the window has passed at now, after roll.
func (s State) into(now int64) int64 { return max(now, s.Stamp) - s.Stamp }

// tryWindow is Try for windows.
func (s State) tryWindow(now int64, sh *rate.Shape, units int64) (State, bool) {
	if units == 0 {
		return s, true
	}
	w := s.roll(now, sh)
	if units < 0 || units > sh.Capacity-w.used(now, sh) {
		return s, false
	}
	w.Debt += units
	return w, true
}

// reportWindow is Report for windows. Allowed, Never and the zeros are written already.
func (s State) reportWindow(o *Outcome, now int64, sh *rate.Shape, units int64) {
	w := s.roll(now, sh)
	used := w.used(now, sh)
	o.Remaining = max(0, sh.Capacity-used)
	o.ResetAfter = w.after(now, w.lasts(sh))
	if now < w.Stamp {
		o.Later = time.Duration(subSaturating(w.Stamp, now))
	}
	if !o.Allowed && !o.Never {
		o.RetryAfter = w.after(now, w.admits(sh, units))
	}
}

// after is the time from now until into a window, which is 0 for no time at all.
func (s State) after(now, into int64) time.Duration {
	switch {
	case into == 0:
		return 0
	case now >= s.Stamp:
		return time.Duration(into - (now - s.Stamp))
	}
	back := min(uint64(s.Stamp)-uint64(now), math.MaxInt64)
	return time.Duration(addSaturating(into, int64(back)))
}

// lasts is how long after Stamp what was counted counts.
func (s State) lasts(sh *rate.Shape) int64 {
	switch {
	case s.Debt == 0:
		return 0
	case sh.Algorithm == rate.SlidingWindow && s.Debt&math.MaxUint32 != 0:
		return 2 * sh.Tick
	}
	return sh.Tick
}

// admits is how long after Stamp the window, or one of the next two, admits units that it denied.
// In a sliding window prev has to have slid away until no more than the rest of the limit is left
// of it: prev*(W-el) <= (L-cur-units)*W.
func (s State) admits(sh *rate.Shape, units int64) int64 {
	if sh.Algorithm != rate.SlidingWindow {
		return sh.Tick
	}
	prev, cur := s.counts()
	if rest := sh.Capacity - cur - units; rest >= 0 {
		return slid(sh, prev, rest)
	}
	return sh.Tick + slid(sh, cur, sh.Capacity-units)
}

// slid is how far into a window no more than rest of count counts.
func slid(sh *rate.Shape, count, rest int64) int64 {
	if rest >= count {
		return 0
	}
	hi, lo := bits.Mul64(uint64(rest), uint64(sh.Tick))
	left, _ := bits.Div64(hi, lo, uint64(count))
	return sh.Tick - int64(left)
}

// Owed is how many tokens s owes at the Unix time at, rounded up: in any interval until then no
// more was admitted than this and what comes back in it at the rate of the limit. A fixed window
// owes for the last one as a sliding window does, and where it does not know how much, it owes for
// all.
func (s State) Owed(sh *rate.Shape, at int64) int64 {
	if sh.Unit == 0 || s.Debt == 0 {
		return 0
	}
	if sh.Algorithm == rate.FixedWindow {
		if w := s.roll(at, sh); w.Stamp == s.Stamp {
			return addSaturating(w.Debt, w.overlaps(sh.Capacity, at, sh))
		}
	}
	return s.owedAlone(sh, at)
}

// owedAlone is Owed where it is known that the window before counted nothing, as nothing was
// admitted since s was converted to sh.
func (s State) owedAlone(sh *rate.Shape, at int64) int64 {
	switch {
	case sh.Unit == 0 || s.Debt == 0:
		return 0
	case sh.Algorithm == rate.FixedWindow:
		w := s.roll(at, sh)
		if w.Stamp == s.Stamp {
			return w.Debt
		}
		if uint64(w.Stamp)-uint64(s.Stamp) == uint64(sh.Tick) {
			return w.overlaps(s.Debt, at, sh)
		}
		return 0
	case !sh.Algorithm.Drains():
		return s.roll(at, sh).used(at, sh)
	}
	d, credit := s.drain(at, sh)
	return (max(0, d.Debt-credit) + sh.Unit - 1) / sh.Unit
}

// ForgottenAt is the Unix time from which on what s held matters no longer, to no rule that may
// come: when it is full, and for a fixed window when the next one has ended.
func (s State) ForgottenAt(sh *rate.Shape) int64 {
	at := s.FullAt(*sh)
	if sh.Algorithm == rate.FixedWindow && s.Debt > 0 {
		at = addSaturating(at, sh.Tick)
	}
	return at
}

// Owing is the bucket that has owed tokens less than a full one at the Unix time at, but no more than it holds.
func Owing(sh *rate.Shape, owed, at int64) State {
	units, possible := sh.Units(owed)
	if !possible {
		units = sh.Capacity
	}
	return State{Debt: units, Stamp: at}
}

// convertWindow is Convert where one of both counts in windows. While the window stays as long as
// it is, the counts stay too. Alone says that nothing was admitted under from.
func (s State) convertWindow(from, to *rate.Shape, at int64, alone bool) State {
	if from.Algorithm != to.Algorithm || from.Tick != to.Tick {
		stamp := max(at, s.Stamp)
		if alone {
			return Owing(to, s.owedAlone(from, stamp), stamp)
		}
		return Owing(to, s.Owed(from, stamp), stamp)
	}
	if to.Algorithm == rate.SlidingWindow {
		prev, cur := s.counts()
		s.Debt = min(prev, to.Capacity)<<32 | min(cur, to.Capacity)
		return s
	}
	s.Debt = min(s.Debt, to.Capacity)
	return s
}

// refundWindow is Refund for windows. What still counts is taken out of the window that it was
// counted in; as windows count every charge for itself, the others are none the richer.
func (s State) refundWindow(now int64, sh *rate.Shape, units, charged int64) State {
	w := s.roll(now, sh)
	switch {
	case charged >= w.Stamp:
		count := w.Debt
		if sh.Algorithm == rate.SlidingWindow {
			count &= math.MaxUint32
		}
		w.Debt -= min(units, count)
	case sh.Algorithm == rate.SlidingWindow && charged >= subSaturating(w.Stamp, sh.Tick):
		w.Debt -= min(units, w.Debt>>32) << 32
	}
	return w
}

// subSaturating takes b >= 0 from a.
func subSaturating(a, b int64) int64 {
	if a < math.MinInt64+b {
		return math.MinInt64
	}
	return a - b
}
