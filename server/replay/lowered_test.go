package replay

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/decisionlog"
)

// TestDecisionsOfLoweredRatesAreTheSame: what was decided while rates were lowered and raised, by what one gateway saw
// and by what several agreed on, is decided again as it was from the log of it, also after callers who left while they
// waited for their turn. So are the waits that callers are told of, to the nanosecond.
func TestDecisionsOfLoweredRatesAreTheSame(t *testing.T) {
	denied, lowered, left := int64(0), int64(0), 0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 41))
		rules := []policy.Rule{
			{Endpoint: policy.Default, Limit: 2 + rng.Int64N(9), Per: time.Minute, Burst: 1 + rng.Int64N(5)},
			{Endpoint: "GET /b/{id}", Limit: 1 + rng.Int64N(5), Per: 10 * time.Second, Scope: policy.Strict},
			{Endpoint: policy.All, Subject: policy.SubjectIP, Limit: 60, Per: time.Minute},
			{Endpoint: "POST /b", Limit: 20, Per: time.Minute, Scope: policy.Gossip},
			{Endpoint: "GET /a", Limit: 6, Per: time.Hour, Subject: policy.SubjectIP.Counting(policy.CountsUnderWay)},
			{Endpoint: queue, Limit: 2 + rng.Int64N(9), Per: time.Minute, Burst: 3, Algorithm: policy.LeakyBucket,
				Subject: policy.SubjectIP},
		}
		var clockAt atomic.Int64 // which who has requests under way looks at
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		clockAt.Store(now.UnixNano())
		clock := func() time.Time { return time.Unix(0, clockAt.Load()) }
		var out bytes.Buffer
		log, err := decisionlog.New(decisionlog.Options{Write: &out, Caller: func(p *identity.Principal) string {
			return fmt.Sprintf("%x00000000", p.Prefix.Addr().As4())
		}, PerSecond: 100_000, Admitted: 1, Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		var then, again []string
		said := func(all *[]string, also func(*headgate.Request, *headgate.Decision)) func(*headgate.Request,
			*headgate.Decision) {
			return func(r *headgate.Request, d *headgate.Decision) {
				binding, _ := d.Binding()
				// A bad credential is refused where others pass, and costs what they cost.
				*all = append(*all, fmt.Sprint(d.Template(), d.Allowed || d.Reason == headgate.BadCredential,
					d.RetryAfter, binding.Outcome.Wait, binding.Lowered, binding.Outcome.Remaining))
				also(r, d)
			}
		}
		table := &adaptive.Table{Changed: log.Changed, KeepShared: seed%5 == 0}
		of := map[string]adaptive.Settings{}
		for _, at := range []string{"GET /a", "GET /b/{id}", "POST /b", queue} {
			of[at] = adaptive.Settings{SLO: time.Second, Floor: adaptive.Whole / 10, AtOnce: seed%2 == 0}
		}
		table.Use(of, now.UnixNano())
		leaves := false // whoever has to wait for its turn, at some moment before it
		recorded := lowering(t, clock, rules, said(&then, func(r *headgate.Request, d *headgate.Decision) {
			log.Observe(r, d)
			if leaves && d.Wait > 0 {
				now = now.Add(time.Duration(rng.Int64N(int64(d.Wait))))
				clockAt.Store(now.UnixNano())
				left++
			}
		}), table, log)
		gone, leave := context.WithCancel(t.Context())
		leave()
		slow := false
		var held []headgate.Reservation
		for range 1000 {
			now = now.Add(time.Duration(rng.Int64N(int64(2 * time.Second))))
			switch rng.IntN(100) {
			case 0, 1, 2:
				now = now.Add(time.Duration(rng.Int64N(int64(200 * time.Second)))) // nobody comes, and is forgotten
			case 3, 4, 5:
				slow = !slow
			case 6:
				delete(of, "GET /a")
				table.Use(of, now.UnixNano())
			case 7:
				of["GET /a"] = adaptive.Settings{SLO: time.Second, Floor: adaptive.Whole / 5, AtOnce: seed%2 == 0}
				table.Use(of, now.UnixNano())
			case 8, 9, 10, 11:
				table.Hear(now.UnixNano(), [][]byte{another(rng, table.Tell(now.UnixNano()))})
			}
			if rng.IntN(3) == 0 { // what others ask for, and how the API is
				for name := range of {
					for caller := range uint64(60) {
						took := time.Duration(rng.Int64N(int64(time.Second / 2)))
						if slow {
							took += 2 * time.Second
						}
						table.Named(name).Sent(now.UnixNano(), caller)
						table.Named(name).Answered(now.UnixNano(), caller, took, false)
					}
				}
			}
			asked := [][2]string{{"GET", "/a"}, {"GET", "/b/1"}, {"POST", "/b"}, {"GET", "/c"}}[rng.IntN(4)]
			request := headgate.Request{
				Method: asked[0], Target: asked[1], Peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(3))}),
			}
			clockAt.Store(now.UnixNano())
			if rng.IntN(8) == 0 {
				request.Header = http.Header{"X-Api-Key": {"hg_made_up"}}
			}
			if leaves = request.Target == "/c" && rng.IntN(2) == 0; leaves {
				if rng.IntN(2) == 0 {
					_, _ = recorded.Wait(gone, request)
				} else if made, d, _ := recorded.ReserveWait(gone, request, time.Hour); d.Allowed {
					held = append(held, made)
				}
				leaves = false
				continue
			}
			if request.Target != "/a" && rng.IntN(4) > 0 {
				recorded.Check(t.Context(), request)
				continue
			}
			request.Cost = 1 + rng.Int64N(3)
			if made, d := recorded.Reserve(t.Context(), request, time.Hour); d.Allowed {
				held = append(held, made)
			}
			if now = now.Add(time.Duration(rng.Int64N(int64(3 * time.Second)))); len(held) > rng.IntN(20) {
				clockAt.Store(now.UnixNano())
				_, _ = recorded.SettleAnswer(t.Context(), held[0].ID, headgate.Answer{Actual: rng.Int64N(4)})
				held = held[1:]
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		log.Run(ctx)
		r, err := New("", nil)
		if err != nil {
			t.Fatal(err)
		}
		nobody := func(*headgate.Request, *headgate.Decision) {}
		r.Use(Rules{"the same", lowering(t, r.Clock, rules, said(&again, nobody), r.Lowered(), nil)})
		if err := r.Read(t.Context(), "log", strings.NewReader(out.String())); err != nil {
			t.Fatal(err)
		}
		for i := range then {
			if i >= len(again) || then[i] != again[i] {
				t.Fatalf("seed %d: decision %d of %d was %s, and of %d is %s", seed, i, len(then), then[i], len(again),
					again[min(i, len(again)-1)])
			}
		}
		report := r.Report()
		denied, lowered = denied+report.Sides[0].Denied, lowered+report.Lowered
	}
	if denied < 1000 || lowered < 1000 || left < 200 {
		t.Errorf("%d were denied, %d met a lowered rate, %d left: that shows little", denied, lowered, left)
	}
}

