package memory

import (
	"math/bits"
	"time"
)

const (
	// perLine entries and a mark fill a cache line.
	perLine = 15

	// A time in the ledger counts units of a 1024th of the longest time to full of its class, modulo 16 of these times.
	unitNS    = int64(8 * time.Second / 1024) // of class 0; each class has 8 times the unit of the one before
	timeBits  = 14
	furthestT = 1<<(timeBits-1) - 1 // units ahead of the clock that can be told from times that have passed
	oldestT   = 1024                // units that a time may lie back when it is entered

	kindBits = 4
	kinds    = 1 << kindBits
	fpBits   = 32 - timeBits - kindBits

	// lap is the time in which the cursor visits every line. It is shorter than any time in the
	// ledger takes to wrap around from the past to the future: half of 128 seconds, for class 0.
	lap = 45 * time.Second
)

// entry is a trace of one bucket: fingerprint 14 bits, kind 4, time 14. 0 is none, so no fingerprint is 0.
type entry uint32

func (e entry) fingerprint() uint32 { return uint32(e) >> (timeBits + kindBits) }
func (e entry) kind() kind          { return kind(e >> timeBits & (kinds - 1)) }

// line is a cache line of the ledger.
type line struct {
	// Unix time in seconds, rounded up, of the latest entry that found no room here or in its other
	// line; 0 is none
	spilled uint32
	entries [perLine]entry
}

// ledger holds entries in pairs of lines: the key names a fingerprint and one line, and from these
// the other line follows, and back. So an entry that has to leave for the lanes still has its
// identity: its fingerprint, its pair of lines, and its kind.
type ledger []line

// pair is where the entry of a key may lie.
type pair struct{ a, b, fingerprint uint32 }

// pairOf names the lines of a key. Keys are random, so parts of their bits are as good as hashes.
func (l ledger) pairOf(key uint64) pair {
	mixed := bits.RotateLeft64(key, 8)
	a, _ := bits.Mul64(mixed, uint64(len(l)))
	p := pair{a: uint32(a), fingerprint: max(uint32(mixed)&(1<<fpBits-1), 1)}
	p.b = l.other(p.a, p.fingerprint)
	return p
}

// other is the second line of an entry whose first is given.
func (l ledger) other(at, fingerprint uint32) uint32 {
	sum, _ := bits.Mul64(uint64(fingerprint)*0x9e3779b97f4a7c15, uint64(len(l)))
	if b := int64(sum) - int64(at); b >= 0 {
		return uint32(b)
	} else {
		return uint32(b + int64(len(l)))
	}
}

// identity stands for a pair of lines and a fingerprint, whichever line comes first.
func (p pair) identity() uint64 { return uint64(min(p.a, p.b))<<fpBits | uint64(p.fingerprint) }

// units is the time at in whole units of a class since 1970, rounded down.
func units(at int64, class uint) int64 {
	n := at / unitNS
	if at%unitNS < 0 {
		n--
	}
	return n >> (3 * class)
}

// unitsUp is units rounded up.
func unitsUp(at int64, class uint) int64 {
	n := units(at, 0)
	if n*unitNS != at {
		n++
	}
	return (n + 1<<(3*class) - 1) >> (3 * class)
}

// ahead is how many units of its class e's time lies after the clock, whose reading in units of
// class 0 is given; below 0 if it has passed.
func (e entry) ahead(clock int64) int64 {
	since := int32(e) - int32(clock>>(3*uint(e.kind().class())))
	return int64(since << (32 - timeBits) >> (32 - timeBits))
}

// at is e's time in Unix nanoseconds.
func (e entry) at(clock int64) int64 {
	shift := 3 * uint(e.kind().class())
	return saturatingUnits((clock>>shift)+e.ahead(clock), shift)
}

// saturatingUnits is n units of unitNS<<shift in nanoseconds.
func saturatingUnits(n int64, shift uint) int64 {
	hi, lo := bits.Mul64(uint64(max(n, -n)), uint64(unitNS)<<shift)
	switch {
	case (hi != 0 || lo > 1<<63-1) && n > 0:
		return 1<<63 - 1
	case hi != 0 || lo > 1<<63-1:
		return -1 << 63
	case n < 0:
		return -int64(lo)
	}
	return int64(lo)
}

// latest is the latest time among the entries of p whose kind is one of those wanted, and whether there is any.
func (l ledger) latest(p pair, want kindSet, clock int64) (at int64, found bool) {
	for _, n := range [...]uint32{p.a, p.b} {
		ln := &l[n]
		for _, e := range &ln.entries {
			if e.fingerprint() == p.fingerprint && want.has(e.kind()) {
				if t := e.at(clock); !found || t > at {
					at, found = t, true
				}
			}
		}
	}
	return at, found
}

// mark says in both lines of an entry that it was spilled.
func (l ledger) mark(p pair, at int64) {
	s := secondsUp(at)
	l[p.a].spilled = max(l[p.a].spilled, s)
	l[p.b].spilled = max(l[p.b].spilled, s)
}

// spilledAfter says whether an entry of p may have been spilled whose time is later than after, in Unix nanoseconds.
func (l ledger) spilledAfter(p pair, after int64) bool {
	s := min(l[p.a].spilled, l[p.b].spilled)
	return s != 0 && (s <= 1 || s == late || int64(s)*int64(time.Second) > after)
}

// secondsUp is a Unix time in seconds, rounded up: at least 1, which stands for everything before
// as well, and at most late, for everything after.
func secondsUp(at int64) uint32 {
	s := at / int64(time.Second)
	if at%int64(time.Second) > 0 {
		s++
	}
	return uint32(min(max(s, 1), late))
}
