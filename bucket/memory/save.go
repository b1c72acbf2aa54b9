package memory

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// A table is written as records, each of which begins with a byte that says what it is:
//
//	's'  a shape: drain, unit, capacity, tick, phase, algorithm; they are numbered as they come, from 0
//	'b'  a bucket: half of its key, debt, stamp, number of its shape, and whether it is parked
//	'l'  a sliding log: half of its key, window, stamp, counts
//	't'  the traces of a shard
//	'e'  the end
//
// All numbers are little endian. What is full is left out, but for buckets whose limit may have
// become slower while they were not. Where a bucket lies follows from its key, so another table may
// have another size. What lies in the ledger has no key: under another layout a trace is known by
// its class alone, and every newcomer of the class finds the latest of them.
const (
	recordShape  = 's'
	recordBucket = 'b'
	recordLog    = 'l'
	recordTraces = 't'
	recordEnd    = 'e'

	parkedShape = 1 << 31 // in the number of a parked bucket's shape
)

// Save writes what the store holds, for Load. It is meant for stores whose keys are those of
// key.NewLasting. Decisions go on meanwhile; none waits longer than some ten microseconds, or where
// buckets were evicted in debt, until the traces of a shard are copied. What is decided after Save
// began may be missing, and parts of it may not. Now is the present in Unix nanoseconds.
func (s *Store) Save(w io.Writer, now int64) error {
	out := &saving{store: s, now: now, to: bufio.NewWriterSize(w, 1<<16), numbers: map[uint32]uint32{}}
	for _, v := range [...]int64{s.changed.Load(), s.first.Load(), s.settled.Load(), int64(len(s.shards))} {
		out.number(v)
	}
	for i := range s.shards {
		sh := &s.shards[i]
		for from := 0; from < len(sh.sets); from += stride {
			out.buckets = out.buckets[:0]
			sh.sweepLocking(uint32(from), uint32(min(from+stride, len(sh.sets))), out.bucketLocked)
			out.writeBuckets()
		}
		out.logs(sh)
		out.traces(uint32(i), sh)
		if out.err != nil {
			return out.err
		}
	}
	out.byte(recordEnd)
	return errors.Join(out.err, out.to.Flush())
}

// saving is a Save under way.
type saving struct {
	store *Store
	now   int64
	to    *bufio.Writer
	err   error

	shapes  []rate.Shape      // in the order of their records
	told    int               // how many of them are written
	numbers map[uint32]uint32 // in shapes, by number in the registry
	buckets []savedBucket
	text    []byte
}

type savedBucket struct {
	lo          uint64
	debt, stamp int64
	shape       uint32
}

func (o *saving) write(text []byte) {
	if o.err == nil {
		_, o.err = o.to.Write(text)
	}
}

func (o *saving) byte(b byte)    { o.write([]byte{b}) }
func (o *saving) number(v int64) { o.write(binary.LittleEndian.AppendUint64(o.text[:0], uint64(v))) }

// bucketLocked notes a bucket that has to be written. The registry may give a number to another shape between two of
// them.
func (o *saving) bucketLocked(sh *shard, set uint32, way int) {
	slot, s := &sh.sets[set][way], o.store
	if slot.forgottenAt(s.shapes) <= o.now && (slot.stamp > saturating(s.changed.Load(), int64(overlap)) ||
		o.now > s.settled.Load()) {
		return
	}
	n, known := o.numbers[slot.shape]
	if shape := &s.shapes.list[slot.shape]; !known || !same(&o.shapes[n], shape) {
		n = uint32(len(o.shapes))
		o.numbers[slot.shape] = n
		o.shapes = append(o.shapes, *shape)
	}
	if slot.home&parked != 0 {
		n |= parkedShape
	}
	o.buckets = append(o.buckets, savedBucket{slot.fingerprint, slot.debt, slot.stamp, n})
}

func (o *saving) writeBuckets() {
	for ; o.told < len(o.shapes); o.told++ {
		o.text = append(appendShape(append(o.text[:0], recordShape), &o.shapes[o.told]),
			byte(o.shapes[o.told].Algorithm))
		o.write(o.text)
	}
	for i := range o.buckets {
		b := &o.buckets[i]
		o.text = append(o.text[:0], recordBucket)
		o.text = binary.LittleEndian.AppendUint64(o.text, b.lo)
		o.text = appendInts(o.text, b.debt, b.stamp)
		o.text = binary.LittleEndian.AppendUint32(o.text, b.shape)
		o.write(o.text)
	}
}

