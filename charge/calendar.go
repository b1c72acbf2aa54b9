package charge

import (
	"encoding/binary"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// calendarWindow is the shape of the bucket of a rule by the calendar: a window that is the day, week or month of now.
// It appends to p.bytes which one that is, so that each has a bucket of its own.
//
// The calendar is that of the wall clock, and buckets go by a clock that never steps (headgate.Clock). By how much the
// first is ahead is held to a second, so that windows stay where they are while the clock is slewed.
func (pl *Planner) calendarWindow(p *Plan, rule policy.RuleID, terms *policy.Terms) rate.Shape {
	const second = int64(time.Second)
	ahead := pl.ahead.Load() * second
	if apart := p.Wall - p.Now - ahead; apart >= 2*second || apart <= -2*second {
		ahead = (p.Wall - p.Now) / second * second
		pl.ahead.Store(ahead / second)
	}
	begin, end := p.Set.Period(rule, p.Now+ahead)
	p.bytes = binary.BigEndian.AppendUint64(p.bytes, uint64(begin))
	p.bytes = binary.BigEndian.AppendUint64(p.bytes, uint64(end))
	window := terms.Shape
	window.Tick = end - begin
	from := (begin - ahead) % window.Tick
	if from < 0 {
		from += window.Tick
	}
	window.Phase = uint32(from/second) + 1
	return window
}

// calendarNow is the shape of a bucket that was charged in one window of the calendar, by the limit that the rule has
// now. Of another window it says nothing: what was counted there counts no longer.
func calendarNow(charged rate.Shape, terms *policy.Terms) rate.Shape {
	if charged.Phase == 0 {
		return terms.Shape
	}
	charged.Capacity, charged.Drain = terms.Shape.Capacity, terms.Shape.Drain
	return charged
}
