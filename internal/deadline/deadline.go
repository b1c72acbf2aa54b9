// Package deadline is a context with a time limit that costs little while nobody waits for it to end as a context.
//
// context.WithTimeout allocates five times, and sets a timer that nearly no decision lives to see.
// Who knows this type keeps the time itself, with a timer that it has already; for all others it is
// as any context.
package deadline

import (
	"context"
	"sync"
	"time"
)

// Context is done when its parent is, at a certain time, or when it is ended. It is safe for concurrent use.
type Context struct {
	parent context.Context
	limit  time.Time

	mu sync.Mutex
	// what it is to those who do not know the type; nil before one asks. Guarded by mu, as are both
	// others
	whole context.Context
	end   context.CancelFunc // ends whole
	ended bool
}

var _ context.Context = (*Context)(nil)

// After returns a Context that is done when parent is, and after d at the latest. End has to follow.
func After(parent context.Context, d time.Duration) *Context {
	return &Context{parent: parent, limit: time.Now().Add(d)}
}

// Limit is when its own time is up. Who waits for this and for Left is never told that the time is
// up when it is the parent whose time was shorter: what that means for a store is not the same.
func (c *Context) Limit() time.Time { return c.limit }

// Left is closed when the parent is done, for its time or because whoever asked has left. It may be
// nil, which never is.
func (c *Context) Left() <-chan struct{} { return c.parent.Done() }

// End ends it, and what was derived from it. Who asks for the first time after that is told
// context.Canceled, even if its time was up before.
func (c *Context) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.end != nil {
		c.end()
	}
}

// Deadline is when it is done at the latest.
func (c *Context) Deadline() (time.Time, bool) {
	if sooner, ok := c.parent.Deadline(); ok && sooner.Before(c.limit) {
		return sooner, true
	}
	return c.limit, true
}

// Done is closed when it is done.
func (c *Context) Done() <-chan struct{} { return c.complete().Done() }

// Err says why it is done, if it is.
func (c *Context) Err() error {
	c.mu.Lock()
	lives := c.whole == nil && !c.ended && c.parent.Err() == nil && time.Now().Before(c.limit)
	c.mu.Unlock()
	if lives {
		return nil
	}
	return c.complete().Err() // which stays what it is
}

// Value is the parent's. It is asked of the whole, by which contexts that are derived from this one find it.
func (c *Context) Value(key any) any { return c.complete().Value(key) }

// complete makes the whole once.
func (c *Context) complete() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.whole != nil:
	case c.ended:
		c.whole, c.end = context.WithCancel(c.parent)
		c.end()
	default:
		c.whole, c.end = context.WithDeadline(c.parent, c.limit)
	}
	return c.whole
}
