package admin_test

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/fleet"
)

// TestFleetPages: pages have every replica that is there all the time once, by
// name, whoever comes and goes between them; the count is of all.
func TestFleetPages(t *testing.T) {
	named := func(names ...string) (r fleet.Report) {
		r.Count = map[fleet.State]int{fleet.OK: len(names)}
		for _, n := range names {
			r.Replicas = append(r.Replicas, fleet.Replica{Name: n, State: fleet.OK})
		}
		return r
	}
	const odd = "gate one/& two"
	now := named("d", odd, "a", "c")
	s := newSite(t, func(o *admin.Options) {
		o.Fleet = func(context.Context) (fleet.Report, error) { return now, nil }
	})
	ask := func(query string) (page admin.FleetPage, names []string) {
		t.Helper()
		got := s.call(s.all(), "GET", "/v1/fleet?"+query, "")
		if err := json.Unmarshal([]byte(got.body), &page); got.status != 200 || err != nil {
			t.Fatalf("GET /v1/fleet?%s = %d %s, %v", query, got.status, got.body, err)
		}
		for _, r := range page.Replicas {
			names = append(names, r.Name)
		}
		return page, names
	}
	next := ""
	for _, step := range []struct {
		now  fleet.Report
		want string
		more bool
	}{
		{named("d", odd, "a", "c"), "a, c", true},
		{named("b", "d", odd, "e"), "d, e", true}, // a and c have gone, b and e have come
		{named("b", "d", odd, "e"), odd, false},
	} {
		now = step.now
		query := "limit=2"
		if next != "" {
			query += "&cursor=" + url.QueryEscape(next)
		}
		page, names := ask(query)
		if strings.Join(names, ", ") != step.want || (page.Next != "") != step.more ||
			page.Count[fleet.OK] != len(now.Replicas) {
			t.Errorf("%s: %q, next %q, count %v, want %q", query, names, page.Next, page.Count, step.want)
		}
		next = page.Next
	}
	if page, names := ask(""); page.Next != "" || !slices.Equal(names, []string{"b", "d", "e", odd}) {
		t.Errorf("all: %q, next %q", names, page.Next)
	}
	for _, query := range []string{"limit=0", "limit=1001", "size=3"} {
		if got := s.call(s.all(), "GET", "/v1/fleet?"+query, ""); got.status != 400 {
			t.Errorf("GET /v1/fleet?%s = %d, want 400", query, got.status)
		}
	}
}
