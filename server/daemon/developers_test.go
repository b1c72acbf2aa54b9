package daemon_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/record"
)

// site is a gateway with a developers' door, keys, and an API that counts what
// reaches it.
type site struct {
	*process
	keys map[string]string // by project
	ids  map[string]string // of the keys
	hits atomic.Int64
}

func newSite(t *testing.T, rules []policy.Rule, projects []string, change ...func(*config.Config)) *site {
	t.Helper()
	s := &site{keys: map[string]string{}, ids: map[string]string{}}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.hits.Add(1)
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(api.Close)
	all := append([]func(*config.Config){func(c *config.Config) {
		c.Upstream, c.Developers.Path = api.URL, "/.headgate"
		s.makeKeys(t, c, projects)
	}}, change...)
	s.process = newProcess(t, rules, all...)
	return s
}

func (s *site) makeKeys(t *testing.T, c *config.Config, projects []string) {
	t.Helper()
	c.FillPaths()
	db, err := database.Open(context.Background(), c.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	digester, err := daemon.Digester(c.SecretFile, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range projects {
		project, scoped := strings.CutSuffix(name, "/scoped") // a further key of the project
		n := record.NewAPIKey{Project: project}
		if scoped || project == "scoped" {
			if n.Scopes, err = identity.ParseScopes([]string{"POST"}); err != nil {
				t.Fatal(err)
			}
		}
		key, text, err := db.CreateKey(context.Background(), digester, n)
		if err != nil {
			t.Fatal(err)
		}
		s.keys[name], s.ids[name] = text, key.ID
	}
}

// ask asks the door as a project.
func (s *site) ask(t *testing.T, project, method, path, body string) (int, string) {
	t.Helper()
	return call(t, method, s.gate+"/.headgate"+path, body, "X-Api-Key", s.keys[project], "Content-Type", asJSON)
}

func (s *site) budgets(t *testing.T, project string) developers.Report {
	t.Helper()
	var report developers.Report
	code, body := s.ask(t, project, "GET", "/v1/budgets", "")
	if code != 200 {
		t.Fatalf("budgets of %s = %d %s", project, code, body)
	}
	if err := json.Unmarshal([]byte(body), &report); err != nil {
		t.Fatal(err)
	}
	return report
}

// use sends requests of a project to the API.
func (s *site) use(t *testing.T, project string, times int) (statuses []int) {
	t.Helper()
	for range times {
		code, _ := call(t, "GET", s.gate+"/v1/items/1", "", "X-Api-Key", s.keys[project])
		statuses = append(statuses, code)
	}
	return statuses
}

var hourly = []policy.Rule{
	{Endpoint: "GET /v1/items/{id}", Limit: 3, Per: time.Hour},
	{Endpoint: policy.Default, Limit: 100},
	{Endpoint: policy.Default, Limit: 7, Project: "secret-project"},
}

func rows(r developers.Report) (texts []string) {
	for _, b := range r.Budgets {
		texts = append(texts, fmt.Sprintf("%s %d/%d +%d -%d", b.Rule, b.Left.Remaining, b.Burst, b.LastHour.Admitted,
			b.LastHour.Denied))
	}
	return texts
}

func TestDevelopersSendNoQueryThatCannotBeRead(t *testing.T) {
	s := newSite(t, hourly, []string{"acme"})
	for _, path := range []string{"/v1/requests?state=open;x", "/v1/requests?state=%zz", "/v1/budgets?endpoint=a;b"} {
		if code, body := s.ask(t, "acme", "GET", path, ""); code != 400 ||
			!strings.Contains(body, "query is not readable") {
			t.Errorf("GET %s = %d %s, want 400", path, code, body)
		}
	}
}

// Withdrawing what is not there, or another project's, and filing one too many
// asks for no turn among those who change rules: here somebody else has it all
// the time.
func TestDevelopersTakeNoTurnForNothing(t *testing.T) {
	s := newSite(t, hourly, []string{"acme", "other"}, func(c *config.Config) { c.Developers.MaxRequests = 1 })
	file := func() (int, string) {
		return s.ask(t, "other", "POST", "/v1/requests",
			`{"endpoint":"GET /v1/items/{id}","limit":9,"per":"1h","for":"1h","reason":"x"}`)
	}
	code, body := file()
	var filed developers.Request
	if err := json.Unmarshal([]byte(body), &filed); err != nil || code != 201 {
		t.Fatal(code, body, err)
	}
	db, err := sql.Open("sqlite", filepath.Join(s.dir, "headgate.db")+patient)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"r_00000000000000000000", filed.ID} {
		if code, body := s.ask(t, "acme", "DELETE", "/v1/requests/"+id, ""); code != 404 {
			t.Errorf("withdraw %s = %d %s, want 404", id, code, body)
		}
	}
	if code, body := file(); code != 409 {
		t.Errorf("another request = %d %s, want 409", code, body)
	}
}

func TestDevelopersSeeTheirBudgets(t *testing.T) {
	s := newSite(t, hourly, []string{"acme", "other", "scoped"})
	s.use(t, "acme", 5)
	for range 3 { // asking takes nothing
		report := s.budgets(t, "acme")
		if got, want := fmt.Sprint(rows(report)), "[GET /v1/items/{id} 0/3 +3 -2 default 100/100 +0 -0]"; got != want {
			t.Errorf("budgets = %s, want %s", got, want)
		}
		if report.LastHour.Admitted != 3 || report.LastHour.Denied != 2 || report.LastHour.Complete ||
			report.Caller.ID != s.ids["acme"] || report.Caller.Project != "acme" {
			t.Errorf("the report begins with %+v and %+v", report.Caller, report.LastHour)
		}
		if left := report.Budgets[0].Left; left.RetryAfterSeconds < 1100 || left.RetryAfterSeconds > 1200 ||
			left.ResetSeconds < 3500 || left.ResetSeconds > 3600 {
			t.Errorf("left is %+v, want a token in 20 minutes and all in an hour", left)
		}
	}
	if got, want := fmt.Sprint(rows(s.budgets(t, "other"))),
		"[GET /v1/items/{id} 3/3 +0 -0 default 100/100 +0 -0]"; got != want {
		t.Errorf("budgets of another = %s, want %s", got, want)
	}
	if _, body := s.ask(t, "acme", "GET", "/v1/budgets", ""); strings.Contains(body, "secret-project") ||
		strings.Contains(body, s.keys["acme"]) {
		t.Errorf("the answer tells too much: %s", body)
	}
	if got, want := fmt.Sprint(rows(s.budgets(t, "scoped"))), "[default 100/100 +0 -0]"; got != want {
		t.Errorf("budgets of a key for POST = %s, want %s", got, want)
	}
	var one developers.Report
	if code, body := s.ask(t, "acme", "GET", "/v1/budgets?endpoint=POST+/v1/items", ""); code != 200 ||
		json.Unmarshal([]byte(body), &one) != nil || len(one.Budgets) != 1 {
		t.Errorf("budgets at one endpoint = %d %s", code, body)
	}
	if s.hits.Load() != 3 {
		t.Errorf("%d requests reached the API, want the 3 that were admitted", s.hits.Load())
	}
}

// Operators see what a caller sees, by name or by evidence.
func TestOperatorsSeeBudgets(t *testing.T) {
	s := newSite(t, hourly, []string{"acme"})
	s.use(t, "acme", 2)
	for name, body := range map[string]string{
		"by key":      `{"key":"` + s.ids["acme"] + `"}`,
		"by evidence": `{"peer":"127.0.0.1","header":["X-Api-Key: ` + s.keys["acme"] + `"]}`,
	} {
		var report developers.Report
		code, text := call(t, "POST", s.admin+"/v1/budgets", body, "Content-Type", asJSON)
		if code != 200 || json.Unmarshal([]byte(text), &report) != nil {
			t.Fatalf("%s: %d %s", name, code, text)
		}
		if got, want := fmt.Sprint(rows(report)), "[GET /v1/items/{id} 1/3 +2 -0 default 100/100 +0 -0]"; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for body, want := range map[string]string{
		`{"key":"k_nobody"}`:                            "`headgate key list`",
		`{"address":"192.0.2.1","amount":5}`:            `unknown field \"amount\"`,
		`{"address":"192.0.2.1","subject":"ip"}`:        `unknown field \"subject\"`,
		`{"address":"192.0.2.1","endpoint":"GET /v2"}`:  "want an endpoint of the API",
		`{"address":"192.0.2.1","endpoints":"GET /v2"}`: "unknown field",
	} {
		if code, text := call(t, "POST", s.admin+"/v1/budgets", body, "Content-Type", asJSON); code != 400 &&
			code != 422 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s, want a refusal that says %q", body, code, text, want)
		}
	}
}

// The page is for everybody, under the door's path in any spelling, and asks what its script may
// ask; the door's budget holds for it too, and a page of another origin gets nowhere.
func TestDevelopersHaveAPage(t *testing.T) {
	s := newSite(t, hourly, []string{"acme"})
	for _, path := range []string{"", "/budgets.js", "/elements.js", "/icon.svg"} {
		if code, body := call(t, "GET", s.gate+"/.headgate"+path, ""); code != 200 || len(body) < 100 {
			t.Errorf("GET /.headgate%s = %d with %d bytes", path, code, len(body))
		}
	}
	if code, body := call(t, "GET", s.gate+"/.headgate", ""); code != 200 ||
		!strings.Contains(body, `data-header="X-Api-Key" data-requests="true"`) {
		t.Errorf("the page is %d %s", code, body)
	}
	if code, _ := call(t, "POST", s.gate+"/.headgate", "{}"); code != http.StatusMethodNotAllowed {
		t.Errorf("POST of the page = %d, want 405", code)
	}
	for _, path := range []string{"/index.html", "/page.js", "/views.js", "/budgets/budgets.js"} {
		if code, _ := call(t, "GET", s.gate+"/.headgate"+path, ""); code != 404 {
			t.Errorf("GET /.headgate%s = %d, want 404", path, code)
		}
	}
	filing := `{"endpoint":"GET /v1/items/{id}","limit":9,"per":"1h","for":"1h","reason":"x"}`
	if code, body := call(t, "POST", s.gate+"/.headgate/v1/requests", filing, "X-Api-Key", s.keys["acme"],
		"Content-Type", asJSON, "Sec-Fetch-Site", "cross-site"); code != http.StatusForbidden {
		t.Errorf("a request that another origin's page files = %d %s, want 403", code, body)
	}
	for range 20 { // 20 at once
		call(t, "GET", s.gate+"/.headgate", "")
	}
	if code, _ := call(t, "GET", s.gate+"/.headgate", ""); code != http.StatusTooManyRequests {
		t.Errorf("the page after 20 of them = %d, want 429", code)
	}
	if s.hits.Load() != 0 {
		t.Errorf("%d requests for the page went on to the API", s.hits.Load())
	}
	s.use(t, "acme", 5)
	h := s.budgets(t, "acme").LastHour
	var admitted, denied uint64
	for i := range h.AdmittedBy {
		admitted, denied = admitted+h.AdmittedBy[i], denied+h.DeniedBy[i]
	}
	if len(h.AdmittedBy) != 30 || admitted != h.Admitted || denied != h.Denied || h.Denied != 2 ||
		h.CellSeconds != 120 {
		t.Errorf("the last hour is %+v", h)
	}
}

func TestDevelopersDoorRefuses(t *testing.T) {
	s := newSite(t, hourly, []string{"acme"})
	for name, c := range map[string]struct {
		method, path, key string
		code              int
		want              string
	}{
		"nobody":            {"GET", "/v1/budgets", "", 401, "Show the API key or bearer token"},
		"a made-up key":     {"GET", "/v1/budgets", "hg_MADEUP", 401, "the API key is malformed"},
		"no such path":      {"GET", "/v1/nothing", s.keys["acme"], 404, "/.headgate/v1/budgets"},
		"above all":         {"GET", "/v1", s.keys["acme"], 404, "/.headgate/v1/budgets"},
		"no such method":    {"PUT", "/v1/budgets", s.keys["acme"], 405, "no such method"},
		"a preflight":       {"OPTIONS", "/v1/budgets", "", 405, "no such method"},
		"another parameter": {"GET", "/v1/budgets?project=other", s.keys["acme"], 400, "want endpoint"},
		"one twice":         {"GET", "/v1/budgets?endpoint=a&endpoint=b", s.keys["acme"], 400, "want it once"},
		"no such endpoint": {"GET", "/v1/budgets?endpoint=GET+/v9", s.keys["acme"], 400,
			"want an endpoint of the API"},
	} {
		r, err := http.NewRequest(c.method, s.gate+"/.headgate"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "https://evil.example")
		if c.key != "" {
			r.Header.Set("X-Api-Key", c.key)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != c.code || !strings.Contains(string(body), c.want) ||
			strings.Contains(string(body), "MADEUP") {
			t.Errorf("%s: %d %s (%v), want %d that says %q", name, response.StatusCode, body, err, c.code, c.want)
		}
		for field := range response.Header {
			if strings.HasPrefix(field, "Access-Control") {
				t.Errorf("%s: the answer has %s, want the door closed to other origins", name, field)
			}
		}
		if got := response.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control is %q, want no-store", name, got)
		}
	}
	if s.hits.Load() != 0 {
		t.Errorf("%d requests reached the API, want none", s.hits.Load())
	}
}

// No spelling of the path gets past the door to the API, also where unknown
// endpoints do.
func TestDevelopersDoorForwardsNothing(t *testing.T) {
	s := newSite(t, hourly, []string{"acme"},
		func(c *config.Config) { c.Unknown, c.Endpoint.Refuse = "limit", []string{} })
	for target, want := range map[string]int{
		"/.headgate/v1/budgets":         200,
		"//.headgate//v1/budgets":       200,
		"/%2eheadgate/v1/%62udgets":     200,
		"/x/../.headgate/v1/budgets":    200,
		"/.headgate;a=b/v1/budgets":     400,
		"/.headgate/v1/budgets/":        200,
		"/.headgate":                    200,
		"/.headgate/":                   200,
		"//.headgate//icon.svg":         200,
		"/.headgate/../.headgate/other": 404,
		"/.headgatex/v1/budgets":        0, // another path, and the API's

		// What net/url reads as a URL, and is in no form of a target.
		"x:/.headgate/v1/budgets":            400,
		"http:/.headgate/v1/budgets":         400,
		"x://api/.headgate/v1/budgets":       400,
		"x:/v1/items/1?://.headgate/budgets": 400,
	} {
		before := s.hits.Load()
		if got := raw(t, s.gate, target, s.keys["acme"]); want != 0 && got != want {
			t.Errorf("%s = %d, want %d", target, got, want)
		}
		if reached := s.hits.Load() - before; (want == 0) != (reached == 1) {
			t.Errorf("%s: %d requests reached the API", target, reached)
		}
	}
}

// raw sends a target as it is, which a client of net/http would clean.
func raw(t *testing.T, gate, target, key string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(gate, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: api\r\nX-Api-Key: %s\r\nConnection: close\r\n\r\n", target, key)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// The door has limits of its own, for callers and for addresses without a
// credential, and they are nobody's budget at the API.
func TestDevelopersDoorIsLimited(t *testing.T) {
	s := newSite(t, hourly, []string{"acme", "other"})
	began := time.Now()
	// most is how many may have been served: 20 at once, and one a second.
	most := func() int { return 20 + int(time.Since(began).Seconds()) }
	served := 0
	for range 30 {
		if code, _ := s.ask(t, "acme", "GET", "/v1/budgets", ""); code != 429 {
			served++
		}
	}
	if served < 20 || served > most() {
		t.Errorf("%d of 30 requests were served, want 20, and one more a second: %d at most", served, most())
	}
	if got := s.use(t, "acme", 1); got[0] != 200 {
		t.Errorf("a request to the API = %d, want 200", got[0])
	}
	if code, _ := s.ask(t, "other", "GET", "/v1/budgets", ""); code != 200 {
		t.Errorf("another caller = %d, want 200", code)
	}
	codes := map[int]int{}
	began = time.Now()
	for range 30 {
		code, _ := call(t, "GET", s.gate+"/.headgate/v1/budgets", "")
		codes[code]++
	}
	if codes[401] < 15 || codes[401] > most() || codes[401]+codes[429] != 30 {
		t.Errorf("requests without a credential = %v, want 401 and then 429", codes)
	}
}

func TestDevelopersDoorIsShutByDefault(t *testing.T) {
	s := newSite(t, hourly, []string{"acme"}, func(c *config.Config) { c.Developers.Path = "" })
	if code, body := s.ask(t, "acme", "GET", "/v1/budgets", ""); code != 404 ||
		!strings.Contains(body, "No endpoint has this path") {
		t.Errorf("the door = %d %s, want what any unknown path gets", code, body)
	}
}

func TestDevelopersDoorStandsApart(t *testing.T) {
	c := config.Default()
	c.Listen, c.Admin, c.Upstream = "127.0.0.1:0", "127.0.0.1:0", "http://127.0.0.1:9"
	c.DB = "sqlite:" + t.TempDir() + "/headgate.db"
	c.Routes = []string{t.TempDir() + "/routes.txt"}
	if err := os.WriteFile(c.Routes[0], []byte("GET /v1/{item}\nGET /v1/Budgets\nGET /{any}/v1/budgets\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	c.Developers.Path = "/v1/budgets"
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	_, err := daemon.Start(context.Background(), c, daemon.Options{Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(),
		`developers.path is "/v1/budgets", and the API declares the endpoint "GET /v1/Budgets" there`) {
		t.Errorf("Start = %v, want an error that names the path and the endpoint", err)
	}
}

// TestReloadFillsNoBudgetOfTheDoor: how often one has asked is not forgotten when the configuration is loaded anew.
func TestReloadFillsNoBudgetOfTheDoor(t *testing.T) {
	s := newSite(t, hourly, []string{"acme"})
	served := 0
	for range 10 {
		for range 10 {
			if code, _ := s.ask(t, "acme", "GET", "/v1/budgets", ""); code == 200 {
				served++
			}
		}
		if code, body := call(t, "POST", s.admin+"/v1/reload", ""); code != 200 {
			t.Fatalf("reload: %d %s", code, body)
		}
	}
	if served < 20 || served > 60 { // a minute would bring 60 more
		t.Errorf("%d of 100 requests were served over ten reloads, want 20 and what the time has brought", served)
	}
}

// TestWhoIsBlockedIsSoAtTheDoor: a block for all endpoints holds there too, of a network, a caller
// or a project; one for a single endpoint, or for unknown ones, does not.
func TestWhoIsBlockedIsSoAtTheDoor(t *testing.T) {
	block := func(endpoint, project, only string) policy.Rule {
		r := policy.Rule{Endpoint: endpoint, Project: project, Mode: policy.Block}
		if only != "" {
			if err := r.SetSubject(only); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
	for name, c := range map[string]struct {
		rule policy.Rule
		want int
	}{
		"a network":       {block(policy.All, "", "ip:127.0.0.0/8"), 403},
		"another network": {block(policy.All, "", "ip:192.0.2.0/24"), 200},
		"the project":     {block(policy.All, "acme", ""), 403},
		"another project": {block(policy.All, "umbrella", ""), 200},
		"one endpoint":    {block("GET /v1/items/{id}", "acme", ""), 200},
		"unknown ones":    {block(policy.UnknownEndpoint, "", ""), 200},
	} {
		s := newSite(t, append(slices.Clone(hourly), c.rule), []string{"acme"})
		if code, body := s.ask(t, "acme", "GET", "/v1/budgets", ""); code != c.want {
			t.Errorf("a block of %s: %d %s, want %d", name, code, body, c.want)
		}
	}
}
