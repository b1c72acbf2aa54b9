package bucket

import (
	"math"
	"time"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// LogCells is how many cells a window of a sliding log has. More let tokens come back sooner after
// their window, and take more room.
const LogCells = 25

// Log is a sliding log at rest: a bucket that counts what was admitted in short cells, and admits
// no more than the limit in any window whatever, wherever it begins. Counts[i] was admitted in the
// cell that began i cells before Stamp. All of a cell counts as long as any part of it lies in the
// window, so one more cell is counted than a window has, and a token comes back when its cell has
// left the window: up to a cell, a 25th of the window, later than it might. The zero Log is a full
// bucket.
//
// With 10 per 25 seconds, in cells of a second:
//
//	  at    take   counts           answer
//	 0.9 s     4   4                allowed, 6 remain
//	 5.0 s     6   6 _ _ _ _ 4      allowed, 0 remain
//	25.9 s     1                    retry after 0.1 s, when the first cell has left
//	26.0 s     4   4 (20 x _) 6     allowed, 0 remain
//
// Like those of State its methods are pure, and a present before Stamp counts as Stamp.
type Log struct {
	Stamp  int64 // when the latest cell began
	Counts [LogCells + 1]uint32
}

// cell is how long a cell lasts. When the window is no multiple, the last cell reaches beyond it.
func cell(sh *rate.Shape) int64 { return (sh.Tick-1)/LogCells + 1 }

// lasting is how long the latest cell counts.
func lasting(sh *rate.Shape) int64 { return (LogCells + 1) * cell(sh) }

// FullLog is the log of a key of which nothing was taken yet. Cells of different keys end at different times.
func FullLog(k key.Key, sh *rate.Shape) Log { return Log{Stamp: phase(k, cell(sh))} }

// SpentLog is the log of a key of which nothing is left until the Unix time until, rounded down to
// the end of one of its cells.
func SpentLog(k key.Key, sh *rate.Shape, until int64) Log {
	return OwingLog(k, sh, sh.Capacity, subSaturating(begin(k, cell(sh), until), lasting(sh)))
}

// OwingLog is the log of a key that has owed tokens less than a full one at the Unix time at, but
// no more than it holds.
func OwingLog(k key.Key, sh *rate.Shape, owed, at int64) Log {
	l := Log{Stamp: begin(k, cell(sh), at)}
	l.Counts[0] = uint32(min(owed, sh.Capacity))
	return l
}

// CountedUntil is until when a log of a key counts what it was charged at the Unix time at.
func CountedUntil(k key.Key, sh *rate.Shape, at int64) int64 {
	return addSaturating(begin(k, cell(sh), at), lasting(sh))
}

// roll moves l on to the cell that holds now.
func (l Log) roll(now int64, sh *rate.Shape) Log {
	if now <= l.Stamp {
		return l
	}
	width := uint64(cell(sh))
	cells := (uint64(now) - uint64(l.Stamp)) / width
	if cells == 0 {
		return l
	}
	moved := Log{Stamp: l.Stamp + int64(cells*width)} // wraps around to the right time
	if cells <= LogCells {
		copy(moved.Counts[cells:], l.Counts[:])
	}
	return moved
}

// used is the sum of all counts. Two sums are done at a time: each addition waits for the one before.
func (l *Log) used() int64 {
	var even, odd int64
	for i := 0; i < len(l.Counts)-1; i += 2 {
		even += int64(l.Counts[i])
		odd += int64(l.Counts[i+1])
	}
	return even + odd
}

var _ = [1]struct{}{}[len(Log{}.Counts)%2] // used takes them in pairs

// Take removes cost tokens, or none when fewer are left. A denied take leaves the log as it was.
func (l Log) Take(now int64, sh rate.Shape, cost int64) (after Log, o Outcome) {
	units, ok := sh.Units(cost)
	if !ok {
		l.Report(&o, now, &sh, -1, false)
		return l, o
	}
	after, ok = l.Charge(now, &sh, units)
	after.Report(&o, now, &sh, units, ok)
	return after, o
}

// Charge is Take without the report.
func (l Log) Charge(now int64, sh *rate.Shape, units int64) (Log, bool) {
	if units == 0 {
		return l, true
	}
	moved := l.roll(now, sh)
	if units > sh.Capacity-moved.used() {
		return l, false
	}
	moved.Counts[0] += uint32(units)
	return moved, true
}

// Add is Charge of what was admitted already, whether it fits or not.
func (l Log) Add(now int64, sh *rate.Shape, units int64) Log {
	l = l.roll(now, sh)
	l.Counts[0] = uint32(min(int64(l.Counts[0])+units, math.MaxUint32))
	return l
}

// Report writes into o how the log stands at now, after Charge was asked for units and answered
// allowed; see State.Report.
func (l Log) Report(o *Outcome, now int64, sh *rate.Shape, units int64, allowed bool) {
	*o = Outcome{Allowed: allowed, Never: !allowed && (units < 0 || units > sh.Capacity)}
	moved := l.roll(now, sh)
	used := moved.used()
	if now < moved.Stamp {
		o.Later = time.Duration(subSaturating(moved.Stamp, now))
	}
	o.Remaining = max(0, sh.Capacity-used)
	o.ResetAfter = moved.after(now, moved.releases(sh, used))
	if !allowed && !o.Never {
		o.RetryAfter = moved.after(now, moved.releases(sh, used+units-sh.Capacity))
	}
}

// TakeNow is Charge and Report where l stands, without a copy, if its latest cell holds now. It reports false for done,
// and has done nothing, if that is another. Unless commit is set it writes the answer alone.
func (l *Log) TakeNow(now int64, sh *rate.Shape, units int64, commit bool, o *Outcome) (allowed, done bool) {
	if now < l.Stamp || uint64(now)-uint64(l.Stamp) >= uint64(cell(sh)) {
		return false, false
	}
	used, latest := l.used(), 0
	allowed = units == 0 || units <= sh.Capacity-used
	if allowed && units > 0 {
		used += units
		if commit {
			l.Counts[0] += uint32(units)
		}
	} else {
		for latest <= LogCells && l.Counts[latest] == 0 {
			latest++
		}
	}
	*o = Outcome{Allowed: allowed, Never: !allowed && units > sh.Capacity, Remaining: max(0, sh.Capacity-used)}
	if used > 0 {
		o.ResetAfter = l.after(now, lasting(sh)-int64(latest)*cell(sh))
	}
	if !allowed && !o.Never {
		o.RetryAfter = l.after(now, l.releases(sh, used+units-sh.Capacity))
	}
	return allowed, true
}

// releases is how long after Stamp so many tokens have come back. The oldest do first.
func (l *Log) releases(sh *rate.Shape, tokens int64) int64 {
	if tokens <= 0 {
		return 0
	}
	for i := LogCells; i > 0; i-- {
		if tokens -= int64(l.Counts[i]); tokens <= 0 {
			return lasting(sh) - int64(i)*cell(sh)
		}
	}
	return lasting(sh)
}

func (l *Log) after(now, into int64) time.Duration { return State{Stamp: l.Stamp}.after(now, into) }

// FullAt is the Unix time in nanoseconds from which on the log is full.
func (l *Log) FullAt(sh *rate.Shape) int64 { return addSaturating(l.Stamp, l.releases(sh, l.used())) }

// Owed is how many tokens l owes at the Unix time at.
func (l Log) Owed(sh *rate.Shape, at int64) int64 {
	l = l.roll(at, sh)
	return l.used()
}

// Refund takes back units that were charged at the Unix time charged, if their cell still counts.
// Every charge counts for itself, so the others are none the richer.
func (l Log) Refund(now int64, sh *rate.Shape, units, charged int64) Log {
	l = l.roll(now, sh)
	if i := l.cellOf(charged, sh); i <= LogCells {
		l.Counts[i] -= uint32(min(units, int64(l.Counts[i])))
	}
	return l
}

// cellOf is in which of Counts that is which was charged at the Unix time at; above LogCells if it counts no more.
func (l *Log) cellOf(at int64, sh *rate.Shape) uint64 {
	if at >= l.Stamp {
		return 0
	}
	return (uint64(l.Stamp)-uint64(at)-1)/uint64(cell(sh)) + 1
}
