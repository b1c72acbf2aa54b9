package headgate_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

func TestCheckAnswersEachKindOfRequest(t *testing.T) {
	templates := []string{"GET /v1/items/{id}", "POST /v1/items"}
	rules := []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 1}, {Endpoint: policy.UnknownEndpoint, Limit: 1}}
	limitUnknown := func(o *headgate.Options) { o.Unknown = headgate.LimitUnknown }
	for name, c := range map[string]struct {
		method, target string
		options        func(*headgate.Options)
		allowed        bool
		reason         headgate.Reason
	}{
		"within limits":                      {"GET", "/v1/items/1", nil, true, headgate.WithinLimits},
		"HEAD counts as GET":                 {"HEAD", "/v1/items/1", nil, true, headgate.WithinLimits},
		"no rule but UNKNOWN's":              {"POST", "/v1/items", nil, true, headgate.WithinLimits},
		"unknown path":                       {"GET", "/v2/items/1", nil, false, headgate.UnknownEndpoint},
		"unknown path, limited":              {"GET", "/v2/items/1", limitUnknown, true, headgate.WithinLimits},
		"unknown method":                     {"DELETE", "/v1/items/1", nil, false, headgate.UnknownMethod},
		"unknown method, limited":            {"DELETE", "/v1/items/1", limitUnknown, true, headgate.WithinLimits},
		"preflight":                          {"OPTIONS", "/v1/items/1", nil, true, headgate.WithinLimits},
		"OPTIONS of an unknown path":         {"OPTIONS", "/v2/items/1", nil, false, headgate.UnknownEndpoint},
		"invalid target":                     {"GET", "/v1/items/%00", nil, false, headgate.InvalidTarget},
		"invalid target, though all limited": {"GET", "/v1/items/%2f", limitUnknown, false, headgate.InvalidTarget},
	} {
		t.Run(name, func(t *testing.T) {
			if c.options == nil {
				c.options = func(*headgate.Options) {}
			}
			b := trial.New(t, templates, rules, c.options)
			d := b.Check(context.Background(), headgate.Request{Method: c.method, Target: c.target, Peer: trial.Client})
			if d.Allowed != c.allowed || d.Reason != c.reason {
				t.Errorf("Check(%s %s) = %v, %v, want %v, %v", c.method, c.target, d.Allowed, d.Reason,
					c.allowed, c.reason)
			}
		})
	}
}

// What is refused early must cost an attacker's target nothing: no identity
// work and no bucket.
func TestCheckRefusesBeforeIdentity(t *testing.T) {
	b := trial.New(t, []string{"GET /v1/items/{id}"}, []policy.Rule{{Endpoint: policy.Default, Limit: 1}})
	for i := range 1000 {
		d := b.Get(fmt.Sprintf("/%d/%d", i, rand.Uint64()))
		if d.Principal.Client.IsValid() {
			t.Fatalf("identity was resolved for a refused request: %v", d.Principal)
		}
	}
	if s := b.Buckets.Stats(trial.Epoch.UnixNano()); s.Created != 0 {
		t.Errorf("1000 unknown paths created %d buckets, want 0", s.Created)
	}
}

var customerSpellings = []string{
	"/v1/customers/%d", "//v1/customers/%d", "/v1/./customers/%d", "/v1/%%63ustomers/%d",
	"/v1/customers/%d/", "/v1/customers/%d?x=1", "/v1/x/../customers/%d", "/%%76%%31/customers/%d//",
	"/v1/customers/%d?a=b;c", "/v1/%%2e/customers/%d?/v1/other",
}

// TestA3AnyMixtureOfSpellingsIsOneBudget is the paper's canonicalisation
// attack on Stripe's real list of endpoints with the clock in hand: whatever
// the ids and spellings, exactly burst + 5·t requests are admitted.
func TestA3AnyMixtureOfSpellingsIsOneBudget(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4, 5} {
		random := rand.New(rand.NewPCG(seed, 3))
		b := trial.New(t, trial.StripeTemplates(t),
			[]policy.Rule{{Endpoint: "GET /v1/customers/{customer}", Limit: 5, Burst: 8}})
		admitted, sent := 0, 0
		for b.Now.Sub(trial.Epoch) < 10*time.Second {
			b.Now = b.Now.Add(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
			target := fmt.Sprintf(customerSpellings[random.IntN(len(customerSpellings))], random.IntN(1e6))
			d := b.Get(target)
			sent++
			if d.Allowed {
				admitted++
			} else if d.Reason != headgate.OverLimit {
				t.Fatalf("seed %d: %s is refused as %v, want only over_limit", seed, target, d.Reason)
			}
			// Far more are sent than allowed, so the bound is met exactly but
			// for the token that is still growing.
			bound := 8 + int(5*b.Now.Sub(trial.Epoch).Seconds())
			if admitted > bound {
				t.Fatalf("seed %d: admitted %d of %d within %v, want at most %d", seed, admitted, sent,
					b.Now.Sub(trial.Epoch), bound)
			}
			if sent > 1000 && admitted < bound-1 {
				t.Fatalf("seed %d: admitted %d of %d within %v, want at least %d", seed, admitted, sent,
					b.Now.Sub(trial.Epoch), bound-1)
			}
		}
	}
}

