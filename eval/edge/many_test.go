package edge_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/wasm"
)

// manyRules are as many templates, of several forms, each with a rule of its own.
func manyRules(t testing.TB, n int) *policy.Set {
	t.Helper()
	var templates, rules []string
	for i := range n {
		path := []string{"GET /v%d/things/{id}", "POST /service%d/items", "GET /tenants/{tenant}/part%d/{id}.json",
			"PUT /deep/{a}/of/%d/{b}", "DELETE /files%d/{path...}"}[i%5]
		template := fmt.Sprintf(path, i)
		templates = append(templates, template)
		rules = append(rules, fmt.Sprintf("%s %d/min burst %d", template, 1+i%997, 1+i%7))
	}
	document := policy.Document{Rules: ruled(t, append(rules, "default 100/s", "UNKNOWN 5/s by ip")...)}
	return compile(t, tableOf(t, endpoint.Profile{}, templates...), document)
}

// TestTenThousandRules: so many endpoints, with a rule for each, fit into one filter, which
// answers as the library does.
func TestTenThousandRules(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with -seed %d", *seed)
	const many = 10_000
	set := manyRules(t, many)
	module, err := wasm.Build(wasm.Filter, wasm.Options{Policies: set})
	if err != nil {
		t.Fatal(err)
	}
	lib := libraryOf(t, set, keysOf(t), headgate.LimitUnknown, identity.Options{})
	lib.now = 1e15
	w, ok := start(t, module, newShared(), func() int64 { return lib.now }, 0)
	if !ok {
		t.Fatalf("refused: %q", w.logged)
	}
	t.Logf("%d endpoints and rules: %d bytes, %d of memory", many, len(module), w.m.Memory().Size())
	if len(module) > 6<<20 {
		t.Errorf("%d bytes for %d endpoints and rules, want at most 6 MiB", len(module), many)
	}
	rng := rand.New(rand.NewPCG(*seed, 9))
	table := set.Endpoints()
	rules, denied := map[string]bool{}, 0
	for range 6000 {
		lib.now += rng.Int64N(1e7)
		id := endpoint.ID(1 + rng.IntN(table.Len()))
		if rng.IntN(3) == 0 {
			id = endpoint.ID(1 + rng.IntN(40)) // some more often, so that their bursts end
		}
		method, path, _ := strings.Cut(table.Template(id).String(), " ")
		target := fill(path, []string{"x", "a.b", "7"}[rng.IntN(3)])
		switch rng.IntN(8) {
		case 0:
			target += "/"
		case 1:
			target = strings.Replace(target, "1", "2", 1)
		case 2:
			method = "PATCH"
		}
		want, read := lib.ask(method, target, "192.0.2.1:1", "")
		if !read {
			t.Fatalf("net/http refuses %s %s", method, target)
		}
		same(t, method+" "+target, w.ask(method, target, "192.0.2.1:1"), want)
		name, _, _ := strings.Cut(want.fields["ratelimit"], ";")
		rules[name] = true
		denied += int(bit(want.status == 429))
	}
	t.Logf("%d rules applied, %d requests denied", len(rules), denied)
	if len(rules) < 2000 || denied < 300 {
		t.Error("this shows too little")
	}
}
