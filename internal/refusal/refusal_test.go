package refusal_test

import (
	"net/http"
	"slices"
	"testing"

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
