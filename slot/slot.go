// Package slot says when callers that a bucket has no room for may come again, so that
// they do not all come at the same moment.
//
// A bucket that answers truthfully tells everybody when its next token comes. They all
// come then, and all but one is refused. A [Table] gives each caller a time of its own,
// a token apart from the others', and remembers it:
//
//	at        who   answer
//	0.0 s     A     refused, come at 1.0 s
//	0.2 s     B     refused, come at 2.0 s
//	0.3 s     A     refused, come at 1.0 s
//	1.0 s     A     admitted, if the bucket says so
//
// It may also reserve: while A's time has come and A has not, nobody else takes the last
// token. That is for callers who say that they understand, and for a short while.
//
// A Table admits nothing. Whoever may pass still has to be admitted by the bucket, so no
// fault of a Table, a restart or another replica's table can let more pass than the bucket
// allows: it can only refuse, and for no longer than its times are ahead.
package slot

import (
	"cmp"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/key"
)

// Options configures a Table. Every zero value is a safe default.
type Options struct {
	// Reserve keeps the tokens of callers who said how many requests of theirs wait, until
	// Grace after their time. Otherwise times are spaced and nothing is kept.
	Reserve bool

	// Grace is how long after its time a slot is kept, in nanoseconds. Default 3 s. Longer
	// forgives slow networks; shorter wastes less on who does not come.
	Grace int64

	// MaxSlots is how many slots there may be, of all buckets. Default 65536. Callers
	// beyond it are told the truth.
	MaxSlots int

	// MaxAhead is how far ahead a slot may be, in nanoseconds. Default [MaxAhead]. Callers
	// whose time would be later are told the truth, or this if that is sooner.
	MaxAhead int64
}

// MaxAhead is how far ahead a slot may be unless Options say otherwise.
const MaxAhead = 2 * time.Minute

// Caller tells callers apart. Use [Table.Caller] to make one.
type Caller uint64

// Bucket is a bucket and how it stood at a moment.
type Bucket struct {
	Key key.Key

	Gap   int64 // nanoseconds that a token takes to come back
	Burst int64 // tokens that it holds

	// FullGap is Gap by what the limit says, where its rate is lowered at present; 0 if it is not.
	FullGap int64

	// FullAt is when it is full if nobody takes, in Unix nanoseconds: now or earlier, it is
	// full now.
	FullAt int64
}

// limitedAs reports whether b has the limit that it had as was, whatever part of its rate was in force.
func (b *Bucket) limitedAs(was *Bucket) bool {
	return b.Burst == was.Burst && cmp.Or(b.FullGap, b.Gap) == cmp.Or(was.FullGap, was.Gap)
}

// paced is b with the rate in force from now on that it has as it is asked about.
func (b *Bucket) paced(now int64, as *Bucket) Bucket {
	p := *as
	p.FullAt = b.FullAt
	if b.Gap != as.Gap && b.Gap > 0 && b.FullAt > now {
		full := math.Ceil(float64(b.FullAt-now) / float64(b.Gap) * float64(as.Gap))
		p.FullAt = now + int64(min(full, math.MaxInt64/4))
	}
	return p
}

// tokensAt is when the bucket holds n tokens, be n above the burst: then so many have come
// back, to whoever took the others.
func (b *Bucket) tokensAt(now, n int64) int64 {
	full := b.FullAt
	if n > b.Burst {
		full = max(full, now)
	}
	return full - saturating(b.Burst-n, b.Gap)
}

func saturating(a, b int64) int64 {
	if a != 0 && (a*b/a != b || a == math.MinInt64) {
		if (a < 0) != (b < 0) {
			return math.MinInt64 / 4
		}
		return math.MaxInt64 / 4
	}
	return max(math.MinInt64/4, min(math.MaxInt64/4, a*b))
}

// Slot is when a caller may come.
type Slot struct {
	At       int64 // Unix nanoseconds
	Reserved bool  // until Grace later nobody else takes its token
}

// Offer is a slot as its caller is told of it: for the same request again, or for the next one.
type Offer struct {
	// Wait is how long until then; 0 if the caller has no slot.
	Wait time.Duration

	// Reserved says that the tokens are kept for the caller, for a short while.
	Reserved bool
}

// Later is the later of two offers.
func (o Offer) Later(than Offer) Offer {
	if o.Wait > than.Wait {
		return o
	}
	return than
}

// In is the slot as an offer made at now.
func (s Slot) In(now int64) Offer { return Offer{time.Duration(s.At - now), s.Reserved} }

