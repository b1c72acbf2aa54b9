package memory_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// lasting gives takes names that outlive the process.
func lasting(takes []bucket.Take) []bucket.Take {
	for i := range takes {
		takes[i].Key = key.Lasting(takes[i].Key.Lo)
	}
	return takes
}

// restarted is a table of a new process, with what the one before saved.
func restarted(t testing.TB, before *memory.Store, o memory.Options, savedAt, now int64) *memory.Store {
	t.Helper()
	var file bytes.Buffer
	if err := before.Save(&file, savedAt); err != nil {
		t.Fatal(err)
	}
	after := open(t, o)
	if err := after.Load(&file, now); err != nil {
		t.Fatal(err)
	}
	if file.Len() != 0 {
		t.Fatalf("%d bytes were left", file.Len())
	}
	return after
}

// TestSavedTableIsExact: a table that was saved and loaded any number of times gives the answers of an unlimited one
// that never stopped, whatever the rules do. While they stay as they are, that holds for tables of other sizes too:
// else what was full when it left has a trace, which there may be anybody's.
func TestSavedTableIsExact(t *testing.T) {
	for seed := range race.Fewer(uint64(4)) {
		sc := newSchedule(t, seed, 300)
		sizes := []memory.Options{{MaxBuckets: 1 << 14, MaxLogs: 1 << 13}, {MaxBuckets: 1 << 13, MaxLogs: 1 << 13},
			{MaxBuckets: 40_000, MaxLogs: 1 << 13}}
		change := seed%2 == 0
		if change {
			sizes = sizes[:1]
		}
		store, twin := open(t, sizes[0]), new(buckettest.Twin)
		now := noon
		for step := range 20_000 {
			now += sc.rng.Int64N(int64(40 * time.Millisecond))
			if sc.rng.IntN(400) == 0 {
				stopped := now
				now += sc.rng.Int64N(int64(4 * time.Second)) // nobody decides meanwhile
				store = restarted(t, store, sizes[sc.rng.IntN(len(sizes))], stopped, now)
			}
			if change && sc.rng.IntN(200) == 0 {
				settled := sc.settled(now)
				sc.change(now)
				store.Learn(now, max(settled, sc.settled(now)))
			}
			// what is full is left out, where an unknown past would hold what it owed
			takes := sc.exactly(lasting(sc.takes(true)))
			got, outs := decide(t, store, now, takes)
			want, wantOuts := decide(t, twin, now, takes)
			if got != want || !slices.Equal(outs, wantOuts) {
				t.Fatalf("seed %d, step %d: TryConsume(%+v) = %t, %+v, want %t, %+v", seed, step, takes, got, outs,
					want, wantOuts)
			}
		}
	}
}

// TestSavedTableNeverGrants does so with tables that are far too small, and has the unlimited twin repeat what is
// admitted: what it would not admit, no table must have.
func TestSavedTableNeverGrants(t *testing.T) {
	for name, sizes := range map[string][]memory.Options{
		"one size": {{MaxBuckets: 64, SketchWidth: 100_000}},
		"narrow":   {{MaxBuckets: 64, SketchWidth: 3}},
		"other sizes": {{MaxBuckets: 64, SketchWidth: 100_000}, {MaxBuckets: 16, SketchWidth: 1000},
			{MaxBuckets: 300}},
		"no room for shape": {{MaxBuckets: 256, SketchWidth: 100_000, MaxShapes: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range race.Fewer(uint64(4)) {
				sc := newSchedule(t, seed, 200)
				store, twin := open(t, sizes[0]), new(buckettest.Twin)
				now, admitted := noon, 0
				for i := range 30_000 {
					now += sc.rng.Int64N(int64(3 * time.Millisecond))
					if sc.rng.IntN(1500) == 0 {
						stopped := now
						now += sc.rng.Int64N(int64(2 * time.Second))
						store = restarted(t, store, sizes[sc.rng.IntN(len(sizes))], stopped, now)
					}
					if sc.rng.IntN(1000) == 0 {
						settled := sc.settled(now)
						sc.change(now)
						store.Learn(now, max(settled, sc.settled(now)))
					}
					takes := lasting(sc.takes(true))
					allowed, outs := decide(t, store, now, takes)
					charged := chargedOf(takes, outs)
					if !allowed || len(charged) == 0 {
						continue
					}
					admitted++
					if ok, want := decide(t, twin, now, sc.exactly(charged)); !ok {
						t.Fatalf("seed %d, step %d: admitted %+v, the twin says %+v", seed, i, charged, want)
					}
				}
				if admitted < 100 {
					t.Errorf("admitted %d: this shows nothing", admitted)
				}
			}
		})
	}
}

