package attack_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/attack"
)

var classEndpoints = []string{"POST /v1/payments", "GET /v1/items/{id}", "GET /v1/reports"}

// classRules are three classes by endpoint that share a budget of all callers together.
func classRules(shared policy.Rule) []policy.Rule {
	shared.Endpoint = policy.All
	if of, what := shared.Subject.Counts(); of == policy.SubjectPrincipal {
		shared.Subject = policy.SubjectEndpoint.Counting(what)
	}
	each := max(15, shared.Burst/400)
	return []policy.Rule{
		{Endpoint: "POST /v1/payments", Limit: each, Per: time.Hour, Priority: "high"},
		{Endpoint: "GET /v1/reports", Limit: each, Per: time.Hour, Priority: "low"},
		{Endpoint: policy.Default, Limit: each, Per: time.Hour},
		shared,
	}
}

// triedRules are rules as the deployment has them; planted changes what decides by them.
func triedRules(t *testing.T, rules []policy.Rule, planted func([]policy.Rule)) *attack.Rules {
	t.Helper()
	real := trial.New(t, classEndpoints, rules)
	return &attack.Rules{
		Document: policy.Document{Rules: rules}, Set: real.Policies().Set(), Begin: trial.Epoch, Real: real,
		Fresh: func(clock func() time.Time) (attack.Decider, error) {
			faulty := slices.Clone(rules)
			if planted != nil {
				planted(faulty)
			}
			return trial.New(t, classEndpoints, faulty, func(o *headgate.Options) { o.Now = clock }), nil
		},
	}
}

func tryClasses(t *testing.T, r *attack.Rules) attack.Budget {
	t.Helper()
	found, err := r.Classes(context.Background())
	if err != nil || len(found) != 1 {
		t.Fatalf("%d budgets, %v, want one: %+v", len(found), err, found)
	}
	return found[0]
}

var sharedRules = map[string]policy.Rule{
	"tokens":      {Limit: 20, Per: time.Hour, Burst: 20, Priority: "high:20,normal:10,low:10"},
	"many tokens": {Limit: 1 << 30, Burst: 1 << 20, Priority: "high:30,normal:1,low:0"},
	"a queue":     {Limit: 200, Burst: 80, Algorithm: policy.LeakyBucket, Priority: "high:10,normal:10,low:5"},
	"requests": {Limit: 50, Burst: 100, Subject: policy.SubjectPrincipal.Counting(policy.CountsRequests),
		Priority: "normal:40,low:50"},
	"places": {Limit: 100, Algorithm: policy.Concurrency, Priority: "high:10,normal:10,low:5",
		Subject: policy.SubjectPrincipal.Counting(policy.CountsUnderWay)},
	"of the caller": {Endpoint: "x", Limit: 10, Burst: 10, Subject: policy.SubjectIP, Priority: "high:20,low:10"},
}