// Stats counts what a Table did.
type Stats struct {
	Spaced, Reserved uint64 // slots given out
	HeldBack         uint64 // requests refused because the tokens left were reserved
	Kept, NoShows    uint64 // reserved slots that were used, and not
	Slots            int    // there are now
}

// Table is the slots of all buckets. It is safe for concurrent use. A nil one has none, and reserves nothing.
type Table struct {
	o    Options
	seed maphash.Seed

	live   atomic.Int64 // slots
	shards [shards]shard

	spaced, reserved, heldBack, kept, noShows atomic.Uint64
}

const shards = 64

type shard struct {
	mu    sync.Mutex
	lines map[key.Key]*line // guarded by mu
	debts map[Caller]absent // guarded by mu: who did not come
	swept int64             // when lines were swept
}

// absent is a caller who had a slot reserved and did not come.
type absent struct {
	times uint8 // in succession
	until int64 // nothing is reserved for it before
}

// line is the slots of one bucket.
type line struct {
	Bucket
	slots []entry // by time
	of    map[Caller]int64
	total int64 // tokens that they are for
}

type entry struct {
	at       int64
	cost     int64
	caller   Caller
	reserved bool
}

// New returns a Table.
func New(o Options) *Table {
	if o.Grace <= 0 {
		o.Grace = 3e9
	}
	if o.MaxSlots <= 0 {
		o.MaxSlots = 1 << 16
	}
	if o.MaxAhead <= 0 {
		o.MaxAhead = int64(MaxAhead)
	}
	t := &Table{o: o, seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].lines = make(map[key.Key]*line)
		t.shards[i].debts = make(map[Caller]absent)
	}
	return t
}

// Reserves reports whether the table reserves.
func (t *Table) Reserves() bool { return t != nil && t.o.Reserve }

// Caller names a caller by whatever tells it apart.
func (t *Table) Caller(who []byte) Caller { return Caller(maphash.Bytes(t.seed, who)) }

// Stats returns what the table did so far.
func (t *Table) Stats() Stats {
	if t == nil {
		return Stats{}
	}
	return Stats{
		Spaced: t.spaced.Load(), Reserved: t.reserved.Load(), HeldBack: t.heldBack.Load(),
		Kept: t.kept.Load(), NoShows: t.noShows.Load(), Slots: int(t.live.Load()),
	}
}

// Empty reports whether there are no slots.
func (t *Table) Empty() bool { return t.live.Load() == 0 }

func (t *Table) shard(k key.Key) *shard { return &t.shards[k.Lo%shards] }

