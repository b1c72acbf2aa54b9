package memory

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

const (
	ways = 8 // slots in a set: as many as tags fit into a word

	// family is how many neighbouring sets help each other out: as many as have their tags in one cache line. A bucket lies in the set that
	// its key names, its home. If all buckets there are in debt when it comes, it may lie with a relative instead.
	family = 8
)

// slot is a bucket. A slot is free when its bucket is full; one that never held any has no tag.
type slot struct {
	fingerprint uint64 // key.Lo; together with the home's number, which is taken from key.Hi, some 80 bits tell keys apart
	debt, stamp int64  // bucket.State
	shape       uint32 // number in the registry
	home        uint8  // which set of the family is the bucket's home
	away        uint8  // of the first slot of a set, whatever lies in it: how many buckets that have their home here lie with relatives
}

type set [ways]slot

// shard is a part of the table behind one lock. Decisions hold it for some ten nanoseconds, and when they insert into a full set for a
// few hundred.
type shard struct {
	shardState
	_ [(128 - unsafe.Sizeof(shardState{})%128) % 128]byte // no two locks in one cache line, nor in the pair that is fetched together
}

type shardState struct {
	mu     sync.Mutex
	tags   []uint64 // of set i, way w: byte w of tags[i], 0 if the slot was never used
	sets   []set
	sketch sketch
	logs   *logTable // nil until the first sliding log
	reach  uint32    // how many relatives to look for room with

	created, evictedFull, evictedInDebt, refused uint64
	// all of it guarded by mu
}

func (sh *shard) init(sets, width int) {
	sh.tags, sh.sets, sh.sketch, sh.reach = make([]uint64, sets), make([]set, sets), newSketch(width), family-1
}

// place is where a bucket lies.
type place struct {
	set     uint32
	way     int32 // -1: nowhere yet
	current bool  // the slot has the shape that the take names
}

// Words of eight equal bytes.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// tagOf is never 0. It shares no bits with the choice of shard and set.
func tagOf(k key.Key) uint64 { return max(k.Lo>>56, 1) }

// zeroBytes has the high bit set in every byte of word that is zero; above the first such byte it may have some too many.
func zeroBytes(word uint64) uint64 { return (word - ones) & ^word & highs }

// locate is where a key belongs.
func (s *Store) locate(k key.Key) (shard, home uint32) {
	shard = uint32(k.Hi >> (64 - s.shardBits))
	i, _ := bits.Mul64(k.Hi<<s.shardBits, uint64(len(s.shards[shard].sets)))
	return shard, uint32(i)
}

// prefetch has the processor fetch a set and its tags, from a large table of which nothing is in a cache. What a decision does until it reads
// the slot then costs nothing. Otherwise the tags would have to come first, before it is known which slot to wait for.
func (sh *shard) prefetch(set uint32) { prefetch(&sh.tags[set], &sh.sets[set]) }

// findLocked finds t's bucket and its state in terms of t.Shape. A bucket that lies nowhere is full, but for what the sketch remembers.
func (s *Store) findLocked(sh *shard, home uint32, now int64, t *bucket.Take) (place, bucket.State) {
	return s.readLocked(sh, sh.seekLocked(home, t.Key), now, t)
}

// readLocked is findLocked of a bucket that was sought already.
func (s *Store) readLocked(sh *shard, at place, now int64, t *bucket.Take) (place, bucket.State) {
	if at.way >= 0 {
		slot := &sh.sets[at.set][at.way%ways]
		state := bucket.State{Debt: slot.debt, Stamp: slot.stamp}
		shape := &s.shapes.list[slot.shape]
		// A bucket that was written before the last change may have missed others, even if its shape is what it was.
		if at.current = same(shape, &t.Shape) && (t.Before == nil || slot.stamp >= t.Since); !at.current {
			state, at.current = follow(now, t, state, shape)
		}
		return at, state
	}
	if sh.logs != nil {
		if state, ok := sh.fromLogLocked(now, t, s.shardBits); ok {
			return at, state
		}
	}
	if zeroBytes(sh.tags[at.set]) == 0 {
		sh.prefetchRelative(at.set, 1)
	}
	return at, s.newcomerLocked(sh, now, at.set, t)
}