// TestClassesGetWhatTheyArePromised by rules that are decided as they should be.
func TestClassesGetWhatTheyArePromised(t *testing.T) {
	for name, shared := range sharedRules {
		t.Run(name, func(t *testing.T) {
			b := tryClasses(t, triedRules(t, classRules(shared), nil))
			for _, s := range b.Shares {
				t.Logf("%+v", s)
				if s.Verdict != attack.Held || s.Passed < s.Least {
					t.Errorf("%+v", s)
				}
			}
			for _, c := range b.Claims {
				t.Logf("%+v", c)
				if c.Verdict != attack.Held || c.Tried < 100 {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// TestAttackFindsAClassThatDoesNotGetItsShare, and one that gets more than there is.
func TestAttackFindsAClassThatDoesNotGetItsShare(t *testing.T) {
	priority := func(p policy.Priority) func([]policy.Rule) {
		return func(rules []policy.Rule) { rules[len(rules)-1].Priority = p }
	}
	for name, c := range map[string]struct {
		planted func([]policy.Rule)
		class   string
		verdict attack.Verdict
	}{
		"no classes":               {priority(""), "high", attack.Starved},
		"nothing for the lowest":   {priority("high:20,normal:10,low:0"), "low", attack.Starved},
		"less for the middle":      {priority("high:20,normal:5,low:10"), "normal", attack.Starved},
		"the highest borrows less": {priority("high:20,normal:40,low:30"), "high", attack.Starved},
		"a larger budget":          {func(rules []policy.Rule) { rules[3].Burst *= 2 }, "together", attack.Widened},
	} {
		for _, budget := range []string{"tokens", "many tokens", "a queue", "places"} {
			shared := sharedRules[budget]
			shared.Priority = "high:20,normal:10,low:10"
			if shared.Burst == 0 && (c.verdict == attack.Widened || name == "the highest borrows less") {
				continue // places have no burst, and none that are free again
			}
			t.Run(name+", "+budget, func(t *testing.T) {
				b := tryClasses(t, triedRules(t, classRules(shared), c.planted))
				if !slices.ContainsFunc(b.Shares, func(s attack.ClassShare) bool {
					return s.Class == c.class && s.Verdict == c.verdict
				}) {
					t.Errorf("no class %s is %s: %+v", c.class, c.verdict, b.Shares)
				}
			})
		}
	}
}

// TestOthersDenialsAreNotTheBudgets: what a rule denies that only watches, or another one, says nothing of a class.
func TestOthersDenialsAreNotTheBudgets(t *testing.T) {
	shared := sharedRules["tokens"]
	b := tryClasses(t, triedRules(t, classRules(shared), func(rules []policy.Rule) {
		rules[1] = policy.Rule{Endpoint: rules[1].Endpoint, Mode: policy.Block}
	}))
	for _, s := range b.Shares {
		if s.Class == "low" && (s.Verdict != attack.Inconclusive || s.Others != s.Asked) {
			t.Errorf("%+v, want it inconclusive: another rule denies all of it", s)
		}
	}
	shared.Mode = policy.Shadow
	if found, err := triedRules(t, classRules(shared), nil).Classes(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("a rule in shadow shares %+v, %v", found, err)
	}
}

// believing takes a request's word for its class.
type believing struct{ *headgate.Limiter }

func (b believing) Look(ctx context.Context, r headgate.Request) *headgate.Look {
	if r.Header != nil {
		for _, text := range r.Header.Values("X-Priority") {
			r.Class, _ = policy.ParseClass(text)
		}
	}
	return b.Limiter.Look(ctx, r)
}

// TestAttackFindsAClassThatCanBeClaimed where nothing but a header field says it.
func TestAttackFindsAClassThatCanBeClaimed(t *testing.T) {
	rules := []policy.Rule{
		{Endpoint: "POST /v1/payments", Limit: 15, Priority: "critical"},
		{Endpoint: policy.Default, Limit: 15},
		{Endpoint: policy.All, Limit: 20, Burst: 20, Subject: policy.SubjectEndpoint,
			Priority: "critical:20,normal:20"},
	}
	r := triedRules(t, rules, nil)
	r.Real = believing{r.Real.(*trial.Bench).Limiter}
	b := tryClasses(t, r)
	if len(b.Claims) != 1 || b.Claims[0].Class != "normal" || b.Claims[0].Verdict != attack.Raised ||
		!slices.Equal(b.Claims[0].Raised, []string{"X-Priority: critical", "X-Priority: high"}) {
		t.Errorf("%+v", b.Claims)
	}
}

// TestClassesOfProjectsAndCredentials: a class is found by the tier of a project, by a rule for one, and where only a
// credential says it. One that nothing can be of is told.
func TestClassesOfProjectsAndCredentials(t *testing.T) {
	doc := policy.Document{
		Projects: map[string]string{"acme": "gold", "other": "gold"},
		Rules: []policy.Rule{
			{Endpoint: policy.Default, Tier: "gold", Limit: 100, Priority: "critical"},
			{Endpoint: policy.Default, Tier: "silver", Limit: 100, Priority: "high"},
			{Endpoint: policy.Default, Limit: 100},
			{Endpoint: policy.All, Limit: 20, Burst: 20, Subject: policy.SubjectEndpoint,
				Priority: "critical:10,high:10,normal:10,low:10"},
		},
	}
	compile := func(o *headgate.Options) {
		set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: o.Endpoints, Now: trial.Epoch})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		o.Policies = headgate.Fixed(set)
	}
	real := trial.New(t, classEndpoints, nil, compile)
	b := tryClasses(t, &attack.Rules{
		Document: doc, Set: real.Policies().Set(), Begin: trial.Epoch, Real: real,
		Fresh: func(clock func() time.Time) (attack.Decider, error) {
			return trial.New(t, classEndpoints, nil, compile, func(o *headgate.Options) { o.Now = clock }), nil
		},
	})
	by := map[string]string{}
	for _, s := range b.Shares {
		if by[s.Class] = s.By; s.Verdict != attack.Held {
			t.Errorf("%+v", s)
		}
	}
	for class, want := range map[string]string{
		"critical": "GET /v1/items/{id}, project acme", "normal": "GET /v1/items/{id}, anybody",
		"high": "GET /v1/items/{id}, a credential that says high",
	} {
		if by[class] != want {
			t.Errorf("class %s is met by %q, want %q", class, by[class], want)
		}
	}
	if !slices.Equal(b.Missing, []string{"low"}) {
		t.Errorf("missing: %q, want low", b.Missing)
	}
}
