package admin_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/fleet"
)

// What the door does and what openapi.yaml says are one: each operation with its
// path, its role and its parameters.
func TestDocumentHasTheOperationsOfTheDoor(t *testing.T) {
	doc := document(t)
	var described, does []string
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			var query []string
			for _, p := range op.Parameters {
				if p.Value.In != "query" {
					continue
				}
				name := p.Value.Name
				if p.Value.Schema.Value.Type.Is("array") {
					name += "…"
				}
				query = append(query, name)
			}
			described = append(described, fmt.Sprintf("%s: %s %s for %v with %v", op.OperationID, method, path,
				op.Extensions["x-headgate-role"], query))
			open := op.Security != nil && len(*op.Security) == 0
			if open != (op.Extensions["x-headgate-role"] == "none") {
				t.Errorf("%s: wants a token: %v, and its role is %v", op.OperationID, !open,
					op.Extensions["x-headgate-role"])
			}
		}
	}
	for _, op := range admin.Operations() {
		does = append(does, fmt.Sprintf("%s: %s %s for %v with %v", op.ID, op.Method, op.Path, op.Access, op.Query))
	}
	slices.Sort(described)
	slices.Sort(does)
	if a, b := strings.Join(described, "\n"), strings.Join(does, "\n"); a != b {
		t.Errorf("openapi.yaml has\n%s\n\nthe door has\n%s", a, b)
	}
}

// Generated clients are made of tags: every operation has one that is described, and none is for nothing.
func TestOperationsHaveTags(t *testing.T) {
	doc := document(t)
	used := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if len(op.Tags) != 1 || doc.Tags.Get(op.Tags[0]) == nil {
				t.Errorf("%s %s has the tags %q, want one of those that the document describes", method, path, op.Tags)
				continue
			}
			used[op.Tags[0]] = true
		}
	}
	for _, tag := range doc.Tags {
		if tag.Description == "" || !used[tag.Name] {
			t.Errorf("tag %s: described %q, used %v", tag.Name, tag.Description, used[tag.Name])
		}
	}
}

// TestOperationsHaveExamples: each operation that takes or answers JSON shows how, by an example that its schema
// accepts.
func TestOperationsHaveExamples(t *testing.T) {
	doc := document(t)
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			bodies := map[string]openapi3.Content{}
			if op.RequestBody != nil {
				bodies["request"] = op.RequestBody.Value.Content
			}
			for status, answer := range op.Responses.Map() {
				if status < "300" {
					bodies[status] = answer.Value.Content
				}
			}
			shown, asJSON := false, false
			for _, content := range bodies {
				if of := content.Get("application/json"); of != nil {
					asJSON = true
					shown = shown || of.Example != nil || len(of.Examples) > 0
				}
			}
			if asJSON && !shown {
				t.Errorf("%s %s has no example", method, path)
			}
		}
	}
}

// Every kind of problem is described, and none that there is not.
func TestDocumentHasTheKindsOfProblems(t *testing.T) {
	source, err := os.ReadFile("problem.go")
	must(t, err)
	var has []string
	for _, match := range regexp.MustCompile(`= kind\{"([a-z-]+)", http\.Status`).FindAllSubmatch(source, -1) {
		has = append(has, "urn:headgate:problem:"+string(match[1]))
	}
	var described []string
	for _, v := range document(t).Components.Schemas["Problem"].Value.Properties["type"].Value.Enum {
		described = append(described, v.(string))
	}
	slices.Sort(has)
	slices.Sort(described)
	if len(has) < 10 || !slices.Equal(has, described) {
		t.Errorf("openapi.yaml has the types\n%s\nproblem.go has\n%s", strings.Join(described, "\n"),
			strings.Join(has, "\n"))
	}
}

// sample is a call that succeeds, given what those before it did.
type sample struct {
	id, method, target, body string
	status                   int
	header                   []string
}

var soon = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)

var whatever = []string{"If-Match", "*"}

