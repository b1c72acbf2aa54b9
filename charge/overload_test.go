package charge_test

import (
	"cmp"
	"container/heap"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

var overload = flag.Bool("overload", false, "print the table of docs/priorities.md")

// load is what one class asks for: so many callers, each as often as the next one.
type load struct {
	class   policy.Class
	second  float64 // requests of all its callers
	callers int
}

// world is an API behind one rule that all its callers share, in virtual time. Requests come by chance, each caller's
// independently of all others' (a Poisson process). The API has so many workers, and whoever finds none free waits in
// line for one; how long one works on a request is by chance as well (an exponential distribution).
type world struct {
	rule    policy.Rule
	loads   []load
	workers int
	mean    time.Duration // that a worker takes for a request
	lasts   time.Duration
}

// result is what became of the requests of a class.
type result struct {
	sent, served int
	took         []time.Duration // of those served, until their answer
	callers      []float64       // how many of each caller were served
}

func (r *result) share() float64 { return 100 * float64(r.served) / float64(max(r.sent, 1)) }

func (r *result) p99() time.Duration {
	slices.Sort(r.took)
	if len(r.took) == 0 {
		return 0
	}
	return r.took[len(r.took)*99/100]
}

// jain is 1 if all callers get the same (R. Jain, D. Chiu and W. Hawe, DEC-TR-301, 1984).
func (r *result) jain() float64 {
	sum, squares := 0.0, 0.0
	for _, n := range r.callers {
		sum, squares = sum+n, squares+n*n
	}
	return sum * sum / (float64(len(r.callers)) * squares)
}

// event is a request that comes, or one whose answer is complete.
type event struct {
	at     time.Duration
	load   int
	caller int
	done   *headgate.Reservation
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (w *world) run(t testing.TB, seed uint64) map[policy.Class]*result {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 20))
	var templates []string
	rules := []policy.Rule{w.rule}
	results, coming := map[policy.Class]*result{}, &events{}
	for i, l := range w.loads {
		templates = append(templates, "GET /"+l.class.String())
		rules = append(rules, policy.Rule{Endpoint: "GET /" + l.class.String(), Limit: 1 << 30,
			Priority: policy.Priority(l.class.String())})
		results[l.class] = &result{callers: make([]float64, l.callers)}
		for c := range l.callers {
			heap.Push(coming, event{load: i, caller: c, at: w.next(rng, l)})
		}
	}
	b := trial.New(t, templates, rules)
	free := make([]time.Duration, w.workers) // when each has done what it was given
	for coming.Len() > 0 {
		e := heap.Pop(coming).(event)
		b.Now = trial.Epoch.Add(e.at)
		if e.done != nil {
			b.MustSettle(t, e.done.ID, e.done.Cost)
			continue
		}
		l := w.loads[e.load]
		if at := e.at + w.next(rng, l); at < w.lasts {
			heap.Push(coming, event{load: e.load, caller: e.caller, at: at})
		}
		r := results[l.class]
		r.sent++
		made, d := b.Reserve(context.Background(), headgate.Request{
			Method: "GET", Target: "/" + l.class.String(),
			Peer: netip.AddrFrom4([4]byte{10, byte(e.load), byte(e.caller >> 8), byte(e.caller)}),
		}, headgate.UntilSettled)
		if !d.Allowed {
			continue
		}
		at := 0
		for i := range free {
			if free[i] < free[at] {
				at = i
			}
		}
		begins := max(e.at+d.Wait, free[at])
		free[at] = begins + time.Duration(rng.ExpFloat64()*float64(w.mean))
		heap.Push(coming, event{at: free[at], done: &made})
		r.served++
		r.callers[e.caller]++
		r.took = append(r.took, free[at]-e.at)
	}
	return results
}

// enough is how many requests each caller has to be served for chance alone to leave Jain's index above 0.95: it is
// about n/(n+1) for n requests that come independently of each other.
const enough = 30

// next is how long a caller takes until its next request.
func (w *world) next(rng *rand.Rand, l load) time.Duration {
	return time.Duration(rng.ExpFloat64() * float64(l.callers) / l.second * float64(time.Second))
}

// TestTopClassIsServedUnderOverload: while others ask for ten times what there is, the top class, which asks for no
// more than there is beside what the others are guaranteed, is served as if it were alone, and equals get the same.
func TestTopClassIsServedUnderOverload(t *testing.T) {
	// in a bubble, whose clock stands still: places are kept by a timer
	synctest.Test(t, testTopClass)
}

