package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

// process is a Limiter over buckets that outlive it: one that was killed asks nobody any more.
type process struct {
	*headgate.Limiter
	way *line
}

// line is a process's way to the buckets.
type line struct {
	bucket.Store
	killed atomic.Bool
}

var errKilled = errors.New("the process was killed")

func (p *line) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if p.killed.Load() {
		return errKilled
	}
	return p.Store.Correct(ctx, now, changes, moved)
}

func newStore(t testing.TB) *memory.Store {
	t.Helper()
	store, err := memory.New(memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// newProcess is a process with some rules in lines, over store.
func newProcess(t testing.TB, store bucket.Store, rules ...string) *process {
	t.Helper()
	way := &line{Store: store}
	lim, err := headgate.New(headgate.Options{
		Rules: rules, Buckets: way, Keys: key.NewLasting([16]byte{1}), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &process{lim, way}
}

func request(method, target string) headgate.Request {
	return headgate.Request{Method: method, Target: target, Peer: netip.MustParseAddr("192.0.2.1")}
}

// begin asks for a request that is under way until it is settled.
func (p *process) begin(r headgate.Request) (headgate.Reservation, headgate.Decision) {
	made, d, _ := p.WaitAnswer(context.Background(), r, headgate.UntilSettled)
	return made, d
}

func (p *process) end(t testing.TB, made headgate.Reservation) {
	t.Helper()
	if _, err := p.Settle(context.Background(), made.ID, made.Cost); err != nil {
		t.Error(err)
	}
}

// TestRequestsUnderWay: as many as the rule says, beside a rate; the next one when one of them has ended.
func TestRequestsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, newStore(t), "GET /a 2 at once", "GET /a 100/h", "default 1000/s")
		one, _ := p.begin(request("GET", "/a"))
		two, d := p.begin(request("GET", "/a"))
		if !d.Allowed || len(d.Verdicts()) != 2 {
			t.Fatalf("the second: %v by %d rules, want allowed by two", d.Reason, len(d.Verdicts()))
		}
		_, d = p.begin(request("GET", "/a"))
		binding, _ := d.Binding()
		if rule := d.Policies().Rule(binding.Rule); d.Reason != headgate.OverLimit || d.RetryAfter != time.Second ||
			rule.Rate() != "2 at once" || binding.Outcome.ResetAfter != 0 {
			t.Fatalf("the third: %v by %q after %v, want over 2 at once after 1s", d.Reason, rule.Rate(), d.RetryAfter)
		}
		for _, v := range d.Verdicts() {
			if v.Rule != binding.Rule && v.Outcome.Remaining != 98 {
				t.Errorf("the rate has %d left, want 98: a request that finds no place takes no token",
					v.Outcome.Remaining)
			}
		}
		time.Sleep(10 * time.Minute) // they stay under way, however long
		if _, d = p.begin(request("GET", "/a")); d.Allowed {
			t.Fatal("a third passes while two are under way")
		}
		p.end(t, one)
		three, d := p.begin(request("GET", "/a"))
		if !d.Allowed {
			t.Fatalf("after one ended: %v", d.Reason)
		}
		p.end(t, two)
		p.end(t, three)
		p.end(t, three)
		for range 2 {
			if one, d = p.begin(request("GET", "/a")); !d.Allowed {
				t.Errorf("after all ended: %v", d.Reason)
			}
			defer p.end(t, one)
		}
		if _, d = p.begin(request("GET", "/a")); d.Allowed {
			t.Error("one that ended twice gave back two places")
		}
	})
}

// TestADeniedRateTakesNoPlace: a request that its rate denies is not under way.
func TestADeniedRateTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, newStore(t), "GET /a 2 at once", "GET /a 1/min", "default 1000/s")
		one, _ := p.begin(request("GET", "/a"))
		for range 5 {
			if _, d := p.begin(request("GET", "/a")); d.Allowed || d.RetryAfter != time.Minute {
				t.Fatalf("beyond the rate: %v after %v", d.Reason, d.RetryAfter)
			}
		}
		time.Sleep(time.Minute)
		two, d := p.begin(request("GET", "/a"))
		if !d.Allowed {
			t.Errorf("a minute later: %v, want allowed beside the first", d.Reason)
		}
		p.end(t, one)
		p.end(t, two)
	})
}

