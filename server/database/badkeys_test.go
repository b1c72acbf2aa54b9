package database_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// A row with a bad value in a column that rules are found by is in no rule's
// place: the history tells of it beside the rules, and leads past it.
func TestBadKeysAreInNoPlace(t *testing.T) { everywhere(t, testBadKeysAreInNoPlace) }

func testBadKeysAreInNoPlace(t *testing.T, d someDatabase) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	lasting := policy.Rule{Endpoint: policy.Default, Limit: 5}
	must(t, s.Set(ctx, ann, lasting))
	must(t, s.Set(ctx, ann, items(3)))
	good, err := s.Current(ctx)
	must(t, err)
	unchecked(t, d, db, "rps_limit", "expires_at")

	// version numbers what a shell did, and expects what the history says of it.
	version := func(what string, statements []string, added, changed, removed int, want ...string) record.Version {
		t.Helper()
		for _, statement := range statements {
			run(t, db, statement)
		}
		if v, err := s.Pending(ctx); err != nil || v.Added != added || v.Changed != changed || v.Removed != removed {
			t.Errorf("%s: pending are %+v, %v, want %d added, %d changed, %d removed", what, v, err, added,
				changed, removed)
		}
		must(t, s.Number(ctx))
		v, err := s.Current(ctx)
		if err != nil || v.Added != added || v.Changed != changed || v.Removed != removed {
			t.Errorf("%s: version %+v, %v, want %d added, %d changed, %d removed", what, v, err, added,
				changed, removed)
		}
		list, err := s.Changes(ctx, v.ID)
		if got := sides(list); err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: changes are %q, %v, want %q", what, got, err, want)
		}
		return v
	}
	const bad = "INSERT INTO policies (endpoint, rps_limit, expires_at) VALUES ('default', 9, -7)"
	const plus, minus = "+ default 9 (expires_at is -7)", "- default 9 (expires_at is -7)"
	first := version("a bad row comes", []string{bad}, 1, 0, 0, plus)
	version("a rule changes beside it", []string{"UPDATE policies SET rps_limit = 6 WHERE rps_limit = 5"}, 0, 1, 0,
		"~ default 5 default 6")
	version("both change", []string{"UPDATE policies SET rps_limit = rps_limit + 1 WHERE endpoint = 'default'"}, 1, 1,
		1,
		"~ default 6 default 7", minus, "+ default 10 (expires_at is -7)")
	version("the rule goes and the row is as before", []string{"DELETE FROM policies WHERE rps_limit = 7",
		"UPDATE policies SET rps_limit = 9 WHERE rps_limit = 10"}, 1, 0, 2,
		"- default 7", "- default 10 (expires_at is -7)", plus)
	last := version("the row becomes the rule",
		[]string{"UPDATE policies SET expires_at = NULL, rps_limit = 8 WHERE rps_limit = 9"}, 1, 0, 1,
		"+ default 8", minus)
	version("the rule becomes a row",
		[]string{"UPDATE policies SET expires_at = -7, rps_limit = 9 WHERE rps_limit = 8"}, 1, 0, 1,
		"- default 8", plus)

	for _, c := range []struct {
		from, to int64
		want     string
	}{
		{good.ID, last.ID, "~ default 5 default 8"},
		{last.ID, good.ID, "~ default 8 default 5"},
		{good.ID, last.ID + 1, "- default 5\n" + plus},
		{last.ID + 1, good.ID, "+ default 5\n" + minus},
		{first.ID, last.ID + 1, "- default 5"},
	} {
		list, err := s.Diff(ctx, c.from, c.to)
		if got := strings.Join(sides(list), "\n"); err != nil || got != c.want {
			t.Errorf("Diff(%d, %d) = %q, %v, want %q", c.from, c.to, got, err, c.want)
		}
	}
	for id, want := range map[int64]string{
		good.ID: "default 5, GET /v1/items/{id} 3",
		last.ID: "default 8, GET /v1/items/{id} 3",
	} {
		doc, err := s.At(ctx, id)
		if got := inOrder(doc.Rules); err != nil || got != want {
			t.Errorf("At(%d) = %s, %v, want %s", id, got, err, want)
		}
	}
	if _, err := s.At(ctx, first.ID); err == nil ||
		!strings.Contains(err.Error(), `rule for "default" per principal is no rule (expires_at is -7`) {
		t.Errorf("At(%d) = %v, want it to say that there was no rule", first.ID, err)
	}
	if err := s.Set(ctx, ann, policy.Rule{Endpoint: policy.UnknownEndpoint, Limit: 2}); err != nil &&
		!strings.Contains(err.Error(), "DELETE FROM policies WHERE rowid = ") {
		t.Errorf("Set beside it = %v, want it done, or what mends it", err)
	}
	if _, err := s.Rollback(ctx, ann, good.ID, 0); err != nil {
		t.Fatalf("Rollback = %v", err)
	}
	doc, _, err := s.Load(ctx)
	if got := inOrder(doc.Rules); err != nil || got != "default 5, GET /v1/items/{id} 3" {
		t.Errorf("rolled back to %s, %v", got, err)
	}
}

