package memory

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

const (
	ways = 8 // slots in a set: as many as tags fit into a word

	// family is how many neighbouring sets help each other out: as many as have their tags in one
	// cache line. A bucket lies in the set that its key names, its home. If all buckets there are
	// in debt when it comes, it may lie with a relative instead.
	family = 8
)

// slot is a bucket. A slot is free when its bucket is full; one that never held any has no tag.
type slot struct {
	// key.Lo; together with the home's number, which is taken from key.Hi, some 80 bits tell keys
	// apart
	fingerprint uint64
	debt, stamp int64  // bucket.State
	shape       uint32 // number in the registry
	home        uint8  // which set of the family is the bucket's home, and whether it is parked
}

// parked marks, in slot.home, a bucket that was never charged since it entered the table: its first
// request was denied for what a trace said that it owes, maybe that of somebody else. It lies here
// so that this drains, and the wait that was answered is true. As nothing was charged, it leaves no
// trace.
const parked = 1 << 7

// at is the set of its family that is the bucket's home.
func (sl *slot) at() uint8 { return sl.home &^ parked }

type set [ways]slot

// shard is a part of the table behind one lock. Decisions hold it for some ten nanoseconds, and
// when they insert into a full set for a few hundred.
type shard struct {
	shardState
	// no two locks in one cache line, nor in the pair that is fetched together
	_ [(128 - unsafe.Sizeof(shardState{})%128) % 128]byte
}

type shardState struct {
	mu     sync.Mutex
	last   uint32       // the set that was fetched last
	waited atomic.Int64 // when somebody got the lock after a wait, in nanoseconds after started

	tags []uint64 // of set i, way w: byte w of tags[i], 0 if the slot was never used
	sets []set
	// of each set, how many buckets that have their home there lie with relatives. It lies apart from
	// the slots, so that whoever looks for a key that is new waits for none of them: a fifth of what
	// an insertion took
	away   []uint8
	traces traces
	logs   *logTable // nil until the first sliding log
	reach  uint32    // how many relatives to look for room with
	shape  uint32    // number of the one that was stored last, if it still is: mostly the next has the same

	created, evictedFull, evictedInDebt, refused uint64
	// all of it but waited guarded by mu
}

