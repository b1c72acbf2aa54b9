package memory_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
)

// A table given in bytes takes nearly all of them and none more, once it has logs.
func TestMaxBytes(t *testing.T) {
	log := mustCompile(t, rate.Limit{Tokens: 5, Per: time.Hour, Burst: 5, Algorithm: rate.SlidingLog})
	for _, limit := range []int64{memory.MinBytes, 100_000, 1 << 20, 58 << 20, 60_000_001} {
		store := open(t, memory.Options{MaxBytes: limit})
		for _, k := range randomKeys(2000) { // some in every shard
			decide(t, store, noon, []bucket.Take{{Key: k, Shape: log, Cost: 1}})
		}
		stats := store.Stats(noon)
		if stats.Bytes > limit || stats.Bytes < limit*85/100 {
			t.Errorf("MaxBytes %d: the table takes %d in %d slots", limit, stats.Bytes, stats.Capacity)
		}
	}
	narrow := open(t, memory.Options{MaxBytes: 1 << 20, SketchWidth: 1000, MaxShapes: 64}).Stats(noon)
	wide := open(t, memory.Options{MaxBytes: 1 << 20}).Stats(noon)
	if narrow.Capacity <= wide.Capacity {
		t.Errorf("%d slots with a narrow sketch, %d with the default: what the sketch does not take is for buckets",
			narrow.Capacity, wide.Capacity)
	}
}

func TestMaxBytesRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		o    memory.Options
		want string
	}{
		"below zero": {memory.Options{MaxBytes: -1}, "MaxBytes is -1, want 65536 or more, or 0 to give MaxBuckets"},
		"too few":    {memory.Options{MaxBytes: 1000}, "MaxBytes is 1000, want 65536 or more"},
		"both": {memory.Options{MaxBytes: 1 << 20, MaxBuckets: 5},
			"MaxBytes is 1048576 and MaxBuckets is 5, want one of both"},
		"a wide sketch": {memory.Options{MaxBytes: 1 << 20, SketchWidth: 1 << 20},
			"for a table of 8 buckets with this SketchWidth"},
	} {
		if _, err := memory.New(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: New = %v, want %q", name, err, c.want)
		}
	}
}

// TestFalseDenialsAreEstimated: what the table says of each limit is what keys meet that were never
// there, in a table that is over-subscribed by buckets of one limit, or by those of many.
func TestFalseDenialsAreEstimated(t *testing.T) {
	store := open(t, memory.Options{MaxBuckets: 1 << 12})
	if got := store.Stats(noon); got.FalseDenials != 0 || got.Occupancy != 0 {
		t.Errorf("an empty table: %+v", got)
	}
	limits := []rate.Shape{perHour(t, 5), perHour(t, 1)}
	for _, limit := range []rate.Limit{
		{Tokens: 20, Per: time.Second, Burst: 20}, {Tokens: 1, Per: time.Second, Burst: 60},
		{Tokens: 5, Per: 12 * time.Minute, Burst: 5},
		{Tokens: 24, Per: 24 * time.Hour, Burst: 24},
		{Tokens: 30, Per: time.Minute, Burst: 30, Algorithm: rate.SlidingWindow},
	} {
		limits = append(limits, mustCompile(t, limit))
	}
	for _, test := range []struct {
		times   int          // the slots
		crowd   []rate.Shape // whose buckets they are
		largest float64      // at least
	}{
		{3, limits[:1], 0}, {5, limits[:1], 0.3}, {6, limits[2:3], 0}, {7, limits[4:5], 0.5}, {6, limits[6:], 0.5},
		{20, limits, 0.5},
	} {
		if race.Enabled && test.times != 5 {
			continue // one goroutine does all of it
		}
		const slots = 1 << 13
		store := open(t, memory.Options{MaxBuckets: slots})
		for i, k := range randomKeys(test.times * slots) {
			shape := test.crowd[i%len(test.crowd)]
			decide(t, store, noon, []bucket.Take{{Key: k, Shape: shape, Cost: shape.Burst()}})
		}
		stats := store.Stats(noon)
		largest := 0.0
		for i, shape := range limits {
			denied := 0
			const sample = 20_000
			for _, k := range randomKeys(sample) {
				k.Lo ^= 0x5555_aaaa_1234_4321 // keys that were never there
				outs := make([]bucket.Outcome, 1)
				if _, err := store.Peek(t.Context(), noon, []bucket.Take{{Key: k, Shape: shape, Cost: 1}},
					outs); err != nil {
					t.Fatal(err)
				}
				if !outs[0].Allowed {
					denied++
				}
			}
			measured, estimated := float64(denied)/sample, stats.Crowding.FalseDenials(shape)
			if estimated < measured-0.02 || estimated > measured+0.02 {
				t.Errorf("%d times the slots, limit %d: estimated %.4f, measured %.4f", test.times, i,
					estimated, measured)
			}
			largest = max(largest, measured)
		}
		if largest < test.largest {
			t.Errorf("%d times the slots: at most %.4f are denied under any limit, so this shows little",
				test.times, largest)
		}
		if stats.Occupancy < 0.9 || stats.Occupancy > 1 {
			t.Errorf("%+v: want nearly all slots in use", stats)
		}
		if later := store.Stats(noon + 60*3600e9); later.FalseDenials != 0 || later.Occupancy != 0 {
			t.Errorf("when all has drained: %v, %v", later.FalseDenials, later.Occupancy)
		}
	}
}

// Without eviction nobody who is in the table loses, and whoever is not has to wait outside.
func TestRefuseNewcomers(t *testing.T) {
	store := open(t, memory.Options{MaxBuckets: 8, RefuseNewcomers: true})
	shape := perHour(t, 5)
	keys := randomKeys(20)
	for i, k := range keys {
		allowed, outs := decide(t, store, noon, []bucket.Take{{Key: k, Shape: shape, Cost: 1}})
		if allowed != (i < 8) || !allowed && outs[0].RetryAfter <= 0 {
			t.Errorf("key %d: allowed %t, %+v", i, allowed, outs[0])
		}
	}
	for i, k := range keys[:8] {
		if _, outs := decide(t, store, noon, []bucket.Take{{Key: k, Shape: shape, Cost: 1}}); outs[0].Remaining != 3 {
			t.Errorf("key %d: %+v, want 3 left of its own 5", i, outs[0])
		}
	}
	if stats := store.Stats(noon); stats.Refused != 12 || stats.EvictedInDebt != 0 || stats.Created != 8 {
		t.Errorf("%+v, want 12 refused and none evicted", stats)
	}
	correct(t, store, noon, bucket.Change{Key: keys[0], Shape: shape, Units: bucket.Fill})
	if allowed, outs := decide(t, store, noon, []bucket.Take{{Key: keys[8], Shape: shape, Cost: 1}}); !allowed ||
		outs[0].Remaining != 4 {
		t.Errorf("after one bucket became full: %t, %+v, want it in its place", allowed, outs[0])
	}
}
