package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/store"
)

var (
	ann = store.Author{Actor: "local:ann", Why: "more for acme"}
	bob = store.Author{Actor: "token ops", Claimed: "bob"}
)

func items(limit int64) policy.Rule {
	return policy.Rule{Endpoint: "GET /v1/items/{id}", Limit: limit, Per: time.Second}
}

func TestEveryChangeIsAVersion(t *testing.T) { everywhere(t, testEveryChangeIsAVersion) }

func testEveryChangeIsAVersion(t *testing.T, d database) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Set(ctx, ann, items(5)))
	must(t, s.Set(ctx, bob, items(50)))
	must(t, s.Set(ctx, bob, items(50))) // changes nothing
	must(t, s.SetTier(ctx, bob, "acme", "gold"))
	must(t, s.Set(ctx, bob, full))
	must(t, s.Delete(ctx, ann, store.KeyOf(items(1))))
	_, err := s.Apply(ctx, bob, store.Edit{Set: []policy.Rule{items(7), {Endpoint: policy.Default, Limit: 1}}, Delete: []store.RuleKey{store.KeyOf(full)}, Tiers: map[string]string{"acme": "", "b": "free"}})
	must(t, err)

	checkHistory(t, s, []string{
		"7 token ops/bob apply +3 ~0 -2",
		"6 local:ann delete +0 ~0 -1 (more for acme)",
		"5 token ops/bob set +1 ~0 -0",
		"4 token ops/bob tier +1 ~0 -0",
		"3 token ops/bob set +0 ~1 -0",
		"2 local:ann set +1 ~0 -0 (more for acme)",
		"1 headgate start +0 ~0 -0",
	})
	five, fifty := items(5), items(50)
	for version, want := range [][]store.Change{
		3: {{Before: &five, After: &fifty}},
		4: {{Project: "acme", TierAfter: "gold"}},
		6: {{Before: &fifty}},
	} {
		if want == nil {
			continue
		}
		if got, err := s.Changes(ctx, int64(version)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Changes(%d) = %+v, %v, want %+v", version, got, err, want)
		}
	}
	if got, err := s.Diff(ctx, 5, 2); err != nil || !reflect.DeepEqual(got, []store.Change{{Before: &fifty, After: &five}, {Before: &full}, {Project: "acme", TierBefore: "gold"}}) {
		t.Errorf("Diff(5, 2) = %+v, %v", got, err)
	}
	checkReproducible(t, s)
}