// TestTheKilledGiveTheirPlacesBack: nobody settles for a process that was killed, and its places are free
// after the time that the rule keeps them.
func TestTheKilledGiveTheirPlacesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		killed, other := newProcess(t, store, "default 1000 at once"), newProcess(t, store, "default 1000 at once")
		for range 1000 {
			if _, d := killed.begin(request("GET", "/a")); !d.Allowed {
				t.Fatal(d.Reason)
			}
		}
		time.Sleep(5 * time.Minute)
		if _, d := other.begin(request("GET", "/a")); d.Allowed {
			t.Fatal("a place is free while a thousand are under way")
		}
		killed.way.killed.Store(true)
		// renewed a third of 30 s ago at most, and kept a 25th longer at most
		time.Sleep(30*time.Second*2/3 - time.Second)
		if _, d := other.begin(request("GET", "/a")); d.Allowed {
			t.Fatal("a place is free before its time")
		}
		time.Sleep(30*time.Second/3 + 30*time.Second/25 + 2*time.Second)
		for range 1000 {
			made, d := other.begin(request("GET", "/a"))
			if !d.Allowed {
				t.Fatalf("after the time: %v", d.Reason)
			}
			defer other.end(t, made)
		}
	})
}

// TestMessagesAreNotUnderWay: a message of a stream takes no place beside the stream's own.
func TestMessagesAreNotUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, newStore(t), "default 1 at once", "default 100/s")
		r := request(endpoint.Send, "/a")
		r.Message = true
		for range 3 {
			if d := p.Check(context.Background(), r); !d.Allowed && d.Reason == headgate.OverLimit {
				t.Fatalf("a message: %v", d.Reason)
			}
		}
		if _, d := p.begin(request("GET", "/a")); !d.Allowed {
			t.Errorf("a request beside messages: %v", d.Reason)
		}
	})
}

// TestRandomRequestsUnderWay has requests of three processes begin and end at random, and the processes be
// killed, beside a list of who is under way. A request passes if a place is surely free, and never if none
// is.
func TestRandomRequestsUnderWay(t *testing.T) {
	const limit, kept = 7, 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 1))
		store := newStore(t)
		fresh := func() *process { return newProcess(t, store, "default 7 at once") }
		type running struct {
			on   *process
			made headgate.Reservation
		}
		var alive []running
		var lost []time.Time // when processes were killed, once for each request
		on := []*process{fresh(), fresh(), fresh()}
		for step := range 3000 {
			switch n := rng.IntN(100); {
			case n < 45:
				p := on[rng.IntN(len(on))]
				doubt := 0
				for _, at := range lost {
					if time.Since(at) <= kept+kept/25+time.Second {
						doubt++
					}
				}
				made, d := p.begin(request("GET", "/a"))
				switch {
				case d.Allowed && len(alive) >= limit:
					t.Fatalf("seed %d, step %d: one passes beside %d", seed, step, len(alive))
				case !d.Allowed && len(alive)+doubt < limit:
					t.Fatalf("seed %d, step %d: %v beside %d, and %d that may be lost", seed, step, d.Reason,
						len(alive), doubt)
				case d.Allowed:
					alive = append(alive, running{p, made})
				}
			case n < 85 && len(alive) > 0:
				i := rng.IntN(len(alive))
				alive[i].on.end(t, alive[i].made)
				alive[i] = alive[len(alive)-1]
				alive = alive[:len(alive)-1]
			case n < 87:
				i := rng.IntN(len(on))
				on[i].way.killed.Store(true)
				kept := alive[:0]
				for _, r := range alive {
					if r.on == on[i] {
						lost = append(lost, time.Now())
					} else {
						kept = append(kept, r)
					}
				}
				alive, on[i] = kept, fresh()
			default:
				time.Sleep(time.Duration(rng.Int64N(int64(8 * time.Second))))
			}
		}
	})
}

// TestPlacesAllocateNothing: a request that is under way for a time allocates no more than one of a rate.
func TestPlacesAllocateNothing(t *testing.T) {
	p := newProcess(t, newStore(t), "default 100 at once", "default 1000000/s")
	r := request("GET", "/a")
	for range 100 {
		made, _ := p.begin(r)
		p.end(t, made)
	}
	if n := testing.AllocsPerRun(1000, func() {
		made, d := p.begin(r)
		if !d.Allowed {
			t.Fatal(d.Reason)
		}
		p.end(t, made)
	}); n > 0 && !race.Enabled { // which allocates itself
		t.Errorf("a request under way allocates %v times, want 0", n)
	}
}

