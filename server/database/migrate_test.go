package database_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
)

// testdata/schema1.sql is a database as the first version left it. It never
// changes: whatever comes after must bring it up to date and keep what is in it.
func TestOpenOldDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	script, err := os.ReadFile("testdata/schema1.sql")
	must(t, err)
	old := shell(t, path)
	run(t, old, string(script))

	s := openAt(t, path)
	ctx := t.Context()
	doc, err := s.Export(ctx)
	must(t, err)
	if len(doc.Rules) != 2 || doc.Rules[1].Name != "login" || doc.Rules[1].Subject != policy.SubjectIP ||
		doc.Projects["acme"] != "gold" {
		t.Errorf("Export = %+v, want the two rules and the project of schema1.sql", doc)
	}
	if keys, err := s.ListKeys(ctx); err != nil || len(keys) != 1 || keys[0].Name != "ci" {
		t.Errorf("ListKeys = %+v, %v, want the key of schema1.sql", keys, err)
	}
	must(t, s.Set(ctx, tester, full))
	if got, want := schema(t, old), schema(t, shell(t, open(t).Path())); got != want {
		t.Errorf("the old database has the schema\n%s\na new one has\n%s", got, want)
	}
}

// A database whose first migration broke off before it was done: the table of
// migrations is there and nothing else.
func TestOpenAfterBrokenMigration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	run(t, shell(t, path), `CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY AUTOINCREMENT, version_id INTEGER NOT NULL,
		is_applied INTEGER NOT NULL, tstamp TIMESTAMP DEFAULT (datetime('now')))`,
		`INSERT INTO goose_db_version (version_id, is_applied) VALUES (0, 1)`)
	_, err := database.OpenReadOnly(t.Context(), "sqlite:"+path)
	checkFault(t, "OpenReadOnly", path, err,
		"has an older schema (0, this headgate reads 21), want it opened once for writing")
	must(t, openAt(t, path).Set(t.Context(), tester, full))
}

func schema(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(),
		`SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'goose%' ORDER BY name`)
	must(t, err)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		must(t, rows.Scan(&text))
		all = append(all, strings.Join(strings.Fields(text), " "))
	}
	must(t, rows.Err())
	return strings.Join(all, "\n")
}

// The table of rules was made anew for a subject; what it held is there, and its
// index and trigger are.
func TestOldDatabaseTakesIdentifierIP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	script, err := os.ReadFile("testdata/schema1.sql")
	must(t, err)
	db := shell(t, path)
	run(t, db, string(script))
	var before, after string
	const rows = `SELECT group_concat(rowid || quote(endpoint) || quote(project_id) || rps_limit || quote(burst) || subject || created_at || updated_at) FROM (SELECT rowid, * FROM policies ORDER BY rowid)`
	must(t, db.QueryRow(rows).Scan(&before))
	openAt(t, path)
	must(t, db.QueryRow(rows).Scan(&after))
	if before == "" || after != before {
		t.Errorf("rows are\n%s\nwant\n%s", after, before)
	}
	run(t, db, `INSERT INTO policies (endpoint, rps_limit, subject) VALUES ('POST /v1/login', 5, 'identifier_ip')`,
		`UPDATE policies SET updated_at = 7`, `UPDATE policies SET rps_limit = 6`)
	if _,
		err := db.Exec(
		`INSERT INTO policies (endpoint, rps_limit, subject) VALUES ('POST /v1/login', 5, 'identifier_ip')`); err == nil {
		t.Error("a second rule for one subject is taken")
	}
	var old int
	must(t, db.QueryRow(`SELECT count(*) FROM policies WHERE updated_at = 7`).Scan(&old))
	if old != 0 {
		t.Errorf("%d rules were updated and keep their time, want none", old)
	}
}

// Several processes start at once with a file of any older headgate: they
// bring it up to date once.
func TestConcurrentOpenOfOldDatabases(t *testing.T) {
	folder := os.DirFS("migrations/sqlite")
	for version := int64(1); version < 20; version++ {
		path := filepath.Join(t.TempDir(), "old.db")
		old := shell(t, path)
		steps, err := goose.NewProvider(goose.DialectSQLite3, old, folder, goose.WithDisableGlobalRegistry(true),
			goose.WithLogger(goose.NopLogger()))
		must(t, err)
		_, err = steps.UpTo(t.Context(), version)
		must(t, err)
		run(t, old, `INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /old', 7)`)

		var openers sync.WaitGroup
		for range 2 {
			openers.Go(func() {
				if err := openAndClose(path, database.Open); err != nil {
					t.Errorf("Open of schema %d: %v", version, err)
				}
			})
			openers.Go(func() {
				if out, err := child(t, "open", path, false).CombinedOutput(); err != nil {
					t.Errorf("Open of schema %d in another process: %v\n%s", version, err, out)
				}
			})
		}
		openers.Wait()
		s := openAt(t, path)
		must(t, s.Check(t.Context()))
		if rules, err := s.List(t.Context()); err != nil || len(rules) != 1 || rules[0].Limit != 7 {
			t.Errorf("List after schema %d = %+v, %v, want the rule", version, rules, err)
		}
		// A connection that was open before knows of the changes as well.
		run(t, old, `INSERT INTO policies (endpoint, rps_limit, subject) VALUES ('GET /old', 70, 'site')`)
		if _, err := old.Exec(
			`INSERT INTO policies (endpoint, rps_limit, subject) VALUES ('GET /old', 70, 'street')`); err == nil {
			t.Errorf("after schema %d: a subject that there is not is taken", version)
		}
		var twice int
		must(t, old.QueryRow(`SELECT count(*) - count(DISTINCT version_id) FROM goose_db_version`).Scan(&twice))
		if twice != 0 {
			t.Errorf("%d migrations from schema %d were noted twice", twice, version)
		}
		if got, want := schema(t, old), schema(t, shell(t, open(t).Path())); got != want {
			t.Errorf("schema %d became\n%s\na new one is\n%s", version, got, want)
		}
	}
}
