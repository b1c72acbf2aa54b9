package adaptive_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

// halved is a limiter whose rates at GET /a are lowered to a half.
func halved(t *testing.T, rules []policy.Rule, change ...func(*headgate.Options)) *trial.Bench {
	t.Helper()
	table := &adaptive.Table{}
	change = append(change, func(o *headgate.Options) { o.Adaptive = table })
	b := trial.New(t, []string{"GET /a", "GET /b"}, rules, change...)
	table.Use(map[string]adaptive.Settings{"GET /a": {SLO: time.Second, Floor: adaptive.Whole / 2}}, b.Now.UnixNano())
	at := table.Named("GET /a")
	for range 10 {
		for n := range uint64(60) {
			at.Sent(b.Now.UnixNano(), n)
			at.Answered(b.Now.UnixNano(), n, 2*time.Second, false)
		}
		b.Now = b.Now.Add(2 * time.Second)
	}
	if m := at.Status(b.Now.UnixNano()).Multiplier; m != adaptive.Whole/2 {
		t.Fatalf("multiplier %d, want %d", m, adaptive.Whole/2)
	}
	return b
}

// passing is how many of the requests for a path pass that come each millisecond for so long, after those that pass at
// once.
func passing(b *trial.Bench, path string, span time.Duration) (atOnce, then int) {
	for b.Get(path).Allowed {
		atOnce++
	}
	for range span / time.Millisecond {
		b.Now = b.Now.Add(time.Millisecond)
		if b.Get(path).Allowed {
			then++
		}
	}
	return atOnce, then
}

func TestRatesAreLoweredAndBurstsAreNot(t *testing.T) {
	for name, c := range map[string]struct {
		rule         policy.Rule
		path         string
		atOnce, then int
	}{
		"a rule":       {policy.Rule{Endpoint: "GET /a", Limit: 10, Burst: 40}, "/a", 40, 25},
		"the default":  {policy.Rule{Endpoint: policy.Default, Limit: 10, Burst: 40}, "/a", 40, 25},
		"one at once":  {policy.Rule{Endpoint: "GET /a", Limit: 10, Burst: 1}, "/a", 1, 25},
		"by endpoint":  {policy.Rule{Endpoint: "GET /a", Limit: 10, Subject: policy.SubjectEndpoint}, "/a", 10, 25},
		"temporary":    {policy.Rule{Endpoint: "GET /a", Limit: 10, Expires: trial.Epoch.Add(time.Hour)}, "/a", 10, 25},
		"a percentage": {policy.Rule{Endpoint: "GET /a", Limit: 10, EnforcePercent: 100}, "/a", 10, 25},

		"another endpoint":       {policy.Rule{Endpoint: policy.Default, Limit: 10, Burst: 40}, "/b", 40, 50},
		"all endpoints together": {policy.Rule{Endpoint: policy.All, Limit: 10}, "/a", 10, 50},
		"a window": {
			policy.Rule{Endpoint: "GET /a", Limit: 10, Algorithm: policy.FixedWindow}, "/a", 10, 50,
		},

		"a scope that is shared":  {policy.Rule{Endpoint: "GET /a", Limit: 10, Scope: policy.Strict}, "/a", 10, 25},
		"a scope that is divided": {policy.Rule{Endpoint: "GET /a", Limit: 10, Scope: policy.Split}, "/a", 10, 25},
	} {
		b := halved(t, []policy.Rule{c.rule})
		atOnce, then := passing(b, c.path, 5*time.Second)
		if c.rule.Algorithm == policy.FixedWindow && then > c.then-10 { // the last window may have begun just now
			then = c.then
		}
		if atOnce != c.atOnce || then != c.then {
			t.Errorf("%s: %d at once and %d in five seconds, want %d and %d", name, atOnce, then, c.atOnce, c.then)
		}
	}
}

// TestWhatIsToldIsTrueUnderALoweredRate: whoever comes when it is told passes, a millisecond earlier it does not, and
// the verdict says what part of the rate is in force.
func TestWhatIsToldIsTrueUnderALoweredRate(t *testing.T) {
	b := halved(t, []policy.Rule{{Endpoint: "GET /a", Limit: 7, Burst: 3}})
	for range 20 {
		for b.Get("/a").Allowed {
		}
		d := b.Get("/a")
		if v, _ := d.Binding(); v.Lowered != adaptive.Whole/2 || d.RetryAfter < 280*time.Millisecond {
			t.Fatalf("%+v after %v", v, d.RetryAfter)
		}
		b.Now = b.Now.Add(d.RetryAfter - time.Millisecond)
		if b.Get("/a").Allowed {
			t.Fatal("it passes before it was told to come")
		}
		if b.Now = b.Now.Add(time.Millisecond); !b.Get("/a").Allowed {
			t.Fatal("it does not pass when it was told to come")
		}
		for range 3 { // so that there is a signal
			x := b.Limiter.Exchange(&d)
			x.Sent()
		}
	}
}