// BenchmarkUnderWay is a request by one rule: of a rate; by how many are under way, which never end, as they are within
// the time that a place is kept; and such that each ends.
func BenchmarkUnderWay(b *testing.B) {
	ctx, r := context.Background(), request("GET", "/a")
	b.Run("rate", func(b *testing.B) {
		p := newProcess(b, newStore(b), "default 1000000000/s")
		b.ReportAllocs()
		for b.Loop() {
			if d, _ := p.Wait(ctx, r); !d.Allowed {
				b.Fatal(d.Reason)
			}
		}
	})
	b.Run("decision", func(b *testing.B) {
		p := newProcess(b, newStore(b), "default 4000000000 at once")
		b.ReportAllocs()
		for b.Loop() {
			if d := p.Check(ctx, r); !d.Allowed {
				b.Fatal(d.Reason)
			}
		}
	})
	b.Run("with its end", func(b *testing.B) {
		p := newProcess(b, newStore(b), "default 1000 at once")
		b.ReportAllocs()
		for b.Loop() {
			made, d := p.begin(r)
			if !d.Allowed {
				b.Fatal(d.Reason)
			}
			p.end(b, made)
		}
	})
}

// TestAPlaceThatIsLostIsAnothers: a process that stood still for longer than a place is kept goes on, and when its
// request ends it gives back nothing of the place that another has by then.
func TestAPlaceThatIsLostIsAnothers(t *testing.T) {
	for offset := range 6 { // into the cells in which places are counted
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t)
			still, other := newProcess(t, store, "default 1 at once"), newProcess(t, store, "default 1 at once")
			lost, _ := still.begin(request("GET", "/a"))
			still.way.killed.Store(true)
			time.Sleep(time.Minute + time.Duration(offset)*200*time.Millisecond)
			made, d := other.begin(request("GET", "/a"))
			if !d.Allowed {
				t.Fatalf("a minute later: %v", d.Reason)
			}
			still.way.killed.Store(false)
			time.Sleep(700 * time.Millisecond) // it tries to keep its place
			still.end(t, lost)
			if _, d = other.begin(request("GET", "/a")); d.Allowed {
				t.Errorf("offset %d: a second passes while the one that has the place is under way", offset)
			}
			other.end(t, made)
			if _, d = other.begin(request("GET", "/a")); !d.Allowed {
				t.Errorf("offset %d: after all ended: %v", offset, d.Reason)
			}
		})
	}
}

// TestWhatCannotBeSettledIsForgotten: a reservation until it is settled, whose rates cannot be settled, is not
// outstanding for ever.
func TestWhatCannotBeSettledIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, newStore(t), "default 5 at once", "default 100/h")
		r := request("GET", "/a")
		r.Cost = 10
		made, _ := p.begin(r)
		p.way.killed.Store(true)
		if _, err := p.Settle(context.Background(), made.ID, 1); !errors.Is(err, errKilled) {
			t.Fatalf("Settle = %v, want %v", err, errKilled)
		}
		time.Sleep(reservation.DefaultTimeout)
		if n := p.Reservations().Outstanding; n != 0 {
			t.Errorf("%d are outstanding afterwards, want 0", n)
		}
	})
}

// rulesUnderWay is a Limiter in virtual time whose rules change.
type rulesUnderWay struct {
	*trial.Bench
	rules trial.Switching
}

func newRulesUnderWay(t testing.TB) *rulesUnderWay {
	x := &rulesUnderWay{}
	x.Bench = trial.New(t, []string{"GET /a", "GET /b"}, nil, func(o *headgate.Options) {
		o.Policies, o.Now, o.Keys = &x.rules, time.Now, key.NewLasting([16]byte{1})
	})
	return x
}

func (x *rulesUnderWay) become(t testing.TB, rules ...policy.Rule) {
	t.Helper()
	x.Now = time.Now()
	x.rules.Become(t, x.Bench, rules...)
}

