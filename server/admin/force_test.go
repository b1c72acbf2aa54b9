package admin_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/lint"
	"github.com/headgate-io/headgate/server/record"
)

// The rules in force and those in the database are two things: each listing has
// the number of what it lists, and a change is made from the database's.
func TestForceAndDatabaseDiffer(t *testing.T) {
	s := newSite(t)
	_, err := s.db.Apply(context.Background(), record.Author{Actor: "local:ann"},
		record.Edit{Set: []policy.Rule{{Endpoint: "default", Limit: 60}}})
	must(t, err) // and the gateway has not looked yet
	force, database := s.call(s.all(), "GET", "/v1/policies", ""),
		s.call(s.all(), "GET", "/v1/policies?in=database", "")
	before, now := decode[admin.Listing](t, force), decode[admin.DatabaseListing](t, database)
	if before.Number != 4 || force.header.Get("ETag") != `"4"` || !strings.Contains(force.body, `"limit":50`) {
		t.Errorf("in force are %s with the ETag %s, want version 4", force.body, force.header.Get("ETag"))
	}
	if now.Number != 5 || database.header.Get("ETag") != `"5"` || now.Force.Number != 4 || now.Force.Rules != 3 ||
		!strings.Contains(database.body, `"limit":60`) {
		t.Errorf("the database has %s with the ETag %s, want version 5, and 4 in force", database.body,
			database.header.Get("ETag"))
	}
	const change = `{"endpoint":"default","limit":70}`
	if got := s.call(s.all(), "PUT", "/v1/policies", change, "If-Match",
		force.header.Get("ETag")); got.kind() != "version-changed" || got.header.Get("ETag") != `"5"` {
		t.Errorf("a change of what is in force = %d %s, want 412 and the ETag of the database", got.status, got.body)
	}
	if got := s.call(s.all(), "PUT", "/v1/policies", change, "If-Match",
		database.header.Get("ETag")); got.status != 200 || got.header.Get("ETag") != `"6"` {
		t.Errorf("a change of what is in the database = %d %s, want version 6", got.status, got.body)
	}
}

// What would not load stays to be seen, and so does what is in force. Rows that
// cannot be read as rules at all are named.
func TestRowsThatAreNoRules(t *testing.T) {
	s := newSite(t)
	shell, err := sql.Open("sqlite", "file:"+s.path+"?_pragma=busy_timeout(5000)&_pragma=ignore_check_constraints(1)")
	must(t, err)
	defer shell.Close()
	inForce := func(why string) {
		t.Helper()
		if got := s.call(s.all(), "POST", "/v1/reload", ""); got.kind() != "not-in-force" ||
			!strings.Contains(got.problem().Detail, why) {
			t.Errorf("POST reload = %d %s, want not-in-force that says %q", got.status, got.body, why)
		}
		got := s.call(s.all(), "GET", "/v1/policies", "")
		if listing := decode[admin.Listing](t, got); got.status != 200 || listing.Number != 4 || listing.Rules != 3 ||
			!strings.Contains(listing.LastError, why) {
			t.Errorf("in force are %d %s, want version 4 and %q", got.status, got.body, why)
		}
	}
	_, err = shell.Exec("INSERT INTO policies (endpoint, rps_limit) VALUES ('v1/items', 5)")
	must(t, err)
	got := s.call(s.all(), "GET", "/v1/policies?in=database", "")
	if listing := decode[admin.DatabaseListing](t, got); got.status != 200 || listing.Number != 5 ||
		len(listing.Policies) != 4 {
		t.Errorf("GET in=database = %d %s, want the rule that would not load", got.status, got.body)
	}
	inForce("v1/items")

	_,
		err = shell.Exec("INSERT INTO policies (endpoint, rps_limit, mode) VALUES ('GET /v1/a', 5, 'enforced'), " +
		"('GET /v1/b', 5, 'shade')")
	must(t, err)
	got = s.call(s.all(), "GET", "/v1/policies?in=database", "")
	if got.kind() != "not-in-force" || len(got.problem().Faults) != 2 || !strings.Contains(got.body, "enforced") ||
		!strings.Contains(got.body, "shade") {
		t.Errorf("GET in=database = %d %s, want both rows", got.status, got.body)
	}
	inForce("enforced")
	got = s.call(s.all(), "GET", "/v1/policies/lint", "")
	report := decode[lint.Report](t, got)
	if report.Count.Errors != 2 || report.Documents[0].Read || report.Findings[0].Code != "mode" {
		t.Errorf("lint of the database = %d %s, want both rows", got.status, got.body)
	}
}

// What replicas admit together stands beside the rules, which can be written back as they are.
func TestForceTellsEnvelopes(t *testing.T) {
	s := newSite(t)
	if got := s.call(s.all(), "PUT", "/v1/policies",
		`{"endpoint":"POST /v1/login","limit":5,"per":"60s","scope":"split"}`); got.status != 200 {
		t.Fatalf("PUT = %d %s", got.status, got.body)
	}
	listing := decode[admin.Listing](t, s.call(s.all(), "GET", "/v1/policies", ""))
	want := inspect.Envelope{Replicas: 1, Burst: 5, Tokens: 5, Per: time.Minute}
	if len(listing.Envelopes) != 1 || listing.Envelopes[0].Envelope != want {
		t.Fatalf("the envelopes are %+v, want %+v alone", listing.Envelopes, want)
	}
	if of := listing.Policies[listing.Envelopes[0].Policy]; of.Endpoint != "POST /v1/login" {
		t.Errorf("the envelope is that of %+v, want POST /v1/login", of)
	}
	// On a later page it counts from that page's first.
	paged := decode[admin.Listing](t, s.call(s.all(), "GET", "/v1/policies?limit=1", ""))
	for len(paged.Envelopes) == 0 && paged.Next != "" {
		paged = decode[admin.Listing](t, s.call(s.all(), "GET", "/v1/policies?limit=1&cursor="+paged.Next, ""))
	}
	if len(paged.Envelopes) != 1 || paged.Envelopes[0].Policy != 0 || paged.Policies[0].Endpoint != "POST /v1/login" {
		t.Errorf("the page with an envelope is %+v", paged)
	}
}
