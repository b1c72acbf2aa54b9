package charge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

const login = "POST /v1/login"

// try tries a login from an address as an identifier, or as one that could not
// be read.
func try(b *trial.Bench, from, as string) headgate.Decision {
	return b.Check(context.Background(), attempt(from, as))
}

func parse(t *testing.T, text string) endpoint.Template {
	t.Helper()
	template, err := endpoint.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

const unparsable = "\x00"

func attempt(from, as string) headgate.Request {
	r := headgate.Request{Method: "POST", Target: "/v1/login", Peer: netip.MustParseAddr(from), Identifier: as}
	if as == unparsable {
		r.Unparsable = true
	}
	return r
}

// both are the two rules that logins need.
var both = []policy.Rule{
	{Endpoint: login, Limit: 20, Per: time.Hour, Subject: policy.SubjectIP},
	{Endpoint: login, Limit: 5, Per: time.Hour, Subject: policy.SubjectIdentifier},
}

func TestUnparsableAsksTheAddressAndWhatAllShare(t *testing.T) {
	b := trial.New(t, []string{login}, both)
	admitted := 0
	for i := range 10 {
		if d := try(b, "192.0.2.7", unparsable); d.Allowed {
			admitted++
			if v := d.Verdicts(); len(v) != 3 || v[1].Unparsable || !v[2].Unparsable || v[1].Rule != v[2].Rule {
				t.Fatalf("attempt %d: verdicts %+v, want two by identifier, the second about what all share", i, v)
			}
		}
	}
	for i := range 100 {
		if try(b, fmt.Sprintf("198.51.100.%d", i), unparsable).Allowed {
			admitted++
		}
	}
	if admitted != 5 {
		t.Errorf("%d admitted from 101 addresses, want 5: one more account's budget for everybody", admitted)
	}
	if d := try(b, "192.0.2.7", "alice"); !d.Allowed {
		t.Errorf("alice is denied (%v) by what others malformed", d.Reason)
	}
	// A name that comes with it is not believed.
	r := attempt("203.0.113.9", "bob")
	r.Unparsable = true
	if d := b.Check(context.Background(), r); d.Allowed {
		t.Error("an unparsable request with a name passes by the name's budget")
	}
}

// The budgets of the address's malformed requests are no other's: one address
// cannot take those of another, as long as the shared one has room.
func TestUnparsableIsBoundedByAddressToo(t *testing.T) {
	b := trial.New(t, []string{login}, []policy.Rule{
		{Endpoint: login, Limit: 5, Per: time.Hour, Subject: policy.SubjectIdentifierIP},
		{Endpoint: login, Limit: 100, Per: time.Hour, Subject: policy.SubjectIdentifier},
	})
	for i := range 10 {
		if got := try(b, "192.0.2.7", unparsable).Allowed; got != (i < 5) {
			t.Errorf("attempt %d: %v", i, got)
		}
	}
	if !try(b, "192.0.2.8", unparsable).Allowed {
		t.Error("another address has no budget of its own")
	}
}

// Both limits hold whatever an attacker mixes, and a request that one of them
// denies takes nothing from the other. The clock stands still, so counts are
// the whole truth.
func TestBothLimitsHoldUnderAttack(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 3))
	rules := append([]policy.Rule{
		{Endpoint: login, Limit: 3, Per: time.Hour, Subject: policy.SubjectIdentifierIP},
		{Endpoint: policy.All, Limit: 25, Per: time.Hour, Subject: policy.SubjectIP},
	}, both...)
	for range 20 {
		b := trial.New(t, []string{login}, rules)
		taken := map[string]int{}
		for range 1500 {
			from, as := fmt.Sprintf("192.0.2.%d", random.IntN(8)), fmt.Sprintf("user%d", random.IntN(40))
			switch random.IntN(4) {
			case 0:
				as = "victim" // one account from many addresses
			case 1:
				from = "192.0.2.1" // one address on many accounts
			case 2:
				as = unparsable
			}
			limits := map[string]int{"ip " + from: 20, "* " + from: 25, "id " + as: 5, "both " + from + as: 3}
			if as == unparsable {
				limits = map[string]int{
					"ip " + from:           20,
					"* " + from:            25,
					"unparsable":           5,
					"id address " + from:   5,
					"both address " + from: 3,
				}
			}
			want := true
			for budget, limit := range limits {
				want = want && taken[budget] < limit
			}
			if want {
				for budget := range limits {
					taken[budget]++
				}
			}
			if got := try(b, from, as).Allowed; got != want {
				t.Fatalf("seed %d: %s as %q: %v, want %v with %v", seed, from, as, got, want, taken)
			}
		}
	}
}

