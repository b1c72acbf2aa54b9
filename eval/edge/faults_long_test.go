//go:build long

package edge_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/wasm"
)

// withTrap is a module that ends in a trap at requests to which the rule of a title applies: it reads its list of rules
// where no memory is. No module that Build writes does so; its checksum is made right again.
func withTrap(t testing.TB, module []byte, title string) []byte {
	t.Helper()
	module = bytes.Clone(module)
	at := bytes.Index(module, []byte("HGE1"))
	if at < 0 {
		t.Fatal("the module has no data")
	}
	data, order := module[at:], binary.LittleEndian
	data = data[:order.Uint32(data[4:])]
	const atLists, bytesOfList = 64, 16
	found := false
	for list := data[order.Uint32(data[atLists:]):]; len(list) >= bytesOfList; list = list[bytesOfList:] {
		from, length := order.Uint32(list[8:]), order.Uint32(list[12:])
		if uint64(from)+uint64(length) > uint64(len(data)) {
			break // behind the lists
		}
		if strings.HasPrefix(string(data[from:from+length]), `"`+title+`"`) {
			order.PutUint32(list, 0x8000_0000)
			found = true
			break
		}
	}
	if !found {
		t.Fatalf("no list of rules begins with %q", title)
	}
	sum := fnv.New64a()
	sum.Write(data[16:])
	order.PutUint64(data[8:], sum.Sum64())
	return module
}

// TestEnvoyAfterATrap says what becomes of requests once the virtual machine of a worker has ended
// in a trap, by Envoy's
// failure_policy: none passes unless FAIL_OPEN says so, and with FAIL_RELOAD the buckets that workers share go on.
func TestEnvoyAfterATrap(t *testing.T) {
	rules := ruled(t, "GET /shared 1/d burst 30", "GET /trap 1000000/s", "UNKNOWN 1/s")
	rules[0].Name, rules[1].Name = "shared", "trap"
	table := tableOf(t, endpoint.Profile{}, "GET /shared", "GET /trap")
	set := compile(t, table, policy.Document{Rules: rules})
	module := withTrap(t, moduleOf(t, wasm.Options{Policies: set, Shared: []string{"shared"}}), "trap")
	for _, c := range []struct {
		failure string
		after   int // the status that all requests then have, 0 if the filter goes on
	}{{"", 503}, {"FAIL_CLOSED", 503}, {"FAIL_OPEN", 200}, {"FAIL_RELOAD", 0}} {
		t.Run(c.failure, func(t *testing.T) {
			e := startEnvoy(t, filter{module: module, hops: 1, failure: c.failure})
			if !e.ready() {
				t.Fatalf("Envoy refuses the filter:\n%s", e.log)
			}
			if got := e.flood(10, 4, "/shared", one); got[200] != 10 {
				t.Fatalf("before a trap: %v", got)
			}
			trapped := e.flood(64, 32, "/trap", one) // both workers
			if c.failure != "FAIL_OPEN" && trapped[503] != 64 {
				t.Errorf("requests that end in a trap: %v, want 503", trapped)
			}
			if c.after > 0 {
				if got := e.flood(200, 32, "/shared", one); got[c.after] != 200 {
					t.Errorf("after a trap: %v, want %d", got, c.after)
				}
				return
			}
			passed := 10
			for range 100 { // traps and reloads; whoever comes while a worker has no filter is refused
				got := e.flood(20, 8, "/shared", one)
				passed += got[200]
				if got[429] == 20 {
					break
				}
				if !harness.Eventually(time.Minute, func() bool {
					_, _, _ = e.get(http.DefaultClient, "/trap", "192.0.2.1")
					status, _, _ := e.get(http.DefaultClient, "/shared", "192.0.2.1")
					passed += int(bit(status == 200))
					return status == 200 || status == 429
				}) {
					t.Fatalf("no filter after a trap:\n%s", e.log)
				}
			}
			if passed != 30 {
				t.Errorf("%d requests of a shared burst of 30 pass before and after traps", passed)
			}
			if n := e.counter("wasm.envoy.wasm.runtime.v8.plugin.headgate.vm_reload_success"); n == 0 {
				t.Error("Envoy counts no reload")
			}
		})
	}
}

