package charge_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// beside are a limit on requests and one on what they cost, of the same callers.
func beside(tokens, requests int64) []policy.Rule {
	return []policy.Rule{
		{Endpoint: "GET /a", Limit: tokens, Per: time.Hour, Burst: tokens},
		{Endpoint: "GET /a", Limit: requests, Per: time.Hour, Burst: requests,
			Subject: policy.SubjectPrincipal.Counting(policy.CountsRequests)},
	}
}

// left is how much two rules have left: the first, and the one that counts requests.
func left(t testing.TB, d headgate.Decision) (tokens, requests int64) {
	t.Helper()
	if len(d.Verdicts()) != 2 {
		t.Fatalf("%v by %d rules, want two", d.Reason, len(d.Verdicts()))
	}
	for _, v := range d.Verdicts() {
		if _, what := d.Policies().Rule(v.Rule).Subject.Counts(); what == policy.CountsRequests {
			requests = v.Outcome.Remaining
		} else {
			tokens = v.Outcome.Remaining
		}
	}
	return tokens, requests
}

// TestRequestsBesideTokens: a request counts as one, whatever it costs and turns out to have cost.
func TestRequestsBesideTokens(t *testing.T) {
	ctx := context.Background()
	b := trial.New(t, []string{"GET /a"}, beside(1000, 3))
	ask := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: 100}
	first, _ := b.Reserve(ctx, ask, time.Minute)
	second, _ := b.Reserve(ctx, ask, time.Minute)
	_, d := b.Reserve(ctx, ask, time.Minute)
	if tokens, requests := left(t, d); tokens != 700 || requests != 0 {
		t.Fatalf("%d tokens and %d requests are left, want 700 and none", tokens, requests)
	}
	if _, d = b.Reserve(ctx, ask, time.Minute); d.Allowed {
		t.Fatal("a fourth request passes")
	}
	if binding, _ := d.Binding(); d.Policies().Rule(binding.Rule).Rate() != "3 requests per 1h" {
		t.Errorf("it is denied by %s, want by the limit on requests", d.Policies().Rule(binding.Rule).Rate())
	}
	if tokens, _ := left(t, d); tokens != 700 {
		t.Errorf("the denied one leaves %d tokens, want 700", tokens)
	}
	for made, actual := range map[headgate.Reservation]int64{first: 400, second: 0} {
		if _, err := b.Settle(ctx, made.ID, actual); err != nil {
			t.Fatal(err)
		}
	}
	_, d = b.Reserve(ctx, ask, time.Minute)
	if tokens, requests := left(t, d); tokens != 500 || requests != 0 || d.Allowed {
		t.Errorf("settled to 400 and 0 of 100: %d tokens and %d requests are left, want 500 and none", tokens, requests)
	}
	more := ask
	more.UnderWay, more.Cost = true, 60
	if _, d = b.Reserve(ctx, more, time.Minute); !d.Allowed || len(d.Verdicts()) != 1 {
		t.Errorf("more for a request that was counted: %v by %d rules, want allowed by the one on tokens", d.Reason,
			len(d.Verdicts()))
	}
}

// TestMoreOfARequestThatWasCounted: what is under no other rule than one on requests is not without a rule.
func TestMoreOfARequestThatWasCounted(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, beside(1, 3)[1:], func(o *headgate.Options) { o.DenyWithoutRule = true })
	ask := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, UnderWay: true}
	if d := b.Check(context.Background(), ask); !d.Allowed {
		t.Errorf("more of a request: %v", d.Reason)
	}
}

// TestWhoGivesUpIsNoRequest: a request that waited for its turn in vain was never made.
func TestWhoGivesUpIsNoRequest(t *testing.T) {
	rules := beside(1, 3)
	rules[0].Algorithm, rules[0].Burst = policy.LeakyBucket, 10
	b := trial.New(t, []string{"GET /a"}, rules)
	ask := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client}
	ctx, cancel := context.WithCancel(context.Background())
	if _, d, err := b.ReserveWait(ctx, ask, time.Minute); err != nil || !d.Allowed {
		t.Fatal(d.Reason, err)
	}
	cancel()
	for range 5 {
		if _, d, err := b.ReserveWait(ctx, ask, time.Minute); err == nil || d.Reason != headgate.Abandoned {
			t.Fatalf("%v, %v, want abandoned", d.Reason, err)
		}
	}
	d := b.Check(context.Background(), ask)
	if _, requests := left(t, d); requests != 1 {
		t.Errorf("%d requests are left, want 1 of 3: one was made before, and one now", requests)
	}
}

// TestAnswersThatCountAsRequests: a rule may count the requests that were answered so.
func TestAnswersThatCountAsRequests(t *testing.T) {
	rules := beside(1000, 3)
	rules[1].CountWhen = "401"
	b := trial.New(t, []string{"GET /a"}, rules)
	ctx, ask := context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: 10}
	for _, status := range []int{200, 401, 200, 200, 404, 401} {
		made, d, _ := b.WaitAnswer(ctx, ask, time.Minute)
		if !d.Allowed {
			t.Fatal(d.Reason)
		}
		if _, err := b.SettleAnswer(ctx, made.ID, headgate.Answer{Actual: 10, Status: status}); err != nil {
			t.Fatal(err)
		}
	}
	if tokens, requests := left(t, b.Check(ctx, ask)); tokens != 930 || requests != 0 {
		t.Errorf("%d tokens and %d requests are left, want 930 and none of 3", tokens, requests)
	}
}