// samples call every operation, in an order in which each finds what it needs.
var samples = []sample{
	{"getHealth", "GET", "/healthz", "", 200, nil},
	{"getReadiness", "GET", "/readyz", "", 200, nil},
	{"getMetrics", "GET", "/metrics?name[]=a&name[]=b", "", 200, nil},
	{"getDescription", "GET", "/v1/openapi.yaml", "", 200, nil},
	{"listPolicies", "GET", "/v1/policies?limit=2", "", 200, nil},
	{"listPolicies", "GET", "/v1/policies?in=database", "", 200, nil},
	{"setPolicy", "PUT", "/v1/policies",
		`{"endpoint":"POST /v1/login","limit":5,"per":"60s","subject":"ip","burst":9,"name":"login"}`, 200, nil},
	{"deletePolicy", "DELETE", "/v1/policies?endpoint=POST+/v1/login&subject=ip", "", 200, nil},
	{"getPolicy", "GET", "/v1/policies/one?endpoint=default", "", 200, nil},
	{"applyPolicies", "POST", "/v1/policies/apply",
		`{"set":[{"endpoint":"POST /v1/login","tier":"gold","limit":5}],"tiers":{"acme":"gold"},"why":"a sample"}`, 200, whatever},
	{"listProjects", "GET", "/v1/projects?limit=1", "", 200, nil},
	{"setProject", "PUT", "/v1/projects?why=a+sample&by=ann", `{"project":"acme","tier":"silver"}`, 200, nil},
	{"deleteProject", "DELETE", "/v1/projects?project=acme", "", 200, nil},
	{"listVersions", "GET", "/v1/versions?limit=2", "", 200, nil},
	{"getVersion", "GET", "/v1/versions/1", "", 200, nil},
	{"listVersionPolicies", "GET", "/v1/versions/2/policies?limit=1", "", 200, nil},
	{"diffVersions", "GET", "/v1/versions/2/diff?from=4&limit=1", "", 200, nil},
	{"rollbackVersion", "POST", "/v1/versions/4/rollback", `{"why":"a sample"}`, 200, whatever},
	{"lintDatabase", "GET", "/v1/policies/lint?ignore=no_unknown", "", 200, nil},
	{"lintPolicies", "POST", "/v1/policies/lint?ignore=no_unknown&ignore=no_default",
		`{"rules":[{"endpoint":"GET /v1","limit":1}]}`, 200, nil},
	{"reload", "POST", "/v1/reload", "", 200, nil},
	{"explainByQuery", "GET", "/v1/explain?method=GET&target=/v1/items/7&header=A:+b&header=C:+d", "", 200, nil},
	{"explain", "POST", "/v1/explain", `{"method":"GET","target":"/v1/items/7","peer":"192.0.2.7"}`, 200, nil},
	{"getBuckets", "GET", "/v1/buckets?endpoint=GET+/v1/items/{id}&address=192.0.2.7", "", 200, nil},
	{"inspectBuckets", "POST", "/v1/buckets/inspect", `{"endpoint":"GET /v1/items/{id}","peer":"192.0.2.7"}`, 200, nil},
	{"resetBucket", "POST", "/v1/buckets/reset", `{"endpoint":"GET /v1/items/{id}","address":"192.0.2.7","by":"ann"}`,
		200, nil},
	{"grantBucket", "POST", "/v1/buckets/grant",
		`{"endpoint":"GET /v1/items/{id}","address":"192.0.2.7","amount":5,"expires":"` + soon + `"}`, 200, nil},
	{"getBudgets", "POST", "/v1/budgets", `{"peer":"192.0.2.7"}`, 200, nil},
	{"getActivity", "GET", "/v1/activity?limit=5&reveal=false", "", 200, nil},
	{"getActivitySeries", "GET", "/v1/activity/series?rule=default&rule=UNKNOWN", "", 200, nil},
	{"getAnomalies", "GET", "/v1/anomalies?limit=5&reveal=false", "", 200, nil},
	{"getUsage", "GET", "/v1/usage?from=2026-11-01&to=2026-11-30&reveal=false", "", 200, nil},
	{"drawRule", "POST", "/v1/draw", `{"rule":{"endpoint":"default","limit":5,"burst":10}}`, 200, nil},
	{"tryRules", "POST", "/v1/try",
		`{"rules":[{"endpoint":"default","limit":5},{"endpoint":"default","limit":500}],"reveal":false}`, 200, nil},
	{"listRequests", "GET", "/v1/requests?state=open&project=acme&limit=1", "", 200, nil},
	{"getRequest", "GET", "/v1/requests/{first}", "", 200, nil},
	{"approveRequest", "POST", "/v1/requests/{first}/approve",
		`{"limit":20,"per":"60s","burst":30,"for":"48h","note":"half of it","by":"ann"}`, 200, nil},
	{"declineRequest", "POST", "/v1/requests/{second}/decline", `{"note":"twice","by":"ann"}`, 200, nil},
	{"listFleet", "GET", "/v1/fleet?limit=1&cursor=a", "", 200, nil},
	{"listAudit", "GET", "/v1/audit?limit=1", "", 200, nil},
	{"createToken", "POST", "/v1/tokens", `{"name":"sample","roles":["read"],"expires":"2099-01-01T00:00:00Z"}`, 201,
		nil},
	{"listTokens", "GET", "/v1/tokens?limit=1", "", 200, nil},
	{"revokeToken", "POST", "/v1/tokens/sample/revoke", "", 204, nil},
	{"createKey", "POST", "/v1/keys",
		`{"project":"acme","name":"ci","tier":"gold","scopes":["GET"],"expires":"2099-01-01T00:00:00Z"}`, 201, nil},
	{"listKeys", "GET", "/v1/keys?project=acme&limit=1", "", 200, nil},
	{"rotateKey", "POST", "/v1/keys/{key}/rotate", `{"grace":"1h"}`, 201, nil},
	{"revokeKey", "POST", "/v1/keys/{key}/revoke", "", 204, nil},
	{"listCalls", "GET", "/v1/calls?limit=3", "", 200, nil},
}

