package operations_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/server/database/dbtest"
	"github.com/headgate-io/headgate/server/fleet"
)

// home is where a gateway is started again and again, on one database.
type home struct {
	t   *testing.T
	dir string
	db  string
	api *harness.Upstream
}

func newHome(t *testing.T, db string) *home {
	h := &home{t, t.TempDir(), db, harness.NewUpstream(t)}
	h.write("routes.txt", "GET /a\n")
	return h
}

func (h *home) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *home) serve() *harness.Gateway {
	h.t.Helper()
	h.write("headgate.yaml",
		fmt.Sprintf("upstream: %s\nroutes: [routes.txt]\ndb: %s\nlast_good: kept.json\nreplica_interval: 200ms\n"+
			"replica_name: one\n", h.api.URL, h.db))
	return harness.Serve(h.t, h.dir, "--config", "headgate.yaml", "--db", h.db)
}

func (h *home) policy(args ...string) {
	h.t.Helper()
	harness.Run(h.t, h.dir, append(append([]string{"policy"}, args...), "--db", h.db)...)
}

// limited expects that a rule of one request a day is in force, for a client
// that comes twice.
func (h *home) limited(g *harness.Gateway) {
	h.t.Helper()
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if got := get(h.t, g, "/a"); got != want {
			h.t.Errorf("GET /a = %d, want %d", got, want)
		}
	}
}

// stop ends a gateway by kill -9 or in order.
func stop(t *testing.T, g *harness.Gateway, kill bool) {
	t.Helper()
	if kill {
		g.Kill()
	} else if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
}

// TestADatabaseEmptiedBeforeTheStart empties the table while no gateway runs,
// as an accident does, and starts one, and again: the rules of the last good copy
// stay in force, and all who are asked say so. What somebody deletes by name acts.
func TestADatabaseEmptiedBeforeTheStart(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		h := newHome(t, "sqlite:headgate.db")
		testEmptied(t, h, func(statement string) {
			statement = strings.Replace(statement, "TRUNCATE", "DELETE FROM", 1)
			out, err := exec.Command("sqlite3", "-cmd", ".timeout 5000", filepath.Join(h.dir, "headgate.db"),
				statement).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", statement, err, out)
			}
		}, "sqlite:other.db")
	})
	for name, start := range map[string]func() (*dbtest.Server, error){"PostgreSQL": dbtest.Postgres,
		"MariaDB": dbtest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t, start)
			dsn, shell := databaseOn(t, server)
			other, _ := databaseOn(t, server)
			testEmptied(t, newHome(t, dsn), func(statement string) {
				if _, err := shell.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}, other)
		})
	}
}

func testEmptied(t *testing.T, h *home, shell func(string), other string) {
	h.policy("set", "default", "1", "--per", "24h")
	h.policy("set", "UNKNOWN", "5")
	g := h.serve()
	h.limited(g)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}

	shell("TRUNCATE policies")
	for _, kill := range []bool{true, false} { // the copy is not overwritten
		g = h.serve()
		h.limited(g)
		h.saysEmptied(g)
		stop(t, g, kill)
	}

	// Another database, in which somebody has deleted the last rule on purpose.
	right := h.db
	h.db = other
	h.policy("set", "default", "5")
	h.policy("delete", "default")
	g = h.serve()
	h.limited(g)
	expectMetric(t, g, "policy_emptied", "1")
	stop(t, g, false)

	// The rules come back, and a running gateway takes them.
	h.db = right
	g = h.serve()
	h.policy("set", "default", "100")
	expectMetric(t, g, "policy_emptied", "0")
	expectMetric(t, g, "policy_from_disk", "0")
	expectMetric(t, g, "policy_rules", "1")

	// Deleted by name: it acts at once, and on a gateway that starts later.
	stop(t, g, true)
	h.policy("set", "UNKNOWN", "5")
	g = h.serve()
	expectMetric(t, g, "policy_rules", "2")
	h.policy("delete", "UNKNOWN")
	h.policy("delete", "default")
	expectMetric(t, g, "policy_rules", "0")
	if !g.Says("somebody deleted the last rule") {
		t.Errorf("the log does not say that no request has a limit:\n%s", g.Log())
	}
	h.policy("set", "default", "100")
	expectMetric(t, g, "policy_rules", "1")
	stop(t, g, false)
	h.policy("delete", "default")
	g = h.serve()
	expectMetric(t, g, "policy_rules", "0")
	expectMetric(t, g, "policy_emptied", "0")

	// The other way out: the copy removed, and a new start.
	h.policy("set", "default", "100")
	expectMetric(t, g, "policy_rules", "1")
	shell("TRUNCATE policies")
	shell("UPDATE headgate_version SET version = 'as by a trigger'") // MariaDB calls none
	expectMetric(t, g, "policy_emptied", "1")
	stop(t, g, false)
	if err := os.Remove(filepath.Join(h.dir, "kept.json")); err != nil {
		t.Fatal(err)
	}
	g = h.serve()
	expectMetric(t, g, "policy_rules", "0")
	expectMetric(t, g, "policy_emptied", "0")
}

// saysEmptied expects that a gateway which goes on with the last good copy says
// so to all who may ask.
func (h *home) saysEmptied(g *harness.Gateway) {
	h.t.Helper()
	for name, want := range map[string]string{
		"policy_emptied":   "1",
		"policy_from_disk": "1",
		"policy_reload_ok": "0",
		"policy_rules":     "2",
	} {
		expectMetric(h.t, g, name, want)
	}
	const said = "is empty now, which is taken for an accident"
	doctor, err := runFor(h.t, h.dir, "doctor", "--config", "headgate.yaml")
	if err == nil {
		h.t.Error("doctor is content with a database that has lost its rules")
	}
	const todo = "kept.json removed and a new start"
	if !g.Says(said) || !g.Says(todo) {
		h.t.Errorf("the log lacks %q or %q:\n%s", said, todo, g.Log())
	}
	for what, c := range map[string]struct{ text, want string }{
		"GET /v1/policies": {harness.Get(h.t, g.Admin+"/v1/policies"), said},
		"/readyz": {harness.Get(h.t, g.Admin+"/readyz"),
			"ready\nwarning: the database has no rules, which is taken for an accident: the last good 2 stay in force"},
		"doctor": {doctor, "has 2: a gateway takes that for an accident and goes on with those"},
	} {
		if !strings.Contains(c.text, c.want) {
			h.t.Errorf("%s lacks %q:\n%s", what, c.want, c.text)
		}
	}
	report := expectFleet(h.t, h.fleetDSN(), map[string]fleet.State{"one": fleet.Failed})
	if !strings.Contains(report.Replicas[0].Why, said) {
		h.t.Errorf("the fleet says %q, want %q", report.Replicas[0].Why, said)
	}
}

// fleetDSN names the database also from other folders.
func (h *home) fleetDSN() string {
	if path, ok := strings.CutPrefix(h.db, "sqlite:"); ok {
		return "sqlite:" + filepath.Join(h.dir, path)
	}
	return h.db
}
