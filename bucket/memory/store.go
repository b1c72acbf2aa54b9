// Package memory keeps buckets in a table of fixed size, in this process.
//
// The table is made for hostile keys. It never grows, no goroutine or timer tends it, and the
// garbage collector finds no pointer in it. It rests on one observation: a full bucket is the same
// as none, so a slot whose debt has drained is free, without anybody freeing it.
//
//	key.Hi ──▶ shard (its own lock) ──▶ set of 8 ways ◀── 8 tag bytes, compared as one word; those of a family are a cache line
//	key.Lo ──▶ tag, fingerprint            │
//	                                       └─ slot: fingerprint, debt, stamp, shape, home
//
// When all 8 buckets of a set are in debt, a new one lies with a relative, another of the 8 sets of
// its family, if a slot is free there; 51 of a family's 64 slots are seldom exceeded where 6.4 of a
// set's 8 often are. If none is found, a bucket of the limit that has most buckets there gives way,
// that which would be full first. What it owed is not forgotten: it leaves a trace, the time at
// which it would have been full, and a bucket that enters the table starts with the debt of the
// trace that its key finds. Keys that are taken for one can only make that time later, so nobody
// gains by being evicted: a table of any size admits at most what an unlimited one would. An LRU
// cache under the same attack admits several times the limit (TestChurnGrantsNothing).
//
// Traces are kept apart by how long the buckets of a limit take to fill, so that those of slow
// limits mean nothing to quick ones (traces). Most lie in a ledger of small entries; what finds no
// room there goes into a sketch. One trace in some thousand is taken for that of another key, until
// there are nearly three times as many buckets in debt as slots. Who is denied for it is parked: the
// bucket then lies in the table, and drains.
//
// A rule that becomes slower has buckets that would be full at the old rate, and are not at the new
// one. Store.Learn tells the table of it, so that such a bucket is remembered even if it leaves
// before anybody takes from it.
//
// The price of too small a table is that new keys find less than a full bucket: Stats.Crowding says
// how many of them are denied, for each limit, and Stats.EvictedInDebt shows the approach of that.
package memory

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Options configures a Store. The zero value is a table of a million buckets in about 46 MB.
type Options struct {
	// MaxBuckets is how many buckets the table holds, rounded up to a whole number of sets of 8.
	// Default 1<<20, at most 1<<30. Give it a quarter more than the buckets that are in debt at the
	// same time: too few and new keys begin with debt that is not theirs (never the other way
	// round), too many and memory lies idle, 44 bytes a bucket with the defaults. On Linux a table of
	// more than the default is kept in huge pages, if the kernel has some: decisions among many keys
	// then take less, and the first few thousand keys need the memory of all.
	MaxBuckets int

	// MaxBytes says the same in bytes: the table is as large as fits. At least MinBytes; give one
	// of both. It holds for the table, which is nearly all that a Store takes.
	MaxBytes int64

	// SketchWidth is for how many slots there is room for traces of evicted buckets, 16 bytes each:
	// about 3.3 traces. Default five eighths of MaxBuckets, which is enough for 2.75 times as many
	// buckets in debt as slots; MaxBuckets is enough for four times, and a quarter, which suffices
	// for a table that is never over-subscribed, for 1.75 times.
	SketchWidth int

	// MaxShapes is how many different shapes the buckets of the table may have at once. Default a
	// 64th of MaxBuckets, at least 64 and at most 1<<17. Of a bucket that finds no room for its
	// shape there is only the trace, which is safe, but coarse.
	MaxShapes int

	// RefuseNewcomers denies a key that the table does not know while all slots it could have,
	// those of 8 sets, hold buckets in debt, instead of evicting one of them. It keeps the buckets
	// that are there exact, for the price of turning new clients away: whoever keeps enough keys in
	// debt decides who may come. Off by default, because eviction never grants a token, so memory
	// alone is no reason to refuse anybody.
	RefuseNewcomers bool

	// MaxLogs is how many sliding logs the store holds, in a table of their own, rounded up to
	// whole sets in every shard. Default a sixteenth of MaxBuckets. It takes 129 bytes a log, a
	// shard's part of which is only allocated when a rule first asks for one there.
	MaxLogs int
}

const (
	defaultBuckets = 1 << 20
	largest        = 1 << 30 // of each option
)

// Store is a bounded table of buckets. It is safe for concurrent use.
type Store struct {
	shards    []shard // a power of two
	shardBits uint    // log2(len(shards))
	shapes    *registry
	logSets   int // of each shard

	refuseNewcomers bool

	// changed is the latest Since of any take that found its bucket missing or under another shape:
	// when rules last changed, as far as the table was told.
	changed atomic.Int64

	// first is the earliest of them; math.MaxInt64 if there was none.
	first atomic.Int64

	// settled is when all that was owed at any of them has drained, and none matters any more; math.MinInt64 if there
	// was none.
	settled atomic.Int64
}

