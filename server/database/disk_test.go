package database_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database/dbtest"
)

// The disk of the server is full: a change that needs room is refused as a
// whole, what is there is read on, and with room again all goes on by itself.
func TestServerDiskFull(t *testing.T) {
	for kind, start := range map[string]func() (*dbtest.Server, error){
		"PostgreSQL": dbtest.PostgresOnDisk,
		"MariaDB":    dbtest.MariaDBOnDisk,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server, err := start()
			must(t, err)
			stopAfter(t, server)
			stopAfter(t, server)
			d := databaseOf(t, kind, server)
			s, ctx := d.open(t), t.Context()
			must(t, s.Import(ctx, tester, state(1), true))
			if kind == "PostgreSQL" {
				// Its log of changes begins a file that has room for all that
				// follows. Without such room it stops, as if killed.
				must(t, server.Exec("SELECT pg_switch_wal()", "CREATE TABLE t ()", "CHECKPOINT"))
			}
			f := follow(t, s, whole)

			must(t, server.FillDisk())
			large := policy.Document{Rules: append(manyRules(10_000), state(9).Rules...)}
			err = s.Import(ctx, tester, large, true)
			if err == nil || !strings.Contains(err.Error(), "does not fit on its disk any more, want room made") ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("Import on a full disk: %v, want it refused on one line", err)
			}
			if rules, err := s.List(ctx); err != nil || len(rules) != 2 {
				t.Errorf("List = %d rules, %v, want the 2 from before", len(rules), err)
			}
			another := d.open(t)
			if doc, _, err := another.Load(ctx); err != nil || len(doc.Rules) != 2 {
				t.Errorf("Load by a gateway that starts meanwhile = %d rules, %v, want 2", len(doc.Rules), err)
			}
			f.freshWith(t, "on a full disk", 1)

			must(t, server.FreeDisk())
			must(t, s.Import(ctx, tester, state(2), true))
			f.freshWith(t, "with room again", 2)
			must(t, s.Import(ctx, tester, policy.Document{Rules: manyRules(10_000)}, false))
			must(t, s.Import(ctx, tester, state(3), true))
			f.freshWith(t, "a large change after it", 3)
		})
	}
}
