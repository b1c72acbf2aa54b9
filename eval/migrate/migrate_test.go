//go:build unix

package migrate

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/convert"
)

var update = flag.Bool("update", false, "write the table of docs/coming-over.md")

// event is a request of a caller, so long after the start.
type event struct {
	at     time.Duration
	caller int
}

const minutes = 5

// trace is of callers for whom 100 a minute is the limit: bursts, one who keeps to it, one where minutes meet, one who
// comes at random twice as often as it allows, and one who comes back after a pause. Its start is that of a minute.
func trace() (events []event) {
	add := func(caller int, at time.Duration, n int) {
		for range n {
			events = append(events, event{at, caller})
		}
	}
	for _, at := range []int{0, 30, 61, 90, 150, 290} {
		add(1, time.Duration(at)*time.Second, 150)
	}
	for at := time.Duration(0); at < minutes*time.Minute; at += 600 * time.Millisecond {
		add(2, at, 1)
	}
	add(3, 59*time.Second, 100)
	add(3, 61*time.Second, 100)
	random := rand.New(rand.NewPCG(16, 3))
	for at := 0.0; at < 60*minutes; at += random.ExpFloat64() * 0.3 {
		add(4, time.Duration(at*1000)*time.Millisecond, 1)
	}
	add(5, 3*time.Second, 120)
	add(5, 250*time.Second, 120)
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	return events
}

// start is when a bubble of synctest begins, which is the start of a minute.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func address(caller int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(caller)}) }

// headgateBy decides by one rule.
func headgateBy(rule policy.Rule) func(*testing.T, []event) []bool {
	return func(t *testing.T, events []event) (admitted []bool) {
		t.Helper()
		template, err := endpoint.ParseTemplate("GET /a")
		if err != nil {
			t.Fatal(err)
		}
		table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
		if err != nil {
			t.Fatal(err)
		}
		set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{rule}},
			policy.CompileOptions{Endpoints: table, Now: start})
		if set == nil {
			t.Fatal(problems)
		}
		buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
		if err != nil {
			t.Fatal(err)
		}
		who, err := identity.New(identity.Options{})
		if err != nil {
			t.Fatal(err)
		}
		now := start
		l, err := headgate.New(headgate.Options{
			Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who,
			Now: func() time.Time { return now }, Keys: key.NewLasting([key.SeedSize]byte{16}),
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			now = start.Add(e.at)
			admitted = append(admitted, l.Check(t.Context(), headgate.Request{Method: "GET", Target: "/a",
				Peer: address(e.caller)}).Allowed)
		}
		return admitted
	}
}

// handlerBy decides by middleware for net/http, on the clock of a bubble.
func handlerBy(middleware func(http.Handler) http.Handler) func(*testing.T, []event) []bool {
	return func(t *testing.T, events []event) (admitted []bool) {
		synctest.Test(t, func(t *testing.T) {
			passed := false
			h := middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }))
			begin := time.Now()
			for _, e := range events {
				time.Sleep(e.at - time.Since(begin)) // of the bubble
				passed = false
				r := httptest.NewRequest("GET", "/a", nil)
				r.RemoteAddr = address(e.caller).String() + ":1024"
				h.ServeHTTP(httptest.NewRecorder(), r)
				admitted = append(admitted, passed)
			}
		})
		return admitted
	}
}

func tollboothBy(rate float64, burst int) func(*testing.T, []event) []bool {
	return func(t *testing.T, events []event) []bool {
		return handlerBy(func(next http.Handler) http.Handler {
			l := tollbooth.NewLimiter(rate, nil)
			l.SetBurst(burst).SetIPLookup(limiter.IPLookup{Name: "RemoteAddr"})
			return tollbooth.LimitHandler(l, next)
		})(t, events)
	}
}

// express decides by express-rate-limit, with the clock of the trace in the place of Node's.
func express(t *testing.T, events []event) (admitted []bool) {
	t.Helper()
	var in, log bytes.Buffer
	for _, e := range events {
		fmt.Fprintln(&in, e.at.Milliseconds(), address(e.caller))
	}
	modules, err := filepath.Abs("../../bin/garden/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "express.cjs", "100")
	cmd.Dir, cmd.Stdin, cmd.Stderr = "apps", &in, &log
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v, want what scripts/install-garden-deps installs\n%s", err, log.String())
	}
	for _, line := range strings.Fields(string(out)) {
		admitted = append(admitted, line == "1")
	}
	return admitted
}

// kong is a model of its plugin rate-limiting with policy local, which cannot be had here: it counts by the minute of
// the clock, and refuses what comes when the count has reached the limit.
func kong(_ *testing.T, events []event) (admitted []bool) {
	counts := map[[2]int]int{}
	for _, e := range events {
		at := [2]int{e.caller, int(e.at / time.Minute)}
		ok := counts[at] < 100
		if ok {
			counts[at]++
		}
		admitted = append(admitted, ok)
	}
	return admitted
}

