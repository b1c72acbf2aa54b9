package memory

import (
	"math/bits"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Most buckets that a decision meets are quiet: they lie in the table, under the limit that the
// take names, nobody waits for them, and what is owed is all that changes. This file decides about
// those and nothing else, in half the time.

// quietLocked is the slot of t's bucket if it is a quiet one that lies at home, else nil.
func (s *Store) quietLocked(sh *shard, home uint32, t *bucket.Take) *slot {
	// The first way whose tag fits is nearly always the right one.
	way := uint(bits.TrailingZeros64(zeroBytes(sh.tags[home]^tagOf(t.Key)*ones))) / 8
	slot := &sh.sets[home][way%ways]
	if way == ways || slot.fingerprint != t.Key.Lo || slot.home != uint8(home%family) || !s.changesAlone(slot, t) {
		return nil
	}
	return slot
}

// quietAtLocked is quietLocked for one that lies anywhere: in a table that is 80 % full, every fifth lies
// with a relative.
func (s *Store) quietAtLocked(sh *shard, at place, t *bucket.Take) *slot {
	if at.way < 0 {
		return nil
	}
	slot := &sh.sets[at.set][at.way%ways]
	if slot.home&parked != 0 || !s.changesAlone(slot, t) {
		return nil
	}
	return slot
}

// changesAlone reports whether what is owed is all that a take changes in a slot.
func (s *Store) changesAlone(slot *slot, t *bucket.Take) bool {
	return t.Shape.Algorithm != rate.LeakyBucket && t.Lowered == nil && same(&s.shapes.list[slot.shape], &t.Shape) &&
		(t.Before == nil || slot.stamp >= t.Since)
}

// owing is a bucket of a decision of several takes.
type owing struct {
	slot          *slot
	after         bucket.State
	units, credit int64
	shard, home   uint32
	allowed       bool
}

// quiet is all where each of a few takes names another bucket, all are quiet, and none is a shadow or keeps anything
// for others. It reports false, and has done nothing, where one is otherwise.
func (s *Store) quiet(now int64, takes []bucket.Take, outs []bucket.Outcome, commit bool) (allowed, decided bool) {
	var owed [few]owing
	var shards [few]uint32
	locks := shards[:0]
	for i := range takes {
		t, b := &takes[i], &owed[i%few]
		b.shard, b.home = s.locate(t.Key)
		var possible bool
		b.units, possible = rate.Units(&t.Shape, t.Cost)
		if !possible || t.Shadow || t.Kept > 0 || named(takes[:i], t.Key) {
			return false, false
		}
		locks = ascending(locks, b.shard)
	}
	s.lock(locks)
	for i := range takes {
		s.shards[owed[i%few].shard].prefetch(owed[i%few].home)
	}
	if allowed, decided = s.tryLocked(now, takes, owed[:len(takes)]); allowed && commit {
		for i := range takes {
			if b := &owed[i%few]; b.units > 0 {
				b.slot.debt, b.slot.stamp = b.after.Debt, b.after.Stamp
			}
		}
	}
	s.unlock(locks)
	if decided {
		for i := range takes {
			b := &owed[i%few]
			if allowed {
				b.after.ReportOf(&outs[i], now, &takes[i].Shape, b.units, b.credit, true)
			} else {
				b.after.Report(&outs[i], now, &takes[i].Shape, b.units, b.allowed)
			}
		}
	}
	return allowed, decided
}

// tryLocked finds the buckets of takes, and what is owed after the decision; decided is false if one is not quiet.
func (s *Store) tryLocked(now int64, takes []bucket.Take, owed []owing) (allowed, decided bool) {
	allowed = true
	for i := range takes {
		t, b := &takes[i], &owed[i]
		sh := &s.shards[b.shard]
		if b.slot = s.quietLocked(sh, b.home, t); b.slot == nil {
			b.slot = s.quietAtLocked(sh, sh.seekLocked(b.home, t.Key), t)
		}
		if b.slot == nil {
			return false, false
		}
		state := bucket.State{Debt: b.slot.debt, Stamp: b.slot.stamp}
		b.after, b.credit, b.allowed = state.Admit(now, &t.Shape, b.units)
		allowed = allowed && b.allowed
	}
	if !allowed {
		for i := range owed {
			owed[i].after = bucket.State{Debt: owed[i].slot.debt, Stamp: owed[i].slot.stamp}
		}
	}
	return allowed, true
}

// named reports whether one of the takes is of the bucket of a key.
func named(takes []bucket.Take, k key.Key) bool {
	for i := range takes {
		if takes[i].Key == k {
			return true
		}
	}
	return false
}