func testTopClass(t *testing.T) {
	const shares = "high:10,normal:10,low:5"
	perSecond := policy.Rule{Endpoint: policy.All, Limit: 200, Burst: 200, Subject: policy.SubjectEndpoint}
	queued := perSecond
	queued.Algorithm, queued.Burst = policy.LeakyBucket, 80
	underWay := policy.Rule{Endpoint: policy.All, Limit: 100, Algorithm: policy.Concurrency,
		Subject: policy.SubjectEndpoint.Counting(policy.CountsUnderWay)}
	loads := []load{{policy.High, 140, 10}, {policy.Normal, 930, 10}, {policy.Low, 930, 10}}
	more := []load{{policy.High, 300, 10}, {policy.Normal, 4850, 10}, {policy.Low, 4850, 10}}
	var table strings.Builder
	for _, c := range []struct {
		name string
		world
		top float64 // percent of the top class that are served at least
	}{
		{"200 a second", world{perSecond, loads, 30, 120 * time.Millisecond, 40 * time.Second}, 99.9},
		{"200 a second, `leaky_bucket`", world{queued, loads, 30, 120 * time.Millisecond, 40 * time.Second}, 99.9},
		{"100 at once", world{underWay, more, 100, 100 * time.Millisecond, 8 * time.Second}, 99.9},
	} {
		if c.lasts = time.Duration(race.Fewer(int(c.lasts))); *overload {
			c.lasts *= 15
		}
		idle := c.world
		idle.loads = c.loads[:1]
		alone := idle.run(t, 1)[policy.High].p99()
		for _, priority := range []policy.Priority{"", shares} {
			c.rule.Priority = priority
			got := c.run(t, 2)
			for _, l := range c.loads {
				r := got[l.class]
				p99 := float64(r.p99()) / float64(alone)
				fmt.Fprintf(&table, "| %s | %s | %s | %.0f | %.2f | %.2f | %.3f |\n", c.name,
					cmp.Or(string(priority), "none"), l.class, l.second, r.share(), p99, r.jain())
				switch {
				case priority == "":
					if l.class == policy.High && r.share() > 50 {
						t.Errorf("%s: without classes %.1f %% of the top class are served", c.name, r.share())
					}
				case l.class == policy.High && (r.share() < c.top || p99 > 2):
					t.Errorf("%s: %.2f %% of the top class are served, 99 of 100 within %.2f times as long as alone, "+
						"want %v and 2", c.name, r.share(), p99, c.top)
				case r.served == 0 || r.served >= enough*l.callers && r.jain() < 0.95:
					t.Errorf("%s: callers of class %v get %v", c.name, l.class, r.callers)
				}
			}
		}
	}
	if *overload {
		fmt.Print(table.String())
	}
}

// TestHigherClassesFindAPlaceToWait while requests of a lower one that nobody floods with alone have all they may have.
func TestHigherClassesFindAPlaceToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := []policy.Rule{
			{Endpoint: policy.All, Limit: 100, Burst: 10_000, Algorithm: policy.LeakyBucket,
				Subject: policy.SubjectEndpoint},
			{Endpoint: "GET /high", Limit: 1000, Priority: "high"},
			{Endpoint: "GET /low", Limit: 1000, Priority: "low"},
		}
		b := trial.New(t, []string{"GET /high", "GET /normal", "GET /low"}, rules, func(o *headgate.Options) {
			o.Now, o.MaxWaiters = nil, 100
		})
		served := map[string]*atomic.Int64{"/low": {}, "/normal": {}, "/high": {}}
		ask := func(target string, n int) {
			for i := range n {
				go func() {
					peer := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
					d, _ := b.Wait(t.Context(), headgate.Request{Method: "GET", Target: target, Peer: peer})
					if d.Allowed {
						served[target].Add(1)
					}
				}()
				synctest.Wait()
			}
		}
		ask("/low", 300)
		ask("/normal", 300)
		ask("/high", 300)
		if waiting, most := b.Waiters(); waiting != 85 || most != 100 {
			t.Errorf("%d of %d places are taken, want all but 15, for classes that have fewer than 5", waiting, most)
		}
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		// Each is guaranteed 5 of 100, and leaves 15, 43 and 71 to others. One more had its turn at once.
		low, normal, high := served["/low"].Load(), served["/normal"].Load(), served["/high"].Load()
		if low != 1+29 || normal != 28 || high != 28 {
			t.Errorf("%d low, %d normal and %d high were served, want 30, 28 and 28", low, normal, high)
		}
	})
}

// TestServingTheLastFirstGainsNothing: of requests that wait 200 ms at most, and come ten times as fast as they are let
// through, as many are served in time as when whoever came last is served first.
func TestServingTheLastFirstGainsNothing(t *testing.T) {
	const perSecond, patience, lasts = 100, 200 * time.Millisecond, 60 * time.Second
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: perSecond, Burst: 1000,
		Algorithm: policy.LeakyBucket, Subject: policy.SubjectEndpoint}})
	rng := rand.New(rand.NewPCG(7, 7))
	var stack []time.Duration // of those who wait, when they came; in the order of that
	inOrder, lastFirst, turn := 0, 0, time.Duration(0)
	gap := float64(time.Second) / (10 * perSecond)
	for at := time.Duration(0); at < lasts; at += time.Duration(rng.ExpFloat64() * gap) {
		for ; turn <= at; turn += time.Second / perSecond {
			for n := len(stack); n > 0; n = len(stack) {
				came := stack[n-1]
				if stack = stack[:n-1]; turn-came <= patience {
					lastFirst++
					break
				}
			}
		}
		stack = append(stack, at)
		b.Now = trial.Epoch.Add(at)
		ask := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, MaxWait: patience}
		if d := b.Check(context.Background(), ask); d.Allowed {
			inOrder++
		}
	}
	t.Logf("%d in order, %d the last first", inOrder, lastFirst)
	if inOrder < lastFirst*995/1000 || lastFirst < 5900 {
		t.Errorf("%d are served in order, %d the last first, want as many", inOrder, lastFirst)
	}
}
