package memory_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

type corrector interface {
	Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error
}

func correct(t testing.TB, store corrector, now int64, changes ...bucket.Change) []int64 {
	t.Helper()
	moved := make([]int64, len(changes))
	if err := store.Correct(context.Background(), now, changes, moved); err != nil {
		t.Fatal(err)
	}
	return moved
}

// changes makes random corrections of the buckets that the schedule's takes name.
func (sc *schedule) changes(now int64) []bucket.Change {
	changes := make([]bucket.Change, 0, 3)
	for range 1 + sc.rng.IntN(3) {
		r := sc.rng.IntN(len(sc.rules))
		if sc.rules[r].idle {
			continue
		}
		n := sc.rng.Uint64N(sc.keys)*uint64(len(sc.rules)) + uint64(r)
		c := bucket.Change{
			Key:    buckettest.Key(n),
			Shape:  sc.rules[r].shape,
			Since:  sc.rules[r].since,
			Before: sc.rules[r].before,
		}
		switch sc.rng.IntN(8) {
		case 0:
			c.Units = bucket.Fill
		case 1:
			c.Units = c.Shape.UnitsSaturating(sc.rng.Int64N(100))
		default:
			c.Units = (sc.rng.Int64N(20) - 10) * c.Shape.Unit / (1 + sc.rng.Int64N(3))
		}
		if sc.rng.IntN(2) == 0 {
			c.Charged = now - sc.rng.Int64N(int64(9*time.Second))
		}
		changes = append(changes, c)
	}
	return changes
}

// TestCorrectionsAreExact: takes and corrections in any order, of which none is evicted in debt,
// leave what they leave in an unlimited table.
func TestCorrectionsAreExact(t *testing.T) {
	for seed := range race.Fewer(uint64(4)) {
		sc := newSchedule(t, seed, 300)
		store, twin := open(t, memory.Options{MaxBuckets: 1 << 14, MaxLogs: 1 << 13}), new(buckettest.Twin)
		now := noon
		for step := range 20_000 {
			now += sc.rng.Int64N(int64(40 * time.Millisecond))
			if sc.rng.IntN(500) == 0 {
				now -= sc.rng.Int64N(int64(3 * time.Second))
			}
			if sc.rng.IntN(200) == 0 {
				sc.change(now + sc.rng.Int64N(int64(time.Second)) - sc.rng.Int64N(int64(time.Second)))
			}
			if sc.rng.IntN(3) == 0 {
				changes := sc.changes(now)
				if got, want := correct(t, store, now, changes...),
					correct(t, twin, now, changes...); !slices.Equal(got, want) {
					t.Fatalf("seed %d, step %d: Correct(%+v) moved %d, want %d", seed, step, changes, got, want)
				}
				continue
			}
			takes := sc.takes(true)
			got, outs := decide(t, store, now, takes)
			if want, wantOuts := decide(t, twin, now, takes); got != want || !slices.Equal(outs, wantOuts) {
				t.Fatalf("seed %d, step %d: TryConsume(%+v) = %t, %+v, want %t, %+v", seed, step, takes, got, outs,
					want, wantOuts)
			}
		}
	}
}

// TestEvictionForgetsNoCorrection: costs that are added, beyond the burst too, are owed by buckets
// that were evicted and came back. The twin repeats what the table admits and takes off what the
// table took off.
func TestEvictionForgetsNoCorrection(t *testing.T) {
	for seed := range race.Fewer(uint64(3)) {
		sc := newSchedule(t, seed, 200)
		store, twin := open(t, memory.Options{MaxBuckets: 64, SketchWidth: 100_000}), new(buckettest.Twin)
		now, admitted := noon, 0
		for step := range 60_000 {
			now += sc.rng.Int64N(int64(3 * time.Millisecond))
			if sc.rng.IntN(4) == 0 {
				for _, c := range sc.changes(now) {
					if c.Units == bucket.Fill {
						continue // evicted, it may come back with what the sketch still says: never the other way round
					}
					// The twin does what the table did: a bucket that came back from the sketch may
					// owe more, and so take on less.
					c.Charged = 0 // see TestEvictionForgetsNoSettlement
					c.Units = correct(t, store, now, c)[0]
					correct(t, twin, now, c)
				}
				continue
			}
			takes := sc.takes(true)
			allowed, outs := decide(t, store, now, takes)
			charged := chargedOf(takes, outs)
			if !allowed || len(charged) == 0 {
				continue
			}
			admitted++
			if ok, want := decide(t, twin, now, charged); !ok {
				t.Fatalf("seed %d, step %d: admitted %+v, the twin says %+v", seed, step, charged, want)
			}
		}
		if stats := store.Stats(now); admitted < 100 || stats.EvictedInDebt < 100 {
			t.Errorf("admitted %d, %+v: this shows nothing", admitted, stats)
		}
	}
}

