package database_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/record"
)

// tableOf makes a table of somebody else in a database, with the three columns
// called as they please, and opens it.
func tableOf(t *testing.T, d someDatabase) (*database.Store, database.Options) {
	t.Helper()
	quote := `"`
	if d.kind == "MariaDB" {
		quote = "`"
	}
	run(t, d.shell(t),
		strings.ReplaceAll("CREATE TABLE quota ('Path' VARCHAR(200), 'order' BIGINT, 'limit' INT, mode "+
			"VARCHAR(20), name VARCHAR(20))", "'", quote),
		"INSERT INTO quota VALUES ('default', NULL, 100, 'theirs', 'x'), ('GET /ok', 42, 7, 'theirs', 'y')",
		strings.ReplaceAll(
			"CREATE VIEW limits AS SELECT 'Path' AS endpoint, 'order' AS project_id, 'limit' AS rps_limit FROM "+
				"quota", "'", quote))
	mayRead(t, d)
	keys := sqlitetest.New(t, filepath.Join(t.TempDir(), "keys.db"))
	o := database.Options{DSN: d.dsn, NoNotify: d.quiet, Local: keys, Table: database.Table{
		Name: "quota", Columns: map[string]string{"endpoint": "Path", "project_id": "order", "rps_limit": "limit"},
	}}
	return openDSN(t, o), o
}

// mayRead lets the user of the DSN read what the shell has made, and no more.
func mayRead(t *testing.T, d someDatabase) {
	t.Helper()
	if d.kind == "PostgreSQL" {
		run(t, d.shell(t), "GRANT SELECT ON ALL TABLES IN SCHEMA public TO app")
	}
}

// A table or view of somebody else is read like a Store of ours, and never
// written to; keys and the audit are beside it.
func TestTableEverywhere(t *testing.T) { everywhere(t, testTableEverywhere) }

func testTableEverywhere(t *testing.T, d someDatabase) {
	s, o := tableOf(t, d)
	ctx, shell := t.Context(), d.shell(t)
	want := []policy.Rule{{Endpoint: "default", Limit: 100}, {Endpoint: "GET /ok", Project: "42", Limit: 7}}
	for i := range want {
		want[i].Per = time.Second
	}
	check := func(what string, s *database.Store, want []policy.Rule) {
		t.Helper()
		doc, version, err := s.Load(ctx)
		listed, errList := s.List(ctx)
		for _, rules := range [][]policy.Rule{doc.Rules, listed} {
			for i := range rules {
				rules[i].Per = time.Second // the default, said or not
			}
			if err != nil || errList != nil || version == "" || !reflect.DeepEqual(rules, want) {
				t.Errorf("%s: %+v, version %q, %v, %v, want %+v", what, rules, version, err, errList, want)
			}
		}
	}
	check("a table", s, want)
	view := o
	view.Table = database.Table{Name: "limits"}
	check("a view", openDSN(t, view), want)
	if _, problems := policy.Compile(policy.Document{Rules: want},
		policy.CompileOptions{Endpoints: table(t)}); problems.Err() != nil {
		t.Error(problems.Err())
	}
	if got, err := s.Get(ctx, record.KeyOf(want[1])); err != nil || got.Limit != 7 {
		t.Errorf("Get = %+v, %v, want the rule", got, err)
	}

	for what, change := range map[string]func() error{
		"Set":     func() error { return s.Set(ctx, tester, full) },
		"Delete":  func() error { return s.Delete(ctx, tester, record.KeyOf(want[1])) },
		"SetTier": func() error { return s.SetTier(ctx, tester, "a", "b") },
		"Import":  func() error { return s.Import(ctx, tester, policy.Document{Rules: want}, true) },
	} {
		if err := change(); err == nil || !strings.Contains(err.Error(),
			"table quota: is read-only for headgate (db_table), want the rules changed where they are kept") {
			t.Errorf("%s = %v, want it refused", what, err)
		}
	}
	key, text, err := s.CreateKey(ctx, newDigester(t), record.NewAPIKey{Project: "42"})
	must(t, err)
	if records, _, err := s.Keys().Load(ctx); err != nil || len(records) != 1 ||
		records[0].Key.ID != key.ID || text == "" {
		t.Errorf("Keys = %+v, %v, want the one that was made", records, err)
	}
	if _, err := s.Append(ctx, record.Audit{Actor: "a", Action: record.ActionReset}); err != nil {
		t.Error(err)
	}

	_, before, err := s.Load(ctx)
	must(t, err)
	run(t, shell, "DELETE FROM quota WHERE mode = 'theirs' AND name = 'y'")
	check("a row less", s, want[:1])
	if _, after, err := s.Load(ctx); err != nil || after == before {
		t.Errorf("version %q, %v, want another than before", after, err)
	}
	run(t, shell, "UPDATE quota SET name = 'z'")
	run(t, shell, "INSERT INTO quota VALUES ('GET /b', NULL, -3, NULL, NULL)")
	if _, _, err := s.Load(ctx); err == nil ||
		!strings.Contains(err.Error(), `rps_limit is -3, want a whole number, 1 to`) {
		t.Errorf("Load of a bad value = %v, want it named", err)
	}
	run(t, shell, "DROP VIEW limits", "DROP TABLE quota")
	if _, _, err := s.Load(ctx); err == nil || strings.Contains(err.Error(), "\n") ||
		!strings.HasPrefix(err.Error(), s.Path()+": ") {
		t.Errorf("Load of a table that is gone = %v, want a line that names it", err)
	}
}

// A query can tell of changes so that the table need not be read at each look.
func TestTableVersionQuery(t *testing.T) { everywhere(t, testTableVersionQuery) }

func testTableVersionQuery(t *testing.T, d someDatabase) {
	_, o := tableOf(t, d)
	o.Table.VersionQuery = "SELECT max(n) FROM changes"
	s := openDSN(t, o)
	run(t, d.shell(t), "CREATE TABLE changes (n BIGINT)", "INSERT INTO changes VALUES (7)")
	mayRead(t, d)
	if version, err := s.Version(t.Context()); err != nil || version != "7" {
		t.Errorf("Version = %q, %v, want 7", version, err)
	}
	if _, version, err := s.Load(t.Context()); err != nil || version != "7" {
		t.Errorf("Load's version = %q, %v, want 7", version, err)
	}
}

// Who only looks makes no file for the keys.
func TestTableReadOnly(t *testing.T) {
	d := kinds[0].make(t)
	_, o := tableOf(t, d)
	o.Local, o.ReadOnly = "sqlite:"+filepath.Join(t.TempDir(), "none.db"), true
	s := openDSN(t, o)
	if rules, err := s.List(t.Context()); err != nil || len(rules) != 2 {
		t.Errorf("List = %v, %v, want two rules", rules, err)
	}
	if records, _, err := s.Keys().Load(t.Context()); err != nil || len(records) != 0 {
		t.Errorf("Keys = %v, %v, want none", records, err)
	}
	o.Table.Columns = map[string]string{"path": "endpoint", "endpoint": "a\"b"}
	if _, err := database.New(t.Context(), o); err == nil ||
		!strings.Contains(err.Error(), `Columns has "path", want one of endpoint, project_id`) ||
		!strings.Contains(err.Error(), `Columns[endpoint] is "a\"b"`) {
		t.Errorf("wrong columns: %v, want both named", err)
	}
}
