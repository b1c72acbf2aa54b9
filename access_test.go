package headgate_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

func rule(t *testing.T, text string) policy.Rule {
	t.Helper()
	r, err := policy.ParseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAccessByAddress: a rule for one address is for that one, also where budgets are for networks of them, and an
// address in IPv6 clothes is the same.
func TestAccessByAddress(t *testing.T) {
	who, err := identity.New(identity.Options{IPv4Bits: 24})
	if err != nil {
		t.Fatal(err)
	}
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{rule(t, "default 100/s"), rule(t, "* block by ip:192.0.2.7"),
		rule(t, "* block by ip:198.51.100.0")},
		func(o *headgate.Options) { o.Identities = who })
	for address, blocked := range map[string]bool{
		"192.0.2.7": true, "::ffff:192.0.2.7": true, "192.0.2.8": false, "192.0.2.0": false, "198.51.100.9": false,
		"198.51.100.0": true,
	} {
		d := b.Check(t.Context(), headgate.Request{Method: "GET", Target: "/a", Peer: netip.MustParseAddr(address)})
		if d.Reason == headgate.Blocked != blocked {
			t.Errorf("%s: %v, want blocked %v", address, d.Reason, blocked)
		}
	}
	if d := b.Check(t.Context(), headgate.Request{Method: "GET", Target: "/a"}); d.Reason == headgate.Blocked {
		t.Error("a request without an address is blocked for one")
	}
}

// TestAccessRules: who is exempt meets no limit and takes from none, and who is blocked is refused and charged nothing.
func TestAccessRules(t *testing.T) {
	soon := rule(t, "* block by ip:203.0.113.0/24")
	soon.Expires = trial.Epoch.Add(time.Hour)
	b := trial.New(t, []string{"GET /health", "GET /a"}, []policy.Rule{
		rule(t, "* 2/h by ip"), rule(t, "default 2/h"), rule(t, "UNKNOWN 2/h"),
		rule(t, "GET /health allow"), rule(t, "* allow by user:monitor"), rule(t, "* block by user:mallory"),
		rule(t, "GET /a allow by user:mallory"), soon,
	}, func(o *headgate.Options) { o.Unknown = headgate.LimitUnknown })
	from := func(target, address, user string) headgate.Decision {
		return b.Check(t.Context(), headgate.Request{
			Method: "GET",
			Target: target,
			Peer:   netip.MustParseAddr(address),
			User:   &identity.User{ID: user},
		})
	}
	want := func(what string, d headgate.Decision, reason headgate.Reason) {
		t.Helper()
		if d.Reason != reason || d.Allowed != (reason == headgate.Exempt || reason == headgate.WithinLimits) {
			t.Errorf("%s: %v, allowed %v, want %v", what, d.Reason, d.Allowed, reason)
		}
	}
	for range 5 {
		want("a health check", from("/health", "192.0.2.1", ""), headgate.Exempt)
		want("the monitor", from("/a", "192.0.2.1", "monitor"), headgate.Exempt)
		want("the monitor, where nothing is", from("/nowhere", "192.0.2.1", "monitor"), headgate.Exempt)
		want("mallory", from("/a", "192.0.2.1", "mallory"), headgate.Blocked)
		want("a blocked network", from("/health", "203.0.113.9", ""), headgate.Blocked)
		want("a blocked network, where nothing is", from("/nowhere", "203.0.113.9", ""), headgate.Blocked)
	}
	for range 2 {
		want("somebody", from("/a", "192.0.2.1", "ann"), headgate.WithinLimits)
	}
	want("somebody, over the limit", from("/a", "192.0.2.1", "ann"), headgate.OverLimit)
	x := inspect.Explain(t.Context(), b.Limiter,
		headgate.Request{Method: "GET", Target: "/a", Peer: netip.MustParseAddr("203.0.113.9")})
	if x.Access == nil || x.Access.Rule != "* of ip:203.0.113.0/24" || x.Access.Mode != "block" ||
		x.Verdict.Reason != "blocked" || len(x.Buckets) > 0 {
		t.Errorf("explain says %+v, %+v", x.Access, x.Verdict)
	}

	for user, want := range map[string]int{"ann": 2, "monitor": 0, "mallory": 0} { // default and * for ann, at /a alone
		found, err := inspect.BudgetsOf(t.Context(), b.Limiter,
			identity.Principal{Kind: identity.LoggedIn, ID: user, Client: netip.MustParseAddr("192.0.2.1")}, "GET /a")
		if err != nil || len(found.Rules) != want {
			t.Errorf("%s has the budgets %+v, %v, want %d", user, found.Rules, err, want)
		}
	}

	h := httplimit.Handler(b.Limiter, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		httplimit.Options{})
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil)
	r.RemoteAddr = "203.0.113.9:1"
	h.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || w.Header().Get("Retry-After") != "" || w.Header().Get("RateLimit") != "" {
		t.Errorf("a blocked network is answered %d %v, want 403 and no feedback", w.Code, w.Header())
	}

	b.Now = b.Now.Add(time.Hour)
	want("the network, an hour later", from("/a", "203.0.113.9", ""), headgate.WithinLimits)
}

// TestAccessInLines: rules in lines may exempt and block too, and name the endpoints that there are.
func TestAccessInLines(t *testing.T) {
	h, err := httplimit.New(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "GET /health allow",
		"GET /a 1/h", "default 20/s", "* 1/h by ip", "* block by ip:192.0.2.9")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		target, from string
		want         int
	}{{"/health", "192.0.2.1", 200}, {"/health", "192.0.2.1", 200}, {"/a", "192.0.2.1", 200}, {"/a", "192.0.2.1", 429},
		{"/health", "192.0.2.1", 200}, {"/health", "192.0.2.9", 403}} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", c.target, nil)
		r.RemoteAddr = c.from + ":1"
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%s of %s is answered %d, want %d", c.target, c.from, w.Code, c.want)
		}
	}
	if _, err := httplimit.New(http.NotFoundHandler(), "default allow"); err == nil {
		t.Error("an exemption of default is taken, want an error")
	}
}
