package warnings_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/warnings"
)

// minutesOf has an endpoint answered so often in each of so many minutes, one in fifty as slowly as slow.
func (b *bench) minutesOf(n, answers int, quick, slow time.Duration) {
	for range n {
		for i := range answers {
			took := quick
			if i%50 == 0 {
				took = slow
			}
			b.watch.Took("GET /a", took)
		}
		b.pass(time.Minute)
	}
}

// TestSlower: an endpoint is told of when its 99th percentile rises with what is admitted of it, for five minutes; not
// when one of both alone does, nor for less.
func TestSlower(t *testing.T) {
	b := watched(t, warnings.Marks{SlowerPercent: 100, SlowerFor: 5 * time.Minute})
	const ms = time.Millisecond
	want := func(told string) {
		t.Helper()
		if got := b.told(); got != told {
			t.Errorf("told %q, want %q", got, told)
		}
	}
	b.minutesOf(20, 200, 10*ms, 50*ms)
	b.minutesOf(8, 400, 10*ms, 500*ms)
	want("") // nobody knows yet what is usual
	b = watched(t, warnings.Marks{SlowerPercent: 100, SlowerFor: 5 * time.Minute})
	b.minutesOf(60, 200, 10*ms, 50*ms)
	b.minutesOf(20, 400, 10*ms, 60*ms)
	want("") // there is more, and the API bears it
	b.minutesOf(5, 400, 10*ms, 500*ms)
	want("")
	b.minutesOf(1, 200, 10*ms, 50*ms)
	b.minutesOf(5, 400, 10*ms, 500*ms)
	want("") // it is not five minutes without a break
	b.minutesOf(1, 400, 10*ms, 500*ms)
	e := b.events[0]
	if e.Endpoint != "GET /a" || e.Requests != 400 || e.P99 < 0.5 || e.P99 > 0.6 || e.UsualP99 < 0.05 ||
		e.UsualP99 > 0.075 || e.UsualRequests < 200 || e.UsualRequests > 290 || e.ID == "" {
		t.Errorf("%+v", e)
	}
	want("endpoint_slower begun 851%")
	if s := b.watch.Stats(); s.Active[warnings.Slower] != 1 || s.Begun[warnings.Slower] != 1 {
		t.Errorf("%+v", s)
	}
	b.minutesOf(60, 400, 10*ms, 110*ms) // by less than a hundred percent, and more than half of that
	b.minutesOf(5, 400, 10*ms, 50*ms)
	b.minutesOf(1, 400, 10*ms, 500*ms)
	b.minutesOf(5, 400, 10*ms, 50*ms)
	want("")
	b.minutesOf(1, 400, 10*ms, 50*ms)
	want("endpoint_slower over 0%")
	b.minutesOf(60, 200, 10*ms, 500*ms)
	want("") // it is slower, and there is no more of it: no limit helps
	b = watched(t, warnings.Marks{SlowerPercent: 100, SlowerFor: 5 * time.Minute})
	b.minutesOf(40, 200, ms/2, ms)
	b.minutesOf(20, 400, ms/2, 8*ms)
	want("") // seven milliseconds are felt by nobody
	b.minutesOf(20, 50, ms, 900*ms)
	want("") // of a few a percentile says nothing
	b = watched(t, warnings.Marks{SlowerPercent: 100, SlowerFor: 5 * time.Minute})
	b.minutesOf(40, 200, 10*ms, 50*ms)
	b.minutesOf(25*60, 400, 10*ms, 500*ms)
	want("endpoint_slower begun 851%, endpoint_slower over 851%") // after a day it is how things are
	b.minutesOf(6, 400, 10*ms, 500*ms)
	b.watch.Use(warnings.Marks{})
	want("")
}

// What is told of an endpoint is what a slow reading of all its minutes finds.
func TestSlowerIsWhatTheSlowWayFinds(t *testing.T) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 17))
		m := warnings.Marks{SlowerPercent: 50, SlowerFor: 3 * time.Minute}
		b := watched(t, m)
		var usual []minute // that were learned, with how long ago in minutes that were learned
		on, held, since := false, 0, 0
		load, slow := 150, 20*time.Millisecond
		for at := range 300 {
			switch random.IntN(12) {
			case 0:
				load = []int{0, 60, 150, 170, 200, 400}[random.IntN(6)]
			case 1:
				slow = time.Duration(20+random.IntN(200)) * time.Millisecond
			}
			now := minute{}
			for i := range load {
				took := 5 * time.Millisecond
				if i%40 == 0 {
					took = slow + time.Duration(random.IntN(20))*time.Millisecond
				}
				b.watch.Took("GET /a", took)
				now.add(took)
			}
			b.pass(time.Minute)
			answers, long, known := float64(load), mean(now).p99, mean(usual...)
			rise := float64(long)/float64(known.p99) - 1
			holds := answers >= 100 && known.weight >= 30 && rise >= 0.5 && long-known.p99 >= 10*time.Millisecond &&
				answers >= 1.2*known.requests
			if on {
				holds = answers < 100 || rise < 0.25 || answers < 1.1*known.requests
			} else if answers >= 100 && !holds {
				usual = append(usual, now)
			}
			if held++; !holds {
				held = 0
			}
			want := ""
			if held > 3 { // that it has held three minutes ago too
				on, held, since = !on, 0, at
				want = map[bool]string{true: "begun", false: "over"}[on]
			}
			got := ""
			for _, e := range b.events {
				got += e.State
			}
			b.events = nil
			if got != want {
				t.Fatalf("seed %d, minute %d: told %q, want %q (%v of %v, usual %+v, since minute %d)", seed, at, got,
					want, answers, long, known, since)
			}
		}
	}
}

