package decisionlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/decisionlog"
)

func limiter(t testing.TB, now func() time.Time, observe func(*headgate.Request, *headgate.Decision),
	rules ...policy.Rule) *headgate.Limiter {
	t.Helper()
	return limiterWith(t, now, observe, func(*headgate.Options) {}, rules...)
}

func limiterWith(t testing.TB, now func() time.Time, observe func(*headgate.Request, *headgate.Decision),
	change func(*headgate.Options), rules ...policy.Rule) *headgate.Limiter {
	t.Helper()
	template, err := endpoint.ParseTemplate("GET /v1/items/{id}")
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{Rules: rules}, policy.CompileOptions{Endpoints: table})
	if set == nil {
		t.Fatal(problems.Err())
	}
	o := headgate.Options{
		Endpoints: table,
		Policies:  headgate.Fixed(set),
		Now:       now,
		Observe:   observe,
	}
	change(&o)
	l, err := headgate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func request(user string) headgate.Request {
	return headgate.Request{
		Method: "GET",
		Target: "/v1/items/secret-7?token=hg_secret",
		Peer:   netip.MustParseAddr("192.0.2.7"),
		User:   &identity.User{ID: user, Project: "acme"},
	}
}

func hashed(p *identity.Principal) string { return fmt.Sprintf("hash-of-%d-bytes", len(p.ID)) }

// Each line says which rule decided and why, and none who the caller is or what it asked for exactly.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, err := decisionlog.New(decisionlog.Options{Write: &out, Caller: hashed, PerSecond: 10})
		if err != nil {
			t.Fatal(err)
		}
		l := limiter(t, time.Now, log.Observe, policy.Rule{Endpoint: policy.Default, Limit: 2},
			policy.Rule{
				Endpoint: policy.Default,
				Subject:  policy.SubjectIP,
				Limit:    1,
				Mode:     policy.Shadow,
				Name:     "per address",
			})
		for range 3 {
			l.Check(context.Background(), request("ann"))
		}
		l.Check(context.Background(), headgate.Request{Method: "GET", Target: "/nowhere"})
		ctx, stop := context.WithCancel(context.Background())
		stop()
		log.Run(ctx)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		want := []string{
			`{"time":"2000-01-01T00:00:00Z","at":946684800000000000,"decision":"allowed","reason":"within_limits","rule":"default","endpoint":"GET /v1/items/{id}","caller":"hash-of-3-bytes","kind":"user","address":"hash-of-0-bytes","project":"acme","cost":1,"remaining":0,"shadow_denied":["per address"]}`,
			`{"time":"2000-01-01T00:00:00Z","at":946684800000000000,"decision":"denied","reason":"over_limit","rule":"default","endpoint":"GET /v1/items/{id}","caller":"hash-of-3-bytes","kind":"user","address":"hash-of-0-bytes","project":"acme","cost":1,"remaining":0,"retry_after_seconds":0.5,"shadow_denied":["per address"]}`,
			`{"time":"2000-01-01T00:00:00Z","at":946684800000000000,"decision":"denied","reason":"unknown_endpoint","endpoint":"UNKNOWN"}`,
		}
		if strings.Join(lines, "\n") != strings.Join(want, "\n") {
			t.Errorf("the log is\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		for _, secret := range []string{"secret", "ann", "192.0.2.7", "hg_"} {
			if strings.Contains(out.String(), secret) {
				t.Errorf("the log has %q in it", secret)
			}
		}
	})
}

// A flood makes as many lines as were allowed, and a line that says how many it would have made.
func TestAFloodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, err := decisionlog.New(decisionlog.Options{Write: &out, Caller: hashed, PerSecond: 5})
		if err != nil {
			t.Fatal(err)
		}
		l := limiter(t, time.Now, log.Observe, policy.Rule{Endpoint: policy.Default, Limit: 1, Per: time.Hour})
		ctx, stop := context.WithCancel(context.Background())
		var done sync.WaitGroup
		done.Go(func() { log.Run(ctx) })
		time.Sleep(time.Second / 2) // between two ticks of the log
		for range 3 {
			for range 1000 {
				l.Check(context.Background(), request("ann"))
			}
			time.Sleep(time.Second)
		}
		stop()
		done.Wait()
		lines, skipped := 0, uint64(0)
		for line := range strings.Lines(out.String()) {
			var s decisionlog.Skipped
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatalf("%q is no JSON: %v", line, err)
			}
			if s.Skipped > 0 {
				skipped += s.Skipped
			} else {
				lines++
			}
		}
		if lines != 15 || skipped != 2999-15 {
			t.Errorf("the log has %d lines and says that %d were skipped, want 15 and %d", lines, skipped, 2999-15)
		}
	})
}

