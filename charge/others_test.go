package charge_test

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

func (h *holders) both(peer string) headgate.Request {
	return headgate.Request{
		Method: "GET", Target: "/v1/items/1", Peer: netip.MustParseAddr(peer),
		Header: http.Header{"X-Api-Key": {h.keys[0]}, "Authorization": {"Bearer t3.x.y"}},
	}
}

func (h *holders) one(peer, header, value string) headgate.Request {
	return headgate.Request{
		Method: "GET",
		Target: "/v1/items/1",
		Peer:   netip.MustParseAddr(peer),
		Header: http.Header{header: {value}},
	}
}

// A request with two valid credentials spends of both, and says so.
func TestEachCredentialIsCharged(t *testing.T) {
	h := newHolders(t, nil)
	d := h.lim.Check(t.Context(), h.both("198.51.100.1"))
	if p := d.Principal; p.Kind != identity.Token || p.ID != "t3" || p.Project != "p3" || len(d.Others) != 1 ||
		d.Others[0].ID != "k1" {
		t.Fatalf("principals are %v and %v, want the token's and the key's", p, d.Others)
	}
	verdicts := d.Verdicts()
	if len(verdicts) != 2 || !verdicts[0].Of(0) || verdicts[0].Of(1) || verdicts[1].Of(0) || !verdicts[1].Of(1) {
		t.Fatalf("verdicts are %+v, want one for each", verdicts)
	}
	if token, key := verdicts[0].Outcome.Remaining, verdicts[1].Outcome.Remaining; token != 8 || key != 4 {
		t.Errorf("%d and %d remain, want 8 of 9 and 4 of 5", token, key)
	}
	for range 4 {
		if !h.lim.Check(t.Context(), h.one("198.51.100.2", "X-Api-Key", h.keys[0])).Allowed {
			t.Fatal("the key has less than 4 left")
		}
	}
	if d := h.lim.Check(t.Context(), h.both("198.51.100.3")); d.Allowed || d.Reason != headgate.OverLimit {
		t.Errorf("with the key's budget spent: %v, want over_limit", d.Reason)
	} else if v, _ := d.Binding(); v.Principal != 1 {
		t.Errorf("bound by %+v, want the key's", v)
	}
	// All or nothing: what was denied took nothing of the token's.
	if d := h.lim.Check(t.Context(), h.one("198.51.100.3", "Authorization",
		"Bearer t3.x.y")); d.Verdicts()[0].Outcome.Remaining != 7 {
		t.Errorf("%d remain, want 7", d.Verdicts()[0].Outcome.Remaining)
	}
}

// FirstCredentials leaves it at the best kind. Of that kind all are charged:
// nobody knows which of two keys the API reads.
func TestFirstCredentials(t *testing.T) {
	h := newHolders(t, func(o *identity.Options) { o.Credentials = identity.FirstCredentials })
	if d := h.lim.Check(t.Context(), h.both("198.51.100.1")); d.Principal.ID != "t3" || len(d.Others) != 0 ||
		len(d.Verdicts()) != 1 {
		t.Errorf("token and key: %v, %v, want the token's alone", d.Principal, d.Others)
	}
	r := h.one("198.51.100.1", "X-Api-Key", h.keys[0])
	r.Header = http.Header{"X-Api-Key": h.keys}
	if d := h.lim.Check(t.Context(), r); d.Principal.ID != "k1" || len(d.Others) != 2 {
		t.Errorf("three keys: %v, %v, want all", d.Principal, d.Others)
	}
}

// What several principals share is charged once, and counts for each.
func TestSharedBucketsAreChargedOnce(t *testing.T) {
	h := newHolders(t, nil)
	h.rules(t, headgate.Options{},
		policy.Rule{Endpoint: policy.Default, Limit: 10},
		policy.Rule{Endpoint: policy.Default, Limit: 10, Subject: policy.SubjectIP},
		policy.Rule{Endpoint: policy.Default, Limit: 4, Project: "p1", Subject: policy.SubjectIP},
	)
	d := h.lim.Check(t.Context(), h.both("198.51.100.1"))
	var got []string
	for _, v := range d.Verdicts() {
		got = append(got, d.Policies().Rule(v.Rule).Subject.String())
		if left := v.Outcome.Remaining; left != 9 && left != 3 {
			t.Errorf("%+v: charged more than once", v)
		}
	}
	// The token's and the key's own; the address's as both have it, and as p1 has it.
	if len(got) != 4 {
		t.Errorf("charged by %v, want principal, ip, principal, ip", got)
	}

	h.rules(t, headgate.Options{}, policy.Rule{Endpoint: policy.Default, Limit: 10, Subject: policy.SubjectIP},
		policy.Rule{Endpoint: policy.Default, Limit: 10, Subject: policy.SubjectEndpoint})
	d = h.lim.Check(t.Context(), h.both("198.51.100.1"))
	for _, v := range d.Verdicts() {
		if v.Outcome.Remaining != 9 || !v.Of(0) || !v.Of(1) || v.Of(2) {
			t.Errorf("%+v, want 9 left and both concerned", v)
		}
	}
	if len(d.Verdicts()) != 2 {
		t.Errorf("%d verdicts, want 2", len(d.Verdicts()))
	}
}

