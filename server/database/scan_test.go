package database_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/internal/live"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
)

// However the rules are read, a load of many tells that it gets on.
func TestLoadTellsOfProgress(t *testing.T) {
	everywhere(t, func(t *testing.T, d someDatabase) {
		s := d.open(t)
		for _, rules := range []int{3000, 6000} {
			must(t, s.Import(t.Context(), tester, policy.Document{Rules: manyRules(rules)}, true))
			checkProgress(t, "a first load", d.open(t), rules)
			checkProgress(t, "a later load", s, rules)
		}
	})
	t.Run("a table of somebody else's", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "theirs.db")
		run(t, shell(t, path), `CREATE TABLE limits (endpoint TEXT, project_id TEXT, rps_limit INTEGER)`,
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 3000) INSERT INTO limits SELECT 'GET /' || i, NULL, 5 FROM n`)
		s := openDSN(t, database.Options{
			DSN:   "sqlite:" + path,
			Table: database.Table{Name: "limits"},
			Local: "sqlite:" + filepath.Join(t.TempDir(), "local.db"),
		})
		checkProgress(t, "a load", s, 3000)
	})
}

func checkProgress(t *testing.T, what string, s *database.Store, rules int) {
	t.Helper()
	var told atomic.Int64
	doc, _, err := s.Load(live.WithProgress(t.Context(), func() { told.Add(1) }))
	if err != nil || len(doc.Rules) != rules {
		t.Fatalf("Load = %d rules, %v, want %d", len(doc.Rules), err, rules)
	}
	if n, least := told.Load(), int64(rules/2048); n < least {
		t.Errorf("%s of %d rules told of its progress %d times, want %d or more", what, rules, n, least)
	}
}
