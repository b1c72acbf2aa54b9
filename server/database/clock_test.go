package database_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/database/dbtest"
	"github.com/headgate-io/headgate/server/fleet"
	"github.com/headgate-io/headgate/server/record"
)

// The clock of the server is set forward, back and right: rules are followed as
// before, versions of headgate have the time of whoever made them, and the fleet
// learns who is there from the next word of each.
func TestServerClockIsSet(t *testing.T) {
	for kind, start := range map[string]func() (*dbtest.Server, error){
		"PostgreSQL": dbtest.PostgresWithClock,
		"MariaDB":    dbtest.MariaDBWithClock,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server, err := start()
			must(t, err)
			stopAfter(t, server)
			testServerClockIsSet(t, server, databaseOf(t, kind, server))
		})
	}
}

func testServerClockIsSet(t *testing.T, server *dbtest.Server, d someDatabase) {
	s, ctx, db := d.open(t), t.Context(), d.shell(t)
	must(t, s.Import(ctx, tester, state(1), true))
	f := follow(t, s, whole)
	tell := func(name string) {
		t.Helper()
		must(t, s.Report(ctx, record.Replica{Name: name, Process: name, Every: time.Minute}, true))
	}
	states := func() map[string]fleet.State {
		t.Helper()
		seen, err := s.Fleet(ctx)
		must(t, err)
		all := map[string]fleet.State{}
		for _, r := range fleet.Judge(seen).Replicas {
			all[r.Name] = r.State
		}
		return all
	}
	tell("dead") // it never says another word
	newest := int64(2)
	for i, ahead := range []time.Duration{0, time.Hour, -time.Hour, time.Hour, 0} {
		what := "the server's clock at " + ahead.String()
		tell("lives")
		if others, err := s.Others(ctx, "me"); i == 0 && (err != nil || others != 2) {
			t.Errorf("Others = %d, %v, want 2 before any clock is set", others, err)
		}
		must(t, server.SetClock(ahead))
		if got := states(); i > 0 && (got["lives"] != fleet.Silent || ahead != 0 && got["dead"] != fleet.Silent) {
			t.Errorf("%s: the fleet is %v, want nobody known to be there who has not told since", what, got)
		}
		if n, err := s.Others(ctx, "me"); i > 0 && (err != nil || n > 1) {
			t.Errorf("%s: Others = %d, %v, want nobody who has not told since, or one from the time that comes again",
				what, n, err)
		}
		tell("lives")
		if got := states(); got["lives"] == fleet.Silent {
			t.Errorf("%s: the fleet is %v, want the one that told again to be there", what, got)
		}

		limit := int64(i + 2)
		must(t, s.Import(ctx, tester, state(limit), true))
		f.freshWith(t, what, limit)
		if stale := f.Status().Stale; stale > 30*time.Minute {
			t.Errorf("%s: stale for %v", what, stale)
		}
		newest++
		if v, err := s.Current(ctx); err != nil || v.ID != newest || time.Since(v.At).Abs() > 10*time.Minute {
			t.Errorf("%s: the newest version is %d at %v, %v, want %d at the time of who made it", what, v.ID,
				v.At, err, newest)
		}
		// What a shell changes is dated by the server, and in the order of the changes all the same.
		run(t, db, fmt.Sprintf("INSERT INTO projects (project_id, tier) VALUES ('p%d', 'gold')", i))
		must(t, s.Number(ctx))
		newest++
		v, err := s.Current(ctx)
		if off := time.Until(v.At) - ahead; err != nil || v.ID != newest || v.Action != record.ActionSQL ||
			off.Abs() > 10*time.Minute {
			t.Errorf("%s: the newest version is %+v, %v, want %d by SQL, %v ahead", what, v, err, newest, ahead)
		}
	}
}
