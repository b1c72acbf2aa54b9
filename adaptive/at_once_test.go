package adaptive_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

func TestJudgeAtOnce(t *testing.T) {
	const slo = time.Second
	for _, c := range []struct {
		p    int
		w    adaptive.Window
		want int
	}{
		{1000, adaptive.Window{Usual: 300 * time.Millisecond}, 1000},
		{1000, adaptive.Window{Usual: 300 * time.Millisecond, Full: 1}, 1010},
		{1020, adaptive.Window{Full: 1}, adaptive.Whole},
		{1000, adaptive.Window{Usual: 500 * time.Millisecond}, 960},
		{1000, adaptive.Window{Usual: time.Hour}, 900},
		{1000, adaptive.Window{Failing: true}, 900},
		{110, adaptive.Window{Usual: time.Hour}, 100},
	} {
		if got := adaptive.JudgeAtOnce(c.p, 100, c.w, slo); got != c.want {
			t.Errorf("JudgeAtOnce(%d, 100, %+v) = %d, want %d", c.p, c.w, got, c.want)
		}
	}
}

// TestRequestsUnderWayFollowTheAPI: fewer are while it is slow, one at least, where that is asked for and the places
// are of this process and this endpoint; and all again when nothing is known of it any more.
func TestRequestsUnderWayFollowTheAPI(t *testing.T) {
	places := func(b *trial.Bench) (n int) {
		for b.Get("/a").Allowed {
			n++
		}
		return n
	}
	for name, c := range map[string]struct {
		endpoint string
		scope    policy.Scope
		follows  bool
		limit    int64
		want     int
	}{
		"follows":                {"GET /a", policy.Local, true, 10, 5},
		"the default":            {policy.Default, policy.Local, true, 10, 5},
		"one":                    {"GET /a", policy.Local, true, 1, 1},
		"does not":               {"GET /a", policy.Local, false, 10, 10},
		"all endpoints together": {policy.All, policy.Local, true, 10, 10},
		"shared":                 {"GET /a", policy.Strict, true, 10, 10},
	} {
		rule := policy.Rule{Endpoint: c.endpoint, Limit: c.limit, Scope: c.scope}
		if err := rule.SetSubject("in_flight:principal"); err != nil {
			t.Fatal(err)
		}
		table := &adaptive.Table{}
		b := trial.New(t, []string{"GET /a", "GET /b"}, []policy.Rule{rule},
			func(o *headgate.Options) { o.Adaptive = table })
		s := adaptive.Settings{SLO: time.Second, Floor: adaptive.Whole / 2, AtOnce: c.follows}
		table.Use(map[string]adaptive.Settings{"GET /a": s}, b.Now.UnixNano())
		at := table.Named("GET /a")
		for range 10 {
			for n := range uint64(60) {
				at.Sent(b.Now.UnixNano(), n)
				at.Answered(b.Now.UnixNano(), n, 2*time.Second, false)
			}
			b.Now = b.Now.Add(2 * time.Second)
		}
		x := b.Explain(t.Context(), headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client})
		if places := x.Buckets[0].Places; places != int64(c.want) && (places != 0 || int64(c.want) != c.limit) {
			t.Errorf("%s: explain tells of %d places, want %d", name, places, c.want)
		}
		if got := places(b); got != c.want {
			t.Errorf("%s: %d at once, want %d", name, got, c.want)
		}
		if b.Now = b.Now.Add(200 * time.Second); places(b) != int(c.limit) {
			t.Errorf("%s: fewer than %d at once when nothing is known of the API", name, c.limit)
		}
	}
}

// TestOneCallerLowersNobodysNumber: half of the callers, or fewer, are slow and fail, and the number stays.
func TestOneCallerLowersNobodysNumber(t *testing.T) {
	table, now := &adaptive.Table{}, int64(time.Hour)
	table.Use(map[string]adaptive.Settings{"GET /a": {SLO: time.Second, Floor: 1, AtOnce: true}}, now)
	at := table.Named("GET /a")
	for range 20 {
		for n := range uint64(120) {
			bad := n%4 < 2
			at.Sent(now, n%4)
			at.Answered(now, n%4, map[bool]time.Duration{true: time.Minute, false: time.Millisecond}[bad], bad)
		}
		now += int64(2 * time.Second)
	}
	if s := at.Status(now); s.AtOnce != adaptive.Whole {
		t.Errorf("it is lowered to %d by half of the callers", s.AtOnce)
	}
}

