package memory_test

import (
	"container/list"
	"context"
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

// lru is how a bounded table of buckets is usually made: what was not used for longest is forgotten.
type lru struct {
	most    int
	order   *list.List // of *lruEntry, the latest first
	entries map[key.Key]*list.Element
}

type lruEntry struct {
	key   key.Key
	state bucket.State
}

func newLRU(most int) *lru {
	return &lru{most: most, order: list.New(), entries: map[key.Key]*list.Element{}}
}

func (l *lru) TryConsume(_ context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	t := takes[0]
	e, ok := l.entries[t.Key]
	if ok {
		l.order.MoveToFront(e)
	} else {
		if l.order.Len() == l.most {
			delete(l.entries, l.order.Remove(l.order.Back()).(*lruEntry).key)
		}
		e = l.order.PushFront(&lruEntry{key: t.Key})
		l.entries[t.Key] = e
	}
	entry := e.Value.(*lruEntry)
	entry.state, outs[0] = entry.state.Take(now, t.Shape, t.Cost)
	return outs[0].Allowed, nil
}

func (l *lru) Peek(context.Context, int64, []bucket.Take, []bucket.Outcome) (bool, error) {
	panic("not needed")
}

// attack is the churn attack: its owner has valid keys, keeps all of them drained, and floods the
// table with keys that are used once, so that the table has to forget somebody. The targets hammer
// meanwhile and hope that it is them.
type attack struct {
	drained, junk int // keys kept drained, keys a second used once
	targets       int
	victims       int // keys that stay at half of their rate
}

// harvest is what an attack brought in, at worst.
type harvest struct {
	target, drained float64 // tokens admitted of one key, relative to burst + rate*time
	victimsDenied   float64 // of all takes of victims
}

func (a attack) run(t *testing.T, store consumer, span time.Duration) harvest {
	t.Helper()
	const rps, burst = 1, 20
	limit := rate.Limit{Tokens: rps, Per: time.Second, Burst: burst}
	shape := mustCompile(t, limit)
	rng := rand.New(rand.NewPCG(1, 1))
	total := a.targets + a.drained + a.victims
	admitted, denied := make([]int64, total), make([]int64, total)
	try := func(now int64, n int, cost int64) {
		k := buckettest.Key(uint64(n))
		if n < 0 {
			k = key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()}
		}
		allowed, _ := decide(t, store, now, []bucket.Take{{Key: k, Shape: shape, Cost: cost}})
		switch {
		case n < 0:
		case allowed:
			admitted[n] += cost
		default:
			denied[n]++
		}
	}

	const step = 10 * time.Millisecond
	for at := time.Duration(0); at < span; at += step {
		now := noon + int64(at)
		for range a.junk / 100 {
			try(now+rng.Int64N(int64(step)), -1, 1)
		}
		tick := int(at / step)
		for n := range total {
			switch phase := (tick + n) % 200; {
			case n < a.targets && phase%50 == 0: // a burst every half second
				for range burst {
					try(now, n, 1)
				}
			case n >= a.targets && n < a.targets+a.drained && (tick < 100 && phase%5 == 0 || phase%100 == 0):
				try(now, n, 1) // drained in the first second, then kept there
			case n >= a.targets+a.drained && phase == 0:
				try(now, n, 1) // every two seconds
			}
		}
	}

	due := burst + rps*span.Seconds()
	var h harvest
	var victimTakes, victimDenials int64
	for n := range total {
		got := float64(admitted[n]) / due
		switch {
		case n < a.targets:
			h.target = max(h.target, got)
		case n < a.targets+a.drained:
			h.drained = max(h.drained, got)
		default:
			victimTakes, victimDenials = victimTakes+admitted[n]+denied[n], victimDenials+denied[n]
		}
	}
	h.victimsDenied = float64(victimDenials) / float64(max(1, victimTakes))
	return h
}

// TestChurnGrantsNothing is attack A4 on the table itself: no key is admitted more than burst +
// rate*time, whatever is evicted. The same attack on an LRU cache of the same size shows that it is
// one.
func TestChurnGrantsNothing(t *testing.T) {
	const slots = 2048
	span := 20 * time.Second
	if race.Enabled {
		span /= 2 // one goroutine, which gains its worth in ten
	}
	tests := []struct {
		name       string
		attack     attack
		victims    float64 // denied at most
		lruAtLeast float64
	}{
		{"one-shot keys alone", attack{junk: 6000, targets: 10, victims: 50}, 0.3, 10},
		{"drained keys for 0.8 of the slots", attack{drained: 1638, junk: 1000, targets: 10, victims: 50}, 0.05, 1.5},
		{"drained keys for 2.4 times the slots", attack{drained: 4915, junk: 6000, targets: 10, victims: 50}, 0.6, 10},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			store := open(t, memory.Options{MaxBuckets: slots})
			got := test.attack.run(t, store, span)
			if got.target > 1 || got.drained > 1 {
				t.Errorf("targets were admitted %.3f, drained keys %.3f of their limit, want at most 1",
					got.target, got.drained)
			}
			if got.target < 0.9 {
				t.Errorf("targets were admitted %.3f of their limit: their own tokens are lost", got.target)
			}
			if got.victimsDenied > test.victims {
				t.Errorf("victims were denied %.3f of their takes, want at most %.3f", got.victimsDenied, test.victims)
			}
			if stats := store.Stats(noon); test.attack.drained > slots && stats.EvictedInDebt == 0 {
				t.Errorf("%+v: nothing was evicted in debt, so this shows nothing", stats)
			}
			if broken := test.attack.run(t, newLRU(slots), span); broken.target < test.lruAtLeast {
				t.Errorf("an LRU cache admits targets %.2f of their limit, and was known to admit %.1f: the attack "+
					"is too weak", broken.target, test.lruAtLeast)
			} else {
				t.Logf("targets %.3f, drained %.3f, victims denied %.4f; LRU %.2f, %.2f, %.4f",
					got.target, got.drained, got.victimsDenied, broken.target, broken.drained, broken.victimsDenied)
			}
		})
	}
}
