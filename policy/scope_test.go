package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// Which scopes a limit can have, and what is said of the others.
func TestScopes(t *testing.T) {
	tooLarge := func(sh rate.Shape) error {
		if sh.Burst() > 1000 {
			return errors.New("the burst is too large")
		}
		return nil
	}
	for name, c := range map[string]struct {
		rule  policy.Rule
		o     policy.CompileOptions
		wrong string // the error, or the warning
	}{
		"alone beside a store": {policy.Rule{}, policy.CompileOptions{Shared: true},
			`warning: rules[0] (default): scope is "local", want "lease" or "strict", because each of k replicas admits the limit by itself`},
		"a guard by address": {policy.Rule{Subject: policy.SubjectIP},
			policy.CompileOptions{Shared: true}, ""},
		"a window beside a store": {policy.Rule{Algorithm: policy.SlidingLog},
			policy.CompileOptions{Shared: true}, ""},
		"split needs no store": {policy.Rule{Scope: policy.Split}, policy.CompileOptions{}, ""},
		"strict with a store":  {policy.Rule{Scope: policy.Strict}, policy.CompileOptions{Shared: true}, ""},
		"a queue for all": {policy.Rule{Scope: policy.Strict, Algorithm: policy.LeakyBucket},
			policy.CompileOptions{Shared: true}, ""},
		"a queue of parts": {policy.Rule{Scope: policy.Split, Algorithm: policy.LeakyBucket},
			policy.CompileOptions{}, ""},
		"strict without a store": {policy.Rule{Scope: policy.Strict}, policy.CompileOptions{},
			`warning: rules[0] (default): scope is "strict", want a store that replicas share, in the configuration; without one each replica admits the limit by itself`},
		"lease without a store": {policy.Rule{Scope: policy.Lease}, policy.CompileOptions{},
			`warning: rules[0] (default): scope is "lease", want a store`},
		"a leased queue": {policy.Rule{Scope: policy.Lease, Algorithm: policy.LeakyBucket},
			policy.CompileOptions{Shared: true},
			`error: rules[0] (default): scope is "lease", want "strict", because a queue of all replicas has to be asked for every turn; or algorithm token_bucket`},
		"sync with a store": {policy.Rule{Scope: policy.Sync}, policy.CompileOptions{Shared: true}, ""},
		"sync without a store": {policy.Rule{Scope: policy.Sync}, policy.CompileOptions{},
			`warning: rules[0] (default): scope is "sync", want a store`},
		"a queue that is reported": {policy.Rule{Scope: policy.Sync, Algorithm: policy.LeakyBucket},
			policy.CompileOptions{Shared: true},
			`error: rules[0] (default): scope is "sync", want "strict", because a queue of all replicas has to be asked for every turn; or algorithm token_bucket`},
		"gossip with a group": {policy.Rule{Scope: policy.Gossip}, policy.CompileOptions{Gossips: true}, ""},
		"gossip by oneself": {policy.Rule{Scope: policy.Gossip}, policy.CompileOptions{Shared: true},
			`warning: rules[0] (default): scope is "gossip", want gossip between replicas, in the configuration; without it each replica admits the limit by itself`},
		"a queue by gossip": {policy.Rule{Scope: policy.Gossip, Algorithm: policy.LeakyBucket},
			policy.CompileOptions{Gossips: true},
			`error: rules[0] (default): scope is "gossip", want "strict", because replicas that tell each other afterwards keep no queue together; or algorithm token_bucket`},
		"a window by gossip": {policy.Rule{Scope: policy.Gossip, Algorithm: policy.FixedWindow},
			policy.CompileOptions{Gossips: true},
			`error: rules[0] (default): scope is "gossip", want "local", because a fixed_window is counted in one place alone; or algorithm token_bucket`},
		"a window that is reported": {policy.Rule{Scope: policy.Sync, Algorithm: policy.SlidingWindow},
			policy.CompileOptions{Shared: true},
			`error: rules[0] (default): scope is "sync", want "local", because a sliding_window is counted in one place alone; or algorithm token_bucket`},
		"a window for all": {policy.Rule{Scope: policy.Strict, Algorithm: policy.FixedWindow},
			policy.CompileOptions{Shared: true},
			`error: rules[0] (default): scope is "strict", want "local", because a fixed_window is counted in one place alone; or algorithm token_bucket`},
		"a window in parts": {policy.Rule{Scope: policy.Split, Algorithm: policy.SlidingLog},
			policy.CompileOptions{},
			`error: rules[0] (default): scope is "split", want "local", because a sliding_log`},
		"what the store counts": {policy.Rule{Scope: policy.Lease, Burst: 1000},
			policy.CompileOptions{Shared: true, Keeps: tooLarge}, ""},
		"what the store does not count": {policy.Rule{Scope: policy.Lease, Burst: 1001},
			policy.CompileOptions{Shared: true, Keeps: tooLarge},
			`error: rules[0] (default): scope is "lease", want a limit that the shared store can count: the burst is too large`},
		"which matters to nobody else": {policy.Rule{Scope: policy.Split, Burst: 1001},
			policy.CompileOptions{Shared: true, Keeps: tooLarge}, ""},
		"and is not said twice of limit": {policy.Rule{Scope: policy.Lease, Burst: -1},
			policy.CompileOptions{Shared: true, Keeps: tooLarge}, `error: rules[0] (default): burst is -1`},
	} {
		t.Run(name, func(t *testing.T) {
			c.rule.Endpoint, c.rule.Limit, c.rule.Per = policy.Default, 10, time.Second
			set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{c.rule,
				{Endpoint: policy.UnknownEndpoint, Limit: 1}}}, c.o)
			if got := problems.String(); !strings.HasPrefix(got, c.wrong) || c.wrong == "" && got != "" ||
				strings.Contains(got, "\n") {
				t.Errorf("got %q, want %q", got, c.wrong)
			}
			if set != nil && set.Terms(0).Scope != c.rule.Scope && set.Terms(1).Scope != c.rule.Scope {
				t.Errorf("no rule has scope %v", c.rule.Scope)
			}
		})
	}
}

