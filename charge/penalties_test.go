package charge_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// penalised is a limiter under one rule with a penalty, and a request of the caller with a key.
func penalised(t *testing.T, rules ...policy.Rule) (b *trial.Bench, rule *trial.Switching,
	ask func(withKey bool, peer string) headgate.Decision) {
	t.Helper()
	who, text := trial.Holder(t, identity.Key{ID: "ann", Project: "acme"})
	rule = &trial.Switching{}
	b = trial.New(t, []string{"GET /a", "GET /b"}, nil,
		func(o *headgate.Options) { o.Identities, o.Policies = who, rule })
	rule.Become(t, b, rules...)
	return b, rule, func(withKey bool, peer string) headgate.Decision {
		r := headgate.Request{Method: "GET", Target: "/a", Peer: netip.MustParseAddr(peer)}
		if withKey {
			r.Header = http.Header{"X-Api-Key": {text}}
		}
		return b.Check(context.Background(), r)
	}
}

const home = "2001:db8::1"

var strict = policy.Rule{Endpoint: "GET /a", Limit: 1, Per: time.Second, Penalty: "3 in 10s for 1m up to 5m"}

func TestPenalty(t *testing.T) {
	b, rule, ask := penalised(t, strict)
	must := func(d headgate.Decision, reason headgate.Reason, wait time.Duration) {
		t.Helper()
		if d.Reason != reason || d.RetryAfter != wait || d.Allowed != (reason == headgate.WithinLimits) {
			t.Fatalf("allowed %v, %v, retry in %v, want %v and %v", d.Allowed, d.Reason, d.RetryAfter, reason, wait)
		}
	}
	must(ask(true, home), headgate.WithinLimits, 0)
	must(ask(true, home), headgate.OverLimit, time.Second)
	must(ask(true, home), headgate.OverLimit, time.Second)
	d := ask(true, home)
	must(d, headgate.InPenalty, time.Minute) // which is told the truth at once
	if v, ok := d.Binding(); !ok || d.Policies().Rule(v.Rule).Endpoint != "GET /a" || !d.ByLimit() {
		t.Errorf("the binding rule is %v, %v", v, ok)
	}
	// Neither another caller behind the same /64, nor the same one at another endpoint, nor without its key.
	must(ask(false, "2001:db8::2"), headgate.WithinLimits, 0)
	b.Now = b.Now.Add(30 * time.Second)
	must(ask(true, home), headgate.InPenalty, 30*time.Second)
	x := b.Explain(context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: netip.MustParseAddr(home)})
	if x.Penalty != nil || !x.Verdict.Allowed {
		t.Errorf("another caller is explained to be blocked: %+v", x)
	}
	b.Now = b.Now.Add(30*time.Second - 1)
	must(ask(true, home), headgate.InPenalty, 1)
	b.Now = b.Now.Add(1)
	must(ask(true, home), headgate.WithinLimits, 0) // what was refused meanwhile took nothing
	for range 2 {
		must(ask(true, home), headgate.OverLimit, time.Second)
	}
	must(ask(true, home), headgate.InPenalty, 2*time.Minute)

	// A change of the limit ends no penalty; one of the penalty says what it may last.
	more := strict
	more.Limit = 100
	rule.Become(t, b, more)
	must(ask(true, home), headgate.InPenalty, 2*time.Minute)
	more.Penalty = "3 in 10s for 30s up to 1m30s"
	rule.Become(t, b, more)
	must(ask(true, home), headgate.InPenalty, 90*time.Second)
	more.Penalty = ""
	rule.Become(t, b, more)
	must(ask(true, home), headgate.WithinLimits, 0)
	more.Penalty, more.Mode = strict.Penalty, policy.Shadow
	rule.Become(t, b, more)
	must(ask(true, home), headgate.WithinLimits, 0)
	rule.Become(t, b, strict)
	must(ask(true, home), headgate.InPenalty, 2*time.Minute)

	// To reset the bucket ends it.
	if _, err := b.Reset(context.Background(), inspect.Query{Endpoint: "GET /a", KeyID: "ann", Project: "acme"},
		nil); err != nil {
		t.Fatal(err)
	}
	must(ask(true, home), headgate.WithinLimits, 0)
	if s := b.Penalties(); s.Begun != 2 {
		t.Errorf("%+v, want two penalties", s)
	}
}

func TestPenaltyIsExplained(t *testing.T) {
	who, text := trial.Holder(t, identity.Key{ID: "ann", Project: "acme"})
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{strict}, func(o *headgate.Options) { o.Identities = who })
	r := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Header: http.Header{"X-Api-Key": {text}}}
	for range 5 {
		b.Check(context.Background(), r)
	}
	b.Now = b.Now.Add(500 * time.Millisecond)
	x := b.Explain(context.Background(), r)
	if x.Penalty == nil || x.Penalty.Rule != "GET /a" || x.Penalty.Terms != string(strict.Penalty) ||
		!x.Penalty.Until.Equal(trial.Epoch.Add(time.Minute)) ||
		x.Verdict.Reason != "in_penalty" || x.Verdict.RetryAfter != 59500*time.Millisecond ||
		x.Verdict.Rule != "GET /a" {
		t.Errorf("%+v, %+v", x.Penalty, x.Verdict)
	}
}