// New makes an empty Store, or says everything that is wrong with o.
func New(o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	p := o.plan(o.MaxBuckets)
	s := &Store{
		shards: make([]shard, p.shards), shardBits: uint(bits.TrailingZeros(uint(p.shards))),
		shapes:  newRegistry(o.MaxShapes),
		logSets: p.logSets, refuseNewcomers: o.RefuseNewcomers,
	}
	s.first.Store(math.MaxInt64)
	s.settled.Store(math.MinInt64)
	sets := make([]set, p.shards*p.sets)
	if len(sets)*ways > defaultBuckets {
		inHugePages(sets)
	}
	for i := range s.shards {
		s.shards[i].init(sets[i*p.sets:][:p.sets:p.sets], p.lines, p.width)
	}
	return s, nil
}

// shardCount is the smallest power of two that gives every running goroutine a choice of eight
// locks, but none with fewer than eight sets behind each, where rounding to whole sets would cost
// more than the locks gain.
func shardCount(sets int) int {
	n := 1
	for n < 8*runtime.GOMAXPROCS(0) && 2*n*8 <= sets {
		n *= 2
	}
	return n
}

func inRange(field string, value int) error {
	if value < 0 || value > largest {
		return fmt.Errorf("%s is %d, want 1 to %d, or 0 for the default", field, value, largest)
	}
	return nil
}

// TryConsume takes from all the buckets named, or from none, at the time now in Unix nanoseconds,
// and writes into outs[i] what became of takes[i]. It reports whether all takes that are not
// shadows were allowed. A denied decision charges nothing, and makes no later one worse.
//
// Takes of one bucket are added up: together they are allowed or denied, and wait as long as their
// sum has to. Shadow takes of a bucket are added up among themselves and come after the others.
//
// All of it happens at one instant: no other call sees a part. Up to 14 takes need no allocation;
// the time grows with the square of their number. An error means that nothing was decided: outs is
// too short, or one bucket was named with two shapes.
func (s *Store) TryConsume(_ context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if len(takes) == 1 && len(outs) > 0 && takes[0].Kept == 0 {
		return s.one(now, &takes[0], &outs[0], true), nil // as decide does: most requests meet one rule
	}
	return s.decide(now, takes, outs, true)
}

// Peek answers what TryConsume would, and changes nothing.
func (s *Store) Peek(_ context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	return s.decide(now, takes, outs, false)
}

// A request meets one rule, or a handful, or at the very most one for each subject and as many for
// all endpoints. The arrays of these lengths stay on the stack; the smaller one because clearing
// the larger takes longer than deciding.
const (
	few  = 4
	most = 14
)

func (s *Store) decide(now int64, takes []bucket.Take, outs []bucket.Outcome, commit bool) (bool, error) {
	if len(outs) < len(takes) {
		return false, fmt.Errorf("there is room for %d outcomes, want %d", len(outs), len(takes))
	}
	switch n := len(takes); {
	case n == 1 && takes[0].Kept == 0:
		return s.one(now, &takes[0], &outs[0], commit), nil
	case n <= few:
		if allowed, done := s.quiet(now, takes, outs, commit); done {
			return allowed, nil
		}
		var claims [few]claim
		var of [few]int32
		var locks [few]uint32
		return s.all(now, takes, outs, commit, claims[:0], of[:n], locks[:0])
	case n <= most:
		var claims [most]claim
		var of [most]int32
		var locks [most]uint32
		return s.all(now, takes, outs, commit, claims[:0], of[:n], locks[:0])
	default:
		return s.all(now, takes, outs, commit, make([]claim, 0, n), make([]int32, n), make([]uint32, 0, n))
	}
}

// one is all for a single take, where nothing needs sorting and nobody else can object. Most find
// their bucket quiet and leave it where it is: they need nothing of what oneElseLocked does, and it is
// faster to keep that out of sight of the compiler.
func (s *Store) one(now int64, t *bucket.Take, o *bucket.Outcome, commit bool) bool {
	if t.Shape.Algorithm == rate.SlidingLog {
		return s.oneLog(now, t, o, commit)
	}
	shard, home := s.locate(t.Key)
	sh := &s.shards[shard]
	units, possible := rate.Units(&t.Shape, t.Cost)
	if !possible {
		units = -1
	}
	if !sh.mu.TryLock() {
		sh.waitForLock()
	}
	sh.prefetch(home)
	slot := s.quietLocked(sh, home, t)
	if slot == nil || units < 0 {
		at := sh.seekLocked(home, t.Key)
		if slot = s.quietAtLocked(sh, at, t); slot == nil || units < 0 {
			return s.oneElseLocked(now, sh, at, t, o, units, commit)
		}
	}
	after, credit, allowed := bucket.State{Debt: slot.debt, Stamp: slot.stamp}.Admit(now, &t.Shape, units)
	if allowed && commit && units > 0 {
		slot.debt, slot.stamp = after.Debt, after.Stamp
	}
	sh.mu.Unlock() // before the report, which divides
	after.ReportOf(o, now, &t.Shape, units, credit, allowed)
	return allowed || t.Shadow
}

