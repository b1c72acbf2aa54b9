package admin_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/activity"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/usage"
	"github.com/headgate-io/headgate/server/warnings"
)

// Names of callers are for those who may reset their buckets; what else is there says nothing of who they are.
func TestNamesAreForGranters(t *testing.T) {
	var table *activity.Table
	var limiter *headgate.Limiter
	var days *usage.Days
	s := newSite(t, func(o *admin.Options) { table, limiter, days = o.Activity, o.Limiter, o.Usage })
	r := headgate.Request{
		Method: "GET",
		Target: "/v1/items/7",
		Peer:   netip.MustParseAddr("192.0.2.7"),
		User:   &identity.User{ID: "ann", Project: "acme"},
	}
	for range 15 {
		d := limiter.Check(context.Background(), r)
		table.Observe(&r, &d)
		days.Observe(&r, &d)
	}
	for _, path := range []string{"/v1/activity", "/v1/usage", "/v1/activity?reveal=true", "/v1/usage?reveal=true"} {
		for _, role := range record.Roles {
			got := s.call(s.token(role), "GET", path, "")
			reveals := strings.HasSuffix(path, "true")
			switch {
			case reveals && role != record.RoleGrant:
				if got.kind() != "role-missing" {
					t.Errorf("GET %s with %s = %d %s, want role-missing", path, role, got.status, got.body)
				}
			case got.status != 200 || strings.Contains(got.body, "ann") != reveals ||
				strings.Contains(got.body, "acme") != reveals:
				t.Errorf("GET %s with %s = %d %s, want names: %v", path, role, got.status, got.body, reveals)
			}
		}
	}
	if got := s.call(s.token(record.RoleRead), "POST", "/v1/try",
		`{"rules":[{"endpoint":"default","limit":1}],"reveal":true}`); got.kind() != "role-missing" {
		t.Errorf("POST /v1/try with reveal by a reader = %d %s, want role-missing", got.status, got.body)
	}
	got := s.call(s.token(record.RoleRead), "POST", "/v1/try",
		`{"rules":[{"endpoint":"GET /v1/items/{id}","limit":3},{"endpoint":"GET /v1/items/{id}","limit":100}]}`)
	var tried admin.Tried
	if err := json.Unmarshal([]byte(got.body), &tried); err != nil || got.status != 200 {
		t.Fatalf("POST /v1/try = %d %s", got.status, got.body)
	}
	if tried.Requests != 15 || tried.InForce.Denied == 0 || tried.Tried[0].Denied <= tried.InForce.Denied ||
		tried.Tried[1].Denied != 0 || strings.Contains(got.body, "ann") {
		t.Errorf("POST /v1/try = %s, want more denied at 3, none at 100, and no name", got.body)
	}
}

// Warnings say to those alone who may know it whose project it is.
func TestActivityHasWarnings(t *testing.T) {
	s := newSite(t, func(o *admin.Options) {
		o.Gateway = "gw-1"
		o.ActiveWarnings = func(most int) ([]warnings.Event, int) {
			return []warnings.Event{{ID: "7", Kind: warnings.NearLimit, State: "begun", Caller: "3b1e", Project: "acme",
				Percent: 80}}[:min(most, 1)], 2
		}
	})
	for path, project := range map[string]string{"/v1/activity": "", "/v1/activity?reveal=true": "acme"} {
		got := s.call(s.all(), "GET", path, "")
		var now admin.Activity
		if err := json.Unmarshal([]byte(got.body), &now); err != nil || got.status != 200 {
			t.Fatalf("GET %s = %d %s", path, got.status, got.body)
		}
		if now.Gateway != "gw-1" || now.WarningsAll != 2 || len(now.Warnings) != 1 ||
			now.Warnings[0].Project != project || now.Warnings[0].Percent != 80 {
			t.Errorf("GET %s = %s, want one of two warnings, of project %q", path, got.body, project)
		}
	}
}

