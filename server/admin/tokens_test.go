package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/record"
)

// Pages of tokens join to the list, oldest first, whatever is made between two
// of them.
func TestPagesOfTokens(t *testing.T) {
	s := newSite(t)
	page := func(query string) admin.Tokens {
		t.Helper()
		got := s.call(s.all(), "GET", "/v1/tokens?"+query, "")
		var p admin.Tokens
		if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != 200 {
			t.Fatalf("GET /v1/tokens?%s = %d %s", query, got.status, got.body)
		}
		return p
	}
	create := func(i int) {
		_, _, err := s.db.CreateAdminToken(context.Background(),
			record.NewAdminToken{Name: fmt.Sprintf("t%d", i), Roles: []record.Role{record.RoleRead}})
		must(t, err)
	}
	for i := range 5 {
		create(i)
	}
	before := page("limit=1000")
	if before.Next != "" {
		t.Errorf("the page with all %d has next %q", len(before.Tokens), before.Next)
	}
	if exact := page(fmt.Sprintf("limit=%d", len(before.Tokens))); exact.Next != "" {
		t.Errorf("the page that ends the list has next %q", exact.Next)
	}
	create(5)
	for _, size := range []int{1, 2, 5, 100} {
		var names []string
		for cursor := ""; ; {
			p := page(fmt.Sprintf("limit=%d&cursor=%s", size, url.QueryEscape(cursor)))
			if len(p.Tokens) > size || len(p.Tokens) == 0 {
				t.Fatalf("a page of %d has %d tokens", size, len(p.Tokens))
			}
			for _, e := range p.Tokens {
				names = append(names, e.Name)
			}
			if cursor = p.Next; cursor == "" {
				break
			}
		}
		var want []string
		for _, e := range before.Tokens {
			want = append(want, e.Name)
		}
		if want = append(want, "t5"); !slices.Equal(names, want) {
			t.Errorf("pages of %d = %v, want %v", size, names, want)
		}
	}
	if got := s.call(s.all(), "GET", "/v1/tokens?cursor=t_gone", ""); got.status != 410 || got.kind() != "pages-moved" {
		t.Errorf("after a token that was deleted = %d %s, want 410", got.status, got.body)
	}
	for _, limit := range []string{"0", "1001", "x"} {
		if got := s.call(s.all(), "GET", "/v1/tokens?limit="+limit, ""); got.status != 400 {
			t.Errorf("limit=%s = %d %s, want 400", limit, got.status, got.body)
		}
	}
}