func checkHistory(t testing.TB, s *store.Store, want []string) {
	t.Helper()
	list, err := s.History(t.Context(), 0, 1000)
	must(t, err)
	got := make([]string, len(list))
	for i, v := range list {
		got[i] = fmt.Sprintf("%d %s", v.ID, v.Actor)
		if v.Claimed != "" {
			got[i] += "/" + v.Claimed
		}
		got[i] += fmt.Sprintf(" %s +%d ~%d -%d", v.Action, v.Added, v.Changed, v.Removed)
		if v.Of != 0 {
			got[i] += fmt.Sprintf(" of %d", v.Of)
		}
		if v.Why != "" {
			got[i] += " (" + v.Why + ")"
		}
		if ago := time.Since(v.At); ago < -2*time.Second || ago > time.Minute {
			t.Errorf("version %d was made at %v", v.ID, v.At)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("History =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// standing is the rules and tiers of a version.
type standing struct {
	rules map[store.RuleKey]policy.Rule
	tiers map[string]string
}

func (s standing) clone() standing { return standing{maps.Clone(s.rules), maps.Clone(s.tiers)} }

// checkReproducible compares every version, as it is found by walking back from
// today, with the changes from the first on: neither is made from the other. It
// returns the states of all versions; that of version 0 is empty. Of a long
// history, some are found so, and those between them as the difference from the
// last, because each way back is as long as the history since.
func checkReproducible(t testing.TB, s *store.Store) []standing {
	t.Helper()
	return checkReproducibleSince(t, s, 0, standing{map[store.RuleKey]policy.Rule{}, map[string]string{}})
}

// checkReproducibleSince is checkReproducible from one version on, whose state is
// known. The states before it are empty.
func checkReproducibleSince(t testing.TB, s *store.Store, since int64, then standing) []standing {
	t.Helper()
	ctx := t.Context()
	must(t, s.Number(ctx))
	now, err := s.Current(ctx)
	must(t, err)
	states := make([]standing, since+1)
	states[since] = then
	versions, err := s.History(ctx, 0, int(now.ID))
	must(t, err)
	counted := map[int64][3]int{}
	for _, v := range versions {
		counted[v.ID] = [3]int{v.Added, v.Changed, v.Removed}
	}
	found, foundAt := then, since
	for v := since + 1; v <= now.ID; v++ {
		next := states[v-1].clone()
		changes, err := s.Changes(ctx, v)
		must(t, err)
		if got := countOf(changes); got != counted[v] {
			t.Errorf("version %d is said to have added, changed and removed %v, its changes come to %v", v, counted[v], got)
		}
		for _, c := range changes {
			replay(t, v, next, c)
		}
		states = append(states, next)
		then := found.clone()
		if v < 20 || v%25 == 0 || v > now.ID-20 {
			then = stateAt(t, s, v)
			found, foundAt = then, v
		} else {
			changes, err := s.Diff(ctx, foundAt, v)
			must(t, err)
			for _, c := range changes {
				replay(t, v, then, c)
			}
		}
		if !reflect.DeepEqual(then, next) {
			t.Fatalf("version %d is %+v, the changes up to there come to %+v", v, then, next)
		}
	}
	doc, err := s.Export(ctx)
	must(t, err)
	if len(doc.Rules) != len(states[now.ID].rules) || doc.Number != now.ID {
		t.Errorf("there are %d rules of version %d, and the changes come to %d of version %d", len(doc.Rules), doc.Number, len(states[now.ID].rules), now.ID)
	}
	return states
}

// countOf is how many rules and tiers changes add, change and remove.
func countOf(changes []store.Change) (n [3]int) {
	for _, c := range changes {
		switch {
		case c.Before == nil && c.TierBefore == "":
			n[0]++
		case c.After == nil && c.TierAfter == "":
			n[2]++
		default:
			n[1]++
		}
	}
	return n
}

func stateAt(t testing.TB, s *store.Store, v int64) standing {
	t.Helper()
	doc, err := s.At(t.Context(), v)
	if err != nil {
		t.Fatalf("At(%d): %v", v, err)
	}
	then := standing{map[store.RuleKey]policy.Rule{}, doc.Projects}
	for _, r := range doc.Rules {
		then.rules[store.KeyOf(r)] = r
	}
	if len(then.rules) != len(doc.Rules) {
		t.Fatalf("At(%d) has a rule twice: %+v", v, doc.Rules)
	}
	return then
}

func replay(t testing.TB, v int64, to standing, c store.Change) {
	t.Helper()
	rules, tiers := to.rules, to.tiers
	if c.Before == nil && c.After == nil {
		if tiers[c.Project] != c.TierBefore {
			t.Errorf("version %d changes tier %q of %s, which was in %q", v, c.TierBefore, c.Project, tiers[c.Project])
		}
		if delete(tiers, c.Project); c.TierAfter != "" {
			tiers[c.Project] = c.TierAfter
		}
		return
	}
	if c.Before != nil {
		if was, ok := rules[store.KeyOf(*c.Before)]; !ok || was != *c.Before {
			t.Errorf("version %d changes %+v, which was %+v", v, c.Before, was)
		}
		delete(rules, store.KeyOf(*c.Before))
	}
	if c.After != nil {
		if was, ok := rules[store.KeyOf(*c.After)]; ok {
			t.Errorf("version %d adds %+v, where %+v is", v, c.After, was)
		}
		rules[store.KeyOf(*c.After)] = *c.After
	}
}

// Of two who have seen the same version, the second does not undo what the
// first did.
func TestConflict(t *testing.T) { everywhere(t, testConflict) }

func testConflict(t *testing.T, d database) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Set(ctx, ann, items(5)))
	base, err := s.Current(ctx)
	must(t, err)
	_, err = s.Apply(ctx, ann, store.Edit{Base: base.ID, Set: []policy.Rule{items(6)}})
	must(t, err)
	run(t, d.shell(t), "UPDATE policies SET burst = 9")

	_, err = s.Apply(ctx, bob, store.Edit{Base: base.ID, Set: []policy.Rule{items(7)}})
	var conflict *store.Conflict
	if !errors.As(err, &conflict) || conflict.Base != 2 || conflict.Current.ID != 4 || len(conflict.Since) != 2 || conflict.Since[1].Actor != ann.Actor {
		t.Errorf("Apply of an edit of an old version = %v (%+v), want a Conflict", err, conflict)
	}
	if _, err = s.Apply(ctx, bob, store.Edit{Base: 99, Set: []policy.Rule{items(7)}}); !errors.As(err, &conflict) || !strings.Contains(err.Error(), "which there is not") {
		t.Errorf("Apply of an edit of a version to come = %v", err)
	}
	if v, err := s.Apply(ctx, bob, store.Edit{Base: 4, Set: []policy.Rule{items(7)}}); err != nil || v.ID != 5 || v.Changed != 1 {
		t.Errorf("Apply of an edit of the current version = %+v, %v", v, err)
	}
	checkReproducible(t, s)
}

// Rules go by more than one statement, those that stay and those in other
// places untouched.
func TestRollbackOfManyRules(t *testing.T) { everywhere(t, testRollbackOfManyRules) }

func testRollbackOfManyRules(t *testing.T, d database) {
	s, ctx := d.open(t), t.Context()
	who := store.Author{Actor: "ann"}
	kept := []policy.Rule{{Endpoint: policy.Default, Limit: 1}, {Endpoint: "GET /7/{id}", Project: "other", Limit: 2}}
	first, err := s.Apply(ctx, who, store.Edit{Set: kept, Replace: true})
	if err != nil {
		t.Fatal(err)
	}
	var many []policy.Rule
	for i := range 601 { // two statements of 250 and some
		many = append(many, policy.Rule{Endpoint: fmt.Sprintf("GET /%d/{id}", i), Tier: "gold", Limit: 3})
		many[i].Subject = policy.Subject(i % 2)
	}
	if _, err := s.Apply(ctx, who, store.Edit{Set: many}); err != nil {
		t.Fatal(err)
	}
	back, err := s.Rollback(ctx, who, first.ID, first.ID+1)
	if err != nil || back.Removed != len(many) {
		t.Fatalf("Rollback = %+v, %v, want %d rules removed", back, err, len(many))
	}
	left, err := s.List(ctx)
	if err != nil || len(left) != len(kept) {
		t.Errorf("%d rules are left, %v, want the %d from before", len(left), err, len(kept))
	}
	for _, r := range kept {
		if _, err := s.Get(ctx, store.KeyOf(r)); err != nil {
			t.Errorf("Get(%v) = %v", store.KeyOf(r), err)
		}
	}
}

func TestRollback(t *testing.T) { everywhere(t, testRollback) }

func testRollback(t *testing.T, d database) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Import(ctx, ann, policy.Document{Rules: []policy.Rule{items(5), full}, Projects: map[string]string{"acme": "gold"}}, false))
	want, err := s.Export(ctx)
	must(t, err)
	must(t, s.Import(ctx, bob, policy.Document{Rules: []policy.Rule{items(6), {Endpoint: policy.Default, Limit: 1}}, Projects: map[string]string{"b": "free"}}, true))

	var conflict *store.Conflict
	if _, err := s.Rollback(ctx, ann, 2, 2); !errors.As(err, &conflict) {
		t.Errorf("Rollback on an old base = %v, want a Conflict", err)
	}
	v, err := s.Rollback(ctx, ann, 2, 3)
	if err != nil || v.ID != 4 || v.Of != 2 || v.Added != 2 || v.Changed != 1 || v.Removed != 2 {
		t.Errorf("Rollback = %+v, %v", v, err)
	}
	got, err := s.Export(ctx)
	must(t, err)
	want.Number = 4
	if !reflect.DeepEqual(got, want) {
		t.Errorf("after Rollback, Export = %+v, want %+v", got, want)
	}
	if v, err := s.Rollback(ctx, ann, 2, 0); err != nil || v.ID != 4 {
		t.Errorf("a Rollback that changes nothing = %+v, %v, want the current version", v, err)
	}
	if _, err := s.Rollback(ctx, ann, 1, 0); err == nil || !strings.Contains(err.Error(), "want at least one rule") {
		t.Errorf("Rollback to no rules = %v, want a refusal", err)
	}
	if _, err := s.Rollback(ctx, ann, 17, 0); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Rollback to a version that never was = %v", err)
	}
	checkReproducible(t, s)
}

