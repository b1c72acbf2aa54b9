package memory

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// logTable is where sliding logs lie: sets of eight like those of other buckets, in slots four
// times as large. Every shard has one, under its lock and with its traces, as soon as a take asks
// for it. So decisions over logs and other buckets are one, an evicted log is remembered like any
// other bucket, and who uses none pays nothing.
//
// Logs are found and copied anew by each step of a decision, rather than carried along: a claim
// that had room for one would be three times as large for everybody.
type logTable struct {
	tags []uint64
	sets [][ways]logSlot
}

// logSlot is a log. It need not know the limit: its counts say the same under every limit of the same window.
type logSlot struct {
	fingerprint uint64
	window      int64 // below 0 if the log is parked, see parked
	log         bucket.Log
}

func (sl *logSlot) shape() *rate.Shape {
	return &rate.Shape{Tick: max(sl.window, -sl.window), Algorithm: rate.SlidingLog}
}

func (sl *logSlot) fullAt() int64 { return sl.log.FullAt(sl.shape()) }

func (c *claim) isLog() bool { return c.take.Shape.Algorithm == rate.SlidingLog }

// oneLog is one for a sliding log.
func (s *Store) oneLog(now int64, t *bucket.Take, o *bucket.Outcome, commit bool) bool {
	units, possible := rate.Units(&t.Shape, t.Cost)
	if !possible {
		units = -1
	}
	met := &t.Shape
	if !t.MeetsAll() {
		fewer := t.Met()
		met = &fewer
	}
	sh := &s.shards[t.Key.Hi>>(64-s.shardBits)]
	sh.mu.Lock()
	if slot := sh.currentLogLocked(t, s.shardBits); slot != nil && possible {
		if allowed, done := slot.log.TakeNow(now, met, units, commit, o); done {
			sh.mu.Unlock()
			return allowed || t.Shadow
		}
	}
	at, log := s.findLogLocked(sh, now, t)
	allowed := false
	if possible {
		log, allowed = log.Charge(now, met, units)
	}
	if allowed && commit && units > 0 {
		s.putLogLocked(sh, now, t, at, &log)
	} else if !allowed && commit && units > 0 && !t.Shadow {
		s.parkLogLocked(sh, now, t)
	}
	sh.mu.Unlock()
	log.Report(o, now, met, units, allowed)
	return allowed || t.Shadow
}

// checkLogLocked says whether c's log admits what is wanted of it.
func (s *Store) checkLogLocked(now int64, c *claim) bool {
	_, log := s.findLogLocked(&s.shards[c.shard], now, c.take)
	c.allowed = c.units >= 0
	if c.allowed {
		met := c.take.Met()
		_, c.allowed = log.Charge(now, &met, c.units)
	}
	return c.allowed
}

// checkLogShadowLocked says whether it admits the shadows on top.
func (s *Store) checkLogShadowLocked(now int64, c *claim, all bool) {
	if c.shadowAllowed = c.shadow >= 0; !c.shadowAllowed {
		return
	}
	_, log := s.findLogLocked(&s.shards[c.shard], now, c.take)
	met := c.take.Met()
	if all {
		log, _ = log.Charge(now, &met, c.units)
	}
	_, c.shadowAllowed = log.Charge(now, &met, c.shadow)
}

// reportLogsLocked reports the takes of logs. It comes before any of them is written, because that may evict others.
func (s *Store) reportLogsLocked(now int64, takes []bucket.Take, outs []bucket.Outcome, claims []claim,
	of []int32, all bool) {
	for i := range takes {
		c := &claims[of[i]]
		if !c.isLog() {
			continue
		}
		_, log := s.findLogLocked(&s.shards[c.shard], now, c.take)
		if all {
			log = log.Add(now, &c.take.Shape, c.taken())
		}
		met := c.take.Met()
		if takes[i].Shadow {
			log.Report(&outs[i], now, &met, c.shadow, c.shadowAllowed)
		} else {
			log.Report(&outs[i], now, &met, c.units, c.allowed)
		}
	}
}

