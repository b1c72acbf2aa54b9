package charge_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestShadowsOfSharedBudgets count what they would deny if they were enforced, and change no answer.
func TestShadowsOfSharedBudgets(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	shared := policy.Rule{Limit: 20, Burst: 100, Priority: "high:20,normal:10,low:10"}
	enforced := sharing(t, shared)
	shared.Mode = policy.Shadow
	shadow := sharing(t, shared)
	denied := 0
	for range 4000 {
		ask := headgate.Request{Method: "GET", Target: "/" + classes[rng.IntN(4)], Peer: trial.Client,
			Cost: 1 + rng.Int64N(3)}
		enforced.Now = enforced.Now.Add(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
		shadow.Now = enforced.Now
		d, s := enforced.Check(context.Background(), ask), shadow.Check(context.Background(), ask)
		if v := s.Verdicts()[1]; !s.Allowed || !v.Shadow || v.Outcome.Allowed != d.Allowed {
			t.Fatalf("in shadow it is %v, %+v, enforced %t", s.Reason, v.Outcome, d.Allowed)
		}
		if !d.Allowed {
			denied++
		}
	}
	if denied < 100 {
		t.Errorf("%d are denied, want more", denied)
	}
}

// TestShadowsBesideAnEnforcedBudget: a request that passes by what its class is guaranteed is asked about the same way
// where another budget is in shadow.
func TestShadowsBesideAnEnforcedBudget(t *testing.T) {
	shared := policy.Rule{Limit: 1, Per: time.Hour, Burst: 100, Priority: "high:20,low:10"}
	templates, rules := classed(shared)
	tried := rules[len(rules)-1]
	tried.Mode, tried.Subject = policy.Shadow, policy.SubjectIP
	b := trial.New(t, templates, append(rules, tried))
	for range 45 { // 35 that leave what is to be left, and 10 that low is guaranteed
		d := b.Get("/low")
		for _, v := range d.Verdicts() {
			if !d.Allowed || !v.Outcome.Allowed {
				t.Fatalf("%v, by %+v", d.Reason, v)
			}
		}
	}
	if d := b.Get("/low"); d.Allowed {
		t.Error("low passes beyond what it is guaranteed")
	}
}

// TestAShadowBesideManyRules: with however many others a rule in shadow applies, what passes by what its class is
// guaranteed is told as that, and is given back if it was not used.
func TestAShadowBesideManyRules(t *testing.T) {
	templates, rules := classed(policy.Rule{Limit: 1, Per: time.Hour, Burst: 100, Priority: "high:20,low:10",
		Mode: policy.Shadow})
	for _, of := range []policy.Subject{policy.SubjectPrincipalIP, policy.SubjectIP, policy.SubjectSite} {
		for _, what := range []policy.Counted{policy.CountsTokens, policy.CountsRequests, policy.CountsUnderWay} {
			rules = append(rules, policy.Rule{Endpoint: "GET /low", Limit: 1 << 20, Subject: of.Counting(what)})
			b := trial.New(t, templates, rules)
			b.Get("/high") // to which few apply
			ask := headgate.Request{Method: "GET", Target: "/low", Peer: trial.Client, Cost: 34}
			b.Check(t.Context(), ask) // what leaves what is to be left, with that of high
			ask.Cost = 10             // what low is guaranteed
			for range 2 {
				made, d := b.Reserve(t.Context(), ask, 0)
				for _, v := range d.Verdicts() {
					if !v.Outcome.Allowed {
						t.Errorf("of %d rules: %+v", len(d.Verdicts()), v)
					}
				}
				if _, err := b.SettleAnswer(t.Context(), made.ID, headgate.Answer{}); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