func TestApplyRefuses(t *testing.T) {
	s, ctx := open(t), t.Context()
	must(t, s.Set(ctx, ann, items(5)))
	refused := errors.New("no")
	check := func(before, after policy.Document) error {
		if len(before.Rules) != 1 || len(after.Rules) != 2 {
			t.Errorf("Check is told %+v and %+v", before, after)
		}
		return refused
	}
	tests := []struct {
		name   string
		author store.Author
		edit   store.Edit
		want   string
	}{
		{"nobody", store.Author{}, store.Edit{}, "author: actor is empty"},
		{"a novel", store.Author{Actor: "a", Why: strings.Repeat("x", 501)}, store.Edit{}, "why is 501 bytes long, want at most 500"},
		{"two lines", store.Author{Actor: "a", Why: "x\ny"}, store.Edit{}, "want one line of printable text"},
		{"backwards", store.Author{Actor: "a", Claimed: "\u202enna"}, store.Edit{}, "want one line of printable text"},
		{"both", ann, store.Edit{Set: []policy.Rule{items(1)}, Delete: []store.RuleKey{store.KeyOf(items(1))}}, "both set and deleted"},
		{"nothing", ann, store.Edit{Replace: true}, "want at least one rule"},
		{"what is not there", ann, store.Edit{Set: []policy.Rule{items(6)}, Delete: []store.RuleKey{store.KeyOf(full)}}, "not found"},
		{"Check", ann, store.Edit{Set: []policy.Rule{full}, Check: check}, "no"},
	}
	for _, tt := range tests {
		if _, err := s.Apply(ctx, tt.author, tt.edit); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Apply = %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, err := s.Apply(ctx, ann, store.Edit{Set: []policy.Rule{full}, Check: check}); !errors.Is(err, refused) || err.Error() != "no" {
		t.Errorf("Apply that Check refuses = %v, want its error", err)
	}
	checkHistory(t, s, []string{"2 local:ann set +1 ~0 -0 (more for acme)", "1 headgate start +0 ~0 -0"})
}

// What somebody's shell changes is in the history, whatever words it uses.
func TestSQLIsRecorded(t *testing.T) { everywhere(t, testSQLIsRecorded) }

func testSQLIsRecorded(t *testing.T, d database) {
	one := `INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /1', 1)`
	two := `INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /1', 1), ('GET /2', 2)`
	tests := map[string][]struct {
		statements string
		want       string // of the last
	}{
		"": {
			{one, "+1 ~0 -0"},
			{two, "+2 ~0 -0"},
			{two + `; UPDATE policies SET rps_limit = 9`, "+0 ~2 -0"},
			{two + `; UPDATE policies SET rps_limit = 9, endpoint = concat(endpoint, 'x')`, "+2 ~0 -2"},
			{two + `; UPDATE policies SET updated_at = 7`, ""},
			{two + `; UPDATE policies SET rps_limit = rps_limit`, ""},
			{two + `; DELETE FROM policies WHERE rps_limit = 2`, "+0 ~0 -1"},
			{two + `; DELETE FROM policies`, "+0 ~0 -2"},
			{one + `; INSERT INTO policies (endpoint, rps_limit) SELECT concat(endpoint, '/a'), 5 FROM policies`, "+1 ~0 -0"},
			{one + `; UPDATE policies SET expires_at = 2000000000`, "+1 ~0 -1"},
			{`INSERT INTO projects (project_id, tier) VALUES ('p', 'a'), ('q', 'b')`, "+2 ~0 -0"},
			{`INSERT INTO projects (project_id, tier) VALUES ('p', 'a'), ('q', 'b'); UPDATE projects SET tier = 'b'`, "+0 ~1 -0"},
			{`INSERT INTO projects (project_id, tier) VALUES ('p', 'a'); UPDATE projects SET project_id = 'r'`, "+1 ~0 -1"},
			{`INSERT INTO projects (project_id, tier) VALUES ('p', 'a'); DELETE FROM projects`, "+0 ~0 -1"},
			{one + `; BEGIN; UPDATE policies SET rps_limit = 2; UPDATE policies SET rps_limit = 3; DELETE FROM policies; ` + two + `; COMMIT`, "+1 ~0 -0"},
			{one + `; BEGIN; DELETE FROM policies; ROLLBACK`, ""},
		},
		"SQLite": {
			{two + `; INSERT OR REPLACE INTO policies (endpoint, rps_limit) VALUES ('GET /1', 5), ('GET /3', 5)`, "+1 ~1 -0"},
			{two + `; REPLACE INTO policies (rowid, endpoint, rps_limit) SELECT rowid, 'GET /7', 7 FROM policies WHERE rps_limit = 1`, "+1 ~0 -1"},
			{two + `; REPLACE INTO policies (rowid, endpoint, rps_limit) SELECT rowid, 'GET /2', 7 FROM policies WHERE rps_limit = 1`, "+0 ~1 -1"},
			{two + `; PRAGMA recursive_triggers = 1; REPLACE INTO policies (rowid, endpoint, rps_limit) SELECT rowid, 'GET /2', 7 FROM policies WHERE rps_limit = 1; PRAGMA recursive_triggers = 0`, "+0 ~1 -1"},
			{two + `; PRAGMA recursive_triggers = 1; UPDATE OR REPLACE policies SET endpoint = 'GET /2' WHERE rps_limit = 1; PRAGMA recursive_triggers = 0`, "+0 ~1 -1"},
			{two + `; INSERT OR IGNORE INTO policies (endpoint, rps_limit) VALUES ('GET /1', 5), ('GET /3', 5)`, "+1 ~0 -0"},
			{one + `; INSERT OR IGNORE INTO policies (endpoint, rps_limit) VALUES ('GET /1', 5)`, ""},
			{one + `; INSERT OR IGNORE INTO policies (endpoint, rps_limit) VALUES ('GET /1', 5); UPDATE policies SET rps_limit = 8`, "+0 ~1 -0"},
			{one + `; INSERT OR IGNORE INTO policies (endpoint, rps_limit) VALUES ('GET /1', 5); DELETE FROM policies`, "+0 ~0 -1"},
			{two + `; INSERT OR FAIL INTO policies (endpoint, rps_limit) VALUES ('GET /3', 5)`, "+1 ~0 -0"},
			{two + `; INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /1', 5), ('GET /3', 5)
				ON CONFLICT (endpoint, coalesce(project_id, ''), coalesce(tier, ''), subject, (CASE WHEN expires_at IS NULL THEN '' ELSE 'until' END)) DO UPDATE SET rps_limit = excluded.rps_limit`, "+1 ~1 -0"},
			{two + `; INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /1', 5), ('GET /3', 5) ON CONFLICT DO NOTHING`, "+1 ~0 -0"},
			{two + `; UPDATE OR REPLACE policies SET endpoint = 'GET /2' WHERE rps_limit = 1`, "+0 ~1 -1"},
			{two + `; UPDATE OR REPLACE policies SET endpoint = 'GET /7'`, "+1 ~0 -2"},
			{two + `; UPDATE OR REPLACE policies SET rowid = (SELECT rowid FROM policies WHERE rps_limit = 2) WHERE rps_limit = 1`, "+0 ~0 -1"},
			{two + `; UPDATE OR IGNORE policies SET endpoint = 'GET /2' WHERE rps_limit = 1`, ""},
			{two + `; UPDATE OR IGNORE policies SET endpoint = 'GET /2' WHERE rps_limit = 1; UPDATE policies SET rps_limit = 8`, "+0 ~2 -0"},
			{two + `; UPDATE policies SET rowid = rowid + 100`, ""},
			{`INSERT INTO projects (project_id, tier) VALUES ('p', 'a'), ('q', 'b'); REPLACE INTO projects (project_id, tier) VALUES ('p', 'c')`, "+0 ~1 -0"},
			{`INSERT INTO projects (project_id, tier) VALUES ('p', 'a'), ('q', 'b'); INSERT OR IGNORE INTO projects (project_id, tier) VALUES ('p', 'c')`, ""},
			{`INSERT INTO projects (project_id, tier) VALUES ('p', 'a'), ('q', 'b'); UPDATE OR REPLACE projects SET project_id = 'q' WHERE tier = 'a'`, "+0 ~1 -1"},
		},
		"PostgreSQL": {
			{two + `; UPDATE policies SET rowid = DEFAULT`, ""},
			{two + `; UPDATE policies SET rowid = DEFAULT, rps_limit = rps_limit + 1 WHERE rps_limit = 1`, "+0 ~1 -0"},
			{two + `; TRUNCATE policies`, "+0 ~0 -2"},
			{two + `; INSERT INTO projects (project_id, tier) VALUES ('p', 'a'); TRUNCATE policies, projects`, "+0 ~0 -3"},
			{two + `; INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /1', 5), ('GET /3', 5)
				ON CONFLICT (endpoint, coalesce(project_id, ''), coalesce(tier, ''), subject, (CASE WHEN expires_at IS NULL THEN '' ELSE 'until' END)) DO UPDATE SET rps_limit = excluded.rps_limit`, "+1 ~1 -0"},
			{two + `; INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /1', 5), ('GET /3', 5) ON CONFLICT DO NOTHING`, "+1 ~0 -0"},
			{two + `; WITH gone AS (DELETE FROM policies WHERE rps_limit = 1 RETURNING *) INSERT INTO policies (endpoint, rps_limit) SELECT 'GET /9', 9 FROM gone`, "+1 ~0 -1"},
			{two + `; MERGE INTO policies p USING (VALUES ('GET /1', 5), ('GET /3', 5)) AS v(e, l) ON p.endpoint = v.e
				WHEN MATCHED THEN UPDATE SET rps_limit = v.l WHEN NOT MATCHED THEN INSERT (endpoint, rps_limit) VALUES (v.e, v.l)`, "+1 ~1 -0"},
		},
		"MariaDB": {
			{two + `; REPLACE INTO policies (endpoint, rps_limit) VALUES ('GET /1', 5), ('GET /3', 5)`, "+1 ~1 -0"},
			{two + `; REPLACE INTO policies (rowid, endpoint, rps_limit) SELECT rowid, 'GET /2', 7 FROM policies WHERE rps_limit = 1`, "+0 ~1 -1"},
			{two + `; INSERT IGNORE INTO policies (endpoint, rps_limit) VALUES ('GET /1', 5), ('GET /3', 5)`, "+1 ~0 -0"},
			{two + `; INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /1', 5), ('GET /3', 5) ON DUPLICATE KEY UPDATE rps_limit = VALUES(rps_limit)`, "+1 ~1 -0"},
			{two + `; UPDATE IGNORE policies SET endpoint = 'GET /2' WHERE rps_limit = 1`, ""},
			{two + `; UPDATE IGNORE policies SET rps_limit = 0 WHERE rps_limit = 1`, ""},
			{`INSERT INTO projects (project_id, tier) VALUES ('p', 'a'), ('q', 'b'); UPDATE IGNORE projects SET project_id = 'q' WHERE tier = 'a'`, ""},
			{two + `; UPDATE policies SET name = 'a'; UPDATE policies SET name = 'a '`, "+0 ~2 -0"},
		},
	}
	for _, kind := range []string{"", d.kind} {
		for _, tt := range tests[kind] {
			statements := tt.statements
			if d.kind == "SQLite" { // where concat is young
				statements = strings.NewReplacer("concat(endpoint, 'x')", "endpoint || 'x'", "concat(endpoint, '/a')", "endpoint || '/a'").Replace(statements)
			}
			t.Run(statements, func(t *testing.T) {
				checkSQL(t, d, statements, tt.want)
			})
		}
	}
	checkReproducible(t, d.open(t))
}

// checkSQL runs statements on an empty table, and compares what the last
// changes, or the last transaction, with want.
func checkSQL(t *testing.T, d database, statements, want string) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	run(t, db, "DELETE FROM policies", "DELETE FROM projects")
	must(t, s.Number(ctx))
	first, err := s.Current(ctx)
	must(t, err)
	begun := strings.Index(statements, "; BEGIN")
	list := strings.Split(statements, "; ")
	if begun >= 0 {
		list = []string{statements[:begun], statements[begun+2:]}
	}
	last := len(list) - 1
	for strings.HasPrefix(list[last], "PRAGMA") {
		last--
	}
	for i, statement := range list {
		if i == last {
			must(t, s.Number(ctx))
		}
		run(t, db, statement)
	}
	before, err := s.Current(ctx)
	must(t, err)
	must(t, s.Number(ctx))
	now, err := s.Current(ctx)
	must(t, err)
	got := ""
	if now.ID != before.ID {
		got = fmt.Sprintf("+%d ~%d -%d", now.Added, now.Changed, now.Removed)
		if actor := map[string]string{"SQLite": "sql", "PostgreSQL": "sql:shell", "MariaDB": "sql:root"}[d.kind]; now.Actor != actor || now.Action != store.ActionSQL || now.ID != before.ID+1 {
			t.Errorf("version %d after %d is %s by %s, want one, sql by %s", now.ID, before.ID, now.Action, now.Actor, actor)
		}
	}
	if want == "" && got == "+0 ~0 -0" {
		got = "" // a rule that moved to another row
	}
	if got != want {
		t.Errorf("changed %q, want %q", got, want)
	}
	checkReproducibleSince(t, s, first.ID, stateAt(t, s, first.ID))
}

