//go:build long

package edge_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/wasm"
)

// TestEnvoyKeepsTheBound floods two workers of a real Envoy: they admit together exactly what a
// shared burst holds, and each for itself what another does; the answers are those of every door.
func TestEnvoyKeepsTheBound(t *testing.T) {
	rules := ruled(t, "GET /shared 1/d burst 500", "GET /own 1/d burst 50", "UNKNOWN 1/s")
	rules[0].Name = "shared"
	table := tableOf(t, endpoint.Profile{}, "GET /shared", "GET /own")
	set := compile(t, table, policy.Document{Rules: rules})
	module := moduleOf(t, wasm.Options{Policies: set, Shared: []string{"shared"}, RejectUnknown: true})
	e := startEnvoy(t, filter{module: module, hops: 1})
	if !e.ready() {
		t.Fatalf("Envoy refuses the filter:\n%s", e.log)
	}
	if status, h, body := e.get(http.DefaultClient, "/shared", "192.0.2.9"); status != 200 ||
		h.Get("RateLimit") != `"shared";r=499;t=86400` || h.Get("RateLimit-Policy") == "" {
		t.Errorf("%d %v %s", status, h, body)
	}
	if status, _, body := e.get(http.DefaultClient, "/nowhere", "192.0.2.9"); status != 404 ||
		!strings.Contains(body, "No endpoint has this path.") {
		t.Errorf("%d %s", status, body)
	}
	if got := e.flood(3000, 16, "/shared", one); got[200] != 500 || got[429] != 2500 {
		t.Errorf("two workers answer %v, want 500 of a shared burst of 500, and 429 to the others", got)
	}
	if got := e.flood(1000, 16, "/own", one); got[200] < 50 || got[200] > 100 || got[200]+got[429] != 1000 {
		t.Errorf("two workers answer %v, want 50 to 100 of a burst of 50 each, and 429 to the others", got)
	}
	status, h, body := e.get(http.DefaultClient, "/shared", "192.0.2.1")
	if status != 429 || h.Get("Retry-After") == "" || h.Get("Content-Type") != "application/problem+json" ||
		!strings.Contains(body, `"violated-policies":["shared"]`) {
		t.Errorf("%d %v %s", status, h, body)
	}
	if denied := e.counter("headgate_edge_denied"); denied < 2500 {
		t.Errorf("headgate_edge_denied is %d", denied)
	}
}

// TestEnvoyBoundsManyCallers: of 50,000 callers each gets what its burst holds, in each worker, and not a request more,
// also where the workers count together; and the memory that all of them take is there from the start.
func TestEnvoyBoundsManyCallers(t *testing.T) {
	const callers, rounds, burst = 50_000, 4, 1
	table := tableOf(t, endpoint.Profile{}, "GET /own", "GET /shared")
	rules := ruled(t, "GET /own 1/d burst 1 by ip", "GET /shared 1/d burst 1 by ip", "UNKNOWN 1/s by ip")
	rules[1].Name = "shared"
	module := moduleOf(t, wasm.Options{Policies: compile(t, table, policy.Document{Rules: rules}),
		Shared: []string{"shared"}, SharedBuckets: 1 << 17})
	e := startEnvoy(t, filter{module: module, hops: 1})
	if !e.ready() {
		t.Fatalf("Envoy refuses the filter:\n%s", e.log)
	}
	caller := func(i int) string { i %= callers; return fmt.Sprintf("10.%d.%d.%d", i/65536, i/256%256, i%256) }
	for path, most := range map[string]int32{"/own": 2 * burst, "/shared": burst} {
		e.flood(5000, 16, path, caller)
		before := e.resident()
		admitted := make([]atomic.Int32, callers)
		var next atomic.Int64
		next.Store(5000) // the first have had their turn
		answers := e.floodWhile(16, path, func() (string, bool) {
			i := int(next.Add(1))
			return caller(i), i <= rounds*callers
		}, func(from string) {
			var a, b, c int
			if _, err := fmt.Sscanf(from, "10.%d.%d.%d", &a, &b, &c); err == nil {
				admitted[a<<16|b<<8|c].Add(1)
			}
		})
		after := e.resident()
		t.Logf("%s: memory %d KiB, then %d KiB after %d requests of %d callers: %v", path, before, after,
			rounds*callers, callers, answers)
		served := 0
		for i := range admitted {
			n := admitted[i].Load()
			if n > most {
				t.Errorf("%s: caller %s is admitted %d times, want at most %d", path, caller(i), n, most)
			}
			if n > 0 {
				served++
			}
		}
		if served < callers*8/10 {
			t.Errorf("%s: %d of %d callers were admitted, want nearly all", path, served, callers)
		}
		if answers[200]+answers[429] != rounds*callers-5000 {
			t.Errorf("%s: answers %v, want 200 and 429 alone", path, answers)
		}
		if after > before+8<<10 {
			t.Errorf("%s: memory grew from %d to %d KiB", path, before, after)
		}
	}
}