func (x *rulesUnderWay) begin(target string, client byte) (headgate.Reservation, headgate.Decision) {
	r := request("GET", target)
	r.Peer = netip.AddrFrom4([4]byte{192, 0, 2, client})
	made, d, _ := x.WaitAnswer(context.Background(), r, headgate.UntilSettled)
	return made, d
}

// atOnce is a rule for so many requests under way.
func atOnce(at string, n int64, kept time.Duration) policy.Rule {
	return policy.Rule{
		Endpoint: at, Limit: n, Per: kept, Algorithm: policy.Concurrency,
		Subject: policy.SubjectIP.Counting(policy.CountsUnderWay),
	}
}

var unlimited = policy.Rule{Endpoint: policy.Default, Limit: 1e6}

// TestALowerLimitHoldsForThoseWhoCome: also where the time changes with it for which a place is kept.
func TestALowerLimitHoldsForThoseWhoCome(t *testing.T) {
	for _, kept := range []time.Duration{30 * time.Second, time.Minute, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			x := newRulesUnderWay(t)
			x.become(t, unlimited, atOnce("GET /a", 10, 30*time.Second))
			var all [7]headgate.Reservation
			for i := range all {
				all[i], _ = x.begin("/a", 1)
				time.Sleep(time.Second)
			}
			x.become(t, unlimited, atOnce("GET /a", 2, kept))
			time.Sleep(20 * time.Second)
			for i, made := range all[:6] {
				if _, d := x.begin("/a", 1); d.Allowed {
					t.Fatalf("kept for %v: another passes beside %d, and 2 may be under way", kept, 7-i)
				}
				x.MustSettle(t, made.ID, 1)
			}
			if _, d := x.begin("/a", 1); !d.Allowed {
				t.Errorf("kept for %v: %v beside one", kept, d.Reason)
			}
		})
	}
}

// TestAFilledBucketCountsWhoIsUnderWay: after an operator has filled a bucket, or has given it something, those who are
// under way have places again as soon as there are some.
func TestAFilledBucketCountsWhoIsUnderWay(t *testing.T) {
	by := policy.SubjectIP.Counting(policy.CountsUnderWay)
	q := inspect.Query{Endpoint: "GET /a", Address: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Subject: &by}
	for name, change := range map[string]func(x *rulesUnderWay) error{
		"filled": func(x *rulesUnderWay) error {
			_, err := x.Reset(context.Background(), q, nil)
			return err
		},
		"given one": func(x *rulesUnderWay) error {
			_, _, err := x.Grant(context.Background(), q, 1, time.Time{}, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newRulesUnderWay(t)
				x.become(t, unlimited, atOnce("GET /a", 2, 30*time.Second))
				one, _ := x.begin("/a", 1)
				two, _ := x.begin("/a", 1)
				if err := change(x); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if _, d := x.begin("/a", 1); d.Allowed {
					t.Error("a third passes a minute later")
				}
				x.MustSettle(t, one.ID, 1)
				x.MustSettle(t, two.ID, 1)
				for range 2 {
					if _, d := x.begin("/a", 1); !d.Allowed {
						t.Errorf("after both ended: %v", d.Reason)
					}
				}
			})
		})
	}
}

// TestRandomRulesOfRequestsUnderWay has random rules of requests under way stand beside rates, and change, go and come
// back, while requests begin, end and are paid in every way. A list of who is under way says at each step who may pass
// and who has to, and all places are free in the end.
func TestRandomRulesOfRequestsUnderWay(t *testing.T) {
	for seed := range race.Fewer(uint64(40)) {
		synctest.Test(t, func(t *testing.T) {
			(&underWayWorld{seed: seed, rng: rand.New(rand.NewPCG(seed, 2))}).run(t)
		})
	}
}

// underWayWorld is a world of TestRandomRulesOfRequestsUnderWay.
type underWayWorld struct {
	*rulesUnderWay
	seed  uint64
	rng   *rand.Rand
	step  int
	rules []policy.Rule
	alive []*underWay
	// places that may count although nobody is under way, until a time: the rule was not there when their
	// requests ended, or nobody knows when they do
	doubts []doubt
}

// place is a bucket of a rule: requests of a client that the rule counts.
type place struct {
	rule   string // the endpoint that it names
	at     string // the endpoint that the bucket is of
	client byte
}