// queue is where requests wait for their turn.
const queue = "GET /{rest...}"

// another is what another gateway might say in the place of this one.
func another(rng *rand.Rand, told []byte) []byte {
	told = bytes.Clone(told)
	for at := 1; at+10 <= len(told); at += 10 {
		binary.BigEndian.PutUint16(told[at+8:], uint16(1+rng.IntN(rate.Whole)))
	}
	return told
}

func lowering(t testing.TB, clock func() time.Time, rules []policy.Rule,
	observe func(*headgate.Request, *headgate.Decision), table *adaptive.Table,
	log *decisionlog.Log) *headgate.Limiter {
	digester, err := identity.NewDigester(make([]byte, identity.MinSecretLength))
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{Keys: &identity.Keyring{}, Digester: digester})
	if err != nil {
		t.Fatal(err)
	}
	return limiterWith(t, clock, rules, observe, func(o *headgate.Options) {
		o.Adaptive, o.Identities, o.RefuseBadCredentials = table, who, true
		if log != nil {
			o.Settled, o.Abandoned = log.Settled, log.Abandoned
		}
	})
}

// TestLinesOfALoweredRate: a log that has no line of its own of that, as it begins later or had no room, still has what
// decisions met.
func TestLinesOfALoweredRate(t *testing.T) {
	var log strings.Builder
	for n, verdict := range []string{"allowed", "allowed", "denied", "denied", "denied", "allowed"} {
		reason := map[string]string{"allowed": "within_limits", "denied": "over_limit"}[verdict]
		fmt.Fprintf(&log, `{"at":%d,"decision":%q,"reason":%q,"rule":"default","endpoint":"GET /a","caller":`+
			`"5e5e5e5e5e5e5e5e","kind":"address","cost":1,"multiplier":0.25}`+"\n", int64(n+1)*int64(time.Second),
			verdict, reason)
	}
	rules := []policy.Rule{{Endpoint: policy.Default, Limit: 1, Burst: 1}}
	got := replayed(t, log.String(), rules)
	side := got.Sides[0]
	if got.Lowered != 6 || got.Requests != 6 || side.Denied != 4 {
		t.Errorf("%+v, side %+v", got, side)
	}
}

