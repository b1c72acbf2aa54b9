package daemon_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

var fewAnHour = []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 3, Per: 3600e9}}

// change posts to /v1/buckets and returns the decoded answer.
func (p *process) change(t *testing.T, verb, body string, header ...string) (code int, got struct {
	Audit  int64
	Given  int64
	Detail string
	Bucket struct {
		Remaining int64
		Whose     string
		Allowance *struct{ Tokens int64 }
	}
	Buckets []struct {
		Remaining int64
		Whose     string
	}
}) {
	t.Helper()
	code, text := call(t, "POST", p.admin+"/v1/buckets/"+verb, body, append(header, "Content-Type", asJSON)...)
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%s: %v in %s", verb, err, text)
	}
	return code, got
}

func (p *process) get(t *testing.T, want ...int) {
	t.Helper()
	for i, code := range want {
		if got, _ := call(t, "GET", p.gate+"/v1/items/1", ""); got != code {
			t.Errorf("request %d = %d, want %d", i, got, code)
		}
	}
}

func (p *process) audit(t *testing.T) []record.Audit {
	t.Helper()
	db, err := database.OpenReadOnly(context.Background(), "sqlite:"+filepath.Join(p.dir, "headgate.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	list, err := db.ListAudit(context.Background(), 100)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestBucketsOverHTTP(t *testing.T) {
	p := newProcess(t, fewAnHour)
	p.get(t, 200, 200, 200, 429)
	const mine = `"endpoint":"GET /v1/items/{id}","address":"127.0.0.1"`
	if code, got := p.change(t, "inspect", `{`+mine+`}`); code != 200 || len(got.Buckets) != 1 ||
		got.Buckets[0].Remaining != 0 || got.Buckets[0].Whose != "address 127.0.0.1" {
		t.Errorf("inspect = %d %+v", code, got)
	}
	if code, body := call(t, "GET", p.admin+"/v1/buckets?endpoint=GET+/v1/items/{id}&address=127.0.0.1",
		""); code != 200 || !strings.Contains(body, `"remaining":0`) {
		t.Errorf("GET = %d %s", code, body)
	}
	if code, got := p.change(t, "grant", `{`+mine+`,"amount":2}`); code != 200 || got.Given != 2 || got.Audit != 1 ||
		got.Bucket.Remaining != 2 {
		t.Errorf("grant = %d %+v", code, got)
	}
	p.get(t, 200, 200, 429)
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if code, got := p.change(t, "grant", `{`+mine+`,"amount":5,"expires":"`+until+`","by":"ann"}`); code != 200 ||
		got.Bucket.Remaining != 5 || got.Bucket.Allowance == nil {
		t.Errorf("grant for a time = %d %+v", code, got)
	}
	p.get(t, 200, 200, 200, 200, 200, 429)
	if code, got := p.change(t, "reset", `{"endpoint":"GET /v1/items/{id}","peer":"127.0.0.1"}`); code != 200 ||
		got.Audit != 3 || got.Bucket.Remaining != 3 || got.Bucket.Allowance != nil {
		t.Errorf("reset = %d %+v", code, got)
	}
	p.get(t, 200, 200, 200, 429)

	list := p.audit(t)
	if len(list) != 3 {
		t.Fatalf("audit %+v, want 3 entries", list)
	}
	want := record.Audit{ID: 2, At: list[1].At, Actor: "local connection", Claimed: "ann", Action: record.ActionGrant,
		Rule: "GET /v1/items/{id}", Endpoint: "GET /v1/items/{id}", Subject: "principal", Whose: "address 127.0.0.1",
		Amount: 5, Expires: list[1].Expires}
	if list[1] != want || list[1].Expires.UTC().Format(time.RFC3339) != until || list[0].Action != record.ActionReset ||
		list[2].Amount != 2 {
		t.Errorf("audit %+v", list)
	}
}

func TestBucketsOfKeys(t *testing.T) {
	var text, id string
	p := newProcess(t, []policy.Rule{{Endpoint: policy.All, Limit: 2, Per: 3600e9}}, func(c *config.Config) {
		if err := c.Complete(); err != nil {
			t.Fatal(err)
		}
		db, err := database.Open(context.Background(), c.DB)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		digester, err := daemon.Digester(c.SecretFile, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		key, secret, err := db.CreateKey(context.Background(), digester, record.NewAPIKey{Project: "acme", Name: "ci"})
		if err != nil {
			t.Fatal(err)
		}
		text, id = secret, key.ID
	})
	send := func() int {
		code, _ := call(t, "GET", p.gate+"/v1/items/1", "", "X-Api-Key", text)
		return code
	}
	for i, want := range []int{200, 200, 429} {
		if got := send(); got != want {
			t.Errorf("request %d = %d, want %d", i, got, want)
		}
	}
	if code, got := p.change(t, "reset", `{"endpoint":"*","key":"`+id+`"}`); code != 200 ||
		got.Bucket.Whose != "api key "+id+" of project acme" {
		t.Errorf("reset by key = %d %+v", code, got)
	}
	if got := send(); got != 200 {
		t.Errorf("request after the reset = %d, want 200", got)
	}
	code, got := p.change(t, "grant", `{"endpoint":"*","peer":"127.0.0.1","header":["X-Api-Key: `+text+`"],"amount":1}`)
	if code != 200 || got.Given != 1 || got.Bucket.Remaining != 2 {
		t.Errorf("grant by evidence = %d %+v", code, got)
	}
	for _, a := range p.audit(t) {
		if all, _ := json.Marshal(a); strings.Contains(string(all), text) {
			t.Errorf("the audit holds the key: %s", all)
		}
	}
}

func TestBucketsRefuseWhatIsWrong(t *testing.T) {
	p := newProcess(t, append(fewAnHour, policy.Rule{Endpoint: "GET /v1/items/{id}", Limit: 9,
		Subject: policy.SubjectIP}))
	const mine = `"endpoint":"GET /v1/items/{id}","subject":"principal","address":"127.0.0.1"`
	buckets := p.admin + "/v1/buckets"
	for name, c := range map[string]struct {
		method, url, body string
		code              int
		want              string
	}{
		"no endpoint": {"POST", buckets + "/reset", `{}`, 422, "endpoint is missing"},
		"no such endpoint": {"POST", buckets + "/reset", `{"endpoint":"GET /v1/item/{id}"}`, 422,
			"GET /v1/items/{id}"},
		"two buckets": {"POST", buckets + "/reset",
			`{"endpoint":"GET /v1/items/{id}","address":"127.0.0.1"}`, 422, "principal or ip"},
		"nobody": {"POST", buckets + "/reset", `{"endpoint":"GET /v1/items/{id}"}`, 422,
			"an API key, a certificate, a token's subject or an address"},
		"unknown subject": {"POST", buckets + "/reset", `{"endpoint":"*","subject":"user"}`, 400,
			`subject is "user"`},
		"addresses that are none": {"POST", buckets + "/reset", `{"endpoint":"*","peer":"here","address":"there"}`, 400,
			`address is "there"`},
		"header without a name": {"POST", buckets + "/reset", `{"endpoint":"*","header":["MARK"]}`, 400,
			"want Name: value"},
		"a key that is ignored": {"POST", buckets + "/reset",
			`{"endpoint":"*","peer":"127.0.0.1","header":["X-Api-Key: hg_MARK"]}`, 422, "malformed"},
		"no such key": {"POST", buckets + "/reset", `{"endpoint":"*","key":"k_none"}`, 400,
			"headgate key list"},
		"amount of nothing": {"POST", buckets + "/grant", `{` + mine + `}`, 422, "amount is 0, want 1 or more"},
		"amount below zero": {"POST", buckets + "/grant", `{` + mine + `,"amount":-5}`, 422,
			"amount is -5, want 1 or more"},
		"a huge amount": {"POST", buckets + "/grant", `{` + mine + `,"amount":1e6}`, 400, "amount"},
		"too large an amount": {"POST", buckets + "/grant", `{` + mine + `,"amount":3001}`, 422,
			"at most 1000 times the burst of 3"},
		"expired": {"POST", buckets + "/grant",
			`{` + mine + `,"amount":5,"expires":"2020-01-01T00:00:00Z"}`, 422, "want a time in the future"},
		"expires that is no time": {"POST", buckets + "/grant",
			`{` + mine + `,"amount":5,"expires":"soon"}`, 400, "soon"},
		"a reset of an amount": {"POST", buckets + "/reset", `{` + mine + `,"amount":5}`, 400,
			"a reset fills the bucket"},
		"unknown field":       {"POST", buckets + "/reset", `{` + mine + `,"amont":5}`, 400, "amont"},
		"not JSON":            {"POST", buckets + "/reset", `endpoint=*`, 400, "not JSON"},
		"evidence in a query": {"GET", buckets + "?endpoint=*&header=X-Api-Key:+MARK", "", 400, "/v1/buckets/inspect"},
	} {
		t.Run(name, func(t *testing.T) {
			code, body := call(t, c.method, c.url, c.body, "Content-Type", asJSON)
			if code != c.code || !strings.Contains(body, jsonText(c.want)) || strings.Contains(body, "MARK") {
				t.Errorf("%d %s, want %d that says %q", code, body, c.code, c.want)
			}
		})
	}
	if list := p.audit(t); len(list) != 0 {
		t.Errorf("audit %+v, want none of what was refused", list)
	}
}

// patient has whoever opens a gateway's database wait while the gateway writes to it, as it does by itself too.
const patient = "?_pragma=busy_timeout(60000)"

// A change that cannot be audited is not made.
func TestChangesThatCannotBeAuditedAreRefused(t *testing.T) {
	p := newProcess(t, fewAnHour)
	p.get(t, 200, 200, 200, 429)
	db, err := sql.Open("sqlite", filepath.Join(p.dir, "headgate.db")+patient)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("DROP TABLE audit"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ verb, more string }{
		{"reset", ""}, {"grant", `,"amount":2`},
		{"grant", `,"amount":2,"expires":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"`},
	} {
		code, got := p.change(t, c.verb, `{"endpoint":"GET /v1/items/{id}","address":"127.0.0.1"`+c.more+`}`)
		if code != 503 || !strings.Contains(got.Detail, "could not be audited, so it was not made") {
			t.Errorf("%s%s = %d %+v", c.verb, c.more, code, got)
		}
	}
	p.get(t, 429)
}

func TestTheAuditNamesTheToken(t *testing.T) {
	token := "0123456789abcdef0123"
	p := newProcess(t, fewAnHour, func(c *config.Config) {
		c.AdminTokenFile = filepath.Join(t.TempDir(), "ops.token")
		if err := os.WriteFile(c.AdminTokenFile, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	const mine = `{"endpoint":"GET /v1/items/{id}","address":"127.0.0.1"}`
	if code, _ := p.change(t, "reset", mine); code != 401 {
		t.Errorf("reset without the token = %d, want 401", code)
	}
	if code, got := p.change(t, "reset", mine, "Authorization", "Bearer "+token); code != 200 {
		t.Errorf("reset = %d %+v", code, got)
	}
	if list := p.audit(t); len(list) != 1 || list[0].Actor != "token ops.token" {
		t.Errorf("audit %+v, want the token's name", list)
	}
}

// The API says what a request cost, and the gateway's bucket is corrected.
func TestTheGatewaySettles(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Cost", r.URL.Query().Get("cost"))
		_, _ = io.WriteString(w, "ok")
	}))
	defer api.Close()
	p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 100, Per: 3600e9}}, func(c *config.Config) {
		c.Upstream, c.Settle.Header, c.Costs = api.URL, "X-Cost", map[string]int64{"GET /v1/items/{id}": 10}
	})
	for i, step := range []struct {
		cost string
		want int
	}{{"60", 200}, {"1", 200}, {"90", 200}, {"0", 429}} {
		r, err := http.Get(p.gate + "/v1/items/1?cost=" + step.cost)
		if err != nil {
			t.Fatal(err)
		}
		// Read to the end, so that the next request uses the same connection,
		// where the server comes to it when this one is settled.
		_, err = io.Copy(io.Discard, r.Body)
		if _ = r.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if r.StatusCode != step.want || r.Header.Get("X-Cost") != "" {
			t.Errorf("request %d = %d with X-Cost %q, want %d and none", i, r.StatusCode,
				r.Header.Get("X-Cost"), step.want)
		}
	}
	_, page := call(t, "GET", p.admin+"/metrics", "")
	for _, want := range []string{
		`headgate_reservations_total{outcome="made"} 3`, `headgate_reservations_total{outcome="settled"} 3`,
		"headgate_reservations 0",
		"headgate_buckets_occupancy_ratio 9.5", "headgate_buckets_false_denials_ratio 0",
		"headgate_buckets_table_too_small 0", "headgate_buckets_bytes ",
		"headgate_buckets_created_total 1", `headgate_buckets_evicted_total{state="in_debt"} 0`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the metrics lack %s:\n%s", want, ours(page))
		}
	}
}

func TestTheTableMayBeSizedInBytes(t *testing.T) {
	p := newProcess(t, fewAnHour, func(c *config.Config) { c.MaxBytes, c.RefuseNewcomers = 64<<10, true })
	p.get(t, 200)
	_, page := call(t, "GET", p.admin+"/metrics", "")
	if !strings.Contains(page, "headgate_buckets_refused_total 0") {
		t.Errorf("the metrics lack the refusals, or there was one:\n%s", ours(page))
	}
	match := regexp.MustCompile(`(?m)^headgate_buckets_bytes (\d+)$`).FindStringSubmatch(page)
	if match == nil {
		t.Fatalf("the metrics lack headgate_buckets_bytes:\n%s", ours(page))
	}
	if n, err := strconv.Atoi(match[1]); err != nil || n > 64<<10 || n < 48<<10 {
		t.Errorf("the table takes %s bytes, want 64 KiB or less by what sliding logs would take", match[1])
	}
}
