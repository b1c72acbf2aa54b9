package memory

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// evictAll evicts every bucket, and writes all traces.
func evictAll(t *testing.T, s *Store, now int64) {
	t.Helper()
	evicted := 0
	s.sweep(func(sh *shard, set uint32, way int) {
		slot := &sh.sets[set][way]
		s.evictLocked(sh, now, slot, slot.fullAt(s.shapes))
		sh.clearLocked(set, way)
		evicted++
	})
	if evicted == 0 {
		t.Fatal("nobody was in the table")
	}
	for i := range s.shards {
		s.shards[i].traces.catchUp()
	}
}

func take(t *testing.T, s *Store, now int64, of bucket.Take) (bool, bucket.Outcome) {
	t.Helper()
	outs := make([]bucket.Outcome, 1)
	ok, err := s.TryConsume(context.Background(), now, []bucket.Take{of}, outs)
	if err != nil {
		t.Fatal(err)
	}
	return ok, outs[0]
}

// TestATraceOutlivesThoseWhoShareIt: two keys are taken for one by the ledger. One comes back and
// leaves again, with less debt than the other left. What the other owes is still known.
func TestATraceOutlivesThoseWhoShareIt(t *testing.T) {
	s, shape := newTable(t, Options{MaxBuckets: 8}), compiled(t, rate.Limit{Tokens: 1, Per: time.Minute, Burst: 60})
	one, other := key.Key{Hi: 1 << 40, Lo: 5<<50 | 3}, key.Key{Hi: 2 << 40, Lo: 5<<50 | 1<<10 | 3}
	if l := s.shards[0].traces.ledger; l.pairOf(one.Lo) != l.pairOf(other.Lo) {
		t.Fatal("the keys are not taken for one: this shows nothing")
	}
	take(t, s, noon, bucket.Take{Key: one, Shape: shape, Cost: 60})
	evictAll(t, s, noon)
	now := noon + int64(30*time.Minute) // other reads the trace of one, which leaves it half
	if ok, out := take(t, s, now, bucket.Take{Key: other, Shape: shape, Cost: 1}); !ok || out.Remaining != 29 {
		t.Fatalf("other: %t, %+v, want 1 allowed and 29 left", ok, out)
	}
	if ok, out := take(t, s, now, bucket.Take{Key: one, Shape: shape, Cost: 31}); ok {
		t.Errorf("one was allowed 91 tokens in half an hour, of a burst of 60: %+v", out)
	}
}

// TestWhoIsParkedLeavesNoTrace: it was never charged, so what it owes is somebody else's, or said already.
func TestWhoIsParkedLeavesNoTrace(t *testing.T) {
	s, shape := newTable(t, Options{MaxBuckets: 8, SketchWidth: 1}),
		compiled(t, rate.Limit{Tokens: 1, Per: time.Minute, Burst: 60})
	for n := range uint64(200) { // so many that all of the lane is taken
		take(t, s, noon, bucket.Take{Key: key.Key{Lo: n * 0x9e3779b97f4a7c15}, Shape: shape, Cost: 60})
	}
	evictAll(t, s, noon)
	k := &s.shards[0].traces
	before := s.Stats(noon).EvictedInDebt
	entries, cells := slices.Clone(k.ledger), slices.Clone(k.lanes.cells)
	stranger := bucket.Take{Key: key.Key{Hi: 7, Lo: 5 << 50}, Shape: shape, Cost: 1}
	ok, out := take(t, s, noon, stranger)
	if ok || s.Stats(noon).Live != 1 {
		t.Fatalf("stranger: %t, %+v, and %d in the table; want it denied and parked", ok, out, s.Stats(noon).Live)
	}
	evictAll(t, s, noon)
	if !slices.Equal(entries, k.ledger) || !slices.Equal(cells, k.lanes.cells) {
		t.Error("a parked bucket left a trace")
	}
	if after := s.Stats(noon).EvictedInDebt; after != before {
		t.Errorf("%d buckets were evicted in debt, want none: it was parked", after-before)
	}
	if _, out := take(t, s, noon, stranger); out.RetryAfter <= 0 {
		t.Errorf("after it was evicted: %+v", out)
	}
	if ok, _ := take(t, s, noon+int64(out.RetryAfter), stranger); !ok {
		t.Error("denied after it waited as it was told")
	}
	evictAll(t, s, noon+int64(out.RetryAfter))
	if slices.Equal(entries, k.ledger) && slices.Equal(cells, k.lanes.cells) {
		t.Error("a bucket that was parked, and then charged, left none")
	}
}

