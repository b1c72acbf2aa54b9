package revert

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// limited is a Limiter over GET /a, GET /b and so on, whose rules can be
// exchanged.
type limited struct {
	*headgate.Limiter
	endpoints *endpoint.Table

	mu  sync.Mutex
	set *policy.Set // guarded by mu
}

func (l *limited) Set() *policy.Set {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.set
}

func (l *limited) use(set *policy.Set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set = set
}

func table(t testing.TB, templates ...string) *endpoint.Table {
	t.Helper()
	var all []endpoint.Template
	for _, text := range templates {
		template, err := endpoint.ParseTemplate(text)
		must(t, err)
		all = append(all, template)
	}
	made, err := endpoint.Compile(all, endpoint.Profile{})
	must(t, err)
	return made
}

func compile(t testing.TB, endpoints *endpoint.Table, doc policy.Document) *policy.Set {
	t.Helper()
	set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: endpoints})
	if set == nil {
		t.Fatal(problems)
	}
	return set
}

func newLimited(t testing.TB, observe func(*headgate.Request, *headgate.Decision),
	change ...func(*headgate.Options)) *limited {
	t.Helper()
	l := &limited{endpoints: table(t, "GET /a", "GET /b", "GET /c")}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 12})
	must(t, err)
	who, err := identity.New(identity.Options{})
	must(t, err)
	o := headgate.Options{
		Endpoints: l.endpoints, Policies: l, Buckets: buckets, Identities: who, Unknown: headgate.LimitUnknown,
		Observe: observe,
	}
	for _, c := range change {
		c(&o)
	}
	l.Limiter, err = headgate.New(o)
	must(t, err)
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// send sends requests from one address and reports how many were denied.
func (l *limited) send(t testing.TB, target string, from byte, n int) (denied int) {
	t.Helper()
	for range n {
		r := headgate.Request{Method: "GET", Target: target, Peer: netip.AddrFrom4([4]byte{192, 0, 2, from})}
		if d := l.Check(t.Context(), r); !d.Allowed {
			denied++
		}
	}
	return denied
}

// What counts, and as what. Shadow rules deny nobody, and so do not count.
func TestMeterCountsWhatClientsWereTold(t *testing.T) {
	var m *meter
	l := newLimited(t, func(r *headgate.Request, d *headgate.Decision) { m.observe(r, d) })
	m = newMeter(l.endpoints)
	cases := []struct {
		name   string
		target string
		rules  []policy.Rule
		want   Count // of five requests
	}{
		{"no rule", "/a", []policy.Rule{{Endpoint: "GET /b", Limit: 1}}, Count{5, 0}},
		{"within the limit", "/a", []policy.Rule{{Endpoint: "GET /a", Limit: 100}}, Count{5, 0}},
		{"over the limit", "/c", []policy.Rule{{Endpoint: "GET /c", Limit: 2, Per: time.Hour}}, Count{5, 3}},
		{"over a limit in shadow", "/b", []policy.Rule{{Endpoint: "GET /b", Limit: 2, Per: time.Hour,
			Mode: policy.Shadow}}, Count{5, 0}},
		{"no endpoint", "/x", []policy.Rule{{Endpoint: "UNKNOWN", Limit: 1, Per: time.Hour}}, Count{5, 4}},
		{"no safe reading", "/%zz", []policy.Rule{{Endpoint: "UNKNOWN", Limit: 1, Per: time.Hour}}, Count{}},
	}
	for _, c := range cases {
		l.use(compile(t, l.endpoints, policy.Document{Rules: c.rules}))
		before := make([]uint64, len(m.counts))
		m.read(before)
		l.send(t, c.target, 1, 5)
		var sum Count
		for id := range m.counts {
			sum = sum.plus(since(before[id], m.counts[id].word.Load()))
		}
		if sum != c.want {
			t.Errorf("%s: counted %+v, want %+v", c.name, sum, c.want)
		}
	}
}

