package adaptive_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/endpoint"
)

func TestJudge(t *testing.T) {
	const whole = adaptive.Whole
	for _, c := range []struct {
		m, floor int
		w        adaptive.Window
		next     int
		o        adaptive.Outcome
	}{
		{whole, 100, adaptive.Window{Sent: 100, Done: 100}, whole, adaptive.Held},
		{whole, 100, adaptive.Window{Sent: 100, Done: 100, Refused: 5}, whole, adaptive.Held},
		{500, 100, adaptive.Window{Sent: 100, Done: 100}, 500, adaptive.Held}, // nobody asks for more
		{500, 100, adaptive.Window{Sent: 100, Done: 100, Refused: 1}, 520, adaptive.Raised},
		{1010, 100, adaptive.Window{Sent: 100, Done: 100, Refused: 1}, whole, adaptive.Raised},
		{1000, 100, adaptive.Window{Sent: 100, Done: 100, Slow: true, Refused: 9}, 900, adaptive.Lowered},
		{1000, 100, adaptive.Window{Sent: 100, Done: 100, Failing: true}, 900, adaptive.Lowered},
		{1000, 100, adaptive.Window{Sent: 100, Done: 100, Slow: true, Late: true}, 900, adaptive.Cut},
		{1000, 100, adaptive.Window{Sent: 100, Done: 80, Slow: true, Late: true}, 760, adaptive.Cut},
		{1000, 100, adaptive.Window{Sent: 100, Done: 120, Slow: true, Late: true}, 900, adaptive.Cut},
		{1000, 100, adaptive.Window{Sent: 100, Done: 1, Slow: true, Late: true}, 500, adaptive.Cut},
		{105, 100, adaptive.Window{Sent: 100, Done: 1, Slow: true, Late: true}, 100, adaptive.Cut},
		{1, 1, adaptive.Window{Sent: 100, Done: 1, Slow: true, Late: true}, 1, adaptive.Cut},
	} {
		if next, o := adaptive.Judge(c.m, c.floor, c.w); next != c.next || o != c.o {
			t.Errorf("Judge(%d, %d, %+v) = %d, %v, want %d, %v", c.m, c.floor, c.w, next, o, c.next, c.o)
		}
	}
}