type underWay struct {
	made  headgate.Reservation
	holds map[place]bool // and whether it surely counts
}

type doubt struct {
	place
	until time.Time
}

// longest is for how long a place is kept at most in these worlds, a 25th and a little more included.
const (
	longest = time.Minute + time.Minute/25 + time.Second
	forever = 10_000 * time.Hour
)

func (w *underWayWorld) fatalf(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Fatalf("seed %d, step %d: %s; rules %v", w.seed, w.step, fmt.Sprintf(format, args...), w.rules)
}

// change draws other rules. Whoever has a place under one that is gone, or keeps places for another time, may have it
// or not from then on.
func (w *underWayWorld) change(t *testing.T) {
	time.Sleep(3 * time.Second) // a change to and fro within a cell is taken for none
	before := w.rules
	w.rules = []policy.Rule{{Endpoint: policy.Default, Limit: 1 + w.rng.Int64N(20), Per: time.Second}}
	for _, at := range []string{"GET /a", policy.Default, policy.All} {
		if w.rng.IntN(4) == 0 {
			continue
		}
		kept := 30 * time.Second
		if w.rng.IntN(4) == 0 {
			kept = time.Duration(5+w.rng.IntN(56)) * time.Second
		}
		r := atOnce(at, 1+w.rng.Int64N(6), kept)
		if w.rng.IntN(5) == 0 {
			r.Mode = policy.Shadow
		}
		w.rules = append(w.rules, r)
	}
	w.become(t, w.rules...)
	for _, u := range w.alive {
		for p := range u.holds {
			was, now := ruleOf(before, p.rule), ruleOf(w.rules, p.rule)
			if now == nil || was == nil || now.Per != was.Per || !w.counts(p) {
				u.holds[p] = false
			}
		}
	}
	for i := range w.doubts {
		d := &w.doubts[i]
		was, now := ruleOf(before, d.rule), ruleOf(w.rules, d.rule)
		switch {
		case !time.Now().Before(d.until):
		case now == nil:
			d.until = time.Now().Add(forever) // what is counted stays as it is
		case was == nil || was.Per != now.Per:
			d.until = time.Now().Add(longest) // and counts anew
		}
	}
}

func ruleOf(rules []policy.Rule, at string) *policy.Rule {
	for i := range rules {
		if rules[i].Endpoint == at && rules[i].Algorithm == policy.Concurrency {
			return &rules[i]
		}
	}
	return nil
}

// counts reports whether requests to the endpoint are counted by the rule now: another may be nearer.
func (w *underWayWorld) counts(p place) bool {
	r, nearer := ruleOf(w.rules, p.rule), ruleOf(w.rules, p.at)
	if r == nil || p.rule != policy.Default || nearer == nil {
		return r != nil
	}
	return nearer.Mode == policy.Shadow && r.Mode == policy.Enforce
}

// count is how many have a place for certain, and how many may.
func (w *underWayWorld) count(p place) (surely, perhaps int64) {
	for _, u := range w.alive {
		if sure, has := u.holds[p]; has {
			perhaps++
			if sure {
				surely++
			}
		}
	}
	for _, d := range w.doubts {
		if d.place == p && time.Now().Before(d.until) {
			perhaps++
		}
	}
	return surely, perhaps
}

