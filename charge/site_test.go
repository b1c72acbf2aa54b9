package charge_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestSitesHaveABudget: who has a /48 has 65,536 addresses of two requests each, and five requests by a rule for sites.
// Addresses of IPv4, and those that stand for one, are no part of anything larger.
func TestSitesHaveABudget(t *testing.T) {
	rules := []policy.Rule{
		{Endpoint: "GET /a", Limit: 2, Per: time.Hour, Subject: policy.SubjectIP},
		{Endpoint: "GET /a", Limit: 5, Per: time.Hour, Subject: policy.SubjectSite},
	}
	b := trial.New(t, []string{"GET /a"}, rules)
	for _, step := range []struct {
		peer string
		left int // of three requests, how many pass
		rule string
	}{
		{"2001:db8:1:1::1", 2, "GET /a per ip"},
		{"2001:db8:1:2::1", 2, "GET /a per ip"},
		{"2001:db8:1:3::1", 1, "GET /a per site"},
		{"2001:db8:1:4::1", 0, "GET /a per site"},
		{"2001:db8:2:1::1", 2, "GET /a per ip"},
		{"192.0.2.1", 2, "GET /a per ip"},
		{"192.0.2.2", 2, "GET /a per ip"},
		{"192.0.2.3", 2, "GET /a per ip"},
		{"64:ff9b::192.0.2.1", 2, "GET /a per ip"},
		{"64:ff9b::192.0.2.2", 2, "GET /a per ip"},
		{"64:ff9b::192.0.2.3", 2, "GET /a per ip"},
	} {
		request := headgate.Request{Method: "GET", Target: "/a", Peer: netip.MustParseAddr(step.peer)}
		passed := 0
		for range 3 {
			d := b.Check(context.Background(), request)
			if d.Allowed {
				passed++
				continue
			}
			if v, _ := d.Binding(); d.Policies().Rule(v.Rule).Title() != step.rule {
				t.Errorf("%s: denied by %q, want %q", step.peer, d.Policies().Rule(v.Rule).Title(), step.rule)
			}
		}
		if passed != step.left {
			t.Errorf("%s: %d of 3 requests pass, want %d", step.peer, passed, step.left)
		}
	}
}

// TestExplainNamesTheSite where a rule counts it, and nowhere else.
func TestExplainNamesTheSite(t *testing.T) {
	of := func(peer string, subject policy.Subject) inspect.Explanation {
		b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 2, Per: time.Hour,
			Subject: subject}})
		return b.Explain(context.Background(), headgate.Request{Method: "GET", Target: "/a",
			Peer: netip.MustParseAddr(peer)})
	}
	for _, c := range []struct {
		peer    string
		subject policy.Subject
		want    string
	}{
		{"2001:db8:1:2::3", policy.SubjectSite, "2001:db8:1::/48"},
		{"2001:db8:1:2::3", policy.SubjectIP, ""},
		{"192.0.2.1", policy.SubjectSite, ""},
	} {
		if got := of(c.peer, c.subject).Identity.Site; got != c.want {
			t.Errorf("Explain of %s under a rule by %v: site %q, want %q", c.peer, c.subject, got, c.want)
		}
	}
}