// FuzzJudge: whatever is seen, the multiplier stays between floor and 1, falls by no more than half or to the floor,
// and grows by no more than 0.02.
func FuzzJudge(f *testing.F) {
	f.Add(500, 100, int64(10), int64(20), int64(1), true, true, false)
	f.Fuzz(func(t *testing.T, m, floor int, sent, done, refused int64, slow, late, failing bool) {
		floor = 1 + abs(floor)%adaptive.Whole
		m = floor + abs(m)%(adaptive.Whole-floor+1)
		w := adaptive.Window{Sent: sent & (1<<40 - 1), Done: done & (1<<40 - 1), Refused: refused & (1<<40 - 1),
			Slow: slow || late, Late: late, Failing: failing}
		next, o := adaptive.Judge(m, floor, w)
		if next < floor || next > adaptive.Whole || next < m/2 || next > m+adaptive.Whole/50 ||
			o.String() == "unknown" {
			t.Fatalf("Judge(%d, %d, %+v) = %d, %v", m, floor, w, next, o)
		}
		if bad := w.Slow || failing; bad && next > m || !bad && next < m {
			t.Fatalf("Judge(%d, %d, %+v) = %d, %v", m, floor, w, next, o)
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

const (
	second = int64(time.Second)
	slo    = 100 * time.Millisecond
	name   = "GET /a"
)

// bench is one endpoint, and the time.
type bench struct {
	*adaptive.Endpoint
	table  *adaptive.Table
	t      testing.TB
	now    int64
	events []string
}

func newBench(t testing.TB, s adaptive.Settings) *bench {
	b := &bench{t: t, now: 1000 * second}
	table := &adaptive.Table{Notify: func(e adaptive.Event) {
		b.events = append(b.events, fmt.Sprint(e.Begun, " ", e.Status.Multiplier))
	}}
	table.Use(map[string]adaptive.Settings{name: s}, b.now)
	b.table, b.Endpoint = table, table.Named(name)
	return b
}

// second has so many answers of each caller come in it, by what they took.
func (b *bench) second(answers int, took func(caller, n int) time.Duration, callers int) {
	for n := range answers {
		for c := range callers {
			took := took(c, n)
			b.Sent(b.now, uint64(c))
			b.Answered(b.now, uint64(c), took, took < 0)
		}
	}
	b.now += second
}

func always(d time.Duration) func(int, int) time.Duration {
	return func(int, int) time.Duration { return d }
}

func (b *bench) want(multiplier int, last adaptive.Outcome) {
	b.t.Helper()
	if s := b.Status(b.now); s.Multiplier != multiplier || s.Last != last {
		b.t.Errorf("at %d s: multiplier %d, %v (%s), want %d, %v", b.now/second-1000, s.Multiplier, s.Last, s.Words(),
			multiplier, last)
	}
	if m := b.Lowered(b.now).Own.Part(); m != multiplier {
		b.t.Errorf("at %d s: rates are at %d/1024, want %d", b.now/second-1000, m, multiplier)
	}
}

func TestEndpointFollowsTheAPI(t *testing.T) {
	b := newBench(t, adaptive.Settings{SLO: slo, Floor: 100})
	b.second(10, always(50*time.Millisecond), 10)
	b.want(adaptive.Whole, adaptive.Held)
	b.second(10, always(61*time.Millisecond), 10)
	b.want(921, adaptive.Lowered)
	b.second(10, always(101*time.Millisecond), 10)
	b.want(828, adaptive.Cut)
	b.second(10, func(_, n int) time.Duration { return -time.Duration(1 - n%2) }, 10) // every second one fails
	b.want(745, adaptive.Lowered)
	b.second(10, always(20*time.Millisecond), 10)
	b.want(745, adaptive.Held) // nobody asks for more
	b.Refused(true, false)
	b.second(10, always(20*time.Millisecond), 10)
	b.want(765, adaptive.Raised)
	for range 40 {
		b.second(10, always(time.Second), 10)
	}
	b.want(100, adaptive.Cut) // no less than the floor
	for range 60 {
		b.Refused(true, false)
		b.second(10, always(20*time.Millisecond), 10)
	}
	b.want(adaptive.Whole, adaptive.Held) // and no more than 1
	for range 60 {
		b.second(10, always(20*time.Millisecond), 10)
	}
	if b.Lowered(b.now).Own != nil {
		t.Error("a minute after it is 1 again, rates are not as if nothing had been")
	}
	if got := strings.Join(b.events, ", "); got != "true 921, false 1024" {
		t.Errorf("told %q, want once that it begins and once that it is over", got)
	}
}

// TestOneCallerIsOneVoice: who asks for what is slow, or fails, however often, has nobody else limited; half of the
// callers have.
func TestOneCallerIsOneVoice(t *testing.T) {
	for _, bad := range []time.Duration{time.Second, -1} {
		for _, c := range []struct{ callers, poisoned, flood, lowered int }{
			{2, 1, 500, 0}, {3, 1, 500, 0}, {50, 24, 20, 0}, {50, 26, 1, 1}, {300, 60, 5, 0}, {1, 1, 1, 1},
		} {
			b := newBench(t, adaptive.Settings{SLO: slo, Floor: 100})
			for range 10 {
				for n := range max(1, c.flood) {
					for caller := range c.poisoned {
						if n > 0 {
							b.Sent(b.now, uint64(caller))
							b.Answered(b.now, uint64(caller), bad, bad < 0)
						}
					}
				}
				b.second(60/c.callers+1, func(caller, _ int) time.Duration {
					if caller < c.poisoned {
						return bad
					}
					return 20 * time.Millisecond
				}, c.callers)
			}
			s := b.Status(b.now)
			if (s.Multiplier < adaptive.Whole) != (c.lowered > 0) {
				t.Errorf("%d of %d callers, %v: multiplier %d, %s", c.poisoned, c.callers, bad, s.Multiplier, s.Words())
			}
		}
	}
}

// TestAPIThatStops: what is not answered at all is no silence.
func TestAPIThatStops(t *testing.T) {
	b := newBench(t, adaptive.Settings{SLO: slo, Floor: 100})
	for range 5 {
		for n := range 100 {
			b.Sent(b.now, uint64(n%10))
		}
		b.now += second
	}
	b.want(100, adaptive.Cut)
}

// TestClientsThatLeave: whoever leaves at once says nothing, and whoever leaves late says that it was late.
func TestClientsThatLeave(t *testing.T) {
	for after, lowered := range map[time.Duration]bool{10 * time.Millisecond: false, 200 * time.Millisecond: true} {
		b := newBench(t, adaptive.Settings{SLO: slo, Floor: 100})
		for range 5 {
			for n := range 100 {
				b.Sent(b.now, uint64(n%10))
				b.Left(b.now, uint64(n%10), after)
			}
			b.now += second
			b.Lowered(b.now)
		}
		if got := b.Status(b.now).Multiplier < adaptive.Whole; got != lowered {
			t.Errorf("who leaves after %v lowers rates: %v, want %v", after, got, lowered)
		}
	}
}

func TestLossOfSignal(t *testing.T) {
	b := newBench(t, adaptive.Settings{SLO: slo, Floor: 100})
	for range 30 {
		b.second(10, always(time.Second), 10)
	}
	b.want(100, adaptive.Cut)
	for _, c := range []struct {
		after int64 // seconds since the last answer
		want  int
	}{{9, 100}, {10, 100}, {19, 100}, {20, 284}, {30, 469}, {40, 654}, {50, 839}, {59, 839}, {60, 1024}, {1000, 1024}} {
		last := adaptive.TooFew
		if c.after < 10 {
			last = adaptive.Cut
		}
		one := *b
		one.now += c.after * second
		if s := one.Status(one.now); s.Multiplier != c.want || s.Last != last {
			t.Errorf("%d s without an answer: %d, %v, want %d, %v", c.after, s.Multiplier, s.Last, c.want, last)
		}
	}
	// What it was at meanwhile counts, though nobody asked: so buckets have filled again.
	at := 1000*second + 30*second
	if got := b.Lowered(b.now + 1000*second).Own; got.Elapsed(at, at+60*second) < 20*second {
		t.Errorf("in the minute of the return buckets fill for %v", time.Duration(got.Elapsed(at, at+60*second)))
	}
}

func TestOneRequestAMinute(t *testing.T) {
	b := newBench(t, adaptive.Settings{SLO: slo, Floor: 100})
	for range 100 {
		b.Sent(b.now, 1)
		b.Answered(b.now+3*second, 1, 3*time.Second, true)
		b.now += 60 * second
	}
	b.want(adaptive.Whole, adaptive.TooFew)
	// Six a second make a window of nine seconds.
	for range 40 {
		b.second(6, always(time.Second), 1)
	}
	if s := b.Status(b.now); s.Multiplier == adaptive.Whole || s.Windows[adaptive.Cut] != 4 {
		t.Errorf("%+v", s)
	}
}

func TestClockSteps(t *testing.T) {
	b := newBench(t, adaptive.Settings{SLO: slo, Floor: 100})
	b.second(10, always(time.Second), 10)
	b.want(921, adaptive.Cut)
	b.now -= 500 * second
	b.second(1, always(20*time.Millisecond), 10)
	b.want(921, adaptive.Cut) // the window began anew
	b.now += 1 << 61
	b.second(10, always(20*time.Millisecond), 10)
	if s := b.Status(b.now); s.Multiplier != adaptive.Whole {
		t.Errorf("an age later: %+v", s)
	}
}

// TestManyCallersAreSampled: of a thousand, chance hears some; a flood of made-up ones is heard as what it is, callers.
func TestManyCallersAreSampled(t *testing.T) {
	b := newBench(t, adaptive.Settings{SLO: slo, Floor: 100})
	random, late := rand.New(rand.NewPCG(1, 1)), 0
	for range 200 {
		for range 2000 {
			caller, took := random.Uint64N(1000), 20*time.Millisecond
			if caller < 200 { // of 64, chance makes that more than half in one window of three billion
				took = time.Second
			}
			b.Sent(b.now, caller)
			b.Answered(b.now, caller, took, false)
		}
		b.now += second
		s := b.Status(b.now)
		if s.Multiplier != adaptive.Whole || s.Voices.Callers != adaptive.MaxCallers {
			t.Fatalf("2 of 10 of a thousand callers are slow: %+v", s)
		}
		late += s.Voices.Late
	}
	// Of all windows together it is 2560, with a deviation of 45.
	if want := 200 * adaptive.MaxCallers / 5; late < want*8/10 || late > want*12/10 {
		t.Errorf("2 of 10 of a thousand callers are slow, and %d are heard in 200 windows, want about %d", late, want)
	}
}

func TestUseKeepsWhatIsKnown(t *testing.T) {
	templates := []string{"GET /a", "GET /b", "GET /c"}
	compile := func(texts ...string) *endpoint.Table {
		var all []endpoint.Template
		for _, text := range texts {
			parsed, err := endpoint.ParseTemplate(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, parsed)
		}
		table, err := endpoint.Compile(all, endpoint.Strictest())
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	table, of := &adaptive.Table{}, compile(templates...)
	id := func(of *endpoint.Table, path string) endpoint.ID { return of.Match("GET", path).ID }
	if table.At(of, 1) != nil || table.Named("GET /a") != nil || table.Statuses(0) != nil ||
		table.Lowered(of, 1, 0).Own != nil {
		t.Error("a table of none has some")
	}
	now, s := 1000*second, adaptive.Settings{SLO: slo, Floor: 100}
	table.Use(map[string]adaptive.Settings{"GET /a": s, "GET /b": s}, now)
	a := table.Named("GET /a")
	for n := range 100 {
		a.Sent(now, uint64(n))
		a.Answered(now, uint64(n), time.Second, false)
	}
	now += second
	if m := table.Lowered(of, id(of, "/a"), now).Own.Part(); m != 921 {
		t.Errorf("multiplier %d, want 921", m)
	}
	if table.Lowered(of, id(of, "/b"), now).Own != nil || table.At(of, id(of, "/c")) != nil ||
		table.At(of, 99) != nil ||
		table.At(of, endpoint.Unknown) != nil {
		t.Error("other endpoints are lowered as well")
	}
	other := compile("GET /c", "GET /x", "GET /a") // other routes: the same endpoint has another ID
	table.Use(map[string]adaptive.Settings{"GET /a": {SLO: 2 * slo, Floor: 950}}, now)
	if e := table.At(other, id(other, "/a")); e != a || e.Status(now).Multiplier != 950 {
		t.Errorf("after a reload %+v", e.Status(now))
	}
	if e := table.At(of, id(of, "/a")); e != a {
		t.Error("a request under the table before finds it no more")
	}
	if table.Named("GET /b") != nil || len(table.Statuses(now)) != 1 {
		t.Error("an endpoint that is not named any more is there still")
	}
	table.Use(nil, now)
	if table.At(other, id(other, "/a")) != nil {
		t.Error("it is there still")
	}
}

// TestTogether is for the race detector.
func TestTogether(t *testing.T) {
	table := &adaptive.Table{Notify: func(adaptive.Event) {}}
	s := adaptive.Settings{SLO: slo, Floor: 100}
	table.Use(map[string]adaptive.Settings{name: s}, 0)
	e := table.Named(name)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for n := range int64(2000) {
				now := n * second / 500
				e.Sent(now, uint64(g))
				e.Answered(now, uint64(g), time.Duration(n)*time.Millisecond/4, n%3 == 0)
				e.Refused(true, false)
				if m := e.Lowered(now).Own.Part(); m < 100 || m > adaptive.Whole {
					t.Errorf("multiplier %d", m)
				}
				if n%500 == 0 {
					table.Use(map[string]adaptive.Settings{name: s}, now)
					_ = table.Statuses(now)
				}
			}
		})
	}
	all.Wait()
}
