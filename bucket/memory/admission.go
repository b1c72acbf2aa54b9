package memory

import "github.com/headgate-io/headgate/bucket"

// newcomerLocked is the bucket of a take that lies in no slot: what the sketch remembers of it; or, under Options.RefuseNewcomers and when
// its set is full of debtors, one that has nothing left.
func (s *Store) newcomerLocked(sh *shard, now int64, set uint32, t *bucket.Take) bucket.State {
	if !s.refuseNewcomers || s.hasRoomLocked(sh, now, set) {
		return sh.sketch.inherit(now, t)
	}
	sh.refused++
	return bucket.State{Debt: t.Shape.Capacity, Stamp: now}
}

// hasRoomLocked says whether a set has a slot that nobody needs: one never used, or one whose bucket is full.
func (s *Store) hasRoomLocked(sh *shard, now int64, set uint32) bool {
	if zeroBytes(sh.tags[set]) != 0 {
		return true
	}
	for way := range sh.sets[set] {
		if sh.sets[set][way].fullAt(s.shapes) <= now {
			return true
		}
	}
	return false
}
