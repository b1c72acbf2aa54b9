package charge_test

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/identity/region"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// regions is a table of two countries.
func regions(t *testing.T) *region.Table {
	t.Helper()
	table, err := region.Parse("t.csv", strings.NewReader("192.0.2.0,192.0.2.127,DE\n192.0.2.128,192.0.2.255,FR\n"))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestRegionsShareBudgets: one budget for each region, whatever a client claims
// (CVE-2023-50463), and one for all whose region is unknown.
func TestRegionsShareBudgets(t *testing.T) {
	table := regions(t)
	who, err := identity.New(identity.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 1, Subject: policy.SubjectRegion}},
		func(o *headgate.Options) {
			o.Identities = who
			o.Region = func(a netip.Addr) string { return table.Region(who.IPv4(a)) }
		})
	for _, c := range []struct {
		peer, forwarded string
		allowed         bool
		region          string
	}{
		{"192.0.2.1", "", true, "DE"},
		{"192.0.2.9", "", false, "DE"},
		{"192.0.2.9", "192.0.2.200", false, "DE"}, // a stranger's header
		{"64:ff9b::192.0.2.9", "", false, "DE"},
		{"::ffff:192.0.2.9", "", false, "DE"},
		{"10.0.0.1", "192.0.2.200", true, "FR"},
		{"192.0.2.255", "", false, "FR"},
		{"198.51.100.1", "", true, ""},
		{"2001:db8::1", "", false, ""},
		{"127.0.0.1", "", false, ""},
		{"", "", false, ""},
	} {
		peer, _ := netip.ParseAddr(c.peer)
		h := http.Header{}
		if c.forwarded != "" {
			h.Set("X-Forwarded-For", c.forwarded)
		}
		r := headgate.Request{Method: "GET", Target: "/a", Peer: peer, Header: h}
		if d := b.Check(context.Background(), r); d.Allowed != c.allowed || d.Region != c.region {
			t.Errorf("%s, X-Forwarded-For %q: allowed %v in region %q, want %v in %q", c.peer, c.forwarded, d.Allowed,
				d.Region, c.allowed, c.region)
		}
		want := c.region
		if want == "" {
			want = "unknown"
		}
		if x := b.Explain(context.Background(), r); x.Identity.Region != want {
			t.Errorf("Explain of %s: region %q, want %q", c.peer, x.Identity.Region, want)
		}
	}
}

// TestRegionIsToldOnlyWhereKnown: without a table there is nothing to say, and
// without a rule of that subject nothing is looked up.
func TestRegionIsToldOnlyWhereKnown(t *testing.T) {
	r := headgate.Request{Method: "GET", Target: "/a", Peer: netip.MustParseAddr("192.0.2.1")}
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 1, Subject: policy.SubjectRegion}})
	if x := b.Explain(context.Background(), r); x.Identity.Region != "" {
		t.Errorf("region is %q without a table, want none", x.Identity.Region)
	}
	looked := 0
	b = trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 1}}, func(o *headgate.Options) {
		o.Region = func(netip.Addr) string { looked++; return "DE" }
	})
	if d := b.Check(context.Background(), r); d.Region != "" || looked != 0 {
		t.Errorf("region is %q after %d look-ups, want none without a rule", d.Region, looked)
	}
}
