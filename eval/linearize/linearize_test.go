package linearize

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/rate"
)

const (
	noon    = int64(1_795_176_000_000_000_000)
	burst   = 40
	most    = 4  // buckets
	clients = 4  // goroutines
	total   = 64 // decisions in a history
)

// given is what a bucket has given out: with a fixed time that is all there is to know of it.
type given [most]int64

// answer is what a store said.
type answer struct {
	allowed bool
	outs    []bucket.Outcome
}

// model is the sequential store: the twin, brought to a state, decides once.
func model(shape rate.Shape) porcupine.Model {
	charge := func(twin *buckettest.Twin, takes []bucket.Take) answer {
		a := answer{outs: make([]bucket.Outcome, len(takes))}
		a.allowed, _ = twin.TryConsume(context.Background(), noon, takes, a.outs)
		return a
	}
	return porcupine.Model{
		Init: func() any { return given{} },
		Step: func(state, input, output any) (bool, any) {
			twin, now := new(buckettest.Twin), state.(given)
			for b, tokens := range now {
				charge(twin, []bucket.Take{{Key: buckettest.Key(uint64(b)), Shape: shape, Cost: tokens}})
			}
			want, got := charge(twin, input.([]bucket.Take)), output.(answer)
			if want.allowed != got.allowed || !slices.Equal(want.outs, got.outs) {
				return false, state
			}
			for b := range now {
				after := charge(twin, []bucket.Take{{Key: buckettest.Key(uint64(b)), Shape: shape}})
				now[b] = burst - after.outs[0].Remaining
			}
			return true, now
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
}

// record runs the clients against a store and returns the history.
func record(t *testing.T, store bucket.Store, shape rate.Shape, buckets, clients int,
	seed uint64) []porcupine.Operation {
	t.Helper()
	return inTurns(clients, seed, func(_ int, rng *rand.Rand) (any, func() any) {
		takes := randomTakes(rng, shape, buckets)
		return takes, func() any {
			a := answer{outs: make([]bucket.Outcome, len(takes))}
			allowed, err := store.TryConsume(context.Background(), noon, takes, a.outs)
			if err != nil {
				t.Error(err)
			}
			a.allowed = allowed
			return a
		}
	})
}

// inTurns has clients choose what they do, and do it, and returns the history. In every turn they
// begin together, so that what they do overlaps as often as it can.
func inTurns(clients int, seed uint64, choose func(client int, rng *rand.Rand) (input any, do func() any),
) []porcupine.Operation {
	var clock atomic.Int64 // ticks at every beginning and end, which puts them in order
	var wg sync.WaitGroup
	start := newBarrier(clients)
	histories := make([][]porcupine.Operation, clients)
	for c := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(c)))
			for range total / clients {
				input, do := choose(c, rng)
				op := porcupine.Operation{ClientId: c, Input: input}
				start.wait()
				op.Call = clock.Add(1)
				op.Output = do()
				op.Return = clock.Add(1)
				histories[c] = append(histories[c], op)
			}
		})
	}
	wg.Wait()
	return slices.Concat(histories...)
}

// randomTakes wants something of one bucket or more, often of all, in any order, sometimes of one
// twice, sometimes as a shadow.
func randomTakes(rng *rand.Rand, shape rate.Shape, buckets int) []bucket.Take {
	takes := make([]bucket.Take, 0, buckets+1)
	for _, b := range rng.Perm(buckets)[:1+rng.IntN(buckets)] {
		takes = append(takes, bucket.Take{
			Key:    buckettest.Key(uint64(b)),
			Shape:  shape,
			Cost:   rng.Int64N(6),
			Shadow: rng.IntN(8) == 0,
		})
	}
	if rng.IntN(4) == 0 {
		takes = append(takes, takes[0])
	}
	return takes
}

// barrier makes goroutines wait for one another, again and again.
type barrier struct {
	mu      sync.Mutex
	all     *sync.Cond
	n       int
	waiting int // guarded by mu
	round   int // guarded by mu
}