// Where one principal has no rule the other's still hold; and where requests
// without a rule are denied, one principal without is enough.
func TestPrincipalWithoutARule(t *testing.T) {
	h := newHolders(t, nil)
	only := policy.Rule{Endpoint: policy.Default, Limit: 1, Project: "p1"}
	h.rules(t, headgate.Options{}, only)
	for i, want := range []headgate.Reason{headgate.WithinLimits, headgate.OverLimit} {
		if d := h.lim.Check(t.Context(), h.both("198.51.100.1")); d.Reason != want {
			t.Errorf("request %d: %v, want %v", i, d.Reason, want)
		}
	}
	if d := h.lim.Check(t.Context(), h.one("198.51.100.1", "Authorization",
		"Bearer t3.x.y")); d.Reason != headgate.NoRule || !d.Allowed {
		t.Errorf("the token alone: %v", d.Reason)
	}
	for _, project := range []string{"p1", "p3"} {
		only.Project = project
		h.rules(t, headgate.Options{DenyWithoutRule: true}, only)
		if d := h.lim.Check(t.Context(), h.both("198.51.100.1")); d.Reason != headgate.NoRule || d.Allowed {
			t.Errorf("with a rule for %s alone, under DenyWithoutRule: %v, want no_rule", project, d.Reason)
		}
	}
}

// A reservation holds of each principal, and each gets back what was not used,
// by its own project's rules.
func TestReservationOfTwoPrincipals(t *testing.T) {
	h := newHolders(t, nil)
	r := h.both("198.51.100.1")
	r.Cost = 5
	made, d := h.lim.Reserve(t.Context(), r, 0)
	if !d.Allowed {
		t.Fatal(d.Reason)
	}
	key := h.one("198.51.100.2", "X-Api-Key", h.keys[0])
	if d := h.lim.Check(t.Context(), key); d.Allowed {
		t.Fatal("the key has tokens left of 5 that are reserved")
	}
	if s, err := h.lim.Settle(t.Context(), made.ID, 2); err != nil || s.Status != reservation.Settled {
		t.Fatal(s, err)
	}
	for header, want := range map[string]struct {
		value string
		left  int64
	}{"X-Api-Key": {h.keys[0], 2}, "Authorization": {"Bearer t3.x.y", 6}} {
		if d := h.lim.Check(t.Context(), h.one("198.51.100.2", header,
			want.value)); d.Verdicts()[0].Outcome.Remaining != want.left {
			t.Errorf("%s: %d remain after one more, want %d", header, d.Verdicts()[0].Outcome.Remaining, want.left)
		}
	}
}

// Explain shows whose buckets they are.
func TestExplainNamesEachPrincipal(t *testing.T) {
	h := newHolders(t, nil)
	x := inspect.Explain(t.Context(), h.lim, h.both("198.51.100.1"))
	if id := x.Identity; id.ID != "t3" || len(id.Others) != 1 ||
		id.Others[0] != (inspect.Principal{Kind: "api_key", ID: "k1", Project: "p1"}) {
		t.Errorf("identity is %+v", id)
	}
	if len(x.Buckets) != 2 || x.Buckets[0].Principal != "" || x.Buckets[1].Principal != "api_key k1 of project p1" ||
		!x.Buckets[1].Binding {
		t.Errorf("buckets are %+v", x.Buckets)
	}
	for i, c := range x.Considered {
		if want := i >= len(x.Considered)/2; (c.Principal != "") != want {
			t.Errorf("considered %+v", c)
		}
	}
	if _, err := inspect.Find(t.Context(), h.lim, inspect.Query{
		Endpoint: "GET /v1/items/{id}",
		Peer:     netip.MustParseAddr("198.51.100.1"),
		Header:   h.both("198.51.100.1").Header,
	}); err == nil {
		t.Error("Inspect of two principals at once, want an error")
	}
}