// Requests under way are counted here or in the store, and the other scopes say why not.
func TestScopesOfPlaces(t *testing.T) {
	const others = `"strict", "lease" or "local", because `
	places := func(s policy.Severity, scope policy.Scope, want string) string {
		return fmt.Sprintf("%v: rules[2] (default, per in_flight:principal): scope is %q, want %s", s, scope, want)
	}
	for name, c := range map[string]struct {
		scope     policy.Scope
		algorithm policy.Algorithm
		o         policy.CompileOptions
		wrong     string
	}{
		"here":         {policy.Local, 0, policy.CompileOptions{}, ""},
		"in the store": {policy.Strict, 0, policy.CompileOptions{Shared: true}, ""},
		"here, beside a store": {policy.Local, 0, policy.CompileOptions{Shared: true},
			places(policy.Warning, policy.Local, `"strict" or "lease", because each of k replicas has as many `+
				"under way as the limit says")},
		"beside a store that cannot": {policy.Local, 0, policy.CompileOptions{Shared: true, OneByOne: true}, ""},
		"by an algorithm":            {policy.Strict, policy.Concurrency, policy.CompileOptions{Shared: true}, ""},
		"without a store": {policy.Strict, 0, policy.CompileOptions{},
			places(policy.Warning, policy.Strict, "a store")},
		"a store that cannot": {policy.Strict, 0, policy.CompileOptions{Shared: true,
			Keeps: func(rate.Shape) error { return errors.New("it has no room") }},
			places(policy.Error, policy.Strict, "a limit that the shared store can count: it has no room")},
		"kept for who comes": {policy.Lease, 0, policy.CompileOptions{Shared: true}, ""},
		"in parts": {policy.Split, 0, policy.CompileOptions{},
			places(policy.Error, policy.Split, others+"requests that are under way at a gateway are not ended when "+
				"another joins")},
		"told": {policy.Gossip, policy.Concurrency, policy.CompileOptions{Gossips: true},
			places(policy.Error, policy.Gossip, others+"gateways that tell each other afterwards")},
		"reported": {policy.Sync, 0, policy.CompileOptions{Shared: true},
			places(policy.Error, policy.Sync, others+"gateways that tell the store afterwards")},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
				{Endpoint: policy.Default, Limit: 10, Subject: policy.SubjectIP},
				{Endpoint: policy.UnknownEndpoint, Limit: 1},
				{Endpoint: policy.Default, Limit: 3, Scope: c.scope, Algorithm: c.algorithm,
					Subject: policy.SubjectPrincipal.Counting(policy.CountsUnderWay)},
			}}, c.o)
			if got := problems.String(); !strings.HasPrefix(got, c.wrong) || c.wrong == "" && got != "" {
				t.Errorf("got %q, want %q", got, c.wrong)
			}
		})
	}
}

// What replicas have to themselves of a leased burst is not there for a dear request.
func TestCostsOfALeasedBurst(t *testing.T) {
	endpoints := table(t, "GET /v1/items", "POST /v1/export")
	for _, c := range []struct {
		scope  policy.Scope
		shared bool
		burst  int64
		want   string
	}{
		{policy.Lease, true, 112, ""},
		{policy.Lease, true, 111,
			`error: rules[0] (default): burst is 111, want 112 or more: POST /v1/export costs 90, and 20 % are what replicas have to themselves`},
		{policy.Lease, true, 89, `error: rules[0] (default): burst is 89, want 112 or more`},
		{policy.Strict, true, 90, ""},
		{policy.Strict, true, 89,
			`error: rules[0] (default): burst is 89, want 90 or more, the cost of POST /v1/export`},
		{policy.Lease, false, 90, `warning: rules[0] (default): scope is "lease"`},
	} {
		_, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
			{Endpoint: policy.Default, Limit: 50, Burst: c.burst, Scope: c.scope},
			{Endpoint: policy.UnknownEndpoint, Limit: 1},
		}}, policy.CompileOptions{
			Endpoints: endpoints, Costs: map[endpoint.ID]int64{lookup(t, endpoints, "POST /v1/export"): 90},
			Shared: c.shared, Free: 20,
		})
		if got := problems.String(); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%v, burst %d: %q, want %q", c.scope, c.burst, got, c.want)
		}
	}
}

