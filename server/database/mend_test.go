package database_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// While a row is bad, what mends it works: to set or delete that very rule, and
// to go back to a version without it. Nothing else is written beside it.
func TestBadRowsAreMended(t *testing.T) { everywhere(t, testBadRowsAreMended) }

func testBadRowsAreMended(t *testing.T, d someDatabase) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	acme := policy.Rule{Endpoint: policy.Default, Project: "acme", Limit: 7}
	must(t, s.Set(ctx, ann, items(5)))
	must(t, s.Set(ctx, ann, acme))
	good, err := s.Current(ctx)
	must(t, err)
	unchecked(t, d, db, "rps_limit")
	const mend = "row 1 (\"GET /v1/items/{id}\"): rps_limit is -4, want a whole number of 1 or more; " +
		"`headgate policy set 'GET /v1/items/{id}' LIMIT` puts a good rule in its place, and `headgate policy " +
		"delete 'GET /v1/items/{id}'` removes it"
	seen := 0
	check := func(before, after policy.Document) error {
		seen = len(before.Rules)*10 + len(after.Rules)
		return policy.Lint(after, policy.CompileOptions{}).Err()
	}
	set := func(list ...policy.Rule) error {
		_, err := s.Apply(ctx, ann, record.Edit{Set: list, Check: check})
		return err
	}
	loads := func(what string, want ...int64) {
		t.Helper()
		doc, _, err := s.Load(ctx)
		if err != nil || len(doc.Rules) != len(want) {
			t.Fatalf("%s: %+v, %v, want %v", what, doc.Rules, err, want)
		}
		for i, r := range doc.Rules {
			if r.Limit != want[i] {
				t.Errorf("%s: rule %d is %+v, want a limit of %d", what, i, r, want[i])
			}
		}
	}
	spoil := func(where string) { t.Helper(); run(t, db, "UPDATE policies SET rps_limit = -4 WHERE "+where) }

	spoil("project_id IS NULL")
	if _, _, err := s.Load(ctx); err == nil || !strings.Contains(err.Error(), mend) {
		t.Errorf("Load = %v, want %q", err, mend)
	}
	for _, other := range []policy.Rule{acme, {Endpoint: "GET /other", Limit: 3}} {
		other.Limit++
		if err := set(other); err == nil || !strings.Contains(err.Error(), mend) {
			t.Errorf("set of %+v beside it: %v, want %q", other, err, mend)
		}
	}
	must(t, set(items(6)))
	if seen != 12 {
		t.Errorf("the check was told of %d, want one sound rule before and two after", seen)
	}
	loads("set", 6, 7)

	spoil("1 = 1") // one of two can be mended, and then the other
	must(t, set(items(8)))
	if err := set(acme, policy.Rule{Endpoint: "GET /other", Limit: -1}); err == nil {
		t.Error("what mends a row is checked like anything else, want an error")
	}
	must(t, set(acme, policy.Rule{Endpoint: "GET /other", Limit: 3}))
	loads("set of both", 8, 7, 3)

	spoil("project_id IS NULL AND endpoint <> 'GET /other'")
	must(t, s.Delete(ctx, ann, record.KeyOf(items(1))))
	loads("deleted", 7, 3)
	must(t, set(items(5)))

	spoil("project_id = 'acme'")
	if doc, err := s.At(ctx, good.ID); err != nil || len(doc.Rules) != 2 {
		t.Errorf("At(%d) = %+v, %v, want the two rules from then", good.ID, doc.Rules, err)
	}
	must(t, s.Number(ctx))
	bad, err := s.Current(ctx)
	must(t, err)
	if _, err := s.At(ctx, bad.ID); err == nil ||
		!strings.Contains(err.Error(), "project \"acme\" per principal is no rule (rps_limit is -4") {
		t.Errorf("At(%d) = %v, want it to say that there was no rule", bad.ID, err)
	}
	if _, err := s.RollbackChecked(ctx, ann, bad.ID, 0, check); err == nil {
		t.Error("back to the bad row, want an error")
	}
	if _, err := s.RollbackChecked(ctx, ann, good.ID, 0,
		func(_, _ policy.Document) error { return errors.New("no") }); err == nil {
		t.Error("a rollback that is refused, want an error")
	}
	_, err = s.RollbackChecked(ctx, ann, good.ID, bad.ID, check)
	must(t, err)
	doc, _, err := s.Load(ctx)
	if changes := database.Compare(policy.Document{Rules: []policy.Rule{items(5), acme}}, doc); err != nil ||
		len(changes) != 0 {
		t.Errorf("rolled back: %+v, %v", doc.Rules, err)
	}
}