// kongRule is what convert makes of the plugin.
func kongRule(t *testing.T) policy.Rule {
	t.Helper()
	r, err := convert.Convert("kong", []convert.File{{Name: "kong.yaml", Text: []byte(
		"_format_version: \"3.0\"\nplugins:\n- name: rate-limiting\n" +
			"  config: {minute: 100, limit_by: ip, policy: local}\n")}},
		convert.Options{})
	if err != nil || len(r.Rules) == 0 {
		t.Fatalf("%v, %v", r, err)
	}
	return r.Rules[0].Rule
}

// TestOneTrace decides a trace by each limiter and by the rule that docs/coming-over.md names in its place, and holds
// the table there.
func TestOneTrace(t *testing.T) {
	events := trace()
	hundred := policy.Rule{Endpoint: "*", Limit: 100, Per: time.Minute, Subject: policy.SubjectIP}
	with := func(a policy.Algorithm) policy.Rule {
		r := hundred
		r.Algorithm = a
		return r
	}
	rate := func(next http.Handler) http.Handler { // LimitByIP, by a name that goes on
		return httprate.LimitBy(100, time.Minute, func(r *http.Request) (string, error) {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			return host, err
		})(next)
	}
	var table strings.Builder
	var other []bool // of the row, or of the row before
	fmt.Fprintf(&table, "| there | here | admitted there, of %d | here | decided alike "+
		"| most of a caller in 60 s: there | here |\n"+
		"|---|---|---|---|---|---|---|\n", len(events))
	for _, c := range []struct {
		there, here string
		other, own  func(*testing.T, []event) []bool
		alike       float64 // at least so many of 100
	}{
		{"`httprate.LimitByIP(100, time.Minute)`", "`100/min by ip`", handlerBy(rate), headgateBy(hundred), 0},
		{"", "`algorithm: sliding_window`", nil, headgateBy(with(policy.SlidingWindow)), 0},
		{"`tollbooth.NewLimiter(5, nil)`", "`5/s by ip`", tollboothBy(5, 5),
			headgateBy(policy.Rule{Endpoint: "*", Limit: 5, Per: time.Second, Subject: policy.SubjectIP}), 100},
		{"`rateLimit({windowMs: 60000, limit: 100})`", "`algorithm: fixed_window`", express,
			headgateBy(with(policy.FixedWindow)), 0},
		{"", "`100/min by ip`", nil, headgateBy(hundred), 0},
		{"Kong's `rate-limiting`, `minute: 100` (a model)", "what `convert` makes of it", kong,
			headgateBy(kongRule(t)), 0},
	} {
		if c.other != nil {
			other = c.other(t, events)
		}
		own := c.own(t, events)
		if len(other) != len(events) || len(own) != len(events) {
			t.Fatalf("%s: %d and %d decisions of %d requests", c.here, len(other), len(own), len(events))
		}
		there, here, alike := 0, 0, 0
		for i := range events {
			if other[i] {
				there++
			}
			if own[i] {
				here++
			}
			if own[i] == other[i] {
				alike++
			}
		}
		share := 100 * float64(alike) / float64(len(events))
		if share < c.alike {
			t.Errorf("%s: %.1f of 100 decided alike, want %.0f", c.here, share, c.alike)
		}
		fmt.Fprintf(&table, "| %s | %s | %d | %d | %.1f %% | %d | %d |\n", c.there, c.here, there, here, share,
			most(events, other), most(events, own))
	}
	t.Log("\n" + table.String())
	page(t, "go test ./migrate -run TestOneTrace -update", table.String())
}

// most is how many requests of one caller were admitted in any 60 seconds, at most.
func most(events []event, admitted []bool) (n int) {
	recent := map[int][]time.Duration{}
	for i, e := range events {
		if !admitted[i] {
			continue
		}
		list := append(recent[e.caller], e.at)
		for list[0] <= e.at-time.Minute {
			list = list[1:]
		}
		recent[e.caller] = list
		n = max(n, len(list))
	}
	return n
}

// page compares a table of docs/coming-over.md, or writes it.
func page(t *testing.T, by, table string) {
	t.Helper()
	const path = "../../docs/coming-over.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin := "<!-- begin: " + by + " -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, "<!-- end -->\n")
	if !ok || !closed {
		t.Fatalf("%s does not hold %q and an end", path, begin)
	}
	want := before + begin + table + "<!-- end -->\n" + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("the table is another one: %s, in eval\n%s", by, table)
	}
}
