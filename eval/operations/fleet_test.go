package operations_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/server/database/dbtest"
	"github.com/headgate-io/headgate/server/fleet"
)

// soon is how long a test waits for what comes about by itself, on a machine that
// has next to no time for it: sentinels alone do nothing for 30 s when they find
// that they got none for two, and try no second time for 10.
const soon = 2 * time.Minute

// onPostgres starts a PostgreSQL and makes a database, and what opens it as the
// administrator.
func onPostgres(t *testing.T) (dsn string, shell *sql.DB) {
	t.Helper()
	return databaseOn(t, startServer(t, dbtest.Postgres))
}

// startServer starts a database server that ends with the test.
func startServer(t *testing.T, start func() (*dbtest.Server, error)) *dbtest.Server {
	t.Helper()
	server, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("stop the database: %v", err)
		}
	})
	return server
}

// databaseOn makes a database, and what opens it as the administrator.
func databaseOn(t *testing.T, server *dbtest.Server) (dsn string, shell *sql.DB) {
	t.Helper()
	name, dsn, err := server.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if shell, err = server.Shell(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shell.Close() })
	return dsn, shell
}

// replica starts a gateway with two endpoints, GET /a and GET /b, and with the
// settings given.
func replica(t *testing.T, api *harness.Upstream, dsn string, settings ...string) *harness.Gateway {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"routes.txt":    "GET /a\nGET /b\n",
		"headgate.yaml": strings.Join(settings, "\n") + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return harness.Serve(t, dir, "--config", "headgate.yaml", "--routes", "routes.txt", "--upstream",
		api.URL, "--db", dsn)
}

// fleetOf is what `headgate fleet --json` prints.
func fleetOf(t *testing.T, dsn string) (report fleet.Report) {
	t.Helper()
	if err := json.Unmarshal([]byte(harness.Run(t, t.TempDir(), "fleet", "--json", "--db", dsn)), &report); err != nil {
		t.Fatal(err)
	}
	return report
}

// expectFleet waits until the replicas are in the states given, by name.
func expectFleet(t *testing.T, dsn string, want map[string]fleet.State) (report fleet.Report) {
	t.Helper()
	got := map[string]fleet.State{}
	if !harness.Eventually(soon, func() bool {
		clear(got)
		report = fleetOf(t, dsn)
		for _, r := range report.Replicas {
			got[r.Name] = r.State
		}
		for name, state := range want {
			if got[name] != state {
				return false
			}
		}
		return len(got) == len(want)
	}) {
		t.Fatalf("the fleet is %v after %v, want %v", got, soon, want)
	}
	return report
}

