package memory

import (
	"math"
	"math/bits"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// What a bucket leaves behind when it is evicted is a trace: until when it would have been, or was,
// in debt. A new bucket begins with the debt that drains until the time of its trace. Two keys may
// be taken for one, and then both read the later time: nobody gains, and one may lose. How much is
// bounded by how long the own bucket takes to fill, so a time minutes ahead, which is a token or
// two to a rule of five an hour, is the whole burst to one of twenty a second. Therefore traces are
// kept apart by how long buckets take to fill, in classes: a key reads those of its own class
// alone.
//
//	class     0      1      2       3        4       5       6       7
//	to full   8 s    64 s   8.5 min 68 min   9.1 h   73 h    24 d    longer
//
// Nearly all lie in the ledger, as entries of four bytes: two keys are taken for one when lines,
// fingerprint and class are the same. Entries whose time has passed make room for others. What
// finds no room is spilled to the lane of its class, a sketch.

// class says how long a bucket takes to fill.
type class uint8

const classes = 8

// kind is the class of a trace, and whether it is that of a bucket that counts in windows.
type kind uint8

const counted kind = classes

func (k kind) class() class { return class(k & (classes - 1)) }

// kindOf is the kind of the traces that buckets of a shape leave.
func kindOf(sh *rate.Shape) kind {
	if sh.Algorithm.Drains() {
		return kind(classOf(sh.TimeToFull(sh.Capacity)))
	}
	return kind(classOf(time.Duration(sh.Tick))) | counted
}

func classOf(toFull time.Duration) class {
	beyond := uint64(max(toFull, 1)-1) / uint64(8*time.Second)
	return class(min((bits.Len64(beyond)+2)/3, classes-1))
}

// kindSet is a set of kinds, in bits.
type kindSet uint16

const anyKind kindSet = 1<<kinds - 1

func (s kindSet) has(k kind) bool { return s>>k&1 != 0 }

// classes are those of the kinds in s, in bits.
func (s kindSet) classes() uint8 { return uint8(s | s>>classes) }

// reads are the kinds of which a trace of t's bucket may be: those of its shape, and of all that it
// may have had when it was evicted, as far as they can matter. If one of them is not known, that is
// all. So it is for a moment after a change of any limit: a request that does not know of it yet
// may come after others that do.
func (k *traces) reads(now int64, t *bucket.Take) kindSet {
	if now <= k.settled {
		return anyKind
	}
	set := kindSet(1) << kindOf(&t.Shape)
	shape, since, until := &t.Shape, t.Since, now
	for p := t.Before; p != nil; p = p.Before {
		switch {
		case p.Spent:
			return set // nobody was here before
		case p.Shape == (rate.Shape{}):
			return anyKind
		}
		set |= 1 << kindOf(&p.Shape)
		shape, since, until = &p.Shape, p.Since, since
	}
	if since != 0 && until < shape.Settled(since, nil) {
		return anyKind
	}
	return set
}

// traces is what a shard remembers of the buckets that it evicted. It is guarded by the mutex of the shard.
type traces struct {
	ledger ledger
	lanes  lanes
	latest [classes]int64 // Unix time in nanoseconds of the latest ever written, by class
	last   int64          // the latest of these

	now    int64  // the time of the operation, in units of class 0: what has not passed then is kept
	clock  int64  // Unix nanoseconds: what times in the ledger are told from; it does not follow small steps back
	cursor uint32 // the next line to tidy
	pace   int64  // nanoseconds from one line to the next
	tidied int64  // Unix nanoseconds: every line was visited in the lap that ended then

	// held is the first change of any limit that the table heard of: a time that passes later may matter still, and is
	// spilled. It is math.MaxInt64 if there was none, or none matters any more.
	held int64

	// settled is until when requests may come that do not know yet of the last change.
	settled int64

	// late is a trace that is still to be written.
	late struct {
		pair        pair
		kind        kind
		waits       bool
		fullAt, now int64
	}

	// carries says that some bucket of the shard once owed more than its burst (see
	// bucket.State.Shift), so that what is remembered may too.
	carries bool
}

// newTraces makes traces in so many lines and cells.
func newTraces(lines, width int) traces {
	k := traces{
		ledger:  make(ledger, lines),
		lanes:   newLanes(width),
		pace:    max(int64(lap)/int64(lines), 1),
		last:    math.MinInt64,
		held:    math.MaxInt64,
		settled: math.MinInt64,
	}
	for c := range k.latest {
		k.latest[c] = math.MinInt64
	}
	return k
}

// raiseLater is raise, before the traces are needed for the next time. By then the lines of the key
// have come from memory: who is evicted is known only when a slot is needed, and nothing is left to
// be done meanwhile.
func (k *traces) raiseLater(key uint64, of kind, fullAt, now int64) {
	k.catchUp()
	k.late.pair, k.late.kind, k.late.waits, k.late.fullAt, k.late.now = k.ledger.pairOf(key), of, true, fullAt, now
	prefetchLines(&k.ledger[k.late.pair.a], &k.ledger[k.late.pair.b])
}

// catchUp writes what is still to be written. Whoever reads or writes traces calls it first.
func (k *traces) catchUp() {
	if k.late.waits {
		k.late.waits = false
		k.write(k.late.pair, k.late.kind, k.late.fullAt, k.late.now)
	}
}

// prefetch has the processor fetch the lines of a key that is not in the table, unless no trace in them can matter.
func (k *traces) prefetch(now int64, key uint64) {
	if k.last > now {
		p := k.ledger.pairOf(key)
		prefetchLines(&k.ledger[p.a], &k.ledger[p.b])
	}
}

// raise remembers that the bucket of a key, of some kind, would be full at the Unix time fullAt in nanoseconds.
func (k *traces) raise(key uint64, of kind, fullAt, now int64) {
	k.catchUp()
	k.write(k.ledger.pairOf(key), of, fullAt, now)
}

func (k *traces) write(p pair, of kind, fullAt, now int64) {
	if k.last == math.MinInt64 {
		k.clock, k.tidied = now, now
	}
	k.tidy(now)
	k.now = units(now, 0)
	c := of.class()
	k.latest[c] = max(k.latest[c], fullAt)
	k.last = max(k.last, fullAt)

	clock := units(k.clock, 0)
	at := unitsUp(fullAt, uint(c))
	if ahead := at - clock>>(3*c); ahead > furthestT || ahead < -oldestT {
		k.spill(p, of, fullAt)
		return
	}
	k.enter(p, entry(p.fingerprint)<<(timeBits+kindBits)|entry(of)<<timeBits|entry(at)&(1<<timeBits-1), clock)
}

// otherKind is that in full lines an entry of another kind gives way if the new one's time lies more than 256 times as
// far ahead. Among those of one kind the earliest does, for which few newcomers would be denied. If the earliest of all
// gave way, those of quick limits would be spilled whenever somebody crowds the table with buckets of a slow one. If
// those of one kind alone did, quick limits, which come most often, would keep slow ones out.
const otherKind = 8

// enter raises the entry that there is of the same fingerprint and kind, or else puts a new one
// where there is room for it: in the line of its two that has more. If none has any, the earliest of both lines is
// spilled, see otherKind, or the new one itself if that is earlier and another of its kind is there.
func (k *traces) enter(p pair, own entry, clock int64) {
	a, b := &k.ledger[p.a], &k.ledger[p.b]
	inA, in := k.look(a, own, clock)
	if in != nil {
		in.raise(own, clock)
		return
	}
	inB, in := k.look(b, own, clock)
	if in != nil {
		in.raise(own, clock)
		return
	}
	switch {
	case inA.room >= 0 && (inA.needed <= inB.needed || inB.room < 0):
		a.entries[inA.room] = own
		return
	case inB.room >= 0:
		b.entries[inB.room] = own
		return
	}
	at, victim, left := p.a, &a.entries[inA.first], inA.left
	if inB.left < left {
		at, victim, left = p.b, &b.entries[inB.first], inB.left
	}
	if (inA.kin || inB.kin) && own.left(clock) <= left {
		k.spill(p, own.kind(), own.at(clock))
		return
	}
	k.spill(k.pairAt(at, *victim), victim.kind(), victim.at(clock))
	*victim = own
}

// raise makes e as late as another entry of its kind, if that is later.
func (e *entry) raise(other entry, clock int64) {
	if other.ahead(clock) > e.ahead(clock) {
		*e = *e&^(1<<timeBits-1) | other&(1<<timeBits-1)
	}
}

// left is a measure of how far an entry's time lies ahead, whatever its class.
func (e entry) left(clock int64) int64 { return e.ahead(clock) << (3 * e.kind().class()) }

// space is how many entries of a line are needed, a place that is not, or -1, whether any is of the new one's kind, and
// of those that are needed the one to give way first, and how far ahead that is, see otherKind.
type space struct {
	needed, room, first int
	left                int64
	kin                 bool
}

// look finds the entry of a line that has the fingerprint and kind of own, or else what space there is.
func (k *traces) look(ln *line, own entry, clock int64) (space, *entry) {
	const indexBits = 4
	// Most entries of a crowded table are of one kind. For those the clock is shifted once.
	shift := 3 * uint(own.kind().class()) % 32
	since := entry(clock >> shift)
	room, needed, first, kin := -1, perLine, int64(math.MaxInt64), false
	for i := range ln.entries {
		e := ln.entries[i]
		differs, left := (e^own)>>timeBits, int64(0)
		switch {
		case differs == 0:
			return space{}, &ln.entries[i]
		case differs&(kinds-1) == 0:
			left, kin = int64(int32(e-since)<<(32-timeBits)>>(32-timeBits))<<shift, true
		default:
			left = e.left(clock) << otherKind
		}
		if e == 0 || left <= 0 && k.droppable(e, clock) && k.passed(e, clock) {
			room = i
			needed--
			continue
		}
		first = min(first, left<<indexBits|int64(i)) // both in one word, so that it needs no branch
	}
	return space{needed: needed, room: room, first: int(first & (1<<indexBits - 1)), left: first >> indexBits,
		kin: kin}, nil
}

// passed says whether an entry's time has passed by the time of the operation, which may lie before
// the clock: a request that was late may have left an entry that was never in debt by the clock,
// and whose bucket is.
func (k *traces) passed(e entry, clock int64) bool {
	shift := 3 * uint(e.kind().class())
	return (clock>>shift)+e.ahead(clock) <= k.now>>shift
}

// droppable says whether an entry whose time has passed matters no longer. It does if its limit may
// have become slower before; and the end of a window does always, as a clock that steps back before
// it finds the window as it was.
func (k *traces) droppable(e entry, clock int64) bool {
	return e.kind()&counted == 0 && (k.held == math.MaxInt64 || e.at(clock) <= k.held)
}

// pairAt is the pair of an entry that lies in a line.
func (k *traces) pairAt(at uint32, e entry) pair {
	return pair{a: at, b: k.ledger.other(at, e.fingerprint()), fingerprint: e.fingerprint()}
}

// spill remembers in a lane what has no room in the ledger.
func (k *traces) spill(p pair, of kind, at int64) {
	k.ledger.mark(p, at)
	k.lanes.raise(of.class(), p.identity(), at, k.clock)
}

// fullAt is the latest time that was remembered of t's bucket, or a later one: Unix nanoseconds.
// Times up to after do not matter.
func (k *traces) fullAt(now, after int64, t *bucket.Take) int64 {
	k.catchUp()
	if k.last <= after {
		return math.MinInt64
	}
	want, last := k.reads(now, t), int64(math.MinInt64)
	for rest := want.classes(); rest != 0; rest &= rest - 1 {
		last = max(last, k.latest[bits.TrailingZeros8(rest)])
	}
	if last <= after {
		return math.MinInt64
	}
	k.tidy(now)
	p, found := k.ledger.pairOf(t.Key.Lo), int64(math.MinInt64)
	if at, ok := k.ledger.latest(p, want, units(k.clock, 0)); ok {
		found = at
	}
	if k.ledger.spilledAfter(p, after) {
		for rest := want.classes(); rest != 0; rest &= rest - 1 {
			found = max(found, k.lanes.fullAt(class(bits.TrailingZeros8(rest)), p.identity()))
		}
	}
	return min(found, last)
}

// tidy visits as many lines as are due at now, so that no time is taken for one that is still to
// come after it has passed.
func (k *traces) tidy(now int64) {
	switch {
	case k.last == math.MinInt64:
		return // nothing was written yet
	case now < saturatingSub(k.clock, int64(4*time.Second)):
		k.setBack(now)
		return
	case now <= k.clock:
		return
	case uint64(now)-uint64(k.tidied) < uint64(k.pace):
		k.clock = now
		return
	}
	before := units(k.clock, 0) // entries may be older than the present can tell, but not than this
	k.clock = now
	passed := uint64(now) - uint64(k.tidied)
	if passed >= uint64(lap) {
		for i := range k.ledger {
			k.tidyLine(uint32(i), before)
		}
		k.tidied = now
		return
	}
	due := int64(passed) / k.pace
	k.tidied += due * k.pace
	for range due {
		k.tidyLine(k.cursor, before)
		if k.cursor++; int(k.cursor) == len(k.ledger) {
			k.cursor = 0
		}
	}
}

// tidyLine takes what has passed out of a line. Entries are told from the time before.
func (k *traces) tidyLine(at uint32, before int64) {
	now := units(k.clock, 0)
	for i, e := range &k.ledger[at].entries {
		if e == 0 {
			continue
		}
		shift := 3 * uint(e.kind().class())
		if (before>>shift)+e.ahead(before) > now>>shift {
			continue
		}
		if !k.droppable(e, before) {
			k.spill(k.pairAt(at, e), e.kind(), e.at(before))
		}
		k.ledger[at].entries[i] = 0
	}
}

// setBack follows a clock that was set back. What is now too far ahead is spilled.
func (k *traces) setBack(now int64) {
	before, after := units(k.clock, 0), units(now, 0)
	k.clock, k.tidied = now, now
	for n := range k.ledger {
		for i, e := range &k.ledger[n].entries {
			if e == 0 {
				continue
			}
			shift := 3 * uint(e.kind().class())
			if (before>>shift)+e.ahead(before)-after>>shift > furthestT {
				k.spill(k.pairAt(uint32(n), e), e.kind(), e.at(before))
				k.ledger[n].entries[i] = 0
			}
		}
	}
}

// saturatingSub takes b >= 0 from a.
func saturatingSub(a, b int64) int64 {
	if a < math.MinInt64+b {
		return math.MinInt64
	}
	return a - b
}
