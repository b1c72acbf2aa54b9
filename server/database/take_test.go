package database_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/live"
	"github.com/headgate-io/headgate/policy"
)

// A load from a file that nobody waits for any more ends soon, and the next one is whole.
func TestLoadEndsEarly(t *testing.T) {
	s := open(t)
	must(t, s.Import(t.Context(), tester, policy.Document{Rules: manyRules(6000)}, true))
	ctx, cancel := context.WithCancel(t.Context())
	told := 0
	_, _, err := s.Load(live.WithProgress(ctx, func() { told++; cancel() }))
	if !errors.Is(err, context.Canceled) || told != 1 {
		t.Errorf(
			"Load that was canceled after 1024 rows = %v after it told %d times that it gets on, want %v after "+
				"one", err, told, context.Canceled)
	}
	checkProgress(t, "a load after one that was canceled", s, 6000)
}

// Who calls the function that takes rows from SQL of his own gets nothing but an error.
func TestTakeIsForLoads(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "any.db"))
	must(t, err)
	defer db.Close()
	for _, arguments := range []string{"", "1", "1, 'GET /', 'acme', 5", "NULL", "'1'", "x'00'", "1.5", "-1"} {
		var got any
		err := db.QueryRowContext(t.Context(), "SELECT headgate_take("+arguments+")").Scan(&got)
		if err == nil || !strings.Contains(err.Error(), "headgate_take takes rules") {
			t.Errorf("headgate_take(%s) = %v, %v, want an error", arguments, got, err)
		}
	}
}

// An index of a user's, over all that is read, gives other rows first. The rules come in their order all the same.
func TestTakeIsInOrder(t *testing.T) {
	s := open(t)
	must(t, s.Import(t.Context(), tester, policy.Document{Rules: manyRules(3000)}, true))
	db, err := sql.Open("sqlite", s.Path())
	must(t, err)
	defer db.Close()
	run(t, db, "CREATE INDEX by_limit ON policies (project_id, rps_limit, endpoint)", "ANALYZE")
	want, err := s.ReadSlowly(t.Context())
	must(t, err)
	doc, _, err := s.Load(t.Context())
	must(t, err)
	if !slices.Equal(doc.Rules, want) {
		t.Errorf("Load = %d rules, want the %d of the slow way%s", len(doc.Rules), len(want),
			firstDifference(doc.Rules, want))
	}
}
