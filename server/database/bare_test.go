package database_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	policysql "github.com/headgate-io/headgate/policy/sql"
)

// A table that somebody else made, with the paper's three columns and nothing
// more, in a real SQLite file: package policy/sql reads it.
func TestBareTable(t *testing.T) {
	db := shell(t, filepath.Join(t.TempDir(), "theirs.db"))
	run(t, db,
		`CREATE TABLE limits (endpoint TEXT, project_id INTEGER, rps_limit INTEGER, note TEXT)`,
		`CREATE VIEW policies AS SELECT endpoint, project_id, rps_limit FROM limits`,
		`INSERT INTO limits VALUES ('default', NULL, 100, 'for all'), ('GET /v1/items/{id}', 42, 7, NULL)`)
	for _, name := range []string{"limits", "policies"} {
		source, err := policysql.New(policysql.Options{DB: db, Table: name})
		must(t, err)
		doc, _, err := source.Load(t.Context())
		want := []policy.Rule{
			{Endpoint: "default", Limit: 100},
			{Endpoint: "GET /v1/items/{id}", Project: "42", Limit: 7},
		}
		for i := range doc.Rules {
			if doc.Rules[i].Per == time.Second { // the default, said or not
				doc.Rules[i].Per = 0
			}
		}
		if err != nil || !reflect.DeepEqual(doc.Rules, want) {
			t.Errorf("Load of %s = %+v, %v, want %+v", name, doc.Rules, err, want)
		}
		if _, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: table(t)}); problems.Err() != nil {
			t.Errorf("Compile of %s: %v", name, problems.Err())
		}
	}
	run(t, db, `INSERT INTO limits VALUES ('GET /b', NULL, 'many', NULL)`)
	source, err := policysql.New(policysql.Options{DB: db, Table: "limits"})
	must(t, err)
	if _, _, err := source.Load(t.Context()); err == nil || !strings.Contains(err.Error(), `rps_limit is "many"`) {
		t.Errorf("Load of a bad value = %v, want it named", err)
	}
}

// The tables of a Store are such tables too.
func TestStoreTablesAreReadableAsTables(t *testing.T) {
	s, ctx := open(t), t.Context()
	must(t, s.Set(ctx, tester, full))
	must(t, s.SetTier(ctx, tester, "acme", "gold"))
	source, err := policysql.New(policysql.Options{DB: shell(t, s.Path()), Projects: "projects"})
	must(t, err)
	got, _, err := source.Load(ctx)
	must(t, err)
	want, err := s.Export(ctx)
	must(t, err)
	got.Source, got.Number = want.Source, want.Number
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the tables read as %+v, the store as %+v", got, want)
	}
}
