package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

func ExampleStore_TryConsume() {
	store, err := memory.New(memory.Options{MaxBuckets: 10_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	perUser, err := rate.Compile(rate.Limit{Tokens: 100, Per: time.Second, Burst: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	perAddress, err := rate.Compile(rate.Limit{Tokens: 1, Per: time.Second, Burst: 2})
	if err != nil {
		fmt.Println(err)
		return
	}

	keys := key.NewHasher()
	takes := []bucket.Take{
		{Key: keys.Key(1, 0, []byte("alice")), Shape: perUser, Cost: 1},
		{Key: keys.Key(2, 0, []byte("192.0.2.7")), Shape: perAddress, Cost: 1},
	}
	outs := make([]bucket.Outcome, len(takes))
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
	for range 3 {
		allowed, err := store.TryConsume(context.Background(), now, takes, outs)
		fmt.Println(allowed, err, "user", outs[0].Remaining, "address", outs[1].Remaining, "retry", outs[1].RetryAfter)
	}
	// Output:
	// true <nil> user 99 address 1 retry 0s
	// true <nil> user 98 address 0 retry 0s
	// false <nil> user 98 address 0 retry 1s
}

func TestNewRefuses(t *testing.T) {
	_, err := memory.New(memory.Options{MaxBuckets: -1, SketchWidth: 1<<30 + 1, MaxShapes: -7, MaxLogs: -2})
	want := []string{
		"MaxBuckets is -1, want 1 to 1073741824, or 0 for the default",
		"SketchWidth is 1073741825, want 1 to 1073741824, or 0 for the default",
		"MaxShapes is -7, want 1 to 1073741824, or 0 for the default",
		"MaxLogs is -2, want 1 to 1073741824, or 0 for the default",
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("New says %v, want %q", err, want)
	}
}

func TestTablesOfAnySize(t *testing.T) {
	shape := mustCompile(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 2})
	for _, size := range []int{1, 7, 8, 9, 63, 64, 100, 1000, 1023, 1025, 5000, 1 << 16} {
		store := open(t, memory.Options{MaxBuckets: size})
		for _, k := range append(randomKeys(3*size+20), key.Key{}, key.Key{Lo: 1},
			key.Key{Hi: ^uint64(0), Lo: ^uint64(0)}) {
			decide(t, store, noon, []bucket.Take{{Key: k, Shape: shape, Cost: 1}})
		}
		stats := store.Stats(noon)
		if stats.Capacity < size || stats.Capacity > size+size/8+8 {
			t.Errorf("MaxBuckets %d: %d slots, want as many and at most an eighth more", size, stats.Capacity)
		}
		if stats.Live > stats.Capacity || stats.Live < stats.Capacity*9/10 {
			t.Errorf("MaxBuckets %d: %+v after three times as many keys, want nearly all slots in use", size, stats)
		}
		if used := stats.Created - stats.EvictedFull - stats.EvictedInDebt; used != uint64(stats.Live) {
			t.Errorf("MaxBuckets %d: %+v: %d slots in use, want %d", size, stats, used, stats.Live)
		}
	}
}

func TestStatsCountsWhatIsLive(t *testing.T) {
	store := open(t, memory.Options{MaxBuckets: 1 << 12})
	shape := mustCompile(t, rate.Limit{Tokens: 1, Per: time.Second, Burst: 10})
	for i, k := range randomKeys(1000) {
		decide(t, store, noon, []bucket.Take{{Key: k, Shape: shape, Cost: 1 + int64(i%10)}})
	}
	for _, test := range []struct {
		after time.Duration
		live  int
	}{{0, 1000}, {time.Second - 1, 1000}, {time.Second, 900}, {9 * time.Second, 100}, {10 * time.Second, 0}} {
		if got := store.Stats(noon + int64(test.after)); got.Live != test.live || got.Created != 1000 ||
			got.Shapes != 1 {
			t.Errorf("after %v: %+v, want %d live", test.after, got, test.live)
		}
	}
}

func TestFullBucketsMakeRoomForNothing(t *testing.T) {
	store := open(t, memory.Options{MaxBuckets: 64})
	shape := mustCompile(t, rate.Limit{Tokens: 10, Per: time.Second, Burst: 1})
	for i, k := range randomKeys(10_000) {
		now := noon + int64(i)*int64(100*time.Millisecond) // each is full again when the next comes
		if ok, outs := decide(t, store, now, []bucket.Take{{Key: k, Shape: shape, Cost: 1}}); !ok {
			t.Fatalf("key %d: %+v, want allowed", i, outs)
		}
	}
	if stats := store.Stats(noon); stats.EvictedInDebt != 0 || stats.EvictedFull != 10_000-64 {
		t.Errorf("%+v: want every eviction but none in debt", stats)
	}
}

func TestNothingAllocates(t *testing.T) {
	fine, other := mustCompile(t, rate.Limit{Tokens: 1000, Per: time.Second, Burst: 2000}),
		mustCompile(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 100})
	var counted []rate.Shape
	for _, a := range windows {
		counted = append(counted, mustCompile(t, rate.Limit{Tokens: 1000, Per: time.Second, Burst: 1000, Algorithm: a}))
	}
	for _, count := range []int{1, 2, 4, 5, 14} {
		store := open(t, memory.Options{MaxBuckets: 512})
		takes, outs := make([]bucket.Take, count), make([]bucket.Outcome, count)
		rng := rand.NewPCG(1, uint64(count))
		now := noon
		allocs := testing.AllocsPerRun(2000, func() {
			now += 1000
			for i := range takes {
				takes[i] = bucket.Take{Key: buckettest.Key(uint64(i)), Shape: fine, Cost: 1, Shadow: i == 2}
				takes[i].Shape.Algorithm = rate.Algorithm(i / 2 % 2)
				if i%4 == 0 && i > 0 {
					takes[i].Shape = counted[i/4%len(counted)]
				}
				if i%2 == 1 { // a key never seen, later evicted
					takes[i].Key, takes[i].Shape = key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()}, other
				}
			}
			if _, err := store.Peek(context.Background(), now, takes, outs); err != nil {
				t.Error(err)
			}
			if _, err := store.TryConsume(context.Background(), now, takes, outs); err != nil {
				t.Error(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%d takes allocate %v times, want 0", count, allocs)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	for _, size := range []int{1 << 14, 1 << 18, 1 << 20} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		store := open(t, memory.Options{MaxBuckets: size})
		runtime.ReadMemStats(&after)
		stats := store.Stats(noon)
		if got := float64(after.TotalAlloc-before.TotalAlloc) / float64(stats.Capacity); got > 64 {
			t.Errorf("MaxBuckets %d: %.1f bytes a slot, want at most 64", size, got)
		}
		most := 64.0 // where there are many processors, what belongs to a shard weighs in a small table
		if size == 1<<20 {
			most = 44.8 // 56 a bucket in debt, where four of five are
		}
		if got := float64(stats.Bytes) / float64(stats.Capacity); got > most || got < 40 {
			t.Errorf("MaxBuckets %d: Stats says %.1f bytes a slot, want 40 to %.1f", size, got, most)
		}
	}
}

// perHour is one of many shapes: a burst and nothing that would drain during a test.
func perHour(t testing.TB, burst int64) rate.Shape {
	t.Helper()
	return mustCompile(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: burst})
}

func TestShapesAreReclaimed(t *testing.T) {
	store := open(t, memory.Options{MaxBuckets: 1 << 12, MaxShapes: 4})
	take := func(n uint64, shape rate.Shape) bucket.Take {
		return bucket.Take{Key: buckettest.Key(n), Shape: shape, Cost: 1}
	}
	lasting := take(1, perHour(t, 5))
	decide(t, store, noon, []bucket.Take{lasting})
	now := noon
	for n := range uint64(1000) { // one shape after the other, each drained when the next comes
		now += int64(time.Second)
		short := take(100+n, mustCompile(t, rate.Limit{Tokens: 1, Per: 500 * time.Millisecond, Burst: 2 + int64(n)}))
		if ok, outs := decide(t, store, now, []bucket.Take{short}); !ok || outs[0].Remaining != 1+int64(n) {
			t.Fatalf("shape %d: %+v", n, outs)
		}
	}
	if stats := store.Stats(now); stats.EvictedInDebt != 0 || stats.Shapes > 4 {
		t.Errorf("%+v: want no bucket without a slot, and no more than 4 shapes", stats)
	}
	if _, outs := decide(t, store, now, []bucket.Take{lasting}); outs[0].Remaining != 3 {
		t.Errorf("the bucket that was in debt all along: %+v, want 3 left", outs)
	}
}

func TestBucketsWithoutRoomForTheirShapeAreRemembered(t *testing.T) {
	store := open(t, memory.Options{MaxBuckets: 1 << 12, MaxShapes: 4})
	for n := range uint64(50) {
		takes := []bucket.Take{{Key: buckettest.Key(n), Shape: perHour(t, 3+int64(n)), Cost: 3 + int64(n)}}
		for i := range 5 {
			if ok, outs := decide(t, store, noon, takes); ok != (i == 0) {
				t.Fatalf("shape %d, take %d: %+v", n, i, outs)
			}
		}
	}
	if stats := store.Stats(noon); stats.EvictedInDebt < 40 || stats.Shapes != 4 {
		t.Errorf("%+v, want most buckets in the sketch", stats)
	}
}

// TestConcurrentChurn has everything happen at once: more buckets than slots, more shapes than
// numbers, several takes a decision, sweeps. No bucket may give more than its burst, as nothing
// drains.
func TestConcurrentChurn(t *testing.T) {
	const buckets, callers, rounds = 300, 6, 4000
	store := open(t, memory.Options{MaxBuckets: 128, MaxShapes: 20, SketchWidth: 1 << 14})
	shapes := make([]rate.Shape, 40)
	for i := range shapes {
		shapes[i] = perHour(t, 20+int64(i))
	}
	keys := map[key.Key]int{}
	for n := range buckets {
		keys[buckettest.Key(uint64(n))] = n
	}
	admitted := make([][buckets]int64, callers)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 3))
			outs := make([]bucket.Outcome, 5)
			for round := range rounds {
				var takes []bucket.Take
				for range 1 + rng.IntN(5) {
					n := rng.Uint64N(buckets)
					takes = append(takes, bucket.Take{Key: buckettest.Key(n), Shape: shapes[n%40], Cost: 1})
				}
				ok, err := store.TryConsume(context.Background(), noon, takes, outs)
				if err != nil {
					t.Error(err)
					return
				}
				for i := 0; ok && i < len(takes); i++ {
					admitted[caller][keys[takes[i].Key]]++
				}
				if round%1000 == 0 {
					store.Stats(noon)
				}
			}
		})
	}
	wg.Wait()
	for n := range uint64(buckets) {
		sum := int64(0)
		for caller := range admitted {
			sum += admitted[caller][n]
		}
		if burst := shapes[n%40].Burst(); sum > burst {
			t.Errorf("bucket %d admitted %d, want at most %d", n, sum, burst)
		}
	}
	if stats := store.Stats(noon); stats.EvictedInDebt == 0 {
		t.Errorf("%+v: nothing was evicted in debt, so this shows nothing", stats)
	}
}