// follows has requests under way at GET /a follow an API whose answers take so long, for some windows.
func follows(b *trial.Bench, table *adaptive.Table, windows int, took time.Duration) {
	at := table.Named("GET /a")
	for range windows {
		for n := range uint64(60) {
			at.Sent(b.Now.UnixNano(), n)
			at.Answered(b.Now.UnixNano(), n, took, false)
		}
		at.Refused(false, took < 400*time.Millisecond)
		b.Now = b.Now.Add(2 * time.Second)
	}
}

// TestWhyFewerMayBeUnderWay: it is said also while the rates stay what they are.
func TestWhyFewerMayBeUnderWay(t *testing.T) {
	table := &adaptive.Table{}
	b := trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) {
		o.Adaptive, o.Policies = table, &trial.Switching{}
	})
	table.Use(map[string]adaptive.Settings{"GET /a": {SLO: time.Second, Floor: 1, AtOnce: true}}, b.Now.UnixNano())
	follows(b, table, 3, 500*time.Millisecond)
	s := table.Named("GET /a").Status(b.Now.UnixNano())
	if s.Multiplier != adaptive.Whole || s.AtOnce == adaptive.Whole || !strings.Contains(s.Words(),
		"takes 500ms for the median caller, above the 400ms") {
		t.Errorf("%d and %d: %s", s.Multiplier, s.AtOnce, s.Words())
	}
	follows(b, table, 20, 100*time.Millisecond)
	if s := table.Named("GET /a").Status(b.Now.UnixNano()); s.Words() != "the API is well" {
		t.Errorf("%d: %s", s.AtOnce, s.Words())
	}
}

// TestClassesShareANumberThatFollows: however often the number changes, a class has under way what it is guaranteed
// besides what it does not leave for others, and what others are guaranteed stays for them.
func TestClassesShareANumberThatFollows(t *testing.T) {
	rule := policy.Rule{Endpoint: "GET /a", Limit: 100, Per: time.Hour, Priority: "high:30,low:10",
		Subject: policy.SubjectEndpoint.Counting(policy.CountsUnderWay)}
	table := &adaptive.Table{}
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{rule}, func(o *headgate.Options) { o.Adaptive = table })
	table.Use(map[string]adaptive.Settings{"GET /a": {SLO: time.Second, Floor: adaptive.Whole / 8, AtOnce: true}},
		b.Now.UnixNano())
	ask := func(class policy.Class) (n int) {
		for {
			r := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Class: class}
			if _, d := b.Reserve(t.Context(), r, headgate.UntilSettled); !d.Allowed {
				return n
			}
			n++
		}
	}
	follows(b, table, 7, 2*time.Second) // to 0.9 ^ 7
	if low, high := ask(policy.Low), ask(policy.High); low != 19 || high != 24 {
		t.Errorf("%d low and %d high are under way of 47, want 19 and 24", low, high)
	}
	b.Now = b.Now.Add(2 * time.Hour)
	low := ask(policy.Low)
	for range 10 {
		follows(b, table, 1, 2*time.Second)
		low += ask(policy.Low)
	}
	for range 100 {
		follows(b, table, 1, time.Millisecond)
		low += ask(policy.Low)
	}
	if s := table.Named("GET /a").Status(b.Now.UnixNano()); s.AtOnce != adaptive.Whole {
		t.Fatalf("it is lowered to %d, want all again", s.AtOnce)
	}
	if high := ask(policy.High); low != 40 || high != 50 {
		t.Errorf("%d low and %d high are under way, want 40 and 50", low, high)
	}
}

