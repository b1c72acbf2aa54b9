package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

func limiter(t testing.TB, clock func() time.Time, rules []policy.Rule,
	observe func(*headgate.Request, *headgate.Decision)) *headgate.Limiter {
	t.Helper()
	return limiterWith(t, clock, rules, observe, func(*headgate.Options) {})
}

func limiterWith(t testing.TB, clock func() time.Time, rules []policy.Rule,
	observe func(*headgate.Request, *headgate.Decision), change func(*headgate.Options)) *headgate.Limiter {
	t.Helper()
	var templates []endpoint.Template
	for _, text := range []string{"GET /a", "GET /b/{id}", "POST /b", "GET /", "GET /{rest...}"} {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	table, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{Rules: rules}, policy.CompileOptions{Endpoints: table})
	if set == nil {
		t.Fatal(problems)
	}
	o := headgate.Options{Endpoints: table, Policies: headgate.Fixed(set), Now: clock, Observe: observe}
	change(&o)
	l, err := headgate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func replayed(t testing.TB, log string, rules ...[]policy.Rule) *Report {
	t.Helper()
	r, err := New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	var sides []Rules
	for i, one := range rules {
		sides = append(sides, Rules{fmt.Sprint("rules ", i), limiterWith(t, r.Clock, one, nil,
			func(o *headgate.Options) { o.Adaptive = r.Lowered() })})
	}
	r.Use(sides...)
	if err := r.Read(t.Context(), "log", strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	return r.Report()
}

// TestRecordedDecisionsAreTheSame: what a Limiter decided, with the time of each decision, is decided again as it
// was, one by one.
func TestRecordedDecisionsAreTheSame(t *testing.T) {
	denied := int64(0)
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 16))
		// windows begin where each process has them begin
		algorithms := []policy.Algorithm{policy.TokenBucket, policy.LeakyBucket}
		rules := []policy.Rule{
			{
				Endpoint:  policy.Default,
				Limit:     1 + rng.Int64N(5),
				Per:       time.Minute,
				Algorithm: algorithms[rng.IntN(len(algorithms))],
			},
			{Endpoint: policy.All, Subject: policy.SubjectIP, Limit: 10 + rng.Int64N(20), Per: time.Minute},
			{
				Endpoint: "GET /b/{id}",
				Limit:    3,
				Per:      time.Hour,
				Mode:     []policy.Mode{policy.Enforce, policy.Shadow}[rng.IntN(2)],
			},
		}
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		said := func(all *[]string) func(*headgate.Request, *headgate.Decision) {
			return func(r *headgate.Request, d *headgate.Decision) {
				binding, _ := d.Binding()
				*all = append(*all, fmt.Sprint(r.Method, r.Target, d.Allowed, d.Reason, d.RetryAfter,
					binding.Outcome.Remaining))
			}
		}
		var then, again []string
		recorded := limiter(t, func() time.Time { return now }, rules, said(&then))
		var log bytes.Buffer
		for range 500 {
			now = now.Add(time.Duration(rng.Int64N(int64(4 * time.Second))))
			e := map[string]string{
				"time":   now.Format(time.RFC3339Nano),
				"client": netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(4))}).String(),
				"method": "GET", "target": []string{"/a", "/b/1", "/b/%32?x", "/nothing/here", "/a/../b/1",
					"/%zz"}[rng.IntN(6)],
			}
			request := headgate.Request{Method: "GET", Target: e["target"], Peer: netip.MustParseAddr(e["client"])}
			if rng.IntN(3) == 0 {
				e["user"] = fmt.Sprint("u", rng.IntN(3))
				request.User = &identity.User{ID: e["user"]}
			}
			recorded.Check(t.Context(), request)
			if err := json.NewEncoder(&log).Encode(e); err != nil {
				t.Fatal(err)
			}
		}
		r, err := New("json", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Use(Rules{"the same", limiter(t, r.Clock, rules, said(&again))})
		if err := r.Read(t.Context(), "log", &log); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(then, again) {
			for i := range then {
				if then[i] != again[i] {
					t.Fatalf("seed %d: decision %d was %s, and is %s", seed, i, then[i], again[i])
				}
			}
		}
		side := r.Report().Sides[0]
		if denied += side.Denied; side.Allowed+side.Denied+side.Refused["invalid_target"] != 500 {
			t.Errorf("seed %d: %d allowed, %d denied, %v", seed, side.Allowed, side.Denied, side.Refused)
		}
	}
	if denied == 0 {
		t.Error("nothing was ever denied")
	}
}

