package charge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/reservation"
)

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
	seeds := []uint64{ // a place whose rule was gone for a while was another's, which it gave back
		7150, 13356,
		826, // more changes than are remembered
	}
	for seed := range race.Fewer(uint64(40)) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
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

	// Of a bucket that nobody is charged to while its limit changes rate.MaxPast times, nobody knows how long each
	// counted: whoever had a place counts until it would have run out from then on.
	changes   map[string]int      // of each rule
	charged   map[place]int       // of its rule, when somebody was last charged
	forgotten map[place]time.Time // until when
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
	for _, at := range []string{"GET /a", policy.Default, policy.All} {
		was, now := ruleOf(before, at), ruleOf(w.rules, at)
		if was != now && (was == nil || now == nil || *was != *now) {
			w.changes[at]++
		}
	}
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
		if w.changes[p.rule]-w.charged[p] >= rate.MaxPast-1 {
			w.forgotten[p] = time.Now().Add(longest)
		}
		surely, perhaps := w.count(p)
		switch {
		case d.Allowed && d.Cost > 0 && surely >= rule.Limit:
			w.fatalf(t, "one passes beside %d at %v", surely, p)
		case !v.Outcome.Allowed && perhaps < rule.Limit && !time.Now().Before(w.forgotten[p]):
			w.fatalf(t, "%v at %v beside %d", d.Reason, p, perhaps)
		}
		over = over || !v.Outcome.Allowed
		if d.Allowed && d.Cost > 0 {
			u.holds[p] = true
		}
	}
	for p := range u.holds {
		w.charged[p] = w.changes[p.rule]
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
	w.changes, w.charged, w.forgotten = map[string]int{}, map[place]int{}, map[place]time.Time{}
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