// TestRequestsThatAreLateReadWhatOthersLeft: a limit changes to one of another class, a bucket is
// charged under it and evicted, and then a request comes that has resolved its rules before the
// change.
func TestRequestsThatAreLateReadWhatOthersLeft(t *testing.T) {
	before, after := compiled(t, rate.Limit{Tokens: 10, Per: time.Second, Burst: 10}),
		compiled(t, rate.Limit{Tokens: 1, Per: time.Minute, Burst: 10})
	s, k := newTable(t, Options{MaxBuckets: 8}), key.Key{Hi: 1 << 40, Lo: 1 << 50}
	s.Learn(noon, math.MaxInt64)
	if ok, _ := take(t, s, noon, bucket.Take{Key: k, Shape: after, Since: noon, Before: &rate.Past{Shape: before},
		Cost: 10}); !ok {
		t.Fatal("a new bucket denies its burst")
	}
	evictAll(t, s, noon)
	late := noon + int64(500*time.Millisecond)
	if ok, out := take(t, s, late, bucket.Take{Key: k, Shape: before, Cost: 10}); ok {
		t.Errorf("allowed again by a late request: %+v", out)
	}
}

// TestWhatWasLeftUnderAnUnknownLimitIsRead: a bucket was larger for a time, by an allowance, which
// its past does not name.
func TestWhatWasLeftUnderAnUnknownLimitIsRead(t *testing.T) {
	shape := compiled(t, rate.Limit{Tokens: 1, Per: time.Second, Burst: 5})
	s, k := newTable(t, Options{MaxBuckets: 8}), key.Key{Hi: 1 << 40, Lo: 1 << 50}
	if ok, _ := take(t, s, noon, bucket.Take{Key: k, Shape: shape.Grow(1000), Since: noon - 1, Cost: 500}); !ok {
		t.Fatal("a bucket with an allowance denies it")
	}
	evictAll(t, s, noon)
	ended := noon + int64(3*time.Second)
	s.Learn(ended, math.MaxInt64)
	now := ended + int64(1500*time.Millisecond) // later than requests that are late
	if ok, out := take(t, s, now, bucket.Take{Key: k, Shape: shape, Since: ended, Cost: 2}); ok {
		t.Errorf("allowed 2 of 5 tokens after 1.5 s, want it empty when the allowance ended: %+v", out)
	}
}

// TestPassedTracesMeanNothing: times are stored modulo 16 times the longest of their class, and
// nothing happens for longer than that.
func TestPassedTracesMeanNothing(t *testing.T) {
	shape := filling(t, 8*time.Second)
	for idle := 8 * time.Second; idle < 10*time.Minute; idle += 700 * time.Millisecond {
		k, now := newTraces(4, 16), noon
		for n := range uint64(50) {
			k.raise(spread(n+1), kindOf(&shape), now+int64(8*time.Second), now)
			k.raise(spread(n+50), kindOf(&shape), now+int64(n+1), now)
		}
		now += int64(idle)
		k.raise(1<<63, counted|7, now+int64(time.Hour), now) // so that something may be remembered
		k.latest[0] = now + int64(time.Hour)
		for n := range uint64(100) {
			if at := k.fullAt(now, now, &bucket.Take{Key: key.Key{Lo: spread(n)}, Shape: shape}); at > now {
				t.Fatalf("after %v: key %d reads a time %v ahead", idle, n, time.Duration(at-now))
			}
		}
	}
}