func appendShape(text []byte, sh *rate.Shape) []byte {
	return appendInts(text, sh.Drain, sh.Unit, sh.Capacity, sh.Tick, int64(sh.Phase))
}

func appendInts(text []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		text = binary.LittleEndian.AppendUint64(text, uint64(n))
	}
	return text
}

// logs writes the sliding logs of a shard.
func (o *saving) logs(sh *shard) {
	var found []logSlot
	sh.mu.Lock()
	sets := 0
	if sh.logs != nil {
		sets = len(sh.logs.sets)
	}
	sh.mu.Unlock()
	for from := 0; from < sets; from += stride / 4 { // slots are four times as large
		found = sh.logsLocking(from, min(from+stride/4, sets), o, found[:0])
		for i := range found {
			l := &found[i]
			o.text = append(o.text[:0], recordLog)
			o.text = binary.LittleEndian.AppendUint64(o.text, l.fingerprint)
			o.text = appendInts(o.text, l.window, l.log.Stamp)
			for _, n := range l.log.Counts {
				o.text = binary.LittleEndian.AppendUint32(o.text, n)
			}
			o.write(o.text)
		}
	}
}

func (sh *shard) logsLocking(from, to int, o *saving, found []logSlot) []logSlot {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for set := from; set < to; set++ {
		for way := range ways {
			slot := &sh.logs.sets[set][way]
			if sh.logs.tags[set]>>(8*way)&0xff != 0 && (slot.fullAt() > o.now || o.now <= o.store.settled.Load()) {
				found = append(found, *slot)
			}
		}
	}
	return found
}

// traces writes what a shard remembers of buckets that it evicted, if anything.
func (o *saving) traces(number uint32, sh *shard) {
	ledger, lanes, text := o.copyTraces(number, sh)
	if text == nil {
		return
	}
	o.write(text)
	for i := range ledger {
		if ledger[i] == (line{}) {
			continue
		}
		o.text = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(o.text[:0], uint32(i)),
			ledger[i].spilled)
		for _, e := range ledger[i].entries {
			o.text = binary.LittleEndian.AppendUint32(o.text, uint32(e))
		}
		o.write(o.text)
	}
	o.write(none[:])
	for i, cell := range lanes {
		if cell != 0 {
			o.write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(o.text[:0], uint32(i)), cell))
		}
	}
	o.write(none[:])
}

// none ends a list of numbered lines or cells.
var none = [4]byte{0xff, 0xff, 0xff, 0xff}

func (o *saving) copyTraces(number uint32, sh *shard) (ledger ledger, cells []uint32, text []byte) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	k := o.store.tracesLocked(sh, o.now)
	if k.catchUp(); k.last == math.MinInt64 {
		return nil, nil, nil
	}
	text = binary.LittleEndian.AppendUint32([]byte{recordTraces}, number)
	text = binary.LittleEndian.AppendUint32(text, uint32(len(k.ledger)))
	text = binary.LittleEndian.AppendUint32(text, uint32(k.lanes.width))
	text = appendInts(text, k.latest[:]...)
	text = appendInts(text, k.lanes.latest[:]...)
	carries := int64(0)
	if k.carries {
		carries = 1
	}
	text = appendInts(text, k.last, k.now, k.clock, int64(k.cursor), k.tidied, k.lanes.base, carries)
	return append(ledger, k.ledger...), append(cells, k.lanes.cells...), text
}

// Load reads what Save wrote, into a store that is as New made it, under keys of key.NewLasting
// with the same seed. Times in it are by the clock that decisions are made by, which has to go on from
// there: now is the present in Unix nanoseconds. The table need not be as large; buckets that find no
// room leave traces, so that nobody is granted anything. After an error the store is in no good
// state.
func (s *Store) Load(r io.Reader, now int64) error {
	in := &loading{store: s, now: now, from: bufio.NewReaderSize(r, 1<<16)}
	changed, first, settled, shards := in.number(), in.number(), in.number(), in.number()
	s.changed.Store(changed)
	s.first.Store(first)
	s.settled.Store(settled)
	in.sameShards = shards == int64(len(s.shards))
	for in.err == nil {
		switch kind := in.bytes(1)[0]; {
		case in.err != nil:
		case kind == recordShape:
			in.shape()
		case kind == recordBucket:
			in.bucket()
		case kind == recordLog:
			in.log()
		case kind == recordTraces:
			in.traces()
		case kind == recordEnd:
			in.finish()
			return in.err
		default:
			in.fail("a record begins with %q, want one of s, b, l, t and e", kind)
		}
	}
	return in.err
}

