package database_test

import (
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Whoever deletes the last rule by its name means it. Whatever else empties the
// table is not taken for that, though such a version came before.
func TestClear(t *testing.T) { everywhere(t, testClear) }

func testClear(t *testing.T, d someDatabase) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	cleared := func(what string, want int64) {
		t.Helper()
		doc, _, err := s.Load(ctx)
		must(t, err)
		if doc.Cleared != want {
			t.Errorf("%s: Cleared = %d, want %d", what, doc.Cleared, want)
		}
	}
	remove := func(r policy.Rule, action string) {
		t.Helper()
		must(t, s.Delete(ctx, ann, record.KeyOf(r)))
		if v, err := s.Current(ctx); err != nil || v.Action != action || v.Removed != 1 {
			t.Errorf("the newest version is %+v, %v, want one of 1 removed by %s", v, err, action)
		}
	}
	other := policy.Rule{Endpoint: policy.Default, Limit: 20}
	cleared("never filled", 0)
	must(t, s.Set(ctx, ann, items(5))) // version 2
	must(t, s.Set(ctx, ann, other))
	remove(other, record.ActionDelete)
	cleared("one is left", 0)
	truncate := "TRUNCATE TABLE policies" // MariaDB calls no trigger for it
	if d.kind == "SQLite" {
		truncate = "DELETE FROM policies"
	}
	run(t, db, truncate)
	cleared("emptied by a shell, after the one was deleted", 0)
	must(t, s.Set(ctx, ann, items(6)))
	remove(items(6), record.ActionClear)
	now, err := s.Current(ctx)
	must(t, err)
	cleared("the last one deleted", now.ID)
	must(t, s.SetTier(ctx, ann, "acme", "gold"))
	run(t, db, "DELETE FROM projects")
	cleared("tiers changed since then", now.ID)
	run(t, db, "INSERT INTO policies (endpoint, rps_limit) VALUES ('default', 7)")
	cleared("filled by a shell", 0)
	run(t, db, truncate)
	cleared("and emptied by it", 0)
	must(t, s.Set(ctx, ann, items(5)))
	must(t, s.Set(ctx, ann, other))
	now, err = s.Apply(ctx, ann, record.Edit{Delete: []record.RuleKey{record.KeyOf(items(5)), record.KeyOf(other)}})
	if err != nil || now.Action != record.ActionClear || now.Removed != 2 {
		t.Errorf("Apply = %+v, %v, want both cleared", now, err)
	}
	cleared("all deleted by their names", now.ID)
}
