package admin_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// Every call but for health and metrics is written down, with what it was about
// and how it ended.
func TestCallsAreWrittenDown(t *testing.T) {
	s := newSite(t)
	for _, c := range samples {
		s.call(s.all(), c.method, c.target, c.body, c.header...)
	}
	s.call(s.token(record.RoleRead), "POST", "/v1/buckets/reset", `{"endpoint":"*"}`)
	s.call("", "GET", "/v1/policies", "")
	var page admin.Calls
	must(t, json.Unmarshal([]byte(s.call(fileToken, "GET", "/v1/calls?limit=1000", "").body), &page))
	has := map[string]admin.CallEntry{}
	for i, c := range page.Calls {
		if i > 0 && c.ID >= page.Calls[i-1].ID {
			t.Errorf("call %d stands after call %d, want the newest first", c.ID, page.Calls[i-1].ID)
		}
		if _, ok := has[c.Operation+" "+c.Actor]; !ok {
			has[c.Operation+" "+c.Actor] = c
		}
		if c.Seconds <= 0 || c.Status == 0 || c.Peer != "192.0.2.1" {
			t.Errorf("%+v has no time, status or peer", c)
		}
	}
	for _, op := range admin.Operations() {
		c, ok := has[op.ID+" token readwritegrant"]
		if counted := op.Access == "none" || slices.Contains([]string{"getMetrics", "getActivity", "getActivitySeries"},
			op.ID); ok == counted {
			t.Errorf("%s is in the record: %v", op.ID, ok)
		}
		if ok && (c.Changes != op.Changes || !strings.HasPrefix(c.Token, "t_") || c.Status >= 300) {
			t.Errorf("%+v, want changes %v, a token and success", c, op.Changes)
		}
	}
	for operation, about := range map[string]string{
		"setPolicy": `set rule for "POST /v1/login" per ip`, "resetBucket": "GET /v1/items/{id}: address 192.0.2.7",
		"createToken": "admin token sample", "revokeToken": "admin token sample",
		"approveRequest": s.requests.Replace("request {first}"),
		"declineRequest": s.requests.Replace("request {second}"),
	} {
		if got := has[operation+" token readwritegrant"].About; got != about {
			t.Errorf("%s is about %q, want %q", operation, got, about)
		}
	}
	if c := has["resetBucket token read"]; c.Status != 403 || c.Changes {
		t.Errorf("a call without the role is %+v, want 403 and nothing that changes", c)
	}
	if c := has["none nobody"]; c.Status != 401 || c.Token != "" {
		t.Errorf("a call of nobody is %+v, want 401", c)
	}
}

// Pages of the record join, whatever is added meanwhile.
func TestPagesOfCalls(t *testing.T) {
	s := newSite(t)
	for range 7 {
		s.call(s.all(), "GET", "/v1/tokens", "")
	}
	var ids []int64
	for next := ""; ; {
		target := "/v1/calls?limit=3"
		if next != "" {
			target += "&cursor=" + next
		}
		var page admin.Calls
		must(t, json.Unmarshal([]byte(s.call(s.all(), "GET", target, "").body), &page))
		for _, c := range page.Calls {
			ids = append(ids, c.ID)
		}
		if next = page.Next; next == "" {
			break
		}
	}
	if want := []int64{7, 6, 5, 4, 3, 2, 1}; !reflect.DeepEqual(ids, want) {
		t.Errorf("calls %v, want %v", ids, want)
	}
	for _, bad := range []string{"limit=0", "limit=1001", "limit=x", "cursor=0", "cursor=-1", "cursor=x"} {
		for _, path := range []string{"/v1/calls?", "/v1/audit?"} {
			if got := s.call(s.all(), "GET", path+bad, ""); got.kind() != "invalid-request" {
				t.Errorf("%s%s = %d %s", path, bad, got.status, got.body)
			}
		}
	}
}