// TestAnEvictedNumberThatFollows: places whose bucket gave way in a full table count for all of them, also where it was
// asked for while fewer were to be had.
func TestAnEvictedNumberThatFollows(t *testing.T) {
	rule := policy.Rule{Endpoint: "GET /a", Limit: 10, Per: time.Hour,
		Subject: policy.SubjectIP.Counting(policy.CountsUnderWay)}
	table := &adaptive.Table{}
	store, err := memory.New(memory.Options{MaxBuckets: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{rule},
		func(o *headgate.Options) { o.Adaptive, o.Buckets = table, store })
	table.Use(map[string]adaptive.Settings{"GET /a": {SLO: time.Second, Floor: adaptive.Whole / 8, AtOnce: true}},
		b.Now.UnixNano())
	for range 10 {
		b.Get("/a")
	}
	for n := range 1 << 12 {
		peer := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
		for range 11 { // whoever is denied stays the longest
			b.Check(t.Context(), headgate.Request{Method: "GET", Target: "/a", Peer: peer})
		}
	}
	follows(b, table, 10, 2*time.Second)
	if d := b.Get("/a"); d.Allowed {
		t.Error("an 11th is let in while fewer than ten may be under way")
	}
	follows(b, table, 100, time.Millisecond)
	if d := b.Get("/a"); d.Allowed {
		t.Error("an 11th is let in once ten may be under way again")
	}
}

// TestNumbersThatFollowAndChange: requests that come, end and stay, of three callers under two limits, while the API is
// slow, well or silent, and settings and limits change: each is let in if, and only if, fewer are under way than the
// part in force of each number, one at least, whatever that was when the others came; and explain says how many.
func TestNumbersThatFollowAndChange(t *testing.T) {
	type held struct {
		made   headgate.Reservation
		caller int
	}
	lowered := 0
	run := func(t *testing.T, seed uint64) {
		changes := 0
		rng := rand.New(rand.NewPCG(seed, 25))
		table, rules := &adaptive.Table{}, &trial.Switching{}
		b := trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) {
			o.Adaptive, o.Policies, o.Now = table, rules, time.Now
		})
		each := policy.Rule{Endpoint: "GET /a", Per: time.Hour, Limit: 8,
			Subject: policy.SubjectPrincipal.Counting(policy.CountsUnderWay)}
		all := policy.Rule{Endpoint: policy.Default, Per: time.Hour, Limit: 12,
			Subject: policy.SubjectEndpoint.Counting(policy.CountsUnderWay)}
		b.Now = time.Now() // when rules are read
		rules.Become(t, b, each, all)
		s := adaptive.Settings{SLO: time.Second, Floor: adaptive.Whole / 8, AtOnce: true}
		use := func() { table.Use(map[string]adaptive.Settings{"GET /a": s}, time.Now().UnixNano()) }
		use()
		var under []held
		for step := range 150 {
			time.Sleep(time.Millisecond)
			switch n := rng.IntN(20); {
			case n < 2 && changes < 7: // of more a place that is given back knows nothing
				each.Limit, all.Limit = 1+rng.Int64N(10), 1+rng.Int64N(20)
				b.Now = time.Now()
				rules.Become(t, b, each, all)
				changes++
			case n < 4:
				s.Floor, s.AtOnce = 1+rng.IntN(adaptive.Whole), rng.IntN(4) > 0
				use()
			case n < 8:
				took := time.Duration(rng.IntN(3)) * time.Second
				for range 1 + rng.IntN(4) {
					at, now := table.Named("GET /a"), time.Now().UnixNano()
					for n := range uint64(60) {
						at.Sent(now, n)
						at.Answered(now, n, took, false)
					}
					at.Refused(false, took == 0)
					time.Sleep(2 * time.Second)
				}
			case n < 9:
				time.Sleep(time.Duration(rng.IntN(30)) * time.Second)
			case n < 12 && len(under) > 0:
				i := rng.IntN(len(under))
				b.MustSettle(t, under[i].made.ID, 1)
				under = slices.Delete(under, i, i+1)
			}
			caller := rng.IntN(3)
			r := headgate.Request{Method: "GET", Target: "/a", Peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(caller)})}
			part := table.Named("GET /a").Status(time.Now().UnixNano()).AtOnce
			own := 0
			for _, h := range under {
				if h.caller == caller {
					own++
				}
			}
			inForce := func(n int64) int64 { return max(1, n*int64(part)/adaptive.Whole) }
			want := int64(own) < inForce(each.Limit) && int64(len(under)) < inForce(all.Limit)
			x := b.Explain(t.Context(), r)
			for _, one := range x.Buckets {
				limit, taken := each.Limit, own
				if one.Subject == all.SubjectText() {
					limit, taken = all.Limit, len(under)
				}
				if one.Taken != min(limit, int64(taken)) {
					t.Fatalf("seed %d, step %d: explain tells of %d under way, want %d", seed, step, one.Taken, taken)
				}
				if s.AtOnce && one.Places != inForce(limit) || !s.AtOnce && one.Places != 0 {
					t.Fatalf("seed %d, step %d: explain tells of %d places, want %d of %d", seed, step, one.Places,
						inForce(limit), limit)
				}
			}
			made, d := b.Reserve(t.Context(), r, headgate.UntilSettled)
			if d.Allowed != want || x.Verdict.Allowed != want {
				t.Fatalf("seed %d, step %d: %v and explained as %v, with %d of %d and %d of %d under way at %d/1024",
					seed, step, d.Reason, x.Verdict.Reason, own, each.Limit, len(under), all.Limit, part)
			}
			if d.Allowed {
				under = append(under, held{made, caller})
			}
			if part < adaptive.Whole {
				lowered++
			}
		}
		for _, h := range under {
			b.MustSettle(t, h.made.ID, 1)
		}
		time.Sleep(time.Hour) // what renews places ends
	}
	for seed := range uint64(race.Fewer(60)) {
		synctest.Test(t, func(t *testing.T) { run(t, seed) })
	}
	if lowered < 300 && !race.Enabled {
		t.Errorf("fewer were in force %d times: that shows little", lowered)
	}
}

