package operations

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/server/database/dbtest"
	"github.com/headgate-io/headgate/server/fleet"
)

// What a change of all rules may take at its peak, in bytes: the old rules and
// the new, the rows read, and what the collector of garbage lets stand.
const (
	perRule = 2500
	besides = 200 << 20
)

const (
	// between is the time from one request of a client to the next.
	between = 25 * time.Millisecond

	// loaded is when a change is in force at the latest, on a machine that is
	// busy with other tests.
	loaded = 5 * time.Minute
)

// inserted are statements that make rules, and before, amid and after them one
// for the same endpoint each, of another subject. project is a text of i, and
// numbers gives i in a query's FROM.
func inserted(rules int, project string, numbers func(from, to int) string) []string {
	marker := func(subject string) string {
		return fmt.Sprintf("INSERT INTO policies (endpoint, subject, rps_limit) VALUES ('%s', '%s', 1000)",
			rule, subject)
	}
	half := func(from, to int) string {
		return fmt.Sprintf("INSERT INTO policies (endpoint, project_id, rps_limit) SELECT '%s', %s, 1000 FROM %s", rule,
			project, numbers(from, to))
	}
	return []string{"DELETE FROM policies", marker("principal"), half(1, rules/2), marker("ip"), half(rules/2+1, rules),
		marker("endpoint")}
}

// changed are all rules, in one transaction.
const changed = "UPDATE policies SET rps_limit = 2000, burst = 2000"

// TestManyRulesChangeAtOnce changes all rules in one transaction while requests
// come: a million in SQLite, which takes least of the machine for them, and
// fewer where they would only take longer, or where the race detector watches
// this process, and has nothing to see of the gateway's.
// Each request meets three rules, which stand far apart in the table: it sees
// the old limits or the new ones, and after the first new one no old one.
func TestManyRulesChangeAtOnce(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		rules := race.Fewer(1_000_000)
		dir := t.TempDir()
		setLimit(t, dir, "1000") // makes the tables
		sqlite(t, dir, "BEGIN; "+strings.Join(inserted(rules, "'p' || i", func(from, to int) string {
			return fmt.Sprintf(
				"(WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i+1 FROM n WHERE i < %d) SELECT i FROM n)", from,
				to)
		}), "; ")+"; COMMIT")
		testMany(t, dir, "sqlite:headgate.db", rules, func() { sqlite(t, dir, changed) })
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		testManyOnServer(t, dbtest.Postgres, race.Fewer(100_000),
			func(from, to int) string { return fmt.Sprintf("generate_series(%d, %d) i", from, to) })
	})
	t.Run("MariaDB", func(t *testing.T) {
		testManyOnServer(t, dbtest.MariaDB, race.Fewer(100_000),
			func(from, to int) string { return fmt.Sprintf("(SELECT seq AS i FROM seq_%d_to_%d) n", from, to) })
	})
}

func testManyOnServer(t *testing.T, begin func() (*dbtest.Server, error), rules int,
	numbers func(from, to int) string) {
	server, err := begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	name, dsn, err := server.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	harness.Run(t, dir, "policy", "set", "default", "1", "--db", dsn) // makes the tables
	shell, err := server.Shell(name)
	if err != nil {
		t.Fatal(err)
	}
	defer shell.Close()
	run := func(statements ...string) {
		for _, s := range statements {
			if _, err := shell.ExecContext(t.Context(), s); err != nil {
				t.Errorf("%s: %v", s, err)
			}
		}
	}
	run(inserted(rules, "concat('p', i)", numbers)...)
	testMany(t, dir, dsn, rules, func() { run(changed) })
}

var quota = regexp.MustCompile(`;q=(\d+);`)

// limits are those of all rules that a request met.
func limits(g *harness.Gateway) (found []string, err error) {
	response, err := http.Get(g.URL + target)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	for _, q := range quota.FindAllStringSubmatch(response.Header.Get("RateLimit-Policy"), -1) {
		found = append(found, q[1])
	}
	if len(found) != 3 || found[0] != found[1] || found[1] != found[2] {
		return nil, fmt.Errorf("answer %d by limits %v, want those of three rules in one state",
			response.StatusCode, found)
	}
	return found, nil
}