func TestCheckTakesFromAllBucketsOrNone(t *testing.T) {
	b := trial.New(t, []string{"GET /a", "GET /b"}, []policy.Rule{
		{Endpoint: "GET /a", Limit: 1, Burst: 2},
		{Endpoint: "GET /b", Limit: 1, Burst: 100},
		{Endpoint: policy.All, Limit: 1, Burst: 10, Subject: policy.SubjectIP},
	})
	for i, want := range []bool{true, true, false, false, false} {
		if d := b.Get("/a"); d.Allowed != want {
			t.Fatalf("request %d to /a allowed = %v, want %v", i, d.Allowed, want)
		}
	}
	// The three denials took nothing from the guard: it has 10 − 2 left.
	admitted := 0
	for range 20 {
		if b.Get("/b").Allowed {
			admitted++
		}
	}
	if admitted != 8 {
		t.Errorf("the guard admitted %d to /b after 2 to /a, want 8 of its 10", admitted)
	}
}

func TestDecisionNamesTheBindingRule(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{
		{Endpoint: "GET /a", Limit: 1, Burst: 3, Name: "fast"},
		{Endpoint: "GET /a", Limit: 1, Per: time.Minute, Burst: 3, Subject: policy.SubjectIP, Name: "slow"},
		{Endpoint: policy.All, Limit: 100, Subject: policy.SubjectEndpoint, Name: "wide"},
	})
	name := func(d *headgate.Decision) string {
		v, ok := d.Binding()
		if !ok {
			return ""
		}
		return d.Policies().Rule(v.Rule).Title()
	}
	first := b.Get("/a")
	if got := name(&first); got != "slow" {
		t.Errorf("binding rule of the first = %q, want %q: equal remaining, and it takes longer to fill", got, "slow")
	}
	b.Get("/a")
	b.Get("/a")
	denied := b.Get("/a")
	if got := name(&denied); got != "slow" || denied.RetryAfter != time.Minute {
		t.Errorf("denied by %q for %v, want %q for %v: the largest wait", got, denied.RetryAfter, "slow", time.Minute)
	}
	if n := len(denied.Verdicts()); n != 3 {
		t.Errorf("the denial has %d verdicts, want all 3", n)
	}
}

// Retry-After is exact: a nanosecond before it the request fails, at it the
// request succeeds.
func TestRetryAfterIsExact(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 7, Per: 3 * time.Second, Burst: 2}})
	b.Get("/a")
	b.Get("/a")
	wait := b.Get("/a").RetryAfter
	b.Now = b.Now.Add(wait - 1)
	if b.Get("/a").Allowed {
		t.Errorf("allowed a nanosecond before the wait of %v", wait)
	}
	b.Now = b.Now.Add(1)
	if !b.Get("/a").Allowed {
		t.Errorf("denied after the wait of %v", wait)
	}
}

func TestShadowCountsAndNeverDenies(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{
		{Endpoint: "GET /a", Limit: 1, Burst: 5},
		{Endpoint: "GET /a", Limit: 1, Burst: 2, Subject: policy.SubjectIP, Mode: policy.Shadow},
	})
	var allowed, wouldDeny int
	for range 10 {
		d := b.Get("/a")
		if d.Allowed {
			allowed++
		}
		for _, v := range d.Verdicts() {
			if v.Shadow && !v.Outcome.Allowed {
				wouldDeny++
			}
		}
		if v, ok := d.Binding(); ok && v.Shadow {
			t.Errorf("a shadow rule binds: %+v", v)
		}
	}
	// Enforced alone decides: 5. The shadow has room for 2 of those, and says
	// no to the other 3 and, empty as it is, to the 5 that were denied anyway.
	if allowed != 5 || wouldDeny != 8 {
		t.Errorf("allowed %d, shadow denies %d, want 5 and 8", allowed, wouldDeny)
	}
}