// TestApacheLog: real lines, with counts that awk has from them.
func TestApacheLog(t *testing.T) {
	log, err := os.Open("testdata/apache_logs.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r, err := New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	once := []policy.Rule{{Endpoint: policy.All, Limit: 1, Per: 24 * time.Hour}}
	r.Use(Rules{"once a day", limiter(t, r.Clock, once, nil)},
		Rules{"all", limiter(t, r.Clock, []policy.Rule{{Endpoint: policy.All, Limit: 1e6}}, nil)})
	if err := r.Read(t.Context(), "apache_logs.gz", log); err != nil {
		t.Fatal(err)
	}
	got := r.Report()
	if got.Format != "combined" || got.Lines != 1500 || got.Requests != 1500 || got.Unread != 0 {
		t.Errorf("%d requests of %d lines as %s, %d unread", got.Requests, got.Lines, got.Format, got.Unread)
	}
	if got.Callers != 325 {
		t.Errorf("%d callers, want 325", got.Callers)
	}
	all, day := got.Sides[1], got.Sides[0]
	if all.Denied != 0 || day.Allowed+day.Denied != all.Allowed || all.NoLonger != day.Denied || all.Newly != 0 {
		t.Errorf("once a day: %d and %d; all: %d and %d, %d no longer denied", day.Allowed, day.Denied, all.Allowed,
			all.Denied, all.NoLonger)
	}
	if worst := day.Rules[0].Worst[0]; worst.Who != "66.249.73.135" {
		t.Errorf("denied most is %+v, want 66.249.73.135", worst)
	}
}

// TestWholeSeconds: requests of one second are spread over it, and time does not go back.
func TestWholeSeconds(t *testing.T) {
	line := func(second, client int) string {
		return fmt.Sprintf("192.0.2.%d - - [17/May/2015:10:05:%02d +0000] \"GET /a HTTP/1.1\" 200 5\n", client, second)
	}
	rule := []policy.Rule{{Endpoint: "GET /a", Limit: 10, Burst: 1}}
	for each, denied := range map[int]int64{10: 0, 20: 100} { // a second, for ten seconds: one every 100 ms, or 50
		var log strings.Builder
		for second := range 10 {
			log.WriteString(strings.Repeat(line(second, 1), each))
		}
		if got := replayed(t, log.String(), rule); got.Sides[0].Denied != denied || got.Late != 0 {
			t.Errorf("%d a second: %d of %d denied, %d late, want %d denied", each, got.Sides[0].Denied, got.Requests,
				got.Late, denied)
		}
	}
	late := replayed(t, line(5, 1)+line(3, 1)+line(6, 1),
		[]policy.Rule{{Endpoint: "GET /a", Limit: 1, Per: time.Second, Burst: 1}})
	if late.Late != 1 || late.Sides[0].Denied != 1 {
		t.Errorf("one line that is late: %d late, %d denied, want it counted when the one before was", late.Late,
			late.Sides[0].Denied)
	}
}

// TestDenials: the spans of a long log add up, and those of a short one are told apart.
func TestDenials(t *testing.T) {
	for _, step := range []time.Duration{time.Second, time.Hour} {
		var log strings.Builder
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		for range 20_000 {
			fmt.Fprintf(&log, `{"time": %q, "client": "192.0.2.7", "method": "GET", "target": "/a"}`+"\n",
				at.Format(time.RFC3339))
			at = at.Add(step)
		}
		denied, requests := replayed(t, log.String(),
			[]policy.Rule{{Endpoint: "GET /a", Limit: 1, Per: 2 * step, Burst: 1}}).Denials(10)
		sum := int64(0)
		for i := range requests {
			if sum += requests[i]; requests[i] < 1900 || requests[i] > 2100 || denied[i] < 0.49 || denied[i] > 0.51 {
				t.Errorf("every %v: span %d has %d requests, of which %.2f were denied; want about 2000, and half",
					step, i, requests[i], denied[i])
			}
		}
		if sum != 20_000 {
			t.Errorf("every %v: the spans have %d requests, want 20000", step, sum)
		}
	}
}

// TestUnreadLines: they are counted, the first are told with their reasons, and a log of nothing else is an error.
func TestUnreadLines(t *testing.T) {
	good := `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5` + "\n"
	got := replayed(
		t,
		good+"\n  \n"+strings.Repeat("what is this\n", 7)+good+strings.Repeat("x", 3<<20),
		[]policy.Rule{{Endpoint: policy.Default, Limit: 5}},
	)
	if got.Requests != 2 || got.Unread != 8 || len(got.Faults) != maxFaults ||
		!strings.HasPrefix(got.Faults[0].Error(), "log:4: ") {
		t.Errorf("%d requests, %d unread, told are %v", got.Requests, got.Unread, got.Faults)
	}
	r, _ := New("", nil)
	r.Use()
	if err := r.Read(t.Context(), "log", strings.NewReader("a\nb\n")); err == nil ||
		!strings.Contains(err.Error(), "no line of log could be read as combined") {
		t.Errorf("a log of nothing: %v", err)
	}
	for _, line := range []string{ // which decide nothing, and can be read
		`{"at":1,"settled":"5f","actual":3}`, `{"at":1,"skipped":7}`, `{"at":1,"skipped":-7}`,
		`{"at":1,"decision":"denied"}`,
	} {
		r, _ := New("decisions", nil)
		r.Use()
		err := r.Read(t.Context(), "log", strings.NewReader(line+"\n"))
		if got := r.Report(); err != nil || got.Unread != 0 || got.Missing < 0 {
			t.Errorf("%s: %v, %d unread, %d missing", line, err, got.Unread, got.Missing)
		}
	}
	if err := r.Read(t.Context(), "log", strings.NewReader("\x1f\x8bno")); err == nil {
		t.Error("a broken gzip is no error")
	}
	if err := r.Read(t.Context(), "log", strings.NewReader("")); err != nil {
		t.Errorf("an empty log: %v", err)
	}
	first, _ := New("", nil) // whose format is that of the first line of all
	first.Use()
	for _, log := range []string{"", "", good} {
		if err := first.Read(t.Context(), "log", strings.NewReader(log)); err != nil {
			t.Errorf("empty logs before others: %v", err)
		}
	}
	if got := first.Report(); got.Requests != 1 {
		t.Errorf("%d requests after empty logs, want 1", got.Requests)
	}
}

// TestInterrupted: what was read until then is reported.
func TestInterrupted(t *testing.T) {
	r, err := New("combined", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r.Progress = func(lines, _ int64) { stop() }
	r.Use(Rules{"rules", limiter(t, r.Clock, []policy.Rule{{Endpoint: policy.Default, Limit: 5}}, nil)})
	const lines = 50_000
	log := strings.Repeat(`192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5`+"\n", lines)
	if err := r.Read(ctx, "log", strings.NewReader(log)); err == nil {
		t.Error("it was not interrupted")
	}
	if got := r.Report(); got.Requests == 0 || got.Requests >= lines {
		t.Errorf("%d requests are reported of %d", got.Requests, lines)
	}
}

func BenchmarkRead(b *testing.B) {
	var log bytes.Buffer
	for i := range 100_000 {
		fmt.Fprintf(&log, "192.0.%d.%d - - [17/May/2015:10:%02d:%02d +0000] \"GET /b/%d HTTP/1.1\" 200 203023 "+
			"\"-\" \"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1)\"\n", i%7, i%250, i/6000%60, i/100%60, i)
	}
	for b.Loop() {
		r, _ := New("", nil)
		r.Use(Rules{"rules", limiter(b, r.Clock, []policy.Rule{{Endpoint: policy.Default, Limit: 5}}, nil)})
		if err := r.Read(b.Context(), "log", bytes.NewReader(log.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(100_000*b.N)/b.Elapsed().Seconds(), "lines/s")
}