// taken is what a decision that passed takes from c's bucket.
func (c *claim) taken() int64 {
	if c.shadowAllowed {
		return c.units + c.shadow
	}
	return c.units
}

// commitLogsLocked writes the logs that were charged, those that have a slot first. One that has
// none may find the traces changed by the one before, and is charged all the same: it was admitted.
func (s *Store) commitLogsLocked(now int64, claims []claim) {
	for _, present := range [...]bool{true, false} {
		for i := range claims {
			c := &claims[i]
			if !c.isLog() || !c.charged() {
				continue
			}
			sh := &s.shards[c.shard]
			at, log := s.findLogLocked(sh, now, c.take)
			if (at.way >= 0) != present {
				continue
			}
			log = log.Add(now, &c.take.Shape, c.taken())
			s.putLogLocked(sh, now, c.take, at, &log)
			c.units, c.shadowAllowed = 0, false // done
		}
	}
}

// findLogLocked finds the log of t's bucket, converted if the bucket was counted otherwise.
func (s *Store) findLogLocked(sh *shard, now int64, t *bucket.Take) (place, bucket.Log) {
	at := place{way: -1}
	if sh.logs != nil {
		if at = sh.logs.find(t.Key, s.shardBits); at.way >= 0 {
			slot := &sh.logs.sets[at.set][at.way]
			if at.current = max(slot.window, -slot.window) == t.Shape.Tick &&
				(t.Before == nil || slot.log.Stamp >= t.Since); at.current {
				return at, slot.log
			}
			h := slot.held()
			at.current = !h.Follow(now, t)
			return at, h.Log
		}
	}
	if set, way := s.otherLocked(sh, t.Key); way >= 0 {
		slot := &sh.sets[set][way]
		h := bucket.Held{Shape: s.shapes.list[slot.shape], State: bucket.State{Debt: slot.debt, Stamp: slot.stamp}}
		h.Follow(now, t)
		return at, h.Log
	}
	return at, s.tracesLocked(sh, now).inheritLog(now, t)
}

// currentLogLocked is the slot of t's log if that is charged and lies there as t's limit has it, else nil.
func (sh *shard) currentLogLocked(t *bucket.Take, shardBits uint) *logSlot {
	if sh.logs == nil {
		return nil
	}
	at := sh.logs.find(t.Key, shardBits)
	if at.way < 0 {
		return nil
	}
	slot := &sh.logs.sets[at.set][at.way]
	if slot.window != t.Shape.Tick || t.Before != nil && slot.log.Stamp < t.Since {
		return nil
	}
	return slot
}

// find finds the place of a key's log.
func (l *logTable) find(k key.Key, shardBits uint) place {
	i, _ := bits.Mul64(k.Hi<<shardBits, uint64(len(l.sets)))
	at := place{set: uint32(i), way: -1}
	for hits := zeroBytes(l.tags[i] ^ tagOf(k)*ones); hits != 0; hits &= hits - 1 {
		way := uint(bits.TrailingZeros64(hits)) / 8
		if l.sets[i][way%ways].fingerprint == k.Lo {
			at.way = int32(way)
			break
		}
	}
	return at
}

// otherLocked is where the bucket of a key lies if it is counted by another algorithm; else way is below 0.
func (s *Store) otherLocked(sh *shard, k key.Key) (set uint32, way int) {
	home, _ := bits.Mul64(k.Hi<<s.shardBits, uint64(len(sh.sets)))
	at := sh.seekLocked(uint32(home), k)
	return at.set, int(at.way)
}

// fromLogLocked is the bucket of a take that was counted in a log before its rule changed.
func (sh *shard) fromLogLocked(now int64, t *bucket.Take, shardBits uint) (bucket.State, bool) {
	at := sh.logs.find(t.Key, shardBits)
	if at.way < 0 {
		return bucket.State{}, false
	}
	h := sh.logs.sets[at.set][at.way].held()
	h.Follow(now, t)
	return h.State, true
}

