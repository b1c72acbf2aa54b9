package memory

import (
	"math"
	"math/bits"
)

const (
	rows = 4

	// The times of a sketch are milliseconds after its base, which stays between these distances
	// behind the present: enough for clocks that step back by half a day, and for buckets that fill
	// within 37 days. Later ones are remembered as late, see lanes.latest.
	baseNear = 1 << 26 // 18 hours
	baseFar  = 1 << 30 // 12 days

	late = math.MaxUint32

	perMS = 1_000_000 // nanoseconds
)

// lanes are a sketch for each class, of the entries that find no room in the ledger. Each writes
// its time to one cell a row, unless a later one is there already; it can be read back as the
// earliest of its four cells, which is never earlier than what it wrote. Times pass by themselves,
// so nothing needs clearing.
type lanes struct {
	cells  []uint32 // lane after lane, in each row after row; 0 is never
	width  int      // of a row
	base   int64    // Unix time in milliseconds that cells count from
	latest [classes]int64
}

// newLanes makes lanes of width cells a row. latest, by class, is the Unix time in nanoseconds of
// the latest ever written; it is what a cell means that says late.
func newLanes(width int) lanes {
	k := lanes{cells: make([]uint32, classes*rows*width), width: width}
	for c := range k.latest {
		k.latest[c] = math.MinInt64
	}
	return k
}

// cell is the one of an identity in a row of a lane.
func (k *lanes) cell(c class, row int, hash uint64) *uint32 {
	i, _ := bits.Mul64(bits.RotateLeft64(hash, 16*row), uint64(k.width))
	return &k.cells[(int(c)*rows+row)*k.width+int(i)]
}

// row is one row of a lane.
func (k *lanes) row(c class, row int) []uint32 {
	first := (int(c)*rows + row) * k.width
	return k.cells[first : first+k.width]
}

// spread is the finalizer of splitmix64: identities are not random in all of their bits.
func spread(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// raise remembers the time fullAt, in Unix nanoseconds, for an identity.
func (k *lanes) raise(c class, identity uint64, fullAt, now int64) {
	k.moveBase(now / perMS)
	hash, since := spread(identity), k.since(fullAt)
	for row := range rows {
		cell := k.cell(c, row, hash)
		*cell = max(*cell, since)
	}
	k.latest[c] = max(k.latest[c], fullAt)
}

// since is a Unix time in nanoseconds as cells have it.
func (k *lanes) since(at int64) uint32 {
	ms := at / perMS
	if at%perMS > 0 {
		ms++
	}
	return uint32(min(max(ms-k.base, 1), late))
}

// fullAt is the latest time that was remembered for an identity, or a later one: Unix nanoseconds.
func (k *lanes) fullAt(c class, identity uint64) int64 {
	hash, since := spread(identity), uint32(late)
	for row := range rows {
		since = min(since, *k.cell(c, row, hash))
	}
	ms := k.base + int64(since)
	switch {
	case since == 0:
		return math.MinInt64
	case since == late || ms > math.MaxInt64/perMS:
		return k.latest[c]
	}
	return min(ms*perMS, k.latest[c])
}

// moveBase keeps base a fair way behind now, both in milliseconds. It rewrites the cells once in 12
// days, or when the clock makes a leap.
func (k *lanes) moveBase(now int64) {
	if behind := now - k.base; behind >= 0 && behind <= baseFar {
		return
	}
	base := now - baseNear
	forward := base - k.base
	k.base = base
	for c, latest := range k.latest {
		if latest == math.MinInt64 {
			continue // nothing was written yet
		}
		lane := k.cells[c*rows*k.width : (c+1)*rows*k.width]
		for i, since := range lane {
			if since == 0 {
				continue
			}
			moved := int64(since) - forward
			if since == late && forward > 0 {
				moved = latest/perMS + 1 - base // it may have come within reach
			}
			lane[i] = uint32(min(max(moved, 1), late))
		}
	}
}