// TestA5AFloodDoesNotHideAToken sends a valid token from ever new addresses, after
// so many forged ones from each that its tokens are not verified any more.
func TestA5AFloodDoesNotHideAToken(t *testing.T) {
	h := newHolders(t, func(o *identity.Options) { o.TokenFailures, o.TokenCache = 2, -1 })
	admitted := 0
	for i := range 20 {
		peer := netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}).String()
		for range 2 {
			h.lim.Check(t.Context(), h.one(peer, "Authorization", "Bearer forged.x.y"))
		}
		for range 3 {
			d := h.lim.Check(t.Context(), h.one(peer, "Authorization", "Bearer t1.x.y"))
			if d.Principal.Rejected != identity.TokenFlood {
				t.Fatalf("the token is %v, want token_flood", d.Principal)
			}
			if d.Allowed {
				admitted++
			}
		}
	}
	if admitted != perAddress {
		t.Errorf("%d of 60 with a token that was not verified are admitted, want %d: what one address has",
			admitted, perAddress)
	}
}

// A bad credential is refused where that is asked for, and costs what a request costs.
func TestRefuseBadCredentials(t *testing.T) {
	h := newHolders(t, nil)
	rule := policy.Rule{Endpoint: policy.Default, Limit: 2, Per: time.Hour}
	for _, c := range []struct {
		name   string
		header http.Header
		want   headgate.Reason
	}{
		{"none", http.Header{}, headgate.WithinLimits},
		{"a good key", http.Header{"X-Api-Key": {h.keys[0]}}, headgate.WithinLimits},
		{"a key that is none", http.Header{"X-Api-Key": {"x"}}, headgate.BadCredential},
		{"an expired token", http.Header{"Authorization": {"Bearer old.x.y"}}, headgate.BadCredential},
		{"a forged token", http.Header{"Authorization": {"Bearer forged.x.y"}}, headgate.BadCredential},
		{"a good key and a forged token", http.Header{"X-Api-Key": {h.keys[0]}, "Authorization": {"Bearer forged.x.y"}},
			headgate.BadCredential},
		{"a token that cannot be verified", http.Header{"Authorization": {"Bearer away.x.y"}},
			headgate.CredentialUnverified},
		{"another scheme", http.Header{"Authorization": {"Basic YTpi"}}, headgate.WithinLimits},
	} {
		h.rules(t, headgate.Options{RefuseBadCredentials: true}, rule)
		r := headgate.Request{
			Method: "GET",
			Target: "/v1/items/1",
			Peer:   netip.MustParseAddr("198.51.100.1"),
			Header: c.header,
		}
		if x := inspect.Explain(t.Context(), h.lim, r); x.Verdict.Reason != c.want.String() ||
			x.Verdict.Allowed != (c.want == headgate.WithinLimits) {
			t.Errorf("%s: explained as %+v", c.name, x.Verdict)
		}
		for i, want := range []headgate.Reason{c.want, c.want, headgate.OverLimit} {
			if d := h.lim.Check(t.Context(), r); d.Reason != want || d.Allowed != (want == headgate.WithinLimits) {
				t.Errorf("%s, request %d: %v, want %v", c.name, i, d.Reason, want)
			}
		}
		h.rules(t, headgate.Options{RefuseBadCredentials: true}, rule)
		if made, d := h.lim.Reserve(t.Context(), r, 0); d.Reason != c.want ||
			(made.ID != reservation.ID{}) != d.Allowed || h.lim.Reservations().Outstanding > 1 {
			t.Errorf("%s: reserved %v, %v", c.name, made, d.Reason)
		}
		if n := h.lim.Reservations().Outstanding; n == 1 != (c.want == headgate.WithinLimits) {
			t.Errorf("%s: %d reservations", c.name, n)
		}
		h.rules(t, headgate.Options{RefuseBadCredentials: true},
			policy.Rule{Endpoint: policy.Default, Limit: 1, Project: "nobody"})
		want := c.want
		if want == headgate.WithinLimits {
			want = headgate.NoRule
		}
		if d := h.lim.Check(t.Context(), r); d.Reason != want {
			t.Errorf("%s, without a rule: %v, want %v", c.name, d.Reason, want)
		}
	}
}
