package charge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// orgTokens verifies tokens such as "ann.acme.x": Ann's, with the claim org, unless it is "-". All others are forged,
// whatever they claim.
type orgTokens struct{}

func (orgTokens) Verify(_ context.Context, token string) (identity.Claims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[2] != "x" {
		return identity.Claims{}, errors.New("forged")
	}
	c := identity.Claims{Subject: parts[0], Until: time.Now().Add(time.Hour)}
	if parts[1] != "-" {
		c.Other = []identity.Claim{{Name: "team", Value: "t"}, {Name: "org", Value: parts[1]}}
	}
	return c, nil
}

func named(subject string, limit int64, at string) policy.Rule {
	r := policy.Rule{Endpoint: at, Limit: limit, Per: time.Hour}
	if err := r.SetSubject(subject); err != nil {
		panic(err)
	}
	return r
}

func byToken(o *headgate.Options) {
	who, err := identity.New(identity.Options{Tokens: orgTokens{}})
	if err != nil {
		panic(err)
	}
	o.Identities = who
}

func ask(target, peer, token string) headgate.Request {
	r := headgate.Request{Method: "GET", Target: target, Peer: netip.MustParseAddr(peer), Header: http.Header{}}
	if token != "" {
		r.Header = http.Header{"Authorization": {"Bearer " + token}}
	}
	return r
}

// TestNoSpellingOfAParameterIsABudget: whoever asks, and however the customer is written, it is one customer's budget.
func TestNoSpellingOfAParameterIsABudget(t *testing.T) {
	b := trial.New(t, []string{"GET /c/{customer}", "GET /c/{customer}/orders", "GET /health"}, []policy.Rule{
		named("path:customer", 3, "GET /c/{customer}"), named("path:customer", 4, policy.All),
	})
	long := "/c/" + strings.Repeat("a", charge.MaxNamed)
	for n, step := range []struct {
		target, peer string
		allowed      bool
		rule         string
	}{
		{"/c/42", "192.0.2.1", true, ""},
		{"/c/%342", "192.0.2.2", true, ""},
		{"/c//042/?x=7", "192.0.2.3", true, ""},
		{"/c/x/../42", "192.0.2.4", false, "GET /c/{customer} per path:customer"},
		{"/c/42/orders", "192.0.2.4", true, ""}, // the fourth for all endpoints
		{"/c/0%342/orders", "192.0.2.5", false, "* per path:customer"},
		{"/c/43/orders", "192.0.2.5", true, ""},
		{long, "192.0.2.1", true, ""}, // of 128 bytes, and of its own
		{long + "b", "192.0.2.1", true, ""},
		{long + "c", "192.0.2.2", true, ""},
		{long + "d", "192.0.2.3", true, ""},
		{long + "e", "192.0.2.4", false, "GET /c/{customer} per path:customer"}, // all longer ones share a bucket
		{long, "192.0.2.4", true, ""},
	} {
		d := b.Check(context.Background(), ask(step.target, step.peer, ""))
		rule := ""
		if v, ok := d.Binding(); ok && !d.Allowed {
			rule = d.Policies().Rule(v.Rule).Title()
		}
		if d.Allowed != step.allowed || rule != step.rule {
			t.Errorf("step %d, %.20s: allowed %v by %q, want %v by %q", n, step.target, d.Allowed, rule,
				step.allowed, step.rule)
		}
	}
	// An endpoint without the parameter counts by the address, under the rule for all.
	for n := range 6 {
		if got := b.Get("/health").Allowed; got != (n < 4) {
			t.Errorf("request %d to an endpoint without the parameter: allowed %v", n, got)
		}
	}
}