// loading is a Load under way.
type loading struct {
	store *Store
	now   int64
	from  *bufio.Reader
	err   error
	text  [128]byte

	shapes     []rate.Shape
	sameShards bool
	latest     [classes]int64 // of traces without a place here
	coarse     bool           // there are some
	carries    bool
}

func (in *loading) fail(format string, args ...any) {
	if in.err == nil {
		in.err = fmt.Errorf("saved buckets: "+format, args...)
	}
}

// bytes are the next n, at most as many as in.text has; zeros after an error.
func (in *loading) bytes(n int) []byte {
	text := in.text[:n]
	if in.err == nil {
		if _, err := io.ReadFull(in.from, text); err != nil {
			in.fail("they end too soon: %w", err)
		}
	}
	if in.err != nil {
		clear(text)
	}
	return text
}

func (in *loading) number() int64 { return int64(binary.LittleEndian.Uint64(in.bytes(8))) }
func (in *loading) short() uint32 { return binary.LittleEndian.Uint32(in.bytes(4)) }

func (in *loading) shape() {
	sh := rate.Shape{
		Drain:     in.number(),
		Unit:      in.number(),
		Capacity:  in.number(),
		Tick:      in.number(),
		Phase:     uint32(in.number()),
		Algorithm: rate.Algorithm(in.bytes(1)[0]),
	}
	if in.err == nil && !sane(&sh) {
		in.fail("shape %d is %+v, want one that a limit has", len(in.shapes), sh)
	}
	if len(in.shapes) >= largest {
		in.fail("more than %d shapes", largest)
	}
	in.shapes = append(in.shapes, sh)
}

// sane reports whether arithmetic is safe with a shape.
func sane(sh *rate.Shape) bool {
	if sh.Drain < 1 || sh.Unit < 1 || sh.Capacity < 1 || sh.Tick < 1 || sh.Capacity > rate.MaxCapacity {
		return false
	}
	if sh.Algorithm.Drains() {
		return true
	}
	return sh.Algorithm <= rate.SlidingLog && sh.Unit == 1 && sh.Capacity <= sh.Algorithm.MaxCount() &&
		sh.Tick <= rate.MaxWindow
}

func (in *loading) bucket() {
	lo, debt, stamp, n := uint64(in.number()), in.number(), in.number(), in.short()
	number := int(n &^ parkedShape)
	switch {
	case in.err != nil:
		return
	case number >= len(in.shapes):
		in.fail("a bucket has shape %d of %d", number, len(in.shapes))
		return
	case debt < 0 || in.shapes[number].Algorithm == rate.SlidingLog:
		in.fail("a bucket owes %d in shape %+v", debt, in.shapes[number])
		return
	}
	in.store.restore(in.now, key.Lasting(lo), bucket.State{Debt: debt, Stamp: stamp}, &in.shapes[number],
		n&parkedShape != 0)
}

// restore puts a bucket into the table as it was left under a shape. It may be there already, if it moved while it was
// saved: then the later one counts.
func (s *Store) restore(now int64, k key.Key, state bucket.State, shape *rate.Shape, isParked bool) {
	shard, home := s.locate(k)
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := bucket.Take{Key: k, Shape: *shape}
	at := sh.seekLocked(home, k)
	if at.way >= 0 && sh.sets[at.set][at.way].stamp > state.Stamp {
		return
	}
	s.putLocked(sh, now, &t, at, state, s.internLocked(sh, shape))
	if at = sh.seekLocked(home, k); isParked && at.way >= 0 {
		sh.sets[at.set][at.way].home |= parked
	}
}