func TestCostsAreTaken(t *testing.T) {
	b := trial.New(t, []string{"GET /cheap", "POST /dear"}, []policy.Rule{{Endpoint: policy.All, Limit: 1, Burst: 10}},
		func(o *headgate.Options) {
			dear, _ := endpoint.ParseTemplate("POST /dear")
			id, _ := o.Endpoints.Lookup(dear)
			o.Costs = map[endpoint.ID]int64{id: 4}
		})
	post := func() headgate.Decision {
		return b.Check(context.Background(), headgate.Request{Method: "POST", Target: "/dear", Peer: trial.Client})
	}
	for i, want := range []bool{true, true, false} {
		if d := post(); d.Allowed != want || d.Cost != 4 {
			t.Errorf("POST %d = %v at cost %d, want %v at cost 4", i, d.Allowed, d.Cost, want)
		}
	}
	if d := post(); d.RetryAfter != 2*time.Second {
		t.Errorf("wait = %v, want 2s: 2 of 4 tokens are left", d.RetryAfter)
	}
	if d := b.Get("/cheap"); !d.Allowed || d.Cost != 1 {
		t.Errorf("GET = %v at cost %d, want allowed at cost 1", d.Allowed, d.Cost)
	}
}

func TestCostAboveBurstIsNoWait(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 1, Burst: 3}})
	if d := b.Take(4); d.Allowed || d.Reason != headgate.CostAboveBurst || d.RetryAfter != 0 {
		t.Errorf("Check = %v, %v, wait %v, want denied, cost_above_burst, no wait", d.Allowed, d.Reason, d.RetryAfter)
	}
}

func TestSubjectsShareBuckets(t *testing.T) {
	other := netip.MustParseAddr("192.0.2.8")
	for name, c := range map[string]struct {
		rule         policy.Rule
		first, then  headgate.Request
		shareABucket bool
	}{
		"two addresses, per ip": {
			rule:  policy.Rule{Subject: policy.SubjectIP},
			first: headgate.Request{Peer: trial.Client},
			then:  headgate.Request{Peer: other},
		},
		"two addresses, per endpoint": {
			rule:         policy.Rule{Subject: policy.SubjectEndpoint},
			first:        headgate.Request{Peer: trial.Client},
			then:         headgate.Request{Peer: other},
			shareABucket: true,
		},
		"two addresses, per project": {
			rule:  policy.Rule{Subject: policy.SubjectProject},
			first: headgate.Request{Peer: trial.Client},
			then:  headgate.Request{Peer: other},
		},
		"two addresses of the unknown region": {
			rule:         policy.Rule{Subject: policy.SubjectRegion},
			first:        headgate.Request{Peer: trial.Client},
			then:         headgate.Request{Peer: other},
			shareABucket: true,
		},
		"one identifier from two addresses": {
			rule:         policy.Rule{Subject: policy.SubjectIdentifier},
			first:        headgate.Request{Peer: trial.Client, Identifier: "ann"},
			then:         headgate.Request{Peer: other, Identifier: "ann"},
			shareABucket: true,
		},
		"two identifiers from one address": {
			rule:  policy.Rule{Subject: policy.SubjectIdentifier},
			first: headgate.Request{Peer: trial.Client, Identifier: "ann"},
			then:  headgate.Request{Peer: trial.Client, Identifier: "bob"},
		},
		"no identifier falls to the address": {
			rule:         policy.Rule{Subject: policy.SubjectIdentifier},
			first:        headgate.Request{Peer: trial.Client},
			then:         headgate.Request{Peer: trial.Client},
			shareABucket: true,
		},
		"no identifier, another address": {
			rule:  policy.Rule{Subject: policy.SubjectIdentifier},
			first: headgate.Request{Peer: trial.Client},
			then:  headgate.Request{Peer: other},
		},
		"neighbours in one IPv6 /64": {
			first:        headgate.Request{Peer: netip.MustParseAddr("2001:db8::1")},
			then:         headgate.Request{Peer: netip.MustParseAddr("2001:db8::2")},
			shareABucket: true,
		},
		"neighbouring IPv6 /64": {
			first: headgate.Request{Peer: netip.MustParseAddr("2001:db8::1")},
			then:  headgate.Request{Peer: netip.MustParseAddr("2001:db8:0:1::1")},
		},
		"IPv4 and its mapped form": {
			first:        headgate.Request{Peer: trial.Client},
			then:         headgate.Request{Peer: netip.MustParseAddr("::ffff:192.0.2.7")},
			shareABucket: true,
		},
		"no peer at all, twice": {shareABucket: true},
		"principal and address, two addresses": {
			rule:  policy.Rule{Subject: policy.SubjectPrincipalIP},
			first: headgate.Request{Peer: trial.Client},
			then:  headgate.Request{Peer: other},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.rule.Endpoint, c.rule.Limit = "GET /a", 1
			b := trial.New(t, []string{"GET /a"}, []policy.Rule{c.rule})
			c.first.Method, c.first.Target = "GET", "/a"
			c.then.Method, c.then.Target = "GET", "/a"
			if d := b.Check(context.Background(), c.first); !d.Allowed {
				t.Fatalf("the first request is denied: %v", d.Reason)
			}
			if d := b.Check(context.Background(), c.then); d.Allowed == c.shareABucket {
				t.Errorf("the second request allowed = %v, want %v", d.Allowed, !c.shareABucket)
			}
		})
	}
}