// TestSaveWhileInUse: what was decided before Save began is in it, also while others go on, evict and move buckets.
func TestSaveWhileInUse(t *testing.T) {
	shape := mustCompile(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 1})
	store := open(t, memory.Options{MaxBuckets: 1 << 12})
	const mine = 500
	for n := range uint64(mine) {
		decide(t, store, noon, lasting([]bucket.Take{{Key: buckettest.Key(n), Shape: shape, Cost: 1}}))
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := uint64(mine); ; n++ {
			select {
			case <-stop:
				return
			default:
				decide(t, store, noon, lasting([]bucket.Take{{Key: buckettest.Key(n), Shape: shape, Cost: 1}}))
			}
		}
	}()
	for range 20 {
		after := restarted(t, store, memory.Options{MaxBuckets: 1 << 12}, noon, noon)
		for n := range uint64(mine) {
			if ok, _ := decide(t, after, noon,
				lasting([]bucket.Take{{Key: buckettest.Key(n), Shape: shape, Cost: 1}})); ok {
				t.Fatalf("bucket %d was spent, and was saved as full", n)
			}
		}
	}
	close(stop)
	<-done
}

// TestSavedShapesAreWhole: a bucket goes on under the limit it had in every part, such as when its windows begin.
func TestSavedShapesAreWhole(t *testing.T) {
	shape := mustCompile(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 1, Algorithm: rate.FixedWindow})
	if fields := reflect.TypeFor[rate.Shape]().NumField(); fields != 6 {
		t.Errorf("a shape has %d fields, want the 6 that Save writes", fields)
	}
	shape.Phase = 1 // on the hour, which is when it is
	take := lasting([]bucket.Take{{Key: buckettest.Key(1), Shape: shape, Cost: 1}})
	store := open(t, memory.Options{MaxBuckets: 64})
	if ok, _ := decide(t, store, noon, take); !ok {
		t.Fatal("the first was denied")
	}
	_, before := decide(t, store, noon+int64(time.Minute), take)
	ok, outs := decide(t, restarted(t, store, memory.Options{MaxBuckets: 64}, noon, noon),
		noon+int64(time.Minute), take)
	if ok || !slices.Equal(outs, before) {
		t.Errorf("loaded: %t, %+v, want %+v", ok, outs, before)
	}
}

func saved(t testing.TB, seed uint64) []byte {
	sc := newSchedule(t, seed, 200)
	store := open(t, memory.Options{MaxBuckets: 64, SketchWidth: 100})
	for i := range 2000 {
		decide(t, store, noon+int64(i)*int64(time.Millisecond), lasting(sc.takes(true)))
	}
	var file bytes.Buffer
	if err := store.Save(&file, noon); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// TestLoadRefuses: what ends anywhere but at its end is refused.
func TestLoadRefuses(t *testing.T) {
	file := saved(t, 1)
	for range 200 {
		n := rand.IntN(len(file))
		err := open(t, memory.Options{MaxBuckets: 64, SketchWidth: 100}).Load(bytes.NewReader(file[:n]), noon)
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d of %d bytes: %v, want an error of the end", n, len(file), err)
		}
	}
}

// FuzzLoad: whatever is loaded, no decision panics.
func FuzzLoad(f *testing.F) {
	f.Add(saved(f, 1), uint64(0))
	f.Add(saved(f, 2)[:4000], uint64(7))
	f.Fuzz(func(t *testing.T, file []byte, seed uint64) {
		store := open(t, memory.Options{MaxBuckets: 64, SketchWidth: 100})
		if store.Load(bytes.NewReader(file), noon) != nil {
			return
		}
		sc := newSchedule(t, seed, 200)
		for i := range 50 {
			decide(t, store, noon+int64(i)*int64(time.Second), lasting(sc.takes(true)))
		}
		store.Stats(noon)
		if err := store.Save(io.Discard, noon); err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkSave and BenchmarkLoad: a million buckets in debt.
func BenchmarkSave(b *testing.B) {
	store := indebted(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := store.Save(io.Discard, noon); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	var file bytes.Buffer
	if err := indebted(b).Save(&file, noon); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(file.Len()), "bytes")
	for b.Loop() {
		if err := open(b, memory.Options{MaxBuckets: 1_300_000}).Load(bytes.NewReader(file.Bytes()), noon); err != nil {
			b.Fatal(err)
		}
	}
}

func indebted(b *testing.B) *memory.Store {
	store := open(b, memory.Options{MaxBuckets: 1_300_000})
	shape := mustCompile(b, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 5})
	for n := range uint64(1_000_000) {
		decide(b, store, noon, lasting([]bucket.Take{{Key: buckettest.Key(n), Shape: shape, Cost: 1}}))
	}
	return store
}
