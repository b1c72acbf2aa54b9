package memory_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// rule is where the takes of a schedule get their shape from. It may change.
type rule struct {
	shape  rate.Shape
	since  int64
	before *rate.Past // at times forgotten in part
	exact  *rate.Past
	idle   bool // until it changes again
}

func (r rule) take(k key.Key, cost int64) bucket.Take {
	return bucket.Take{Key: k, Shape: r.shape, Since: r.since, Before: r.before, Cost: cost}
}

// schedule makes random takes from a few rules and some keys.
type schedule struct {
	t     testing.TB
	rng   *rand.Rand
	keys  uint64
	rules []rule
	debts bool                      // no rule ever counts in windows
	quick bool                      // buckets are full within seconds
	exact map[*rate.Past]*rate.Past // the whole of what takes know in part
}

// coarse is a shape with ticks of a microsecond that is small enough to be drained.
var coarse = rate.Shape{Drain: 3, Unit: 700_000, Capacity: 40 * 700_000, Tick: 1000}

func newSchedule(t testing.TB, seed, keys uint64) *schedule {
	sc := &schedule{t: t, rng: rand.New(rand.NewPCG(seed, 4)), keys: keys, exact: map[*rate.Past]*rate.Past{}}
	for range 4 {
		sc.rules = append(sc.rules, rule{shape: sc.shape()})
	}
	sc.rules = append(sc.rules, rule{shape: coarse}, rule{shape: sc.algorithm(rate.LeakyBucket)})
	for _, a := range windows {
		sc.rules = append(sc.rules, rule{shape: sc.algorithm(a)})
	}
	return sc
}

func (sc *schedule) shape() rate.Shape {
	if sc.quick {
		return mustCompile(sc.t, rate.Limit{Tokens: 1 + sc.rng.Int64N(4), Per: time.Second,
			Burst: 1 + sc.rng.Int64N(5)})
	}
	return mustCompile(sc.t, rate.Limit{
		Tokens: 1 + sc.rng.Int64N(20),
		Per:    time.Duration(1+sc.rng.Int64N(9)) * time.Second,
		Burst:  1 + sc.rng.Int64N(30),
	})
}

// windows are the algorithms that count in windows.
var windows = []rate.Algorithm{rate.FixedWindow, rate.SlidingWindow, rate.SlidingLog}

func (sc *schedule) algorithm(a rate.Algorithm) rate.Shape {
	limit := rate.Limit{
		Tokens:    1 + sc.rng.Int64N(20),
		Per:       time.Duration(1+sc.rng.Int64N(5)) * time.Second,
		Algorithm: a,
	}
	limit.Burst = limit.Tokens
	return mustCompile(sc.t, limit)
}

// change replaces a rule, at times by what it was before; and at times nobody knows any more what
// it was. Every other time nobody takes under it until it changes again.
func (sc *schedule) change(since int64) rule {
	n := sc.rng.IntN(len(sc.rules))
	for i := range sc.rules {
		if sc.rules[i].idle && sc.rng.IntN(2) == 0 {
			n = i
		}
	}
	r := &sc.rules[n]
	to := sc.shape()
	if a := sc.rng.IntN(8); a == 1 || a > 1 && a <= 1+len(windows) && !sc.debts {
		to = sc.algorithm(rate.Algorithm(a))
	}
	if sc.rng.IntN(4) == 0 && r.before != nil && r.before.Shape != (rate.Shape{}) {
		to = r.before.Shape
	}
	since = max(since, r.since)
	next := rule{shape: to, since: since, idle: sc.rng.IntN(2) == 0}
	next.before, next.exact = r.shape.Replaced(r.since, r.before, since), r.shape.Replaced(r.since, r.exact, since)
	if sc.rng.IntN(8) == 0 && next.before != nil {
		unknown, window := next.since, time.Duration(0) // from the first change on
		for p := next.before; p != nil; p = p.Before {
			if window = max(window, p.Window, p.Shape.Window()); p.Since != 0 {
				unknown = p.Since
			}
		}
		next.before = &rate.Past{Since: unknown, Window: window}
	}
	sc.exact[next.before] = next.exact
	*r = next
	return *r
}

// settled is when nothing is owed any more that is owed at now.
func (sc *schedule) settled(now int64) (settled int64) {
	for _, r := range sc.rules {
		settled = max(settled, r.shape.Settled(now, r.exact))
	}
	return settled
}

