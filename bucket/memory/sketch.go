package memory

import (
	"math"
	"math/bits"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

const (
	rows = 4

	// The times of a sketch are milliseconds after its base, which stays between these distances behind the present: enough for clocks
	// that step back by half a day, and for buckets that fill within 37 days. Later ones are remembered as late, see sketch.latest.
	baseNear = 1 << 26 // 18 hours
	baseFar  = 1 << 30 // 12 days

	late = math.MaxUint32

	perMS = 1_000_000 // nanoseconds

	// overlap is how long after a shape took effect takes with the one before may still arrive: a request resolves its rules and then
	// takes, and in between the rules may have been replaced.
	overlap = time.Second
)

// sketch remembers of evicted buckets until when they would have been, or were, in debt. Each writes its time to one cell a row, unless a later one
// is there already; it can be read back as the earliest of its four cells, which is never earlier than what it wrote. Times pass by
// themselves, so nothing needs clearing. It is guarded by the mutex of its shard.
type sketch struct {
	cells  []uint32 // rows one after the other; 0 is never
	base   int64    // Unix time in milliseconds that cells count from
	latest int64    // Unix time in nanoseconds of the latest ever written; what a cell that says late means

	// carries says that some bucket of the shard once owed more than its burst (see bucket.State.Shift), so that what is remembered may
	// too.
	carries bool
}

// most is what a bucket may owe that comes back.
func (k *sketch) most(shape *rate.Shape) int64 {
	if k.carries {
		return shape.MaxDebt()
	}
	return shape.Capacity
}

func newSketch(width int) sketch {
	return sketch{cells: make([]uint32, rows*width), latest: math.MinInt64}
}

// cell is the one of a key in a row. Keys are random, so parts of their bits are as good as hashes.
func (k *sketch) cell(row int, fingerprint uint64) *uint32 {
	width := len(k.cells) / rows
	i, _ := bits.Mul64(bits.RotateLeft64(fingerprint, 16*row), uint64(width))
	return &k.cells[row*width+int(i)]
}

// raise remembers that the bucket of fingerprint would be full at the Unix time fullAt in nanoseconds.
func (k *sketch) raise(fingerprint uint64, fullAt, now int64) {
	k.moveBase(now / perMS)
	ms := fullAt / perMS
	if fullAt%perMS > 0 {
		ms++
	}
	since := uint32(min(max(ms-k.base, 1), late))
	for row := range rows {
		cell := k.cell(row, fingerprint)
		*cell = max(*cell, since)
	}
	k.latest = max(k.latest, fullAt)
}

// fullAt is when the bucket of fingerprint will be full, or later: Unix nanoseconds.
func (k *sketch) fullAt(fingerprint uint64) int64 {
	since := uint32(late)
	for row := range rows {
		since = min(since, *k.cell(row, fingerprint))
	}
	ms := k.base + int64(since)
	switch {
	case since == 0:
		return math.MinInt64
	case since == late || ms > math.MaxInt64/perMS:
		return k.latest
	}
	return min(ms*perMS, k.latest)
}

// moveBase keeps base a fair way behind now, both in milliseconds. It rewrites the cells once in 12 days, or when the clock makes a leap.
func (k *sketch) moveBase(now int64) {
	if behind := now - k.base; behind >= 0 && behind <= baseFar {
		return
	}
	base := now - baseNear
	forward := base - k.base
	k.base = base
	if k.latest == math.MinInt64 {
		return // nothing was written yet
	}
	for i, since := range k.cells {
		if since == 0 {
			continue
		}
		moved := int64(since) - forward
		if since == late && forward > 0 {
			moved = k.latest/perMS + 1 - base // it may have come within reach
		}
		k.cells[i] = uint32(min(max(moved, 1), late))
	}
}

// inherit is the bucket of a take that lies in no slot. If the sketch knows nothing of its key, it is full. If it was evicted in debt, it
// owes what drains until the time it wrote.
//
// If its limit has changed since, that is not enough: it went into the sketch with the old drain, which may be faster. Then it counts as
// empty at the last change, which Convert would not exceed either, and fills from there.
func (k *sketch) inherit(now int64, t *bucket.Take) bucket.State {
	if !t.Shape.Algorithm.Drains() {
		return k.inheritWindow(now, t)
	}
	if t.Before == nil {
		return k.remembered(now, t)
	}
	return atLeast(k.remembered(now, t), now, t)
}

// remembered is what a bucket owes that the sketch may remember.
func (k *sketch) remembered(now int64, t *bucket.Take) bucket.State {
	if k.latest <= earliest(now, t) {
		return bucket.State{Stamp: now}
	}
	s, fullAt := bucket.State{Stamp: now}, k.fullAt(t.Key.Lo)
	if fullAt > now {
		s.Debt = t.Shape.Drained(between(now, fullAt))
		if t.Shape.Tick > 1 {
			s.Debt++ // Drained rounds down
		}
	}
	if fullAt == math.MaxInt64 {
		s.Debt = k.most(&t.Shape) // FullAt ends here, debt may not
	}
	s.Debt = min(s.Debt, k.most(&t.Shape))
	switch at, may := restated(now, t, fullAt); {
	case !may:
	case at > now: // it begins to drain when its window would have begun
		s = bucket.State{Debt: max(s.Debt, t.Shape.Capacity), Stamp: at}
	default:
		s.Debt = max(s.Debt, t.Shape.Capacity-t.Shape.Drained(between(at, now)))
	}
	return s
}

// between is the time from one Unix time to a later one; 0 if it is not later.
func between(from, to int64) time.Duration {
	if to <= from {
		return 0
	}
	return time.Duration(min(uint64(to-from), math.MaxInt64))
}

// countLocked adds to inForce[row] how many of the row's cells from one to another remember a debt at now.
func (k *sketch) countLocked(inForce *[rows]int, from, to int, now int64) {
	width := len(k.cells) / rows
	ms := now / perMS
	for row := range rows {
		for _, since := range k.cells[row*width+from : row*width+to] {
			if since != 0 && k.base+int64(since) > ms {
				inForce[row]++
			}
		}
	}
}
