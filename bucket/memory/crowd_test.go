package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// logins is the limit of a login rule: an attacker drains as many of its buckets as he likes.
var logins = rate.Limit{Tokens: 5, Per: 12 * time.Minute, Burst: 5}

// strangers are the limits of other rules, whose clients nobody has seen before.
var strangers = []rate.Limit{
	{Tokens: 20, Per: time.Second, Burst: 40},
	{Tokens: 60, Per: time.Minute, Burst: 60},
	{Tokens: 10, Per: 12 * time.Minute, Burst: 10},
	{Tokens: 5, Per: time.Hour, Burst: 5},
	{Tokens: 24, Per: 24 * time.Hour, Burst: 24},
	{Tokens: 30, Per: time.Minute, Burst: 30, Algorithm: rate.LeakyBucket},
	{Tokens: 30, Per: time.Minute, Burst: 30, Algorithm: rate.FixedWindow},
	{Tokens: 30, Per: time.Minute, Burst: 30, Algorithm: rate.SlidingWindow},
	{Tokens: 30, Per: time.Minute, Burst: 30, Algorithm: rate.SlidingLog},
}

// TestACrowdOfOneRuleStarvesNobodyOfAnother: an attacker drains fresh buckets of a login rule, as
// many as the table has slots, or several times as many, for as long as they take to fill; at the
// same time clients come that were never seen, under this rule and under others. Each tries once,
// and if it is denied, once more after exactly the Retry-After that it was told.
func TestACrowdOfOneRuleStarvesNobodyOfAnother(t *testing.T) {
	const slots = 1 << 13
	for _, test := range []struct {
		times       float64 // the slots, that are in debt at once
		most, again float64 // part of the strangers that is denied, and that is again
		own         float64 // part of the newcomers under the crowded rule that is denied
	}{{1.2, 0.01, 0, 0.01}, {2.5, 0.01, 0, 0.01}, {6, 0.01, 0, 1}, {20, 0.02, 0.02, 1}} {
		if race.Enabled && test.times != 2.5 {
			continue // one goroutine does all of it
		}
		t.Run(fmt.Sprint(test.times), func(t *testing.T) {
			store, rng := open(t, memory.Options{MaxBuckets: slots}), rand.New(rand.NewPCG(1, 2))
			fresh := func() key.Key { return key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()} }
			crowd := mustCompile(t, logins)
			limits := append([]rate.Limit{logins}, strangers...)
			tried, denied, again := make([]int, len(limits)), make([]int, len(limits)), make([]int, len(limits))
			type attempt struct {
				at   int64
				rule int
				take bucket.Take
			}
			var waiting []attempt
			now := noon
			// a bucket is drained so often
			each := int64(float64(crowd.TimeToFull(crowd.Capacity)) / test.times / slots)
			for n := range int(2.2 * test.times * slots) {
				now += each
				decide(t, store, now, []bucket.Take{{Key: fresh(), Shape: crowd, Cost: 5}})
				for ; len(waiting) > 0 && waiting[0].at <= now; waiting = waiting[1:] {
					// It may come a little later than it was told, as every client.
					if ok, _ := decide(t, store, now, []bucket.Take{waiting[0].take}); !ok {
						again[waiting[0].rule]++
					}
				}
				if now < noon+int64(13*time.Minute) || n%(int(test.times*slots)/700+1) != 0 {
					continue
				}
				for rule, limit := range limits {
					take := bucket.Take{Key: fresh(), Shape: mustCompile(t, limit), Cost: 1}
					tried[rule]++
					ok, outs := decide(t, store, now, []bucket.Take{take})
					if ok {
						continue
					}
					if denied[rule]++; outs[0].RetryAfter < time.Minute &&
						(len(waiting) == 0 || waiting[len(waiting)-1].at <= now+int64(outs[0].RetryAfter)) {
						waiting = append(waiting, attempt{now + int64(outs[0].RetryAfter), rule, take})
					}
				}
			}
			for rule, limit := range limits {
				first, second := float64(denied[rule])/float64(tried[rule]), float64(again[rule])/float64(tried[rule])
				most := test.most
				if rule == 0 {
					most = test.own
				}
				if first > most || second > test.again || tried[rule] < 300 {
					t.Errorf("%+v: of %d strangers %.2f %% were denied, %.2f %% after they waited as they were "+
						"told, want at most %.0f %% and %.0f %%",
						limit, tried[rule], 100*first, 100*second, 100*most, 100*test.again)
				}
			}
			if stats := store.Stats(now); stats.EvictedInDebt < slots/10 {
				t.Errorf("%+v: the table is not crowded", stats)
			}
		})
	}
}

