package activity_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/activity"
)

// gate is a limiter that an activity.Table hears of, on one clock.
type gate struct {
	testing.TB
	*headgate.Limiter
	*activity.Table
	endpoints *endpoint.Table
	now       time.Time
}

var templates = []string{"GET /v1/items/{id}", "GET /v1/files/{path...}", "GET /v1/rpc?action=login", "POST /v1/orders"}

func compileEndpoints(t testing.TB) *endpoint.Table {
	t.Helper()
	var list []endpoint.Template
	for _, text := range templates {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, template)
	}
	table, err := endpoint.Compile(list, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func newGate(t testing.TB, o activity.Options, rules ...policy.Rule) *gate {
	t.Helper()
	g := &gate{TB: t, endpoints: compileEndpoints(t), now: time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)}
	o.Now = func() time.Time { return g.now }
	var err error
	if g.Table, err = activity.New(o); err != nil {
		t.Fatal(err)
	}
	g.Limiter = g.limiter(policy.Document{Rules: rules}, o.Now, g.Observe)
	return g
}

func (g *gate) limiter(doc policy.Document, now func() time.Time,
	observe func(*headgate.Request, *headgate.Decision)) *headgate.Limiter {
	g.Helper()
	set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: g.endpoints})
	if set == nil {
		g.Fatal(problems.Err())
	}
	l, err := headgate.New(headgate.Options{
		Endpoints: g.endpoints,
		Policies:  headgate.Fixed(set),
		Now:       now,
		Observe:   observe,
		Unknown:   headgate.LimitUnknown,
	})
	if err != nil {
		g.Fatal(err)
	}
	return l
}

// ask asks n times as a user, or from an address if who is one.
func (g *gate) ask(who, method, target string, n int) (denied int) {
	g.Helper()
	r := headgate.Request{Method: method, Target: target, Peer: netip.MustParseAddr("192.0.2.1")}
	if at, err := netip.ParseAddr(who); err == nil {
		r.Peer = at
	} else {
		r.User = &identity.User{ID: who, Project: "acme"}
	}
	for range n {
		if d := g.Check(context.Background(), r); !d.Allowed {
			denied++
		}
	}
	return denied
}

func TestDeniedAreThoseOfTheLastMinute(t *testing.T) {
	early := map[string]int{}
	g := newGate(t, activity.Options{Early: func(d *headgate.Decision) { early[d.Principal.ID]++ }},
		policy.Rule{Endpoint: policy.Default, Limit: 2})
	g.ask("ann", "GET", "/v1/items/7", 7)     // 5 denied
	g.ask("192.0.2.9", "GET", "/v1/items", 3) // no rule: UNKNOWN has none
	g.ask("192.0.2.9", "POST", "/v1/orders", 4)
	callers, endpoints := g.Denied(10, true)
	if len(callers) != 2 || callers[0].ID != "ann" || callers[0].Project != "acme" || callers[0].Kind != "user" ||
		callers[0].Denied != 5 || callers[0].Rule != "default" ||
		callers[0].Endpoint != "GET /v1/items/{id}" || callers[1].Address != "192.0.2.9" || callers[1].Denied != 2 {
		t.Fatalf("Denied = %+v, want ann with 5 and 192.0.2.9 with 2", callers)
	}
	if got := callers[0].Early; got != 4 {
		t.Errorf("ann came early %d times, want 4: the first refusal told her to wait", got)
	}
	if early["ann"] != 4 || early[""] != 1 {
		t.Errorf("Early was told %v, want 4 of ann, and 1 of the address", early)
	}
	if want := g.now.Add(500 * time.Millisecond); !callers[0].Again.Equal(want) {
		t.Errorf("ann may come again at %v, want %v", callers[0].Again, want)
	}
	if len(endpoints) != 2 || endpoints[0].Denied != 5 || endpoints[0].Callers != 1 ||
		endpoints[1].Endpoint != "POST /v1/orders" {
		t.Errorf("endpoints = %+v", endpoints)
	}
	hidden, _ := g.Denied(1, false)
	if len(hidden) != 1 || hidden[0].ID+hidden[0].Project+hidden[0].Address != "" || hidden[0].Hash != callers[0].Hash {
		t.Errorf("without reveal Denied = %+v, want the hash alone", hidden)
	}
	g.now = g.now.Add(55 * time.Second)
	g.ask("ann", "GET", "/v1/items/7", 3)
	if callers, _ = g.Denied(10, true); callers[0].Denied != 6 {
		t.Errorf("after 55 s Denied = %+v, want ann with 6", callers)
	}
	g.now = g.now.Add(10 * time.Second)
	if callers, _ = g.Denied(10, true); len(callers) != 1 || callers[0].Denied != 1 {
		t.Errorf("after 65 s Denied = %+v, want the last one of ann alone", callers)
	}
	g.now = g.now.Add(time.Minute)
	if callers, _ = g.Denied(10, true); len(callers) != 0 {
		t.Errorf("two minutes later Denied = %+v, want nobody", callers)
	}
}

