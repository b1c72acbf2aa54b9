package operations_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/server/database/dbtest"
	"github.com/headgate-io/headgate/server/fleet"
)

// quota is the limit that a client is told of a path.
func quota(t *testing.T, g *harness.Gateway, path string) string {
	t.Helper()
	response, err := http.Get(g.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	_, after, _ := strings.Cut(response.Header.Get("RateLimit-Policy"), ";q=")
	limit, _, _ := strings.Cut(after, ";")
	return limit
}

func expectQuota(t *testing.T, g *harness.Gateway, path, want string) {
	t.Helper()
	if !harness.Eventually(soon, func() bool { return quota(t, g, path) == want }) {
		t.Fatalf("the limit of %s is %s after %v, want %s", path, quota(t, g, path), soon, want)
	}
}

// TestTheDatabasesClockIsSet sets the clock of a real server by an hour, to and
// fro, under a gateway that runs. No rule ends for it, changes act as before, and
// the fleet knows who is there.
func TestTheDatabasesClockIsSet(t *testing.T) {
	for name, start := range map[string]func() (*dbtest.Server, error){
		"PostgreSQL": dbtest.PostgresWithClock,
		"MariaDB":    dbtest.MariaDBWithClock,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t, start)
			dsn, _ := databaseOn(t, server)
			testTheDatabasesClockIsSet(t, server, dsn)
		})
	}
}

func testTheDatabasesClockIsSet(t *testing.T, server *dbtest.Server, dsn string) {
	policy := func(args ...string) {
		t.Helper()
		harness.Run(t, t.TempDir(), append(append([]string{"policy"}, args...), "--db", dsn)...)
	}
	set := func(ahead time.Duration) {
		t.Helper()
		if err := server.SetClock(ahead); err != nil {
			t.Fatal(err)
		}
	}
	policy("set", "default", "1000")
	policy("set", "GET /a", "500")
	policy("set", "GET /a", "700", "--expires", "30m")
	api := harness.NewUpstream(t)
	const often = "replica_interval: 500ms"
	g := replica(t, api, dsn, often, "replica_name: lives")
	dead := replica(t, api, dsn, often, "replica_name: dead")
	expectQuota(t, g, "/a", "700")
	expectFleet(t, dsn, map[string]fleet.State{"lives": fleet.OK, "dead": fleet.OK})
	dead.Kill()
	for i, ahead := range []time.Duration{time.Hour, -time.Hour, 0} {
		set(ahead)
		policy("set", "default", fmt.Sprint(2000+i))
		expectQuota(t, g, "/b", fmt.Sprint(2000+i))
		if got := quota(t, g, "/a"); got != "700" {
			t.Errorf("the database's clock at %v: the limit of /a is %s, want the temporary one still, 700", ahead, got)
		}
		expectFleet(t, dsn, map[string]fleet.State{"lives": fleet.OK, "dead": fleet.Silent})
		if stale, err := strconv.ParseFloat(metric(t, g, "policy_staleness_seconds"), 64); err != nil ||
			stale > soon.Seconds() {
			t.Errorf("the database's clock at %v: the rules are stale for %v s, %v", ahead, stale, err)
		}
	}
	// A rule that is about to end does so, though the database's clock has an hour to go.
	set(-time.Hour)
	for lasts := 4 * time.Second; ; lasts *= 2 { // on a machine so slow that it is over before anybody has seen it
		policy("set", "GET /a", "800", "--expires", lasts.String())
		if harness.Eventually(lasts, func() bool { return quota(t, g, "/a") == "800" }) {
			break
		} else if lasts > soon {
			t.Fatalf("the temporary limit of /a is never in force: %s", quota(t, g, "/a"))
		}
	}
	expectQuota(t, g, "/a", "500")
	for _, name := range []string{"policy_reload_failures_total", "api_key_reload_failures_total",
		"fleet_tell_failures_total"} {
		if got := metric(t, g, name); got != "0" {
			t.Errorf("%s is %s, want 0: a clock that is set is no failure\n%s", name, got, g.Log())
		}
	}
}
