package hold

import (
	"context"
	"net/http"
	"time"
)

// logEvery is the time between two lines about what was refused or ended.
const logEvery = 10 * time.Second

// Run looks after connections until ctx ends.
func (l *Limiter) Run(ctx context.Context) {
	every := l.o().every
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := time.Now()
	logged, told := last, [reasons]uint64{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			l.sweep(now.Sub(last))
			last = now
			if next := l.o().every; next != every {
				every = next
				tick.Reset(every)
			}
			if now.Sub(logged) >= logEvery {
				logged = now
				l.tell(&told)
			}
		}
	}
}

// tell logs what was refused or ended since it was last called.
func (l *Limiter) tell(told *[reasons]uint64) {
	var about []any
	for why := range reasons {
		if n := l.ended[why].Load(); n > told[why] {
			about = append(about, why.String(), n-told[why])
			told[why] = n
		}
	}
	if len(about) > 0 {
		s := l.Stats()
		l.o().Log.Warn(
			"connections or requests were refused or ended for what they held",
			append(about, "connections", s.Connections, "addresses", s.Addresses, "requests", s.Requests)...)
	}
}

// sweep ends connections whose clients take an answer too slowly, and those with
// a request under way on which nothing has passed for StreamIdle. passed is the
// time since the last sweep.
func (l *Limiter) sweep(passed time.Duration) {
	now := l.tick.Add(1)
	o := l.o()
	// A process that was held up itself has nobody to blame.
	passed = min(passed, 2*o.every)
	silence := int64(o.StreamIdle / o.every)
	var writers, silent []*conn
	l.mu.Lock()
	for _, g := range l.groups {
		g.refused, g.gaveUp = 0, 0
		for _, c := range g.conns {
			switch since := c.writing.Load(); {
			case since > 0 && since < now-1:
				writers = append(writers, c)
			case since == 0:
				c.stalled, c.left = false, min(o.Patience, c.left+passed)
			}
			if state := http.ConnState(c.state.Load()); (state == http.StateActive || state == http.StateHijacked) &&
				now-c.active.Load() > silence {
				silent = append(silent, c)
			}
		}
	}
	l.mu.Unlock()
	for _, c := range writers {
		if !c.keepsUp(passed) {
			l.count(SlowAnswer)
			c.cut()
		}
	}
	for _, c := range silent {
		l.count(Silent)
		c.cut()
	}
}

// keepsUp reports whether the client takes what is written to it fast enough. A
// Write says nothing of that while it waits: the kernel's buffer holds more than
// a slow client takes in a minute. So the kernel is asked what was acknowledged.
func (c *conn) keepsUp(passed time.Duration) bool {
	taken, ok := acknowledged(c.Conn)
	if !ok {
		taken = c.written.Load()
	}
	if !c.stalled {
		c.stalled, c.taken = true, taken
		return true
	}
	c.left = c.l.o().Spend(c.left, passed, int64(taken-c.taken))
	c.taken = taken
	return c.left > 0
}
