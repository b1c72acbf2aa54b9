package quota_test

import (
	stdcontext "context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/quota"
	"github.com/headgate-io/headgate/simulate"
)

var context = stdcontext.Background()

// fleet is some proxies with one bucket.
type fleet struct {
	*service
	proxies  []*proxy
	envelope simulate.Envelope
	demand   int64
	promise  simulate.Promise
}

func newFleet(t testing.TB, seed uint64, k int, limit string) *fleet {
	t.Helper()
	w := simulate.New(seed)
	f := &fleet{service: newService(t, w, "domain: d\ndescriptors:\n- {key: a, rate_limit: "+limit+"}\n")}
	f.envelope.Shape = f.shape()
	for range k {
		f.join()
	}
	return f
}

func (f *fleet) shape() rate.Shape {
	return f.limits.Find("d", []descriptor.Entry{{Key: "a", Value: "x"}}).Shape
}

func (f *fleet) join() *proxy {
	p := &proxy{
		world: f.world, service: f.service, id: []descriptor.Entry{{Key: "a", Value: "x"}}, interval: time.Second,
		delay: func() time.Duration { return f.world.Between(200*time.Microsecond, 20*time.Millisecond) },
	}
	p.admitted = func() { f.envelope.Admit(f.world.Now(), 1); f.promise.Admit(f.world.Now(), 1) }
	f.proxies = append(f.proxies, p)
	return p
}

// load has requests arrive at all proxies, so many a second together.
func (f *fleet) load(end time.Duration, perSecond float64) {
	for i := range f.proxies {
		f.world.Poisson(func(time.Duration) float64 { return perSecond / float64(len(f.proxies)) }, end, func() {
			f.demand++
			f.proxies[i].request()
		})
	}
}

func perSecond(sh rate.Shape) float64 { return float64(sh.Drained(time.Second)) / float64(sh.Unit) }

// Whatever the number of proxies, nearly all of a limit is used where it is asked for, next to
// nothing is denied below it, and no more is admitted than what is published; with a report an
// interval, also if that is longer than it takes to use up a burst.
func TestLending(t *testing.T) {
	const end = 60 * time.Second
	for _, interval := range []time.Duration{time.Second, 5 * time.Second} {
		for _, k := range []int{1, 2, 4, 8} {
			for _, c := range []struct{ load, used float64 }{{0.1, 0.9}, {0.5, 0.9}, {0.8, 0.85}, {3, 0.9}} {
				t.Run(fmt.Sprintf("%d proxies, %v of the limit, reports each %v", k, c.load, interval),
					func(t *testing.T) {
						f := newFleet(t, 1, k, "{unit: second, requests_per_unit: 200}")
						for _, p := range f.proxies {
							p.interval = interval
						}
						f.load(end, 200*c.load)
						f.world.Run(end)
						t.Logf("%.3f used, %d above", f.envelope.Utilisation(end, f.demand), f.envelope.Excess())
						if used := f.envelope.Utilisation(end, f.demand); used < c.used {
							t.Errorf("%.3f of it used, want %.3f", used, c.used)
						}
						if over := f.envelope.Excess(); over > f.most() {
							t.Errorf("%d above burst and rate, want %d", over, f.most())
						}
						reports := 0
						for _, p := range f.proxies {
							reports += p.reports
						}
						if most := k * (1 + int(end/interval)); reports > most {
							t.Errorf("%d reports, want %d: one an interval, and the first", reports, most)
						}
					})
			}
		}
	}
}

// most is what lending may add to burst and rate.
func (f *fleet) most() int64 {
	sh := f.shape()
	return (sh.Drained(f.ttl+quota.Grace) + sh.Unit - 1) / sh.Unit
}

// A limit that fills slowly is there for whoever comes, also when what was lent lies unused for
// long, and is given up for others who need it.
func TestSlowLimits(t *testing.T) {
	for _, c := range []struct {
		name string
		at   []time.Duration // of a request at each proxy in turn
		k    int
		want int // of them admitted, not counting the first of each proxy
	}{
		{"one after the other", []time.Duration{0, 2, 4, 6, 8}, 1, 3},
		{"now and then", []time.Duration{0, 60, 120, 180, 240}, 1, 3},
		// of which one drained, and one was denied first
		{"after a long time", []time.Duration{0, 2, 2000, 2002, 2004, 2006}, 1, 4},
		// of which one lies where nobody asks for it
		{"here and there", []time.Duration{0, 1, 10, 11, 20, 21, 30, 31}, 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleet(t, 1, c.k, "{unit: hour, requests_per_unit: 3}")
			admitted := 0
			for i, at := range c.at {
				f.world.After(at*time.Second, func() {
					if f.proxies[i%c.k].request() {
						admitted++
					}
				})
			}
			f.world.Run(time.Hour)
			if admitted != c.want {
				t.Errorf("%d admitted, want %d; %+v", admitted, c.want, f.book.Status())
			}
			if over := f.envelope.Excess(); over > 0 {
				t.Errorf("%d above burst and rate, want none", over)
			}
		})
	}
}