// TestEvictionForgetsNoSettlement: whatever is evicted between a charge and its settlement, the
// table admits nothing that an unlimited one does not which was charged the right amounts at once;
// nor where rates are lowered, nothing that one at the full rate does not.
func TestEvictionForgetsNoSettlement(t *testing.T) {
	type charge struct {
		take     bucket.Take
		too      int64
		at       int64
		settleAt int64
	}
	for seed := range race.Fewer(uint64(6)) {
		sc, lowers := newSchedule(t, seed, 200), seed%2 == 1
		store, right := open(t, memory.Options{MaxBuckets: 64, SketchWidth: 100_000}), new(buckettest.Twin)
		now, settled := noon, 0
		var lowered *rate.Lowered
		var kept []charge
		for step := range 40_000 {
			now += sc.rng.Int64N(int64(3 * time.Millisecond))
			if lowers && step%1000 == 0 {
				lowered = lowered.From(now, 1+sc.rng.IntN(rate.Whole))
			}
			if len(kept) > 0 && kept[0].settleAt <= now {
				c := kept[0]
				kept = kept[1:]
				sh, cost, since := c.take.Shape, c.take.Cost+c.too, c.at
				change := bucket.Change{Key: c.take.Key, Shape: sh, Charged: c.at}
				if c.take.Lowered = lowered; c.take.Slower() != nil {
					change.Lowered, since = lowered, lowered.Since(c.at, now)-1
				}
				change.Units = -bucket.Unspent(sh, sh, cost*sh.Unit, c.too*sh.Unit, since, now)
				change.Left = bucket.Unspent(sh, sh, cost*sh.Unit, cost*sh.Unit, since, now)
				if correct(t, store, now, change)[0] < 0 {
					settled++
				}
			}
			r := sc.rng.IntN(len(sc.rules))
			n := sc.rng.Uint64N(200)*uint64(len(sc.rules)) + uint64(r) // each rule has its own keys
			estimate := bucket.Take{Key: buckettest.Key(n), Shape: sc.rules[r].shape, Lowered: lowered}
			lasts := int64(20 * time.Millisecond)
			if lowers {
				lasts = int64(2 * time.Second)
			}
			c := charge{take: estimate, too: sc.rng.Int64N(5), at: now, settleAt: now + lasts}
			c.take.Cost = sc.rng.Int64N(5)
			estimate.Cost = c.take.Cost + c.too
			if allowed, _ := decide(t, store, now, []bucket.Take{estimate}); !allowed {
				continue
			}
			kept = append(kept, c)
			if ok, want := decide(t, right, now, []bucket.Take{c.take}); !ok {
				t.Fatalf("seed %d, step %d: admitted %+v, the twin says %+v", seed, step, c.take, want)
			}
		}
		if stats := store.Stats(now); settled < 100 || stats.EvictedInDebt < 100 {
			t.Errorf("settled %d, %+v: this shows nothing", settled, stats)
		}
	}
}