// What cannot be written down is not made; who only looks is served.
func TestCallsThatCannotBeWrittenDown(t *testing.T) {
	var observed []string
	lost := 0
	s := newSite(t, func(o *admin.Options) {
		o.Calls = brokenCalls{o.Calls.(*database.Store)}
		o.Observe = func(operation string, status int) { observed = append(observed, operation) }
		o.Unrecorded = func() { lost++ }
	})
	for _, op := range admin.Operations() {
		for _, c := range samples {
			if c.id != op.ID || op.ID == "listCalls" {
				continue
			}
			got := s.call(s.all(), c.method, c.target, c.body, c.header...)
			if op.Changes && (got.kind() != "unavailable" ||
				!strings.Contains(got.body,
					"The call could not be written down, so it was not made: the disk is full.")) ||
				!op.Changes && got.status >= 300 {
				t.Errorf("%s = %d %s, want it refused: %v", op.ID, got.status, got.body, op.Changes)
			}
		}
	}
	if got := s.call(s.all(), "GET", "/v1/calls", ""); got.kind() != "unavailable" {
		t.Errorf("the record = %d %s, want unavailable", got.status, got.body)
	}
	if rules, err := s.db.List(context.Background()); err != nil || len(rules) != 3 {
		t.Errorf("%d rules, %v, want the 3 there were", len(rules), err)
	}
	if len(observed) != len(samples)-2 { // those for health
		t.Errorf("%d calls were counted: %v", len(observed), observed)
	}
	for range 5000 {
		r := httptest.NewRequest("GET", "/v1/tokens/x", nil)
		r.Header.Set("Authorization", "Bearer "+fileToken)
		r.URL.Path = "/v1/openapi.yaml"
		s.door.ServeHTTP(httptest.NewRecorder(), r)
	}
	if lost < 900 || lost > 1000 {
		t.Errorf("%d calls were lost, want those beyond 4096", lost)
	}
	if n := strings.Count(s.log.String(), "calls cannot be written down"); n != 1 {
		t.Errorf("the log says %d times that calls cannot be written, want once", n)
	}
}

// A flood of strangers does not fill the record.
func TestRefusalsAreBounded(t *testing.T) {
	s := newSite(t)
	for range 500 {
		s.door.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/policies", nil))
	}
	s.call(s.all(), "GET", "/v1/calls", "")
	list, err := s.db.ListCalls(context.Background(), 0, 1000)
	must(t, err)
	if len(list) < 60 || len(list) > 121 { // the clock may step into another minute
		t.Errorf("%d of 500 refusals were written down, want 60 a minute", len(list))
	}
}

// Run forgets what is old, and writes down what waits at its end too.
func TestRunWritesDown(t *testing.T) {
	s := newSite(t)
	must(t, s.db.AppendCalls(context.Background(),
		[]record.Call{{At: s.now.AddDate(0, 0, -2), Actor: "a", Operation: "old", Status: 200}}))
	s.call(s.all(), "GET", "/v1/tokens", "")
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.door.Run(ctx) })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		list, err := s.db.ListCalls(context.Background(), 0, 10)
		must(t, err)
		if len(list) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the record still has %+v", list)
		}
	}
	stop()
	running.Wait()
	list, err := s.db.ListCalls(context.Background(), 0, 10)
	must(t, err)
	if len(list) != 1 || list[0].Operation != "listTokens" {
		t.Errorf("after the end of Run the record has %+v, want listTokens", list)
	}
}

// The record counts in English.
func TestCallsCount(t *testing.T) {
	s := newSite(t)
	if got := s.call(s.all(), "POST", "/v1/policies/apply",
		`{"set":[{"endpoint":"default","limit":30}],"tiers":{"acme":"gold","globex":"gold"}}`, "If-Match",
		"*"); got.status != 200 {
		t.Fatalf("apply = %d %s", got.status, got.body)
	}
	if body, want := s.call(fileToken, "GET", "/v1/calls?limit=10", "").body,
		": 1 rule, 0 to delete, 2 tiers"; !strings.Contains(body, want) {
		t.Errorf("the calls are %s, want one about %q", body, want)
	}
}
