package headgate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// aging is a bench whose rules come from a database, and its Cache.
func aging(t *testing.T, source *trial.Database, o policy.CacheOptions,
	change ...func(*headgate.Options)) (*trial.Bench, *policy.Cache) {
	t.Helper()
	now := trial.Epoch
	var cache *policy.Cache
	var b *trial.Bench
	b = trial.New(t, []string{"GET /a", "GET /b", "GET /dear"}, nil, append(change, func(opts *headgate.Options) {
		o.Source, o.Now = source, func() time.Time {
			if b == nil {
				return now
			}
			return b.Now
		}
		o.Compile = policy.CompileOptions{Endpoints: opts.Endpoints, Costs: opts.Costs}
		var err error
		if cache, err = policy.NewCache(o); err != nil {
			t.Fatal(err)
		}
		if err = cache.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		opts.Policies, opts.Costs = cache, nil
	})...)
	return b, cache
}

// Every way to decide, with rules that were confirmed within the hour and with rules that were not.
func TestRequestsUnderStaleRules(t *testing.T) {
	fallback := policy.Rule{Limit: 5, Per: time.Hour, Burst: 5}
	rules := func() *trial.Database {
		d := &trial.Database{}
		d.Put(policy.Rule{Endpoint: "GET /a", Limit: 2, Per: time.Hour})
		return d
	}
	for name, test := range map[string]struct {
		source *trial.Database
		o      policy.CacheOptions
		deny   bool
		target string
		fresh  int // of 20 requests, how many are allowed
		stale  int
		reason headgate.Reason // of the last one, stale
	}{
		"keep": {rules(), policy.CacheOptions{MaxStale: time.Hour}, false, "/a", 2, 0,
			headgate.OverLimit},
		"keep, no rule": {rules(), policy.CacheOptions{MaxStale: time.Hour}, false, "/b", 20, 20,
			headgate.NoRule},
		"limit": {rules(), policy.CacheOptions{MaxStale: time.Hour, OnStale: policy.Limit},
			false, "/b", 20, 5, headgate.OverLimit},
		"limit admits no more than rules": {rules(), policy.CacheOptions{MaxStale: time.Hour, OnStale: policy.Limit},
			false, "/a", 2, 0, headgate.OverLimit},
		"limit opens nothing": {rules(), policy.CacheOptions{MaxStale: time.Hour, OnStale: policy.Limit},
			true, "/b", 0, 0, headgate.NoRule},
		"limit, unknown": {rules(), policy.CacheOptions{MaxStale: time.Hour, OnStale: policy.Limit},
			false, "/unknown", 20, 5, headgate.OverLimit},
		"deny": {rules(), policy.CacheOptions{MaxStale: time.Hour, OnStale: policy.Deny},
			false, "/b", 20, 0, headgate.RulesStale},
		"no bound": {rules(), policy.CacheOptions{OnStale: policy.Deny}, false, "/b", 20, 20,
			headgate.NoRule},
		"no rules: keep": {&trial.Database{}, policy.CacheOptions{}, false, "/a", 20, 20,
			headgate.NoRule},
		"no rules: limit": {&trial.Database{}, policy.CacheOptions{OnEmpty: policy.Limit}, false,
			"/a", 5, 0, headgate.OverLimit},
		"no rules: deny": {&trial.Database{}, policy.CacheOptions{OnEmpty: policy.Deny}, false, "/a",
			0, 0, headgate.NoPolicies},
		"no rules: limit opens nothing": {&trial.Database{}, policy.CacheOptions{OnEmpty: policy.Limit}, true, "/a",
			0, 0, headgate.NoRule},
		"a cost above the fallback's burst": {rules(), policy.CacheOptions{MaxStale: time.Hour, OnStale: policy.Limit},
			false, "/dear", 20, 1, headgate.OverLimit},
	} {
		t.Run(name, func(t *testing.T) {
			test.o.FallbackRule = fallback
			b, cache := aging(t, test.source, test.o, func(o *headgate.Options) {
				o.Unknown, o.DenyWithoutRule = headgate.LimitUnknown, test.deny
				dear, _ := endpoint.ParseTemplate("GET /dear")
				id, _ := o.Endpoints.Lookup(dear)
				if test.target == "/dear" {
					o.Costs = map[endpoint.ID]int64{id: 50}
				}
			})
			take := func() (allowed int, last headgate.Decision) {
				for range 20 {
					if last = b.Get(test.target); last.Allowed {
						allowed++
					}
				}
				return allowed, last
			}
			if allowed, last := take(); allowed != test.fresh {
				t.Errorf("%d of 20 allowed, the last one %v, want %d", allowed, last.Reason, test.fresh)
			}
			// So much later that the rules are stale, and so little that a bucket of an hour gets no token back.
			test.source.Away = true
			if test.o.MaxStale > 0 {
				b.Now = b.Now.Add(time.Hour + 1)
				_ = cache.Reload(t.Context())
				if test.target == "/a" {
					take() // what an hour has brought
				}
			}
			x := b.Explain(t.Context(), headgate.Request{Method: "GET", Target: test.target, Peer: trial.Client})
			if (x.Rules == "") != (test.o.MaxStale == 0 && len(test.source.Rules) > 0) {
				t.Errorf("Explain says %q", x.Rules)
			}
			allowed, last := take()
			if allowed != test.stale || last.Reason != test.reason {
				t.Errorf("stale: %d of 20 allowed, the last one %v, want %d and %v", allowed, last.Reason,
					test.stale, test.reason)
			}
			if last.Reason == headgate.RulesStale && last.Principal.Client.IsValid() {
				t.Error("denied for stale rules after identity, want before")
			}
		})
	}
}

// The fallback is one bucket over all endpoints for each caller, and explain names it.
func TestExplainOfTheFallback(t *testing.T) {
	b, _ := aging(t, &trial.Database{}, policy.CacheOptions{
		OnEmpty:      policy.Limit,
		FallbackRule: policy.Rule{Limit: 2, Per: time.Hour, Burst: 3},
	})
	for _, target := range []string{"/a", "/b"} {
		if d := b.Get(target); !d.Allowed {
			t.Fatalf("%s: %v", target, d.Reason)
		}
	}
	x := b.Explain(t.Context(), headgate.Request{Method: "GET", Target: "/b", Peer: trial.Client})
	last := x.Considered[len(x.Considered)-1]
	if !strings.HasPrefix(x.Rules, "there are no rules: every caller is limited to 2 per 1h") || !last.Applies ||
		last.Level != "(fallback)" ||
		len(x.Buckets) != 1 || x.Buckets[0].Rule != "fallback" || x.Buckets[0].Remaining != 0 ||
		x.Verdict.Rule != "fallback" {
		t.Errorf("Explain = %+v, want the fallback's bucket with 1 of 3 tokens, and why", x)
	}
}

// What a reservation took from the fallback's bucket it gives back.
func TestReservationUnderTheFallback(t *testing.T) {
	b, _ := aging(t, &trial.Database{}, policy.CacheOptions{
		OnEmpty:      policy.Limit,
		FallbackRule: policy.Rule{Limit: 1, Per: time.Hour, Burst: 10},
	})
	r := b.MustReserve(t, 10)
	if d := b.Get("/a"); d.Allowed {
		t.Error("allowed while all tokens are reserved")
	}
	b.MustSettle(t, r.ID, 4)
	if d := b.Get("/a"); !d.Allowed {
		t.Errorf("after 6 of 10 came back: %v", d.Reason)
	}
}