// TestA1TargetedLockout says what an attacker with so many addresses does to a
// victim at another one, who tries once an hour.
func TestA1TargetedLockout(t *testing.T) {
	byIdentifier := []policy.Rule{{Endpoint: login, Limit: 5, Per: time.Hour, Subject: policy.SubjectIdentifier}}
	pairs := []policy.Rule{
		{Endpoint: login, Limit: 20, Per: time.Hour, Subject: policy.SubjectIP},
		{Endpoint: login, Limit: 5, Per: time.Hour, Subject: policy.SubjectIdentifierIP},
		{Endpoint: login, Limit: 100, Per: time.Hour, Subject: policy.SubjectIdentifier},
	}
	for _, c := range []struct {
		name      string
		rules     []policy.Rule
		addresses int
		as        string
		denied    int // of the victim's 24
		guesses   int // against the account, in 24 hours
	}{
		{"one key, one address", byIdentifier, 1, "victim", 24, 125},
		{"address and identifier, one address", both, 1, "victim", 24, 125},
		{"address and identifier, a hundred", both, 100, "victim", 24, 125},
		{"the pair, one address", pairs, 1, "victim", 0, 125},
		{"the pair, fifteen addresses", pairs, 15, "victim", 0, 15 * 125},
		{"the pair, a hundred addresses", pairs, 100, "victim", 24, 2500},
		{"malformed bodies", pairs, 100, unparsable, 0, 2500},
	} {
		if race.Enabled && c.addresses == 100 {
			continue // one goroutine asks 75,000 times, as it does from one address; in full without the detector
		}
		b := trial.New(t, []string{login}, c.rules)
		denied, guesses := 0, 0
		for hour := range 25 {
			for i := range 30 * c.addresses {
				if try(b, fmt.Sprintf("198.51.100.%d", i%c.addresses), c.as).Allowed {
					guesses++
				}
			}
			if hour > 0 && !try(b, "192.0.2.7", "victim").Allowed {
				denied++
			}
			b.Now = b.Now.Add(time.Hour)
		}
		if denied != c.denied || guesses != c.guesses {
			t.Errorf("%s: the victim is denied %d of 24 times, %d guesses, want %d and %d", c.name, denied, guesses,
				c.denied, c.guesses)
		}
	}
}

func TestForgiveGivesBackButToTheGuard(t *testing.T) {
	rules := append([]policy.Rule{{Endpoint: policy.All, Limit: 10, Per: time.Hour, Subject: policy.SubjectIP,
		Name: "guard"}}, both...)
	b := trial.New(t, []string{login}, rules)
	ctx := context.Background()
	for i := range 10 {
		made, d := b.Reserve(ctx, attempt("192.0.2.7", "alice"), time.Minute)
		if !d.Allowed {
			t.Fatalf("success %d is denied: %v", i, d.Reason)
		}
		s, err := b.SettleAnswer(ctx, made.ID, headgate.Answer{Actual: made.Cost, Forgiven: true})
		if err != nil || s.Status != reservation.Settled || s.Actual != 1 || s.Reserved != 1 {
			t.Fatalf("Forgive = %+v, %v", s, err)
		}
		if s, _ := b.SettleAnswer(ctx, made.ID, headgate.Answer{Actual: made.Cost,
			Forgiven: true}); s.Status != reservation.AlreadySettled {
			t.Fatalf("the second Forgive = %+v", s)
		}
	}
	d := try(b, "192.0.2.7", "alice")
	if v, _ := d.Binding(); d.Allowed || d.Policies().Rule(v.Rule).Name != "guard" {
		t.Errorf("attempt 11: %v, want denied by the guard, which counts successes", d.Reason)
	}
	for i := range 6 {
		if got := try(b, "192.0.2.8", "alice").Allowed; got != (i < 5) {
			t.Errorf("failure %d of alice: %v, want 5 after 10 successes", i, got)
		}
	}
}

// Attempts under way count, so a burst in parallel is no way around; a success
// gives back its own token and none of the failures beside it.
func TestOnlyOneOwnAttemptIsForgiven(t *testing.T) {
	b := trial.New(t, []string{login}, both)
	ctx := context.Background()
	var made []headgate.Reservation
	for range 20 {
		if r, d := b.Reserve(ctx, attempt("192.0.2.7", "alice"), time.Minute); d.Allowed {
			made = append(made, r)
		}
	}
	if len(made) != 5 {
		t.Fatalf("%d attempts under way at once, want 5", len(made))
	}
	if _, err := b.SettleAnswer(ctx, made[0].ID, headgate.Answer{Actual: 1, Forgiven: true}); err != nil {
		t.Fatal(err)
	}
	if first, second := try(b, "192.0.2.7", "alice"), try(b, "192.0.2.7", "alice"); !first.Allowed || second.Allowed {
		t.Errorf("after one success: %v, %v, want one more attempt", first.Reason, second.Reason)
	}
}

