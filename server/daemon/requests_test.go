package daemon_test

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/developers"
)

const launch = `{"endpoint":"GET /v1/items/{id}","limit":6,"per":"1h","for":"48h","reason":"the launch","name":"Ann"}`

// file files a request as a project and returns it.
func (s *site) file(t *testing.T, project, body string) developers.Request {
	t.Helper()
	var filed developers.Request
	code, text := s.ask(t, project, "POST", "/v1/requests", body)
	if code != 201 || json.Unmarshal([]byte(text), &filed) != nil {
		t.Fatalf("filing = %d %s", code, text)
	}
	return filed
}

// decide decides on a request as the operator.
func (s *site) decide(t *testing.T, id, how, body string) (int, string) {
	t.Helper()
	return call(t, "POST", s.admin+"/v1/requests/"+id+"/"+how, body, "Content-Type", asJSON)
}

func count(statuses []int, want int) (n int) {
	for _, got := range statuses {
		if got == want {
			n++
		}
	}
	return n
}

// The story of a higher limit: asked for, granted for a moment, and over.
func TestHigherLimit(t *testing.T) {
	s := newSite(t, hourly, []string{"acme", "other"})
	if got := count(s.use(t, "acme", 5), 200); got != 3 {
		t.Fatalf("%d of 5 requests pass, want 3", got)
	}
	filed := s.file(t, "acme", launch)
	if filed.State != "open" || filed.By != "api_key "+s.ids["acme"] || filed.Project != "acme" ||
		filed.PerSeconds != 3600 {
		t.Errorf("filed is %+v", filed)
	}
	if code, body := call(t, "GET", s.admin+"/metrics", ""); code != 200 ||
		!strings.Contains(body, "\nheadgate_limit_requests_open 1\n") {
		t.Errorf("metrics = %d, want one open request", code)
	}
	code, body := s.decide(t, filed.ID, "approve", `{"limit":4,"for":"1h","note":"four will do","by":"op"}`)
	var approved admin.Approved
	if code != 200 || json.Unmarshal([]byte(body), &approved) != nil {
		t.Fatalf("approve = %d %s", code, body)
	}
	r := approved.Request
	if r.State != "approved" || r.Granted == nil || r.Granted.Limit != 4 || r.Granted.PerSeconds != 3600 ||
		r.DecidedBy != "local connection" || r.DecidedName != "op" || r.Version < 2 {
		t.Errorf("approved is %+v, granted %+v", r, r.Granted)
	}
	// It holds when the answer comes: four an hour, for this project alone.
	if got := count(s.use(t, "acme", 10), 200); got != 4 {
		t.Errorf("%d of 10 requests pass under the higher limit, want 4", got)
	}
	if got := count(s.use(t, "other", 10), 200); got != 3 {
		t.Errorf("%d of 10 requests of another project pass, want 3", got)
	}
	if line := s.budgets(t, "acme").Budgets[0]; line.Limit != 4 || line.Until.IsZero() {
		t.Errorf("the caller sees %+v, want the limit of 4 and its end", line)
	}
	// Until here it is not over, however slow the machine is; then it is in a moment.
	db, err := sql.Open("sqlite", filepath.Join(s.dir, "headgate.db")+patient)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // of a test
	if _, err := db.ExecContext(t.Context(), "UPDATE policies SET expires_at = ? WHERE project_id = 'acme'",
		time.Now().Unix()+2); err != nil {
		t.Fatal(err)
	}
	var now developers.Report
	eventually(t, "the higher limit ends", func() bool {
		now = developers.Report{}
		_, body := call(t, "POST", s.admin+"/v1/budgets", `{"key":"`+s.ids["acme"]+`"}`, "Content-Type", asJSON)
		return json.Unmarshal([]byte(body), &now) == nil && len(now.Budgets) > 0 && now.Budgets[0].Limit == 3
	})
	// What was used before is used still.
	if left := now.Budgets[0].Left.Remaining; left != 0 || !now.Budgets[0].Until.IsZero() {
		t.Errorf("afterwards %d are left under %+v, want none under the lasting limit", left, now.Budgets[0])
	}
	if got := count(s.use(t, "acme", 3), 200); got != 0 {
		t.Errorf("%d of 3 requests pass afterwards, want none", got)
	}
	var seen developers.Request
	if code, body := s.ask(t, "acme", "GET", "/v1/requests/"+filed.ID, ""); code != 200 ||
		json.Unmarshal([]byte(body), &seen) != nil || seen.State != "approved" || seen.Note != "four will do" {
		t.Errorf("the caller sees %d %s", code, body)
	} else if strings.Contains(body, "local connection") {
		t.Errorf("the caller sees who decided: %s", body)
	}
	audit := s.audit(t)
	if len(audit) != 2 || audit[0].Action != "approve" || audit[0].Actor != "local connection" ||
		audit[1].Action != "request" || audit[1].Actor != "api_key "+s.ids["acme"] {
		t.Errorf("the audit has %+v, want the filing and the approval", audit)
	}
}

