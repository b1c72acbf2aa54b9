package memory_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/rate"
)

// TestLogsAreBounded: logs take no room before the first, and no more than their table afterwards.
func TestLogsAreBounded(t *testing.T) {
	store := open(t, memory.Options{MaxBuckets: 1 << 14})
	before := store.Stats(noon)
	shape := mustCompile(t, rate.Limit{Tokens: 5, Per: time.Minute, Burst: 5, Algorithm: rate.SlidingLog})
	var from, to runtime.MemStats
	runtime.ReadMemStats(&from)
	for _, k := range randomKeys(20_000) {
		decide(t, store, noon, []bucket.Take{{Key: k, Shape: shape, Cost: 1}})
	}
	runtime.ReadMemStats(&to)
	after := store.Stats(noon)
	if before.Logs != 0 || before.MaxLogs < 1<<10 || before.MaxLogs > 1<<11 || after.Logs < before.MaxLogs*9/10 ||
		after.Logs > before.MaxLogs {
		t.Errorf("%d of %d logs before, %d after 20,000 keys", before.Logs, before.MaxLogs, after.Logs)
	}
	if got := float64(after.Bytes-before.Bytes) / float64(before.MaxLogs); got < 129 || got > 131 {
		t.Errorf("%.1f bytes a log, want 129 and a little", got)
	}
	if after.Live != 0 || after.EvictedInDebt < 15_000 {
		t.Errorf("%+v: want no bucket beside the logs, and most evicted", after)
	}
	if got := store.Stats(noon + int64(63*time.Second)); got.Logs != 0 {
		t.Errorf("%d logs in use after their window, want none", got.Logs)
	}
}

// TestLogsAndBucketsAreOneDecision has every log and bucket share one set, so that whatever a
// decision writes evicts something.
func TestLogsAndBucketsAreOneDecision(t *testing.T) {
	store, twin := open(t, memory.Options{MaxBuckets: 1, MaxLogs: 1, SketchWidth: 1 << 16}), new(buckettest.Twin)
	log := mustCompile(t, rate.Limit{Tokens: 5, Per: time.Minute, Burst: 5, Algorithm: rate.SlidingLog})
	other := mustCompile(t, rate.Limit{Tokens: 5, Per: time.Minute, Burst: 5})
	admitted := 0
	for i := range uint64(4000) {
		now := noon + int64(i)*int64(40*time.Millisecond)
		var takes []bucket.Take
		for n := range uint64(12) {
			take := bucket.Take{Key: buckettest.Key(n*100 + (i*(n+1))%7), Shape: log, Cost: 1}
			if n%3 == 0 {
				take.Shape = other
			}
			takes = append(takes, take)
		}
		allowed, outs := decide(t, store, now, takes)
		if !allowed {
			continue
		}
		admitted++
		if ok, want := decide(t, twin, now, takes); !ok {
			t.Fatalf("decision %d: admitted %+v, the twin says %+v", i, outs, want)
		}
	}
	if stats := store.Stats(noon); admitted < 10 || stats.EvictedInDebt < 50 {
		t.Errorf("admitted %d, %+v: this shows nothing", admitted, stats)
	}
}

func TestLogRefunds(t *testing.T) {
	store := open(t, memory.Options{MaxBuckets: 64})
	shape := mustCompile(t, rate.Limit{Tokens: 5, Per: time.Minute, Burst: 5, Algorithm: rate.SlidingLog})
	take := []bucket.Take{{Key: buckettest.Key(1), Shape: shape, Cost: 3}}
	for range 4 {
		if ok, outs := decide(t, store, noon, take); !ok {
			t.Fatalf("%+v", outs)
		}
		correct(t, store, noon, bucket.Change{Key: take[0].Key, Shape: shape, Units: -3 * shape.Unit, Charged: noon})
	}
}