// What a rate denies that is lowered, as the API is slow, is no fault of a change of rules.
func TestMeterCountsNoLoweredRate(t *testing.T) {
	var m *meter
	slow, now := &adaptive.Table{}, time.Now().Add(-5*time.Second).UnixNano()
	l := newLimited(t, func(r *headgate.Request, d *headgate.Decision) { m.observe(r, d) },
		func(o *headgate.Options) { o.Adaptive = slow })
	m = newMeter(l.endpoints)
	l.use(compile(t, l.endpoints, policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /a", Limit: 2, Per: time.Hour}, {Endpoint: "GET /b", Limit: 2, Per: time.Hour},
	}}))
	slow.Use(map[string]adaptive.Settings{"GET /a": {SLO: time.Millisecond, Floor: 1}}, now)
	for n := range uint64(60) {
		slow.Named("GET /a").Sent(now, n)
		slow.Named("GET /a").Answered(now, n, time.Second, true)
	}
	for target, want := range map[string]Count{"/a": {2, 0}, "/b": {5, 3}} {
		l.send(t, target, 1, 5)
		id := l.endpoints.Match("GET", target).ID
		if got := since(0, m.counts[id].word.Load()); got != want {
			t.Errorf("%s: counted %+v, want %+v", target, got, want)
		}
	}
}

// Callers are told apart on trial alone, and only under the rules on trial.
func TestMeterCountsCallersOnTrial(t *testing.T) {
	var m *meter
	l := newLimited(t, func(r *headgate.Request, d *headgate.Decision) { m.observe(r, d) })
	m = newMeter(l.endpoints)
	set := compile(t, l.endpoints,
		policy.Document{Rules: []policy.Rule{{Endpoint: "GET /a", Limit: 2, Per: time.Hour}}})
	on := &trial{cells: &cells{}}
	m.put(set, map[endpoint.ID]*trial{1: on})
	l.use(set)
	for from := range 40 {
		l.send(t, "/a", byte(from), 5)
	}
	l.send(t, "/b", 1, 5)
	if got := on.cells.without(0); got != (Count{200, 120}) {
		t.Errorf("all callers = %+v, want 200 requests and 120 denied", got)
	}
	rest := on.cells.without(39)
	if rest.Total < 5 && rest.Total != 0 { // callers share cells: what is left are whole ones
		t.Errorf("without 39 callers = %+v, want the requests of whole callers", rest)
	}
	used := 0
	for i := range on.cells {
		if on.cells[i].Load() != 0 {
			used++
		}
	}
	if used < 15 {
		t.Errorf("40 callers are counted in %d cells, want them spread", used)
	}
	l.use(compile(t, l.endpoints,
		policy.Document{Rules: []policy.Rule{{Endpoint: "GET /a", Limit: 3, Per: time.Hour}}}))
	l.send(t, "/a", 1, 5)
	if got := on.cells.without(0); got != (Count{200, 120}) {
		t.Errorf("under other rules: all callers = %+v, want what was counted before", got)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	for _, tried := range []bool{false, true} {
		m, d := observed(t, tried)
		if n := testing.AllocsPerRun(100, func() { m.observe(nil, d) }); n != 0 {
			t.Errorf("on trial %v: observe allocates %v times, want 0", tried, n)
		}
	}
}

// observed is a meter and a decision for it.
func observed(t testing.TB, tried bool) (*meter, *headgate.Decision) {
	l := newLimited(t, nil)
	m := newMeter(l.endpoints)
	set := compile(t, l.endpoints, policy.Document{Rules: []policy.Rule{{Endpoint: "GET /a", Limit: 2}}})
	l.use(set)
	if tried {
		m.put(set, map[endpoint.ID]*trial{1: {cells: &cells{}}})
	}
	d := l.Check(t.Context(), headgate.Request{Method: "GET", Target: "/a", Peer: netip.MustParseAddr("192.0.2.1")})
	return m, &d
}

func BenchmarkObserve(b *testing.B) {
	for name, tried := range map[string]bool{"quiet": false, "on trial": true} {
		m, d := observed(b, tried)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.observe(nil, d)
			}
		})
		b.Run(name+", parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m.observe(nil, d)
				}
			})
		})
	}
}