// What is not remembered of requests, and a rule goes by, is said.
func TestTryHasNotes(t *testing.T) {
	s := newSite(t)
	for body, want := range map[string]string{
		`{"rules":[{"endpoint":"default","limit":5}]}`:                                                      "",
		`{"rules":[{"endpoint":"default","limit":5,"penalty":"10 in 1m for 15m"}]}`:                         "",
		`{"rules":[{"endpoint":"default","limit":5,"count_when":"401,403"}]}`:                               "answers of 401,403 alone",
		`{"rules":[{"endpoint":"GET /v1/items/{id}","limit":5,"subject":"path:id"}]}`:                       "Values in paths are not remembered",
		`{"rules":[{"endpoint":"default","limit":5,"subject":"claim:org"}]}`:                                "Claims of tokens are not remembered",
		`{"rules":[{"endpoint":"default","limit":5,"subject":"ip"},{"endpoint":"default","limit":6}]}`:      "",
		`{"rules":[{"endpoint":"GET /v1/items/{id}","limit":5,"subject":"identifier","count_when":"4xx"}]}`: "answers of 4xx alone",
	} {
		got := s.call(s.all(), "POST", "/v1/try", body)
		var tried admin.Tried
		if err := json.Unmarshal([]byte(got.body), &tried); err != nil || got.status != 200 {
			t.Errorf("POST /v1/try %s = %d %s", body, got.status, got.body)
			continue
		}
		if all := strings.Join(tried.Notes, " "); tried.Notes == nil || (want == "") != (all == "") ||
			!strings.Contains(all, want) {
			t.Errorf("POST /v1/try %s has the notes %q, want %q", body, tried.Notes, want)
		}
	}
}

func TestDrawAtFault(t *testing.T) {
	s := newSite(t)
	for body, want := range map[string]string{
		`{}`:          "rule is missing",
		`{"rule":7}`:  "rule",
		`{"rule":[]}`: "rule",
		`{"rule":{"endpoint":"default","limit":0}}`:                                         "limit is 0",
		`{"rule":{"endpoint":"default","limt":1}}`:                                          "limt",
		`{"rule":{"endpoint":"*","mode":"block"}}`:                                          "gives no limit",
		`{"rule":{"endpoint":"default","limit":1},"more":1}`:                                "more",
		`{"rule":{"endpoint":"default","limit":1,"per":"8760h","burst":9000000}}`:           "comes back sooner",
		`{"rule":{"endpoint":"default","limit":1},"rule":{"endpoint":"default","limit":2}}`: "rule",
	} {
		if got := s.call(s.all(), "POST", "/v1/draw", body); got.status < 400 || got.status >= 500 ||
			!strings.Contains(got.body, want) {
			t.Errorf("POST /v1/draw %.80s = %d %s, want it to say %q", body, got.status, got.body, want)
		}
	}
	if got := s.call(s.all(), "POST", "/v1/draw",
		`{"rule":{"endpoint":"GET /there/is/none","limit":3,"per":"1h"}}`); got.status != 200 ||
		!strings.Contains(got.body, "one every 20m") {
		t.Errorf("POST /v1/draw of a rule for no endpoint = %d %s, want its picture", got.status, got.body)
	}
}

func TestTryAtFault(t *testing.T) {
	s := newSite(t)
	for body, want := range map[string]string{
		`{"rules":[]}`: "rules has 0 entries, want 1 to 24",
		`{"rules":[` + strings.Repeat(`{"endpoint":"default","limit":1},`, 24) +
			`{"endpoint":"default","limit":1}]}`: "rules has 25 entries",
		`{"rules":[{"endpoint":"default","limit":0}]}`:            "limit is 0",
		`{"rules":[{"endpoint":"GET /v1/itens/{id}","limit":1}]}`: "GET /v1/items/{id}",
		`{"rules":[{"endpoint":"default","limt":1}]}`:             "limt",
		`{"rules":{}}`: "rules",
		`{}`:           "rules",
	} {
		if got := s.call(s.all(), "POST", "/v1/try", body); got.status < 400 || got.status >= 500 ||
			!strings.Contains(got.body, want) {
			t.Errorf("POST /v1/try %.60s = %d %s, want it to say %q", body, got.status, got.body, want)
		}
	}
	none := newSite(t, func(o *admin.Options) { o.Activity = nil })
	noUsage := newSite(t, func(o *admin.Options) { o.Usage = nil })
	if got := noUsage.call(noUsage.all(), "GET", "/v1/usage", ""); got.kind() != "not-found" ||
		!strings.Contains(got.body, "usage.max_callers is 0") {
		t.Errorf("GET /v1/usage where nothing is counted = %d %s", got.status, got.body)
	}
	if got := s.call(s.all(), "GET", "/v1/usage?from=yesterday", ""); got.status != 400 ||
		!strings.Contains(got.body, `from is \"yesterday\", want a day of UTC such as 2026-11-25`) {
		t.Errorf("GET /v1/usage from yesterday = %d %s", got.status, got.body)
	}
	for _, path := range []string{"/v1/activity", "/v1/activity/series"} {
		if got := none.call(none.all(), "GET", path, ""); got.kind() != "not-found" ||
			!strings.Contains(got.body, "activity.max_requests") {
			t.Errorf("GET %s without a memory = %d %s, want not-found that names the setting", path,
				got.status, got.body)
		}
	}
}
