//go:build long

package edge_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/wasm"
)

// processor is how many nanoseconds of processor time all threads of the process have had, in user
// space and in the kernel.
func (e *envoy) processor() (all int64) {
	e.t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", e.cmd.Process.Pid))
	if err != nil || len(tasks) == 0 {
		e.t.Fatalf("the process has no threads: %v", err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			e.t.Fatal(err)
		}
		var spent int64
		if _, err := fmt.Sscan(string(text), &spent); err != nil {
			e.t.Fatalf("%s: %v", task, err)
		}
		all += spent
	}
	return all
}

// send sends n requests on each of the connections, one after another, and returns how many nanoseconds of the
// processor each took.
func (e *envoy) send(connections, n int, head string) float64 {
	e.t.Helper()
	before := e.processor()
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			c := dial(e.t, e.clients)
			defer c.Close()
			for range n {
				if status, _, err := c.ask("GET", head); err != nil || status != http.StatusOK {
					e.t.Errorf("status %d, error %v", status, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(e.processor()-before) / float64(connections*n)
}

// nothing is a filter that does nothing.
func nothing(t testing.TB) []byte {
	t.Helper()
	object, module := filepath.Join(t.TempDir(), "nothing.o"), filepath.Join(t.TempDir(), "nothing.wasm")
	for _, args := range [][]string{
		{"clang", "--target=wasm32", "-Oz", "-ffreestanding", "-nostdlib", "-c", "-o", object, "testdata/nothing.c"},
		{"wasm-ld", "--no-entry", "--strip-all", "-o", module, object},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	b, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestEnvoyCosts measures what a request costs Envoy with the filter, beside an Envoy without, and
// one with a filter that
// does nothing, as processor time, in turns: `make edge-bench`. It fails at nothing but wrong
// answers: how busy the machine is decides the rest.
func TestEnvoyCosts(t *testing.T) {
	const rounds, connections, requests = 21, 8, 2500
	table := tableOf(t, endpoint.Profile{}, templates...)
	small := compile(t, table, policy.Document{Rules: ruled(t, "default 1000000000/s", "UNKNOWN 5/s")})
	two := compile(t, table, policy.Document{Rules: ruled(t, "default 1000000000/s", "* 1000000000/s by ip",
		"UNKNOWN 5/s")})
	var many []policy.Rule
	var paths []string
	for i := range 10_000 {
		paths = append(paths, fmt.Sprintf("GET /v%d/items/{id}", i))
		many = append(many, ruled(t, paths[i]+" 1000000000/s")...)
	}
	large := compile(t, tableOf(t, endpoint.Profile{}, paths...), policy.Document{Rules: append(many, ruled(t,
		"UNKNOWN 5/s")...)})
	keys := keysOf(t, "acme")
	const plain = "GET /v1/items/7?a=b HTTP/1.1\r\nHost: api.example\r\nUser-Agent: some client/1.0\r\nAccept: */*\r\n"
	variants := []struct {
		name  string
		o     *wasm.Options
		other []byte // a module that is none of ours
		head  string
		times []float64
	}{
		{name: "no filter", head: plain},
		{name: "a filter that does nothing", other: nothing(t), head: plain},
		{name: "one rule", o: &wasm.Options{Policies: small}, head: plain},
		{name: "two rules", o: &wasm.Options{Policies: two}, head: plain},
		{name: "10,000 templates and rules", o: &wasm.Options{Policies: large}, head: plain},
		{name: "one rule, shared by workers", o: &wasm.Options{Policies: small, Shared: []string{"*"}}, head: plain},
		{name: "one rule, API key", o: &wasm.Options{Policies: small, Keys: keys.records, Secret: keys.secret},
			head: plain + "X-Api-Key: " + keys.texts[0] + "\r\n"},
	}
	var envoys []*envoy
	for _, v := range variants {
		f := filter{module: v.other}
		if v.o != nil {
			f.module = moduleOf(t, *v.o)
		}
		e := startEnvoy(t, f)
		if !e.ready() {
			t.Fatalf("%s: Envoy refuses the filter:\n%s", v.name, e.log)
		}
		e.send(connections, 500, v.head+"\r\n")
		envoys = append(envoys, e)
	}
	for range rounds {
		for i := range variants {
			variants[i].times = append(variants[i].times, envoys[i].send(connections, requests,
				variants[i].head+"\r\n"))
		}
	}
	median := func(values []float64) float64 {
		values = slices.Sorted(slices.Values(values))
		return values[len(values)/2]
	}
	base := variants[0].times
	var b strings.Builder
	for _, v := range variants {
		var added, ratios []float64
		for i, spent := range v.times {
			added = append(added, spent-base[i])
			ratios = append(ratios, spent/base[i])
		}
		fmt.Fprintf(&b, "\n%-28s %6.2f µs, %+6.2f µs, × %.2f", v.name, median(v.times)/1e3, median(added)/1e3,
			median(ratios))
	}
	t.Logf("processor time of Envoy for a request: medians of %d rounds of %d requests, added and ratio in one round%s",
		rounds, connections*requests, b.String())
}
