package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
)

// Whoever changes a lasting rule under a temporary one is told that it waits,
// whatever the change is made by.
func TestChangesThatWaitSaySo(t *testing.T) {
	s := newSite(t)
	change := func(what, method, target, body, want string) {
		t.Helper()
		got := s.call(s.all(), method, target, body, "If-Match", "*")
		texts := decode[admin.Done](t, got).Warnings
		if got.status != 200 || strings.Join(texts, "\n") != want {
			t.Errorf("%s = %d, warnings %q, want %q", what, got.status, texts, want)
		}
	}
	end := s.now.Add(time.Hour).UTC().Truncate(time.Second)
	rule := func(limit int, more string) string {
		return fmt.Sprintf(`{"endpoint":"default","limit":%d%s}`, limit, more)
	}
	temporary := fmt.Sprintf(`,"expires":%q`, end.Format(time.RFC3339))
	waits :=
		`the change of the rule for "default" per principal has no effect yet: a temporary rule stands in for it until ` + end.Format(time.RFC3339) + `, 100 per 1s`

	change("without one", "PUT", "/v1/policies", rule(9, ""), "")
	change("tried beside it", "PUT", "/v1/policies", rule(100, temporary+`,"mode":"shadow"`), "")
	change("under one that is tried", "PUT", "/v1/policies", rule(10, ""), "")
	change("the temporary one", "PUT", "/v1/policies", rule(100, temporary), "")
	change("PUT", "PUT", "/v1/policies", rule(11, ""), waits)
	change("the same again", "PUT", "/v1/policies", rule(11, ""), waits)
	change("of a project", "PUT", "/v1/policies", rule(12, `,"project":"acme"`), "")
	change("apply", "POST", "/v1/policies/apply", `{"set":[`+rule(13, "")+`,{"endpoint":"UNKNOWN","limit":6}]}`, waits)
	change("of all, and not of this one", "POST", "/v1/policies/apply",
		`{"replace":true,"set":[`+rule(13, "")+`,`+rule(100, temporary)+`,{"endpoint":"UNKNOWN","limit":7}]}`, "")
	change("of all", "POST", "/v1/policies/apply", `{"replace":true,"set":[`+rule(14, "")+`,`+rule(100, temporary)+
		`,{"endpoint":"UNKNOWN","limit":7}]}`, waits)
	change("of all, without it", "POST", "/v1/policies/apply", `{"replace":true,"set":[`+rule(100, temporary)+
		`,{"endpoint":"UNKNOWN","limit":7}]}`, waits)
	current, err := s.db.Current(t.Context())
	must(t, err)
	change("rollback", "POST", fmt.Sprintf("/v1/versions/%d/rollback", current.ID-1), `{}`, waits)
	change("delete", "DELETE", "/v1/policies?endpoint=default", "", waits)
	change("a tier", "PUT", "/v1/projects", `{"project":"acme","tier":"gold"}`, "")
	change("the temporary one deleted", "DELETE", "/v1/policies?endpoint=default&temporary=true", "", "")

	s.now = end.Add(-time.Second)
	change("an old temporary one", "PUT", "/v1/policies", rule(100, temporary), "")
	s.now = end
	change("after its end", "PUT", "/v1/policies", rule(15, ""), "")
}

// However many rules wait, the answer stays short.
func TestChangesThatWaitAreCounted(t *testing.T) {
	s := newSite(t)
	var lasting []string
	for i := range 30 {
		project := fmt.Sprintf("p%02d", i)
		s.set(policy.Rule{Endpoint: policy.Default, Project: project, Limit: 100, Expires: s.now.Add(time.Hour)})
		lasting = append(lasting, fmt.Sprintf(`{"endpoint":"default","project":%q,"limit":1}`, project))
	}
	got := s.call(s.all(), "POST", "/v1/policies/apply", `{"set":[`+strings.Join(lasting, ",")+`]}`, "If-Match", "*")
	texts := decode[admin.Done](t, got).Warnings
	if len(texts) != 21 || !strings.Contains(texts[19], `of project "p19"`) ||
		texts[20] != "the same of 10 more rules" {
		t.Errorf("%d %q, want 20 rules and 10 more", got.status, texts)
	}
}
