package simulate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// fleet is some replicas that lease of one bucket.
type fleet struct {
	world     *simulate.World
	shape     rate.Shape
	terms     lease.Terms
	authority *simulate.Authority
	holders   []*simulate.Holder
	envelope  simulate.Envelope
	demand    int64 // tokens
	leased    rate.Shape
}

// newFleet has replicas whose messages take 0.2 to 0.8 ms each way.
func newFleet(t *testing.T, seed uint64, replicas int, l rate.Limit) *fleet {
	t.Helper()
	shape, err := rate.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	w := simulate.New(seed)
	f := &fleet{
		world:    w,
		shape:    shape,
		terms:    lease.Terms{}.Complete(),
		envelope: simulate.Envelope{Shape: shape},
		leased:   shape,
	}
	f.authority = &simulate.Authority{Shape: shape, Clock: &simulate.Clock{World: w, Offset: time.Hour}}
	for range replicas {
		f.join()
	}
	return f
}

// aside has each replica have a part of so many percent to itself, as bucket/scoped does, if the limit has room for it.
func (f *fleet) aside(percent int) bool {
	own, rest, ok := f.shape.SetAside(percent, len(f.holders))
	if ok {
		f.leased, f.authority.Shape = rest, rest
		for _, h := range f.holders {
			h.Free = own
		}
	}
	return ok
}

func (f *fleet) join() *simulate.Holder {
	w := f.world
	link := func() *simulate.Link {
		return &simulate.Link{World: w, Delay: 200 * time.Microsecond, Jitter: 600 * time.Microsecond}
	}
	h := &simulate.Holder{
		World: w, Terms: f.terms, Authority: f.authority, Name: uint64(len(f.holders) + 1), To: link(), From: link(),
		Deadline: 5 * time.Millisecond,
		Clock:    &simulate.Clock{World: w, Offset: w.Between(0, time.Hour)},
		Admitted: func(tokens int64) { f.envelope.Admit(w.Now(), tokens) },
	}
	f.holders = append(f.holders, h)
	return h
}

// load has requests arrive at a replica, so many tokens a second.
func (f *fleet) load(h *simulate.Holder, end time.Duration, cost int64, tokens func(now time.Duration) float64) {
	f.world.Poisson(func(now time.Duration) float64 { return tokens(now) / float64(cost) }, end, func() {
		f.demand += cost
		h.Request(cost)
	})
}

// steady loads all replicas alike.
func (f *fleet) steady(end time.Duration, tokens float64) {
	for _, h := range f.holders {
		f.load(h, end, 1, func(time.Duration) float64 { return tokens / float64(len(f.holders)) })
	}
}

func (f *fleet) asked() (n int) {
	for _, h := range f.holders {
		n += h.Asked
	}
	return n
}

// most is what leases may add to the burst and to what drains.
func (f *fleet) most() int64 { return lease.Bound(f.leased, f.terms, 0) - f.leased.Burst() }

// checkBound holds what was admitted against the promise, and more that a fault may have added.
func (f *fleet) checkBound(t *testing.T, what string, more int64) {
	t.Helper()
	if excess := f.envelope.Excess(); excess > f.most()+more {
		t.Errorf("%s: %d tokens above burst and rate in some interval, want %d at most", what, excess, f.most()+more)
	}
}

func limit(tokens int64, per time.Duration, burst int64) rate.Limit {
	return rate.Limit{Tokens: tokens, Per: per, Burst: burst}
}

// Where each replica has something to itself, keys that are asked for seldom send no message, and
// the limit is used all the same; all of it but what replicas have to themselves that nobody asks.
func TestFreeParts(t *testing.T) {
	const end = 8 * time.Second
	for _, c := range []struct {
		name     string
		share    func(i int) float64 // of the demand
		demand   float64             // a second, of a limit of 1000
		used     float64             // at least, of what could be
		messages float64             // at most, a second
	}{
		{name: "a tenth of the limit", share: func(int) float64 { return 0.25 }, demand: 100, used: 1, messages: 0},
		{name: "nine tenths", share: func(int) float64 { return 0.25 }, demand: 900, used: 0.99, messages: 4 * 40},
		{
			name:     "three times the limit",
			share:    func(int) float64 { return 0.25 },
			demand:   3000,
			used:     0.98,
			messages: 4 * 40,
		},
		{
			name:     "three times, nine tenths at one",
			share:    func(i int) float64 { return []float64{0.9, 0.1 / 3, 0.1 / 3, 0.1 / 3}[i] },
			demand:   3000,
			used:     0.97,
			messages: 4 * 40,
		},
		{
			name:     "three times, all at one",
			share:    func(i int) float64 { return []float64{1, 0, 0, 0}[i] },
			demand:   3000,
			used:     0.84,
			messages: 40,
		},
	} {
		f := newFleet(t, 7, 4, limit(1000, time.Second, 1000))
		if !f.aside(20) {
			t.Fatal("nothing is set aside")
		}
		for i, h := range f.holders {
			f.load(h, end, 1, func(time.Duration) float64 { return c.demand * c.share(i) })
		}
		f.world.Run(end)
		f.checkBound(t, c.name, 0)
		if used := f.envelope.Utilisation(end, f.demand); used < c.used {
			t.Errorf("%s: %.3f of it used, want %.3f", c.name, used, c.used)
		}
		if messages := float64(f.asked()) / end.Seconds(); messages > c.messages {
			t.Errorf("%s: %.0f questions a second, want %.0f at most", c.name, messages, c.messages)
		}
	}
}

