package database_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

func TestPages(t *testing.T) { everywhere(t, testPages) }

// Pages join to all that List has, in its order, for every size of a page.
func testPages(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	e := record.Edit{Tiers: map[string]string{}}
	for i := range 7 {
		e.Set = append(e.Set, policy.Rule{Endpoint: fmt.Sprintf("GET /%d", i), Limit: int64(i + 1),
			Burst: int64(i % 2 * 50)})
		e.Tiers[fmt.Sprintf("p %d", 7-i)] = "gold"
	}
	v, err := s.Apply(ctx, tester, e)
	must(t, err)
	must(t, s.Delete(ctx, tester, record.RuleKey{Endpoint: "GET /3"}))
	all, err := s.List(ctx)
	must(t, err)
	for most := 1; most <= 8; most++ {
		var got []policy.Rule
		for after := int64(0); ; {
			p, err := s.Page(ctx, after, most)
			must(t, err)
			if len(p.Rules) > most || p.Number != v.ID+1 {
				t.Fatalf("a page of %d has %d rules of version %d, want those of %d", most, len(p.Rules),
					p.Number, v.ID+1)
			}
			got = append(got, p.Rules...)
			if after = p.Last; after == 0 {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(all) {
			t.Errorf("pages of %d have\n%v, want\n%v", most, got, all)
		}
		names := ""
		for after := ""; ; {
			list, version, err := s.Projects(ctx, after, most)
			must(t, err)
			for _, p := range list {
				names += p.Project + ":" + p.Tier + ";"
				after = p.Project
			}
			if version != v.ID+1 {
				t.Errorf("projects of version %d, want %d", version, v.ID+1)
			}
			if len(list) < most {
				break
			}
		}
		if want := "p 1:gold;p 2:gold;p 3:gold;p 4:gold;p 5:gold;p 6:gold;p 7:gold;"; names != want {
			t.Errorf("pages of %d have the projects %s, want %s", most, names, want)
		}
	}
	if tier, version, err := s.Tier(ctx, "p 3"); err != nil || tier != "gold" || version != v.ID+1 {
		t.Errorf("Tier = %q of version %d, %v, want gold", tier, version, err)
	}
	if _, _, err := s.Tier(ctx, "p"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("the tier of nobody: %v, want %v", err, record.ErrNotFound)
	}
}
