package rate

import (
	"math"
	"time"
)

// Past is a limit that another one replaced, and what it replaced in turn. A bucket that nobody
// charged since is converted from one to the next, each at the time when it took effect, as if that
// had been done at once. Pasts never change, so rules share them.
type Past struct {
	Shape  Shape // zero where the limits are no longer known; what was owed then counts as not having drained
	Since  int64 // the Unix time in nanoseconds at which Shape took effect; 0 means always
	Before *Past // nil if nothing before it can matter

	// Window is the longest window of the limits that are no longer known; 0 if debt drained under
	// all of them. Windows count whole tokens, so what was owed in part counts as owed in full.
	Window time.Duration

	// Spent says that nothing of this limit was left when the next took effect: a bucket that
	// nobody knows of owed all that the next one holds. The zero value says that it was full. Its
	// Shape and Since do not matter, and nothing is before it.
	Spent bool
}

// MaxPast is how many limits a past may name. What lies further back is known to have been there, and no more.
const MaxPast = 8

// late is how long after a change decisions may still be made under the limit before it: requests
// resolve their rules, and then take.
const late = 2 * time.Second

// Replaced is the past of a limit that took effect when now, or later, in place of one that was
// of shape s since since, after before.
func (s Shape) Replaced(since int64, before *Past, now int64) *Past {
	return &Past{Shape: s, Since: since, Before: s.Recall(since, before, now)}
}

// Recall is what still matters at now of the past of a limit that has had shape s since since. When
// it has lasted for so long that whatever was owed at its beginning is back, that is nothing. No
// more than MaxPast-1 limits are recalled, so that one may replace the present one.
func (s Shape) Recall(since int64, before *Past, now int64) *Past {
	recalled := before.recall(s, since, now, MaxPast-1)
	if recalled.same(before) {
		return before // which is shared
	}
	return recalled
}

// recall is Recall of a past whose successor was of shape s from since until until.
func (p *Past) recall(s Shape, since, until int64, most int) *Past {
	switch {
	case p == nil || lasted(since, until)-int64(p.longest()) >= s.settles():
		return nil
	case most == 1 && p.Before != nil:
		oldest := p
		for oldest.Before != nil {
			oldest = oldest.Before
		}
		if oldest.Shape != (Shape{}) && oldest.Since == 0 {
			// It held always, so the first to be unknown is its successor.
			for oldest = p; oldest.Before.Before != nil; {
				oldest = oldest.Before
			}
		}
		return &Past{Since: oldest.Since, Window: p.longest()}
	}
	return &Past{
		Shape:  p.Shape,
		Since:  p.Since,
		Before: p.Before.recall(p.Shape, p.Since, since, most-1),
		Window: p.Window,
		Spent:  p.Spent,
	}
}

// longest is the longest window from p on back. The first to begin after a bucket was charged may begin as much later.
func (p *Past) longest() (window time.Duration) {
	for ; p != nil; p = p.Before {
		window = max(window, p.Window, p.Shape.Window())
	}
	return window
}

func (p *Past) same(q *Past) bool {
	for ; p != nil && q != nil; p, q = p.Before, q.Before {
		if p == q {
			return true
		}
		if p.Shape != q.Shape || p.Since != q.Since || p.Window != q.Window || p.Spent != q.Spent {
			return false
		}
	}
	return p == q
}

// Settled is the time from which on no bucket owes anything that was charged under s before the
// Unix time until: not even one that owed as much as a bucket may, and has done so since before was
// its past.
func (s Shape) Settled(until int64, before *Past) int64 {
	wait := int64(s.TimeToFull(s.MaxDebt()))
	if !s.Algorithm.Drains() {
		wait = 3 * s.Tick
	}
	longer := int64(before.longest()) + int64(late)
	if wait > math.MaxInt64-longer || until > math.MaxInt64-longer-wait {
		return math.MaxInt64
	}
	return until + wait + longer
}

// settles is how long after s took effect all is back that was owed before. It was cut to the
// burst; windows begin up to one of them later, and count for two.
func (s Shape) settles() int64 {
	wait := int64(s.TimeToFull(s.Capacity))
	if !s.Algorithm.Drains() {
		wait = 3 * s.Tick
	}
	return min(wait, math.MaxInt64-int64(late)) + int64(late)
}

// lasted is how long a limit was in force; 0 if the clock stepped back.
func lasted(since, until int64) int64 {
	if until <= since {
		return 0
	}
	return int64(min(uint64(until)-uint64(since), math.MaxInt64))
}