// Whatever the number of replicas, all of the limit is used and no more, with a hundredth of the
// messages that a question a request would take; and where a replica gets a token a second, with
// few a second, and not one each time it may ask.
func TestLeaseScales(t *testing.T) {
	const end = 10 * time.Second
	for _, c := range []struct {
		replicas int
		limit    int64
		demand   float64 // a second
		used     float64 // at least, of what could be
		messages float64 // at most, a second
	}{
		{replicas: 1, limit: 1000, demand: 3000, used: 0.99, messages: 40},
		{replicas: 2, limit: 1000, demand: 3000, used: 0.99, messages: 80},
		{replicas: 8, limit: 1000, demand: 700, used: 0.99, messages: 320},
		{replicas: 8, limit: 1000, demand: 3000, used: 0.99, messages: 320},
		{replicas: 8, limit: 1000, demand: 20000, used: 0.99, messages: 320},
		{replicas: 64, limit: 1000, demand: 3000, used: 0.97, messages: 64 * 40},
		{replicas: 64, limit: 100, demand: 300, used: 0.97, messages: 64 * 5},
		{replicas: 16, limit: 10, demand: 100, used: 0.97, messages: 16 * 5},
	} {
		f := newFleet(t, 1, c.replicas, limit(c.limit, time.Second, c.limit))
		f.steady(end, c.demand)
		f.world.Run(end)
		f.checkBound(t, "scale", 0)
		if used := f.envelope.Utilisation(end, f.demand); used < c.used {
			t.Errorf("%d replicas, %d a second, %v wanted: %.3f of it used, want %.3f", c.replicas, c.limit,
				c.demand, used, c.used)
		}
		if messages := float64(f.asked()) / end.Seconds(); messages > c.messages {
			t.Errorf("%d replicas, %d a second, %v wanted: %.0f questions a second, want %.0f at most", c.replicas,
				c.limit, c.demand, messages, c.messages)
		}
	}
}

// Traffic that meets one replica, or another one every two seconds, gets the whole limit there.
func TestLeaseFollowsTheTraffic(t *testing.T) {
	const end = 12 * time.Second
	for name, at := range map[string]func(i int, now time.Duration) float64{
		"nine tenths at one": func(i int, _ time.Duration) float64 {
			if i == 0 {
				return 2700
			}
			return 300.0 / 15
		},
		"from one to the next": func(i int, now time.Duration) float64 {
			if int(now/(2*time.Second))%16 == i {
				return 3000
			}
			return 0
		},
		"from nothing to twenty times the limit": func(_ int, now time.Duration) float64 {
			if now > 5*time.Second {
				return 20000.0 / 16
			}
			return 0
		},
	} {
		f := newFleet(t, 2, 16, limit(1000, time.Second, 1000))
		for i, h := range f.holders {
			f.load(h, end, 1, func(now time.Duration) float64 { return at(i, now) })
		}
		f.world.Run(end)
		f.checkBound(t, name, 0)
		could := float64(1000 + 12000)
		if name == "from nothing to twenty times the limit" {
			could = 1000 + 7000
		}
		if used := float64(f.envelope.Admitted) / could; used < 0.97 {
			t.Errorf("%s: %.3f of the limit used, want 0.97", name, used)
		}
	}
}

// Requests of different costs at once: a dear one does not keep cheap ones from what it left.
func TestLeaseOfDearRequests(t *testing.T) {
	const end = 20 * time.Second
	f := newFleet(t, 3, 4, limit(100, time.Second, 500))
	for _, h := range f.holders {
		f.load(h, end, 1, func(time.Duration) float64 { return 5 })
		f.load(h, end, 400, func(time.Duration) float64 { return 400 })
	}
	f.world.Run(end)
	f.checkBound(t, "dear", 0)
	if used := f.envelope.Utilisation(end, f.demand); used < 0.6 {
		t.Errorf("%.3f of the limit used, want 0.6: of 500 tokens, 400 must be there for a dear one", used)
	}
}