// TestEnvoyRefusesBadConfiguration: a filter that is given what it does not read does not load, and says why.
func TestEnvoyRefusesBadConfiguration(t *testing.T) {
	set := setOf(t, tableOf(t, endpoint.Profile{}, "GET /a"), "default 1/s", "UNKNOWN 1/s")
	e := startEnvoy(t, filter{module: moduleOf(t, wasm.Options{Policies: set}), configuration: "shadow=true"})
	if e.ready() {
		t.Fatalf("Envoy takes the filter:\n%s", e.log)
	}
	if !strings.Contains(e.log.String(), "rules are built into the module") {
		t.Errorf("Envoy does not say why:\n%s", e.log)
	}
}

// TestEnvoyReloads floods an Envoy that is given another filter again and again, one of them broken. The buckets that
// workers share go on from one filter to the next, so that all of them together admit what one burst holds; those of
// workers alone are new in each. A filter that does not load leaves the one before in force.
func TestEnvoyReloads(t *testing.T) {
	const shared, own, reloads = 3000, 20, 4
	build := func(more ...string) []byte { // rules and endpoints that are added leave the others' buckets alone
		var routes []string
		for i, rule := range more {
			routes = append(routes, fmt.Sprintf("GET /more/%d", i))
			more[i] = routes[i] + " " + rule
		}
		rules := ruled(t, append(more, "GET /shared 1/d burst 3000", "GET /own 1/d burst 20", "UNKNOWN 1/s")...)
		rules[len(more)].Name = "shared"
		table := tableOf(t, endpoint.Profile{}, append(routes, "GET /shared", "GET /own")...)
		return moduleOf(t, wasm.Options{Policies: compile(t, table, policy.Document{Rules: rules}),
			Shared: []string{"shared"}})
	}
	e := startEnvoy(t, filter{module: build(), hops: 1})
	if !e.ready() {
		t.Fatalf("Envoy refuses the filter:\n%s", e.log)
	}
	var stop atomic.Bool
	flooded := make(chan map[int]int, 2)
	for _, path := range []string{"/shared", "/own"} {
		go func() {
			flooded <- e.floodWhile(4, path, func() (string, bool) { return "192.0.2.1", !stop.Load() },
				func(string) {})
		}()
	}
	allowed := func() int { return e.counter("headgate_edge_allowed") }
	for i := range reloads {
		if !e.reload(filter{module: build(strings.Split(strings.Repeat("1/s,", i+1), ",")[:i+1]...), hops: 1}) {
			t.Errorf("Envoy refuses another filter:\n%s", e.log)
		}
		if !harness.Eventually(time.Minute, func() bool { return e.counter("listener_manager.total_filter_chains_draining") == 0 }) {
			t.Fatal("connections keep the filter before")
		}
		seen := e.counter("clients.downstream_rq_total")
		if !harness.Eventually(time.Minute, func() bool {
			return e.counter("clients.downstream_rq_total") > seen+2000
		}) {
			t.Fatal("no requests come through")
		}
	}
	broken := build()
	broken[len(broken)-100] ^= 1
	working, before := e.filter, allowed()
	if e.reload(filter{module: broken, hops: 1}) {
		t.Error("Envoy takes a filter whose data is not whole")
	}
	if !strings.Contains(e.log.String(), "the module's data is not whole") {
		t.Errorf("Envoy does not say why:\n%s", e.log)
	}
	if status, _, body := e.get(http.DefaultClient, "/more/0", "192.0.2.77"); status != 200 {
		t.Errorf("after a filter that does not load: %d %s, want 200 by the one before", status, body)
	}
	if after := allowed(); after > before+1+2*own {
		t.Errorf("%d requests were allowed meanwhile, want those of buckets that were not empty", after-before)
	}
	if !e.reload(working) {
		t.Errorf("Envoy refuses the filter that was in force:\n%s", e.log)
	}
	stop.Store(true)
	first, second := <-flooded, <-flooded
	if first[200] < second[200] {
		first, second = second, first
	}
	t.Logf("through %d reloads: shared %v, own %v", reloads+1, first, second)
	if first[200] != shared {
		t.Errorf("through %d reloads %d requests of a shared burst of %d pass", reloads+1, first[200], shared)
	}
	if most := 2 * own * (reloads + 2); second[200] > most || second[200] < own*(reloads+1) {
		t.Errorf("%d requests pass, want at most a burst of %d for each of two workers and %d filters",
			second[200], own,
			reloads+2)
	}
	for status, n := range first {
		if status != 200 && status != 429 {
			t.Errorf("%d requests are answered %d, want 200 and 429 alone", n, status)
		}
	}
}
