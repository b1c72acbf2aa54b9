package database_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// What somebody's shell changes is in the history, whatever words it uses.
func TestSQLIsRecorded(t *testing.T) { everywhere(t, testSQLIsRecorded) }

func testSQLIsRecorded(t *testing.T, d someDatabase) {
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
			{one +
				`; BEGIN; UPDATE policies SET rps_limit = 2; UPDATE policies SET rps_limit = 3; DELETE FROM policies; ` + two + `; COMMIT`, "+1 ~0 -0"},
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
				statements = strings.NewReplacer("concat(endpoint, 'x')", "endpoint || 'x'", "concat(endpoint, '/a')",
					"endpoint || '/a'").Replace(statements)
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
func checkSQL(t *testing.T, d someDatabase, statements, want string) {
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
		if actor := map[string]string{"SQLite": "sql", "PostgreSQL": "sql:shell",
			"MariaDB": "sql:root"}[d.kind]; now.Actor != actor || now.Action != record.ActionSQL ||
			now.ID != before.ID+1 {
			t.Errorf("version %d after %d is %s by %s, want one, sql by %s", now.ID, before.ID, now.Action,
				now.Actor, actor)
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

func testLoadNumbers(t *testing.T, d someDatabase) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	must(t, s.Set(ctx, ann, items(5)))
	readOnly := openDSN(t, database.Options{DSN: d.dsn, ReadOnly: true, NoNotify: d.quiet})
	load := func(s *database.Store) int64 {
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
	if v, err := readOnly.Pending(ctx); err != nil || v.ID != 0 || v.Changed != 1 || v.Action != record.ActionSQL {
		t.Errorf("Pending = %+v, %v, want the change", v, err)
	}
	// A load numbers what it finds if that is done soon, and leaves it to the next one on a machine that is too busy.
	eventually(t, "a load numbers the change", func() bool { return load(s) == 3 })
	if got := load(readOnly); got != 3 {
		t.Errorf("Load's version, read-only, is %d, want 3", got)
	}
	if v, err := readOnly.Pending(ctx); err != nil || !v.At.IsZero() {
		t.Errorf("Pending = %+v, %v, want nothing", v, err)
	}
}

// Neither we nor a slip of the shell changes what was written.
func TestHistoryIsAppendOnly(t *testing.T) { everywhere(t, testHistoryIsAppendOnly) }

func testHistoryIsAppendOnly(t *testing.T, d someDatabase) {
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
	refused("UPDATE policy_changes SET rps_limit = 3", "DELETE FROM policy_changes",
		"UPDATE policy_versions SET actor = 'x'", "DELETE FROM policy_versions")
	removed, err := s.Forget(ctx, bob, 4)
	if err != nil || removed != 3 {
		t.Errorf("Forget = %d, %v, want 3 changes", removed, err)
	}
	refused("DELETE FROM policy_changes", "UPDATE policy_forgotten SET last_change = 99",
		"DELETE FROM policy_forgotten")
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
		if err := call(ctx, 2); !errors.Is(err, record.ErrNotFound) ||
			!strings.Contains(err.Error(), "token ops gave up the changes before it") {
			t.Errorf("%s(2) = %v, want it to say who gave up what", what, err)
		}
	}
	if list, err := s.History(ctx, 0, 100); err != nil || len(list) != 6 {
		t.Errorf("History = %d versions, %v, want all 6", len(list), err)
	}
}

// unchecked lets a shell write what the checks of the table refuse in columns.
func unchecked(t *testing.T, d someDatabase, db *sql.DB, columns ...string) {
	t.Helper()
	switch d.kind {
	case "SQLite":
		run(t, db, "PRAGMA ignore_check_constraints = ON")
	case "PostgreSQL":
		for _, column := range columns {
			run(t, db, "ALTER TABLE policies DROP CONSTRAINT policies_"+column+"_check")
		}
	case "MariaDB":
		if _, err := db.Exec("SET check_constraint_checks = OFF"); err == nil {
			return
		}
		for _, column := range columns { // MySQL's way
			var name string
			must(t, db.QueryRow(`SELECT constraint_name FROM information_schema.check_constraints
				WHERE constraint_schema = database() AND constraint_name LIKE 'policies_chk_%' AND check_clause LIKE ?`, "%"+column+"%").Scan(&name))
			run(t, db, "ALTER TABLE policies ALTER CHECK "+name+" NOT ENFORCED")
		}
	}
}
