package memory

import "github.com/headgate-io/headgate/bucket"

// newcomerLocked is the bucket of a take that lies in no slot: what its trace says; or, under
// Options.RefuseNewcomers and when its family is full of debtors, one that has nothing left.
func (s *Store) newcomerLocked(sh *shard, now int64, home uint32, t *bucket.Take) bucket.State {
	if !s.refuseNewcomers || s.hasRoomLocked(sh, now, home) {
		return s.tracesLocked(sh, now).inherit(now, t)
	}
	sh.refused++
	return bucket.State{Debt: t.Shape.Capacity, Stamp: now}
}

// hasRoomLocked says whether makeRoomLocked finds a slot that nobody needs: one never used, or one
// whose bucket is full.
func (s *Store) hasRoomLocked(sh *shard, now int64, home uint32) bool {
	if zeroBytes(sh.tags[home]) != 0 || sh.unusedLocked(home).way >= 0 {
		return true
	}
	first, last := sh.relatives(home)
	var times [ways]int64
	for set := first; set < last; set++ {
		if at, _ := s.fullLocked(sh, now, set, &times); at.way >= 0 {
			return true
		}
	}
	return false
}