// begin sends a request in one of the ways in which they come.
func (w *underWayWorld) begin(t *testing.T) {
	target, client := []string{"/a", "/b"}[w.rng.IntN(2)], byte(1+w.rng.IntN(2))
	r := request("GET", target)
	r.Peer = netip.AddrFrom4([4]byte{192, 0, 2, client})
	r.Cost = w.rng.Int64N(4)
	r.UnderWay = w.rng.IntN(10) == 0
	var made headgate.Reservation
	var d headgate.Decision
	timeout, ctx := headgate.UntilSettled, context.Background()
	switch w.rng.IntN(6) {
	case 0:
		timeout = time.Duration(1+w.rng.IntN(90)) * time.Second
		made, d = w.Reserve(ctx, r, timeout)
	case 1:
		d = w.Check(ctx, r)
	case 2:
		made, d, _ = w.ReserveWait(ctx, r, timeout)
	default:
		made, d, _ = w.WaitAnswer(ctx, r, timeout)
	}
	u := &underWay{made: made, holds: map[place]bool{}}
	over := false // a place is the reason for which it is denied
	for _, v := range d.Verdicts() {
		rule := d.Policies().Rule(v.Rule)
		if rule.Algorithm != policy.Concurrency {
			over = over || !v.Outcome.Allowed
			continue
		}
		p := place{rule.Endpoint, "GET " + target, client}
		if rule.Endpoint == policy.All {
			p.at = policy.All
		}
		if r.UnderWay {
			w.fatalf(t, "what is under way already is counted by %s", rule.Endpoint)
		}
		if rule.Mode == policy.Shadow {
			if d.Allowed && v.Outcome.Allowed && d.Cost > 0 {
				u.holds[p] = true
			}
			continue
		}
		surely, perhaps := w.count(p)
		switch {
		case d.Allowed && d.Cost > 0 && surely >= rule.Limit:
			w.fatalf(t, "one passes beside %d at %v", surely, p)
		case !v.Outcome.Allowed && perhaps < rule.Limit:
			w.fatalf(t, "%v at %v beside %d", d.Reason, p, perhaps)
		}
		over = over || !v.Outcome.Allowed
		if d.Allowed && d.Cost > 0 {
			u.holds[p] = true
		}
	}
	switch {
	case !d.Allowed && !over:
		w.fatalf(t, "%v, and no rule says so", d.Reason)
	case !d.Allowed:
	case made.ID == reservation.ID{}:
		for p := range u.holds {
			w.doubts = append(w.doubts, doubt{p, time.Now().Add(longest)})
		}
	case timeout != headgate.UntilSettled: // it may be settled in time, or not
		for p := range u.holds {
			u.holds[p] = false
			w.doubts = append(w.doubts, doubt{p, time.Now().Add(timeout + longest)})
		}
		w.alive = append(w.alive, u)
	default:
		w.alive = append(w.alive, u)
	}
}

// end has one of those who are under way end.
func (w *underWayWorld) end(t *testing.T) {
	if len(w.alive) == 0 {
		return
	}
	i := w.rng.IntN(len(w.alive))
	u := w.alive[i]
	a := headgate.Answer{Actual: w.rng.Int64N(4), Forgiven: w.rng.IntN(3) == 0, Status: 200}
	for range 1 + w.rng.IntN(2) {
		if _, err := w.SettleAnswer(context.Background(), u.made.ID, a); err != nil {
			w.fatalf(t, "%v", err)
		}
	}
	for p, sure := range u.holds {
		switch {
		case ruleOf(w.rules, p.rule) == nil:
			w.doubts = append(w.doubts, doubt{p, time.Now().Add(forever)})
		case !sure || !w.counts(p):
			w.doubts = append(w.doubts, doubt{p, time.Now().Add(longest)})
		}
	}
	w.alive[i] = w.alive[len(w.alive)-1]
	w.alive = w.alive[:len(w.alive)-1]
}

func (w *underWayWorld) run(t *testing.T) {
	w.rulesUnderWay = newRulesUnderWay(t)
	w.change(t)
	for w.step = range 400 {
		switch n := w.rng.IntN(100); {
		case n < 50:
			w.begin(t)
		case n < 80:
			w.end(t)
		case n < 84:
			w.change(t)
		default:
			time.Sleep(time.Duration(w.rng.Int64N(int64(4 * time.Second))))
		}
	}
	for len(w.alive) > 0 {
		w.end(t)
	}
	time.Sleep(90 * time.Second) // until what has a timeout has expired
	if n := w.Reservations().Outstanding; n != 0 {
		w.fatalf(t, "%d reservations are outstanding in the end", n)
	}
	w.rules = []policy.Rule{unlimited, atOnce("GET /a", 3, 30*time.Second), atOnce(policy.All, 4, 30*time.Second)}
	w.become(t, w.rules...)
	time.Sleep(longest)
	for client := byte(1); client <= 2; client++ {
		for i, target := range []string{"/a", "/a", "/a", "/b"} {
			if _, d := w.rulesUnderWay.begin(target, client); !d.Allowed {
				w.fatalf(t, "in the end %v for request %d of client %d", d.Reason, i, client)
			}
		}
		if _, d := w.rulesUnderWay.begin("/b", client); d.Allowed {
			w.fatalf(t, "in the end a fifth passes")
		}
	}
}
