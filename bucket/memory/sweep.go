package memory

import (
	"unsafe"

	"github.com/headgate-io/headgate/rate"
)

// Stats describes a table. Created, EvictedFull and EvictedInDebt only grow. Created less both
// others is the number of slots in use, most of which may hold full buckets.
type Stats struct {
	Live     int // buckets in debt, at the time that was asked for
	Capacity int // slots
	Shapes   int // different shapes known
	Logs     int // sliding logs in use, at the time that was asked for
	MaxLogs  int // room for them
	Bytes    int64

	Created     uint64 // buckets that entered the table
	EvictedFull uint64 // full buckets that left, which nobody can notice
	// buckets in debt that left: the table is too small, and new keys may find less than a full
	// bucket
	EvictedInDebt uint64
	Refused       uint64 // look-ups of new keys that found no room, under Options.RefuseNewcomers

	// Occupancy is the part of the slots whose bucket is in debt. A table is large enough as long
	// as it stays below about 0.8.
	Occupancy float64

	// FalseDenials is the largest Crowding.FalseDenials of any limit that buckets of the table have.
	FalseDenials float64

	// Crowding says the same of each limit.
	Crowding *Crowding
}

// Stats sweeps the table, to count the buckets that are in debt at the Unix time now in
// nanoseconds. That takes some milliseconds for a million slots, in steps of which none holds a
// lock for more than some ten microseconds.
func (s *Store) Stats(now int64) Stats {
	stats := Stats{Shapes: s.shapes.used(), Bytes: s.bytes(), Crowding: new(Crowding)}
	s.sweep(func(sh *shard, set uint32, way int) {
		if sh.sets[set][way].fullAt(s.shapes) > now {
			stats.Live++
		}
	})
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		stats.Capacity += len(sh.sets) * ways
		stats.MaxLogs += s.logSets * ways
		stats.Logs += sh.logs.liveLocked(now)
		stats.Bytes += sh.logs.bytes()
		stats.Created += sh.created
		stats.EvictedFull += sh.evictedFull
		stats.EvictedInDebt += sh.evictedInDebt
		stats.Refused += sh.refused
		sh.mu.Unlock()
		stats.Crowding.addLocking(s, sh, now)
	}
	stats.Crowding.sum()
	stats.FalseDenials = s.shapes.most(stats.Crowding.FalseDenials)
	stats.Occupancy = float64(stats.Live) / float64(stats.Capacity)
	return stats
}

const shapeBytes = int64(unsafe.Sizeof(rate.Shape{}))

func (s *Store) bytes() int64 {
	n := int64(len(s.shards)) * int64(unsafe.Sizeof(shard{}))
	for i := range s.shards {
		sh := &s.shards[i]
		n += int64(len(sh.sets))*setBytes + int64(len(sh.traces.ledger))*int64(lineBytes) +
			int64(len(sh.traces.lanes.cells))*4
	}
	return n + int64(len(s.shapes.list))*int64(unsafe.Sizeof(s.shapes.list[0])+4) + int64(s.shapes.indexLen())*4
}

// reclaim takes back the numbers of shapes that no bucket in debt has. The caller holds no lock.
func (s *Store) reclaim(now int64) {
	r := s.shapes
	r.sweeping.Lock()
	defer r.sweeping.Unlock()
	if !r.worthReclaiming() {
		return // somebody else just did
	}
	r.epoch.Add(1)
	s.sweep(func(sh *shard, set uint32, way int) {
		slot := &sh.sets[set][way]
		// Nobody can notice, because no trace of it is still to come.
		if slot.forgottenAt(r) <= now {
			s.evictLocked(sh, now, slot, slot.fullAt(r))
			sh.clearLocked(set, way)
			return
		}
		r.mark(slot.shape)
	})
	r.takeBack(int64(len(s.shards) * len(s.shards[0].sets)))
}

// stride is how many sets are visited under one lock: 64 KiB.
const stride = 256

// sweep visits every slot that was ever used, under its shard's lock.
func (s *Store) sweep(visit func(sh *shard, set uint32, way int)) {
	for i := range s.shards {
		sh := &s.shards[i]
		for from := 0; from < len(sh.sets); from += stride {
			sh.sweepLocking(uint32(from), uint32(min(from+stride, len(sh.sets))), visit)
		}
	}
}

func (sh *shard) sweepLocking(from, to uint32, visit func(sh *shard, set uint32, way int)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for set := from; set < to; set++ {
		for way := range ways {
			if sh.tags[set]>>(8*way)&0xff != 0 {
				visit(sh, set, way)
			}
		}
	}
}
