package refusal_test

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/refusal"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// Every reason to refuse has a status of HTTP and a code of gRPC that go together: gRPC's own table of what proxies'
// statuses mean (doc/http-grpc-status-mapping.md) is coarser, so this one follows google.rpc.Code.
func TestEveryReasonHasCodes(t *testing.T) {
	fits := map[int][]uint32{
		http.StatusBadRequest: {3}, http.StatusUnauthorized: {16}, http.StatusForbidden: {7}, http.StatusNotFound: {12},
		http.StatusMethodNotAllowed: {12},
		http.StatusTooManyRequests:  {8}, http.StatusServiceUnavailable: {14, 1},
	}
	for i := range headgate.Reasons {
		reason := headgate.Reason(i)
		if reason == headgate.WithinLimits || reason == headgate.Exempt {
			continue
		}
		r := refusal.Of(&headgate.Decision{Reason: reason})
		if codes := fits[r.Status]; len(codes) == 0 || codes[0] != r.Code && codes[len(codes)-1] != r.Code {
			t.Errorf("%s: status %d and code %d, want one of %v", reason, r.Status, r.Code, codes)
		}
		if r.Detail == "" && reason != headgate.OverLimit {
			t.Errorf("%s has no words", reason)
		}
		if waits := r.Status == http.StatusServiceUnavailable; waits != (r.RetryAfter > 0) {
			t.Errorf("%s: come back after %v", reason, r.RetryAfter)
		}
	}
	r := refusal.Of(&headgate.Decision{
		Reason:    headgate.BadCredential,
		Principal: identity.Principal{Rejected: identity.KeyOutOfScope},
	})
	if r.Status != http.StatusForbidden || r.Code != 7 {
		t.Errorf("a key out of its scopes: %d and %d, want 403 and 7", r.Status, r.Code)
	}
}

// A rule that is only tried is not named, though it would refuse the request as well.
func TestShadowRulesAreNotNamed(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{
		{Endpoint: "GET /a", Limit: 1, Name: "enforced"},
		{Endpoint: policy.All, Limit: 1, Mode: policy.Shadow, Name: "tried"},
	})
	ask := headgate.Request{Method: "GET", Target: "/a"}
	b.Check(t.Context(), ask)
	d := b.Check(t.Context(), ask)
	if r := refusal.Of(&d); d.Allowed || !slices.Equal(r.Violated, []string{"enforced"}) {
		t.Errorf("allowed %v, violated are %q, want the rule that is enforced", d.Allowed, r.Violated)
	}
}

// What is written once for a rule is what Of says of each of its refusals, whoever is refused and for how long. Of what
// several rules deny, or a rule in words of its own, it is not asked.
func TestAround(t *testing.T) {
	b := trial.New(t, []string{"GET /a", "GET /b", "GET /c"}, []policy.Rule{
		{Endpoint: "GET /a", Limit: 2, Per: time.Hour, Name: `a "quoted" \u0000 \ name`},
		{Endpoint: "GET /b", Limit: 2, Per: time.Minute},
		{Endpoint: "GET /c", Limit: 1, Per: time.Minute, Refusal: "503"},
		{Endpoint: policy.All, Limit: 3, Per: time.Minute, Name: "all"},
	})
	type around struct{ before, behind string }
	seen, alone := map[policy.RuleID]around{}, 0
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		d := b.Check(t.Context(), headgate.Request{
			Method: "GET", Target: "/" + string(rune('a'+r.IntN(3))),
			Peer: netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(4))}),
		})
		b.Now = b.Now.Add(time.Duration(r.Int64N(int64(2 * time.Second))))
		if d.Reason != headgate.OverLimit || !refusal.Alone(&d) {
			continue
		}
		alone++
		binding, _ := d.Binding()
		says, ok := seen[binding.Rule]
		if !ok {
			says.before, says.behind = refusal.Around(&d)
			seen[binding.Rule] = says
		}
		of := refusal.Of(&d)
		got := says.before + string(refusal.AppendWait(nil, &d)) + says.behind
		if want := string(of.AppendJSON(nil)); got != want {
			t.Fatalf("%s\nwant\n%s", got, want)
		}
	}
	if alone < 100 || len(seen) != 3 {
		t.Errorf("%d refusals of %d rules alone, want more than 100 of 3", alone, len(seen))
	}
}