// Load tells which version it has read, also after a shell's change, and who
// may only read leaves the numbering to others.
func TestLoadNumbers(t *testing.T) { everywhere(t, testLoadNumbers) }

func testLoadNumbers(t *testing.T, d database) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	must(t, s.Set(ctx, ann, items(5)))
	readOnly := openDSN(t, store.Options{DSN: d.dsn, ReadOnly: true})
	load := func(s *store.Store) int64 {
		t.Helper()
		doc, _, err := s.Load(ctx)
		must(t, err)
		return doc.Number
	}
	if got := load(s); got != 2 {
		t.Errorf("Load's version is %d, want 2", got)
	}
	run(t, db, "UPDATE policies SET rps_limit = 6")
	if got := load(readOnly); got != 0 {
		t.Errorf("Load's version, read-only and before there is one, is %d, want 0", got)
	}
	if v, err := readOnly.Pending(ctx); err != nil || v.ID != 0 || v.Changed != 1 || v.Action != store.ActionSQL {
		t.Errorf("Pending = %+v, %v, want the change", v, err)
	}
	if got := load(s); got != 3 {
		t.Errorf("Load's version is %d, want 3", got)
	}
	if got := load(readOnly); got != 3 {
		t.Errorf("Load's version, read-only, is %d, want 3", got)
	}
	if v, err := readOnly.Pending(ctx); err != nil || !v.At.IsZero() {
		t.Errorf("Pending = %+v, %v, want nothing", v, err)
	}
}