func TestEveryOperation(t *testing.T) {
	s := newSite(t)
	for _, c := range samples {
		if got := s.call(s.all(), c.method, c.target, c.body, c.header...); got.status != c.status {
			t.Errorf("%s: %s %s = %d %s, want %d", c.id, c.method, c.target, got.status, got.body, c.status)
		}
		if !s.seen[c.id] {
			t.Errorf("%s: %s %s was another operation, or none", c.id, c.method, c.target)
		}
	}
	for _, op := range admin.Operations() {
		if !s.seen[op.ID] {
			t.Errorf("no sample calls %s (%s %s)", op.ID, op.Method, op.Path)
		}
	}
}

// HEAD is GET without the body.
func TestHead(t *testing.T) {
	s := newSite(t)
	for _, op := range admin.Operations() {
		if op.Method != "GET" {
			continue
		}
		i := slices.IndexFunc(samples, func(c sample) bool { return c.id == op.ID })
		if i < 0 {
			t.Errorf("no sample calls %s (%s %s)", op.ID, op.Method, op.Path)
			continue
		}
		if got := s.call(s.all(), "HEAD", samples[i].target, ""); got.status != 200 {
			t.Errorf("HEAD %s = %d, want 200", samples[i].target, got.status)
		}
	}
	if got := s.call(s.all(), "HEAD", "/v1/nothing", ""); got.status != 404 || got.body != "" {
		t.Errorf("HEAD /v1/nothing = %d %q, want 404 without a body", got.status, got.body)
	}
}

// Every operation refuses what it does not know, and names it.
func TestUnknownParametersAndFields(t *testing.T) {
	s := newSite(t)
	for _, c := range samples {
		separator := "?"
		if strings.Contains(c.target, "?") {
			separator = "&"
		}
		if got := s.call(s.all(), c.method, c.target+separator+"lmit=1", c.body, c.header...); got.status != 400 ||
			got.kind() != "invalid-request" || !strings.Contains(got.problem().Detail, `query has "lmit", want `) {
			t.Errorf("%s with ?lmit = %d %s, want 400 that names it", c.id, got.status, got.body)
		}
		if c.body == "" || c.id == "lintPolicies" { // which tells of it in its answer
			continue
		}
		if got := s.call(s.all(), c.method, c.target, strings.Replace(c.body, "{", `{"lmit":1,`, 1),
			c.header...); got.status != 400 || !strings.Contains(got.problem().Detail, "lmit") {
			t.Errorf("%s with the field lmit = %d %s, want 400 that names it", c.id, got.status, got.body)
		}
		if name, _, ok := strings.Cut(strings.TrimPrefix(c.body, "{"), ":"); ok && strings.HasPrefix(c.body, `{"`) {
			for _, body := range []string{"{" + name + ":1," + c.body[1:],
				strings.Replace(c.body, name, strings.ToUpper(name), 1)} {
				if got := s.call(s.all(), c.method, c.target, body, c.header...); got.status != 400 {
					t.Errorf("%s with %s = %d %s, want 400", c.id, body, got.status, got.body)
				}
			}
		}
		for body, want := range map[string]string{`[`: "invalid-request",
			strings.Repeat(" ", 1<<20) + c.body: "too-large"} {
			if c.id == "applyPolicies" && want == "too-large" {
				continue // it takes more
			}
			if got := s.call(s.all(), c.method, c.target, body, c.header...); got.kind() != want {
				t.Errorf("%s with a body of %d bytes = %d %s, want %s", c.id, len(body), got.status, got.body, want)
			}
		}
		if got := s.call(s.all(), c.method, c.target, c.body,
			append([]string{"Content-Type", "text/plain"}, c.header...)...); got.kind() != "not-json" {
			t.Errorf("%s with text/plain = %d %s, want not-json", c.id, got.status, got.body)
		}
	}
	got := s.call(s.all(), "GET", "/v1/policies?limit=1&limit=2&a=b&c=d", "")
	if p := got.problem(); len(p.Faults) != 3 || !strings.Contains(p.Detail, "query has limit 2 times, want it once") {
		t.Errorf("three faults = %+v, want all of them", p)
	}
}