// TestRandomRequestsBesideTokens reserves and settles at random, beside two sums.
func TestRandomRequestsBesideTokens(t *testing.T) {
	ctx, seed := context.Background(), rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		tokens, requests := 500+random.Int64N(500), 1+random.Int64N(20)
		b := trial.New(t, []string{"GET /a"}, beside(tokens, requests))
		var open []headgate.Reservation
		for range 60 {
			if len(open) > 0 && random.IntN(2) == 0 {
				at := random.IntN(len(open))
				made, a := open[at], headgate.Answer{Forgiven: random.IntN(4) == 0}
				open = append(open[:at], open[at+1:]...)
				if a.Actual = random.Int64N(made.Cost + 10); a.Forgiven {
					tokens, requests = tokens+made.Cost, requests+1
				} else {
					tokens += made.Cost - a.Actual
				}
				if _, err := b.SettleAnswer(ctx, made.ID, a); err != nil {
					t.Fatal(err)
				}
				continue
			}
			ask := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: 1 + random.Int64N(100)}
			made, d := b.Reserve(ctx, ask, time.Hour)
			if want := ask.Cost <= tokens && requests > 0; d.Allowed != want {
				t.Fatalf("seed %d: %v of %d with %d tokens and %d requests left", seed, d.Allowed, ask.Cost, tokens,
					requests)
			}
			if d.Allowed {
				tokens, requests, open = tokens-ask.Cost, requests-1, append(open, made)
			}
		}
	}
}

// TestMovesCountRequests: after a move between tiers the bucket before takes one, too, of a request that costs more.
func TestMovesCountRequests(t *testing.T) {
	subject := policy.SubjectPrincipal.Counting(policy.CountsRequests)
	x := newTenant(t, 1<<10)
	x.load(t, policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /a", Tier: "free", Limit: 3, Per: time.Hour, Burst: 3, Subject: subject},
		{Endpoint: "GET /a", Tier: "gold", Limit: 30, Per: time.Hour, Burst: 30, Subject: subject},
		{Endpoint: policy.Default, Limit: 1000, Burst: 1000},
	}})
	for _, step := range []struct {
		tier       string
		most, want int
	}{{"gold", 2, 2}, {"free", 20, 3}, {"gold", 40, 25}, {"free", 20, 0}} {
		x.move(t, step.tier)
		n := 0
		for ; n < step.most && x.spend(10).Allowed; n++ {
		}
		if n != step.want {
			t.Errorf("%d requests of 10 tokens as %s, want %d", n, step.tier, step.want)
		}
	}
}

// TestTiersOfCredentialsCountRequests: whoever names one tier with one request and another with the next has the larger
// number of requests once, whatever they cost.
func TestTiersOfCredentialsCountRequests(t *testing.T) {
	subject := policy.SubjectPrincipal.Counting(policy.CountsRequests)
	x := newClimber(t, 1<<10, true, true)
	x.load(t,
		policy.Rule{Endpoint: "GET /a", Tier: "free", Limit: 3, Per: time.Hour, Burst: 3, Subject: subject},
		policy.Rule{Endpoint: "GET /a", Tier: "gold", Limit: 30, Per: time.Hour, Burst: 30, Subject: subject},
		policy.Rule{Endpoint: policy.Default, Limit: 1000, Burst: 1000},
	)
	for _, step := range []struct {
		tier       string
		most, want int
	}{{"free", 20, 3}, {"gold", 40, 27}, {"free", 20, 0}} {
		n := 0
		for ; n < step.most; n++ {
			r := x.as(t, step.tier)
			if r.Cost = 10; !x.Check(context.Background(), r).Allowed {
				break
			}
		}
		if n != step.want {
			t.Errorf("%d requests of 10 tokens as %s, want %d", n, step.tier, step.want)
		}
	}
}

// TestPartsOfABatch: a request that holds many costs and counts as so many, all or none.
func TestPartsOfABatch(t *testing.T) {
	ctx := context.Background()
	b := trial.New(t, []string{"GET /a"}, beside(100, 10), func(o *headgate.Options) {
		o.Costs = map[endpoint.ID]int64{1: 7}
	})
	for _, step := range []struct {
		parts, cost      int64
		reason           headgate.Reason
		tokens, requests int64
	}{
		{parts: 4, reason: headgate.WithinLimits, tokens: 72, requests: 6},
		{parts: 0, reason: headgate.WithinLimits, tokens: 65, requests: 5},
		{parts: 6, reason: headgate.OverLimit, tokens: 65, requests: 5},
		{parts: 11, reason: headgate.CostAboveBurst, tokens: 65, requests: 5},
		{parts: math.MaxInt64, reason: headgate.CostAboveBurst, tokens: 65, requests: 5},
		{parts: 3, cost: 20, reason: headgate.WithinLimits, tokens: 5, requests: 2},
		{parts: 1, cost: 5, reason: headgate.WithinLimits, tokens: 0, requests: 1},
	} {
		d := b.Check(ctx, headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Parts: step.parts,
			Cost: step.cost})
		tokens, requests := left(t, d)
		if d.Reason != step.reason || tokens != step.tokens || requests != step.requests {
			t.Errorf("%d parts of cost %d: %v, %d tokens and %d requests are left, want %v, %d and %d", step.parts,
				step.cost, d.Reason, tokens, requests, step.reason, step.tokens, step.requests)
		}
	}
	if d := b.Check(ctx, headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Parts: -1}); d.Reason !=
		headgate.InvalidCost {
		t.Errorf("-1 parts: %v, want invalid_cost", d.Reason)
	}
}
