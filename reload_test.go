package headgate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

// slowSource hands out rules of one limit, another one each time, when it is
// allowed to.
type slowSource struct {
	loads   atomic.Int64
	entered chan struct{}
	allowed chan struct{}
}

// projects is how many rules for projects a slowSource has, so that compiling
// them takes a while.
const projects = 20_000

func (s *slowSource) Version(context.Context) (string, error) { return "", nil }

func (s *slowSource) Load(context.Context) (policy.Document, string, error) {
	n := s.loads.Add(1)
	s.entered <- struct{}{}
	<-s.allowed
	doc := policy.Document{Rules: []policy.Rule{
		{Endpoint: policy.Default, Limit: 1_000_000 + n}, {Endpoint: policy.All, Limit: 1_000_000 + n},
		{Endpoint: policy.UnknownEndpoint, Limit: 1},
	}}
	for i := range projects {
		doc.Rules = append(doc.Rules, policy.Rule{Endpoint: "GET /a", Project: fmt.Sprint("p", i),
			Limit: 1_000_000 + n})
	}
	return doc, fmt.Sprint(n), nil
}

// Decisions go on while rules are read, compiled and put in force, and each is
// made under one whole set of rules.
func TestCheckGoesOnWhileRulesLoad(t *testing.T) {
	source := &slowSource{entered: make(chan struct{}, 1), allowed: make(chan struct{}, 1)}
	table := trial.Compile(t, []string{"GET /a"})
	cache, err := policy.NewCache(policy.CacheOptions{Source: source, Compile: policy.CompileOptions{Endpoints: table}})
	if err != nil {
		t.Fatal(err)
	}
	source.allowed <- struct{}{}
	if err := cache.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-source.entered
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: policy.Default, Limit: 1}},
		func(o *headgate.Options) {
			o.Endpoints, o.Policies, o.Now = table, cache, time.Now
		})
	decide := func() (limit int64) {
		d := b.Check(t.Context(), headgate.Request{Method: "GET", Target: "/a",
			Peer: netip.AddrFrom4([4]byte{198, 51, 100, 7})})
		if !d.Allowed || len(d.Verdicts()) != 2 {
			t.Fatalf("Check = %v with %d verdicts, want allowed by two rules", d.Reason, len(d.Verdicts()))
		}
		for i, v := range d.Verdicts() {
			if of := d.Policies().Rule(v.Rule).Limit; i == 0 {
				limit = of
			} else if of != limit {
				t.Fatalf("one decision is made under limits %d and %d, want one set of rules", limit, of)
			}
		}
		return limit
	}
	for reload := int64(1); reload <= 5; reload++ {
		var done sync.WaitGroup
		var failed error
		done.Go(func() { failed = cache.Reload(t.Context()) })
		<-source.entered
		for range 100 { // the source answers only after these
			if got, want := decide(), 1_000_000+reload; got != want {
				t.Fatalf("while load %d is under way, the limit is %d, want %d", reload+1, got, want)
			}
		}
		source.allowed <- struct{}{}
		// while it is compiled, until it is in force
		for cache.Status().LastError == "" && decide() != 1_000_001+reload {
		}
		done.Wait()
		if failed != nil {
			t.Fatal(failed)
		}
	}
}

