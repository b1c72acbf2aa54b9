package memory

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

const ways = 8 // slots in a set: as many as tags fit into a word

// slot is a bucket. A slot is free when its bucket is full; one that never held any is all zero.
type slot struct {
	fingerprint uint64 // key.Lo; together with the set's number, which is taken from key.Hi, some 80 bits tell keys apart
	debt, stamp int64  // bucket.State
	shape       uint32 // number in the registry
	_           uint32
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

	created, evictedFull, evictedInDebt, refused uint64
	// all of it guarded by mu
}

func (sh *shard) init(sets, width int) {
	sh.tags, sh.sets, sh.sketch = make([]uint64, sets), make([]set, sets), newSketch(width)
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

// findLocked finds t's bucket and its state in terms of t.Shape. A bucket that lies nowhere is full, but for what the sketch remembers.
func (s *Store) findLocked(sh *shard, now int64, t *bucket.Take) (place, bucket.State) {
	i, _ := bits.Mul64(t.Key.Hi<<s.shardBits, uint64(len(sh.sets)))
	at := place{set: uint32(i), way: -1}
	set := &sh.sets[i]
	for hits := zeroBytes(sh.tags[i] ^ tagOf(t.Key)*ones); hits != 0; hits &= hits - 1 {
		way := uint(bits.TrailingZeros64(hits)) / 8
		slot := &set[way%ways]
		if slot.fingerprint != t.Key.Lo {
			continue
		}
		at.way = int32(way)
		state := bucket.State{Debt: slot.debt, Stamp: slot.stamp}
		shape := &s.shapes.list[slot.shape]
		if at.current = same(shape, &t.Shape); !at.current {
			state = state.Convert(*shape, t.Shape, min(t.Since, now)).Align(t.Key, &t.Shape)
		}
		return at, state
	}
	if sh.logs != nil {
		if state, ok := sh.fromLogLocked(now, t, s.shardBits); ok {
			return at, state
		}
	}
	return at, s.newcomerLocked(sh, now, at.set, t)
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
	if at.way < 0 {
		at.way = int32(s.makeRoomLocked(sh, now, at.set))
	}
	sh.setTagLocked(at.set, int(at.way), tagOf(t.Key))
	sh.sets[at.set][at.way] = slot{fingerprint: t.Key.Lo, debt: state.Debt, stamp: state.Stamp, shape: shape}
}

// makeRoomLocked picks the way of a set that the next bucket gets: one never used, else one whose bucket is full, else the one that will be
// full first.
func (s *Store) makeRoomLocked(sh *shard, now int64, set uint32) int {
	if unused := zeroBytes(sh.tags[set]); unused != 0 {
		return bits.TrailingZeros64(unused) / 8
	}
	victim, first := 0, int64(0)
	for way := range sh.sets[set] {
		fullAt := sh.sets[set][way].fullAt(s.shapes)
		if way == 0 || fullAt < first {
			victim, first = way, fullAt
		}
		if fullAt <= now {
			break
		}
	}
	s.evictLocked(sh, now, &sh.sets[set][victim], first)
	return victim
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
	sh.sets[set][way] = slot{}
	sh.setTagLocked(set, way, 0)
}

func (sh *shard) setTagLocked(set uint32, way int, tag uint64) {
	sh.tags[set] = sh.tags[set]&^(0xff<<(8*way)) | tag<<(8*way)
}
