package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

// faults is a fleet that they happen to.
type faults struct {
	*field
	relay *relay
	fleet *fleet

	alive atomic.Pointer[[]*harness.Gateway] // whom a balancer would send requests to
	turn  atomic.Uint64
}

// faults lets each fault happen to one fleet of two gateways, one after the other. What follows a
// fault shows that nobody had to be restarted.
func (f *field) faults(which []fault) (found []Fault, err error) {
	between, err := newRelay(f.store.address)
	if err != nil {
		return nil, err
	}
	defer between.Close()
	gateways, err := startFleet(2, f.api.URL, between.Addr().String(), ", member_ttl: "+memberTTL.String(),
		faultLimit, rulesOf(answers), nil)
	if err != nil {
		return nil, err
	}
	defer gateways.stop()
	all := &faults{field: f, relay: between, fleet: gateways}
	all.reach()
	for _, one := range which {
		outcome, err := all.happen(one.complete())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		f.progress("%v", outcome)
		found = append(found, outcome)
	}
	return found, nil
}

// reach makes the present fleet the one that requests are sent to.
func (f *faults) reach() {
	alive := slices.Clone(f.fleet.gateways)
	f.alive.Store(&alive)
}

func (f *faults) join() error {
	err := f.fleet.join()
	f.reach()
	return err
}

// leave kills the last gateway.
func (f *faults) leave() error {
	last := len(f.fleet.gateways) - 1
	f.fleet.gateways[last].Kill()
	f.fleet.gateways = f.fleet.gateways[:last]
	f.reach()
	return nil
}

// way sends each request to another gateway.
func (f *faults) way(path string) way {
	return func() (bool, error) {
		alive := *f.alive.Load()
		return get(f.client, alive[f.turn.Add(1)%uint64(len(alive))].URL+path)
	}
}

var errStaysLost = errors.New("gateways go on without the store 30s after it was there again")

// calm waits until all gateways know of each other, and all buckets are full.
func (f *faults) calm() error {
	err := errors.Join(f.back(), f.fleet.settled())
	f.rest("", 1)
	return err
}

// back waits until all gateways ask the store. They find out by requests that it is there.
func (f *faults) back() error {
	for _, g := range f.fleet.gateways {
		if !harness.Eventually(30*time.Second, func() bool {
			_, _ = get(f.client, g.URL+"/closed")
			lost, err := metric(g, "headgate_store_lost")
			return err == nil && lost == 0
		}) {
			return fmt.Errorf("%w:\n%s", errStaysLost, g.Log())
		}
	}
	return nil
}

// losses is how often each gateway has lost the store.
func (f *faults) losses() (counts map[*harness.Gateway]int64, err error) {
	counts = map[*harness.Gateway]int64{}
	for _, g := range f.fleet.gateways {
		n, err := metric(g, "headgate_store_losses_total")
		if err != nil {
			return nil, err
		}
		counts[g] = int64(n)
	}
	return counts, nil
}

// most is how often the gateway did that lost the store most often since then.
func most(now, then map[*harness.Gateway]int64) (n int64) {
	for g, count := range now {
		n = max(n, count-then[g])
	}
	return n
}

// happen sends requests to some rules, and lets a fault happen meanwhile.
func (f *faults) happen(what fault) (found Fault, err error) {
	if err := f.calm(); err != nil {
		return found, err
	}
	lossesBefore, err := f.losses()
	if err != nil {
		return found, err
	}
	for _, a := range what.rules {
		f.api.take(a.path)
	}
	seen := watch(func() []*harness.Gateway { return *f.alive.Load() })
	loads := make([]sent, len(what.rules))
	var all sync.WaitGroup
	began, came := time.Now(), time.Since(f.api.began)
	for i, a := range what.rules {
		all.Go(func() {
			loads[i] = load(before+what.lasts+after, what.perSecond, []way{f.way(a.path), f.way(a.path)}, traffics[0])
		})
	}
	time.Sleep(time.Until(began.Add(before)))
	k := len(f.fleet.gateways)
	err = what.make(f)
	k = max(k, len(f.fleet.gateways))
	time.Sleep(time.Until(began.Add(before + what.lasts)))
	mended := time.Now()
	err = errors.Join(err, what.mend(f))
	all.Wait()
	err = errors.Join(err, f.back())
	seen.end()
	if err != nil {
		return found, err
	}
	lossesAfter, err := f.losses()
	if err != nil {
		return found, err
	}
	found = Fault{Name: what.name, Loses: what.loses, Lost: seen.first(began.Add(before), allLost), Back: -1}
	if what.loses {
		found.Back = seen.first(mended, noneLost)
	}
	var together sent
	for i, a := range what.rules {
		together.took = append(together.took, loads[i].took...)
		o := Outcome{Rule: a.String(), Bound: what.bound(a, k, most(lossesAfter, lossesBefore), seen.absence())}
		if err := f.judge(&o, a, k, loads[i], f.api.take(a.path), came+before, came+before+what.lasts); err != nil {
			return found, err
		}
		found.Outcomes = append(found.Outcomes, o)
	}
	found.Quiet, found.Amid = together.percentile(0.99, 0, before), together.percentile(0.99, before, before+what.lasts)
	return found, nil
}

// judge puts what came beside what is published.
func (f *faults) judge(o *Outcome, a answer, k int, load sent, came []time.Duration, from, to time.Duration) error {
	limit := plan{limit: faultLimit}.rule()
	shape, extra, err := promise(limit, a.scope, k)
	if err != nil {
		return err
	}
	o.Excess = excess(came, shape)
	if o.Bound >= 0 {
		o.Bound += extra + late(shape, load.longest)
	}
	amid := 0
	for _, at := range came {
		if at >= from && at < to {
			amid++
		}
	}
	o.Used = float64(amid) / (faultLimit * (to - from).Seconds())
	return nil
}