// Neither we nor a slip of the shell changes what was written.
func TestHistoryIsAppendOnly(t *testing.T) { everywhere(t, testHistoryIsAppendOnly) }

func testHistoryIsAppendOnly(t *testing.T, d database) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	for i := range 5 {
		must(t, s.Set(ctx, ann, items(int64(i+1))))
	}
	refused := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := db.ExecContext(ctx, statement); err == nil || !strings.Contains(err.Error(), "append-only") {
				t.Errorf("%s = %v, want a refusal", statement, err)
			}
		}
	}
	refused("UPDATE policy_changes SET rps_limit = 3", "DELETE FROM policy_changes", "UPDATE policy_versions SET actor = 'x'", "DELETE FROM policy_versions")
	removed, err := s.Forget(ctx, bob, 4)
	if err != nil || removed != 3 {
		t.Errorf("Forget = %d, %v, want 3 changes", removed, err)
	}
	refused("DELETE FROM policy_changes", "UPDATE policy_forgotten SET last_change = 99", "DELETE FROM policy_forgotten")
	if d.kind == "PostgreSQL" {
		refused("TRUNCATE policy_changes", "TRUNCATE policy_versions")
	}
	for version, want := range map[int64]int64{3: 2, 4: 3, 6: 5} { // the state before the oldest that is kept, too
		if doc, err := s.At(ctx, version); err != nil || doc.Rules[0].Limit != want {
			t.Errorf("At(%d) = %+v, %v, want limit %d", version, doc.Rules, err, want)
		}
	}
	for what, call := range map[string]func(context.Context, int64) error{
		"At":      func(ctx context.Context, v int64) error { _, err := s.At(ctx, v); return err },
		"Changes": func(ctx context.Context, v int64) error { _, err := s.Changes(ctx, v); return err },
		"Diff":    func(ctx context.Context, v int64) error { _, err := s.Diff(ctx, v, 6); return err },
	} {
		if err := call(ctx, 2); !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), "token ops gave up the changes before it") {
			t.Errorf("%s(2) = %v, want it to say who gave up what", what, err)
		}
	}
	if list, err := s.History(ctx, 0, 100); err != nil || len(list) != 6 {
		t.Errorf("History = %d versions, %v, want all 6", len(list), err)
	}
}

