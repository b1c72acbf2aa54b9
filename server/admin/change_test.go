package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

func decode[T any](t testing.TB, a answer) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

const login = `{"endpoint":"POST /v1/login","limit":%d,"subject":"ip"}`

// A change is of the version that its author has seen, or is refused and says who
// was faster; and then nothing has changed.
func TestIfMatch(t *testing.T) {
	s := newSite(t)
	first := s.call(s.all(), "PUT", "/v1/policies?why=logins&by=ann", fmt.Sprintf(login, 5))
	tag := first.header.Get("ETag")
	done := decode[admin.Done](t, first)
	if tag != `"5"` || done.Number != 5 || done.Change.ID != 5 || done.Change.Claimed != "ann" ||
		done.Change.Why != "logins" || done.Change.Actor != "token readwritegrant" || done.Change.Action != "set" {
		t.Fatalf("PUT = ETag %s %s, want version 5 by ann", tag, first.body)
	}
	if again := s.call(s.all(), "PUT", "/v1/policies", fmt.Sprintf(login, 5)); again.header.Get("ETag") != tag {
		t.Errorf("a change of nothing = ETag %s, want %s", again.header.Get("ETag"), tag)
	}
	one := s.call(s.all(), "GET", "/v1/policies/one?endpoint=POST+/v1/login&subject=ip", "")
	if one.header.Get("ETag") != tag || !strings.Contains(one.body, `"limit":5`) {
		t.Errorf("one = ETag %s %s, want %s", one.header.Get("ETag"), one.body, tag)
	}
	faster := s.call(s.token(record.RoleWrite), "PUT", "/v1/policies", `{"endpoint":"default","limit":40}`,
		"If-Match", tag)
	if faster.header.Get("ETag") != `"6"` {
		t.Fatalf("PUT of the newest version = %d %s", faster.status, faster.body)
	}
	for name, call := range map[string]func() answer{
		"PUT": func() answer {
			return s.call(s.all(), "PUT", "/v1/policies", fmt.Sprintf(login, 6), "If-Match", tag)
		},
		"DELETE": func() answer {
			return s.call(s.all(), "DELETE", "/v1/policies?endpoint=default", "", "If-Match", tag)
		},
		"project": func() answer {
			return s.call(s.all(), "PUT", "/v1/projects", `{"project":"a","tier":"b"}`, "If-Match", tag)
		},
		"apply": func() answer {
			return s.call(s.all(), "POST", "/v1/policies/apply", `{"tiers":{"a":"b"}}`, "If-Match", tag)
		},
		"plan": func() answer {
			return s.call(s.all(), "POST", "/v1/policies/apply", `{"tiers":{"a":"b"},"dry_run":true}`, "If-Match", tag)
		},
		"rollback": func() answer { return s.call(s.all(), "POST", "/v1/versions/2/rollback", `{}`, "If-Match", tag) },
		"of a version to come": func() answer {
			return s.call(s.all(), "PUT", "/v1/policies", fmt.Sprintf(login, 6), "If-Match", `"99"`)
		},
	} {
		got := call()
		conflict := decode[admin.Conflict](t, got)
		if got.status != http.StatusPreconditionFailed || got.header.Get("ETag") != `"6"` || conflict.Current != 6 {
			t.Errorf("%s of version 5 = %d %s, want 412 that names version 6", name, got.status, got.body)
		}
		if name != "of a version to come" && (len(conflict.Since) != 1 || conflict.Since[0].ID != 6 ||
			conflict.Since[0].Actor != "token write") {
			t.Errorf("%s: since = %+v, want the version of the writer", name, conflict.Since)
		}
	}
	for _, c := range []struct{ method, target, body string }{
		{"POST", "/v1/policies/apply", `{"tiers":{"a":"b"}}`}, {"POST", "/v1/versions/1/rollback", `{}`},
	} {
		if got := s.call(s.all(), c.method, c.target, c.body); got.kind() != "if-match-missing" || got.status != 428 {
			t.Errorf("%s %s without If-Match = %d %s, want 428", c.method, c.target, got.status, got.body)
		}
	}
	for _, bad := range []string{`5`, `"5`, `W/"5"`, `"5", "6"`, `"0"`, `"five"`, `"-1"`} {
		if got := s.call(s.all(), "PUT", "/v1/policies", fmt.Sprintf(login, 6), "If-Match",
			bad); got.kind() != "invalid-request" || !strings.Contains(got.problem().Detail, "If-Match") {
			t.Errorf("If-Match: %s = %d %s, want 400", bad, got.status, got.body)
		}
	}
	if now, err := s.db.Current(context.Background()); err != nil || now.ID != 6 {
		t.Errorf("the rules are at version %d, %v, want 6: what was refused has changed nothing", now.ID, err)
	}
}

