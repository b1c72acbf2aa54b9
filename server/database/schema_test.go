package database_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/record"
)

// A newer headgate brings the database up to date while this one runs, and is
// taken back: what it wrote is not read, nothing is written beside it, and all
// goes on by itself afterwards.
func TestNewerSchemaWhileRunning(t *testing.T) { everywhere(t, testNewerSchemaWhileRunning) }

func testNewerSchemaWhileRunning(t *testing.T, d someDatabase) {
	s, ctx := d.open(t), t.Context()
	must(t, s.Import(ctx, tester, state(1), true))
	f := follow(t, s, whole)
	shell := d.shell(t)
	run(t, shell, "BEGIN; INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true); UPDATE policies "+
		"SET rps_limit = 9; COMMIT")
	f.keepsLastGood(t, "newer", 1, "was written by a newer headgate (schema 99, this one knows ")
	for what, err := range map[string]error{
		"Set":    s.Set(ctx, tester, full),
		"Delete": s.Delete(ctx, tester, record.KeyOf(full)),
		"Import": s.Import(ctx, tester, state(8), true),
	} {
		if err == nil || !strings.Contains(err.Error(), "was written by a newer headgate") {
			t.Errorf("%s in a newer schema: %v, want it refused", what, err)
		}
	}
	if _, _, err := s.Keys().Load(ctx); err == nil ||
		!strings.Contains(err.Error(), "was written by a newer headgate") {
		t.Errorf("the keys of a newer schema: %v, want them refused", err)
	}
	run(t, shell, "DELETE FROM goose_db_version WHERE version_id = 99")
	f.freshWith(t, "taken back", 9)
	must(t, s.Import(ctx, tester, state(2), true))
	f.freshWith(t, "a change after it", 2)
}

// All tables are gone for a while, and then there again.
func TestSchemaGoneWhileRunning(t *testing.T) { everywhere(t, testSchemaGoneWhileRunning) }

func testSchemaGoneWhileRunning(t *testing.T, d someDatabase) {
	away := map[string][2][]string{
		"SQLite": {
			{"ALTER TABLE policies RENAME TO policies_away", "ALTER TABLE goose_db_version RENAME TO goose_away"},
			{"ALTER TABLE policies_away RENAME TO policies", "ALTER TABLE goose_away RENAME TO goose_db_version"},
		},
		"PostgreSQL": {
			{"ALTER SCHEMA public RENAME TO away", "CREATE SCHEMA public", "GRANT USAGE ON SCHEMA public TO app"},
			{"DROP SCHEMA public", "ALTER SCHEMA away RENAME TO public"},
		},
		"MariaDB": {
			{"RENAME TABLE policies TO policies_away, goose_db_version TO goose_away, headgate_version TO " +
				"version_away"},
			{"RENAME TABLE policies_away TO policies, goose_away TO goose_db_version, version_away TO " +
				"headgate_version"},
		},
	}[d.kind]
	s, ctx := d.open(t), t.Context()
	must(t, s.Import(ctx, tester, state(1), true))
	f := follow(t, s, whole)
	shell := d.shell(t)
	run(t, shell, away[0]...)
	f.keepsLastGood(t, "gone", 1, "lacks what this headgate reads", "no such table")
	if err := s.Set(ctx, tester, full); err == nil {
		t.Error("Set without tables succeeded")
	}
	run(t, shell, away[1]...)
	f.freshWith(t, "there again", 1)
	must(t, s.Import(ctx, tester, state(2), true))
	f.freshWith(t, "a change after it", 2)
}
