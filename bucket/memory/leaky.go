package memory

import (
	"context"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// accepts says whether t, which found its leaky bucket in state, accepts the wait that units of it cost.
func accepts(t *bucket.Take, now int64, state bucket.State, units int64) bool {
	return units == 0 || t.Excess(state.Wait(now, &t.Shape)) == 0
}

func ifAllowed(allowed bool, units int64) int64 {
	if !allowed {
		return 0
	}
	return units
}

// reportWait completes the outcome of a take of a leaky bucket. Nobody waits for a decision that
// was denied as a whole, nor for nothing.
func (c *claim) reportWait(o *bucket.Outcome, now int64, shadow, all bool) {
	wanted, own := c.units, ifAllowed(c.shadowAllowed, c.shadow)
	if shadow {
		wanted = c.shadow
	} else {
		own += c.units // shadows came after
	}
	switch {
	case wanted <= 0 || o.Allowed && !all:
	case !all || shadow && !c.shadowAllowed:
		c.take.ReportWait(o, c.state, now, 0)
	default:
		c.take.ReportWait(o, c.state, now, own)
	}
}

// Refund gives back what takes, admitted together at the Unix time charged in nanoseconds, did not
// use after all, less what has drained since: so much time has given back already. It never grants
// anything. A bucket that has left the table, or whose rule has changed since, keeps its debt.
func (s *Store) Refund(_ context.Context, now, charged int64, takes []bucket.Take) error {
	changed := s.changed.Load()
	for i := range takes {
		if t := &takes[i]; changed == 0 || charged > changed+int64(overlap) {
			s.refund(now, charged, t)
		}
	}
	return nil
}

func (s *Store) refund(now, charged int64, t *bucket.Take) {
	units, possible := rate.Units(&t.Shape, t.Cost)
	if !possible {
		return
	}
	shard, home := s.locate(t.Key)
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if t.Shape.Algorithm == rate.SlidingLog {
		if at, log := s.findLogLocked(sh, now, t); at.current {
			sh.logs.sets[at.set][at.way].log = log.Refund(now, &t.Shape, units, charged)
		}
		return
	}
	at, state := s.findLocked(sh, home, now, t)
	if !at.current {
		return
	}
	if slower := sh.slowerLocked(t); slower != nil {
		charged = slower.Since(charged, now) - 1 // which is rounded up, and a refund must not be
	}
	after := state.Refund(now, t.Shape, units, charged)
	slot := &sh.sets[at.set][at.way]
	slot.debt, slot.stamp = after.Debt, t.Slower().Reached(after.Stamp, now)
}