// Who gets past the triggers is found out.
func TestHistoryTellsWhatItDoesNotKnow(t *testing.T) {
	everywhere(t, testHistoryTellsWhatItDoesNotKnow)
}

func testHistoryTellsWhatItDoesNotKnow(t *testing.T, d database) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	must(t, s.Set(ctx, ann, items(5)))
	must(t, s.Set(ctx, ann, items(6)))
	must(t, s.Set(ctx, ann, full))
	switch d.kind {
	case "SQLite":
		run(t, db, "DROP TRIGGER policies_after_delete", "DELETE FROM policies")
	case "PostgreSQL":
		run(t, db, "SET session_replication_role = replica", "DELETE FROM policies")
	case "MariaDB":
		run(t, db, "TRUNCATE policies")
	}
	_, err := s.At(ctx, 2)
	if err == nil || !strings.Contains(err.Error(), `rule for "GET /v1/items/{id}" per principal is not what the history says`) {
		t.Errorf("At = %v, want it to say what it does not know", err)
	}
}

// A row that got past the checks was in the table, and is in the history as what
// it is. Versions without it are as they were.
func TestHistoryOfWhatIsNoRule(t *testing.T) { everywhere(t, testHistoryOfWhatIsNoRule) }

func testHistoryOfWhatIsNoRule(t *testing.T, d database) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: policy.Default, Limit: 5}))
	good, err := s.Current(ctx)
	must(t, err)
	unchecked(t, d, db)
	run(t, db, "INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /x', -7)")
	if v, err := s.Pending(ctx); err != nil || v.Added != 1 {
		t.Errorf("Pending = %+v, %v, want one that was added", v, err)
	}
	must(t, s.Number(ctx))
	run(t, db, "DELETE FROM policies WHERE endpoint = 'GET /x'")
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: policy.Default, Limit: 6}))
	list, err := s.History(ctx, 0, 10)
	if err != nil || len(list) < 4 || list[0].Changed != 1 || list[1].Removed != 1 || list[2].Added != 1 {
		t.Fatalf("History = %+v, %v, want the change, what was removed and what was added", list, err)
	}
	for _, step := range []struct {
		version int64
		added   bool
	}{{good.ID + 1, true}, {good.ID + 2, false}} {
		changes, err := s.Changes(ctx, step.version)
		if err != nil || len(changes) != 1 || (changes[0].Before == nil) != step.added || !strings.HasPrefix(changes[0].FaultBefore+changes[0].FaultAfter, "rps_limit is -7, want") ||
			(changes[0].FaultBefore == "") != step.added {
			t.Errorf("Changes(%d) = %+v, %v, want what is wrong with it", step.version, changes, err)
		}
	}
	if changes, err := s.Diff(ctx, good.ID, good.ID+3); err != nil || len(changes) != 1 || changes[0].FaultBefore+changes[0].FaultAfter != "" || changes[0].After.Limit != 6 {
		t.Errorf("Diff around it = %+v, %v, want the change of default alone", changes, err)
	}
	if doc, err := s.At(ctx, good.ID); err != nil || len(doc.Rules) != 1 || doc.Rules[0].Limit != 5 {
		t.Errorf("At(%d) = %+v, %v, want the rules from before it", good.ID, doc.Rules, err)
	}
	if _, err := s.At(ctx, good.ID+1); err == nil || !strings.Contains(err.Error(), `rule for "GET /x" per principal is no rule (rps_limit is -7`) {
		t.Errorf("At(%d) = %v, want it to say that there was no rule", good.ID+1, err)
	}
}