// seekLocked is where the bucket of a key lies, or its home and no way.
func (sh *shard) seekLocked(home uint32, k key.Key) place {
	tags, set := tagOf(k)*ones, &sh.sets[home]
	for hits := zeroBytes(sh.tags[home] ^ tags); hits != 0; hits &= hits - 1 {
		way := uint(bits.TrailingZeros64(hits)) / 8
		if slot := &set[way%ways]; slot.fingerprint == k.Lo && slot.home == uint8(home%family) {
			return place{set: home, way: int32(way)}
		}
	}
	if set[0].away != 0 {
		return sh.seekAwayLocked(home, tags, k.Lo)
	}
	return place{set: home, way: -1}
}

// seekAwayLocked is seekLocked in the other sets of a family. Few buckets lie there: 7 % when 0.8 of the slots are taken.
func (sh *shard) seekAwayLocked(home uint32, tags, fingerprint uint64) place {
	first, last := sh.relatives(home)
	for other := first; other < last; other++ {
		for hits := zeroBytes(sh.tags[other] ^ tags); hits != 0; hits &= hits - 1 {
			way := uint(bits.TrailingZeros64(hits)) / 8
			if slot := &sh.sets[other][way%ways]; slot.fingerprint == fingerprint && slot.home == uint8(home%family) {
				return place{set: other, way: int32(way)}
			}
		}
	}
	return place{set: home, way: -1}
}

// relatives are the sets of a family from first up to last, home among them.
func (sh *shard) relatives(home uint32) (first, last uint32) {
	first = home &^ (family - 1)
	return first, min(first+family, uint32(len(sh.sets)))
}

// same is a == b, which the compiler makes a call of, as Shape is no longer one run of words (26 against 24 ns: BenchmarkHotKey).
func same(a, b *rate.Shape) bool {
	return a.Drain == b.Drain && a.Unit == b.Unit && a.Capacity == b.Capacity && a.Tick == b.Tick && a.Algorithm == b.Algorithm
}

// putLocked stores t's bucket, which is at its place or has none. Shape is the number of t.Shape, or 0 if the registry has no room for it:
// then the sketch has to remember the bucket.
func (s *Store) putLocked(sh *shard, now int64, t *bucket.Take, at place, state bucket.State, shape uint32) {
	if at.current {
		slot := &sh.sets[at.set][at.way]
		slot.debt, slot.stamp = state.Debt, state.Stamp
		return
	}
	s.noteChange(t.Since)
	if at.way < 0 {
		sh.created++
		sh.dropLogLocked(t.Key, s.shardBits) // it was counted so before the rule changed
	}
	if shape == 0 {
		sh.sketch.raise(t.Key.Lo, state.ForgottenAt(&t.Shape), now)
		sh.evictedInDebt++
		if at.way >= 0 {
			sh.clearLocked(at.set, int(at.way))
		}
		return
	}
	home := at.set
	if at.way < 0 {
		at = s.makeRoomLocked(sh, now, home)
		sh.settleLocked(at, home, t.Key)
	}
	slot := &sh.sets[at.set][at.way]
	slot.debt, slot.stamp, slot.shape = state.Debt, state.Stamp, shape
}

// makeRoomLocked picks the place that the next bucket of a set gets, and leaves it with no bucket: at home, a way never used or whose bucket is
// full; else such a way of a relative; else that of the bucket that will be full first, of those looked at.
func (s *Store) makeRoomLocked(sh *shard, now int64, home uint32) place {
	if unused := zeroBytes(sh.tags[home]); unused != 0 {
		return place{set: home, way: int32(bits.TrailingZeros64(unused) / 8)}
	}
	victim, fullAt := s.fullestLocked(sh, now, home)
	if fullAt > now {
		if at := sh.unusedLocked(home); at.way >= 0 {
			return at
		}
		victim, fullAt = s.searchLocked(sh, now, home, victim, fullAt)
	}
	s.evictLocked(sh, now, &sh.sets[victim.set][victim.way], fullAt)
	sh.leaveLocked(victim)
	return victim
}