// failing is a store that has gone away.
type failing struct{}

func (failing) TryConsume(context.Context, int64, []bucket.Take, []bucket.Outcome) (bool, error) {
	return true, trial.ErrGone
}

func (failing) Peek(context.Context, int64, []bucket.Take, []bucket.Outcome) (bool, error) {
	return true, trial.ErrGone
}

func (failing) Correct(context.Context, int64, []bucket.Change, []int64) error { return trial.ErrGone }

func TestStoreLossFollowsTheRules(t *testing.T) {
	gone := func(o *headgate.Options) { o.Buckets = failing{} }
	for name, c := range map[string]struct {
		rules   []policy.Rule
		allowed bool
	}{
		"closed is the default": {[]policy.Rule{{Endpoint: "GET /a", Limit: 1}}, false},
		"open":                  {[]policy.Rule{{Endpoint: "GET /a", Limit: 1, OnStoreLoss: policy.LossOpen}}, true},
		"one closed closes": {[]policy.Rule{{Endpoint: "GET /a", Limit: 1, OnStoreLoss: policy.LossOpen},
			{Endpoint: policy.All, Limit: 1}}, false},
		"a closed shadow cannot": {[]policy.Rule{{Endpoint: "GET /a", Limit: 1, Mode: policy.Shadow}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newBenchValue(t, c.rules, gone).Get("/a")
			if d.Allowed != c.allowed || d.Reason != headgate.StoreFailed || d.Lost != c.allowed {
				t.Errorf("Check = %v, %v, lost %v, want %v, store_failed, %v", d.Allowed, d.Reason, d.Lost,
					c.allowed, c.allowed)
			}
		})
	}
}

func newBenchValue(t *testing.T, rules []policy.Rule, change func(*headgate.Options)) *trial.Bench {
	t.Helper()
	return trial.New(t, []string{"GET /a"}, rules, change)
}

func TestNoRulesAndNoPolicies(t *testing.T) {
	none := func(o *headgate.Options) { o.Policies = headgate.Fixed(nil) }
	deny := func(o *headgate.Options) { o.DenyWithoutRule = true }
	if d := newBenchValue(t, nil, none).Get("/a"); d.Allowed || d.Reason != headgate.NoPolicies {
		t.Errorf("without any rules loaded: %v, %v, want denied, no_policies", d.Allowed, d.Reason)
	}
	if d := newBenchValue(t, nil, func(*headgate.Options) {}).Get("/a"); !d.Allowed || d.Reason != headgate.NoRule {
		t.Errorf("with no rule for it: %v, %v, want allowed, no_rule", d.Allowed, d.Reason)
	}
	if d := newBenchValue(t, nil, deny).Get("/a"); d.Allowed || d.Reason != headgate.NoRule {
		t.Errorf("with no rule for it, under DenyWithoutRule: %v, %v, want denied, no_rule", d.Allowed, d.Reason)
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := headgate.New(headgate.Options{
		Unknown:         9,
		Costs:           map[endpoint.ID]int64{1: -1},
		MaxReservations: -3,
		MaxAllowances:   1 << 30,
	})
	if err == nil {
		t.Fatal("New of nothing succeeds, want an error")
	}
	for _, want := range []string{"Endpoints is nil", "Rules and Policies are both empty", "Unknown is 9",
		"Costs[1] is -1", "MaxReservations is -3", "MaxAllowances is 1073741824"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %q", err, want)
		}
	}
}