// A sound rule that was made a bad one is told apart from it, and what cannot be
// read of the bad one is left out.
func TestHistoryTellsWhichSideIsNoRule(t *testing.T) {
	everywhere(t, testHistoryTellsWhichSideIsNoRule)
}

func testHistoryTellsWhichSideIsNoRule(t *testing.T, d database) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: policy.Default, Limit: 5, Per: time.Minute, Name: "n"}))
	good, err := s.Current(ctx)
	must(t, err)
	unchecked(t, d, db)
	for _, limit := range []string{"-4", "-6"} {
		run(t, db, "UPDATE policies SET rps_limit = "+limit)
		must(t, s.Number(ctx))
	}
	must(t, s.Set(ctx, tester, policy.Rule{Endpoint: policy.Default, Limit: 5, Per: time.Minute, Name: "n"}))
	want := func(limit int64) *policy.Rule {
		return &policy.Rule{Endpoint: policy.Default, Limit: limit, Per: time.Minute, Name: "n"}
	}
	const four, six = "rps_limit is -4, want a whole number of 1 or more", "rps_limit is -6, want a whole number of 1 or more"
	for n, c := range []store.Change{
		{Before: want(5), After: want(0), FaultAfter: four},
		{Before: want(0), After: want(0), FaultBefore: four, FaultAfter: six},
		{Before: want(0), After: want(5), FaultBefore: six},
	} {
		changes, err := s.Changes(ctx, good.ID+1+int64(n))
		if err != nil || len(changes) != 1 || fmt.Sprint(describe(changes[0])) != fmt.Sprint(describe(c)) {
			t.Errorf("Changes(%d) = %v, %v, want %v", good.ID+1+int64(n), describe(changes[0]), err, describe(c))
		}
	}
	back, err := s.Diff(ctx, good.ID+1, good.ID)
	if c := (store.Change{Before: want(0), After: want(5), FaultBefore: four}); err != nil || len(back) != 1 || fmt.Sprint(describe(back[0])) != fmt.Sprint(describe(c)) {
		t.Errorf("Diff back = %+v, %v, want %v", back, err, describe(c))
	}
}

// describe is a change without pointers.
func describe(c store.Change) []any {
	return []any{*c.Before, *c.After, c.FaultBefore, c.FaultAfter}
}

// unchecked lets a shell write what the checks of the table refuse.
func unchecked(t *testing.T, d database, db *sql.DB) {
	t.Helper()
	switch d.kind {
	case "SQLite":
		run(t, db, "PRAGMA ignore_check_constraints = ON")
	case "PostgreSQL":
		run(t, db, "ALTER TABLE policies DROP CONSTRAINT policies_rps_limit_check")
	case "MariaDB":
		if _, err := db.Exec("SET check_constraint_checks = OFF"); err != nil { // MySQL's way
			var name string
			must(t, db.QueryRow(`SELECT constraint_name FROM information_schema.check_constraints
				WHERE constraint_schema = database() AND constraint_name LIKE 'policies_chk_%' AND check_clause LIKE '%rps_limit%'`).Scan(&name))
			run(t, db, "ALTER TABLE policies ALTER CHECK "+name+" NOT ENFORCED")
		}
	}
}
