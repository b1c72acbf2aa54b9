package memory

import (
	"context"
	"fmt"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Correct changes the debts of buckets outside of any request, at the time now in Unix nanoseconds,
// and writes to moved[i] how many units changes[i] added to the debt, or took off it when below
// zero. Each bucket is corrected at one instant, one after the other.
//
// A bucket that was evicted in debt comes back with what its trace says, as for a take, and is then
// corrected. So it never owes less than in a table without bounds.
func (s *Store) Correct(_ context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if len(moved) < len(changes) {
		return fmt.Errorf("there is room for %d results, want %d", len(moved), len(changes))
	}
	for i := range changes {
		moved[i] = s.correct(now, &changes[i])
	}
	return nil
}

func (s *Store) correct(now int64, c *bucket.Change) int64 {
	t := bucket.Take{Key: c.Key, Shape: c.Shape, Since: c.Since, Before: c.Before, Lowered: c.Lowered}
	shard, home := s.locate(c.Key)
	sh := &s.shards[shard]
	if c.Shape.Algorithm == rate.SlidingLog {
		return s.correctLog(sh, now, c, &t)
	}
	for reclaimed := false; ; reclaimed = true {
		sh.mu.Lock()
		at, state := s.findLocked(sh, home, now, &t)
		if at.way < 0 {
			state = s.absentLocked(sh, now, &t)
		}
		after, moved := state.Shift(now, c.Shape, sh.dueLocked(now, state.Stamp, c, &t), c.Charged)
		if moved == 0 {
			sh.mu.Unlock()
			return 0
		}
		shape := uint32(0)
		if !at.current {
			shape = s.shapes.intern(c.Shape)
			if shape == 0 && !reclaimed && s.shapes.worthReclaiming() {
				sh.mu.Unlock()
				s.reclaim(now)
				continue
			}
		}
		if c.Shape.Algorithm.Drains() && after.Debt > c.Shape.Capacity {
			sh.traces.carries = true
		}
		s.putLocked(sh, now, &t, at, after, shape)
		sh.mu.Unlock()
		return moved
	}
}

// absentLocked is a bucket that lies in no slot of its own, without admission control: what is corrected was admitted.
func (s *Store) absentLocked(sh *shard, now int64, t *bucket.Take) bucket.State {
	if sh.logs != nil {
		if state, ok := sh.fromLogLocked(now, t, s.shardBits); ok {
			return state
		}
	}
	return s.tracesLocked(sh, now).inherit(now, t)
}

// correctLog is correct for a sliding log.
func (s *Store) correctLog(sh *shard, now int64, c *bucket.Change, t *bucket.Take) int64 {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	at, log := s.findLogLocked(sh, now, t)
	var after bucket.Log
	var moved int64
	if c.Renew {
		after, moved = log.Renew(now, &c.Shape, -c.Units, c.Charged)
	} else {
		after, moved = log.Shift(now, &c.Shape, c.Units, c.Charged)
	}
	if moved != 0 {
		s.putLogLocked(sh, now, t, at, &after)
	}
	return moved
}
