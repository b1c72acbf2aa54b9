package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

// desk is where requests for a higher limit are decided on.
type desk interface {
	Requests(ctx context.Context, q record.RequestQuery) ([]record.LimitRequest, error)
	Request(ctx context.Context, id string) (record.LimitRequest, error)
	Approve(ctx context.Context, id string, a rules.Approval) (record.LimitRequest, []string, error)
	Decline(ctx context.Context, id, actor, claimed, note string) (record.LimitRequest, error)
}

// direct is a database as a desk.
type direct struct{ *database.Store }

func (d direct) Approve(ctx context.Context, id string, a rules.Approval) (record.LimitRequest, []string, error) {
	r, _, found, err := rules.Approve(ctx, d.Store, id, a, policy.CompileOptions{})
	var findings []string
	for _, f := range found {
		findings = append(findings, f.Error())
	}
	return r, findings, err
}

// Requests are seen and decided on through a gateway as in its database.
func TestRequestsThroughAGateway(t *testing.T) {
	server, behind := gateway(t)
	through, err := client.New(server, fileToken)
	must(t, err)
	own, err := database.Open(t.Context(), sqlitetest.New(t, filepath.Join(t.TempDir(), "headgate.db")))
	must(t, err)
	defer own.Close()
	until := time.Now().Add(48 * time.Hour).Truncate(time.Second).UTC()
	ids := map[*database.Store][]string{}
	for _, db := range []*database.Store{behind, own} {
		must(t, db.Set(t.Context(), record.Author{Actor: "local:ann"}, policy.Rule{Endpoint: "GET /a", Limit: 1}))
		for i := range 30 {
			filed, err := db.File(t.Context(), record.LimitRequest{Actor: "api_key k", Claimed: "Ann",
				Project: fmt.Sprint("p", i/10), Reason: fmt.Sprint("reason ", i),
				Asked: record.Asked{
					Endpoint: "GET /a",
					Subject:  policy.Subject(i % 2),
					Limit:    int64(2 + i),
					Per:      time.Minute,
					Burst:    int64(i),
					Until:    until,
				}}, 10)
			must(t, err)
			ids[db] = append(ids[db], filed.ID)
		}
	}
	at := map[desk][]string{direct{own}: ids[own], through: ids[behind]}
	for name, do := range map[string]func(desk, []string) (any, error){
		"all": func(d desk, _ []string) (any, error) {
			return d.Requests(t.Context(), record.RequestQuery{Most: 2000})
		},
		"a part": func(d desk, _ []string) (any, error) {
			return d.Requests(t.Context(), record.RequestQuery{Most: 12})
		},
		"before 7": func(d desk, ids []string) (any, error) {
			return d.Requests(t.Context(), record.RequestQuery{Most: 5, Before: ids[7]})
		},
		"one project's": func(d desk, _ []string) (any, error) {
			return d.Requests(t.Context(), record.RequestQuery{Most: 50, Project: "p2", State: record.RequestOpen})
		},
		"one":      func(d desk, ids []string) (any, error) { return d.Request(t.Context(), ids[3]) },
		"nobody's": func(d desk, _ []string) (any, error) { return d.Request(t.Context(), "r/0?") },
		"approve": func(d desk, ids []string) (any, error) {
			r, _, err := d.Approve(t.Context(), ids[10], rules.Approval{
				Actor:   "local:bob",
				Claimed: "bob",
				Limit:   7,
				Per:     time.Hour,
				Burst:   9,
				For:     90 * time.Minute,
				Note:    "so",
			})
			r.Granted.Until = time.Time{} // counted from now on
			return r, err
		},
		"approve as asked": func(d desk, ids []string) (any, error) {
			r, _, err := d.Approve(t.Context(), ids[11], rules.Approval{Actor: "local:bob", Claimed: "bob"})
			return r, err
		},
		"approve what is over": func(d desk, ids []string) (any, error) {
			r, _, err := d.Approve(t.Context(), ids[12],
				rules.Approval{Actor: "local:bob", Until: until.AddDate(-1, 0, 0)})
			return r, err
		},
		"decline": func(d desk, ids []string) (any, error) {
			return d.Decline(t.Context(), ids[13], "local:bob", "bob", "no")
		},
	} {
		said := map[bool]string{}
		failed := map[bool]error{}
		for d, ids := range at {
			v, err := do(d, ids)
			_, isDirect := d.(direct)
			said[isDirect], failed[isDirect] = told(v), err
		}
		if said[true] != said[false] || (failed[true] == nil) != (failed[false] == nil) ||
			errors.Is(failed[true], record.ErrNotFound) != errors.Is(failed[false], record.ErrNotFound) {
			t.Errorf("%s: the gateway says\n%.2000s, %v\nits database\n%.2000s, %v", name, said[false], failed[false],
				said[true], failed[true])
		}
	}
	_, err = through.Decline(t.Context(), ids[behind][13], "", "bob", "again")
	if want := " answers 409: request " + ids[behind][13] + " is declined already, by token token"; err == nil ||
		!strings.HasSuffix(err.Error(), want) {
		t.Errorf("declined twice: %v, want that it %s", err, want)
	}
}