// A key with scopes withdraws what it filed, and another key of its project any.
func TestKeysWithScopesWithdrawTheirOwn(t *testing.T) {
	s := newSite(t, append([]policy.Rule{{Endpoint: "POST /v1/items", Limit: 3, Per: time.Hour}}, hourly...),
		[]string{"acme", "acme/scoped"})
	post := strings.Replace(launch, "GET /v1/items/{id}", "POST /v1/items", 1)
	whole, part, second := s.file(t, "acme", launch), s.file(t, "acme/scoped", post), s.file(t, "acme/scoped", post)
	for _, step := range []struct {
		as, id string
		code   int
	}{
		{"acme/scoped", whole.ID, 403}, {"acme/scoped", part.ID, 200}, {"acme", second.ID, 200},
		{"acme", whole.ID, 200},
	} {
		if code, body := s.ask(t, step.as, "DELETE", "/v1/requests/"+step.id, ""); code != step.code ||
			code == 403 && !strings.Contains(body, "what it filed itself") {
			t.Errorf("%s withdraws: %d %s, want %d", step.as, code, body, step.code)
		}
	}
}

func TestRequestsAreTheProjects(t *testing.T) {
	s := newSite(t, hourly, []string{"acme", "other", ""}, func(c *config.Config) { c.Developers.MaxRequests = 2 })
	mine := s.file(t, "acme", launch)
	if code, _ := s.ask(t, "other", "GET", "/v1/requests/"+mine.ID, ""); code != 404 {
		t.Errorf("another project sees it: %d", code)
	}
	if code, _ := s.ask(t, "other", "DELETE", "/v1/requests/"+mine.ID, ""); code != 404 {
		t.Errorf("another project withdraws it: %d", code)
	}
	var list developers.RequestList
	if code, body := s.ask(t, "other", "GET", "/v1/requests", ""); code != 200 ||
		json.Unmarshal([]byte(body), &list) != nil || len(list.Requests) != 0 {
		t.Errorf("another project lists %d %s", code, body)
	}
	s.file(t, "acme", launch)
	for name, c := range map[string]struct {
		project, body string
		code          int
		want          string
	}{
		"too many":          {"acme", launch, 409, "has 2 open ones, want at most 2"},
		"without a project": {"", launch, 403, "belongs to no project"},
		"not higher": {"other", strings.Replace(launch, `"limit":6`, `"limit":3`, 1), 422,
			"the limit is 3 per 1h with a burst of 3 already"},
		"no such endpoint": {"other", strings.Replace(launch, "items", "itms", 1), 422, "GET /v1/items/{id}"},
		"no limit there": {"other", strings.Replace(launch, "GET /v1/items/{id}", "*", 1), 422,
			"no limit for each principal holds for you"},
		"nonsense":              {"other", `{"endpoint":1}`, 400, "body: "},
		"a member that is none": {"other", strings.Replace(launch, `"name"`, `"project"`, 1), 400, "unknown field"},
	} {
		if code, body := s.ask(t, c.project, "POST", "/v1/requests", c.body); code != c.code ||
			!strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s, want %d that says %q", name, code, body, c.code, c.want)
		}
	}
	if code, body := s.ask(t, "acme", "DELETE", "/v1/requests/"+mine.ID, ""); code != 200 ||
		!strings.Contains(body, `"withdrawn"`) {
		t.Errorf("withdrawing = %d %s", code, body)
	}
	if code, body := s.ask(t, "acme", "DELETE", "/v1/requests/"+mine.ID, ""); code != 409 ||
		!strings.Contains(body, "withdrawn already") {
		t.Errorf("withdrawing again = %d %s", code, body)
	}
	if code, body := s.ask(t, "acme", "GET", "/v1/requests?state=open", ""); code != 200 ||
		json.Unmarshal([]byte(body), &list) != nil || len(list.Requests) != 1 {
		t.Errorf("open are %d %s, want one", code, body)
	}
}

