//go:build unix

package redis_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// followed is a bucket that was charged what the store charged: by the rate in force, and by the full one.
type followed struct {
	shape      rate.Shape
	slow, full bucket.State
	lowered    *rate.Lowered
	at         int64 // up to when slow drained at the rate in force
}

func (f *followed) pass(now int64) {
	from := max(f.slow.Stamp, f.at)
	f.slow.Stamp += now - from - f.lowered.Elapsed(from, now)
	f.at = now
}

func (f *followed) become(now int64, to rate.Shape) {
	f.pass(now)
	f.slow, f.full, f.shape = f.slow.Convert(f.shape, to, now), f.full.Convert(f.shape, to, now), to
}

func (f *followed) charge(now, units int64) {
	f.pass(now)
	f.slow, _ = f.slow.Shift(now, f.shape, units, 0)
	f.full, _ = f.full.Shift(now, f.shape, units, 0)
}

// fits reports whether units would, of the bucket at the rate in force.
func (f *followed) fits(now, units int64) bool {
	f.pass(now)
	_, ok := f.slow.Try(now, &f.shape, units)
	return ok
}

// TestLoweredFollowsTheRateInForce: by takes, batches, reports and corrections, a shared bucket whose rate is lowered
// admits what the rate in force does, but for microseconds; and in no case more than the full one, however many changes
// there were; also where the limit becomes another.
func TestLoweredFollowsTheRateInForce(t *testing.T) {
	server := redistest.Start(t)
	conn := connect(t, server)
	first, err := rate.Compile(rate.Limit{Tokens: 100, Per: time.Second, Burst: 200})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(12) {
		shape := first
		server.Do("FLUSHALL")
		random, many := rand.New(rand.NewPCG(seed, 11)), seed%3 == 0
		store := open(t, redis.Options{Server: conn, CallersClock: true})
		now := int64(1_700_000_000) * int64(time.Second)
		clock := func() int64 { return now }
		lessor, err1 := redis.NewAuthority(store, redis.AuthorityOptions{Now: clock})
		ledger, err2 := redis.NewLedger(store, redis.LedgerOptions{Now: clock})
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		twin := followed{shape: shape}
		take := bucket.Take{Key: key.Key{Hi: 1, Lo: 2}, Shape: shape}
		slack, allowed, denied := shape.Unit/4, 0, 0
		for n := range 800 {
			now += random.Int64N(int64(25*time.Millisecond)) / 1000 * 1000
			if many && random.IntN(8) == 0 || n%200 == 100 { // few changes are all told of
				twin.pass(now)
				take.Lowered = take.Lowered.From(now, 1+random.IntN(rate.Whole))
				twin.lowered = take.Lowered
				if now += random.Int64N(int64(30 * time.Millisecond)); !many {
					now += int64(time.Second) / 2 << (n / 200)
				}
				now = now / 1000 * 1000
			}
			if seed%3 == 1 && random.IntN(40) == 0 { // long before the next request, at times
				to, err := rate.Compile(rate.Limit{Tokens: 80 + random.Int64N(40), Per: time.Second,
					Burst: 150 + random.Int64N(100)})
				if err != nil {
					t.Fatal(err)
				}
				take.Before, take.Since = shape.Replaced(take.Since, take.Before, now), now
				twin.become(now, to)
				shape, take.Shape, slack = to, to, to.Unit/4
				now += random.Int64N(int64(time.Second)) / 1000 * 1000
			}
			take.Cost = 1 + random.Int64N(5)
			units, ok := take.Cost*shape.Unit, false
			switch what := random.IntN(8); what {
			case 0, 1:
				a, err := lessor.Ask(t.Context(), 7, take,
					lease.Question{Seq: uint64(n + 1), Want: take.Cost, Need: take.Cost})
				if ok = a.Tokens == take.Cost; err != nil {
					t.Fatal(err)
				}
			case 2:
				told := []report.Told{{Of: take, Report: report.Report{Seq: uint64(n + 1), Tokens: 1}}}
				if ledger.ReportAll(t.Context(), 7, told); told[0].Err != nil {
					t.Fatal(told[0].Err)
				}
				twin.charge(now, shape.Unit)
				continue
			case 3:
				var moved [1]int64
				c := bucket.Change{Key: take.Key, Shape: shape, Since: take.Since, Before: take.Before,
					Units: shape.Unit * (2*random.Int64N(2) - 1), Lowered: take.Lowered}
				if err := store.Correct(t.Context(), now, []bucket.Change{c}, moved[:]); err != nil {
					t.Fatal(err)
				}
				twin.charge(now, moved[0])
				continue
			default:
				var outs [1]bucket.Outcome
				if ok, err = store.TryConsume(t.Context(), now, []bucket.Take{take}, outs[:]); err != nil {
					t.Fatal(err)
				}
				if wait := outs[0].RetryAfter; !ok && !many {
					twin.pass(now)
					at := now + int64(wait)
					state := twin.slow
					state.Stamp += int64(wait) - twin.lowered.Elapsed(now, at)
					if _, there := state.Try(at, &twin.shape, units-slack); !there {
						t.Fatalf("seed %d, take %d: after %v there is no room", seed, n, wait)
					}
				}
			}
			if !many && ok != twin.fits(now, units) && (!twin.fits(now, units-slack) || twin.fits(now, units+slack)) {
				t.Fatalf("seed %d, take %d of %d: allowed %v; the rate in force %+v", seed, n, take.Cost, ok, twin.slow)
			}
			if !ok {
				denied++
				continue
			}
			allowed++
			if _, may := twin.full.Try(now, &shape, units); !may {
				t.Fatalf("seed %d, take %d: admitted what the full rate does not", seed, n)
			}
			twin.charge(now, units)
		}
		if allowed < 100 || denied < 20 {
			t.Errorf("seed %d: %d allowed, %d denied", seed, allowed, denied)
		}
	}
}