// Pages of requests are put together, no further than was asked for.
func TestPagesOfRequests(t *testing.T) {
	page := func(from, to int, next string) func(http.ResponseWriter, *http.Request) {
		var list []string
		for i := from; i < to; i++ {
			list = append(list,
				fmt.Sprintf(`{"id":"r_%d","filed":"2026-01-01T00:00:00Z","by":"k","project":"p","endpoint":"*","subject":"ip","limit":1,"per_seconds":1,"reason":"x","state":"open"}`, i))
		}
		return text(`{"requests":[` + strings.Join(list, ",") + `],"next":"` + next + `"}`)
	}
	var queries []string
	seen := func(do func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			queries = append(queries, r.URL.RawQuery)
			do(w, r)
		}
	}
	server, _ := scripted(t, seen(page(0, 1000, "r_999")), seen(page(1000, 1200, "r_1199")))
	c, err := client.New(server, "")
	must(t, err)
	list, err := c.Requests(t.Context(), record.RequestQuery{Most: 1200, State: record.RequestOpen})
	if err != nil || len(list) != 1200 || list[1100].ID != "r_1100" {
		t.Errorf("%d requests, %v, want 1200", len(list), err)
	}
	if got := strings.Join(queries, " "); got != "limit=1000&state=open cursor=r_999&limit=200&state=open" {
		t.Errorf("the gateway was asked for %s", got)
	}
}

// told is what is told of requests, without what must differ.
func told(v any) string {
	one := func(r record.LimitRequest) string {
		r.ID, r.Filed, r.Decided, r.DecidedBy, r.Version = "", time.Time{}, time.Time{}, "", 0
		r.Until, r.Granted.Until = r.Until.UTC(), r.Granted.Until.UTC()
		return fmt.Sprintf("%+v\n", r)
	}
	switch v := v.(type) {
	case record.LimitRequest:
		return one(v)
	case []record.LimitRequest:
		text := fmt.Sprintln(len(v))
		for _, r := range v {
			text += r.Reason + "\n"
		}
		return text
	}
	return fmt.Sprint(v)
}

// What only a gateway knows is told by the client as the API has it.
// TestPagesOfTheFleet: a fleet of more replicas than a page has is shown whole.
func TestPagesOfTheFleet(t *testing.T) {
	server, db := gateway(t)
	const many = 1003
	for i := range many {
		must(t, db.Report(t.Context(), record.Replica{
			Name:    fmt.Sprintf("of-%04d", i),
			Process: fmt.Sprint(i),
			Started: time.Now(),
			Loaded:  time.Now(),
			Every:   time.Second,
		}, false))
	}
	c, err := client.New(server, fileToken)
	must(t, err)
	report, err := c.Fleet(t.Context())
	must(t, err)
	seen := 0
	for _, r := range report.Replicas {
		if r.Name == fmt.Sprintf("of-%04d", seen) {
			seen++
		}
	}
	if seen != many {
		t.Errorf("Fleet has %d replicas, of those that told %d, want %d in order", len(report.Replicas), seen, many)
	}
}

func TestBucketsThroughAGateway(t *testing.T) {
	server, db := gateway(t)
	c, err := client.New(server, fileToken)
	must(t, err)
	must(t, c.Set(t.Context(), record.Author{Actor: "local:ann"}, policy.Rule{Endpoint: "UNKNOWN", Limit: 5}))
	which := admin.BucketRequest{Endpoint: "UNKNOWN", Address: "192.0.2.7", By: "ann"}
	granted := which
	granted.Amount, granted.Expires = 3, time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	given, err := c.GrantBucket(t.Context(), granted)
	if err != nil || given.Given != 3 || given.Bucket.Remaining != 8 {
		t.Errorf("GrantBucket = %+v, %v, want 3 more than 5", given, err)
	}
	reset, err := c.ResetBucket(t.Context(), which)
	if err != nil || reset.Bucket.Remaining != 5 || reset.Audit != given.Audit+1 {
		t.Errorf("ResetBucket = %+v, %v, want 5, audited after the grant", reset, err)
	}
	which.By = ""
	if in, err := c.Inspect(t.Context(), which); err != nil || len(in.Buckets) != 1 || in.Buckets[0].Limit != 5 {
		t.Errorf("Inspect = %+v, %v", in, err)
	}
	which.Endpoint = "GET /nothing"
	if _, err := c.Inspect(t.Context(), which); err == nil || !strings.Contains(err.Error(), " answers 422: ") {
		t.Errorf("Inspect of nothing = %v, want the problem", err)
	}
	if x, err := c.Explain(t.Context(), admin.ExplainRequest{Method: "GET", Target: "/x",
		Peer: "192.0.2.7"}); err != nil || !x.Verdict.Allowed || x.Endpoint != "UNKNOWN" {
		t.Errorf("Explain = %+v, %v", x, err)
	}
	if r, err := c.Fleet(t.Context()); err != nil || r.Number == 0 {
		t.Errorf("Fleet = %+v, %v", r, err)
	}
	audit, err := db.ListAudit(t.Context(), 10)
	must(t, err)
	if len(audit) != 2 || audit[0].Claimed != "ann" || audit[0].Actor != "token token" {
		t.Errorf("the audit has %+v", audit)
	}
}