// maxLag runs `headgate fleet --max-lag` and reports its exit status and what
// it said.
func maxLag(t *testing.T, dsn, most string) (status int, said string) {
	t.Helper()
	cmd := exec.Command(harness.Binary(t), "fleet", "--max-lag", most, "--db", dsn)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// expectMaxLag waits until `headgate fleet --max-lag` ends so and says so: a
// replica on a busy machine may seem silent for a moment.
func expectMaxLag(t *testing.T, dsn, most string, want int, says string) {
	t.Helper()
	status, said := 0, ""
	if !harness.Eventually(soon, func() bool {
		status, said = maxLag(t, dsn, most)
		return status == want && strings.Contains(said, says)
	}) {
		t.Errorf("fleet --max-lag %s = %d, want %d and %q\n%s", most, status, want, says, said)
	}
}

// TestFleet runs three gateways on one PostgreSQL. One is frozen, one refuses
// what the database holds, and both recover.
func TestFleet(t *testing.T) {
	dsn, _ := onPostgres(t)
	api := harness.NewUpstream(t)
	policy := func(args ...string) {
		harness.Run(t, t.TempDir(), append(append([]string{"policy"}, args...), "--db", dsn)...)
	}
	policy("set", "default", "100")
	const often = "replica_interval: 200ms"
	first := replica(t, api, dsn, often, "replica_name: first")
	replica(t, api, dsn, often, "replica_name: costly", `costs: {"GET /a": 50}`)
	frozen := replica(t, api, dsn, often, "replica_name: frozen")
	all := func(costly, frozen fleet.State) map[string]fleet.State {
		return map[string]fleet.State{"first": fleet.OK, "costly": costly, "frozen": frozen}
	}
	before := expectFleet(t, dsn, all(fleet.OK, fleet.OK))
	expectMaxLag(t, dsn, "0s", 0, "")

	if err := frozen.Freeze(); err != nil {
		t.Fatal(err)
	}
	policy("set", "GET /a", "20") // no bucket of it ever holds 50
	report := expectFleet(t, dsn, all(fleet.Failed, fleet.Silent))
	for _, r := range report.Replicas {
		switch r.Name {
		case "first":
			if r.Version != report.Version || r.Version == before.Version || r.Lag != 0 {
				t.Errorf("first = %+v, want version %s", r, report.Version)
			}
		case "costly":
			if r.Version != before.Version || !strings.Contains(r.Error, "GET /a") || r.Lag <= 0 || r.Behind != 1 {
				t.Errorf("costly = %+v, want version %s 1 version behind, and an error about GET /a", r, before.Version)
			}
		case "frozen":
			if r.Version != before.Version || r.Lag <= 0 || r.Behind != 1 {
				t.Errorf("frozen = %+v, want version %s, 1 version behind", r, before.Version)
			}
		}
	}
	expectMaxLag(t, dsn, "0s", 1, "2 of 3 replicas lag by more than 0s: costly (error, ")
	expectMaxLag(t, dsn, "1h", 0, "")
	var seen fleet.Report
	if !harness.Eventually(soon, func() bool { // a replica on a busy machine may seem silent for a moment
		seen = fleet.Report{}
		err := json.Unmarshal([]byte(harness.Get(t, first.Admin+"/v1/fleet")), &seen)
		return err == nil && seen.Count[fleet.Failed] == 1 && len(seen.Replicas) == 3
	}) {
		t.Errorf("GET /v1/fleet = %+v, want three replicas and one error", seen)
	}

	if err := frozen.Thaw(); err != nil {
		t.Fatal(err)
	}
	policy("set", "GET /a", "60")
	report = expectFleet(t, dsn, all(fleet.OK, fleet.OK))
	for _, r := range report.Replicas {
		if r.Version != report.Version || r.Error != "" {
			t.Errorf("after the recovery: %+v, want version %s and no error", r, report.Version)
		}
	}
	if got := first.Metric(t, "headgate_fleet_told"); got != "1" {
		t.Errorf("headgate_fleet_told = %s, want 1", got)
	}

	// One that stops is gone, one that is killed is silent until it is forgotten
	// or back.
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	frozen.Kill()
	expectFleet(t, dsn, map[string]fleet.State{"costly": fleet.OK, "frozen": fleet.Silent})
	again := replica(t, api, dsn, often, "replica_name: frozen")
	expectFleet(t, dsn, map[string]fleet.State{"costly": fleet.OK, "frozen": fleet.OK})
	again.Kill()
	expectFleet(t, dsn, map[string]fleet.State{"costly": fleet.OK, "frozen": fleet.Silent})
	harness.Run(t, t.TempDir(), "fleet", "forget", "frozen", "--db", dsn)
	expectFleet(t, dsn, map[string]fleet.State{"costly": fleet.OK})
}

// TestFleetInOneFile is two gateways on one SQLite file: what they tell each
// other makes neither load its rules again.
func TestFleetInOneFile(t *testing.T) {
	dsn, api := "sqlite:"+filepath.Join(t.TempDir(), "headgate.db"), harness.NewUpstream(t)
	harness.Run(t, t.TempDir(), "policy", "set", "default", "100", "--db", dsn)
	const often = "replica_interval: 100ms"
	replica(t, api, dsn, often, "replica_name: a")
	replica(t, api, dsn, often, "replica_name: b")
	before := expectFleet(t, dsn, map[string]fleet.State{"a": fleet.OK, "b": fleet.OK})
	var after fleet.Report
	if !harness.Eventually(soon, func() bool {
		after = fleetOf(t, dsn)
		return after.At.Sub(before.At) > 2*time.Second && after.Count[fleet.OK] == 2
	}) {
		t.Fatalf("two seconds after %v the fleet is %+v, want both replicas in order", before.At, after)
	}
	for i, r := range after.Replicas {
		if r.Version != before.Version || !r.Loaded.Equal(before.Replicas[i].Loaded) {
			t.Errorf("%+v, want it to have the rules that it had loaded at %v", r, before.Replicas[i].Loaded)
		}
	}
}

// TestFleetGoesWithout is a gateway whose user may only read, and one whose
// rules are in somebody else's table: both serve, and say once why others
// cannot see them.
func TestFleetGoesWithout(t *testing.T) {
	dsn, shell := onPostgres(t)
	api := harness.NewUpstream(t)
	harness.Run(t, t.TempDir(), "policy", "set", "default", "100", "--db", dsn)
	for _, statement := range []string{"CREATE ROLE reader LOGIN",
		"GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"} {
		if _, err := shell.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	const often, talkative = "replica_interval: 100ms", "log: {level: debug}"
	table := replica(t, api, dsn, often, talkative, "db_table: policies", "db_keys: sqlite:keys.db")
	reader := replica(t, api, strings.Replace(dsn, "app@", "reader@", 1), often, talkative)
	const says = "others cannot see this replica"
	for name, g := range map[string]*harness.Gateway{"with db_table": table, "that may only read": reader} {
		if !g.Says(says) {
			t.Errorf("the log of a gateway %s does not say that %s", name, says)
		}
		if response, err := http.Get(g.URL + "/a"); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("GET /a of a gateway %s = %v, %v, want 200", name, response, err)
		}
	}
	// It goes on trying, and says no more of it.
	if !harness.Eventually(soon, func() bool {
		n := reader.Metric(t, "headgate_fleet_tell_failures_total")
		return n != "0" && n != "1"
	}) {
		t.Error("a gateway that may only read has tried to tell but once")
	}
	if n := strings.Count(reader.Log(), says); n != 1 {
		t.Errorf("a gateway that may only read says %d times that %s, want once", n, says)
	}
	expectFleet(t, dsn, map[string]fleet.State{})
}