// TestLinesOfFewerAtOnce: a decision that met fewer requests under way than its rule says has met no lowered rate.
func TestLinesOfFewerAtOnce(t *testing.T) {
	var log strings.Builder
	for n, verdict := range []string{"allowed", "denied", "denied"} {
		reason := map[string]string{"allowed": "within_limits", "denied": "over_limit"}[verdict]
		fmt.Fprintf(&log, `{"at":%d,"decision":%q,"reason":%q,"rule":"at once","endpoint":"GET /a","caller":`+
			`"5e5e5e5e5e5e5e5e","kind":"address","cost":1,"at_once":0.25}`+"\n", int64(n+1)*int64(time.Second),
			verdict, reason)
	}
	fmt.Fprintf(&log, `{"at":%d,"decision":"allowed","reason":"within_limits","rule":"default","endpoint":"GET /a",`+
		`"caller":"6e6e6e6e6e6e6e6e","kind":"address","cost":1,"at_once":0.25}`+"\n", int64(4)*int64(time.Second))
	rules := []policy.Rule{
		{Endpoint: policy.Default, Limit: 1, Burst: 1, Subject: policy.SubjectEndpoint},
		{Endpoint: policy.Default, Limit: 4, Per: time.Hour, Name: "at once",
			Subject: policy.SubjectIP.Counting(policy.CountsUnderWay)},
	}
	got := replayed(t, log.String(), rules)
	if side := got.Sides[0]; got.Lowered != 4 || side.Same != 4 || side.Denied != 2 {
		t.Errorf("%+v, side %+v", got, side)
	}
}

// TestWhatDecisionsSayInTurn: of what no line has said, each decision says a part, at one endpoint and at another; also
// of what a line said before others were left out.
func TestWhatDecisionsSayInTurn(t *testing.T) {
	const decision = `{"at":%d,"decision":"denied","reason":"over_limit","rule":"a","endpoint":%q,"caller":` +
		`"5e5e5e5e5e5e5e5e","kind":"address","cost":1%s}` + "\n"
	for name, first := range map[string]string{
		"a log that begins later":   "",
		"one that lacks some lines": `{"at":1,"lowered":"*","multiplier":1}` + "\n" + `{"time":"","skipped":3}` + "\n",
		"one that lacks others": `{"at":1,"lowered":"GET /a","since":1,"multiplier":0.75,"at_once":0.75}` + "\n" +
			`{"at":1,"lowered":"GET /b","since":1,"multiplier":0.75,"at_once":0.75}` + "\n" +
			`{"time":"","skipped":3}` + "\n",
	} {
		r, _ := New("decisions", nil)
		r.Use()
		log := first
		for at, said := range []string{`,"multiplier":0.5`, `,"at_once":0.25`} {
			log += fmt.Sprintf(decision, at+2, "GET /a", said) + fmt.Sprintf(decision, at+2, "GET /b", said)
		}
		if err := r.Read(t.Context(), "log", strings.NewReader(log)); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{"GET /a", "GET /b"} {
			if l := r.Lowered().Named(at).Lowered(10); l.Own.Part() != 512 || l.AtOnce.Part() != 256 {
				t.Errorf("%s: of %s %d of rates and %d of numbers are in force, want 512 and 256", name, at,
					l.Own.Part(), l.AtOnce.Part())
			}
		}
	}
}