func (sh *shard) init(sets []set, lines, width int) {
	sh.tags, sh.sets, sh.away = make([]uint64, len(sets)), sets, make([]uint8, len(sets))
	sh.traces, sh.reach = newTraces(lines, width), family-1
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

// zeroBytes has the high bit set in every byte of word that is zero; above the first such byte it
// may have some too many.
func zeroBytes(word uint64) uint64 { return (word - ones) & ^word & highs }

// locate is where a key belongs.
func (s *Store) locate(k key.Key) (shard, home uint32) {
	shard = uint32(k.Hi >> (64 - s.shardBits))
	i, _ := bits.Mul64(k.Hi<<s.shardBits, uint64(len(s.shards[shard].sets)))
	return shard, uint32(i)
}

// prefetch has the processor fetch a set and its tags, from a large table of which nothing is in a
// cache. Otherwise the tags would have to come first, before it is known which slot to wait for. It reads
// nothing, so it needs no lock; but without one it takes the lines from another processor that is about to
// write them (one key from two goroutines: 117 ns with the lock, 138 before it).
func (sh *shard) prefetch(set uint32) {
	if set != sh.last { // else it is here: one key again and again takes 2 % less without asking
		sh.fetch(set)
	}
}

//go:noinline so that prefetch is inlined
func (sh *shard) fetch(set uint32) {
	sh.last = set
	prefetch(&sh.tags[set], &sh.sets[set])
}

// findLocked finds t's bucket and its state in terms of t.Shape. A bucket that lies nowhere is
// full, but for what a trace says.
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
		if lowers(t) {
			state.Stamp = t.Lowered.Since(state.Stamp, now)
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
	sh.traces.prefetch(now, t.Key.Lo)
	return at, s.newcomerLocked(sh, now, at.set, t)
}

// seekLocked is where the bucket of a key lies, or its home and no way.
func (sh *shard) seekLocked(home uint32, k key.Key) place {
	tags, set := tagOf(k)*ones, &sh.sets[home]
	for hits := zeroBytes(sh.tags[home] ^ tags); hits != 0; hits &= hits - 1 {
		way := uint(bits.TrailingZeros64(hits)) / 8
		if slot := &set[way%ways]; slot.fingerprint == k.Lo && slot.at() == uint8(home%family) {
			return place{set: home, way: int32(way)}
		}
	}
	if sh.away[home] != 0 {
		return sh.seekAwayLocked(home, tags, k.Lo)
	}
	return place{set: home, way: -1}
}

// seekAwayLocked is seekLocked in the other sets of a family. Few buckets lie there: 7 % when 0.8
// of the slots are taken.
func (sh *shard) seekAwayLocked(home uint32, tags, fingerprint uint64) place {
	first, last := sh.relatives(home)
	for other := first; other < last; other++ {
		for hits := zeroBytes(sh.tags[other] ^ tags); hits != 0; hits &= hits - 1 {
			way := uint(bits.TrailingZeros64(hits)) / 8
			if slot := &sh.sets[other][way%ways]; slot.fingerprint == fingerprint && slot.at() == uint8(home%family) {
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

// same is a == b, which the compiler makes a call of, as Shape is no longer one run of words (26
// against 24 ns: BenchmarkHotKey).
func same(a, b *rate.Shape) bool {
	return a.Drain == b.Drain && a.Unit == b.Unit && a.Capacity == b.Capacity && a.Tick == b.Tick &&
		a.Algorithm == b.Algorithm && a.Phase == b.Phase
}

// putLocked stores t's bucket, which is at its place or has none. Shape is the number of t.Shape,
// or 0 if the registry has no room for it: then all that remains of the bucket is its trace.
func (s *Store) putLocked(sh *shard, now int64, t *bucket.Take, at place, state bucket.State, shape uint32) {
	if at.current {
		slot := &sh.sets[at.set][at.way]
		if lowers(t) {
			state.Stamp = t.Lowered.Reached(state.Stamp, now)
		}
		slot.debt, slot.stamp = state.Debt, state.Stamp
		slot.home = slot.at() // not parked any more
		return
	}
	s.noteTake(now, t)
	if at.way < 0 {
		sh.created++
		sh.dropLogLocked(t.Key, s.shardBits) // it was counted so before the rule changed
	}
	if shape == 0 {
		s.tracesLocked(sh, now).raise(t.Key.Lo, kindOf(&t.Shape), state.ForgottenAt(&t.Shape), now)
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
	slot.home = slot.at()
}

// internLocked is the number of a shape, as registry.intern, which hashes it. That is spared
// whoever comes after another of the same limit.
func (s *Store) internLocked(sh *shard, shape *rate.Shape) uint32 {
	if n := sh.shape; n != 0 && s.shapes.mark(n) && same(&s.shapes.list[n], shape) {
		return n
	}
	n := s.shapes.intern(*shape)
	if n != 0 {
		sh.shape = n
	}
	return n
}

// parkLocked stores the bucket of a take that was just denied, in the state in which it was found,
// if that is what a trace says. Otherwise each attempt would find the same trace, and a bucket that
// fills sooner than the trace passes would never be served. A bucket that has a slot stays as it
// is.
func (s *Store) parkLocked(sh *shard, now int64, t *bucket.Take, at place, state bucket.State) {
	if at.way >= 0 || s.tracesLocked(sh, now).fullAt(now, earliest(now, t), t) == math.MinInt64 ||
		state.FullAt(t.Shape) <= now {
		return
	}
	if s.refuseNewcomers && !s.hasRoomLocked(sh, now, at.set) ||
		sh.logs != nil && sh.logs.find(t.Key, s.shardBits).way >= 0 {
		return
	}
	shape := s.internLocked(sh, &t.Shape)
	if shape == 0 {
		return
	}
	s.noteTake(now, t)
	sh.created++
	home := at.set
	at = s.makeRoomLocked(sh, now, home)
	sh.settleLocked(at, home, t.Key)
	slot := &sh.sets[at.set][at.way]
	slot.debt, slot.stamp, slot.shape = state.Debt, state.Stamp, shape
	slot.home |= parked
}

// makeRoomLocked picks the place that the next bucket of a set gets, and leaves it with no bucket:
// at home, a way never used or whose bucket is full; else such a way of a relative; else that of a
// bucket in debt, see victimLocked.
func (s *Store) makeRoomLocked(sh *shard, now int64, home uint32) place {
	if unused := zeroBytes(sh.tags[home]); unused != 0 {
		return place{set: home, way: int32(bits.TrailingZeros64(unused) / 8)}
	}
	var times [2 * ways]int64 // when the buckets at home and with its first relative will be full
	victim, fullAt := s.fullLocked(sh, now, home, (*[ways]int64)(times[:]))
	if victim.way < 0 {
		if at := sh.unusedLocked(home); at.way >= 0 {
			return at
		}
		if victim, fullAt = s.searchLocked(sh, now, home, (*[ways]int64)(times[ways:])); victim.way < 0 {
			victim, fullAt = sh.victimLocked(home, &times)
		}
	}
	s.evictLocked(sh, now, &sh.sets[victim.set][victim.way], fullAt)
	sh.leaveLocked(victim)
	return victim
}

// searchLocked looks with the relatives of home for a bucket that is full. How many of them it
// visits depends on luck: all while that helps, and one alone in a table where everybody is in
// debt, which insertion then shows. If none is full, first has the times of the first relative.
func (s *Store) searchLocked(sh *shard, now int64, home uint32, first *[ways]int64) (place, int64) {
	var others [ways]int64
	times := first
	for i := uint32(1); i <= sh.reach; i++ {
		other := home ^ i
		if other >= uint32(len(sh.sets)) {
			continue
		}
		if i < sh.reach {
			sh.prefetchRelative(home, i+1)
		}
		if at, fullAt := s.fullLocked(sh, now, other, times); at.way >= 0 {
			sh.reach = min(sh.reach+4, family-1)
			return at, fullAt
		}
		times = &others
	}
	if !s.refuseNewcomers {
		sh.reach = max(sh.reach-1, 1)
	}
	return place{way: -1}, 0
}

// victimLocked is the bucket in debt that gives way: of the limit that most buckets have at home
// and with one relative, the one that will be full first. So whoever crowds a table, by many
// buckets of one limit, drives out others of the same limit. The bucket that will be full first of
// all would mostly be one of a limit that fills quickly, which nobody crowds. Times says when the
// buckets of both will be full.
func (sh *shard) victimLocked(home uint32, times *[2 * ways]int64) (place, int64) {
	var room [2 * ways]uint32
	shapes := room[:ways]
	for way := range &sh.sets[home] {
		room[way] = sh.sets[home][way].shape
	}
	if other := home ^ 1; other < uint32(len(sh.sets)) {
		shapes = room[:]
		for way := range &sh.sets[other] {
			room[ways+way] = sh.sets[other][way].shape
		}
	}
	crowd, first := mostFrequent(shapes), int64(math.MaxInt64)
	for i, shape := range shapes {
		fullAt := times[i]
		if shape != crowd {
			fullAt = math.MaxInt64
		}
		first = min(first, fullAt) // without a branch, which would be guessed wrongly three times in sixteen
	}
	victim := 0
	for shapes[victim] != crowd || times[victim] != first {
		victim++
	}
	return place{set: home ^ uint32(victim/ways), way: int32(victim % ways)}, first
}

// mostFrequent is the number that occurs most often. Mostly there is no other, or it is that of more than half, which
// one pass finds and another confirms.
func mostFrequent(numbers []uint32) uint32 {
	candidate, differ := numbers[0], uint32(0)
	for _, n := range numbers {
		differ |= n ^ candidate
	}
	if differ == 0 {
		return candidate
	}
	lead := 0
	for _, n := range numbers {
		switch {
		case n == candidate:
			lead++
		case lead == 0:
			candidate, lead = n, 1
		default:
			lead--
		}
	}
	most := count(numbers, candidate)
	for i := 0; most <= len(numbers)/2 && i < len(numbers); i++ {
		if n := count(numbers[i:], numbers[i]); n > most {
			candidate, most = numbers[i], n
		}
	}
	return candidate
}

func count(numbers []uint32, number uint32) (n int) {
	for _, other := range numbers {
		if other == number {
			n++
		}
	}
	return n
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

// fullLocked is a bucket of a set that is full, and since when. If there is none it has no way, and
// times are when each will be.
func (s *Store) fullLocked(sh *shard, now int64, set uint32, times *[ways]int64) (place, int64) {
	slots := &sh.sets[set]
	for way := range slots {
		fullAt := slots[way].fullAt(s.shapes)
		if fullAt <= now {
			return place{set: set, way: int32(way)}, fullAt
		}
		times[way] = fullAt
	}
	return place{set: set, way: -1}, 0
}

// settleLocked gives a place that nobody has to a key.
func (sh *shard) settleLocked(at place, home uint32, k key.Key) {
	slot := &sh.sets[at.set][at.way]
	slot.fingerprint, slot.home = k.Lo, uint8(home%family)
	sh.setTagLocked(at.set, int(at.way), tagOf(k))
	if at.set != home {
		sh.away[home]++
	}
}

// leaveLocked takes a place from the key that has it.
func (sh *shard) leaveLocked(at place) {
	if home := at.set&^(family-1) + uint32(sh.sets[at.set][at.way].at()); home != at.set {
		sh.away[home]--
	}
}

// evictLocked does what has to be done before a bucket leaves its slot: one in debt leaves a trace.
// A parked one was never charged, so the trace that it was parked for says it all.
//
// A bucket that has been full since fullAt leaves nothing behind, if it was used after the last change of rules, or
// that is so long ago that nothing is owed any more that was owed then. Otherwise its own rule may have changed before
// fullAt, to one that drains more slowly, and nobody has told this bucket. So it leaves a trace as well; those who ask
// from under a shape that did not change do not look at times that have passed. The end of a window leaves one always:
// a clock that steps back before it finds the window as it was.
func (s *Store) evictLocked(sh *shard, now int64, slot *slot, fullAt int64) {
	shape := &s.shapes.list[slot.shape]
	switch {
	case slot.home&parked != 0:
		sh.evictedFull++
		return
	case fullAt > now:
		sh.evictedInDebt++
	case shape.Algorithm.Drains() && (slot.stamp > saturating(s.changed.Load(), int64(overlap)) ||
		now > s.settled.Load()):
		sh.evictedFull++
		return
	default:
		sh.evictedFull++
	}
	if !shape.Algorithm.Drains() {
		fullAt = slot.forgottenAt(s.shapes)
	}
	s.tracesLocked(sh, now).raiseLater(slot.fingerprint, kindOf(shape), fullAt, now)
}

// tracesLocked are those of a shard, which then know what changes of limits the table has heard of, as far as they
// matter at now.
func (s *Store) tracesLocked(sh *shard, now int64) *traces {
	sh.traces.held, sh.traces.settled = math.MaxInt64, math.MinInt64
	if first := s.first.Load(); first != math.MaxInt64 && now <= s.settled.Load() {
		sh.traces.held, sh.traces.settled = first, saturating(s.changed.Load(), int64(overlap))
	}
	return &sh.traces
}

// noteTake notes the last change of the limit of a take, if it still matters.
func (s *Store) noteTake(now int64, t *bucket.Take) {
	if t.Since == 0 {
		return
	}
	if settled := t.Shape.Settled(t.Since, t.Before); settled > now {
		s.noteChange(t.Since, settled)
	}
}

// noteChange notes that limits changed, and when that ceases to matter. Whoever finds the change finds its end.
func (s *Store) noteChange(since, settled int64) {
	if since == 0 {
		return
	}
	raise(&s.settled, max(settled, saturating(since, int64(overlap))))
	raise(&s.changed, since)
	for first := s.first.Load(); since < first && !s.first.CompareAndSwap(first, since); {
		first = s.first.Load()
	}
}

// raise makes a value at least as large as another.
func raise(value *atomic.Int64, to int64) {
	for v := value.Load(); v < to && !value.CompareAndSwap(v, to); {
		v = value.Load()
	}
}

// fullAt is bucket.State.FullAt. An insertion asks 16 buckets for it, and of most limits a
// nanosecond drains a unit: then a call, to which the shape has to be copied, takes longer than the
// sum.
func (sl *slot) fullAt(shapes *registry) int64 {
	shape := &shapes.list[sl.shape]
	if shape.Drain == 1 && shape.Tick == 1 && shape.Algorithm.Drains() {
		return saturating(sl.stamp, max(sl.debt, 0))
	}
	return bucket.State{Debt: sl.debt, Stamp: sl.stamp}.FullAt(*shape)
}

func (sl *slot) forgottenAt(shapes *registry) int64 {
	return bucket.State{Debt: sl.debt, Stamp: sl.stamp}.ForgottenAt(&shapes.list[sl.shape])
}

func (sh *shard) clearLocked(set uint32, way int) {
	sh.leaveLocked(place{set: set, way: int32(way)})
	sh.sets[set][way] = slot{}
	sh.setTagLocked(set, way, 0)
}

func (sh *shard) setTagLocked(set uint32, way int, tag uint64) {
	sh.tags[set] = sh.tags[set]&^(0xff<<(8*way)) | tag<<(8*way)
}
