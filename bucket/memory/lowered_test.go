package memory_test

import (
	"context"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// slower is the obvious bucket with a rate that is lowered: exact, in 1024ths of units, told of each moment.
type slower struct {
	shape rate.Shape
	debt  *big.Int
	part  int
	at    int64
}

func (s *slower) pass(now int64) {
	drained := new(big.Int).Mul(big.NewInt(now-s.at), big.NewInt(s.shape.Drain*int64(s.part)))
	if s.debt.Sub(s.debt, drained); s.debt.Sign() < 0 {
		s.debt.SetInt64(0)
	}
	s.at = now
}

// change has what is owed be owed under another limit, in which what does not fit is forgiven.
func (s *slower) change(to rate.Shape) {
	s.debt.Mul(s.debt, big.NewInt(to.Unit)).Div(s.debt, big.NewInt(s.shape.Unit))
	if most := new(big.Int).Mul(big.NewInt(to.Capacity), big.NewInt(rate.Whole)); s.debt.Cmp(most) > 0 {
		s.debt = most
	}
	s.shape = to
}

// fits reports whether cost would with so many nanoseconds of the full rate more or less.
func (s *slower) fits(cost, spare int64) bool {
	free := new(big.Int).Mul(big.NewInt(s.shape.Capacity-cost*s.shape.Unit+spare*s.shape.Drain), big.NewInt(rate.Whole))
	return s.debt.Cmp(free) <= 0
}

func (s *slower) take(cost int64) {
	s.debt.Add(s.debt, new(big.Int).Mul(big.NewInt(cost*s.shape.Unit), big.NewInt(rate.Whole)))
}

// TestLoweredIsTheObviousSlowerBucket: what a lowered bucket admits, the exact one admits; what it denies, the exact
// one does but for a nanosecond a request; what it admits, one at the full rate does; and what it tells of times is
// true.
func TestLoweredIsTheObviousSlowerBucket(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 20))
		limit := rate.Limit{Tokens: 1 + random.Int64N(50), Per: time.Second, Burst: 1 + random.Int64N(20)}
		shape, err := rate.Compile(limit)
		if err != nil {
			t.Fatal(err)
		}
		store, err := memory.New(memory.Options{MaxBuckets: 64})
		if err != nil {
			t.Fatal(err)
		}
		now := int64(1e18)
		twin := slower{shape: shape, debt: new(big.Int), part: rate.Whole, at: now}
		var lowered *rate.Lowered
		var full bucket.State
		var since int64
		var before *rate.Past
		admitted := int64(0)
		for range 400 {
			now += random.Int64N(int64(time.Second) / limit.Tokens)
			twin.pass(now)
			if random.IntN(8) == 0 {
				twin.part = 1 + random.IntN(rate.Whole)
				lowered = lowered.From(now, twin.part)
			}
			if seed%4 > 1 && random.IntN(20) == 0 { // maybe long before the next request
				limit.Tokens, limit.Burst = 1+random.Int64N(50), 1+random.Int64N(20)
				to, err := rate.Compile(limit)
				if err != nil {
					t.Fatal(err)
				}
				before, since = shape.Replaced(since, before, now), now
				full = full.Convert(shape, to, now)
				twin.change(to)
				shape = to
				if now += random.Int64N(int64(time.Second)); random.IntN(2) == 0 {
					twin.pass(now)
					twin.part = 1 + random.IntN(rate.Whole)
					lowered = lowered.From(now, twin.part)
					now += random.Int64N(int64(time.Second))
				}
				twin.pass(now)
			}
			takes := []bucket.Take{{Key: key.Key{Hi: 1, Lo: 1}, Shape: shape, Since: since, Before: before, Cost: 1,
				Lowered: lowered}}
			if seed%2 == 1 { // beside another bucket, which takes the other way through the store
				takes = append(takes, bucket.Take{Key: key.Key{Hi: 7, Lo: 2}, Shape: shape, Cost: 0})
			}
			outs := make([]bucket.Outcome, len(takes))
			allowed, err := store.TryConsume(ctx, now, takes, outs)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case allowed && !twin.fits(1, 0):
				t.Fatalf("seed %d: admitted what the exact bucket denies", seed)
			case !allowed && twin.fits(1, -admitted-1):
				t.Fatalf("seed %d: denied what the exact bucket admits", seed)
			case allowed:
				twin.take(1)
				if full, allowed = full.Charge(now, shape, shape.Unit); !allowed {
					t.Fatalf("seed %d: admitted what the full rate denies", seed)
				}
				admitted++
				continue
			}
			then := make([]bucket.Outcome, len(takes))
			after := now + int64(outs[0].RetryAfter)
			if ok, _ := store.Peek(ctx, after, takes, then); !ok {
				t.Fatalf("seed %d: denied after %v, as it was told, at %d/1024", seed, outs[0].RetryAfter, twin.part)
			}
			early := int64(rate.Whole/twin.part) + 2
			if ok, _ := store.Peek(ctx, after-early, takes, then); ok && after-early > now {
				t.Fatalf("seed %d: admitted %d ns before it was told, at %d/1024", seed, early, twin.part)
			}
			takes[0].Cost = limit.Burst
			if ok, _ := store.Peek(ctx, now+int64(outs[0].ResetAfter), takes, then); !ok {
				t.Fatalf("seed %d: not full when it was told, at %d/1024", seed, twin.part)
			}
		}
		if admitted < 20 {
			t.Fatalf("seed %d: %d admitted, want more", seed, admitted)
		}
	}
}