func (in *loading) log() {
	lo, window, log := uint64(in.number()), in.number(), bucket.Log{Stamp: in.number()}
	text := in.bytes(4 * len(log.Counts))
	for i := range log.Counts {
		log.Counts[i] = binary.LittleEndian.Uint32(text[4*i:])
	}
	length := max(window, -window)
	if in.err == nil && (length < 1 || length > rate.MaxWindow) {
		in.fail("a log has a window of %d ns, want 1 to %d", length, int64(rate.MaxWindow))
	}
	if in.err != nil {
		return
	}
	s := in.store
	t := bucket.Take{Key: key.Lasting(lo), Shape: rate.Shape{
		Drain:     1,
		Unit:      1,
		Capacity:  rate.SlidingLog.MaxCount(),
		Tick:      length,
		Algorithm: rate.SlidingLog,
	}}
	sh := &s.shards[t.Key.Hi>>(64-s.shardBits)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	at := place{way: -1}
	if sh.logs != nil {
		at = sh.logs.find(t.Key, s.shardBits)
	}
	if at.way >= 0 && sh.logs.sets[at.set][at.way].log.Stamp > log.Stamp {
		return
	}
	s.putLogLocked(sh, in.now, &t, at, &log)
	if at = sh.logs.find(t.Key, s.shardBits); window < 0 {
		sh.logs.sets[at.set][at.way].window = window
	}
}

func (in *loading) traces() {
	shard, lines, width := in.short(), in.short(), in.short()
	var k traces
	for c := range k.latest {
		k.latest[c] = in.number()
	}
	for c := range k.lanes.latest {
		k.lanes.latest[c] = in.number()
	}
	k.last, k.now, k.clock = in.number(), in.number(), in.number()
	k.cursor, k.tidied, k.lanes.base, k.carries = uint32(in.number()), in.number(), in.number(), in.number() != 0
	if in.err != nil {
		return
	}
	own := &traces{}
	fits := in.sameShards && int(shard) < len(in.store.shards)
	if fits {
		own = &in.store.shards[shard].traces
		fits = int(lines) == len(own.ledger) && int(width) == own.lanes.width && k.cursor < lines
	}
	in.carries = in.carries || k.carries
	if !fits {
		for c, at := range k.latest {
			if !in.coarse || at > in.latest[c] {
				in.latest[c] = at
			}
		}
		in.coarse = true
		own = &traces{}
	} else {
		own.latest, own.last, own.now, own.clock, own.cursor, own.tidied = k.latest, k.last, k.now, k.clock,
			k.cursor, k.tidied
		own.lanes.latest, own.lanes.base = k.lanes.latest, k.lanes.base
	}
	for n := in.short(); n != math.MaxUint32 && in.err == nil; n = in.short() {
		ln := line{spilled: in.short()}
		for i := range ln.entries {
			ln.entries[i] = entry(in.short())
		}
		switch {
		case n >= lines:
			in.fail("line %d of %d", n, lines)
		case fits:
			own.ledger[n] = ln
		}
	}
	for n := in.short(); n != math.MaxUint32 && in.err == nil; n = in.short() {
		cell := in.short()
		switch {
		case uint64(n) >= classes*rows*uint64(width):
			in.fail("cell %d of %d", n, classes*rows*uint64(width))
		case fits:
			own.lanes.cells[n] = cell
		}
	}
}

// finish has every key find the traces that have no place of their own here.
func (in *loading) finish() {
	for i := range in.store.shards {
		sh := &in.store.shards[i]
		sh.mu.Lock()
		k := in.store.tracesLocked(sh, in.now)
		k.carries = k.carries || in.carries
		for c, at := range in.latest {
			if in.coarse && (at > in.now || k.held != math.MaxInt64 && at > k.held) {
				k.raiseAll(class(c), at, in.now)
			}
		}
		sh.mu.Unlock()
	}
}

// raiseAll is raise for every key there may be.
func (k *traces) raiseAll(c class, fullAt, now int64) {
	k.catchUp()
	if k.last == math.MinInt64 {
		k.clock, k.tidied = now, now
	}
	k.tidy(now)
	k.now = units(now, 0)
	k.latest[c] = max(k.latest[c], fullAt)
	k.last = max(k.last, fullAt)
	for i := range k.ledger {
		k.ledger[i].spilled = max(k.ledger[i].spilled, secondsUp(fullAt))
	}
	k.lanes.moveBase(now / perMS)
	since := k.lanes.since(fullAt)
	for row := range rows {
		for i, cells := 0, k.lanes.row(c, row); i < len(cells); i++ {
			cells[i] = max(cells[i], since)
		}
	}
	k.lanes.latest[c] = max(k.lanes.latest[c], fullAt)
}
