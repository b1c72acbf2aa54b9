package simulate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// tellers are some replicas that report about one bucket.
type tellers struct {
	world    *simulate.World
	shape    rate.Shape
	charger  *simulate.Charger
	all      []*simulate.Reporter
	interval time.Duration
	envelope simulate.Envelope
	demand   int64 // tokens
}

// newTellers has replicas whose messages take 0.2 to 0.8 ms each way.
func newTellers(t *testing.T, seed uint64, replicas int, interval time.Duration, l rate.Limit) *tellers {
	t.Helper()
	shape, err := rate.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	w := simulate.New(seed)
	f := &tellers{world: w, shape: shape, interval: interval, envelope: simulate.Envelope{Shape: shape}}
	f.charger = &simulate.Charger{Shape: shape, Clock: &simulate.Clock{World: w, Offset: time.Hour}}
	link := func() *simulate.Link {
		return &simulate.Link{World: w, Delay: 200 * time.Microsecond, Jitter: 600 * time.Microsecond}
	}
	for i := range replicas {
		f.all = append(f.all, &simulate.Reporter{
			World: w, Interval: interval, Headroom: bucket.Headroom(shape, interval, replicas), Charger: f.charger,
			Name: uint64(i + 1), To: link(), From: link(),
			Deadline: 5 * time.Millisecond, Clock: &simulate.Clock{World: w, Offset: w.Between(0, time.Hour)},
			Account:  report.NewAccount(1),
			Admitted: func(tokens int64) { f.envelope.Admit(w.Now(), tokens) },
		})
	}
	return f
}

func (f *tellers) load(r *simulate.Reporter, end time.Duration, cost int64, tokens func(now time.Duration) float64) {
	f.world.Poisson(func(now time.Duration) float64 { return tokens(now) / float64(cost) }, end, func() {
		f.demand += cost
		r.Request(cost)
	})
}

// most is what replicas may add to the burst and to what drains.
func (f *tellers) most() int64 {
	return report.Bound(f.shape, f.interval, len(f.all), 0) - f.shape.Burst()
}

// All of the limit is used, by hardly more messages than two an interval and replica, and no more
// than a headroom each is added to it.
func TestReportsScale(t *testing.T) {
	const end = 8 * time.Second
	for _, c := range []struct {
		replicas int
		limit    int64
		demand   float64 // a second
	}{
		{1, 1000, 3000}, {2, 1000, 3000}, {8, 1000, 700}, {8, 1000, 3000}, {8, 1000, 20000}, {64, 1000, 3000},
		{16, 100, 300}, {4, 10_000, 30_000},
	} {
		f := newTellers(t, 1, c.replicas, 100*time.Millisecond, limit(c.limit, time.Second, c.limit))
		for _, r := range f.all {
			f.load(r, end, 1, func(time.Duration) float64 { return c.demand / float64(c.replicas) })
		}
		f.world.Run(end)
		messages := 0
		for _, r := range f.all {
			messages += r.Sent + r.Asked
		}
		used := f.envelope.Utilisation(end, f.demand)
		if f.envelope.Excess() > f.most() {
			t.Errorf("%+v: %d tokens above burst and rate, want %d at most", c, f.envelope.Excess(), f.most())
		}
		if used < 0.99 {
			t.Errorf("%+v: %.3f of the limit used, want 0.99", c, used)
		}
		if most := min(c.demand, float64(c.replicas)*22+float64(c.limit)/4); float64(messages)/end.Seconds() > most {
			t.Errorf("%+v: %.0f messages a second, want %.0f at most", c, float64(messages)/end.Seconds(), most)
		}
	}
}

// The worst that replicas can do: one request takes the burst, which the store has to be asked for,
// and before the others hear of it each admits its headroom.
func TestReportBoundIsTight(t *testing.T) {
	for _, replicas := range []int{1, 8, 30} {
		f := newTellers(t, 1, replicas, 100*time.Millisecond, limit(1000, time.Second, 3000))
		f.all[0].Request(3000)
		f.world.Run(time.Millisecond)
		for _, r := range f.all {
			r.To.Cut = true // or what they ask the store for later would be told first
			for range 200 {
				r.Request(1)
			}
		}
		if most, got := f.most(), f.envelope.Excess(); got > most || got < most-2 {
			t.Errorf("%d replicas got %d tokens more than burst and rate, want %d or hardly less", replicas, got, most)
		}
	}
}