// TestLoweredGivesBackNoMoreThanWasTaken: what is given back to a lowered bucket, after whatever time, leaves it owing
// at least what it would had only the rest been taken, and at most a moment's worth more.
func TestLoweredGivesBackNoMoreThanWasTaken(t *testing.T) {
	ctx := context.Background()
	shape, err := rate.Compile(rate.Limit{Tokens: 10, Per: time.Second, Burst: 100})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 21))
		store, err := memory.New(memory.Options{MaxBuckets: 64})
		if err != nil {
			t.Fatal(err)
		}
		at := int64(1e18)
		var lowered *rate.Lowered
		took, back := 1+random.Int64N(100), int64(0)
		back = random.Int64N(took + 1)
		for n, cost := range map[uint64]int64{1: took, 2: took - back} {
			take := []bucket.Take{{Key: key.Key{Hi: n, Lo: n}, Shape: shape, Cost: cost, Lowered: lowered}}
			if ok, err := store.TryConsume(ctx, at, take, make([]bucket.Outcome, 1)); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		now := at
		for range 1 + random.IntN(4) {
			now += random.Int64N(int64(3 * time.Second))
			lowered = lowered.From(now, 1+random.IntN(rate.Whole))
		}
		now += random.Int64N(int64(3 * time.Second))
		since := lowered.Since(at, now) - 1
		change := []bucket.Change{{
			Key: key.Key{Hi: 1, Lo: 1}, Shape: shape, Lowered: lowered, Charged: at,
			Units: -bucket.Unspent(shape, shape, took*shape.Unit, back*shape.Unit, since, now),
		}}
		if err := store.Correct(ctx, now, change, make([]int64, 1)); err != nil {
			t.Fatal(err)
		}
		outs := make([]bucket.Outcome, 2)
		_, err = store.Peek(ctx, now, []bucket.Take{
			{Key: key.Key{Hi: 1, Lo: 1}, Shape: shape, Lowered: lowered},
			{Key: key.Key{Hi: 2, Lo: 2}, Shape: shape, Lowered: lowered},
		}, outs)
		if err != nil {
			t.Fatal(err)
		}
		if more := outs[0].ResetAfter - outs[1].ResetAfter; more < 0 || more > 2*lowered.Stretch(3) {
			t.Fatalf("seed %d: full %v after a bucket that was never charged it", seed, more)
		}
	}
}

// TestLoweredRateOfALongTick: a limit whose ticks are milliseconds admits at a rate that is lowered what that comes to,
// however many times a bucket is charged within a tick.
func TestLoweredRateOfALongTick(t *testing.T) {
	const whole, millis = 1_000_000_007, 10_000
	shape, err := rate.Compile(rate.Limit{Tokens: whole, Per: 24 * time.Hour, Burst: whole})
	if err != nil || shape.Tick != int64(time.Millisecond) {
		t.Fatal(shape.Tick, err)
	}
	store, err := memory.New(memory.Options{MaxBuckets: 64})
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1e18)
	var lowered *rate.Lowered
	take := bucket.Take{Key: key.Key{Hi: 1, Lo: 2}, Shape: shape, Cost: whole, Lowered: lowered.From(now, rate.Whole/2)}
	admitted := int64(-1)
	for range millis * 50 {
		var outs [1]bucket.Outcome
		ok, err := store.TryConsume(t.Context(), now, []bucket.Take{take}, outs[:])
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			admitted, take.Cost = admitted+1, 1
		}
		now += int64(time.Millisecond) / 50
	}
	if due := int64(whole) * millis / (24 * 60 * 60 * 1000) / 2; admitted > due+1 || admitted < due*99/100 {
		t.Errorf("%d were admitted, want %d", admitted, due)
	}
}