// TestAnyLineMayBeTheFirst: older ones go where a decision log is divided, or begins in another process.
func TestAnyLineMayBeTheFirst(t *testing.T) {
	for _, line := range []string{
		`{"time":"2026-01-02T03:04:05Z","at":1,"lowered":"GET /a","since":1,"at_once":0.5}`,
		`{"time":"2026-01-02T03:04:05Z","at":1,"lowered":"*","multiplier":1}`,
		`{"time":"2026-01-02T03:04:05Z","at":1,"settled":"5e5e5e5e5e5e5e5e","actual":1}`,
		`{"time":"2026-01-02T03:04:05Z","skipped":7}`,
	} {
		if got := Detect(line); got != "decisions" {
			t.Errorf("Detect(%s) = %s, want decisions", line, got)
		}
	}
}

// TestLinesOfLoweredRatesThatCannotBeRead: they say which member, and what would be right.
func TestLinesOfLoweredRatesThatCannotBeRead(t *testing.T) {
	for line, want := range map[string]string{
		`{"at":1,"lowered":"GET /a","since":"x","multiplier":0.5}`: `since is "x"`,
		`{"at":1,"lowered":"GET /a","since":1,"multiplier":1.5}`:   `multiplier is "1.5", want above 0 and at most 1`,
		`{"at":1,"lowered":"GET /a","since":1,"agreed":-1}`:        `agreed is "-1"`,
		`{"at":1,"decision":"denied","multiplier":2,"at_once":0}`:  `at_once is "0", want above 0 and at most 1`,
	} {
		r, _ := New("decisions", nil)
		r.Use()
		if err := r.Read(t.Context(), "log", strings.NewReader(line+"\n")); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

// TestLinesOfLoweredRatesAreReadWhole: rates, those that gateways agreed on, and how many may be under way.
func TestLinesOfLoweredRatesAreReadWhole(t *testing.T) {
	var e Entry
	const line = `{"at":7,"lowered":"GET /a","since":5,"multiplier":0.5,"agreed":0.75,"at_once":0.25}`
	if err := inDecisions()(line, &e); err != nil {
		t.Fatal(err)
	}
	want := adaptive.Change{Endpoint: "GET /a", At: 7, Since: 5, Own: 512, Shared: 768, AtOnce: 256}
	if e.Decided.Change == nil || *e.Decided.Change != want {
		t.Errorf("%+v, want %+v", e.Decided.Change, want)
	}
}

// TestAFloodOfEndpointsIsFollowedToABound: a log that somebody made up takes no more memory than a long one.
func TestAFloodOfEndpointsIsFollowedToABound(t *testing.T) {
	var log strings.Builder
	for n := range adaptive.MaxFollowed + 10 {
		fmt.Fprintf(&log, `{"at":%d,"lowered":"GET /%d","since":1,"multiplier":0.5}`+"\n", n+1, n)
	}
	r, _ := New("decisions", nil)
	r.Use()
	if err := r.Read(t.Context(), "log", strings.NewReader(log.String())); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Lowered().Statuses(1)); n != adaptive.MaxFollowed {
		t.Errorf("%d endpoints, want %d", n, adaptive.MaxFollowed)
	}
}