// Replicas that are cut off and come back, lose messages or crash; a store that is away; clocks
// that differ, drift and step; everything at random, and the bound holds. What a fault may add is
// added: a crash gives a headroom, a step of the store's clock what drains in it, and the loss of
// its memory the burst, and a headroom for each.
func TestReportBoundHolds(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	worst := 0.0
	for seed := range seeds {
		worst = max(worst, reportsAtRandom(t, seed))
	}
	t.Logf("at most %.2f of what was allowed", worst)
}

// reportsAtRandom runs a world, and reports which part of what may be added was.
func reportsAtRandom(t *testing.T, seed uint64) float64 {
	r := rand.New(rand.NewPCG(seed, 77))
	per := []time.Duration{time.Second, time.Second, time.Minute}[r.IntN(3)]
	l := limit(1+r.Int64N(2000), per, 1+r.Int64N(3000))
	interval := time.Duration(5+r.IntN(400)) * time.Millisecond
	f := newTellers(t, seed, 1+r.IntN(24), interval, l)
	const end = 8 * time.Second
	headroom, more, forgets := bucket.Headroom(f.shape, interval, len(f.all)), int64(0), false
	for _, one := range f.all {
		one.Clock.Drift = r.Int64N(401) - 200
		one.To.Loss, one.From.Loss = r.Float64()*0.2, r.Float64()*0.2
		one.To.Jitter, one.From.Jitter = time.Duration(r.Int64N(int64(60*time.Millisecond))),
			time.Duration(r.Int64N(int64(60*time.Millisecond)))
		most := r.Float64() * 4 * float64(l.Tokens) / per.Seconds() / float64(len(f.all))
		if r.IntN(2) == 0 {
			most *= 10
		}
		wave := time.Duration(1 + r.Int64N(int64(2*time.Second)))
		f.load(one, end, 1+r.Int64N(min(8, l.Burst)), func(now time.Duration) float64 {
			if now/wave%2 == 0 {
				return most
			}
			return most / 10
		})
	}
	for n := range r.IntN(6) {
		at, length := time.Duration(r.Int64N(int64(end))), time.Duration(r.Int64N(int64(2*time.Second)))
		one := f.all[r.IntN(len(f.all))]
		switch r.IntN(6) {
		case 0: // the network comes apart
			f.world.After(at, func() { one.To.Cut, one.From.Cut = true, true })
			f.world.After(at+length, func() { one.To.Cut, one.From.Cut = false, false })
		case 1: // answers alone get lost
			f.world.After(at, func() { one.From.Cut = true })
			f.world.After(at+length, func() { one.From.Cut = false })
		case 2: // the store stops
			f.world.After(at, func() { f.charger.Down = true })
			f.world.After(at+length, func() { f.charger.Down = false })
		case 3: // the store's clock is set forward, or back, which gives nothing
			step := time.Duration(r.Int64N(int64(2*time.Second))) - time.Second
			f.world.After(at, func() { f.charger.Clock.Step(step) })
			if step > 0 {
				more += min(l.Burst, f.shape.Drained(step)/f.shape.Unit+1)
			}
		case 4: // the store comes back empty
			forgets = true
			f.world.After(at, func() { f.charger.Ledger = report.Ledger{} })
			more += l.Burst + headroom*int64(len(f.all))
		case 5:
			forgets = true
			f.world.After(at, func() { one.Crash(uint64(1000 + n)) })
			more += headroom
		}
	}
	// Clocks that run faster give what they gain.
	more += f.shape.Drained(end)/f.shape.Unit/5000 + 1
	f.world.Run(end)
	if f.envelope.Excess() > f.most()+more {
		t.Errorf("seed %d, %+v, every %v, %d replicas: %d tokens above burst and rate, want %d at most", seed, l,
			interval, len(f.all), f.envelope.Excess(), f.most()+more)
	}
	worst := float64(f.envelope.Excess()) / float64(max(1, f.most()+more))
	if owed := f.charger.Owed(); owed > l.Burst {
		t.Errorf("seed %d: the store was owed %d tokens beyond the burst of %d", seed, owed, l.Burst)
	}
	f.charged(t, seed, forgets)
	return worst
}