// TestTheLedgerFollowsAClockThatIsSetBack: it goes on in entries, which are told from each other,
// and what was there is not forgotten.
func TestTheLedgerFollowsAClockThatIsSetBack(t *testing.T) {
	shape := filling(t, time.Minute)
	k := newTraces(100, 1)
	k.raise(1<<50, kindOf(&shape), noon+int64(time.Minute), noon)
	now := noon - int64(24*time.Hour)
	for n := range uint64(300) {
		k.raise(spread(2+n), kindOf(&shape), now+int64(time.Second)*int64(1+n%60), now)
	}
	read := func(of uint64) int64 { return k.fullAt(now, now, &bucket.Take{Key: key.Key{Lo: of}, Shape: shape}) }
	if at := read(1 << 50); at < noon+int64(time.Minute) {
		t.Errorf("what was there is forgotten: %v", time.Duration(at-noon))
	}
	exact := 0
	for n := range uint64(300) {
		if at := read(spread(2 + n)); at <= now+int64(time.Second)*int64(1+n%60)+int64(time.Second/10) {
			exact++
		}
	}
	if exact < 290 {
		t.Errorf("%d of 300 times are as they were written, want nearly all", exact)
	}
}

// TestLateRequestsAreNotDropped: requests take the shard in another order than they read the clock,
// by up to some seconds.
func TestLateRequestsAreNotDropped(t *testing.T) {
	shape := filling(t, 4*time.Second)
	k := newTraces(1, 1)
	k.raise(spread(1), kindOf(&shape), noon+int64(time.Second), noon)
	late := noon - int64(3*time.Second)
	k.raise(spread(2), kindOf(&shape), noon-int64(time.Second), late)
	for n := range uint64(perLine) { // the line has no room
		k.raise(spread(3+n), kindOf(&shape), noon-int64(time.Millisecond)*int64(n), late)
	}
	if at := k.fullAt(late, late, &bucket.Take{Key: key.Key{Lo: spread(2)}, Shape: shape}); at < noon-
		int64(time.Second) {
		t.Errorf("a debt that lasts for 2 s more is forgotten: %v", time.Duration(at-late))
	}
}

// TestTracesThatAreWrittenLaterAreReadAlike: whatever comes in between, what is read is what would
// have been written at once.
func TestTracesThatAreWrittenLaterAreReadAlike(t *testing.T) {
	shapes := []rate.Shape{filling(t, time.Second), filling(t, 10*time.Second), filling(t, time.Hour)}
	rng := rand.New(rand.NewPCG(7, 8))
	once, later := newTraces(3, 4), newTraces(3, 4)
	now, reads := noon, 0
	for step := range 100_000 {
		now += rng.Int64N(int64(50 * time.Millisecond))
		switch rng.IntN(2000) {
		case 0:
			now += rng.Int64N(int64(3 * time.Minute))
		case 1:
			now -= rng.Int64N(int64(time.Minute))
		case 2:
			once.held, later.held = now, now
			once.catchUp() // what waits may be kept for longer
			later.catchUp()
		}
		shape, of := &shapes[rng.IntN(len(shapes))], spread(rng.Uint64N(200))
		if rng.IntN(3) != 0 {
			fullAt := now + 1 + rng.Int64N(int64(shape.TimeToFull(shape.Capacity)))
			once.raise(of, kindOf(shape), fullAt, now)
			later.raiseLater(of, kindOf(shape), fullAt, now)
			continue
		}
		take := bucket.Take{Key: key.Key{Lo: of}, Shape: *shape}
		want, got := once.fullAt(now, now, &take), later.fullAt(now, now, &take)
		if got != want {
			t.Fatalf("step %d: key %d is read as full at %d, want %d", step, of, got, want)
		}
		if want > now {
			reads++
		}
	}
	if reads < 10_000 {
		t.Errorf("%d debts were read: this shows little", reads)
	}
}
