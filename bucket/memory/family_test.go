package memory

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

const noon = int64(1_795_176_000_000_000_000)

func newTable(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func compiled(t testing.TB, limit rate.Limit) rate.Shape {
	t.Helper()
	shape, err := rate.Compile(limit)
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

func randomKey(rng *rand.Rand) key.Key { return key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()} }

// checkAway holds what sets say of their buckets with relatives against what lies there.
func (s *Store) checkAway(t testing.TB) (away int) {
	t.Helper()
	for i := range s.shards {
		sh := &s.shards[i]
		counted := make([]uint8, len(sh.sets))
		for set := range sh.sets {
			for way := range sh.sets[set] {
				home := uint32(set)&^(family-1) + uint32(sh.sets[set][way].at())
				if sh.tags[set]>>(8*way)&0xff != 0 && home != uint32(set) {
					counted[home]++
					away++
				}
			}
		}
		for set := range sh.sets {
			if got := sh.away[set]; got != counted[set] {
				t.Fatalf("shard %d: set %d says that %d of its buckets are away, %d are", i, set, got, counted[set])
			}
		}
	}
	return away
}

// TestRelativesHelpOut fills 0.8 of the slots of tables: nearly every bucket finds a slot, is found
// again there, and is nobody else's.
func TestRelativesHelpOut(t *testing.T) {
	for _, size := range []int{64, 72, 1000, 1 << 16} {
		s, shape := newTable(t, Options{MaxBuckets: size}), compiled(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 9})
		takes, outs := []bucket.Take{{Shape: shape, Cost: 1}}, make([]bucket.Outcome, 1)
		for round := range int64(3) {
			rng := rand.New(rand.NewPCG(1, 2))
			for n := range size * 4 / 5 {
				takes[0].Key = randomKey(rng)
				ok, err := s.TryConsume(context.Background(), noon, takes, outs)
				if size == 64 && (!ok || err != nil || outs[0].Remaining != 8-round) {
					t.Fatalf("round %d, key %d: %t, %v, %+v, want %d left", round, n, ok, err, outs[0], 8-round)
				}
			}
		}
		stats := s.Stats(noon)
		if stats.EvictedInDebt > uint64(size/100) || size == 64 && stats.EvictedInDebt != 0 {
			t.Errorf("%d slots: %+v, want nearly nothing evicted at 0.8 of the slots", size, stats)
		}
		if away := s.checkAway(t); away < size/50 || away > size/8 {
			t.Errorf("%d slots: %d buckets are away from home, want some", size, away)
		}
	}
}

// TestTurnoverEvictsLittle has buckets come and become full again in a table that was once used up,
// so that no slot is unused.
func TestTurnoverEvictsLittle(t *testing.T) {
	const size, between = 1 << 12, int64(time.Microsecond)
	for _, test := range []struct {
		percent int64
		most    float64 // evicted in debt an insertion
	}{{50, 0.001}, {80, 0.1}} {
		s, now, rng := newTable(t, Options{MaxBuckets: size}), noon, rand.New(rand.NewPCG(3, 4))
		shape := compiled(t, rate.Limit{Tokens: 1, Per: time.Duration(size * between * test.percent / 100), Burst: 2})
		takes, outs := []bucket.Take{{Shape: shape, Cost: 1}}, make([]bucket.Outcome, 1)
		for range 20 * size {
			now += between
			takes[0].Key = randomKey(rng)
			if ok, err := s.TryConsume(context.Background(), now, takes, outs); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		stats := s.Stats(now)
		if got := float64(stats.EvictedInDebt) / float64(stats.Created); got > test.most ||
			stats.EvictedFull < 10*size {
			t.Errorf("at %d %%: %.4f of the insertions evicted a bucket in debt, want at most %g: %+v", test.percent,
				got, test.most, stats)
		}
		s.checkAway(t)
	}
}

// TestWhoIsAwayIsCounted runs everything that moves buckets: insertion, eviction, changes of
// algorithm, shapes that are reclaimed, restarts with tables of several sizes.
func TestWhoIsAwayIsCounted(t *testing.T) {
	sizes := []Options{{MaxBuckets: 200, MaxShapes: 25}, {MaxBuckets: 100, MaxShapes: 10}, {MaxBuckets: 250}}
	s, rng, now := newTable(t, sizes[0]), rand.New(rand.NewPCG(5, 6)), noon
	keys := make([]key.Key, 400)
	for i := range keys {
		keys[i] = randomKey(rng)
	}
	outs := make([]bucket.Outcome, 3)
	for round := range 30_000 {
		now += rng.Int64N(int64(20 * time.Millisecond))
		takes := make([]bucket.Take, 0, 3)
		for range 1 + rng.IntN(3) {
			limit := rate.Limit{
				Tokens:    3,
				Per:       time.Duration(1+rng.IntN(4)) * time.Minute,
				Burst:     3 + rng.Int64N(4),
				Algorithm: rate.Algorithm(rng.IntN(5)),
			}
			if !limit.Algorithm.Drains() {
				limit.Burst = limit.Tokens
			}
			takes = append(takes, bucket.Take{Key: keys[rng.IntN(len(keys))], Shape: compiled(t, limit),
				Since: now, Cost: 1})
		}
		// one key with two shapes is an error, and nothing to us
		_, _ = s.TryConsume(context.Background(), now, takes, outs)
		if round%1000 == 0 {
			s.checkAway(t)
		}
		if round%2500 == 0 {
			var file bytes.Buffer
			next := newTable(t, sizes[round/2500%len(sizes)])
			if err := errors.Join(s.Save(&file, now), next.Load(&file, now)); err != nil {
				t.Fatal(err)
			}
			s = next
			s.checkAway(t)
		}
	}
	if away := s.checkAway(t); away == 0 {
		t.Error("nobody is away from home, so this shows nothing")
	}
}

// TestRefusedOnlyWhenTheFamilyIsFull: newcomers are refused when no slot of eight sets is free, and
// the debtors there stay.
func TestRefusedOnlyWhenTheFamilyIsFull(t *testing.T) {
	s, shape := newTable(t, Options{MaxBuckets: 64, RefuseNewcomers: true}),
		compiled(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 5})
	rng, outs := rand.New(rand.NewPCG(7, 8)), make([]bucket.Outcome, 1)
	for n := range 200 {
		ok, err := s.TryConsume(context.Background(), noon,
			[]bucket.Take{{Key: randomKey(rng), Shape: shape, Cost: 1}}, outs)
		if ok != (n < 64) || err != nil {
			t.Fatalf("key %d: %t, %v, want the first 64 and no others", n, ok, err)
		}
	}
	if stats := s.Stats(noon); stats.Refused != 136 || stats.EvictedInDebt != 0 {
		t.Errorf("%+v, want 136 refused and none evicted", stats)
	}
	later := noon + int64(time.Hour)
	for n := range 64 {
		if ok, err := s.TryConsume(context.Background(), later,
			[]bucket.Take{{Key: randomKey(rng), Shape: shape, Cost: 1}}, outs); !ok || err != nil {
			t.Fatalf("key %d, when the others are full again: %t, %v", n, ok, err)
		}
	}
}