func (sc *schedule) takes(shadows bool) []bucket.Take {
	takes := make([]bucket.Take, 0, 6)
	for range 1 + sc.rng.IntN(3)*sc.rng.IntN(3) {
		r := sc.rng.IntN(len(sc.rules))
		if sc.rules[r].idle {
			continue
		}
		n := sc.rng.Uint64N(sc.keys)*uint64(len(sc.rules)) + uint64(r) // each rule has its own keys
		takes = append(takes, bucket.Take{
			Key: buckettest.Key(n), Shape: sc.rules[r].shape, Since: sc.rules[r].since, Before: sc.rules[r].before,
			Cost: sc.rng.Int64N(12) * sc.rng.Int64N(3), Shadow: shadows && sc.rng.IntN(4) == 0,
			MaxWait: time.Duration(sc.rng.Int64N(3)-1) * time.Duration(sc.rng.Int64N(int64(4*time.Second))),
		})
	}
	return takes
}

// exactly is takes that know all of the past.
func (sc *schedule) exactly(takes []bucket.Take) []bucket.Take {
	for i := range takes {
		takes[i].Before = sc.exact[takes[i].Before]
	}
	return takes
}

// consumer is what is attacked.
type consumer interface {
	TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error)
}

func decide(t testing.TB, store consumer, now int64, takes []bucket.Take) (bool, []bucket.Outcome) {
	t.Helper()
	outs := buckettest.Outcomes(len(takes))
	allowed, err := store.TryConsume(context.Background(), now, takes, outs)
	if err != nil {
		t.Fatal(err)
	}
	return allowed, outs
}

// TestLargeTableIsExact: while nothing is evicted in debt, the table gives the answers of an
// unlimited one, whatever the clock and the rules do.
func TestLargeTableIsExact(t *testing.T) {
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
			takes := sc.takes(true)
			got, outs := decide(t, store, now, takes)
			want, wantOuts := decide(t, twin, now, takes)
			if got != want || !slices.Equal(outs, wantOuts) {
				t.Fatalf("seed %d, step %d: TryConsume(%+v) = %t, %+v, want %t, %+v", seed, step, takes, got, outs,
					want, wantOuts)
			}
		}
		if stats := store.Stats(now); stats.EvictedInDebt != 0 {
			t.Fatalf("%+v: the table is too small for this test", stats)
		}
	}
}

// seeds is for longer runs: go test ./bucket/memory -run TestEvictionNeverGrants -seeds 300
var seeds = flag.Uint64("seeds", 12,
	"how many schedules TestEvictionNeverGrants tries for every case where rules change; a quarter for the others")

// TestEvictionNeverGrants runs far more buckets than the table holds, and has the unlimited twin
// repeat what the table admits. What the twin would not admit, the table must not have.
func TestEvictionNeverGrants(t *testing.T) {
	tests := []struct {
		name    string
		options memory.Options
		change  bool // rules change on the way
		debts   bool // none of them counts in windows
		back    bool // the clock steps back on the way; the twin's stands still instead
	}{
		{"one set", memory.Options{MaxBuckets: 1}, false, false, false},
		{"small table", memory.Options{MaxBuckets: 64}, false, false, false},
		{"narrow sketch", memory.Options{MaxBuckets: 64, SketchWidth: 3}, false, false, false},
		{"wide sketch", memory.Options{MaxBuckets: 64, SketchWidth: 100_000}, false, false, false},
		{"clock steps back", memory.Options{MaxBuckets: 64, SketchWidth: 100_000}, false, false, true},
		{"rules change", memory.Options{MaxBuckets: 64, SketchWidth: 100_000}, true, false, false},
		{"limits of debts change", memory.Options{MaxBuckets: 64, SketchWidth: 100_000}, true, true, false},
		{"rules change, traces are spilled", memory.Options{MaxBuckets: 64, SketchWidth: 400}, true, false, false},
		{"limits of debts change, traces are spilled", memory.Options{MaxBuckets: 64, SketchWidth: 400},
			true, true, false},
		{"no room for changed limits of debts", memory.Options{MaxBuckets: 256, SketchWidth: 100_000, MaxShapes: 3},
			true, true, false},
		{"no room for shapes", memory.Options{MaxBuckets: 256, SketchWidth: 100_000, MaxShapes: 2}, false,
			false, false},
		{"rules change seldom", memory.Options{MaxBuckets: 16, SketchWidth: 100_000}, true, false, false},
		{"limits of debts change seldom", memory.Options{MaxBuckets: 16, SketchWidth: 100_000}, true, true, false},
		{"no room for changed shapes", memory.Options{MaxBuckets: 256, SketchWidth: 100_000, MaxShapes: 3}, true,
			false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tries := race.Fewer(*seeds)
			if !test.change {
				tries = (tries + 3) / 4
			}
			for seed := range tries {
				sc := newSchedule(t, seed, 200)
				longest, between := int64(3*time.Millisecond), 1000
				// so that what was owed at a change has drained long before the next
				if strings.HasSuffix(test.name, "seldom") {
					sc.quick, longest, between = true, int64(9*time.Millisecond), 6000
					for i := range sc.rules {
						sc.rules[i].shape = sc.shape()
					}
				}
				if sc.debts = test.debts; test.back || test.debts { // the twin's windows would end at other times
					sc.rules = sc.rules[:6]
				}
				store, twin := open(t, test.options), new(buckettest.Twin)
				now, elapsed, admitted := noon, noon, 0
				steps := 60_000
				if race.Enabled {
					steps = 15_000
				}
				for i := range steps {
					step := sc.rng.Int64N(longest)
					now, elapsed = now+step, elapsed+step
					if test.back && sc.rng.IntN(2000) == 0 {
						now -= sc.rng.Int64N(int64(5 * time.Second))
					}
					if test.change && sc.rng.IntN(between) == 0 {
						settled := sc.settled(now)
						sc.change(now)
						store.Learn(now, max(settled, sc.settled(now)))
					}
					takes := sc.takes(true)
					allowed, outs := decide(t, store, now, takes)
					charged := chargedOf(takes, outs)
					if !allowed || len(charged) == 0 {
						continue
					}
					admitted++
					if ok, want := decide(t, twin, elapsed, sc.exactly(charged)); !ok {
						t.Fatalf("seed %d, step %d: admitted %+v, the twin says %+v", seed, i, charged, want)
					}
				}
				stats := store.Stats(now)
				if admitted < 100 || stats.EvictedInDebt < 100 {
					t.Errorf("admitted %d, %+v: this shows nothing", admitted, stats)
				}
			}
		})
	}
}