// charged sees that a moment after all faults are over what was admitted is charged, no more and no
// less, where nobody forgot.
func (f *tellers) charged(t *testing.T, seed uint64, forgets bool) {
	f.charger.Down = false
	for _, one := range f.all {
		for _, l := range []*simulate.Link{one.To, one.From} {
			l.Cut, l.Loss, l.Jitter = false, 0, time.Millisecond
		}
	}
	f.world.Run(f.world.Now() + 5*time.Second)
	for _, one := range f.all {
		if pending := one.Account.Pending(); pending != 0 {
			t.Errorf("seed %d: %d tokens were never answered, want none", seed, pending)
		}
	}
	if want := f.envelope.Admitted * f.shape.Unit; f.charger.Charged != want && !forgets {
		t.Errorf("seed %d: %d units were charged, want the %d that were admitted", seed, f.charger.Charged, want)
	}
}

// A replica that has a bucket to itself knows all that was charged, so it admits what one bucket
// does: no headroom more, through changes of the limit, and whatever was given back for requests
// that others denied. That is so as long as it need not ask the store for tokens, which it would
// not know of.
func TestReportsOfOneReplicaAddNothing(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	exact := 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 43))
		l := limit(100+r.Int64N(1000), time.Second, 0)
		l.Burst = l.Tokens/2 + r.Int64N(l.Tokens)
		interval := time.Duration(100+r.IntN(200)) * time.Millisecond
		f := newTellers(t, seed, 1, interval, l)
		const end = 4 * time.Second
		one, promise := f.all[0], simulate.Promise{}
		one.To.Jitter, one.From.Jitter, one.Deadline = interval/40, interval/40, interval/8
		promise.Set(0, float64(l.Tokens), float64(l.Burst))
		one.Admitted = func(tokens int64) { promise.Admit(f.world.Now(), tokens) }
		wave, most := time.Duration(1+r.Int64N(int64(time.Second))), (1+3*r.Float64())*float64(l.Tokens)
		refuses := r.IntN(2) == 0
		// Requests come in waves: many that are admitted; some that another bucket denies, or few; none, or few.
		phase := func() time.Duration { return f.world.Now() / wave % 3 }
		f.world.Poisson(func(time.Duration) float64 {
			switch {
			case phase() == 0:
				return most
			case !refuses:
				return most / 10
			case phase() == 1:
				return float64(l.Tokens)
			}
			return 0
		}, end, func() {
			if cost := 1 + f.world.Rand.Int64N(2); refuses && phase() == 1 {
				one.Refused(cost, f.world.Between(0, interval/2))
			} else {
				one.Request(cost)
			}
		})
		for range r.IntN(3) {
			next := limit(l.Tokens/2+r.Int64N(l.Tokens), time.Second, l.Burst/2+r.Int64N(l.Burst))
			to, err := rate.Compile(next)
			if err != nil {
				t.Fatal(err)
			}
			f.world.After(time.Duration(r.Int64N(int64(end))), func() {
				from := f.charger.Shape
				f.charger.Change(to)
				one.Change(from, bucket.Headroom(to, interval, 1))
				promise.Set(f.world.Now(), float64(next.Tokens), float64(next.Burst))
			})
		}
		f.world.Run(end)
		if one.Asked > 0 {
			continue
		}
		exact++
		if worst, at := promise.Worst(); worst > 1e-6 {
			t.Errorf("seed %d, %+v, every %v: %.3f tokens above burst and rate at %v, want none", seed, l,
				interval, worst, at)
		}
	}
	if exact < int(seeds)/2 {
		t.Errorf("%d of %d replicas asked for nothing, want half of them", exact, seeds)
	}
}
