package fleet_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/fleet"
	"github.com/headgate-io/headgate/server/record"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func TestJudge(t *testing.T) {
	const every = 5 * time.Second
	cases := []struct {
		name    string
		replica record.Replica
		state   fleet.State
		lag     float64
		why     string
	}{
		{"has the rules", record.Replica{Rules: "new", Seen: ago(4 * time.Second), Every: every}, fleet.OK, 0, ""},
		{"told three intervals ago", record.Replica{Rules: "new", Seen: ago(15 * time.Second), Every: every},
			fleet.OK, 0, ""},
		{"told longer ago", record.Replica{Rules: "new", Seen: ago(16 * time.Second), Every: every, Stale: time.Second},
			fleet.Silent, 17, "has not reported for 16s"},
		{"seldom tells", record.Replica{Rules: "new", Seen: ago(16 * time.Second), Every: time.Minute},
			fleet.OK, 0, ""},
		{"names no interval", record.Replica{Rules: "new", Seen: ago(16 * time.Second)}, fleet.Silent, 16,
			"has not reported for 16s"},
		{"has older rules", record.Replica{
			Rules:   "old",
			Seen:    ago(time.Second),
			Every:   every,
			Stale:   8 * time.Second,
			Behind:  2,
			Lacking: ago(9 * time.Second),
		},
			fleet.Lags, 9, "lacks the newest 2 versions, for 9.0s"},
		{"lacks one version", record.Replica{
			Rules:   "old",
			Seen:    ago(time.Second),
			Every:   every,
			Stale:   time.Minute,
			Behind:  1,
			Lacking: ago(time.Minute),
		},
			fleet.Lags, 60, "lacks the newest version, for 1m0s"},
		{"has other rules, nobody knows since when", record.Replica{Rules: "old", Seen: ago(time.Second), Every: every,
			Stale: 2 * time.Second},
			fleet.Lags, 3, "has other rules or keys than the database, for 3.0s"},
		{"refused the rules", record.Replica{
			Rules:   "old",
			Seen:    ago(time.Second),
			Every:   every,
			Stale:   time.Minute,
			Error:   "rps_limit is -1",
			Behind:  1,
			Lacking: ago(time.Minute),
		},
			fleet.Failed, 60, "rps_limit is -1"},
		{"an error it has told, and then nothing", record.Replica{
			Rules:   "old",
			Seen:    ago(20 * time.Second),
			Every:   every,
			Stale:   40 * time.Second,
			Error:   "x",
			Lacking: ago(time.Minute),
		},
			fleet.Silent, 60, "has not reported for 20s"},
		{"silent for longer than it lacks a version", record.Replica{Rules: "old", Seen: ago(time.Hour), Every: every,
			Lacking: ago(time.Minute)},
			fleet.Silent, 3600, "has not reported for 1h0m0s"},
		{"seen a little after now", record.Replica{Rules: "new", Seen: now.Add(15 * time.Second), Every: every},
			fleet.OK, 0, ""},
		{"the database's clock was set back", record.Replica{Rules: "new", Seen: now.Add(time.Hour), Every: every},
			fleet.Silent, 3600, "has not reported since the database's clock was set back by 1h0m0s or so"},
		{"the clock was set forward after the version was made", record.Replica{
			Rules:   "old",
			Seen:    ago(time.Second),
			Every:   every,
			Stale:   2 * time.Second,
			Behind:  1,
			Lacking: ago(time.Hour),
		},
			fleet.Lags, 3, "lacks the newest version, for 3.0s"},
		{"the clock was set back after the version was made", record.Replica{
			Rules:   "old",
			Seen:    ago(time.Second),
			Every:   every,
			Stale:   2 * time.Second,
			Behind:  1,
			Lacking: ago(-time.Hour),
		},
			fleet.Lags, 3, "lacks the newest version, for 3.0s"},
	}
	for _, c := range cases {
		report := fleet.Judge(record.Fleet{At: now, Rules: "new", Replicas: []record.Replica{c.replica}})
		got := report.Replicas[0]
		if got.State != c.state || got.Lag != c.lag || got.Why != c.why || report.Count[c.state] != 1 {
			t.Errorf("%s: %s, lag %v, %q, want %s, lag %v, %q", c.name, got.State, got.Lag, got.Why,
				c.state, c.lag, c.why)
		}
		if beyond := report.Beyond(9 * time.Second); (len(beyond) == 1) != (c.lag > 9) {
			t.Errorf("%s: Beyond(9s) = %v, want it if %v is more", c.name, beyond, c.lag)
		}
	}
}

// How far clocks are apart is told as it was, and no state depends on it.
func TestJudgeTellsOfClocks(t *testing.T) {
	hour := -time.Hour
	report := fleet.Judge(record.Fleet{
		At:       now,
		Replicas: []record.Replica{{Name: "a", Seen: now, Ahead: &hour}, {Name: "b", Seen: now}},
	})
	a, b := report.Replicas[0], report.Replicas[1]
	if a.Ahead == nil || *a.Ahead != -3600 || a.State != fleet.OK || b.Ahead != nil {
		t.Errorf("%+v and %+v, want the clock of a an hour behind, that of b not known, and both ok", a, b)
	}
}

func TestDefaultName(t *testing.T) {
	a, again := fleet.DefaultName("host", "127.0.0.1:8080", "127.0.0.1:8081"),
		fleet.DefaultName("host", "127.0.0.1:8080", "127.0.0.1:8081")
	other := fleet.DefaultName("host", "127.0.0.1:8080", "127.0.0.1:8082")
	if a != again || a == other || len(a) != len("host-123456") {
		t.Errorf("names %s, %s, %s, want the first two alike: a replica has its name again after a restart",
			a, again, other)
	}
	if one, two := fleet.DefaultName("host", "127.0.0.1:0"), fleet.DefaultName("host", "127.0.0.1:0"); one == two {
		t.Errorf("two replicas on ports of the system's choice are both %s", one)
	}
}
