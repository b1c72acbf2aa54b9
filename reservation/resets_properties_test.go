//go:build unix

package reservation_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/reservation"
)

// TestWhatIsAdmittedWhileOperatorsGive has two replicas reserve, settle, fill and grant in any
// order, and callers who wait in a queue leave it, and looks at every interval: what is admitted in
// it, less what comes back of that, is never more than the burst, what drains, and what was given in
// it; under lease what drains in a TTL besides, and what was given in the TTL before.
func TestWhatIsAdmittedWhileOperatorsGive(t *testing.T) {
	for _, scope := range []policy.Scope{policy.Strict, policy.Lease} {
		for seed := range race.Fewer(uint64(40)) {
			rule := policy.Rule{Endpoint: policy.Default, Limit: 1, Per: time.Minute, Burst: 50, Scope: scope}
			if scope == policy.Strict && seed%2 == 0 { // a queue, which only one who knows all can keep
				rule.Algorithm = policy.LeakyBucket
			}
			run := &operated{twoReplicas: together(t, rule, 0), t: t, rng: rand.New(rand.NewPCG(seed, uint64(scope)))}
			for range 150 {
				run.pass(time.Duration(run.rng.Int64N(int64(3 * time.Second))))
				run.step()
			}
			late := time.Duration(0)
			if scope == policy.Lease {
				late = leaseTTL
			}
			run.check(t, scope, seed, late)
		}
	}
}

// operated is what became of a bucket while operators gave to it.
type operated struct {
	*twoReplicas
	t      *testing.T
	rng    *rand.Rand
	open   []held
	events []event
}

type held struct {
	id reservation.ID
	at *sharer
	of int // event
}

// event is tokens that were admitted, came back, or were given.
type event struct {
	at       int64
	admitted int64
	back     int64 // what is not spent of it in the end
	backAt   int64
	given    int64 // by an operator
}

func (o *operated) step() {
	at := []*sharer{o.a, o.b}[o.rng.IntN(2)]
	e := event{at: o.now.Load()}
	switch n := o.rng.IntN(30); {
	case n < 24:
		cost := 1 + o.rng.Int64N(2)
		if n < 3 {
			cost = 1 + o.rng.Int64N(20)
		}
		if n%4 == 0 {
			o.waits(at, cost)
			return
		}
		made, d := at.Reserve(o.t.Context(), costing(cost), time.Hour)
		if !d.Allowed {
			return
		}
		e.admitted = cost
		o.open = append(o.open, held{made.ID, at, len(o.events)})
	case n < 28:
		if len(o.open) == 0 {
			return
		}
		i := o.rng.IntN(len(o.open))
		one := o.open[i]
		o.open = append(o.open[:i], o.open[i+1:]...)
		of := &o.events[one.of]
		actual := o.rng.Int64N(of.admitted + 1)
		one.at.settle(o.t, one.id, actual)
		of.back, of.backAt = of.admitted-actual, e.at
		return
	case n == 28:
		before := at.left(o.t)
		at.reset(o.t)
		e.given = 50 - before + 1 // of a token that had begun to fill
	default:
		_, given, err := at.Grant(o.t.Context(), ours, 10, time.Time{}, nil)
		must(o.t, err)
		e.given = given
	}
	o.events = append(o.events, e)
}

// waits has a request come that may have to wait, whose caller leaves after a few steps of others.
func (o *operated) waits(at *sharer, cost int64) {
	of := len(o.events)
	gone, leave := context.WithCancel(o.t.Context())
	defer leave()
	at.decided = func() {
		leave()
		o.events = append(o.events, event{at: o.now.Load(), admitted: cost})
		for range o.rng.IntN(4) {
			o.pass(time.Duration(o.rng.Int64N(int64(20 * time.Second))))
			o.step()
		}
	}
	d, err := at.Wait(gone, costing(cost))
	switch e := &o.events[of]; {
	case err != nil:
		e.back, e.backAt = cost, o.now.Load()
	case !d.Allowed:
		e.admitted = 0
	}
}

// check looks at all intervals that begin and end with an event.
func (o *operated) check(t *testing.T, scope policy.Scope, seed uint64, late time.Duration) {
	t.Helper()
	shape, err := rate.Compile(rate.Limit{Tokens: 1, Per: time.Minute, Burst: 50})
	must(t, err)
	for i := range o.events {
		from := o.events[i].at
		for j := i; j < len(o.events); j++ {
			to := o.events[j].at
			admitted, given := int64(0), int64(0)
			for k := range o.events[:j+1] {
				e := &o.events[k]
				if k >= i {
					admitted += e.admitted
					if e.back > 0 && e.backAt <= to {
						admitted -= e.back
					}
				}
				if e.at >= from-int64(late) {
					given += e.given
				}
			}
			if most := 50 + given + shape.Drained(time.Duration(to-from)+late)/shape.Unit + 1; admitted > most {
				t.Fatalf("%v, seed %d: %d tokens were admitted from %v to %v, want at most %d, of which %d were given",
					scope, seed, admitted, time.Duration(from-o.events[0].at),
					time.Duration(to-o.events[0].at), most, given)
			}
		}
	}
}