func TestExplainTellsTheDenyingRuleAndTheExactWait(t *testing.T) {
	b := trial.New(t, trial.StripeTemplates(t), []policy.Rule{
		{Endpoint: "GET /v1/customers/{customer}", Limit: 5, Burst: 2},
		{Endpoint: policy.Default, Limit: 100},
	})
	b.Get("/v1/customers/1")
	b.Get("/v1/customers/2")
	b.Now = b.Now.Add(50 * time.Millisecond)

	request := headgate.Request{
		Method: "GET",
		Target: "//v1/./customers/3?x=1",
		Peer:   trial.Client,
		Header: http.Header{},
	}
	x := b.Explain(context.Background(), request)
	if x.Canonical != "/v1/customers/3" || x.Endpoint != "GET /v1/customers/{customer}" {
		t.Errorf("canonical %q, endpoint %q", x.Canonical, x.Endpoint)
	}
	if x.Verdict.Allowed || x.Verdict.Reason != "over_limit" || x.Verdict.Rule != "GET /v1/customers/{customer}" ||
		x.Verdict.RetryAfter != 150*time.Millisecond {
		t.Errorf("verdict = %+v, want denied by GET /v1/customers/{customer} for 150ms", x.Verdict)
	}
	if len(x.Buckets) != 1 || !x.Buckets[0].Denies || x.Buckets[0].Remaining != 0 ||
		x.Buckets[0].RetryAfter != 150*time.Millisecond {
		t.Errorf("buckets = %+v, want the one that denies for 150ms", x.Buckets)
	}
	if x.Identity == nil || x.Identity.Kind != "address" || x.Identity.Client != trial.Client.String() ||
		x.Identity.Found == "" {
		t.Errorf("identity = %+v, want the address and how it was found", x.Identity)
	}
	applied := 0
	for _, c := range x.Considered {
		if c.Applies {
			applied++
		}
		if c.Why == "" {
			t.Errorf("level %s of %s was considered without a reason", c.Level, c.Subject)
		}
	}
	if applied != 1 {
		t.Errorf("%d rules apply, want 1", applied)
	}
	// Explaining took nothing: the wait is still what it was.
	if d := b.Get("/v1/customers/4"); d.RetryAfter != 150*time.Millisecond {
		t.Errorf("wait after Explain = %v, want 150ms", d.RetryAfter)
	}
}

func TestExplainOfARefusedTargetSaysWhy(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, nil)
	x := b.Explain(context.Background(), headgate.Request{Method: "GET", Target: "/a%00", Peer: trial.Client})
	if x.Fault == "" || x.Identity != nil || x.Verdict.Reason != "invalid_target" {
		t.Errorf("Explain = %+v, want the fault alone", x)
	}
}

// A verdict must not depend on how many rules there are.
func TestDecisionHoldsEveryVerdict(t *testing.T) {
	var rules []policy.Rule
	for s := policy.SubjectPrincipal; s <= policy.SubjectIdentifier; s++ {
		rules = append(rules, policy.Rule{Endpoint: "GET /a", Limit: 10, Subject: s, Mode: policy.Shadow},
			policy.Rule{Endpoint: policy.Default, Limit: 10, Subject: s},
			policy.Rule{Endpoint: policy.All, Limit: 10, Subject: s})
	}
	d := newBenchValue(t, rules, func(*headgate.Options) {}).Get("/a")
	if !d.Allowed || len(d.Verdicts()) != len(rules) {
		t.Fatalf("allowed = %v with %d verdicts, want true with %d", d.Allowed, len(d.Verdicts()), len(rules))
	}
	for _, v := range d.Verdicts() {
		if v.Outcome.Remaining != 9 {
			t.Errorf("rule %q has %d left, want 9", d.Policies().Rule(v.Rule).Title(), v.Outcome.Remaining)
		}
	}
}

func TestRequestPrintsNoCredential(t *testing.T) {
	r := headgate.Request{
		Method:     "GET",
		Target:     "/v1/items?api_key=MARK",
		Peer:       netip.MustParseAddr("192.0.2.1"),
		Header:     marked{},
		Identifier: "MARK",
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		for _, value := range []any{r, &r, []headgate.Request{r}, struct{ R headgate.Request }{r}} {
			if text := fmt.Sprintf(verb, value); bytes.Contains([]byte(text), []byte("MARK")) ||
				bytes.Contains([]byte(text), []byte("4d41524b")) {
				t.Errorf("%s prints %s", verb, text)
			}
		}
	}
}

type marked struct{}

func (marked) Values(string) []string { return []string{"MARK"} }
func (marked) String() string         { return "MARK" }