// oneElseLocked is one for every other bucket. It unlocks the shard.
func (s *Store) oneElseLocked(now int64, sh *shard, at place, t *bucket.Take, o *bucket.Outcome, units int64,
	commit bool) bool {
	var state bucket.State
	for reclaimed := false; ; reclaimed = true {
		at, state = s.readLocked(sh, at, now, t)
		after, allowed := state, false
		if units >= 0 {
			after, allowed = state.Try(now, &t.Shape, units)
			if t.Shape.Algorithm == rate.LeakyBucket && !accepts(t, now, state, units) {
				after, allowed = state, false
			}
		}
		if allowed && commit && units > 0 {
			shape := uint32(0)
			if !at.current {
				shape = s.internLocked(sh, &t.Shape)
				if shape == 0 && !reclaimed && s.shapes.worthReclaiming() {
					sh.mu.Unlock()
					s.reclaim(now)
					_, home := s.locate(t.Key)
					sh.mu.Lock()
					at = sh.seekLocked(home, t.Key)
					continue
				}
			}
			s.putLocked(sh, now, t, at, after, shape)
		} else if !allowed && commit && units > 0 && !t.Shadow {
			s.parkLocked(sh, now, t, at, after)
		}
		sh.mu.Unlock()
		report(after, o, now, t, &t.Shape, units, allowed)
		if t.Shape.Algorithm == rate.LeakyBucket && units > 0 {
			t.ReportWait(o, after, now, ifAllowed(allowed, units))
		}
		return allowed || t.Shadow
	}
}

// claim is what one decision wants of one bucket.
type claim struct {
	take          *bucket.Take // the first that names the bucket
	units, shadow int64        // wanted in all, and by shadows; -1 is more than the bucket holds
	state, after  bucket.State // as found, and from commit on as left; and as it is with units alone
	at            place
	shard, home   uint32
	shape         uint32 // its number in the registry, once it has to be stored
	allowed       bool   // units fit
	shadowAllowed bool   // shadow fits on top
}

// all decides several takes. The slices are scratch: of[i] is the claim of takes[i], locks are the shards to lock.
func (s *Store) all(now int64, takes []bucket.Take, outs []bucket.Outcome, commit bool, claims []claim, of []int32,
	locks []uint32) (bool, error) {
	claims, err := s.merge(takes, claims, of)
	if err != nil {
		return false, err
	}
	logs := false
	for i := range claims {
		locks = ascending(locks, claims[i].shard) // for everybody, so nobody waits in a circle
		logs = logs || claims[i].isLog()
	}

	var allowed bool
	for reclaimed := false; ; reclaimed = true {
		s.lock(locks)
		for i := range claims {
			s.shards[claims[i].shard].prefetch(claims[i].home)
		}
		allowed = s.checkLocked(now, claims)
		if logs {
			s.reportLogsLocked(now, takes, outs, claims, of, allowed)
		}
		if !allowed && commit {
			s.parkAllLocked(now, claims)
		}
		done := !allowed || !commit || s.commitLocked(now, claims, reclaimed)
		s.unlock(locks)
		if done {
			break
		}
		s.reclaim(now)
	}

	for i := range takes {
		c, o := &claims[of[i]], &outs[i]
		if c.isLog() {
			continue // reported already
		}
		met := c.take.Met()
		if takes[i].Shadow {
			report(c.state, o, now, c.take, &met, c.shadow, c.shadowAllowed)
		} else {
			report(c.state, o, now, c.take, &met, c.units, c.allowed)
		}
		if c.take.Shape.Algorithm == rate.LeakyBucket {
			c.reportWait(o, now, takes[i].Shadow, allowed)
		}
	}
	return allowed, nil
}

// ascending adds a shard to those that are in order, unless it is there. They are too few for a sort to be faster.
func ascending(shards []uint32, shard uint32) []uint32 {
	at := len(shards)
	for at > 0 && shards[at-1] >= shard {
		at--
	}
	if at < len(shards) && shards[at] == shard {
		return shards
	}
	shards = append(shards, shard)
	for i := len(shards) - 1; i > at; i-- {
		shards[i] = shards[i-1]
	}
	shards[at] = shard
	return shards
}