// TestSettlementOfABucketThatCameBack: a bucket that was evicted and came back has drained at the full rate, and so
// has what is given back of a charge on it.
func TestSettlementOfABucketThatCameBack(t *testing.T) {
	shape := mustCompile(t, rate.Limit{Tokens: 1, Per: time.Second, Burst: 10})
	store := open(t, memory.Options{MaxBuckets: 64, SketchWidth: 100_000})
	lowered := (*rate.Lowered)(nil).From(noon, 1) // it hardly drains
	take := func(now int64, k key.Key, cost int64) bucket.Outcome {
		allowed, outs := decide(t, store, now, []bucket.Take{{Key: k, Shape: shape, Cost: cost, Lowered: lowered}})
		if !allowed {
			t.Fatalf("%d tokens of %v are denied: %+v", cost, k, outs)
		}
		return outs[0]
	}
	own := buckettest.Key(0)
	take(noon, own, 5) // of which 4 turn out to be too many
	for n := range uint64(500) {
		take(noon, buckettest.Key(1+n), 9) // who owe for longer
	}
	now := noon + int64(2*time.Second)
	if left := take(now, own, 7).Remaining; left != 0 { // as 2 of 5 have drained
		t.Fatalf("%d are left, want 0: the bucket was not evicted", left)
	}
	since := lowered.Since(noon, now) - 1
	correct(t, store, now, bucket.Change{
		Key: own, Shape: shape, Charged: noon, Lowered: lowered,
		Units: -bucket.Unspent(shape, shape, 5*shape.Unit, 4*shape.Unit, since, now),
		Left:  bucket.Unspent(shape, shape, 5*shape.Unit, 5*shape.Unit, since, now),
	})
	if left := take(now, own, 0).Remaining; left != 3 && left != 2 { // the 7 of others are owed
		t.Errorf("%d are left, want 3, or 2 since what is given back is rounded down", left)
	}
}

func TestCorrectNeedsRoom(t *testing.T) {
	store := open(t, memory.Options{MaxBuckets: 8})
	if err := store.Correct(context.Background(), noon, make([]bucket.Change, 2), make([]int64, 1)); err == nil {
		t.Error("Correct of 2 with room for 1 succeeds")
	}
}

func TestConcurrentCorrections(t *testing.T) {
	const callers, rounds = 6, 3000
	store := open(t, memory.Options{MaxBuckets: 1 << 10})
	shape := perHour(t, 2*callers*rounds) // nobody is ever denied
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			one := bucket.Change{Key: buckettest.Key(1), Shape: shape, Units: shape.Unit}
			moved := make([]int64, 1)
			for range rounds {
				if _, err := store.TryConsume(context.Background(), noon,
					[]bucket.Take{{Key: one.Key, Shape: shape, Cost: 1}}, make([]bucket.Outcome, 1)); err != nil {
					t.Error(err)
				}
				one.Units = -shape.Unit
				if caller%2 == 0 {
					one.Units = shape.Unit
				}
				if err := store.Correct(context.Background(), noon, []bucket.Change{one}, moved); err != nil ||
					moved[0] != one.Units {
					t.Errorf("Correct moved %d, %v, want %d", moved[0], err, one.Units)
				}
			}
		})
	}
	wg.Wait()
	_, outs := decide(t, store, noon, []bucket.Take{{Key: buckettest.Key(1), Shape: shape}})
	if outs[0].Remaining != callers*rounds {
		t.Errorf("%d tokens are left, want half: each caller took one a round, half gave it back, half took another",
			outs[0].Remaining)
	}
}

func TestCorrectAllocatesNothing(t *testing.T) {
	store := open(t, memory.Options{MaxBuckets: 512})
	changes, moved := make([]bucket.Change, 3), make([]int64, 3)
	var n uint64
	if allocs := testing.AllocsPerRun(1000, func() {
		for i := range changes {
			n++
			changes[i] = bucket.Change{Key: key.Key{Hi: n << 40, Lo: n << 17}, Shape: perHourFive,
				Units: perHourFive.Unit}
		}
		if err := store.Correct(context.Background(), noon, changes, moved); err != nil {
			t.Error(err)
		}
	}); allocs != 0 {
		t.Errorf("Correct allocates %v times, want 0", allocs)
	}
}

var perHourFive = rate.Shape{Drain: 1, Unit: int64(time.Hour), Capacity: 5 * int64(time.Hour), Tick: 1}