// TestLoweredRateOfALongTick: a limit whose ticks are seconds, as the server counts it, admits at a
// rate that is lowered what that comes to, however many times a bucket is charged within a tick, and
// by whatever means.
func TestLoweredRateOfALongTick(t *testing.T) {
	const whole, seconds, cost = 1_000_000_007, 60, 400
	shape, err := rate.Compile(rate.Limit{Tokens: whole, Per: 24 * time.Hour, Burst: whole})
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1_700_000_000) * int64(time.Second)
	clock := func() int64 { return now }
	store := open(t, redis.Options{Server: connect(t, redistest.Start(t)), CallersClock: true})
	lessor, err1 := redis.NewAuthority(store, redis.AuthorityOptions{Now: clock})
	ledger, err2 := redis.NewLedger(store, redis.LedgerOptions{Now: clock})
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	take := bucket.Take{Key: key.Key{Hi: 1, Lo: 2}, Shape: shape, Cost: whole}
	take.Lowered = take.Lowered.From(now, rate.Whole/4)
	one := func() bool {
		var outs [1]bucket.Outcome
		ok, err := store.TryConsume(t.Context(), now, []bucket.Take{take}, outs[:])
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !one() {
		t.Fatal("a full bucket has no burst")
	}
	take.Cost = cost
	charged, by := int64(0), [4]int64{}
	for n := range uint64(seconds * 50) {
		if now += int64(time.Second) / 50; n == seconds*25 {
			take.Lowered = take.Lowered.From(now, rate.Whole/2)
		}
		got := int64(0)
		switch n % 4 {
		case 0, 1:
			if one() {
				got = cost
			}
		case 2:
			a, err := lessor.Ask(t.Context(), 7, take, lease.Question{Seq: n, Want: cost, Need: cost})
			if got = a.Tokens; err != nil {
				t.Fatal(err)
			}
		case 3:
			told := []report.Told{{Of: take, Report: report.Report{Seq: n, Tokens: 1}}}
			if ledger.ReportAll(t.Context(), 7, told); told[0].Err != nil {
				t.Fatal(told[0].Err)
			}
			var moved [1]int64
			change := bucket.Change{Key: take.Key, Shape: shape, Units: shape.Unit, Lowered: take.Lowered}
			if err := store.Correct(t.Context(), now, []bucket.Change{change}, moved[:]); err != nil {
				t.Fatal(err)
			}
			got = 2
		}
		charged, by[n%4] = charged+got, by[n%4]+got
	}
	due := int64(whole) * seconds / (24 * 60 * 60) * 3 / 8
	if charged > due+2 || charged < due-2*cost {
		t.Errorf("%d were charged, want %d; by %v", charged, due, by)
	}
}

// TestLoweredLimitThatChanged: by the server's clock, of which the caller's is an hour ahead, what was owed has drained
// at the rate in force when the limit becomes another, whether or not it is known since when.
func TestLoweredLimitThatChanged(t *testing.T) {
	server := redistest.Start(t)
	clock := func() int64 { return time.Now().Add(time.Hour).UnixNano() }
	store := open(t, redis.Options{Server: connect(t, server), Now: clock})
	from, err1 := rate.Compile(rate.Limit{Tokens: 1_000_000, Per: time.Second, Burst: 10_000})
	to, err2 := rate.Compile(rate.Limit{Tokens: 1_000_000, Per: time.Second, Burst: 10_001})
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	var lowered *rate.Lowered
	lowered = lowered.From(clock()-int64(time.Second), 1) // a thousandth: ten seconds until it is full
	takes := map[string]bucket.Take{
		"known":   {Key: key.Key{Hi: 1, Lo: 1}, Shape: from, Cost: 10_000, Lowered: lowered},
		"unknown": {Key: key.Key{Hi: 2, Lo: 2}, Shape: from, Cost: 10_000, Lowered: lowered},
	}
	try := func(take bucket.Take) bool {
		ok, err := store.TryConsume(t.Context(), clock(), []bucket.Take{take}, make([]bucket.Outcome, 1))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for what, take := range takes {
		if !try(take) {
			t.Errorf("%s: a full bucket has no burst", what)
		}
	}
	for begun := clock(); clock() < begun+int64(20*time.Millisecond); { // twice what the full rate takes
		server.Do("TIME")
	}
	for what, take := range takes {
		take.Shape, take.Cost = to, 5_000
		if what == "known" {
			take.Since = clock() - int64(time.Millisecond)
			take.Before = from.Replaced(0, nil, take.Since)
		}
		if try(take) {
			t.Errorf("%s: the bucket has drained as if its rate had not been lowered", what)
		}
	}
}