// A flood of callers that are denied once each must not hide one that is denied all the time, nor grow the table.
func TestManyDeniedHideNobody(t *testing.T) {
	g := newGate(t, activity.Options{MaxCallers: 64}, policy.Rule{Endpoint: policy.Default, Limit: 1, Per: time.Hour})
	heavy := 0
	for i := range 20_000 {
		who := fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
		g.ask(who, "GET", "/v1/items/7", 2)
		if i%10 == 0 {
			heavy += g.ask("ann", "GET", "/v1/items/7", 3)
		}
	}
	callers, _ := g.Denied(1000, true)
	if len(callers) > 72 {
		t.Errorf("%d callers are told apart, want about 64", len(callers))
	}
	if callers[0].ID != "ann" {
		t.Fatalf("the first is %+v, want ann", callers[0])
	}
	if got := callers[0]; got.Denied < uint64(heavy) || got.Denied-got.AtMost > uint64(heavy) {
		t.Errorf("ann was denied %d times, and Denied says %d, at most %d too high", heavy, got.Denied, got.AtMost)
	}
}

// What is tried on a sample of everybody is what happened, where it is the rules in force that are tried.
func TestATrialOfTheRulesInForceDeniesWhatTheyDid(t *testing.T) {
	rules := []policy.Rule{
		{Endpoint: policy.Default, Limit: 4, Burst: 6},
		{Endpoint: "GET /v1/rpc?action=login", Limit: 5, Per: time.Minute},
		{Endpoint: policy.All, Subject: policy.SubjectProject, Limit: 30},
		{Endpoint: policy.UnknownEndpoint, Limit: 1},
	}
	g := newGate(t, activity.Options{}, rules...)
	random := rand.New(rand.NewPCG(1, 2))
	targets := []string{"/v1/items/7", "/v1/files/a/b", "/v1/rpc?action=login", "/v1/nothing"}
	denied, asked := 0, 0
	for range 600 {
		for who := range 8 {
			n := random.IntN(4)
			name := fmt.Sprintf("user-%d", who)
			if who > 5 {
				name = fmt.Sprintf("192.0.2.%d", who)
			}
			asked += n
			denied += g.ask(name, "GET", targets[random.IntN(len(targets))], n)
		}
		g.now = g.now.Add(time.Second)
	}
	trial := activity.NewTrial(g.Sample(), g.endpoints, true)
	result, err := trial.Run(context.Background(), g.limiter(policy.Document{Rules: rules}, trial.Clock, nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := trial.Requests(); got != int64(asked) || trial.Skipped() != 0 {
		t.Fatalf("the sample has %d requests, %d skipped, want %d", got, trial.Skipped(), asked)
	}
	// What came within a second is spread over it, which shifts some.
	if diff := result.Denied - int64(denied); diff < -int64(asked)/20 || diff > int64(asked)/20 {
		t.Errorf("the trial denies %d of %d, and %d were denied", result.Denied, asked, denied)
	}
	generous := append([]policy.Rule{}, rules...)
	for i := range generous {
		generous[i].Limit, generous[i].Burst = 1000, 1000
	}
	more, err := trial.Run(context.Background(), g.limiter(policy.Document{Rules: generous}, trial.Clock, nil))
	if err != nil || more.Denied != 0 || more.NoLonger != result.Denied || more.Newly != 0 {
		t.Errorf("generous limits deny %d, %d no longer, %d newly, %v; want 0, all %d and 0", more.Denied,
			more.NoLonger, more.Newly, err, result.Denied)
	}
	sum := int64(0)
	for _, n := range result.Spans {
		sum += n
	}
	if sum != result.Denied {
		t.Errorf("spans add up to %d, want %d", sum, result.Denied)
	}
}

// With more callers than there is room for, some are kept whole: what they say for all is near what all did.
func TestASampleStandsForAll(t *testing.T) {
	g := newGate(t, activity.Options{MaxRequests: 1 << 12}, policy.Rule{Endpoint: policy.Default, Limit: 1})
	const callers, each = 8192, 3
	for round := range each {
		for i := range callers {
			g.ask(fmt.Sprintf("10.0.%d.%d", i>>8, i&255), "GET", "/v1/items/7", 2)
		}
		g.now = g.now.Add(time.Duration(1+round) * time.Second)
	}
	s := g.Sample()
	if s.Part >= 1 || s.Callers > 1<<12 {
		t.Fatalf("the sample has %d callers, a part of %v", s.Callers, s.Part)
	}
	seen := map[string]int{}
	for _, r := range s.Requests {
		seen[r.Hash] += r.Count
	}
	for hash, n := range seen {
		if n != 2*each {
			t.Errorf("caller %s has %d requests in the sample, want all %d: callers are kept whole", hash, n, 2*each)
		}
	}
	trial := activity.NewTrial(s, g.endpoints, false)
	if got := trial.Requests(); got < callers*each*2*7/10 || got > callers*each*2*13/10 {
		t.Errorf("the sample stands for %d requests, want about %d", got, callers*each*2)
	}
}

// What is older than an hour is forgotten, and a sample that was thinned grows again.
func TestASampleGrowsAgain(t *testing.T) {
	g := newGate(t, activity.Options{MaxRequests: 1 << 10}, policy.Rule{Endpoint: policy.Default, Limit: 1})
	for i := range 5000 {
		g.ask(fmt.Sprintf("10.0.%d.%d", i>>8, i&255), "GET", "/v1/items/7", 1)
	}
	thin := g.Sample().Part
	for range 30 { // hours, of which each may double it
		g.now = g.now.Add(2 * time.Hour)
		for i := range 64 {
			g.ask(fmt.Sprintf("10.1.0.%d", i), "GET", "/v1/items/7", 1)
		}
	}
	g.now = g.now.Add(61 * time.Minute)
	for i := range 64 {
		g.ask(fmt.Sprintf("10.1.0.%d", i), "GET", "/v1/items/7", 1)
	}
	if s := g.Sample(); thin > 0.25 || s.Part < 1 || s.Callers != 64 {
		t.Errorf("a sample of %v came back to %v with %d callers, want 1 with 64", thin, s.Part, s.Callers)
	}
}

func TestSeriesCountWhatCountersGained(t *testing.T) {
	g := newGate(t, activity.Options{})
	counters := map[string]activity.Counters{"default": {Admitted: 100, Denied: 7}}
	read := func() {
		g.Read(func(yield func(string, activity.Counters) bool) {
			for title, c := range counters {
				if !yield(title, c) {
					return
				}
			}
		})
	}
	read() // what was counted before the first look is of this cell
	for range 12 {
		g.now = g.now.Add(time.Second)
		counters["default"] = activity.Counters{
			Admitted: counters["default"].Admitted + 10,
			Denied:   counters["default"].Denied + 1, Abandoned: counters["default"].Abandoned + 2,
		}
		read()
	}
	s := g.Series("default")
	if got := fmt.Sprint(s.Admitted, s.Denied); got != "[140 50 30] [11 5 3]" {
		t.Errorf("Series = %s, want [140 50 30] [11 5 3]", got)
	}
	if rates := g.Rates(); len(rates) != 1 || rates[0].Hour.Admitted != 220 || rates[0].Admitted != 19 ||
		rates[0].Hour.Abandoned != 24 {
		t.Errorf("Rates = %+v, want 220 in the hour, of whom 24 left, and 19 a second in the cells before", rates)
	}
	if s := g.Series("another"); len(s.Admitted) != 3 || s.Admitted[0] != 0 {
		t.Errorf("Series of another rule = %+v, want zeros", s)
	}
	g.now = g.now.Add(2 * time.Hour)
	read()
	if rates := g.Rates(); len(rates) != 0 {
		t.Errorf("two hours later Rates = %+v, want none", rates)
	}
	if s := g.Series(); len(s.Admitted) != 720 {
		t.Errorf("an hour has %d cells, want 720", len(s.Admitted))
	}
}

func TestOptionsAtFault(t *testing.T) {
	for _, o := range []activity.Options{{MaxRequests: 1023}, {MaxRequests: 1<<24 + 1}, {MaxCallers: 63},
		{MaxCallers: 1<<16 + 1}} {
		if _, err := activity.New(o); err == nil {
			t.Errorf("New(%+v) has no error", o)
		}
	}
}

// A request that is noted again allocates nothing: neither an admitted nor a denied one.
func TestNotingAllocatesNothing(t *testing.T) {
	g := newGate(t, activity.Options{}, policy.Rule{Endpoint: policy.Default, Limit: 2})
	who := headgate.Request{Method: "GET", Target: "/v1/items/7", Peer: netip.MustParseAddr("192.0.2.1")}
	admitted, denied := headgate.Decision{}, headgate.Decision{}
	for range 4 {
		if d := g.Check(context.Background(), who); d.Allowed {
			admitted = d
		} else {
			denied = d
		}
	}
	if n := testing.AllocsPerRun(100, func() { g.Observe(&who, &admitted); g.Observe(&who, &denied) }); n != 0 {
		t.Errorf("Observe allocates %v times, want 0", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	for _, many := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("callers=%d", many), func(b *testing.B) {
			g := newGate(b, activity.Options{}, policy.Rule{Endpoint: policy.Default, Limit: 1, Per: time.Hour})
			decisions := make([]headgate.Decision, many)
			for i := range decisions {
				r := headgate.Request{
					Method: "GET",
					Target: "/v1/items/7",
					Peer:   netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}),
				}
				g.Check(context.Background(), r)
				decisions[i] = g.Check(context.Background(), r)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				g.Observe(nil, &decisions[i%many])
				i++
			}
		})
	}
}