// TestEnvoyKilled kills the process amid a flood, again and again: what workers share goes with it, so that each life
// admits one burst at most; and no request passes that was not counted.
func TestEnvoyKilled(t *testing.T) {
	const burst, lives = 100, 4
	rules := ruled(t, "GET /shared 1/d burst 100", "UNKNOWN 1/s")
	rules[0].Name = "shared"
	set := compile(t, tableOf(t, endpoint.Profile{}, "GET /shared"), policy.Document{Rules: rules})
	e := startEnvoy(t, filter{module: moduleOf(t, wasm.Options{Policies: set, Shared: []string{"shared"}}), hops: 1})
	var stop atomic.Bool
	var passed atomic.Int64
	flooded := make(chan map[int]int, 1)
	go func() {
		flooded <- e.floodWhile(8, "/shared", func() (string, bool) { return "192.0.2.1", !stop.Load() },
			func(string) { passed.Add(1) })
	}()
	for life := range lives {
		if life > 0 {
			e.kill()
			e.start()
		}
		if !e.ready() {
			t.Fatalf("Envoy refuses the filter:\n%s", e.log)
		}
		if !harness.Eventually(time.Minute, func() bool { return passed.Load() >= burst*int64(life+1) }) {
			t.Fatalf("life %d: %d requests pass, want %d", life, passed.Load(), burst*(life+1))
		}
	}
	stop.Store(true)
	if got := <-flooded; got[200] != burst*lives {
		t.Errorf("in %d lives %v, want a burst of %d in each", lives, got, burst)
	}
}