// What cannot be read of a query must not be left out of it: the rule that is
// meant would be another one.
func TestUnreadableQueries(t *testing.T) {
	s := newSite(t)
	for query, want := range map[string]string{
		"project=a;b":   "invalid semicolon",
		"project=%zz":   "invalid URL escape",
		"project=a%00b": "query has a project that is no text",
		"project=%ff":   "query has a project that is no text",
	} {
		got := s.call(s.all(), "DELETE", "/v1/policies?endpoint=default&"+query, "")
		if got.status != 400 || !strings.Contains(got.problem().Detail, want) {
			t.Errorf("DELETE with %s = %d %s, want 400 with %q", query, got.status, got.body, want)
		}
	}
	if got := s.call(s.all(), "GET", "/v1/policies/one?endpoint=default", ""); got.status != 200 {
		t.Errorf("everybody's rule = %d %s, want it left alone", got.status, got.body)
	}
	for _, target := range []string{"/v1/tokens/%ff/revoke", "/v1/tokens/a%00/revoke"} {
		if got := s.call(s.all(), "POST", target, ""); got.kind() != "invalid-request" {
			t.Errorf("POST %s = %d %s, want invalid-request", target, got.status, got.body)
		}
	}
}

// A rule by SQL that ends after all time is refused by whoever loads it, and can
// be seen, and mended.
func TestRulesAfterAllTime(t *testing.T) {
	s := newSite(t)
	db, err := sql.Open("sqlite", "file:"+s.db.Path())
	must(t, err)
	defer db.Close()
	_, err = db.Exec(
		"INSERT INTO policies (endpoint, project_id, rps_limit, expires_at) VALUES ('default', 'p', 1, 9000000000000)")
	must(t, err)
	const one = "/v1/policies/one?endpoint=default&project=p&temporary=true"
	for _, target := range []string{"/v1/policies?in=database", one} {
		if got := s.call(s.all(), "GET", target, ""); got.status != 200 ||
			!strings.Contains(got.body, `"expires":"9999-12-31T23:59:59Z"`) {
			t.Errorf("GET %s = %d %q, want the rule", target, got.status, got.body)
		}
	}
	if got := s.call(s.all(), "DELETE", strings.Replace(one, "/one", "", 1), ""); got.status != 200 {
		t.Errorf("DELETE = %d %s", got.status, got.body)
	}
}

// What is no JSON is never an empty success.
func TestAnswersThatCannotBeWritten(t *testing.T) {
	s := newSite(t, func(o *admin.Options) {
		o.Fleet = func(context.Context) (fleet.Report, error) { return fleet.Report{At: time.Unix(1<<40, 0)}, nil }
	})
	if got := s.call(s.all(), "GET", "/v1/fleet", ""); got.kind() != "unavailable" ||
		!strings.Contains(got.problem().Detail, "year") {
		t.Errorf("a fleet in the year 36812 = %d %q, want 503 that says so", got.status, got.body)
	}
}

func TestNoSuchPathOrMethod(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		method, target string
		want           string
		allow          string
	}{
		{"GET", "/", "no-such-path", ""},
		{"GET", "/v1/tokens/a/b/c", "no-such-path", ""},
		{"PATCH", "/v1/policies", "method-not-allowed", "DELETE, GET, PUT"},
		{"DELETE", "/v1/tokens/a/revoke", "method-not-allowed", "POST"},
	} {
		if got := s.call(s.all(), c.method, c.target, ""); got.kind() != c.want || got.header.Get("Allow") != c.allow {
			t.Errorf("%s %s = %d %s, Allow %q, want %s, Allow %q", c.method, c.target, got.status, got.body,
				got.header.Get("Allow"), c.want, c.allow)
		}
	}
}