// The worst that holders can do: ask for all that comes, hold it until it is about to expire, and
// spend it at one moment, with all that they have to themselves. The bound is what they get, to a
// token or two.
func TestLeaseBoundIsTight(t *testing.T) {
	shape, err := rate.Compile(limit(1000, time.Second, 3000))
	if err != nil {
		t.Fatal(err)
	}
	terms := lease.Terms{}.Complete()
	const begin = int64(time.Hour)
	end := begin + int64(terms.TTL) - 1
	for _, free := range []int{0, 20, 60} {
		own, leased, _ := shape.SetAside(free, int(terms.TTL/time.Millisecond))
		var ledger lease.Ledger
		var accounts []*lease.Account
		for now := begin; now <= end; now += int64(time.Millisecond) {
			a := new(lease.Account)
			accounts = append(accounts, a)
			if v := a.Take(now, terms, 1); v != lease.Ask {
				t.Fatalf("Take of an empty account = %v, want Ask", v)
			}
			q, ok := a.Question(now, terms)
			if !ok {
				t.Fatal("Question: none, want one")
			}
			q.Want = 10_000
			a.Answer(now, terms, ledger.Grant(now, leased, uint64(len(accounts)), q), 0)
		}
		envelope := simulate.Envelope{Shape: shape}
		for _, a := range accounts {
			if free > 0 {
				envelope.Admit(time.Duration(end-begin), own.Burst())
			}
			for a.Retake(end, 1) == lease.Admit {
				envelope.Admit(time.Duration(end-begin), 1)
			}
		}
		most := lease.Bound(leased, terms, 0) - leased.Burst()
		if got := envelope.Excess(); got > most || got < most-2 {
			t.Errorf("%d percent free: holders got %d tokens more than burst and rate, want %d or hardly less",
				free, got, most)
		}
	}
}

// Answers that take most of a TTL make nothing last longer: a batch counts from when it was asked
// for. Here the first holder takes the burst, and all spend at the moment when its batch has just
// expired.
func TestLeaseBoundWithSlowAnswers(t *testing.T) {
	shape, err := rate.Compile(limit(1000, time.Second, 3000))
	if err != nil {
		t.Fatal(err)
	}
	terms := lease.Terms{}.Complete()
	const begin, late = int64(time.Hour), int64(80 * time.Millisecond)
	end := begin + int64(terms.TTL)
	w := simulate.New(1)
	var ledger lease.Ledger
	var accounts []*lease.Account
	for sent := begin; sent <= end-late; sent += int64(time.Millisecond) {
		a, n := new(lease.Account), uint64(len(accounts)+1)
		accounts = append(accounts, a)
		w.After(time.Duration(sent-begin), func() {
			a.Take(sent, terms, 1)
			q, _ := a.Question(sent, terms)
			q.Want = 10_000
			got := ledger.Grant(sent, shape, n, q)
			w.After(time.Duration(late), func() { a.Answer(sent+late, terms, got, 0) })
		})
	}
	w.Run(time.Duration(end - begin + 1))
	envelope := simulate.Envelope{Shape: shape}
	for _, a := range accounts {
		for a.Retake(end, 1) == lease.Admit {
			envelope.Admit(time.Duration(end-begin), 1)
		}
	}
	// What drained until the last was asked for is all that is still good.
	if want := int64(time.Duration(end-late-begin) / time.Millisecond); envelope.Admitted != want {
		t.Errorf("%d tokens were admitted a TTL after the burst was asked for, want %d", envelope.Admitted, want)
	}
}

// A message that is lost, in either direction, is asked again under its number: nothing is charged
// twice, and next to nothing is lost.
func TestLeaseLosesNoTokensWithMessages(t *testing.T) {
	const end = 20 * time.Second
	for loss, least := range map[float64]float64{0.01: 0.98, 0.1: 0.95, 0.3: 0.85} {
		f := newFleet(t, 4, 8, limit(1000, time.Second, 1000))
		for _, h := range f.holders {
			h.To.Loss, h.From.Loss = loss, loss
		}
		f.steady(end, 3000)
		f.world.Run(end)
		f.checkBound(t, "loss", 0)
		if used := f.envelope.Utilisation(end, f.demand); used < least {
			t.Errorf("with %.0f %% of messages lost, %.3f of the limit used, want %.2f", 100*loss, used, least)
		}
	}
}

