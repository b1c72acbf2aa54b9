package reservation_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestNobodyIsGrantedWhatWhoLeftGaveBack has requests wait for their turn, many at once, and some leave before, while
// an operator fills the bucket and grants tokens, the rule changes, and others reserve in a table that is full. A
// bucket that knew who would leave, and was converted at every change, admits all of it again.
func TestNobodyIsGrantedWhatWhoLeftGaveBack(t *testing.T) {
	for seed := range race.Fewer(uint64(30)) {
		synctest.Test(t, func(t *testing.T) { waitAndLeave(t, seed) })
	}
}

func waitAndLeave(t *testing.T, seed uint64) {
	var mu sync.Mutex
	var events []debtEvent       // guarded by mu
	admitted := map[uint64]int{} // guarded by mu; those that wait, in events
	left, served := 0, 0         // guarded by mu
	rng := rand.New(rand.NewPCG(seed, 17))
	rules := &trial.Switching{}
	b := trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) {
		o.Policies, o.Now, o.MaxReservations = rules, nil, 4
		o.Observe = func(_ *headgate.Request, d *headgate.Decision) {
			if d.Allowed {
				mu.Lock()
				defer mu.Unlock()
				admitted[d.Waiting] = len(events)
				events = append(events, debtEvent{at: d.At, cost: d.Cost})
			}
		}
		o.Abandoned = func(_ *headgate.Request, d *headgate.Decision, _ int64) {
			mu.Lock()
			defer mu.Unlock()
			left++
			events[admitted[d.Waiting]].cost = 0
		}
	})
	limits := make([]policy.Rule, 3) // to and fro between these
	for i := range limits {
		limits[i] = policy.Rule{Endpoint: "GET /a", Limit: 1 + rng.Int64N(40), Burst: 20 + rng.Int64N(80),
			Algorithm: policy.LeakyBucket}
	}
	limits[2].Algorithm = policy.TokenBucket
	become := func(rule policy.Rule) {
		b.Now = time.Now()
		rules.Become(t, b, rule)
	}
	become(limits[0])
	first := rules.Load().Terms(0).Shape
	shape := first
	note := func(e debtEvent) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}
	var all sync.WaitGroup
	for range 1500 {
		time.Sleep(time.Duration(rng.Int64N(int64(80 * time.Millisecond))))
		synctest.Wait()
		e := debtEvent{at: time.Now().UnixNano()}
		request := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: 1 + rng.Int64N(15)}
		switch n := rng.IntN(100); {
		case n < 1:
			if _, err := b.Reset(t.Context(), trial.Mine, nil); err != nil {
				t.Fatal(err)
			}
			e.reset = true
			note(e)
		case n < 6:
			_, given, err := b.Grant(t.Context(), trial.Mine, 1+rng.Int64N(60), time.Time{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			e.given = given
			note(e)
		case n < 9:
			become(limits[rng.IntN(len(limits))])
			if e.change = rules.Load().Terms(0).Shape; e.change != shape {
				shape = e.change
				note(e)
			}
		case n < 15:
			_, _ = b.Reserve(t.Context(), request, time.Second)
		default:
			ctx, leave := context.WithCancel(t.Context())
			if rng.IntN(2) == 0 {
				time.AfterFunc(time.Duration(rng.Int64N(int64(2*time.Second))), leave)
			}
			reserves := rng.IntN(4) == 0
			all.Go(func() {
				defer leave()
				wait := b.Wait
				if reserves { // and never settles
					wait = func(ctx context.Context, r headgate.Request) (headgate.Decision, error) {
						_, d, err := b.ReserveWait(ctx, r, time.Second)
						return d, err
					}
				}
				d, err := wait(ctx, request)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && d.Allowed && d.Wait > 0 {
					served++
				}
			})
		}
	}
	all.Wait()
	synctest.Wait()
	if left < 20 || served < 20 {
		t.Errorf("seed %d: %d left and %d were served, want more of both", seed, left, served)
	}
	admitAgain(t, seed, first, events)
}