// Callers without a verified credential are blocked only where the rule says so, and then with
// their whole address group.
func TestPenaltyForAddresses(t *testing.T) {
	_, _, ask := penalised(t, strict)
	for range 20 {
		ask(false, home)
	}
	if d := ask(false, home); d.Reason != headgate.OverLimit {
		t.Errorf("an address is answered %v, want over_limit", d.Reason)
	}
	with := strict
	with.Penalty += " with addresses"
	b, _, ask := penalised(t, with)
	for range 5 {
		ask(false, home)
	}
	b.Now = b.Now.Add(50 * time.Second)
	if d := ask(false, "2001:db8::2"); d.Reason != headgate.InPenalty || d.RetryAfter != 10*time.Second {
		t.Errorf("a neighbour in its /64 is answered %v, retry in %v", d.Reason, d.RetryAfter)
	}
	if d := ask(true, home); !d.Allowed {
		t.Errorf("a caller with a key at the address is answered %v", d.Reason)
	}
	if d := ask(false, "2001:db8:1::1"); !d.Allowed {
		t.Errorf("another /64 is answered %v", d.Reason)
	}
}

// Where many share a bucket, the one who is denied again and again is blocked, and none of the others.
func TestPenaltyIsOneCallers(t *testing.T) {
	shared := strict
	shared.Subject = policy.SubjectEndpoint
	b, _, ask := penalised(t, shared)
	for range 5 {
		ask(true, home)
	}
	if d := ask(true, home); d.Reason != headgate.InPenalty {
		t.Errorf("who asks again and again is answered %v", d.Reason)
	}
	b.Now = b.Now.Add(time.Second)
	if d := ask(false, "192.0.2.9"); !d.Allowed {
		t.Errorf("another caller of the bucket is answered %v", d.Reason)
	}
	if d := ask(true, home); d.Reason != headgate.InPenalty {
		t.Errorf("and then the first is answered %v", d.Reason)
	}
}

// TestPenaltyNeverGrants: with a penalty, no interval has more admitted than burst and rate
// (Lindley's recursion), and nobody is told to wait for less than it has to, whatever the clock,
// the rules and resets do.
func TestPenaltyNeverGrants(t *testing.T) {
	for seed := range race.Fewer(uint64(40)) {
		rng := rand.New(rand.NewPCG(seed, 9))
		rule := policy.Rule{
			Endpoint: "GET /a",
			Limit:    1 + rng.Int64N(5),
			Burst:    1 + rng.Int64N(8),
			Per:      time.Second,
			Penalty:  "3 in 2s for 1s up to 8s with addresses",
		}
		b, rules, ask := penalised(t, rule)
		queue, last := int64(0), b.Now
		var promised time.Time
		for range 3000 {
			b.Now = b.Now.Add(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
			if rng.IntN(200) == 0 {
				other := rule
				if rng.IntN(2) == 0 {
					other.Penalty = ""
				}
				rules.Become(t, b, other)
				promised = time.Time{}
			}
			if rng.IntN(100) == 0 {
				b.Now = promised // to the nanosecond
				if promised.Before(last) {
					b.Now = last
				}
			}
			d := ask(true, home)
			if !d.Allowed {
				if d.RetryAfter <= 0 {
					t.Fatalf("seed %d: denied, and may come at once", seed)
				}
				if d.Reason == headgate.InPenalty {
					promised = b.Now.Add(d.RetryAfter)
				}
				continue
			}
			if b.Now.Before(promised) {
				t.Fatalf("seed %d: admitted %v before its penalty was over", seed, promised.Sub(b.Now))
			}
			queue = max(0, queue-int64(b.Now.Sub(last))*rule.Limit) + int64(time.Second)
			if last = b.Now; queue > rule.Burst*int64(time.Second) {
				t.Fatalf("seed %d: more was admitted than burst and rate", seed)
			}
		}
		if b.Penalties().Begun == 0 {
			t.Errorf("seed %d: nobody was ever blocked", seed)
		}
	}
}

func TestPenaltyAllocatesNothing(t *testing.T) {
	_, _, ask := penalised(t, strict)
	for range 5 {
		ask(false, home)
	}
	if n := testing.AllocsPerRun(100, func() { ask(false, home) }); n > trial.Allocations {
		t.Errorf("Check allocates %v times, want none", n)
	}
}

// A request that is under way and finds no more is no request that was denied: it has been let in.
func TestWhatIsUnderWayIsNotPenalised(t *testing.T) {
	b, _, _ := penalised(t, strict)
	r := headgate.Request{Method: "GET", Target: "/a", Peer: netip.MustParseAddr(home), User: &identity.User{ID: "ann"}}
	if d := b.Check(t.Context(), r); !d.Allowed {
		t.Fatal(d.Reason)
	}
	more := r
	more.UnderWay = true
	for range 10 {
		if _, d := b.Reserve(t.Context(), more, headgate.UntilSettled); d.Allowed || d.Reason != headgate.OverLimit {
			t.Fatalf("more for a request under way: %v, want over_limit", d.Reason)
		}
	}
	b.Now = b.Now.Add(time.Second)
	if d := b.Check(t.Context(), r); !d.Allowed {
		t.Errorf("the next request: %v, want it let in", d.Reason)
	}
	for range 3 {
		b.Check(t.Context(), r)
	}
	if d := b.Check(t.Context(), r); d.Reason != headgate.InPenalty {
		t.Errorf("after denials of requests: %v, want in_penalty", d.Reason)
	}
}