// TestClaimsCountOnceVerified: callers of one organisation share its budget, from whatever address and with whatever
// token. Who only says so does not touch it.
func TestClaimsCountOnceVerified(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{named("claim:org", 2, "GET /a")}, byToken)
	pass := func(peer, token string) bool {
		return b.Check(context.Background(), ask("/a", peer, token)).Allowed
	}
	for n, step := range []struct {
		peer, token string
		want        bool
	}{
		{"192.0.2.1", "ann.acme.forged", true}, // its address's first
		{"192.0.2.1", "ann.acme.x", true},
		{"192.0.2.2", "bob.acme.x", true},
		{"192.0.2.3", "cid.acme.x", false},
		{"192.0.2.3", "cid.umbrella.x", true},
		{"192.0.2.1", "ann.acme.forged", true},
		{"192.0.2.1", "", false}, // the same address's third
		// without the claim: Dan's own budget
		{"192.0.2.4", "dan.-.x", true},
		{"192.0.2.5", "dan.-.x", true},                                            // from everywhere
		{"192.0.2.6", "dan.-.x", false},                                           //
		{"192.0.2.6", "eve.-.x", true},                                            //
		{"192.0.2.7", "f." + strings.Repeat("o", charge.MaxNamed+1) + ".x", true}, // too long: F's own
		{"192.0.2.8", "f." + strings.Repeat("p", charge.MaxNamed+2) + ".x", true},
		{"192.0.2.9", "f." + strings.Repeat("q", charge.MaxNamed+3) + ".x", false},
	} {
		if got := pass(step.peer, step.token); got != step.want {
			t.Errorf("step %d, %.20s from %s: allowed %v, want %v", n, step.token, step.peer, got, step.want)
		}
	}
}

// TestNamedSubjectsAgainstTheirTwin holds buckets against counters by what is meant, written out in words.
func TestNamedSubjectsAgainstTheirTwin(t *testing.T) {
	const limit = 3
	random := rand.New(rand.NewPCG(16, 4))
	for range race.Fewer(300) {
		subjects := []string{"path:a", "path:b", "claim:org", "claim:team", "principal", "ip", "endpoint"}
		templates := []string{"GET /x/{a}", "GET /y/{a}/{b}", "GET /z"}
		rules := map[string]string{} // subject by endpoint
		var list []policy.Rule
		for _, at := range append(templates, policy.All) {
			subject := subjects[random.IntN(len(subjects))]
			if at != policy.All && strings.HasPrefix(subject, "path:") && !strings.Contains(at, "{"+subject[5:]+"}") {
				continue
			}
			rules[at] = subject
			list = append(list, named(subject, limit, at))
		}
		if len(list) == 0 {
			continue
		}
		b := trial.New(t, templates, list, byToken)
		used := map[string]int{}
		for range 60 {
			a, bb := fmt.Sprint(random.IntN(2)), fmt.Sprint(random.IntN(2))
			at := templates[random.IntN(len(templates))]
			target := map[string]string{templates[0]: "/x/" + a, templates[1]: "/y/" + a + "/" + bb,
				templates[2]: "/z"}[at]
			peer := fmt.Sprintf("192.0.2.%d", random.IntN(2))
			sub, org := []string{"ann", "bob"}[random.IntN(2)], []string{"acme", "umbrella", "-"}[random.IntN(3)]
			token, principal := sub+"."+org+".x", "principal "+sub
			switch random.IntN(4) {
			case 0:
				token, principal, org = "", "address "+peer, "-"
			case 1:
				token, principal, org = sub+"."+org+".y", "address "+peer, "-"
			}
			whose := func(subject string) string {
				switch {
				case subject == "path:a" && at != templates[2]:
					return "a " + a
				case subject == "path:b" && at == templates[1]:
					return "b " + bb
				case subject == "claim:org" && org != "-":
					return "org " + org
				case subject == "claim:team" && org != "-":
					return "team t"
				case strings.HasPrefix(subject, "claim:"), subject == "principal":
					return principal
				case subject == "endpoint":
					return ""
				}
				return "address " + peer
			}
			var buckets []string
			for _, place := range []string{at, policy.All} {
				if subject, ok := rules[place]; ok {
					buckets = append(buckets, place+" "+whose(subject))
				}
			}
			want := true
			for _, bucket := range buckets {
				want = want && used[bucket] < limit
			}
			if want {
				for _, bucket := range buckets {
					used[bucket]++
				}
			}
			if got := b.Check(context.Background(), ask(target, peer, token)).Allowed; got != want {
				t.Fatalf("%v: %s from %s with %q: allowed %v, want %v (%q of %v)", rules, target, peer, token, got,
					want, buckets, used)
			}
		}
	}
}