// Proxies are killed, join, lose their streams, and get messages late; the service stands still, is
// restarted with its store and without, loses its store for a while, and has its limit changed. No
// more is admitted than is published, with what each of these adds.
func TestFaults(t *testing.T) {
	seeds := uint64(150)
	if race.Enabled {
		seeds = 15
	}
	seen := map[string]int{}
	worst := math.Inf(-1)
	for seed := range seeds {
		f := newFleet(t, seed, 1+int(seed%8), fmt.Sprintf("{unit: %s, requests_per_unit: %d}",
			units[seed%3], 5+seed%100))
		over, at := f.suffer(t, seed, seen)
		worst = max(worst, over)
		if over > 0 {
			t.Fatalf("seed %d: %.1f tokens beyond what is published, at %v", seed, over, at)
		}
	}
	t.Logf("the most was %.1f tokens beyond; faults: %v", worst, seen)
	for _, fault := range []string{"kill", "join", "cut", "late", "freeze", "restart", "forget", "store", "change"} {
		if seen[fault] == 0 {
			t.Errorf("no seed had the fault %q", fault)
		}
	}
}

var units = []string{"second", "minute", "hour"}

func (f *fleet) suffer(t *testing.T, seed uint64, seen map[string]int) (float64, time.Duration) {
	t.Helper()
	const end = 60 * time.Second
	w, last := f.world, time.Duration(0)
	publish := func() {
		sh := f.shape()
		f.promise.Set(w.Now(), perSecond(sh), float64(sh.Burst()+f.most()))
	}
	publish()
	store := &fallible{Store: f.store}
	f.store = store
	f.begin(t)
	load := 20 + 400*w.Rand.Float64()
	drive := func(p *proxy) {
		share := w.Rand.Float64() * 2 * load / 8
		w.Poisson(func(time.Duration) float64 { return share }, end, func() { p.request() })
	}
	for _, p := range f.proxies {
		p.interval = w.Between(200*time.Millisecond, 6*time.Second)
		drive(p)
	}
	most := f.shape().Burst() // of any burst that there was
	faults := map[string]func(){
		"kill": func() { p := f.any(); p.dead = true; p.cut(w.Between(0, 30*time.Second)); drive(f.join()) },
		"join": func() { drive(f.join()) },
		"cut":  func() { f.any().cut(w.Between(0, 30*time.Second)) },
		"late": func() { // what is on its way meanwhile comes afterwards, and then what was lent last is used once more
			p, lasts := f.any(), w.Between(time.Second, 20*time.Second)
			p.from, p.to = max(p.from, w.Now()+lasts), max(p.to, w.Now()+lasts)
			f.promise.Add(w.Now(), w.Now()+lasts+f.ttl+quota.Grace, float64(most))
		},
		"freeze": func() {
			f.frozen = true
			w.After(w.Between(0, 20*time.Second), func() {
				f.frozen = false
				backlog := f.backlog
				f.backlog = nil
				for _, come := range backlog {
					come()
				}
			})
		},
		"restart": func() { f.restart(t) },
		"forget": func() { // as restart, with counters in the process itself: a burst, and what is outstanding
			store.Store = newStore(t)
			f.restart(t)
			f.promise.Add(w.Now(), w.Now()+f.ttl+quota.Grace, float64(2*most))
		},
		"store": func() { store.away = true; w.After(w.Between(0, 10*time.Second), func() { store.away = false }) },
		"change": func() { // what was lent before is used until the next report
			before := f.limits
			f.limits = read(t,
				fmt.Sprintf("domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: %s, requests_per_unit: %d}}\n",
					units[seed%3], 5+w.Rand.IntN(200)))
			f.limits.Follow(before, f.now())
			most = max(most, f.shape().Burst())
			f.promise.Add(w.Now(), w.Now()+f.ttl+quota.Grace, float64(most))
			publish()
		},
	}
	names := slices.Sorted(maps.Keys(faults))
	for range 6 {
		last += w.Between(0, 15*time.Second)
		name := names[w.Rand.IntN(len(names))]
		w.After(last, func() { seen[name]++; faults[name]() })
	}
	w.Run(end)
	return f.promise.Worst()
}

func (f *fleet) any() *proxy { return f.proxies[f.world.Rand.IntN(len(f.proxies))] }

// restart begins another process. All streams break.
func (f *fleet) restart(t *testing.T) {
	for _, p := range f.proxies {
		if p.stream != nil {
			p.stream.broken = true
		}
	}
	f.frozen, f.backlog = false, nil
	f.begin(t)
}

// fallible is a store that may be away.
type fallible struct {
	bucket.Store
	away bool
}

func (s *fallible) TryConsume(ctx stdcontext.Context, now int64, takes []bucket.Take,
	outs []bucket.Outcome) (bool, error) {
	if s.away {
		return false, bucket.ErrLost
	}
	return s.Store.TryConsume(ctx, now, takes, outs)
}

func (s *fallible) Peek(ctx stdcontext.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if s.away {
		return false, bucket.ErrLost
	}
	return s.Store.Peek(ctx, now, takes, outs)
}

func (s *fallible) Correct(ctx stdcontext.Context, now int64, changes []bucket.Change, moved []int64) error {
	if s.away {
		return bucket.ErrLost
	}
	return s.Store.Correct(ctx, now, changes, moved)
}