// chargedOf is what an admitted decision charged: all but the shadows that did not fit, which are
// now as good as the others.
func chargedOf(takes []bucket.Take, outs []bucket.Outcome) []bucket.Take {
	var charged []bucket.Take
	for i, take := range takes {
		if outs[i].Allowed && take.Cost > 0 {
			take.Shadow, take.MaxWait = false, 0
			charged = append(charged, take)
		}
	}
	return charged
}

// FuzzAgainstTwin reads decisions from bytes: small tables must admit no more than the twin, a
// large one answers the same.
func FuzzAgainstTwin(f *testing.F) {
	rng := rand.New(rand.NewPCG(8, 8))
	for range 20 {
		ops := make([]byte, 400)
		for i := range ops {
			ops[i] = byte(rng.Uint32())
		}
		f.Add(ops)
	}
	f.Fuzz(func(t *testing.T, ops []byte) {
		small, follower := open(t, memory.Options{MaxBuckets: 8, MaxShapes: 3}), new(buckettest.Twin)
		large, twin := open(t, memory.Options{MaxBuckets: 1 << 12, MaxLogs: 1 << 12}), new(buckettest.Twin)
		sc := newSchedule(t, 2, 1)
		now := noon
		for ; len(ops) >= 4; ops = ops[4:] {
			now += int64(ops[0]) * int64(ops[0]) * 100_000 // up to 6.5 s
			takes := []bucket.Take{fuzzTake(sc, ops[1], ops[2]), fuzzTake(sc, ops[2], ops[3])}
			if ops[3]&1 == 0 {
				takes = takes[:1]
			}
			if ops[3] == 0xff {
				settled := sc.settled(now)
				sc.change(now)
				small.Learn(now, max(settled, sc.settled(now)))
				continue
			}
			if ops[3] == 0xfe {
				small.Stats(now)
			}
			got, outs := decide(t, large, now, takes)
			if want, wantOuts := decide(t, twin, now, takes); got != want || !slices.Equal(outs, wantOuts) {
				t.Fatalf("TryConsume(%+v) = %t, %+v, want %t, %+v", takes, got, outs, want, wantOuts)
			}
			peeked := make([]bucket.Outcome, len(takes))
			want, err := small.Peek(context.Background(), now, takes, peeked)
			if err != nil {
				t.Fatal(err)
			}
			got, outs = decide(t, small, now, takes)
			if got != want || !slices.Equal(outs, peeked) {
				t.Fatalf("TryConsume(%+v) = %t, %+v, but Peek = %t, %+v", takes, got, outs, want, peeked)
			}
			if charged := chargedOf(takes, outs); got && len(charged) > 0 {
				if ok, want := decide(t, follower, now, sc.exactly(charged)); !ok {
					t.Fatalf("the small table admits %+v, the twin says %+v", charged, want)
				}
			}
		}
	})
}

func fuzzTake(sc *schedule, a, b byte) bucket.Take {
	r := sc.rules[int(a)%len(sc.rules)]
	t := r.take(buckettest.Key(uint64(a)), int64(b%16))
	t.Shadow = b&0xc0 == 0
	return t
}
