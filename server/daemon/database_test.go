package daemon_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database/dbtest"
)

// soon is how long a test waits for what the gateway does by itself.
const soon = time.Minute

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, soon)
		}
	}
}

// staleness is what the gateway says of its rules.
func (p *process) staleness(t *testing.T) float64 {
	t.Helper()
	_, text := call(t, "GET", p.admin+"/metrics", "")
	match := regexp.MustCompile(`(?m)^headgate_policy_staleness_seconds (\S+)$`).FindStringSubmatch(text)
	if match == nil {
		t.Fatal("no headgate_policy_staleness_seconds in the metrics")
	}
	seconds, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return seconds
}

// TestGatewayOnServers: the same gateway on PostgreSQL and MariaDB. Changes in a
// shell act; while the server is away requests go on and the metric rises; a
// gateway starts without it; nothing needs a restart when it is back.
func TestGatewayOnServers(t *testing.T) {
	for kind, start := range map[string]func() (*dbtest.Server, error){"PostgreSQL": dbtest.Postgres,
		"MariaDB": dbtest.MariaDB} {
		t.Run(kind, func(t *testing.T) {
			server, err := start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := server.Stop(); err != nil {
					t.Error(err)
				}
			})
			testGatewayOnServer(t, kind, server)
		})
	}
}

func testGatewayOnServer(t *testing.T, kind string, server *dbtest.Server) {
	name, dsn, err := server.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shell, err := server.Shell(name)
	if err != nil {
		t.Fatal(err)
	}
	defer shell.Close()
	dir := t.TempDir()
	onServer := func(c *config.Config) {
		c.DB, c.SecretFile, c.LastGood = dsn, filepath.Join(dir, "secret"), filepath.Join(dir, "last-good.json")
		c.Refresh = 50 * time.Millisecond
		if kind == "PostgreSQL" {
			c.Refresh = time.Hour // so that it is the notification which is seen
		}
	}
	p := newProcess(t, []policy.Rule{{Endpoint: "default", Limit: 100}, {Endpoint: "UNKNOWN", Limit: 100}}, onServer)
	inForce := func(p *process) string {
		response, err := http.Get(p.gate + "/v1/items/7")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.Header.Get("RateLimit-Policy")
	}
	change := func(limit int) {
		t.Helper()
		if _, err := shell.ExecContext(t.Context(),
			fmt.Sprintf("UPDATE policies SET rps_limit = %d WHERE endpoint = 'default'", limit)); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("limit %d in force", limit),
			func() bool { return strings.Contains(inForce(p), fmt.Sprintf("q=%d;", limit)) })
	}
	change(71)
	bounded := newProcess(t, nil, onServer, func(c *config.Config) {
		c.Refresh, c.Staleness.MaxStale, c.Staleness.OnStale = 50*time.Millisecond, time.Second, "limit"
	})
	if err := server.Halt(); err != nil {
		t.Fatal(err)
	}
	before := p.staleness(t)
	eventually(t, "staleness rises", func() bool { return p.staleness(t) > before+0.2 })
	if status, _ := call(t, "GET", p.gate+"/v1/items/7", ""); status != 200 {
		t.Errorf("a request while the database is away: %d, want 200", status)
	}
	late := lateProcess(t, onServer, func(c *config.Config) { c.Refresh = 50 * time.Millisecond })
	if status, _ := call(t, "GET", late.gate+"/v1/items/7", ""); status != 200 {
		t.Errorf("a request to a gateway that was started while the database is away: %d, want 200", status)
	}
	eventually(t, "stale rules limit every caller in addition",
		func() bool { return bounded.standing(t, "limit", "the rules were last confirmed") })
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	change(72) // nothing was restarted
	eventually(t, "rules to rely on", func() bool { return bounded.standing(t, "none", "") })
	eventually(t, "limit 72 in force where the database was away at the start",
		func() bool { return strings.Contains(inForce(late), "q=72;") })
	if kind == "MariaDB" {
		eventually(t, "fresh again", func() bool { return p.staleness(t) < 1 })
	}
}