// TestNamedSubjectsAreExplained: the parameter is in the target; what a claim says stays a secret.
func TestNamedSubjectsAreExplained(t *testing.T) {
	b := trial.New(t, []string{"GET /c/{customer}"}, []policy.Rule{
		named("path:customer", 3, "GET /c/{customer}"), named("claim:org", 4, "GET /c/{customer}"),
	}, byToken)
	x := b.Explain(context.Background(), ask("/c/042", "192.0.2.1", "ann.hush.x"))
	var got []string
	for _, a := range x.Buckets {
		got = append(got, a.Subject+": "+a.Whose)
	}
	if want := "path:customer: customer 42, claim:org: the claim org of token ann"; strings.Join(got, ", ") != want {
		t.Errorf("buckets are %q, want %q", strings.Join(got, ", "), want)
	}
	if text := fmt.Sprintf("%+v", x); strings.Contains(text, "hush") {
		t.Errorf("the explanation holds the claim's value:\n%s", text)
	}
	x = b.Explain(context.Background(), ask("/c/"+strings.Repeat("z", 200), "192.0.2.1", "ann.-.x"))
	if got, want := x.Buckets[0].Whose+"; "+x.Buckets[1].Whose,
		"all requests whose customer is too long; token ann"; got != want {
		t.Errorf("buckets are %q, want %q", got, want)
	}
}

// TestNamedBucketsAreFound by the values that an operator gives, and reset.
func TestNamedBucketsAreFound(t *testing.T) {
	const at = "GET /c/{customer}"
	b := trial.New(t, []string{at}, []policy.Rule{named("path:customer", 3, at), named("claim:org", 4, at)}, byToken)
	for range 3 {
		b.Check(context.Background(), ask("/c/42", "192.0.2.1", "ann.acme.x"))
	}
	found, err := b.Inspect(context.Background(),
		inspect.Query{Endpoint: at, Named: map[string]string{"path:customer": "42", "claim:org": "acme"}})
	if err != nil || len(found.Buckets) != 2 || found.Buckets[0].Remaining != 0 || found.Buckets[1].Remaining != 1 {
		t.Fatalf("Inspect = %+v, %v, want both buckets, spent", found, err)
	}
	found, err = b.Inspect(context.Background(), inspect.Query{Endpoint: at, Address: trial.Client})
	if err != nil || len(found.Buckets) != 0 || len(found.Skipped) != 2 ||
		found.Skipped[0].Needs != "a value of path:customer" {
		t.Errorf("Inspect without values = %+v, %v, want both skipped", found, err)
	}
	subject := policy.SubjectPath
	if _, err := b.Reset(context.Background(), inspect.Query{
		Endpoint: at,
		Subject:  &subject,
		Named:    map[string]string{"path:customer": "42"},
	}, func(inspect.Bucket) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if !b.Check(context.Background(), ask("/c/42", "192.0.2.1", "ann.acme.x")).Allowed {
		t.Error("after the reset the customer is still denied")
	}
}

func TestNamedSubjectsAllocateNothing(t *testing.T) {
	const at = "GET /c/{customer}"
	b := trial.New(t, []string{at}, []policy.Rule{named("path:customer", 1<<30, at), named("claim:org", 1<<30, at)},
		byToken)
	r := ask("/c/42", "192.0.2.1", "ann.acme.x")
	b.Check(context.Background(), r)
	if n := testing.AllocsPerRun(100, func() { b.Check(context.Background(), r) }); n >= trial.Allocations {
		t.Errorf("Check allocates %v times, want 0", n)
	}
}