// TestDecisionsOfSeveralRulesWhileOneIsLowered: all or nothing, as ever.
func TestDecisionsOfSeveralRulesWhileOneIsLowered(t *testing.T) {
	b := halved(t, []policy.Rule{
		{Endpoint: "GET /a", Limit: 10, Burst: 10},
		{Endpoint: policy.All, Limit: 100, Burst: 30},
	})
	for range 10 {
		b.Get("/a")
	}
	for range 50 { // of which the one denies all and the other none
		b.Get("/a")
	}
	atOnce := 0
	for b.Get("/b").Allowed { // the other has lost ten
		atOnce++
	}
	if atOnce != 20 {
		t.Errorf("%d pass elsewhere, want 20: what was denied by one rule took from the other", atOnce)
	}
}

// TestPenaltiesAreNotForALoweredRate: who keeps to the limit that its rule says is denied while it is lowered, and not
// blocked for that.
func TestPenaltiesAreNotForALoweredRate(t *testing.T) {
	const terms = "5 in 1m for 1h with addresses"
	b := halved(t, []policy.Rule{
		{Endpoint: "GET /a", Limit: 10, Penalty: terms},
		{Endpoint: "GET /b", Limit: 10, Penalty: terms},
	})
	for range 40 {
		if d := b.Get("/a"); d.Reason == headgate.InPenalty {
			t.Fatal("blocked for what a lowered rate has denied")
		}
	}
	at := b.Adaptive
	for part := 0; part < adaptive.Whole; { // up to the whole rate, at which what was slow to come back is owed still
		b.Now = b.Now.Add(time.Second)
		d := b.Get("/a")
		status, _ := at(&d)
		part = status.Multiplier
		for range 20 {
			if d = b.Get("/a"); d.Reason == headgate.InPenalty {
				t.Fatalf("blocked for what was denied at %d of 1024", part)
			}
		}
	}
	last := headgate.WithinLimits
	for range 40 {
		d := b.Get("/b")
		last = d.Reason
	}
	if last != headgate.InPenalty {
		t.Errorf("beside it %v, want in_penalty", last)
	}
}

// TestShadowAsksForNoMore: a rule in shadow counts by the lowered rate and denies nothing, so nobody is refused for it.
func TestShadowAsksForNoMore(t *testing.T) {
	for mode, want := range map[policy.Mode]adaptive.Outcome{
		policy.Enforce: adaptive.Raised,
		policy.Shadow:  adaptive.Held,
	} {
		b := halved(t, []policy.Rule{{Endpoint: "GET /a", Limit: 10, Mode: mode}})
		d := b.Get("/a")
		x := b.Exchange(&d)
		for range 60 {
			x.Sent()
			x.Answered(false)
			b.Get("/a")
		}
		b.Now = b.Now.Add(2 * time.Second)
		if s, ok := b.Adaptive(&d); !ok || s.Last != want {
			t.Errorf("mode %v: %v, want %v", mode, s.Last, want)
		}
	}
}

// TestSettledUnderALoweredRate: what a reservation gives back leaves its bucket as if only the rest had been taken,
// whatever the rate was meanwhile.
func TestSettledUnderALoweredRate(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second, 4 * time.Second} {
		for _, actual := range []int64{0, 300, 900, 1000, 1200} {
			b := halved(t, []policy.Rule{{Endpoint: "GET /a", Limit: 100, Burst: 1000}})
			made := b.MustReserve(t, 900)
			b.Now = b.Now.Add(wait)
			b.MustSettle(t, made.ID, actual)
			want := max(0, 1000-max(0, actual-int64(wait/time.Second)*50))
			if actual == 0 {
				want = 1000
			}
			if got := b.TokensLeft(); got < want-1 || got > want {
				t.Errorf("%d of 900 after %v leave %d, want %d", actual, wait, got, want)
			}
		}
	}
}

// TestSettledInASharedStoreUnderALoweredRate: a store that others share forgets a bucket when it would be full at the
// rate of its last charge. What the full rate has drained by then is not given back, as others may owe in its place.
func TestSettledInASharedStoreUnderALoweredRate(t *testing.T) {
	names, err := key.NewNamer(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	for wait, want := range map[time.Duration]int64{
		0:                       1000,
		8 * time.Second:         1000,
		9500 * time.Millisecond: 1000 - (900 - 475),
	} {
		b := halved(t, []policy.Rule{{Endpoint: "GET /a", Limit: 100, Burst: 1000, Scope: policy.Strict}},
			func(o *headgate.Options) { o.Names = names })
		made := b.MustReserve(t, 900)
		b.Now = b.Now.Add(wait)
		b.MustSettle(t, made.ID, 0)
		if got := b.TokensLeft(); got < want-1 || got > want {
			t.Errorf("900 that were not used leave %d after %v, want %d", got, wait, want)
		}
	}
}

// TestSettledAfterAReloadUnderALoweredRate: what a reservation gives back whose limit changed meanwhile is none of what
// the bucket has given others: at one moment no more than the larger burst passes.
func TestSettledAfterAReloadUnderALoweredRate(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second, 4 * time.Second, 9 * time.Second, 20 * time.Second} {
		rules := &trial.Switching{}
		b := halved(t, nil, func(o *headgate.Options) { o.Policies = rules })
		rules.Become(t, b, policy.Rule{Endpoint: "GET /a", Limit: 100, Burst: 1000})
		made := b.MustReserve(t, 900)
		b.Now = b.Now.Add(wait)
		rules.Become(t, b, policy.Rule{Endpoint: "GET /a", Limit: 100, Burst: 1010})
		passed := int64(0)
		for range 2 {
			for b.Take(10).Allowed {
				passed += 10
			}
			if made.ID != (reservation.ID{}) {
				b.MustSettle(t, made.ID, 0)
				made.ID = reservation.ID{}
			}
		}
		if passed > 1010 {
			t.Errorf("%v after a reservation of 900 that used none, %d pass at once, want 1010 at most", wait, passed)
		}
	}
}