// merge makes one claim of all takes with the same key.
func (s *Store) merge(takes []bucket.Take, claims []claim, of []int32) ([]claim, error) {
next:
	for i := range takes {
		t := &takes[i]
		for j := range claims {
			if claims[j].take.Key != t.Key {
				continue
			}
			if claims[j].take.Shape != t.Shape {
				return nil, fmt.Errorf("takes %d and %d name one bucket with two shapes", slices.Index(of, int32(j)), i)
			}
			claims[j].add(t)
			of[i] = int32(j)
			continue next
		}
		of[i] = int32(len(claims))
		claims = claims[:len(claims)+1] // there is room for all takes; building it here and copying it takes longer
		c := &claims[len(claims)-1]
		c.take = t
		c.shard, c.home = s.locate(t.Key)
		c.add(t)
	}
	return claims, nil
}

// add adds up what takes of one bucket want. A sum above the capacity can never be had, like a single cost above it.
func (c *claim) add(t *bucket.Take) {
	sum := &c.units
	if t.Shadow {
		sum = &c.shadow
	}
	units, possible := rate.Units(&t.Shape, t.Cost)
	if !possible || *sum < 0 || units > t.Shape.Capacity-*sum {
		*sum = -1
		return
	}
	*sum += units
}

// try is what is owed after units are charged, if they fit and leave what the take is to leave.
func (c *claim) try(now, units int64) (bucket.State, bool) {
	if c.take.Kept == 0 {
		return c.state.Try(now, &c.take.Shape, units)
	}
	met := c.take.Met()
	return c.state.Try(now, &met, units)
}

// checkLocked finds every bucket and reports whether all claims fit that are not only shadows. If
// they do, the states are those after the decision, otherwise those before.
func (s *Store) checkLocked(now int64, claims []claim) bool {
	all := true
	for i := range claims {
		c := &claims[i]
		if c.isLog() {
			all = s.checkLogLocked(now, c) && all
			continue
		}
		c.at, c.state = s.findLocked(&s.shards[c.shard], c.home, now, c.take)
		c.allowed = c.units >= 0
		if c.allowed {
			c.after, c.allowed = c.try(now, c.units)
			if c.take.Shape.Algorithm == rate.LeakyBucket {
				c.allowed = c.allowed && accepts(c.take, now, c.state, c.units)
			}
		}
		all = all && c.allowed
	}
	for i := range claims {
		c := &claims[i]
		if c.isLog() {
			s.checkLogShadowLocked(now, c, all)
			continue
		}
		if all {
			c.state = c.after
		}
		if c.shadowAllowed = c.shadow >= 0; c.shadow <= 0 {
			continue
		}
		var after bucket.State
		after, c.shadowAllowed = c.try(now, c.shadow)
		if c.take.Shape.Algorithm == rate.LeakyBucket {
			c.shadowAllowed = c.shadowAllowed && accepts(c.take, now, c.state, c.shadow)
		}
		if all && c.shadowAllowed {
			c.state = after
		}
	}
	return all
}

// commitLocked writes the states of all claims that were charged. It reports false, having written
// nothing, if the registry of shapes should be reclaimed first. That is tried once: a decision with
// several new shapes may not find room for all of them ever.
func (s *Store) commitLocked(now int64, claims []claim, reclaimed bool) bool {
	settled := true // nobody needs more than to write down what is left
	for i := range claims {
		c := &claims[i]
		if !c.charged() || c.at.current && !c.isLog() {
			continue
		}
		settled = false
		if c.isLog() {
			continue
		}
		if c.shape = s.shapes.intern(c.take.Shape); c.shape == 0 && !reclaimed && s.shapes.worthReclaiming() {
			return false
		}
	}
	if !settled {
		s.commitLogsLocked(now, claims)
	}
	// Buckets that have a slot come first, because the others may evict them.
	for i := range claims {
		if c := &claims[i]; c.at.way >= 0 && c.charged() && !c.isLog() {
			s.putLocked(&s.shards[c.shard], now, c.take, c.at, c.state, c.shape)
		}
	}
	for i := 0; i < len(claims) && !settled; i++ {
		if c := &claims[i]; c.at.way < 0 && c.charged() && !c.isLog() {
			s.putLocked(&s.shards[c.shard], now, c.take, c.at, c.state, c.shape)
		}
	}
	return true
}

// parkAllLocked parks the buckets of a decision that was denied, as far as they stood in its way.
func (s *Store) parkAllLocked(now int64, claims []claim) {
	for i := range claims {
		c := &claims[i]
		switch sh := &s.shards[c.shard]; {
		case c.units <= 0 || c.allowed:
		case c.isLog():
			s.parkLogLocked(sh, now, c.take)
		default:
			s.parkLocked(sh, now, c.take, c.at, c.state)
		}
	}
}

// charged says whether the decision, having passed, changes c's bucket.
func (c *claim) charged() bool { return c.units > 0 || c.shadowAllowed && c.shadow > 0 }
