package charge_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

// from is a request of the i-th client.
func from(i int) headgate.Request {
	return headgate.Request{Method: "GET", Target: "/a", Peer: netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})}
}

// TestRuleForAShare: the clients of the share are denied above the limit, the
// others are counted and pass, under the rule behind it if there is one.
func TestRuleForAShare(t *testing.T) {
	for name, behind := range map[string][]policy.Rule{
		"alone":               nil,
		"before another rule": {{Endpoint: policy.Default, Limit: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			b := trial.New(t, []string{"GET /a"},
				append([]policy.Rule{{Endpoint: "GET /a", Limit: 1, EnforcePercent: 25}}, behind...))
			denied := 0
			for i := range 400 {
				var passed int
				var last headgate.Decision
				for range 8 {
					if last = b.Check(context.Background(), from(i)); last.Allowed {
						passed++
					}
				}
				first := last.Verdicts()[0]
				want := 8
				switch {
				case !first.Shadow:
					denied++
					want = 1
					if len(last.Verdicts()) != 1 {
						t.Fatalf("client %d of the share has %d verdicts, want the rule's alone", i,
							len(last.Verdicts()))
					}
				case behind != nil:
					want = 5
				}
				if passed != want || first.Outcome.Allowed {
					t.Fatalf("client %d (in shadow: %v): %d of 8 pass and the rule says %v, want %d, and that it "+
						"has no room", i, first.Shadow, passed, first.Outcome.Allowed, want)
				}
			}
			if denied < 65 || denied > 135 { // 100, four standard deviations
				t.Errorf("%d of 400 clients are denied, want about 100", denied)
			}
		})
	}
}

// TestShareEqualsShadow: to a caller who is not among the share, a rule is one in
// shadow, whatever is asked of it.
func TestShareEqualsShadow(t *testing.T) {
	rule := policy.Rule{Endpoint: "GET /a", Limit: 2, EnforcePercent: 30}
	inShadow := rule
	inShadow.EnforcePercent, inShadow.Mode = 0, policy.Shadow
	whole := rule
	whole.EnforcePercent = 0
	limits := func(r policy.Rule) *trial.Bench {
		return trial.New(t, []string{"GET /a"}, []policy.Rule{r, {Endpoint: policy.Default, Limit: 3},
			{Endpoint: policy.All, Limit: 100, Subject: policy.SubjectIP}})
	}
	share, shadow, full := limits(rule), limits(inShadow), limits(whole)
	ways := map[string]func(b *trial.Bench, r headgate.Request) headgate.Decision{
		"Check": func(b *trial.Bench, r headgate.Request) headgate.Decision { return b.Check(t.Context(), r) },
		"Wait": func(b *trial.Bench, r headgate.Request) headgate.Decision {
			d, _ := b.Wait(t.Context(), r)
			return d
		},
		"Reserve": func(b *trial.Bench, r headgate.Request) headgate.Decision {
			_, d := b.Reserve(t.Context(), r, 0)
			return d
		},
	}
	say := func(d headgate.Decision) string {
		text := fmt.Sprint(d.Allowed, d.Reason, d.RetryAfter)
		for _, v := range d.Verdicts() {
			text += fmt.Sprintf(" %v %v %+v", v.Level, v.Shadow, v.Outcome)
		}
		return text
	}
	rng := rand.New(rand.NewPCG(3, 5))
	seen := map[bool]int{}
	for i := range 200 {
		first := share.Check(t.Context(), from(i))
		among := !first.Verdicts()[0].Shadow
		like := shadow
		if among {
			like = full
		}
		like.Check(t.Context(), from(i))
		seen[among]++
		for range 4 {
			way := slices.Sorted(maps.Keys(ways))[rng.IntN(len(ways))]
			if got, want := say(ways[way](share, from(i))), say(ways[way](like, from(i))); got != want {
				t.Fatalf("client %d, among them: %v: %s says\n%s\nwant\n%s", i, among, way, got, want)
			}
		}
		x := share.Explain(t.Context(), from(i))
		text := "enforced for 30 %: this caller is not among them"
		mode := "shadow"
		if among {
			text, mode = "enforced for 30 %: this caller is among them", "enforce"
		}
		at := slices.IndexFunc(x.Considered, func(c inspect.Considered) bool { return c.Rule == "GET /a" })
		if why := x.Considered[at].Why; !strings.Contains(why, text) || x.Buckets[0].Mode != mode ||
			x.Buckets[0].Percent != 30 {
			t.Fatalf("client %d: explained as %q, in mode %s, for %d %%", i, why, x.Buckets[0].Mode,
				x.Buckets[0].Percent)
		}
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("%d clients are among the share and %d not, want some of both", seen[true], seen[false])
	}
}

// TestShareGoesOn: the bucket of a rule counts everybody all the time, so nobody
// gains when its percentage is raised, and the same clients stay in.
func TestShareGoesOn(t *testing.T) {
	rules := &trial.Switching{}
	b := trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) { o.Policies = rules })
	were := map[int]bool{}
	for _, percent := range []int64{10, 40, 70, 100} {
		rules.Become(t, b, policy.Rule{Endpoint: "GET /a", Limit: 1, Per: time.Hour, Burst: 3, EnforcePercent: percent})
		for i := range 100 {
			passed := 0
			for range 5 {
				if b.Check(t.Context(), from(i)).Allowed {
					passed++
				}
			}
			in := passed < 5
			if were[i] && !in || in && percent > 10 && passed > 0 {
				t.Fatalf("client %d at %d %%: %d of 5 pass, was denied before: %v", i, percent, passed, were[i])
			}
			were[i] = in
		}
	}
}

// TestShareSettles: what a reservation took under a rule for a share is corrected,
// whoever the caller is.
func TestShareSettles(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{
		{Endpoint: "GET /a", Limit: 10, Per: time.Hour, EnforcePercent: 50},
		{Endpoint: policy.Default, Limit: 10, Per: time.Hour},
	})
	for i := range 20 {
		r := from(i)
		r.Cost = 8
		made, d := b.Reserve(t.Context(), r, 0)
		if !d.Allowed {
			t.Fatal(d.Reason)
		}
		if s, err := b.Settle(t.Context(), made.ID, 2); err != nil || s.Status != reservation.Settled {
			t.Fatal(s, err)
		}
		for _, v := range b.Explain(t.Context(), from(i)).Buckets {
			if v.Remaining != 7 {
				t.Errorf("client %d: %d remain after one more, want 10-2-1", i, v.Remaining)
			}
		}
	}
}

// TestShareAllocatesNothing, neither for those among it nor for the others.
func TestShareAllocatesNothing(t *testing.T) {
	var rules []policy.Rule
	for _, s := range []policy.Subject{policy.SubjectPrincipal, policy.SubjectIP} {
		rules = append(rules, policy.Rule{Endpoint: "GET /a", Limit: 1, Subject: s, EnforcePercent: 50},
			policy.Rule{Endpoint: policy.Default, Limit: 5, Subject: s})
	}
	b := trial.New(t, []string{"GET /a"}, rules)
	for i := range 10 {
		r := from(i)
		if n := testing.AllocsPerRun(200, func() { b.Check(context.Background(), r) }); n >= trial.Allocations {
			t.Errorf("Check allocates %v times for client %d, want 0", n, i)
		}
	}
}