// TestEnvoyByAFrozenClock has a real Envoy's clock stand still amid a flood: nothing passes that the bucket did not
// hold, though at its rate thousands would have; and it fills again once the clock goes on.
func TestEnvoyByAFrozenClock(t *testing.T) {
	rules := ruled(t, "GET /shared 5000/s burst 20", "UNKNOWN 1/s")
	rules[0].Name = "shared"
	set := compile(t, tableOf(t, endpoint.Profile{}, "GET /shared"), policy.Document{Rules: rules})
	stops, library := filepath.Join(t.TempDir(), "stops"), filepath.Join(t.TempDir(), "clock.so")
	if out, err := exec.CommandContext(t.Context(), "clang", "-shared", "-fPIC", "-O2", "-o", library,
		"testdata/clock.c").CombinedOutput(); err != nil {
		t.Fatalf("clang: %v\n%s", err, out)
	}
	e := startEnvoy(t, filter{module: moduleOf(t, wasm.Options{Policies: set, Shared: []string{"shared"}}), hops: 1},
		"LD_PRELOAD="+library, "CLOCK_STOPS="+stops)
	if !e.ready() {
		t.Fatalf("Envoy refuses the filter:\n%s", e.log)
	}
	if got := e.flood(2000, 8, "/shared", one); got[200] <= 100 {
		t.Fatalf("by a clock that goes on: %v, want many of 5000 a second", got)
	}
	if err := os.WriteFile(stops, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := e.flood(500, 8, "/shared", one); got[200] > 100 {
		t.Errorf("when the clock has stopped: %v, want what was left of a burst of 20", got)
	}
	if got := e.flood(5000, 8, "/shared", one); got[429] != 5000 {
		t.Errorf("by a clock that stands still: %v, want 429 alone", got)
	}
	if err := os.Remove(stops); err != nil {
		t.Fatal(err)
	}
	if !harness.Eventually(time.Minute, func() bool {
		status, _, _ := e.get(http.DefaultClient, "/shared", "192.0.2.1")
		return status == http.StatusOK
	}) {
		t.Error("nothing passes after the clock goes on")
	}
}

// TestEnvoyBelievesNoClient: whoever makes up entries of X-Forwarded-For has one budget, that of the connection's
// address, whether Envoy says who the client is or the filter counts entries, of which Envoy has written the last.
func TestEnvoyBelievesNoClient(t *testing.T) {
	set := setOf(t, tableOf(t, endpoint.Profile{}, "GET /a"), "GET /a 1/d burst 5 by ip", "UNKNOWN 1/s by ip")
	made := func(i int) string { return fmt.Sprintf("203.0.113.%d, 198.51.100.%d", i%250, i%7) }
	for hops, passed := range []int{5, 5, 35} { // two proxies: seven addresses, as the one before Envoy would say
		e := startEnvoy(t, filter{module: moduleOf(t, wasm.Options{Policies: set, Shared: []string{"*"},
			TrustedHops: hops})})
		if !e.ready() {
			t.Fatalf("Envoy refuses the filter:\n%s", e.log)
		}
		if got := e.flood(200, 8, "/a", made); got[200] != passed {
			t.Errorf("--trusted-hops %d: %v, want that %d pass", hops, got, passed)
		}
	}
}

// TestEnvoyTakesStrangeHeads sends raw requests, such as no client should, to a real Envoy. What comes to the filter is
// answered as the library matches it; Envoy itself may refuse the rest. No worker's machine ends by it.
func TestEnvoyTakesStrangeHeads(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with -seed %d", *seed)
	rng, texts := rand.New(rand.NewPCG(*seed, 7)), corpus(t)
	table := tableOf(t, endpoint.Profile{}, templates...)
	set := setOf(t, table, "default 1000000000/s", "UNKNOWN 1000000000/s")
	e := startEnvoy(t, filter{module: moduleOf(t, wasm.Options{Policies: set, RejectUnknown: true})})
	if !e.ready() {
		t.Fatalf("Envoy refuses the filter:\n%s", e.log)
	}
	e.flood(100, 8, "/a", one)
	before := e.resident()
	wants := map[endpoint.Status]int{endpoint.Known: 200, endpoint.Invalid: 400, endpoint.UnknownPath: 404,
		endpoint.UnknownMethod: 405}
	var parameters []string
	for i := range 1000 {
		parameters = append(parameters, fmt.Sprintf("a%d=%%2F", i))
	}
	strange := []string{"/a?" + strings.Join(parameters, "&"), "/files/" + strings.Repeat("x", 50_000), "/a%",
		"/a%4", "/%c0%af", "",
		"*", "/files/" + strings.Repeat("%2e/", 10_000), strings.Repeat("/..", 15_000), "/a" + strings.Repeat(";",
			40_000)}
	answers, own := map[int]int{}, 0
	var c *connection
	for i := range 20_000 {
		var method, target string
		if method, target = anyRequest(rng, texts); rng.IntN(2) == 0 {
			target = mutate(rng, texts)
		}
		if i < len(strange) {
			method, target = "GET", strange[i]
		}
		if strings.ContainsAny(target, "\r\n\t ") || strings.Contains(target, "://") {
			continue // no target of one request, or one of which Envoy makes another
		}
		head := method + " " + target + " HTTP/1.1\r\n"
		if rng.IntN(50) > 0 {
			head += "Host: a\r\n"
		}
		if rng.IntN(4) == 0 {
			head += "X-Forwarded-For: " + anyForwarded(rng) + "\r\nOrigin: x\r\n"
		}
		if c == nil {
			c = dial(t, e.clients)
		}
		status, fields, err := c.ask(method, head+"\r\n")
		if err != nil || fields.Get("Connection") == "close" {
			c.Close()
			c = nil
		}
		ofFilter := status == 200 || fields.Get("Content-Type") == "application/problem+json"
		if !ofFilter {
			own++ // Envoy's own refusal, or none that can be read
			continue
		}
		answers[status]++
		want := wants[table.Match(method, target).Status]
		switch {
		case method == "OPTIONS" && want == 405:
			want = 200 // passes as the preflight of a browser
		case method == "WS-SEND":
			want = 405 // a message, which is no request
		}
		if status != want {
			t.Errorf("%s %q: %d, want %d", method, target, status, want)
		}
	}
	t.Logf("answers of the filter %v, and %d of Envoy alone", answers, own)
	for _, status := range []int{200, 400, 404} {
		if answers[status] < 500 {
			t.Errorf("%d answers of status %d, which shows too little", answers[status], status)
		}
	}
	if got := e.flood(200, 32, "/a", one); !maps.Equal(got, map[int]int{200: 200}) {
		t.Errorf("plain requests afterwards: %v", got)
	}
	if after := e.resident(); after > before+16<<10 {
		t.Errorf("memory grew from %d to %d KiB", before, after)
	}
	if said := e.log.String(); strings.Contains(said, "wasm") {
		t.Errorf("Envoy says of the filter:\n%s", said)
	}
}

// connection is one to Envoy, for requests that no client of net/http writes.
type connection struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func dial(t testing.TB, port int) *connection {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &connection{c, t, bufio.NewReader(c)}
}

// ask returns an error unless there is an answer after which the connection can be used. A request
// that Envoy holds without
// an answer fails the test.
func (c *connection) ask(method, head string) (status int, fields http.Header, err error) {
	c.t.Helper()
	defer func() {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.Errorf("no answer within a minute to %.200q", head)
		}
	}()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return 0, nil, err
	}
	if _, err := io.WriteString(c, head); err != nil {
		return 0, nil, err
	}
	r, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	return r.StatusCode, r.Header, err
}