// TestWhoWaitsAsToldIsServed: a newcomer is denied for what others owe, in a table so small that
// all traces of a class are taken for one. What it is told is true: it is denied until then, as a
// look says as well, and is served then. For an hour it was the same denial again.
func TestWhoWaitsAsToldIsServed(t *testing.T) {
	for _, limit := range append([]rate.Limit{{Tokens: 20, Per: time.Second, Burst: 20}, logins}, strangers...) {
		t.Run(fmt.Sprintf("%d per %v, algorithm %d", limit.Tokens, limit.Per, limit.Algorithm), func(t *testing.T) {
			shape := mustCompile(t, limit)
			toFull := max(shape.TimeToFull(shape.Capacity), shape.Window())
			for n := range race.Fewer(uint64(20)) {
				store := open(t, memory.Options{MaxBuckets: 8, SketchWidth: 1, MaxLogs: 8})
				// A limit of the same class that fills most slowly, as the newcomer's may be the quickest.
				crowd := 8 * time.Second
				for crowd < toFull {
					crowd *= 8
				}
				other := mustCompile(t, rate.Limit{Tokens: 1, Per: crowd, Burst: 1})
				if shape.Window() > 0 {
					other = mustCompile(t, rate.Limit{Tokens: 1, Per: crowd, Burst: 1, Algorithm: rate.FixedWindow})
				}
				now, own := noon, bucket.Take{Key: buckettest.Key(1 << 20), Shape: shape, Cost: 1}
				allowed := true
				var outs []bucket.Outcome
				for i := range uint64(20_000) {
					decide(t, store, now, []bucket.Take{{Key: buckettest.Key(1000*n + i), Shape: other, Cost: 1}})
					if i%100 == 0 {
						if allowed, _ = peek(t, store, now, own); !allowed {
							break
						}
					}
				}
				if allowed {
					continue // in this class, nothing that others left reaches as far as a whole bucket of this one
				}
				peeked, _ := peek(t, store, now, own)
				allowed, outs = decide(t, store, now, []bucket.Take{own})
				wait := outs[0].RetryAfter
				if allowed || peeked || wait <= 0 || wait > 3*toFull {
					t.Fatalf("key %d: TryConsume = %t, %+v, Peek = %t; want it denied, and a wait of at most %v", n,
						allowed, outs[0], peeked, 3*toFull)
				}
				if ok, out := peek(t, store, now+int64(wait)-1, own); ok || out.RetryAfter != 1 {
					t.Errorf("key %d, a nanosecond early: %t, %+v", n, ok, out)
				}
				if ok, out := peek(t, store, now+int64(wait), own); !ok {
					t.Errorf("key %d: a look says it is denied after it waited for %v: %+v", n, wait, out)
				}
				if ok, outs := decide(t, store, now+int64(wait), []bucket.Take{own}); !ok {
					t.Errorf("key %d: denied after it waited for %v: %+v", n, wait, outs)
				}
			}
		})
	}
}

func peek(t testing.TB, store *memory.Store, now int64, take bucket.Take) (bool, bucket.Outcome) {
	t.Helper()
	outs := make([]bucket.Outcome, 1)
	allowed, err := store.Peek(context.Background(), now, []bucket.Take{take}, outs)
	if err != nil {
		t.Fatal(err)
	}
	return allowed, outs[0]
}