func newBarrier(n int) *barrier {
	b := &barrier{n: n}
	b.all = sync.NewCond(&b.mu)
	return b
}

func (b *barrier) wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting++; b.waiting == b.n {
		b.waiting = 0
		b.round++
		b.all.Broadcast()
		return
	}
	for round := b.round; round == b.round; {
		b.all.Wait()
	}
}

func open(t *testing.T, slots int) *memory.Store {
	t.Helper()
	store, err := memory.New(memory.Options{MaxBuckets: slots})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func compile(t *testing.T) rate.Shape {
	t.Helper()
	shape, err := rate.Compile(rate.Limit{Tokens: 1, Per: time.Second, Burst: burst})
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

func TestDecisionsAreInstants(t *testing.T) {
	shape := compile(t)
	for buckets := 2; buckets <= most; buckets++ {
		for seed := range uint64(40) {
			history := record(t, open(t, 1<<12), shape, buckets, clients, seed)
			if !porcupine.CheckOperations(model(shape), history) {
				t.Errorf("%d buckets, seed %d: no order of the decisions explains the answers", buckets, seed)
			}
			if denied := countDenied(history); denied == 0 || denied == len(history) {
				t.Errorf("%d buckets, seed %d: %d of %d decisions were denied: this shows nothing", buckets, seed,
					denied, len(history))
			}
		}
	}
}

func countDenied(history []porcupine.Operation) int {
	n := 0
	for _, op := range history {
		if !op.Output.(answer).allowed {
			n++
		}
	}
	return n
}

// hasty decides in two steps: it looks whether all takes would be allowed, and then charges them
// one by one. In between, all clients meet. Alone it makes no mistake.
type hasty struct {
	*memory.Store
	meet *barrier
}

func (h hasty) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	allowed, err := h.Peek(ctx, now, takes, outs)
	h.meet.wait()
	if !allowed || err != nil {
		return allowed, err
	}
	fitting := make([]bucket.Take, 0, len(takes))
	for i := range takes {
		if outs[i].Allowed { // a shadow need not be
			fitting = append(fitting, takes[i])
		}
	}
	return true, chargeEach(ctx, h.Store, now, fitting)
}

func chargeEach(ctx context.Context, store *memory.Store, now int64, takes []bucket.Take) error {
	for i := range takes {
		if _, err := store.TryConsume(ctx, now, takes[i:i+1], make([]bucket.Outcome, 1)); err != nil {
			return err
		}
	}
	return nil
}

// leaky tells the truth, but a denied decision keeps what it could have of its buckets.
type leaky struct{ *memory.Store }

func (l leaky) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	allowed, err := l.Peek(ctx, now, takes, outs)
	if err != nil {
		return false, err
	}
	return allowed, chargeEach(ctx, l.Store, now, takes)
}

// TestBrokenStoresAreFound shows that the check can fail.
func TestBrokenStoresAreFound(t *testing.T) {
	shape := compile(t)
	tests := []struct {
		name    string
		clients int
		store   func(*memory.Store) bucket.Store
		sound   bool
	}{
		{"looks, then charges, alone", 1, func(s *memory.Store) bucket.Store { return hasty{s, newBarrier(1)} }, true},
		{"looks, then charges, with others", clients,
			func(s *memory.Store) bucket.Store { return hasty{s, newBarrier(clients)} }, false},
		{"charges what it can, then denies", 1, func(s *memory.Store) bucket.Store { return leaky{s} }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for seed := range uint64(8) {
				history := record(t, test.store(open(t, 1<<12)), shape, 3, test.clients, seed)
				if sound := porcupine.CheckOperations(model(shape), history); sound != test.sound {
					t.Errorf("seed %d: CheckOperations = %t, want %t", seed, sound, test.sound)
				}
			}
		})
	}
}