// putLogLocked stores t's log, which is at its place or has none.
func (s *Store) putLogLocked(sh *shard, now int64, t *bucket.Take, at place, log *bucket.Log) {
	if at.current {
		slot := &sh.logs.sets[at.set][at.way]
		slot.window, slot.log = t.Shape.Tick, *log
		return
	}
	s.noteTake(now, t)
	if sh.logs == nil {
		sh.logs = &logTable{tags: make([]uint64, s.logSets), sets: make([][ways]logSlot, s.logSets)}
	}
	if at.way < 0 {
		sh.created++
		at = sh.logs.find(t.Key, s.shardBits)
		at.way = int32(s.makeLogRoomLocked(sh, now, at.set))
		if set, way := s.otherLocked(sh, t.Key); way >= 0 {
			sh.clearLocked(set, way) // it was counted so before the rule changed
			sh.evictedFull++
		}
	}
	shift := 8 * at.way
	sh.logs.tags[at.set] = sh.logs.tags[at.set]&^(0xff<<shift) | tagOf(t.Key)<<shift
	sh.logs.sets[at.set][at.way] = logSlot{fingerprint: t.Key.Lo, window: t.Shape.Tick, log: *log}
}

// parkLogLocked is parkLocked for a log.
func (s *Store) parkLogLocked(sh *shard, now int64, t *bucket.Take) {
	if at, log := s.findLogLocked(sh, now, t); at.way < 0 && log.FullAt(&t.Shape) > now {
		if _, way := s.otherLocked(sh, t.Key); way >= 0 ||
			s.tracesLocked(sh, now).fullAt(now, earliest(now, t), t) == math.MinInt64 {
			return
		}
		s.putLogLocked(sh, now, t, at, &log)
		at = sh.logs.find(t.Key, s.shardBits)
		sh.logs.sets[at.set][at.way].window = -t.Shape.Tick
	}
}

// makeLogRoomLocked is makeRoomLocked for logs. Whatever leaves has a trace, even if it is full: see evictLocked.
func (s *Store) makeLogRoomLocked(sh *shard, now int64, set uint32) int {
	if unused := zeroBytes(sh.logs.tags[set]); unused != 0 {
		return bits.TrailingZeros64(unused) / 8
	}
	victim, first := 0, int64(0)
	for way := range sh.logs.sets[set] {
		if fullAt := sh.logs.sets[set][way].fullAt(); way == 0 || fullAt < first {
			victim, first = way, fullAt
		}
	}
	gone := &sh.logs.sets[set][victim]
	if first > now && gone.window > 0 {
		sh.evictedInDebt++
	} else {
		sh.evictedFull++
	}
	if gone.window > 0 {
		s.tracesLocked(sh, now).raise(gone.fingerprint, kindOf(gone.shape()), first, now)
	}
	return victim
}

// dropLogLocked frees the slot of a log whose bucket is counted otherwise now.
func (sh *shard) dropLogLocked(k key.Key, shardBits uint) {
	if sh.logs == nil {
		return
	}
	if at := sh.logs.find(k, shardBits); at.way >= 0 {
		sh.logs.sets[at.set][at.way] = logSlot{}
		sh.logs.tags[at.set] &^= 0xff << (8 * at.way)
		sh.evictedFull++
	}
}

// inheritLog is inherit for logs.
func (k *traces) inheritLog(now int64, t *bucket.Take) bucket.Log {
	until, remembers := k.spentUntil(now, t)
	if !remembers {
		return bucket.FullLog(t.Key, &t.Shape)
	}
	return bucket.SpentLog(t.Key, &t.Shape, until)
}

// liveLocked is how many logs are in use.
func (l *logTable) liveLocked(now int64) int {
	live := 0
	for set := 0; l != nil && set < len(l.sets); set++ {
		for way := range l.sets[set] {
			if slot := &l.sets[set][way]; l.tags[set]>>(8*way)&0xff != 0 && slot.fullAt() > now {
				live++
			}
		}
	}
	return live
}

func (l *logTable) bytes() int64 {
	if l == nil {
		return 0
	}
	return int64(unsafe.Sizeof(*l)) + int64(len(l.sets))*int64(unsafe.Sizeof([ways]logSlot{})+8)
}