// HoldsBack reports whether a caller has to leave what a bucket holds to those it is
// reserved for, and otherwise false. The caller's slot, or a new one, is when it may come.
// Of the bucket, FullAt need not be known.
func (t *Table) HoldsBack(now int64, b Bucket, cost int64, who Caller, waits bool) (Slot, Bucket, bool) {
	if t.live.Load() == 0 {
		return Slot{}, Bucket{}, false
	}
	s := t.shard(b.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[b.Key]
	if l == nil || !b.limitedAs(&l.Bucket) {
		return Slot{}, Bucket{}, false
	}
	l.Bucket = l.paced(now, &b)
	t.expire(s, l, now)
	at, has := l.of[who]
	if has && at <= now {
		return Slot{}, Bucket{}, false
	}
	kept := l.kept(now, who)
	if kept == 0 || l.tokensAt(now, kept+cost) <= now {
		return Slot{}, Bucket{}, false
	}
	t.heldBack.Add(1)
	return t.give(s, l, now, l.tokensAt(now, kept+cost), cost, who, waits), l.Bucket, true
}

// kept is what is reserved for others whose time has come.
func (l *line) kept(now int64, who Caller) (tokens int64) {
	for i := range l.slots {
		if e := &l.slots[i]; e.at > now {
			break
		} else if e.reserved && e.caller != who {
			tokens += e.cost
		}
	}
	return tokens
}

// View is what a Table would tell a caller.
type View struct {
	Slot
	Has      bool // the caller has this time already
	HeldBack bool // the bucket has room, and it is reserved for others
	// its own time would be too far ahead, or there is no room for it: At is the truth, or MaxAhead
	// if that is later
	Beyond bool
	Before int // other callers whose times are earlier
}

// Look says what a caller would be told if it asked now, and gives it nothing. truth is when the
// bucket has room: now or earlier if it has. Look is false if the caller would be admitted.
func (t *Table) Look(now, truth int64, b Bucket, cost int64, who Caller, waits bool) (v View, refused bool) {
	s := t.shard(b.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &line{Bucket: b, of: make(map[Caller]int64)}
	absent := s.debts[who]
	missed := absent.times
	known := b // as HoldsBack knows it
	if old := s.lines[b.Key]; old != nil && b.limitedAs(&old.Bucket) {
		known = old.paced(now, &b)
		for _, e := range old.slots {
			if !t.over(e, now) {
				l.insert(e)
			} else if e.reserved && e.caller == who {
				missed++
			}
		}
	}
	at, has := l.of[who]
	if kept := l.kept(now, who); kept > 0 && !(has && at <= now) && known.tokensAt(now, kept+cost) > now {
		v.HeldBack, truth = truth <= now, known.tokensAt(now, kept+cost)
		l.Bucket = known
	} else if truth <= now {
		return View{}, false
	}
	v.At, v.Has = l.next(now, truth, cost, who)
	for _, e := range l.slots {
		if e.caller != who && e.at <= v.At {
			v.Before++
		}
	}
	v.Reserved = t.o.Reserve && waits && absent.until <= now && (missed == absent.times || missed < 2)
	switch {
	case v.Has:
		v.Reserved = v.Reserved || l.slots[l.find(v.At, who)].reserved
	case t.crowded(v.At, now):
		v.Beyond, v.Reserved = true, false
		v.At = max(truth, min(v.At, now+t.o.MaxAhead))
	}
	return v, true
}

// Refused gives a caller that the bucket refused a slot: the one that it has, or a new one.
// It is at truth or later, which is when the bucket has room. waits says that the caller
// told how many of its requests wait, and so understands slots.
func (t *Table) Refused(now, truth int64, b Bucket, cost int64, who Caller, waits bool) Slot {
	s := t.shard(b.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := t.line(s, b)
	t.expire(s, l, now)
	return t.give(s, l, now, truth, cost, who, waits)
}

// Taken notes that a caller was admitted, with the bucket as it is since. More says that
// the caller has another request: if the bucket has no token for it, it gets a slot.
func (t *Table) Taken(now int64, b Bucket, cost int64, who Caller, more bool) (next Slot, given bool) {
	empty := b.tokensAt(now, cost) > now
	if t.live.Load() == 0 && !(more && empty) {
		return Slot{}, false
	}
	s := t.shard(b.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines[b.Key] == nil && !(more && empty) {
		return Slot{}, false
	}
	l := t.line(s, b)
	t.expire(s, l, now)
	if at, has := l.of[who]; has {
		if i := l.find(at, who); l.slots[i].reserved {
			t.kept.Add(1)
			delete(s.debts, who)
		}
		t.remove(l, at, who)
	}
	if !more || l.tokensAt(now, l.total+cost) <= now {
		t.drop(s, l)
		return Slot{}, false
	}
	next = t.give(s, l, now, now, cost, who, true)
	_, given = l.of[who]
	return next, given
}

// Ahead is how many tokens of a bucket are other callers' at now.
func (t *Table) Ahead(now int64, k key.Key, who Caller) int64 {
	if t.live.Load() == 0 {
		return 0
	}
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[k]
	if l == nil {
		return 0
	}
	ahead := int64(0)
	for i := range l.slots {
		if e := &l.slots[i]; e.reserved && e.caller != who && e.at <= now && e.at+t.o.Grace >= now {
			ahead += e.cost
		}
	}
	return ahead
}

// Forget drops the slots of a bucket that was changed from outside.
func (t *Table) Forget(k key.Key) {
	if t == nil {
		return
	}
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[k]; l != nil {
		t.live.Add(-int64(len(l.slots)))
		delete(s.lines, k)
	}
}

// line is the line of a bucket as it is now. One of other limits begins anew.
func (t *Table) line(s *shard, b Bucket) *line {
	l := s.lines[b.Key]
	if l == nil || !b.limitedAs(&l.Bucket) {
		if l != nil {
			t.live.Add(-int64(len(l.slots)))
		}
		l = &line{of: make(map[Caller]int64)}
		s.lines[b.Key] = l
	}
	l.Bucket = b
	return l
}

// drop forgets a line without slots.
func (t *Table) drop(s *shard, l *line) {
	if len(l.slots) == 0 {
		delete(s.lines, l.Key)
	}
}

// give gives a caller its slot, or a new one behind all others.
func (t *Table) give(s *shard, l *line, now, truth, cost int64, who Caller, waits bool) Slot {
	defer t.drop(s, l)
	reserve := t.o.Reserve && waits && s.debts[who].until <= now
	at, has := l.next(now, truth, cost, who)
	if has {
		e := &l.slots[l.find(at, who)]
		if reserve && !e.reserved {
			e.reserved = true
			t.reserved.Add(1)
		}
		return Slot{At: at, Reserved: e.reserved}
	}
	if old, has := l.of[who]; has {
		t.remove(l, old, who) // somebody else took its token
	}
	if t.live.Load() >= int64(t.o.MaxSlots)/2 && now-s.swept > 1e9 {
		t.sweep(s, l, now)
	}
	if t.crowded(at, now) {
		return Slot{At: max(truth, min(at, now+t.o.MaxAhead))}
	}
	l.insert(entry{at, cost, who, reserve})
	t.live.Add(1)
	if reserve {
		t.reserved.Add(1)
	} else {
		t.spaced.Add(1)
	}
	return Slot{At: at, Reserved: reserve}
}

// next is the time that a caller has, if it is not before truth, and else the one behind all others.
func (l *line) next(now, truth, cost int64, who Caller) (at int64, has bool) {
	total := l.total
	if at, has := l.of[who]; has {
		if at >= truth {
			return at, true
		}
		total -= l.slots[l.find(at, who)].cost
	}
	return max(truth, l.tokensAt(now, total+cost)), false
}

// crowded reports whether there is no slot for a time.
func (t *Table) crowded(at, now int64) bool {
	return t.live.Load() >= int64(t.o.MaxSlots) || at > now+t.o.MaxAhead
}

func (l *line) insert(e entry) {
	i, _ := slices.BinarySearchFunc(l.slots, e.at, func(x entry, at int64) int {
		if x.at <= at {
			return -1
		}
		return 1
	})
	l.slots = slices.Insert(l.slots, i, e)
	l.of[e.caller] = e.at
	l.total += e.cost
}

// find is the place of a slot that there is.
func (l *line) find(at int64, who Caller) int {
	i, _ := slices.BinarySearchFunc(l.slots, at, func(x entry, at int64) int {
		if x.at < at {
			return -1
		}
		return 1
	})
	for l.slots[i].caller != who {
		i++
	}
	return i
}

func (t *Table) remove(l *line, at int64, who Caller) {
	i := l.find(at, who)
	l.total -= l.slots[i].cost
	l.slots = slices.Delete(l.slots, i, i+1)
	delete(l.of, who)
	t.live.Add(-1)
}

// over reports whether a slot is: it is kept until its time, and until Grace later if it is reserved.
func (t *Table) over(e entry, now int64) bool {
	return e.at <= now && !(e.reserved && now <= e.at+t.o.Grace)
}

// expire drops the slots that are over: reserved ones by Grace, others when their time has
// come.
func (t *Table) expire(s *shard, l *line, now int64) {
	if len(l.slots) == 0 || l.slots[0].at > now {
		return
	}
	kept := l.slots[:0]
	for i, e := range l.slots {
		if e.at > now {
			kept = append(kept, l.slots[i:]...)
			break
		}
		if !t.over(e, now) {
			kept = append(kept, e)
			continue
		}
		delete(l.of, e.caller)
		l.total -= e.cost
		t.live.Add(-1)
		if e.reserved {
			t.absent(s, e.caller, now)
		}
	}
	l.slots = kept
}

// sweep drops what is over of all lines of a shard but one. Nobody may ask for them again.
func (t *Table) sweep(s *shard, but *line, now int64) {
	s.swept = now
	for _, l := range s.lines {
		if l != but {
			t.expire(s, l, now)
			t.drop(s, l)
		}
	}
}

// maxAbsent bounds the callers of a shard that are known not to have come.
const maxAbsent = 4096

// absent notes that a caller did not come. From the second time in succession on, nothing
// is reserved for it for a minute, then two, four, and so on to about an hour.
func (t *Table) absent(s *shard, who Caller, now int64) {
	t.noShows.Add(1)
	a, known := s.debts[who]
	if !known && len(s.debts) >= maxAbsent {
		for other, b := range s.debts { // some other, as a map has no order
			if b.until <= now {
				delete(s.debts, other)
			}
			if len(s.debts) < maxAbsent {
				break
			}
		}
		if len(s.debts) >= maxAbsent {
			return
		}
	}
	if a.times++; a.times >= 2 {
		a.until = now + 60e9<<min(6, a.times-2)
	}
	a.times = min(a.times, 8)
	s.debts[who] = a
}