func TestIdentifiersAreSeenByNobody(t *testing.T) {
	var seen []headgate.Request
	b := trial.New(t, []string{login}, both, func(o *headgate.Options) {
		o.Observe = func(r *headgate.Request, _ *headgate.Decision) { seen = append(seen, *r) }
	})
	ctx := context.Background()
	try(b, "192.0.2.7", "alice-secret")
	_, _ = b.Wait(ctx, attempt("192.0.2.7", "alice-secret"))
	b.Reserve(ctx, attempt("192.0.2.7", "alice-secret"), time.Minute)
	_, _, _ = b.ReserveWait(ctx, attempt("192.0.2.7", "alice-secret"), time.Minute)
	b.Check(ctx, headgate.Request{Method: "GET", Target: "/nowhere", Identifier: "alice-secret"})
	x := b.Explain(ctx, attempt("192.0.2.7", "alice-secret"))
	in, err := b.Inspect(ctx, inspect.Query{
		Endpoint:   login,
		Identifier: "alice-secret",
		Address:    netip.MustParseAddr("192.0.2.7"),
	})
	if err != nil || len(in.Buckets) != 2 {
		t.Fatalf("Inspect = %+v, %v", in, err)
	}
	if said := fmt.Sprintf("%+v %+v %+v", seen, x, in); len(seen) != 5 || strings.Contains(said, "alice-secret") {
		t.Errorf("the identifier stands in %s", said)
	}
}

func TestTypedIdentifiersAreReadAsInBodies(t *testing.T) {
	b := trial.New(t, []string{login, "GET /a"}, append(both,
		policy.Rule{Endpoint: policy.All, Limit: 50, Subject: policy.SubjectIdentifier}), func(o *headgate.Options) {
		read, _ := o.Endpoints.Lookup(parse(t, login))
		o.Typed = func(at endpoint.ID, typed string) (string, bool, bool) {
			if at != read && at != endpoint.Unknown {
				return typed, true, false
			}
			return strings.ToLower(typed), typed != "", true
		}
	})
	try(b, "192.0.2.7", "alice")
	try(b, "192.0.2.7", unparsable)
	x := b.Explain(context.Background(), attempt("192.0.2.8", "ALICE"))
	if len(x.Buckets) != 3 || x.Buckets[1].Remaining != 3 || x.Identifier != "given, and read as in a body" {
		t.Errorf("Explain = %q %+v, want the bucket of alice", x.Identifier, x.Buckets)
	}
	x = b.Explain(context.Background(), attempt("192.0.2.8", ""))
	if len(x.Buckets) != 5 || !x.Buckets[3].Unparsable || x.Buckets[3].Remaining != 3 || x.Identifier == "" {
		t.Errorf("Explain without one = %q %+v, want the budget that all share", x.Identifier, x.Buckets)
	}
	if x := b.Explain(context.Background(), headgate.Request{Method: "POST", Target: "/nowhere"}); x.Identifier != "" {
		t.Errorf("Explain of an unknown path says of the identifier: %s", x.Identifier)
	}
	subject := policy.SubjectIdentifier
	if in, err := b.Inspect(context.Background(), inspect.Query{Endpoint: policy.All, Identifier: "Alice",
		Subject: &subject}); err != nil || len(in.Buckets) != 1 || in.Buckets[0].Remaining != 49 {
		t.Errorf("Inspect of all endpoints = %+v, %v, want the bucket of alice", in, err)
	}
	in, err := b.Inspect(context.Background(), inspect.Query{Endpoint: login, Identifier: "Alice"})
	if err != nil || len(in.Buckets) != 1 || in.Buckets[0].Remaining != 4 {
		t.Errorf("Inspect = %+v, %v, want the bucket of alice", in, err)
	}
}

func TestUnparsableAllocatesNothing(t *testing.T) {
	b := trial.New(t, []string{login}, both)
	r := attempt("192.0.2.7", unparsable)
	b.Check(context.Background(), r)
	if n := testing.AllocsPerRun(100, func() { b.Check(context.Background(), r) }); n > trial.Allocations {
		t.Errorf("Check allocates %v times, want %v", n, trial.Allocations)
	}
}

func TestForgiveUnderEveryAlgorithm(t *testing.T) {
	for _, algorithm := range []policy.Algorithm{policy.TokenBucket, policy.LeakyBucket, policy.FixedWindow,
		policy.SlidingWindow, policy.SlidingLog} {
		b := trial.New(t, []string{login}, []policy.Rule{{Endpoint: login, Limit: 2, Per: time.Hour,
			Subject: policy.SubjectIdentifier, Algorithm: algorithm}})
		ctx := context.Background()
		for i := range 10 {
			made, d := b.Reserve(ctx, attempt("192.0.2.7", "alice"), time.Minute)
			if !d.Allowed {
				t.Errorf("%v: success %d is denied: %v", algorithm, i, d.Reason)
				break
			}
			if _, err := b.SettleAnswer(ctx, made.ID, headgate.Answer{Actual: made.Cost, Forgiven: true}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			if got := try(b, "192.0.2.7", "alice").Allowed; got != (i < 2) {
				t.Errorf("%v: failure %d: %v, want 2 to pass", algorithm, i, got)
			}
		}
	}
}
