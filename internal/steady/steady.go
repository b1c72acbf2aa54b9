// Package steady is a clock for budgets, which goes on evenly however the wall clock is set.
//
// It is the wall clock as it was when the Clock was made, and what the monotonic clock has counted
// since. A wall clock that is set back by an hour would hold every bucket for an hour, and one that
// is set forward would fill them all. What people name by the wall clock, such as the time at which
// a rule expires, is compared with Wall.
package steady

import (
	"sync/atomic"
	"time"
)

// look is the time between two looks at the wall clock, in nanoseconds. What is decided by it is
// late by as much after a step.
const look = int64(250 * time.Millisecond)

// Clock tells a time that never steps. It is safe for concurrent use.
type Clock struct {
	since func() time.Duration // since the Clock was made; nil if both times are the wall's
	wall  func() time.Time
	began int64 // Unix nanoseconds by the wall clock, then

	ahead  atomic.Int64 // how far the wall clock was ahead at the last look, in nanoseconds
	looked atomic.Int64 // when that was, by this Clock
}

// New returns a Clock that begins at the wall clock's time. With now, which is for tests, both times are now's.
func New(now func() time.Time) *Clock {
	if now != nil {
		return Of(nil, now)
	}
	start := time.Now()
	return Of(func() time.Duration { return time.Since(start) }, time.Now)
}

// Of returns a Clock that begins at the wall clock's time and goes on as since does. If since is
// nil, it is the wall clock.
func Of(since func() time.Duration, wall func() time.Time) *Clock {
	c := &Clock{since: since, wall: wall}
	if since != nil {
		c.began = wall().UnixNano() - int64(since())
		c.looked.Store(c.Now())
	}
	return c
}

// From returns a Clock that begins at a time of another process's Clock, from which this one goes on.
func From(at int64) *Clock {
	start := time.Now()
	c := &Clock{since: func() time.Duration { return time.Since(start) }, wall: time.Now, began: at}
	c.ahead.Store(start.UnixNano() - at)
	c.looked.Store(at)
	return c
}

// Now is the time by which budgets are counted, in Unix nanoseconds.
func (c *Clock) Now() int64 {
	if c.since == nil {
		return c.wall().UnixNano()
	}
	return c.began + int64(c.since())
}

// Wall is the wall clock's time at now, in Unix nanoseconds, as far as it was looked at: four times
// a second at most, since reading it costs a request more than the rest of this.
func (c *Clock) Wall(now int64) int64 {
	if c.since == nil {
		return now
	}
	if last := c.looked.Load(); now-last >= look && c.looked.CompareAndSwap(last, now) {
		c.ahead.Store(c.wall().UnixNano() - now)
	}
	return now + c.ahead.Load()
}