// TestEndpointsChange: endpoints come and go while limits change, time passes, and reservations are settled. A Limiter
// to which that happens decides as one does that has had all endpoints all the time.
func TestEndpointsChange(t *testing.T) {
	all := []string{"GET /a", "GET /a/{x}", "POST /a", "GET /b", "GET /b/{rest...}", "GET /c"}
	for seed := range race.Fewer(uint64(60)) {
		rng := rand.New(rand.NewPCG(seed, 14))
		source := &trial.Database{Rules: []policy.Rule{
			{Endpoint: policy.Default, Limit: 5, Per: time.Minute},
			{Endpoint: policy.All, Limit: 40, Per: time.Minute, Subject: policy.SubjectIP},
			{Endpoint: "GET /b", Limit: 2, Per: time.Minute},
			{Endpoint: "GET /a/{y}", Limit: 3, Per: time.Hour, Burst: 7},
		}}
		now := trial.Epoch
		start := func(templates []string) (*headgate.Limiter, *policy.Cache) {
			table := trial.Compile(t, templates)
			cache, err := policy.NewCache(policy.CacheOptions{
				Source:  source,
				Compile: policy.CompileOptions{Endpoints: table},
				Now:     func() time.Time { return now },
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := cache.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			limiter, err := headgate.New(headgate.Options{
				Endpoints: table,
				Policies:  cache,
				Now:       func() time.Time { return now },
			})
			if err != nil {
				t.Fatal(err)
			}
			return limiter, cache
		}
		changing, cache := start(all)
		steady, same := start(all)
		there := all
		type pair struct {
			one, other reservation.ID
			of         string
		}
		var reserved []pair
		for step := range 400 {
			now = now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
			switch rng.IntN(12) {
			case 0:
				there = nil
				for _, template := range all {
					if rng.IntN(3) > 0 {
						there = append(there, template)
					}
				}
				if len(there) == 0 {
					there = all[:1]
				}
				costs := map[endpoint.ID]int64{}
				table := trial.Compile(t, there)
				if id, ok := table.Lookup(parse(t, "GET /c")); ok {
					costs[id] = 1 + int64(len(reserved)%2) // which the steady one is told by each request
				}
				if err := cache.Recompile(t.Context(), policy.CompileOptions{Endpoints: table,
					Costs: costs}); err != nil {
					t.Fatal(err)
				}
			case 1:
				rules := slices.Clone(source.Rules)
				rules[rng.IntN(2)].Limit = 3 + rng.Int64N(40)
				source.Rules = rules
				for _, c := range []*policy.Cache{cache, same} {
					if err := c.Reload(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			case 2:
				// One by a rule that is gone is left alone, and is not where all stay.
				if len(reserved) > 0 && (slices.Contains(there, reserved[0].of) ||
					reserved[0].of != "GET /b" && reserved[0].of != "GET /a/{x}") {
					p := reserved[0]
					reserved = reserved[1:]
					actual := rng.Int64N(4)
					a, err1 := changing.Settle(t.Context(), p.one, actual)
					b, err2 := steady.Settle(t.Context(), p.other, actual)
					if err1 != nil || err2 != nil || a.Status != b.Status {
						t.Fatalf("seed %d, step %d: settled %v, %v and %v, %v", seed, step, a, err1, b, err2)
					}
				}
			default:
				method, target := drawTarget(rng, there)
				request := headgate.Request{
					Method: method,
					Target: target,
					Peer:   netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(3))}),
				}
				told := request
				if target == "/c" {
					told.Cost = changing.Policies().Set().Cost(lookup(t, changing.Endpoints(), "GET /c"))
				}
				var a, b headgate.Decision
				if rng.IntN(4) == 0 {
					var one, other headgate.Reservation
					one, a = changing.Reserve(t.Context(), request, time.Hour)
					other, b = steady.Reserve(t.Context(), told, time.Hour)
					if a.Allowed && b.Allowed {
						reserved = append(reserved, pair{one.ID, other.ID, b.Template().String()})
					}
				} else {
					a, b = changing.Check(t.Context(), request), steady.Check(t.Context(), told)
				}
				if a.Allowed != b.Allowed || a.Reason != b.Reason || a.RetryAfter != b.RetryAfter || a.Cost != b.Cost {
					t.Fatalf("seed %d, step %d: %s %s with endpoints %v is %v, wait %v, cost %d; where all stay it "+
						"is %v, wait %v, cost %d",
						seed, step, method, target, there, a.Reason, a.RetryAfter, a.Cost, b.Reason,
						b.RetryAfter, b.Cost)
				}
				if got := a.Template().Path(); a.Allowed && got != b.Template().Path() {
					t.Fatalf("%s is %s and %s", target, got, b.Template().Path())
				}
			}
		}
	}
}

// drawTarget draws a target of one of some templates.
func drawTarget(rng *rand.Rand, there []string) (method, target string) {
	method, path, _ := strings.Cut(there[rng.IntN(len(there))], " ")
	return method, strings.NewReplacer("{x}", "7", "{rest...}", "x/y").Replace(path)
}

func parse(t *testing.T, text string) endpoint.Template {
	t.Helper()
	template, err := endpoint.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func lookup(t *testing.T, table *endpoint.Table, text string) endpoint.ID {
	t.Helper()
	id, ok := table.Lookup(parse(t, text))
	if !ok {
		t.Fatalf("%s is not in the table", text)
	}
	return id
}

// TestReload: a request is decided by what holds when it comes, and options at fault change nothing.
func TestReload(t *testing.T) {
	b := trial.New(t, []string{"GET /a", "GET /b"}, []policy.Rule{{Endpoint: "GET /b", Limit: 1}})
	decided := func() string { return fmt.Sprint(b.Get("/nothing").Reason, " ", b.Get("/a").Allowed) }
	for _, step := range []struct {
		options headgate.Options
		want    string
		fails   bool
	}{
		{headgate.Options{}, "unknown_endpoint true", false},
		{headgate.Options{Unknown: headgate.LimitUnknown, DenyWithoutRule: true}, "no_rule false", false},
		{headgate.Options{Unknown: 7, MaxWaiters: -1}, "no_rule false", true},
		{headgate.Options{DenyWithoutRule: true}, "unknown_endpoint false", false},
	} {
		if err := b.Reload(step.options); (err != nil) != step.fails {
			t.Errorf("Reload(%+v) = %v, want an error: %v", step.options, err, step.fails)
		}
		if got := decided(); got != step.want {
			t.Errorf("after %+v: %s, want %s", step.options, got, step.want)
		}
	}
}

// turning are rules that are replaced between two looks at them.
type turning struct{ at, then *policy.Set }

func (r turning) Set() *policy.Set { return r.at }

func (r turning) InForce(int64) (*policy.Set, policy.Standing) { return r.then, policy.Standing{} }

// A request is matched before the rules are asked for, and decided by one whole set of them all the same.
func TestRulesThatTurnInTheMiddleOfARequest(t *testing.T) {
	set := func(template string, limit int64) *policy.Set {
		table := trial.Compile(t, []string{template})
		set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{{Endpoint: template, Limit: limit}}},
			policy.CompileOptions{Endpoints: table})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		return set
	}
	item, path, other := set("GET /v1/{item}", 7), set("GET /v1/a", 9), set("GET /v2", 5)
	for _, c := range []struct {
		at, then *policy.Set
		want     string
	}{
		{item, item, "within_limits GET /v1/{item} 6"},
		{item, path, "within_limits GET /v1/a 8"},
		{path, item, "within_limits GET /v1/{item} 6"},
		{item, other, "unknown_endpoint"},
		{other, item, "unknown_endpoint"}, // the last moment of the rules before
	} {
		b := trial.New(t, []string{"GET /v0"}, nil, func(o *headgate.Options) { o.Policies = turning{c.at, c.then} })
		d := b.Get("/v1/a")
		got := d.Reason.String()
		if d.Allowed {
			got += fmt.Sprintf(" %v %d", d.Template(), d.Verdicts()[0].Outcome.Remaining)
		}
		if got != c.want {
			t.Errorf("a request is decided as %q, want %q", got, c.want)
		}
	}
}