func testMany(t *testing.T, dir, dsn string, rules int, change func()) {
	g, _ := start(t, dir, "--db", dsn)
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	var served atomic.Int64
	for range 2 {
		traffic.Go(func() { seeOneState(t, g, stop, &served) })
	}
	var committed atomic.Int64 // Unix nanoseconds, 0 before it
	changing := make(chan struct{})
	go func() {
		defer close(changing)
		change()
		committed.Store(time.Now().UnixNano())
	}()
	ticks := time.NewTicker(between)
	defer ticks.Stop()
	for ; !newInForce(t, g, &committed); <-ticks.C {
		if at := committed.Load(); at != 0 && time.Since(time.Unix(0, at)) > loaded {
			t.Errorf("the change is not in force %v after the commit", loaded)
			break
		}
	}
	<-changing
	t.Logf("in force %v after the commit; %d requests met it",
		time.Since(time.Unix(0, committed.Load())).Round(time.Millisecond), served.Load())
	awaitNumber(t, dir, dsn)
	t.Logf("and has its number %v after", time.Since(time.Unix(0, committed.Load())).Round(time.Millisecond))
	close(stop)
	traffic.Wait()
	if got, err := strconv.ParseFloat(g.Metric(t, "headgate_policy_rules "), 64); err != nil || int(got) != rules+3 {
		t.Errorf("%v rules are in force, %v, want %d", got, err, rules+3)
	}
	if peak, most := peakMemory(t, g), int64(rules)*perRule+besides; peak > most {
		t.Errorf("the gateway took %d MB at its peak, want at most %d", peak>>20, most>>20)
	} else {
		t.Logf("%d MB at the peak", peak>>20)
	}
}

// awaitNumber waits until the gateway says of which version of the history its
// rules are: so large a change is numbered after it came into force.
func awaitNumber(t *testing.T, dir, dsn string) {
	t.Helper()
	ticks := time.NewTicker(10 * between) // each takes a process
	defer ticks.Stop()
	for began := time.Now(); ; <-ticks.C {
		var report fleet.Report
		if err := json.Unmarshal([]byte(harness.Run(t, dir, "fleet", "--json", "--db", dsn)), &report); err != nil {
			t.Fatal(err)
		}
		if report.Number > 0 && len(report.Replicas) == 1 && report.Replicas[0].Number == report.Number {
			return
		}
		if time.Since(began) > loaded {
			t.Errorf("the gateway does not know the number of its rules %v after they came into force: %+v",
				loaded, report)
			return
		}
	}
}

// seeOneState asks until stop, and never meets the old limits after the new.
// It is a rate and no load: the limit itself must not stand in the way, nor what
// asks in that of the change.
func seeOneState(t *testing.T, g *harness.Gateway, stop <-chan struct{}, served *atomic.Int64) {
	ticks := time.NewTicker(between)
	defer ticks.Stop()
	for last := "1000"; ; {
		select {
		case <-stop:
			return
		case <-ticks.C:
		}
		found, err := limits(g)
		switch {
		case err != nil:
			t.Error(err)
			return
		case found[0] < last:
			t.Errorf("a limit of %s after one of %s", found[0], last)
		}
		last = found[0]
		served.Add(1)
	}
}

// newInForce reports whether the change is, and looks what the gateway says of
// its age while it is not.
func newInForce(t *testing.T, g *harness.Gateway, committed *atomic.Int64) bool {
	t.Helper()
	// What is in force after the staleness was asked was not newer before.
	asked := time.Now().UnixNano()
	stale, _ := strconv.ParseFloat(g.Metric(t, "headgate_policy_staleness_seconds "), 64)
	found, err := limits(g)
	if err != nil {
		t.Fatal(err)
	}
	if at := committed.Load(); at != 0 && found[0] == "1000" {
		if old := time.Duration(asked - at).Seconds(); stale < old-0.05 {
			t.Errorf("%.2fs after a change that is not in force, the staleness is %.2fs", old, stale)
		}
	}
	return found[0] == "2000"
}

// peakMemory is the most that the process ever had in memory, in bytes.
func peakMemory(t *testing.T, g *harness.Gateway) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10
		}
	}
	t.Fatalf("no VmHWM in\n%s", status)
	return 0
}