func TestSomeOfTheAdmittedAreWrittenDown(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	log, err := decisionlog.New(decisionlog.Options{
		Write:     &out,
		Caller:    hashed,
		PerSecond: 100_000,
		Admitted:  0.25,
		Now:       func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, func() time.Time { return now }, log.Observe,
		policy.Rule{Endpoint: policy.Default, Limit: 1_000_000})
	for range 10_000 {
		l.Check(context.Background(), request("ann"))
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	log.Run(ctx)
	// 2,500 of 10,000, within six standard deviations of 43.
	if n := strings.Count(out.String(), "\n"); n < 2240 || n > 2760 || !strings.Contains(out.String(), `"sampled":4`) {
		t.Errorf("%d of 10000 admitted requests were written down, want about 2500 that stand for 4 each", n)
	}
}

type broken struct{ failing bool }

func (b *broken) Write(p []byte) (int, error) {
	if b.failing {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

// A disk that is full is told of once, and so is that it has room again, with what was lost; requests go on.
func TestADiskThatIsFull(t *testing.T) {
	out, told, lost := &broken{failing: true}, 0, []uint64{}
	now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	log, err := decisionlog.New(decisionlog.Options{
		Write:  out,
		Caller: hashed,
		Failed: func(error) { told++ },
		Now:    func() time.Time { return now },

		Recovered: func(n uint64) { lost = append(lost, n) },
	})
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, func() time.Time { return now }, log.Observe, policy.Rule{Endpoint: policy.Default, Limit: 1})
	run := func() { // three times within the bound of one second
		for range 5 {
			l.Check(context.Background(), request("ann"))
		}
		ctx, stop := context.WithCancel(context.Background())
		stop()
		log.Run(ctx)
	}
	run()
	if s := log.Stats(); told != 1 || s.Lost != 4 || s.Lines != 0 {
		t.Errorf("told %d times, %+v, want once and 4 lost", told, s)
	}
	out.failing = false
	run()
	out.failing = true
	run()
	if s := log.Stats(); told != 2 || s.Lines != 5 {
		t.Errorf("told %d times, %+v, want twice and 5 lines", told, s)
	}
	out.failing = false
	run()
	run()
	if s := log.Stats(); !slices.Equal(lost, []uint64{4, 5}) || s.Lost != 9 {
		t.Errorf("told of room after %v lost lines, %+v, want 4, then 5, and 9 in all", lost, s)
	}
}

// small is a disk with so much room left.
type small struct {
	text []byte
	room int
}

func (s *small) Write(p []byte) (int, error) {
	n := min(len(p), s.room)
	s.text, s.room = append(s.text, p[:n]...), s.room-n
	if n < len(p) {
		return n, errors.New("disk full")
	}
	return n, nil
}

// A line of which a full disk took a part costs none of those that follow, once there is room.
func TestALineThatWasCutOff(t *testing.T) {
	now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	for room := range 40 {
		out := &small{room: room}
		log, err := decisionlog.New(decisionlog.Options{
			Write: out, Caller: hashed, Now: func() time.Time { return now },
		})
		if err != nil {
			t.Fatal(err)
		}
		l := limiter(t, func() time.Time { return now }, log.Observe, policy.Rule{Endpoint: policy.Default, Limit: 1})
		run := func() {
			for range 3 { // the first is admitted
				l.Check(context.Background(), request("ann"))
			}
			ctx, stop := context.WithCancel(context.Background())
			stop()
			log.Run(ctx)
		}
		run()
		out.room = 1 << 20
		run()
		whole := 0
		for line := range strings.Lines(string(out.text)) {
			if json.Valid([]byte(line)) {
				whole++
			}
		}
		if s := log.Stats(); uint64(whole) != s.Lines || s.Lines != 3 {
			t.Errorf("with room for %d bytes: %d lines can be read of %+v, want 3\n%s", room, whole, s, out.text)
		}
	}
}

func TestOptionsAtFault(t *testing.T) {
	_, err := decisionlog.New(decisionlog.Options{PerSecond: -1, Admitted: 1.5})
	if err == nil || !strings.Contains(err.Error(), "PerSecond is -1") ||
		!strings.Contains(err.Error(), "Admitted is 1.5") {
		t.Errorf("New = %v, want both faults named", err)
	}
}

// BenchmarkDenied is a flood of denied requests, decided without a log and with one to a file, by turns: on/off is the
// median ratio of the CPU time of the whole process.
func BenchmarkDenied(b *testing.B) {
	file, err := os.Create(filepath.Join(b.TempDir(), "decisions.log"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	log, err := decisionlog.New(decisionlog.Options{Write: file, Caller: hashed})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go log.Run(ctx)
	rule := policy.Rule{Endpoint: policy.Default, Limit: 1, Per: time.Hour}
	off := limiter(b, nil, func(*headgate.Request, *headgate.Decision) {}, rule)
	on := limiter(b, nil, log.Observe, rule)
	r := request("ann")
	spent := func(l *headgate.Limiter) time.Duration {
		before := cpu(b)
		for range 20_000 {
			l.Check(context.Background(), r)
		}
		return cpu(b) - before
	}
	spent(off) // the first one is admitted
	spent(on)
	var ratios []float64
	b.ReportAllocs()
	for b.Loop() {
		without, with := spent(off), spent(on)
		ratios = append(ratios, float64(with)/float64(without))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "on/off")
	b.ReportMetric(float64(log.Stats().Lines), "lines")
}

// cpu is the time for which the process has had a processor.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime))
}

// TestSettledLines: where all decisions are written down, so is what became of a reservation, under a name by which
// nobody can settle it; where some are, neither is.
func TestSettledLines(t *testing.T) {
	for _, admitted := range []float64{1, 0.999} {
		var out bytes.Buffer
		log, err := decisionlog.New(decisionlog.Options{Write: &out, Caller: hashed, Admitted: admitted})
		if err != nil {
			t.Fatal(err)
		}
		l := limiter(t, time.Now, log.Observe, policy.Rule{Endpoint: policy.Default, Limit: 20})
		r := request("a")
		r.Cost = 7
		made, d := l.Reserve(t.Context(), r, time.Minute)
		if d.Reservation != made.ID || !d.Allowed {
			t.Fatalf("Reserve = %v, and the decision names %v", made.ID, d.Reservation)
		}
		log.Settled(made.ID, 42, headgate.Answer{Actual: 3, Status: 200, Forgiven: true})
		ended, end := context.WithCancel(t.Context())
		end()
		log.Run(ended)
		var lines []map[string]any
		for line := range bytes.Lines(out.Bytes()) {
			var one map[string]any
			if err := json.Unmarshal(line, &one); err != nil {
				t.Fatal(err)
			}
			if _, settles := one["settled"]; settles || one["reservation"] != nil {
				lines = append(lines, one)
			}
		}
		if admitted < 1 {
			if len(lines) != 0 {
				t.Errorf("of some, %v", lines)
			}
			continue
		}
		if len(lines) != 2 || lines[0]["reservation"] != lines[1]["settled"] || lines[1]["at"] != 42.0 ||
			lines[1]["actual"] != 3.0 || lines[1]["status"] != 200.0 || lines[1]["outcome"] != "forgiven" {
			t.Errorf("%v", lines)
		}
		if strings.Contains(out.String(), made.ID.String()) || strings.Contains(out.String(), made.ID.String()[:16]) {
			t.Errorf("the log has the reservation's ID: %s", out.String())
		}
	}
}
