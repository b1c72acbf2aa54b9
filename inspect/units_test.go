package inspect_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestExplainSaysWhatCheckWouldOfEachUnit: under every algorithm, beside limits on how many requests there are and on
// those under way, for batches and for messages, Explain answers what Check then does, in its reason, its rule and its
// times, and changes nothing by it.
func TestExplainSaysWhatCheckWouldOfEachUnit(t *testing.T) {
	for _, a := range []policy.Algorithm{policy.TokenBucket, policy.LeakyBucket, policy.FixedWindow,
		policy.SlidingWindow, policy.SlidingLog, policy.Calendar, policy.Concurrency} {
		t.Run(a.String(), func(t *testing.T) {
			rule := policy.Rule{Endpoint: policy.Default, Limit: 6, Per: 10 * time.Second, Algorithm: a}
			switch a {
			case policy.Calendar:
				rule.Per, rule.Limit = 24*time.Hour, 60
			case policy.Concurrency:
				rule.Limit, rule.Subject = 3, policy.SubjectPrincipal.Counting(policy.CountsUnderWay)
			}
			rules := []policy.Rule{rule,
				{Endpoint: policy.All, Limit: 8, Per: 10 * time.Second,
					Subject: policy.SubjectPrincipal.Counting(policy.CountsRequests)},
				{Endpoint: "MCP /mcp/tools/call/report", Limit: 2, Per: time.Minute},
				{Endpoint: "MODEL /v1/messages/large", Limit: 2, Per: time.Minute, Algorithm: policy.SlidingLog},
			}
			b := trial.New(t, []string{"GET /a", "POST /rpc", "MCP /mcp/tools/call/report", "MODEL /v1/messages/large",
				"POST /mcp", "POST /v1/messages"}, rules)
			random := rand.New(rand.NewPCG(uint64(a), 9))
			verdicts := map[string]int{}
			for i := range race.Fewer(3000) {
				b.Now = b.Now.Add(time.Duration(random.Int64N(int64(time.Second))))
				r := headgate.Request{Peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(3))}), MaxWait: -1}
				switch random.IntN(4) {
				case 0:
					r.Method, r.Target, r.Cost = "GET", "/a", 1+random.Int64N(4)
				case 1:
					r.Method, r.Target, r.Parts = "POST", "/rpc", random.Int64N(5)
				case 2:
					r.Method, r.Target, r.Message = endpoint.MCP, "/mcp/tools/call/report", true
				default:
					r.Method, r.Target, r.Message = endpoint.Model, "/v1/messages/large", true
				}
				x := b.Explain(t.Context(), r)
				d := b.Check(t.Context(), r)
				rule := ""
				if v, ok := d.Binding(); ok {
					rule = d.Policies().Rule(v.Rule).Title()
				}
				if x.Verdict.Allowed != d.Allowed || x.Verdict.Reason != d.Reason.String() ||
					x.Verdict.RetryAfter != d.RetryAfter || x.Verdict.Wait != d.Wait || x.Cost != d.Cost ||
					!d.Allowed && x.Verdict.Rule != rule {
					t.Fatalf("request %d, %v: Check = %v by %q, %v, %v, cost %d, and Explain = %+v, cost %d", i, r,
						d.Reason, rule, d.RetryAfter, d.Wait, d.Cost, x.Verdict, x.Cost)
				}
				if !d.Allowed {
					verdicts[rule]++
				}
			}
			if len(verdicts) < 3 {
				t.Errorf("denied by %v, want three rules at least", verdicts)
			}
		})
	}
}