// Many editors at once, each of whom reads, adds and writes back: no change is
// lost, and every version is somebody's.
func TestConcurrentEditors(t *testing.T) {
	s := newSite(t)
	token := s.all()
	s.call(token, "PUT", "/v1/policies", `{"endpoint":"POST /v1/login","limit":1}`)
	const editors, edits = 4, 5
	var wg sync.WaitGroup
	var refused atomic.Int64
	for range editors {
		wg.Go(func() {
			for range edits {
				for {
					one := s.call(token, "GET", "/v1/policies/one?endpoint=POST+/v1/login", "")
					limit := decode[admin.One](t, one).Policy.Limit
					got := s.call(token, "PUT", "/v1/policies", fmt.Sprintf(`{"endpoint":"POST /v1/login","limit":%d}`,
						limit+1), "If-Match", one.header.Get("ETag"))
					if got.status == 200 {
						break
					}
					if got.status != http.StatusPreconditionFailed {
						t.Errorf("PUT = %d %s", got.status, got.body)
						return
					}
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	one := s.call(token, "GET", "/v1/policies/one?endpoint=POST+/v1/login", "")
	if limit := decode[admin.One](t, one).Policy.Limit; limit != 1+editors*edits {
		t.Errorf("the limit is %d after %d edits and %d refusals, want %d", limit, editors*edits, refused.Load(),
			1+editors*edits)
	}
	if tag := one.header.Get("ETag"); tag != fmt.Sprintf(`"%d"`, 5+editors*edits) {
		t.Errorf("ETag %s, want a version for each edit", tag)
	}
}

// The plan is what then happens, and changes nothing.
func TestPlanAndApply(t *testing.T) {
	s := newSite(t)
	const edit = `"set":[{"endpoint":"default","limit":40},{"endpoint":"POST /v1/login","limit":5}],"delete":[{"endpoint":"GET /v1/items/{id}"}],"tiers":{"acme":"gold"},"why":"spring"`
	planned := s.call(s.all(), "POST", "/v1/policies/apply", `{"dry_run":true,`+edit+`}`)
	plan := decode[admin.Plan](t, planned)
	if plan.Number != 4 || planned.header.Get("ETag") != `"4"` || len(plan.Changes.Changes) != 4 {
		t.Fatalf("the plan = %s %s, want 4 changes of version 4", planned.header.Get("ETag"), planned.body)
	}
	if now, err := s.db.Current(context.Background()); err != nil || now.ID != 4 {
		t.Fatalf("after the plan the rules are at version %d, %v", now.ID, err)
	}
	done := decode[admin.Done](t, s.call(s.all(), "POST", "/v1/policies/apply", `{`+edit+`,"by":"ann"}`, "If-Match",
		planned.header.Get("ETag")))
	if done.Change.ID != 5 || done.Change.Action != "apply" || done.Change.Why != "spring" ||
		done.Change.Claimed != "ann" || done.Change.Added != 2 || done.Change.Changed != 1 || done.Change.Removed != 1 {
		t.Errorf("the change is %+v, want version 5", done.Change)
	}
	detail := decode[admin.Detail](t, s.call(s.all(), "GET", "/v1/versions/5", ""))
	if fmt.Sprint(texts(t, detail.Changes.Changes)) != fmt.Sprint(texts(t, plan.Changes.Changes)) {
		t.Errorf("planned\n%s, made\n%s", texts(t, plan.Changes.Changes), texts(t, detail.Changes.Changes))
	}
	rolled := decode[admin.Done](t, s.call(s.all(), "POST", "/v1/versions/4/rollback", `{"why":"too soon"}`,
		"If-Match", `"5"`))
	if rolled.Change.Of != 4 || rolled.Change.ID != 6 || rolled.Rules != 3 {
		t.Errorf("the rollback is %+v", rolled)
	}
	diff := decode[admin.Changes](t, s.call(s.all(), "GET", "/v1/versions/6/diff?from=4", ""))
	if len(diff.Changes) != 0 {
		t.Errorf("version 6 differs from the one it brought back: %s", texts(t, diff.Changes))
	}
	for name, c := range map[string]struct{ body, kind, want string }{
		"unknown template":  {`{"set":[{"endpoint":"GET /v1/itms","limit":1}]}`, "unacceptable", "GET /v1/itms"},
		"a limit of 0":      {`{"set":[{"endpoint":"default","limit":0}]}`, "invalid-request", "limit is 0"},
		"an unknown field":  {`{"set":[{"endpoint":"default","limit":1,"lmit":1}]}`, "invalid-request", "lmit"},
		"no such rule":      {`{"delete":[{"endpoint":"GET /v1/items/{id}","tier":"none"}]}`, "not-found", "none"},
		"a rule of nothing": {`{"delete":[{"endpoint":""}]}`, "invalid-request", "endpoint is missing"},
		"another action":    {`{"action":"revert"}`, "invalid-request", `action is "revert"`},
		"nothing left":      {`{"replace":true}`, "unacceptable", "at least one rule"},
		"two lines of why":  {`{"tiers":{"a":"b"},"why":"a\nb"}`, "unacceptable", "one line"},
	} {
		if got := s.call(s.all(), "POST", "/v1/policies/apply", c.body, "If-Match", "*"); got.kind() != c.kind ||
			!strings.Contains(got.problem().Detail, c.want) {
			t.Errorf("%s: %d %s, want %s that says %q", name, got.status, got.body, c.kind, c.want)
		}
	}
	for _, target := range []string{"/v1/versions/99", "/v1/versions/99/policies", "/v1/versions/1/diff?from=99"} {
		if got := s.call(s.all(), "GET", target, ""); got.kind() != "not-found" {
			t.Errorf("%s = %d %s, want not-found", target, got.status, got.body)
		}
	}
	for _, target := range []string{"/v1/versions/0", "/v1/versions/x/policies", "/v1/versions/1/diff"} {
		if got := s.call(s.all(), "GET", target, ""); got.kind() != "invalid-request" {
			t.Errorf("%s = %d %s, want invalid-request", target, got.status, got.body)
		}
	}
}

func texts(t *testing.T, changes []rules.ChangeEntry) string {
	t.Helper()
	text, err := json.Marshal(changes)
	must(t, err)
	return string(text)
}

// Whoever may grant may make rules that expire, and nothing else.
func TestGrantersMakeTemporaryRules(t *testing.T) {
	s := newSite(t)
	grant := s.token(record.RoleGrant)
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	temporary := `{"endpoint":"POST /v1/login","limit":500,"expires":"` + until + `"}`
	for _, c := range []struct {
		method, target, body string
		status               int
	}{
		{"PUT", "/v1/policies", `{"endpoint":"default","limit":500}`, 403},
		{"PUT", "/v1/policies", temporary, 200},
		// ends, and after everybody
		{"PUT", "/v1/policies", strings.Replace(temporary, until, "9999-01-01T00:00:00Z", 1), 403},
		{"POST", "/v1/policies/apply", `{"set":[` + strings.Replace(temporary, until, "9999-01-01T00:00:00Z", 1) + `]}`,
			403},
		{"POST", "/v1/requests/r_0/approve", `{"until":"9999-01-01T00:00:00Z"}`, 403},
		{"POST", "/v1/requests/r_0/approve", `{"for":"9000h"}`, 403},
		{"DELETE", "/v1/policies?endpoint=default", "", 403},
		{"DELETE", "/v1/policies?endpoint=default&temporary=false", "", 403},
		{"DELETE", "/v1/policies?endpoint=POST+/v1/login&temporary=true", "", 200},
		{"POST", "/v1/policies/apply", `{"set":[` + temporary + `]}`, 200},
		{"POST", "/v1/policies/apply", `{"set":[` + temporary + `],"replace":true}`, 403},
		{"POST", "/v1/policies/apply", `{"set":[` + temporary + `],"replace":true,"dry_run":true}`, 403},
		{"POST", "/v1/policies/apply", `{"set":[` + temporary + `],"tiers":{"acme":"gold"}}`, 403},
		{"POST", "/v1/policies/apply", `{"delete":[{"endpoint":"default"}]}`, 403},
		{"POST", "/v1/policies/apply", `{"delete":[{"endpoint":"POST /v1/login","temporary":true}]}`, 200},
		{"PUT", "/v1/projects", `{"project":"acme","tier":"gold"}`, 403},
		{"POST", "/v1/versions/1/rollback", `{}`, 403},
	} {
		if got := s.call(grant, c.method, c.target, c.body, "If-Match", "*"); got.status != c.status ||
			(got.status == 403) != (got.kind() == "role-missing") {
			t.Errorf("%s %s %s = %d %s, want %d", c.method, c.target, c.body, got.status, got.body, c.status)
		}
	}
	doc, err := s.db.Export(context.Background())
	must(t, err)
	if len(doc.Rules) != 3 || len(doc.Projects) != 0 {
		t.Errorf("%+v is left, want what there was", doc)
	}
}

// Pages join to the whole, in force and in the database; a page of another
// version is refused, except of a version of old.
func TestPagesOfPolicies(t *testing.T) {
	s := newSite(t)
	e := record.Edit{Tiers: map[string]string{}}
	for i := range 20 {
		e.Set = append(e.Set, policy.Rule{Endpoint: "default", Project: fmt.Sprintf("p%02d", i), Limit: int64(i + 1)})
		e.Tiers[fmt.Sprintf("p%02d", i)] = "gold"
	}
	v, err := s.db.Apply(context.Background(), record.Author{Actor: "tester"}, e)
	must(t, err)
	s.call(s.all(), "POST", "/v1/reload", "")
	type page struct {
		Policies []struct{ Limit int64 }
		Projects json.RawMessage
		Changes  []json.RawMessage
		Next     string
	}
	version := fmt.Sprintf("/v1/versions/%d", v.ID)
	for _, list := range []string{"/v1/policies?in=force", "/v1/policies?in=database", version + "/policies?",
		version + "?", version + "/diff?from=4", "/v1/projects?"} {
		for _, limit := range []int{1, 7, 22, 23, 1000} {
			n, pages := 0, 0
			for next := ""; ; pages++ {
				target := fmt.Sprintf("%s&limit=%d", list, limit)
				if next != "" {
					target += "&cursor=" + next
				}
				p := decode[page](t, s.call(s.all(), "GET", target, ""))
				var projects []any
				_ = json.Unmarshal(p.Projects, &projects) // of a version it is an object
				if size := len(p.Policies) + len(p.Changes) + len(projects); size > limit {
					t.Fatalf("%s has %d entries", target, size)
				} else {
					n += size
				}
				if next = p.Next; next == "" || pages > 50 {
					break
				}
			}
			want := map[bool]int{true: 20, false: 23}[strings.HasPrefix(list, "/v1/projects")]
			if strings.HasSuffix(list, "?") && list == version+"?" || strings.Contains(list, "diff") {
				want = 40 // rules and tiers
			}
			if n != want {
				t.Errorf("%s in pages of %d has %d entries, want %d", list, limit, n, want)
			}
		}
	}
	for _, in := range []string{"force", "database"} {
		first := decode[page](t, s.call(s.all(), "GET", "/v1/policies?limit=5&in="+in, ""))
		s.call(s.all(), "PUT", "/v1/policies", fmt.Sprintf(login, 100+len(in)))
		if got := s.call(s.all(), "GET", "/v1/policies?limit=5&in="+in+"&cursor="+first.Next,
			""); got.kind() != "pages-moved" || got.status != 410 {
			t.Errorf("a page in %s after a change = %d %s, want 410", in, got.status, got.body)
		}
		for _, bad := range []string{"x", "5", "@", "-1@4", "0@4"} {
			if got := s.call(s.all(), "GET", "/v1/policies?in="+in+"&cursor="+bad,
				""); got.kind() != "invalid-request" {
				t.Errorf("cursor %s in %s = %d %s", bad, in, got.status, got.body)
			}
		}
	}
	old := decode[page](t, s.call(s.all(), "GET", version+"/policies?limit=5&cursor=5", ""))
	if len(old.Policies) != 5 {
		t.Errorf("a page of version %d after two changes has %d rules, want 5", v.ID, len(old.Policies))
	}
	if got := s.call(s.all(), "GET", "/v1/policies?in=disk", ""); got.kind() != "invalid-request" {
		t.Errorf("in=disk = %d %s", got.status, got.body)
	}
	if got := s.call(s.all(), "GET", "/v1/projects?project=p07", ""); !strings.Contains(got.body,
		`[{"project":"p07","tier":"gold"}]`) {
		t.Errorf("one project = %s", got.body)
	}
	if got := s.call(s.all(), "GET", "/v1/projects?project=p99", ""); got.kind() != "not-found" {
		t.Errorf("no such project = %d %s", got.status, got.body)
	}
}