// What only SQLite lets into its tables: long words that begin alike, blobs, and
// nothing where an endpoint should be.
func TestBadKeysOfSQLite(t *testing.T) {
	s, ctx := open(t), t.Context()
	db := shell(t, s.Path())
	must(t, s.Set(ctx, ann, items(3)))
	must(t, s.SetTier(ctx, ann, "acme", "gold"))
	good, err := s.Current(ctx)
	must(t, err)
	run(t, db, "PRAGMA ignore_check_constraints = ON")
	long := strings.Repeat("x", 200)
	for _, insert := range []string{
		"INSERT INTO policies (endpoint, rps_limit, subject) VALUES ('default', 4, '" + long + "a')",
		"INSERT INTO policies (endpoint, rps_limit, subject) VALUES ('default', 4, '" + long + "b')",
		"INSERT INTO policies (endpoint, rps_limit) VALUES ('', 4)",
		"INSERT INTO policies (endpoint, rps_limit, project_id) VALUES ('default', 4, x'00ff')",
		"INSERT INTO projects (project_id, tier) VALUES (x'00ff', 'gold')",
	} {
		run(t, db, insert)
	}
	must(t, s.Number(ctx))
	list, err := s.Changes(ctx, good.ID+1)
	tiers := slices.DeleteFunc(slices.Clone(list), func(c record.Change) bool { return c.After != nil })
	rows := slices.DeleteFunc(slices.Clone(list), func(c record.Change) bool { return c.After == nil })
	if got := sides(rows); err != nil || len(got) != 4 || strings.Count(strings.Join(got, "\n"),
		"+ default 4 (") != 3 || !strings.Contains(strings.Join(got, "\n"), `+ "" 4 (endpoint is ""`) {
		t.Errorf("rows %q, %v, want four that are no rules", got, err)
	}
	if len(tiers) != 1 || tiers[0].Project != "a blob of 2 bytes" || tiers[0].TierAfter != "gold" ||
		!strings.HasPrefix(tiers[0].FaultAfter, "project_id is a blob of 2 bytes, want") {
		t.Errorf("tiers %+v, want that of no project", tiers)
	}
	if _, _, err := s.Load(ctx); err == nil || !strings.Contains(err.Error(), `endpoint is "", want a template`) {
		t.Errorf("Load = %v, want it to name the row without an endpoint", err)
	}
	if doc, err := s.At(ctx, good.ID); err != nil || inOrder(doc.Rules) != "GET /v1/items/{id} 3" ||
		len(doc.Projects) != 1 {
		t.Errorf("At(%d) = %+v, %v", good.ID, doc, err)
	}
	if _, err := s.At(ctx, good.ID+1); err == nil || strings.Count(err.Error(), "is no rule (") != 4 {
		t.Errorf("At(%d) = %v, want four faults, of rows that differ", good.ID+1, err)
	}
	_, err = s.Rollback(ctx, ann, good.ID, 0)
	must(t, err)
	if list, err := s.Diff(ctx, good.ID, good.ID+2); err != nil || len(list) != 0 {
		t.Errorf("rolled back, and different are %+v, %v", list, err)
	}
}

// sides writes changes as a story: what there was, what there is, and of a row
// that is no rule the first words of why.
func sides(list []record.Change) (texts []string) {
	side := func(r *policy.Rule, fault string) string {
		text := describeRule(*r)
		if fault, _, _ = strings.Cut(fault, ", want"); fault != "" {
			text += " (" + fault + ")"
		}
		return text
	}
	for _, c := range list {
		switch {
		case c.Before == nil:
			texts = append(texts, "+ "+side(c.After, c.FaultAfter))
		case c.After == nil:
			texts = append(texts, "- "+side(c.Before, c.FaultBefore))
		default:
			texts = append(texts, "~ "+side(c.Before, c.FaultBefore)+" "+side(c.After, c.FaultAfter))
		}
	}
	return texts
}

func describeRule(r policy.Rule) string { return fmt.Sprintf("%s %d", r.Endpoint, r.Limit) }

// inOrder writes rules in the order of their endpoints.
func inOrder(rules []policy.Rule) string {
	var texts []string
	for _, r := range rules {
		texts = append(texts, describeRule(r))
	}
	slices.SortFunc(texts, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return strings.Join(texts, ", ")
}
