package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// noon is some present, in Unix nanoseconds.
const noon = int64(1_795_176_000_000_000_000)

func mustCompile(t testing.TB, limit rate.Limit) rate.Shape {
	t.Helper()
	shape, err := rate.Compile(limit)
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

// randomKeys are distinct and in no order.
func randomKeys(n int) []key.Key {
	rng := rand.NewPCG(1, 2)
	keys := make([]key.Key, n)
	for i := range keys {
		keys[i] = key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()}
	}
	return keys
}

// BenchmarkHotKey is the decision on one bucket. Time is a counter: reading the clock costs a
// request more than this, but only once.
func BenchmarkHotKey(b *testing.B) {
	store := open(b, memory.Options{})
	fast, slow := mustCompile(b, rate.Limit{Tokens: 1e9, Per: time.Second, Burst: 1e9}),
		mustCompile(b, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 1})
	log := mustCompile(b, rate.Limit{Tokens: 1e6, Per: time.Millisecond, Burst: 1e6, Algorithm: rate.SlidingLog})
	for _, bench := range []struct {
		name  string
		shape rate.Shape
		key   uint64
	}{{"allowed", fast, 1}, {"denied", slow, 2}, {"log", log, 4}} {
		b.Run(bench.name, func(b *testing.B) {
			takes := []bucket.Take{{Key: key.Key{Hi: bench.key << 60, Lo: 7 << 50}, Shape: bench.shape, Cost: 1}}
			outs := make([]bucket.Outcome, 1)
			now, ctx := noon, context.Background()
			b.ReportAllocs()
			for b.Loop() {
				now++
				if _, err := store.TryConsume(ctx, now, takes, outs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("allowed/parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			takes := []bucket.Take{{Key: key.Key{Hi: 3 << 60, Lo: 7 << 50}, Shape: fast, Cost: 1}}
			outs := make([]bucket.Outcome, 1)
			now, ctx := noon, context.Background()
			for pb.Next() {
				now++
				if _, err := store.TryConsume(ctx, now, takes, outs); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// BenchmarkMillionKeys walks a million buckets in random order. The table has a quarter more slots.
func BenchmarkMillionKeys(b *testing.B) {
	const n = 1 << 20
	store := open(b, memory.Options{MaxBuckets: n * 5 / 4})
	shape := mustCompile(b, rate.Limit{Tokens: 1000, Per: time.Second, Burst: 1_000_000})
	keys := randomKeys(n)
	walk := func(step func() bool, from int) {
		takes := []bucket.Take{{Shape: shape, Cost: 1}}
		outs := make([]bucket.Outcome, 1)
		ctx, now := context.Background(), noon
		for i := from; step(); i++ {
			now += 200
			takes[0].Key = keys[i%n]
			if ok, err := store.TryConsume(ctx, now, takes, outs); !ok || err != nil {
				b.Error(ok, err)
				return
			}
		}
	}
	left := n
	walk(func() bool { left--; return left >= 0 }, 0)
	rand.New(rand.NewPCG(3, 4)).Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })

	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		walk(b.Loop, 0)
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		var start atomic.Int64
		b.RunParallel(func(pb *testing.PB) { walk(pb.Next, int(start.Add(n/2+12345))) })
	})
	stats := store.Stats(noon)
	b.ReportMetric(float64(stats.EvictedInDebt), "evicted_in_debt")
}

// BenchmarkThreeHot is a request under three rules, again and again.
func BenchmarkThreeHot(b *testing.B) {
	store := open(b, memory.Options{})
	shape := mustCompile(b, rate.Limit{Tokens: 1e9, Per: time.Second, Burst: 1e9})
	takes, outs := make([]bucket.Take, 3), make([]bucket.Outcome, 3)
	for i, k := range randomKeys(3) {
		takes[i] = bucket.Take{Key: k, Shape: shape, Cost: 1}
	}
	ctx, now := context.Background(), noon
	b.ReportAllocs()
	for b.Loop() {
		now++
		if _, err := store.TryConsume(ctx, now, takes, outs); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkThreeTakes is a request under three rules: one bucket of a hundred and two of a hundred thousand each.
func BenchmarkThreeTakes(b *testing.B) {
	store := open(b, memory.Options{})
	shape := mustCompile(b, rate.Limit{Tokens: 1e6, Per: time.Second, Burst: 1e6})
	keys := randomKeys(200_100)
	takes := []bucket.Take{{Shape: shape, Cost: 1}, {Shape: shape, Cost: 1}, {Shape: shape, Cost: 1}}
	outs := make([]bucket.Outcome, 3)
	ctx, now, i := context.Background(), noon, 0
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		i++
		takes[0].Key, takes[1].Key, takes[2].Key = keys[i%100], keys[100+i%100_000], keys[100_100+i%100_000]
		if _, err := store.TryConsume(ctx, now, takes, outs); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNewKey inserts keys never seen before into a full table: of buckets that are full again,
// or of buckets in debt, which then have to be remembered.
func BenchmarkNewKey(b *testing.B) {
	for _, bench := range []struct {
		name  string
		limit rate.Limit
	}{
		{"free", rate.Limit{Tokens: 1000, Per: time.Second, Burst: 1000}},
		{"in_debt", rate.Limit{Tokens: 10, Per: time.Hour, Burst: 10}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			store := open(b, memory.Options{})
			takes := []bucket.Take{{Shape: mustCompile(b, bench.limit), Cost: 1}}
			outs := make([]bucket.Outcome, 1)
			rng := rand.NewPCG(5, 6)
			ctx, now := context.Background(), noon
			insert := func() {
				now += 300
				takes[0].Key = key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()}
				if _, err := store.TryConsume(ctx, now, takes, outs); err != nil {
					b.Fatal(err)
				}
			}
			for range 4 << 20 {
				insert()
			}
			b.ReportAllocs()
			for b.Loop() {
				insert()
			}
			stats := store.Stats(now)
			b.ReportMetric(float64(stats.EvictedInDebt)/float64(stats.Created), "in_debt/insert")
		})
	}
}

// BenchmarkTurnover inserts keys that stay in debt for a while, so long that some part of the slots
// is taken at any time, and the others hold buckets that are full again.
func BenchmarkTurnover(b *testing.B) {
	for _, percent := range []int64{50, 80, 100, 200} {
		b.Run(fmt.Sprintf("%d%%", percent), func(b *testing.B) {
			const slots, between = 1 << 18, 300 // nanoseconds
			shape := mustCompile(b, rate.Limit{Tokens: 1,
				Per: slots * between * time.Duration(percent) / 100, Burst: 10})
			store := open(b, memory.Options{MaxBuckets: slots})
			takes := []bucket.Take{{Shape: shape, Cost: 1}}
			outs := make([]bucket.Outcome, 1)
			rng := rand.NewPCG(5, 6)
			ctx, now := context.Background(), noon
			insert := func() {
				now += between
				takes[0].Key = key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()}
				if _, err := store.TryConsume(ctx, now, takes, outs); err != nil {
					b.Fatal(err)
				}
			}
			for range 4 * slots {
				insert()
			}
			before := store.Stats(now)
			b.ReportAllocs()
			for b.Loop() {
				insert()
			}
			after := store.Stats(now)
			b.ReportMetric(float64(after.EvictedInDebt-before.EvictedInDebt)/float64(after.Created-before.Created),
				"in_debt/insert")
		})
	}
}

// BenchmarkBytes reports what a slot costs, all in, and how long the garbage collector takes with a full table.
func BenchmarkBytes(b *testing.B) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	store := open(b, memory.Options{})
	runtime.ReadMemStats(&after)
	shape := mustCompile(b, rate.Limit{Tokens: 1, Per: time.Second, Burst: 10})
	outs := make([]bucket.Outcome, 1)
	for _, k := range randomKeys(1 << 20) {
		if _, err := store.TryConsume(context.Background(), noon, []bucket.Take{{Key: k, Shape: shape, Cost: 1}},
			outs); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		runtime.GC()
	}
	stats := store.Stats(noon)
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(stats.Capacity), "B/slot")
	b.ReportMetric(float64(stats.Live), "live")
}

func BenchmarkStats(b *testing.B) {
	store := open(b, memory.Options{})
	shape := mustCompile(b, rate.Limit{Tokens: 1, Per: time.Second, Burst: 10})
	outs := make([]bucket.Outcome, 1)
	for _, k := range randomKeys(1 << 20) {
		if _, err := store.TryConsume(context.Background(), noon, []bucket.Take{{Key: k, Shape: shape, Cost: 1}},
			outs); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		store.Stats(noon)
	}
}