// Of operators who decide at the same moment one does.
func TestOneOperatorDecides(t *testing.T) {
	s := newSite(t, hourly, []string{"acme"})
	filed := s.file(t, "acme", launch)
	codes := make([]int, 6)
	var all sync.WaitGroup
	for i := range codes {
		all.Go(func() {
			if i%2 == 0 {
				codes[i], _ = s.decide(t, filed.ID, "approve", `{}`)
			} else {
				codes[i], _ = s.decide(t, filed.ID, "decline", `{"note":"no"}`)
			}
		})
	}
	all.Wait()
	if count(codes, 200) != 1 || count(codes, 409) != 5 {
		t.Errorf("decisions = %v, want one 200 and five 409", codes)
	}
}

func TestDecisionsAreChecked(t *testing.T) {
	s := newSite(t, append(hourly, policy.Rule{Endpoint: "POST /v1/items", Limit: 2, Per: time.Hour,
		Algorithm: policy.SlidingLog}), []string{"acme"})
	filed := s.file(t, "acme", launch)
	for name, c := range map[string]struct {
		how, body string
		code      int
		want      string
	}{
		"no note":            {"decline", `{}`, 400, "note has 0 bytes"},
		"below one":          {"approve", `{"limit":-1}`, 400, "limit is -1"},
		"two ends":           {"approve", `{"for":"1h","until":"2100-01-01T00:00:00Z"}`, 422, "one of the two"},
		"an end that is by":  {"approve", `{"until":"2020-01-01T00:00:00Z"}`, 422, "want a time in the future"},
		"no such member":     {"approve", `{"endpoint":"*"}`, 400, "unknown field"},
		"a note of two":      {"approve", `{"note":"a\nb"}`, 400, "on one line"},
		"what does not load": {"approve", `{"limit":9223372036854775807,"burst":9223372036854775807}`, 422, "limit"},
	} {
		if code, body := s.decide(t, filed.ID, c.how, c.body); code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s, want %d that says %q", name, code, body, c.code, c.want)
		}
	}
	if code, _ := s.decide(t, "r_0", "approve", `{}`); code != 404 {
		t.Errorf("no such request: %d, want 404", code)
	}
	var list admin.LimitRequests
	if code, body := call(t, "GET", s.admin+"/v1/requests?state=open", ""); code != 200 ||
		json.Unmarshal([]byte(body), &list) != nil || len(list.Requests) != 1 || list.Requests[0].State != "open" {
		t.Errorf("open are %d %s, want the one that nobody decided", code, body)
	}
	if code, body := call(t, "GET", s.admin+"/v1/requests?open", ""); code != 400 {
		t.Errorf("another parameter: %d %s", code, body)
	}
	// The rule counts as the one does that it stands in for.
	logged := s.file(t, "acme", `{"endpoint":"POST /v1/items","limit":5,"per":"1h","for":"1h","reason":"x"}`)
	if code, body := s.decide(t, logged.ID, "approve", `{}`); code != 200 {
		t.Fatalf("approve = %d %s", code, body)
	}
	for _, b := range s.budgets(t, "acme").Budgets {
		if b.Rule == "POST /v1/items" && (b.Limit != 5 || b.Algorithm != "sliding_log") {
			t.Errorf("the rule is %+v, want 5 as a sliding_log", b)
		}
	}
}