// A batch that no burst holds is refused however long its caller waits.
func TestBatchesAboveABurst(t *testing.T) {
	endpoints := table(t, "GET /v1/items", "POST /v1/batch")
	batch := lookup(t, endpoints, "POST /v1/batch")
	for _, c := range []struct {
		rule  policy.Rule
		cost  int64
		found bool
	}{
		{policy.Rule{Endpoint: "POST /v1/batch", Limit: 50, Burst: 100}, 1, false},
		{policy.Rule{Endpoint: "POST /v1/batch", Limit: 50, Burst: 99}, 1, true},
		{policy.Rule{Endpoint: "POST /v1/batch", Limit: 50, Burst: 299}, 3, true},
		{policy.Rule{Endpoint: "POST /v1/batch", Limit: 50, Burst: 300}, 3, false},
		{policy.Rule{Endpoint: "POST /v1/batch", Limit: 50, Burst: 100,
			Subject: policy.SubjectPrincipal.Counting(policy.CountsRequests)}, 3, false},
		{policy.Rule{Endpoint: "POST /v1/batch", Limit: 50,
			Subject: policy.SubjectPrincipal.Counting(policy.CountsUnderWay)}, 1, false},
		{policy.Rule{Endpoint: "GET /v1/items", Limit: 50}, 1, false},
		{policy.Rule{Endpoint: policy.All, Limit: 50, Burst: 99}, 1, true},
	} {
		_, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
			c.rule, {Endpoint: policy.Default, Limit: 1000}, {Endpoint: policy.UnknownEndpoint, Limit: 1000},
		}}, policy.CompileOptions{
			Endpoints: endpoints, Parts: map[endpoint.ID]int64{batch: 100}, Costs: map[endpoint.ID]int64{batch: c.cost},
		})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		got := strings.Contains(problems.String(), "what 100 requests in one of POST /v1/batch cost")
		if got != c.found {
			t.Errorf("%+v, cost %d: %v, want a note: %v", c.rule, c.cost, problems, c.found)
		}
	}
}

// A burst below what one request may cost is told, where the rule counts what requests cost.
func TestPricesAboveABurstAreTold(t *testing.T) {
	endpoints := table(t, "GET /v1/items", "POST /graphql")
	priced := lookup(t, endpoints, "POST /graphql")
	for _, c := range []struct {
		rule  policy.Rule
		found bool
	}{
		{policy.Rule{Endpoint: "POST /graphql", Limit: 999}, true},
		{policy.Rule{Endpoint: "POST /graphql", Limit: 1000}, false},
		{policy.Rule{Endpoint: "POST /graphql", Limit: 50, Burst: 1000}, false},
		{policy.Rule{Endpoint: policy.All, Limit: 50}, true},
		{policy.Rule{Endpoint: "GET /v1/items", Limit: 50}, false},
		{policy.Rule{Endpoint: "POST /graphql", Limit: 50,
			Subject: policy.SubjectPrincipal.Counting(policy.CountsRequests)}, false},
	} {
		_, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
			c.rule, {Endpoint: policy.Default, Limit: 2000}, {Endpoint: policy.UnknownEndpoint, Limit: 1000},
		}}, policy.CompileOptions{Endpoints: endpoints, Dearest: map[endpoint.ID]int64{priced: 1000}})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(problems.String(), "what a request to POST /graphql may cost"); got != c.found {
			t.Errorf("%+v: %v, want a note: %v", c.rule, problems, c.found)
		}
	}
}

// A rule for all endpoints counts requests of some by what their bodies have, and says so.
func TestRulesForOthersCountWhatBodiesHave(t *testing.T) {
	endpoints := table(t, "GET /v1/items", "GET /v1/files")
	files := lookup(t, endpoints, "GET /v1/files")
	own := policy.Rule{Endpoint: "GET /v1/files", Limit: 1 << 20}
	requests := policy.SubjectPrincipal.Counting(policy.CountsRequests)
	others := policy.Rule{Endpoint: policy.Default, Limit: 20}
	for _, c := range []struct {
		rules []policy.Rule
		found bool
	}{
		{[]policy.Rule{others}, true},
		{[]policy.Rule{others, own}, false},
		{[]policy.Rule{{Endpoint: policy.Default, Limit: 20, Subject: requests}}, false},
		{[]policy.Rule{others, own, {Endpoint: policy.All, Limit: 50}}, true},
		{[]policy.Rule{others, own, {Endpoint: policy.All, Limit: 50, Subject: requests}}, false},
	} {
		_, problems := policy.Compile(policy.Document{Rules: c.rules}, policy.CompileOptions{
			Endpoints: endpoints, Metered: []endpoint.ID{files},
		})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(problems.String(), "those of GET /v1/files cost"); got != c.found {
			t.Errorf("%+v: %v, want a note: %v", c.rules, problems, c.found)
		}
	}
}