// Replicas that come, go, are cut off and come back; a store that is away; clocks that differ,
// drift and step; everything at random, and the bound holds. What a fault of the store may add is
// added: its clock's step forward gives what drains in it, and its loss gives the burst.
func TestLeaseBoundHolds(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 99))
		per := []time.Duration{time.Second, time.Second, time.Minute}[r.IntN(3)]
		l := limit(1+r.Int64N(2000), per, 1+r.Int64N(3000))
		f := newFleet(t, seed, 1+r.IntN(24), l)
		if seed%2 == 1 {
			f.aside(10 + r.IntN(40))
		}
		const end = 8 * time.Second
		more := int64(0)
		for _, h := range f.holders {
			h.Clock.Drift = r.Int64N(401) - 200
			h.To.Loss, h.From.Loss = r.Float64()*0.2, r.Float64()*0.2
			h.To.Jitter = time.Duration(r.Int64N(int64(30 * time.Millisecond)))
			most := r.Float64() * 4 * float64(l.Tokens) / per.Seconds() / float64(len(f.holders))
			wave := time.Duration(1 + r.Int64N(int64(2*time.Second)))
			f.load(h, end, 1+r.Int64N(min(8, l.Burst)), func(now time.Duration) float64 {
				if now/wave%2 == 0 {
					return most
				}
				return most / 10
			})
		}
		for range r.IntN(6) {
			at, length := time.Duration(r.Int64N(int64(end))), time.Duration(r.Int64N(int64(2*time.Second)))
			h := f.holders[r.IntN(len(f.holders))]
			switch r.IntN(5) {
			case 0: // the network comes apart
				f.world.After(at, func() { h.To.Cut, h.From.Cut = true, true })
				f.world.After(at+length, func() { h.To.Cut, h.From.Cut = false, false })
			case 1: // answers alone get lost
				f.world.After(at, func() { h.From.Cut = true })
				f.world.After(at+length, func() { h.From.Cut = false })
			case 2: // the store stops
				f.world.After(at, func() { f.authority.Down = true })
				f.world.After(at+length, func() { f.authority.Down = false })
			case 3: // the store's clock is set forward, or back, which gives nothing
				step := time.Duration(r.Int64N(int64(2*time.Second))) - time.Second
				f.world.After(at, func() { f.authority.Clock.Step(step) })
				if step > 0 {
					more += min(l.Burst, f.shape.Drained(step)/f.shape.Unit+1)
				}
			case 4: // the store comes back empty
				f.world.After(at, func() { f.authority.Ledger = lease.Ledger{} })
				more += l.Burst
			}
		}
		// Clocks that run faster give what they gain.
		more += f.shape.Drained(end)/f.shape.Unit/5000 + 1
		f.world.Run(end)
		if f.envelope.Excess() > f.most()+more {
			t.Errorf("seed %d, %+v, %d replicas: %d tokens above burst and rate, want %d at most", seed, l,
				len(f.holders), f.envelope.Excess(), f.most()+more)
		}
	}
}

// What a replica admits was lent to it, of the limit as it is, and asked for less than a TTL ago:
// however late questions and answers are, whatever was given back for requests that others denied,
// and however often the limit changes.
func TestWhatIsAdmittedWasLent(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	admitted, late := int64(0), 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 41))
		l := limit(20+r.Int64N(2000), time.Second, 20+r.Int64N(3000))
		f := newFleet(t, seed, 1+r.IntN(6), l)
		const end = 4 * time.Second
		slow := f.terms.TTL / 4
		if r.IntN(2) == 0 {
			slow = 4 * f.terms.TTL
			late++
		}
		for _, h := range f.holders {
			h.Clock.Drift = r.Int64N(401) - 200
			h.To.Loss, h.From.Loss = r.Float64()*0.2, r.Float64()*0.2
			h.To.Jitter, h.From.Jitter = time.Duration(r.Int64N(int64(slow))), time.Duration(r.Int64N(int64(slow)))
			most, cost := r.Float64()*6*float64(l.Tokens)/float64(len(f.holders)), 1+r.Int64N(4)
			f.world.Poisson(func(time.Duration) float64 { return most / float64(cost) }, end, func() {
				if f.world.Rand.IntN(4) == 0 {
					h.Refused(cost, f.world.Between(0, h.Deadline))
					return
				}
				h.Request(cost)
			})
		}
		for range r.IntN(6) {
			to, err := rate.Compile(limit(20+r.Int64N(2000), time.Second, 20+r.Int64N(3000)))
			if err != nil {
				t.Fatal(err)
			}
			f.world.After(time.Duration(r.Int64N(int64(end))), func() {
				f.authority.Change(to)
				for _, h := range f.holders {
					h.Change()
				}
			})
		}
		f.world.Run(end)
		for _, h := range f.holders {
			if h.Unbacked > 0 {
				t.Errorf(
					"seed %d, %+v, messages that take up to %v: %d tokens were admitted that were not lent, want "+
						"none", seed, l, slow, h.Unbacked)
			}
		}
		admitted += f.envelope.Admitted
	}
	if admitted < 100*int64(seeds) || late == 0 {
		t.Errorf("%d tokens were admitted, %d times with late messages: want more", admitted, late)
	}
}
