package daemon_test

import (
	"database/sql"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// page is the body of a GET, whatever its status.
func page(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// standing is whether a process says everywhere that its rules cannot be relied on, and what happens to requests.
func (p *process) standing(t *testing.T, mode, words string) bool {
	t.Helper()
	ready, readiness := page(t, p.admin+"/readyz")
	_, metrics := page(t, p.admin+"/metrics")
	_, policies := page(t, p.admin+"/v1/policies")
	_, explained := page(t, p.admin+"/v1/explain?method=GET&target=/v1/items/7")
	gauge := strings.Contains(metrics, `headgate_policy_fallback{mode="`+mode+`"} 1`)
	if mode == "none" {
		return gauge && ready == 200 && readiness == "ready\n" && !strings.Contains(policies, `"fallback"`) &&
			!strings.Contains(explained, `"rules"`)
	}
	return gauge && (ready == 503) == (mode == "deny") && strings.Contains(readiness, words) &&
		strings.Contains(policies, `"fallback":"`+mode+`"`) && strings.Contains(policies, words) &&
		strings.Contains(explained, words)
}

// A table that cannot be read makes the rules stale, after policy_max_stale, and one that can be
// again ends that. What the gateway then does is what the configuration says, and it says so.
func TestStaleRulesOfSQLite(t *testing.T) {
	for mode, want := range map[string]struct {
		status  int // of a request that the rules admit
		limited string
	}{"keep": {200, `"default";q=100`}, "limit": {200, `"fallback";q=7`}, "deny": {503, ""}} {
		t.Run(mode, func(t *testing.T) {
			var dsn string
			p := newProcess(t, []policy.Rule{{Endpoint: "default", Limit: 100}, {Endpoint: "UNKNOWN", Limit: 100}},
				func(c *config.Config) {
					c.Refresh, c.Staleness.MaxStale, c.Staleness.OnStale = 20*time.Millisecond, time.Second, mode
					c.Staleness.Fallback.Burst, c.Staleness.Fallback.Limit = 7, 7
					dsn = strings.TrimPrefix(c.DB, "sqlite:")
				})
			eventually(t, "the rules can be relied on", func() bool { return p.standing(t, "none", "") })
			db, err := sql.Open("sqlite", filepath.Clean(dsn)+patient)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close() //nolint:errcheck // of a test
			run := func(statement string) {
				t.Helper()
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			run("ALTER TABLE policies RENAME TO aside")
			eventually(t, "the gateway says that its rules are stale",
				func() bool { return p.standing(t, mode, "the rules were last confirmed") })
			response, err := http.Get(p.gate + "/v1/items/7")
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != want.status || !strings.Contains(response.Header.Get("RateLimit-Policy"),
				want.limited) {
				t.Errorf("%d, RateLimit-Policy %s, want %d with %s", response.StatusCode,
					response.Header.Get("RateLimit-Policy"), want.status, want.limited)
			}
			run("ALTER TABLE aside RENAME TO policies")
			eventually(t, "the rules can be relied on again", func() bool { return p.standing(t, "none", "") })
			// On a slow machine a second may pass until they are read once more, which makes them stale for a moment.
			eventually(t, "a request passes", func() bool {
				status, _ := page(t, p.gate+"/v1/items/7")
				return status == 200
			})
		})
	}
}

// A database that never had a rule limits every caller all the same, unless the configuration says
// otherwise; the first rule ends that.
func TestDatabaseWithoutRules(t *testing.T) {
	for setting, want := range map[string]struct {
		mode, words string
		admitted    int // of 10
	}{
		"":      {"limit", "there are no rules: every caller is limited to 100 per 1s, burst 200", 10},
		"limit": {"limit", "there are no rules: every caller is limited to 1 per 1h, burst 2", 2},
		"allow": {"keep", "there are no rules: nothing is limited", 10},
		"deny":  {"deny", "there are no rules: every request is refused", 0},
	} {
		t.Run("policy_empty "+setting, func(t *testing.T) {
			var dsn string
			p := newProcess(t, nil, func(c *config.Config) {
				c.Refresh, dsn = 20*time.Millisecond, c.DB
				if setting != "" {
					c.Staleness.OnEmpty = setting
				}
				if setting == "limit" {
					c.Staleness.Fallback = config.FallbackLimit{Limit: 1, Per: time.Hour, Burst: 2}
				}
			})
			if !p.standing(t, want.mode, want.words) {
				t.Errorf("the gateway does not say everywhere %q: %q", want.mode, want.words)
			}
			admitted := 0
			for range 10 {
				if status, _ := page(t, p.gate+"/v1/items/7"); status == 200 {
					admitted++
				}
			}
			if admitted != want.admitted {
				t.Errorf("%d of 10 requests admitted, want %d", admitted, want.admitted)
			}
			fill(t, dsn, []policy.Rule{{Endpoint: "default", Limit: 100}, {Endpoint: "UNKNOWN", Limit: 100}})
			eventually(t, "the rules can be relied on", func() bool { return p.standing(t, "none", "") })
		})
	}
}

// Rules for UNKNOWN count nothing where unknown requests are refused, which is the default: it is said at the start.
func TestUnknownThatIsRejected(t *testing.T) {
	rules := []policy.Rule{{Endpoint: "default", Limit: 100}, {Endpoint: "UNKNOWN", Limit: 100}}
	for _, c := range []struct {
		unknown string
		rules   []policy.Rule
		said    bool
	}{{"reject", rules, true}, {"limit", rules, false}, {"reject", rules[:1], false}} {
		var log livelog.Text
		p := newProcessWith(t, daemon.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Version: "test"}, c.rules,
			func(conf *config.Config) { conf.Unknown = c.unknown })
		if status, _ := page(t, p.gate+"/v1/items/7"); status != 200 {
			t.Errorf("a request of an endpoint: %d, want 200", status)
		}
		eventually(t, "all is said", func() bool { return strings.Contains(log.String(), "msg=serving") })
		if got := strings.Contains(log.String(), "want unknown: limit"); got != c.said {
			t.Errorf("unknown: %s, %d rules: said %v, want %v\n%s", c.unknown, len(c.rules), got, c.said, log.String())
		}
	}
}