// searchLocked looks with the relatives of home for a bucket that is full, or at least sooner than the victim found at home. How many of them it
// visits depends on luck: all while that helps, and one alone in a table where everybody is in debt, which insertion then shows.
func (s *Store) searchLocked(sh *shard, now int64, home uint32, victim place, fullAt int64) (place, int64) {
	for i := uint32(1); i <= sh.reach; i++ {
		other := home ^ i
		if other >= uint32(len(sh.sets)) {
			continue
		}
		if i < sh.reach {
			sh.prefetchRelative(home, i+1)
		}
		if at, first := s.fullestLocked(sh, now, other); first < fullAt {
			victim, fullAt = at, first
		}
		if fullAt <= now {
			sh.reach = min(sh.reach+4, family-1)
			return victim, fullAt
		}
	}
	if !s.refuseNewcomers {
		sh.reach = max(sh.reach-1, 1)
	}
	return victim, fullAt
}

// prefetchRelative has the processor fetch a relative of home that is about to be visited.
func (sh *shard) prefetchRelative(home, i uint32) {
	if other := home ^ i; other < uint32(len(sh.sets)) {
		sh.prefetch(other)
	}
}

// unusedLocked is a place with a relative of home that was never used, or has no way.
func (sh *shard) unusedLocked(home uint32) place {
	first, last := sh.relatives(home)
	for other := first; other < last; other++ {
		if unused := zeroBytes(sh.tags[other]); unused != 0 {
			return place{set: other, way: int32(bits.TrailingZeros64(unused) / 8)}
		}
	}
	return place{way: -1}
}

// fullestLocked is a bucket of a set that is full, or else the one that will be first, and when.
func (s *Store) fullestLocked(sh *shard, now int64, set uint32) (place, int64) {
	fullest, first := place{set: set}, int64(0)
	for way := range sh.sets[set] {
		fullAt := sh.sets[set][way].fullAt(s.shapes)
		if way == 0 || fullAt < first {
			fullest.way, first = int32(way), fullAt
		}
		if fullAt <= now {
			return fullest, fullAt
		}
	}
	return fullest, first
}

// settleLocked gives a place that nobody has to a key.
func (sh *shard) settleLocked(at place, home uint32, k key.Key) {
	slot := &sh.sets[at.set][at.way]
	slot.fingerprint, slot.home = k.Lo, uint8(home%family)
	sh.setTagLocked(at.set, int(at.way), tagOf(k))
	if at.set != home {
		sh.sets[home][0].away++
	}
}

// leaveLocked takes a place from the key that has it.
func (sh *shard) leaveLocked(at place) {
	if home := at.set&^(family-1) + uint32(sh.sets[at.set][at.way].home); home != at.set {
		sh.sets[home][0].away--
	}
}

// evictLocked does what has to be done before a bucket leaves its slot: a debt goes into the sketch.
//
// A bucket that has been full since fullAt leaves nothing behind, if it was used after the last change of rules. Otherwise its own rule may
// have changed before fullAt, to one that drains more slowly, and nobody has told this bucket. So its time goes into the sketch as well;
// those who ask from under a shape that did not change do not look at times that have passed. The end of a window goes in always: a clock
// that steps back before it finds the window as it was.
func (s *Store) evictLocked(sh *shard, now int64, slot *slot, fullAt int64) {
	shape := &s.shapes.list[slot.shape]
	switch {
	case fullAt > now:
		sh.evictedInDebt++
	case slot.stamp > s.changed.Load()+int64(overlap) && shape.Algorithm.Drains():
		sh.evictedFull++
		return
	default:
		sh.evictedFull++
	}
	sh.sketch.raise(slot.fingerprint, slot.forgottenAt(s.shapes), now)
}

func (s *Store) noteChange(since int64) {
	for {
		last := s.changed.Load()
		if since <= last || s.changed.CompareAndSwap(last, since) {
			return
		}
	}
}

func (sl *slot) fullAt(shapes *registry) int64 {
	return bucket.State{Debt: sl.debt, Stamp: sl.stamp}.FullAt(shapes.list[sl.shape])
}

func (sl *slot) forgottenAt(shapes *registry) int64 {
	return bucket.State{Debt: sl.debt, Stamp: sl.stamp}.ForgottenAt(&shapes.list[sl.shape])
}

func (sh *shard) clearLocked(set uint32, way int) {
	sh.leaveLocked(place{set: set, way: int32(way)})
	sh.sets[set][way] = slot{away: sh.sets[set][way].away}
	sh.setTagLocked(set, way, 0)
}

func (sh *shard) setTagLocked(set uint32, way int, tag uint64) {
	sh.tags[set] = sh.tags[set]&^(0xff<<(8*way)) | tag<<(8*way)
}