// minute counts the answers of a minute by what they took, each time rounded up to the next of 1, 1.19, 1.41,
// 1.68, 2, … milliseconds above.
type minute map[time.Duration]int

func (m minute) add(took time.Duration) {
	n := 0.0
	for ; time.Duration(float64(time.Millisecond)*math.Exp2(n/4)) <= took; n++ {
	}
	m[time.Duration(float64(time.Millisecond)*math.Exp2(n/4))]++
}

type usually struct {
	p99              time.Duration
	requests, weight float64
}

// mean is the mean of minutes, of which one of six hours before the last weighs half.
func mean(all ...minute) (u usually) {
	weights, sum := map[time.Duration]float64{}, 0.0
	for i, m := range all {
		w := math.Exp2(-float64(len(all)-1-i) / 360)
		u.weight += w
		for took, n := range m {
			weights[took] += w * float64(n)
			sum += w * float64(n)
		}
	}
	u.requests = sum / max(1, u.weight)
	u.p99 = time.Millisecond
	below := 0.0
	for _, took := range slices.Sorted(maps.Keys(weights)) {
		if below += weights[took]; below >= 0.99*sum {
			u.p99 = took
			break
		}
	}
	return u
}

// TestOneEventAnEpisode: whatever callers, the API and those who change the marks do, each warning begins once and is
// over once, in turn; the same caller at the same rule is told of once an hour at most; and what lasts is told only
// when it has lasted.
func TestOneEventAnEpisode(t *testing.T) {
	all := map[string]int{}
	defer func() {
		for _, kind := range warnings.Kinds() {
			if all[kind] < 6 {
				t.Errorf("%d events of kind %s, want many", all[kind], kind)
			}
		}
	}()
	for seed := range uint64(15) {
		random := rand.New(rand.NewPCG(seed, 41))
		marks := warnings.Marks{
			CallerPercent: 80, CallerFill: time.Minute,
			DeniedPercent: 5, DeniedFor: 2 * time.Minute,
			SlowerPercent: 40, SlowerFor: 2 * time.Minute,
		}
		b := watched(t, marks,
			policy.Rule{Endpoint: policy.Default, Limit: 20, Per: time.Duration(1+random.IntN(90)) * time.Minute},
			policy.Rule{Endpoint: policy.All, Limit: 40, Per: 10 * time.Minute, Algorithm: policy.FixedWindow})
		type about struct{ kind, caller, rule, endpoint string }
		begun, last, changed := map[about]bool{}, map[about]time.Time{}, b.Now
		eager, slow := 1, 10
		for range 2500 {
			switch random.IntN(150) {
			case 0:
				eager = random.IntN(12)
			case 1:
				eager = 12
				slow = 10 + random.IntN(300)
			case 2:
				slow = 10 + random.IntN(5)
			}
			if random.IntN(300) == 0 { // a reload, of the same or of other marks
				next := marks
				switch random.IntN(8) {
				case 0:
					next.CallerPercent = 0
				case 1:
					next.DeniedPercent = 0
				case 2:
					next.SlowerPercent = 0
				case 3:
					next = warnings.Marks{}
				}
				b.watch.Use(next)
				changed = b.Now
			}
			for range eager {
				b.askFor(fmt.Sprint("caller ", random.IntN(3)), []string{"/a", "/b"}[random.IntN(2)])
				for range 10 * random.IntN(3) {
					b.watch.Took("GET /a", time.Duration(slow)*time.Millisecond)
				}
			}
			b.pass(10 * time.Second)
			for _, e := range b.events {
				k := about{e.Kind, e.Caller, e.Rule, e.Endpoint}
				begins := e.State == "begun"
				all[e.Kind]++
				if begun[k] == begins {
					t.Fatalf("seed %d: %s of %+v twice", seed, e.State, k)
				}
				begun[k] = begins
				least := 2 * time.Minute
				if e.Kind == warnings.NearLimit {
					least = warnings.Again
				}
				if before, told := last[k]; told && begins && b.Now.Sub(before) < least && changed.Before(before) {
					t.Fatalf("seed %d: %+v begins again after %v", seed, k, b.Now.Sub(before))
				}
				if begins || e.Kind != warnings.NearLimit {
					last[k] = b.Now
				}
			}
			b.events = nil
			active := map[string]int{}
			for k, on := range begun {
				if on {
					active[k.kind]++
				}
			}
			s := b.watch.Stats()
			listed, all := b.watch.Active(100)
			if sum := active[warnings.NearLimit] + active[warnings.Denied] + active[warnings.Slower]; all != sum ||
				len(listed) != sum {
				t.Fatalf("seed %d: %d are listed, %d are not over", seed, all, sum)
			}
			for _, kind := range warnings.Kinds() {
				if s.Active[kind] != active[kind] {
					t.Fatalf("seed %d: %d of kind %s are not over, the metric has %d", seed, active[kind], kind,
						s.Active[kind])
				}
			}
		}
	}
}