// penalising is a limit on how many requests are under way that follows the API, and blocks who is denied three times.
func penalising(t *testing.T, limit int64) (*trial.Bench, *adaptive.Table) {
	rule := policy.Rule{Endpoint: "GET /a", Limit: limit, Per: time.Hour, Penalty: "3 in 10s for 1m with addresses",
		Subject: policy.SubjectIP.Counting(policy.CountsUnderWay)}
	table := &adaptive.Table{}
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{rule}, func(o *headgate.Options) { o.Adaptive = table })
	s := adaptive.Settings{SLO: time.Second, Floor: adaptive.Whole / 8, AtOnce: true}
	table.Use(map[string]adaptive.Settings{"GET /a": s}, b.Now.UnixNano())
	return b, table
}

// TestOneAtOnceIsAllOfIt: of a limit of one request under way all is in force whatever the part is, so nobody is told
// that it is lowered, who is denied by it asks for no larger part, and is blocked as the rule says.
func TestOneAtOnceIsAllOfIt(t *testing.T) {
	b, table := penalising(t, 1)
	at := table.Named("GET /a")
	follows(b, table, 5, 2*time.Second)
	before := at.Status(b.Now.UnixNano()).AtOnce
	b.Get("/a")
	d := b.Get("/a")
	if v, _ := d.Binding(); d.Allowed || v.Lowered != 0 {
		t.Errorf("the second is %v, by a limit lowered to %d, want none", d.Reason, v.Lowered)
	}
	for n := range uint64(60) { // the API is well
		at.Sent(b.Now.UnixNano(), n)
		at.Answered(b.Now.UnixNano(), n, time.Millisecond, false)
	}
	b.Now = b.Now.Add(2 * time.Second)
	if after := at.Status(b.Now.UnixNano()).AtOnce; before == adaptive.Whole || after != before {
		t.Errorf("the part was %d and is %d, want the same: nobody was refused for it", before, after)
	}
	b.Get("/a")
	b.Get("/a")
	if d := b.Get("/a"); d.Reason != headgate.InPenalty {
		t.Errorf("who was denied three times is told %v, want in_penalty", d.Reason)
	}
}

// TestDenialsByTheWholeNumberCount: towards a penalty, once all of the number is in force again, while rates are
// lowered or were a minute ago.
func TestDenialsByTheWholeNumberCount(t *testing.T) {
	b, table := penalising(t, 2)
	follows(b, table, 10, 2*time.Second)
	for range 5 {
		b.Get("/a")
	}
	if d := b.Get("/a"); d.Allowed || d.Reason == headgate.InPenalty {
		t.Errorf("a denial by a lowered number is %v, want one that does not count", d.Reason)
	}
	follows(b, table, 100, time.Millisecond)
	now := table.Named("GET /a").Status(b.Now.UnixNano())
	if now.AtOnce < adaptive.Whole || now.Multiplier == adaptive.Whole {
		t.Fatalf("numbers are lowered to %d and rates to %d, want rates alone", now.AtOnce, now.Multiplier)
	}
	for range 4 {
		b.Get("/a")
	}
	if d := b.Get("/a"); d.Reason != headgate.InPenalty {
		t.Errorf("who was denied three times by all of the number is told %v, want in_penalty", d.Reason)
	}
}

// TestWhoLeavesIsToldOf: an endpoint that is in the table no more is lowered no more, and that is said, once; whatever
// answers come of requests that were under way.
func TestWhoLeavesIsToldOf(t *testing.T) {
	var events []string
	table := &adaptive.Table{Notify: func(e adaptive.Event) {
		s := e.Status
		events = append(events, fmt.Sprint(e.Begun, s.Multiplier < adaptive.Whole, s.AtOnce < adaptive.Whole))
	}}
	now, s := int64(time.Hour), adaptive.Settings{SLO: time.Second, Floor: 1, AtOnce: true}
	table.Use(map[string]adaptive.Settings{"GET /a": s}, now)
	at := table.Named("GET /a")
	slow := func() {
		for range 3 {
			for caller := range uint64(60) {
				at.Sent(now, caller)
				at.Answered(now, caller, time.Second/2, false)
			}
			now += int64(2 * time.Second)
		}
	}
	slow()
	table.Use(nil, now)
	slow()
	if want := []string{"true false true", "false false false"}; !slices.Equal(events, want) {
		t.Errorf("told %q, want %q", events, want)
	}
}