// TestReloadOfARuleWhoseRateIsLowered: the new limit is lowered as the old was, and nobody is given more than the
// larger of both bursts.
func TestReloadOfARuleWhoseRateIsLowered(t *testing.T) {
	rules := &trial.Switching{}
	b := halved(t, nil, func(o *headgate.Options) { o.Policies = rules })
	rules.Become(t, b, policy.Rule{Endpoint: "GET /a", Limit: 10, Burst: 20})
	if atOnce, then := passing(b, "/a", 2*time.Second); atOnce != 20 || then != 10 {
		t.Errorf("%d at once and %d in two seconds, want 20 and 10", atOnce, then)
	}
	rules.Become(t, b, policy.Rule{Endpoint: "GET /a", Limit: 20, Burst: 20})
	if atOnce, then := passing(b, "/a", 2*time.Second); atOnce != 0 || then != 20 {
		t.Errorf("after the reload %d at once and %d in two seconds, want 0 and 20", atOnce, then)
	}
}

// TestLoweredRateKeepsEveryBound: whatever the API does, and whoever asks, no caller is admitted more than the rule
// says in any interval, and the multiplier stays where it may be.
func TestLoweredRateKeepsEveryBound(t *testing.T) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 7))
		table := &adaptive.Table{}
		const limit, burst = 20, 30
		b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: limit, Burst: burst}},
			func(o *headgate.Options) { o.Adaptive = table })
		table.Use(map[string]adaptive.Settings{"GET /a": {SLO: 50 * time.Millisecond, Floor: 51}}, b.Now.UnixNano())
		var debt [4]float64 // by Lindley's recursion: what is admitted beyond the rate
		var at [4]time.Time
		took, passed := 20*time.Millisecond, 0
		for range 20000 {
			b.Now = b.Now.Add(time.Duration(random.Int64N(int64(6 * time.Millisecond))))
			switch random.IntN(2000) {
			case 0:
				took = time.Duration(random.Int64N(int64(200 * time.Millisecond)))
			case 1:
				b.Now = b.Now.Add(time.Duration(random.Int64N(int64(30 * time.Second))))
			}
			c := random.IntN(4)
			d := b.Check(context.Background(), headgate.Request{Method: "GET", Target: "/a",
				Peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(c)})})
			if !d.Allowed {
				continue
			}
			x := b.Exchange(&d)
			x.Sent()
			begun := b.Now
			b.Now = b.Now.Add(took / 64)
			table.Named("GET /a").Answered(b.Now.UnixNano(), uint64(c), took, random.IntN(50) == 0)
			b.Now = begun
			debt[c] = max(0, debt[c]-b.Now.Sub(at[c]).Seconds()*limit) + 1
			at[c], passed = b.Now, passed+1
			if debt[c] > burst+1e-6 {
				t.Fatalf("seed %d: %v at once, want %d at most", seed, debt[c], burst)
			}
		}
		s := table.Statuses(b.Now.UnixNano())[0]
		if s.Multiplier < 51 || s.Multiplier > adaptive.Whole || passed < 1000 {
			t.Errorf("seed %d: %d passed, %+v", seed, passed, s)
		}
	}
}

func TestExplainSaysWhatIsLowered(t *testing.T) {
	b := halved(t, []policy.Rule{
		{Endpoint: "GET /a", Limit: 10},
		{Endpoint: "GET /a", Limit: 10, Subject: policy.SubjectEndpoint, Algorithm: policy.SlidingWindow},
		{Endpoint: policy.All, Limit: 100},
	})
	x := b.Explain(context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client})
	a := x.Adaptive
	if a == nil || a.Multiplier != 0.5 || a.Floor != 0.5 || a.SLO != time.Second || a.Last != "cut" ||
		!strings.Contains(a.Why, "60 of 60 callers") {
		t.Fatalf("%+v", a)
	}
	var got []string
	for _, bucket := range x.Buckets {
		got = append(got, fmt.Sprint(bucket.Multiplier, " ", bucket.KeepsRate))
	}
	if want := "[0.5  0 it is no token bucket 0 its bucket is for all endpoints together]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	x = b.Explain(context.Background(), headgate.Request{Method: "GET", Target: "/b", Peer: trial.Client})
	if x.Adaptive != nil {
		t.Errorf("elsewhere %+v", x.Adaptive)
	}
}
