// Package fleet lets the replicas of one policy database know of each other:
// each tells which rules it has in force, and a report says who lags.
package fleet

import (
	"fmt"
	"time"

	"github.com/headgate-io/headgate/server/record"
)

// State is how a replica does, in a word.
type State string

// The states. The first that is true of a replica is its.
const (
	Silent State = "silent" // it has not reported for longer than silentAfter times its interval
	Failed State = "error"  // it could not take over what the database holds
	Lags   State = "lags"   // it has other rules than the database
	OK     State = "ok"
)

const (
	// silentAfter is how many words of a replica may be missing: one may be
	// late, and one be lost.
	silentAfter = 3

	// usualInterval stands for the interval of a replica that names none.
	usualInterval = 5 * time.Second
)

// Report is all replicas of a database at one moment.
type Report struct {
	At       time.Time     `json:"at"`       // by the database's clock
	Version  string        `json:"version"`  // of the rules in the database
	Number   int64         `json:"number"`   // of that version; 0 is unknown
	Count    map[State]int `json:"count"`    // of replicas, by state
	Replicas []Replica     `json:"replicas"` // by name
}

// Replica is one of a Report.
type Replica struct {
	Name    string    `json:"replica"`
	Program string    `json:"program"`
	Started time.Time `json:"started_at"`

	Version string    `json:"version"` // of the rules in force
	Number  int64     `json:"number"`
	Loaded  time.Time `json:"loaded_at"`
	Stale   float64   `json:"stale_seconds"` // since its rules were known to be current, when it last told

	Behind int64     `json:"behind"`       // versions of the database that it lacks
	Lag    float64   `json:"lag_seconds"`  // how long it has lacked them, or may have
	Seen   time.Time `json:"seen_at"`      // by the database's clock
	Silent float64   `json:"seen_seconds"` // since then

	// Ahead is by how much its clock is ahead of that of the store of shared
	// buckets, in seconds; nil if it has none, or does not know.
	Ahead *float64 `json:"clock_offset_seconds,omitempty"`

	State State  `json:"state"`
	Why   string `json:"why,omitempty"` // in words; empty for OK
	Error string `json:"last_error,omitempty"`
}

// Judge says of every replica how it does.
func Judge(f record.Fleet) Report {
	report := Report{
		At: f.At, Version: f.Rules, Number: f.Number, Replicas: make([]Replica, len(f.Replicas)),
		Count: map[State]int{OK: 0, Lags: 0, Silent: 0, Failed: 0},
	}
	for i, r := range f.Replicas {
		report.Replicas[i] = judge(r, f)
		report.Count[report.Replicas[i].State]++
	}
	return report
}

func judge(r record.Replica, f record.Fleet) Replica {
	// A word from the future was told before the database's clock was set
	// back: as old as one from as long ago, for all that is known.
	silent := f.At.Sub(r.Seen).Abs()
	every := r.Every
	if every <= 0 {
		every = usualInterval
	}
	lag := time.Duration(0)
	if r.Rules != f.Rules {
		// It lacks nothing from before it last knew its rules to be current. When
		// the version was made that it lacks, another clock says, perhaps.
		lag = r.Stale + silent
		if since := f.At.Sub(r.Lacking); !r.Lacking.IsZero() && since >= 0 {
			lag = min(lag, since)
		}
	}
	j := Replica{
		Name: r.Name, Program: r.Program, Started: r.Started, Version: r.Rules, Number: r.Number, Loaded: r.Loaded,
		Stale: r.Stale.Seconds(), Behind: r.Behind, Seen: r.Seen, Silent: silent.Seconds(), Error: r.Error, State: OK,
	}
	if r.Ahead != nil {
		seconds := r.Ahead.Seconds()
		j.Ahead = &seconds
	}
	switch {
	case silent > silentAfter*every:
		// Nobody knows which rules it has by now: the worst is taken for true.
		lag = max(lag, r.Stale+silent)
		j.State, j.Why = Silent, "has not reported for "+Words(silent)
		if r.Seen.After(f.At) {
			j.Why = "has not reported since the database's clock was set back by " + Words(silent) + " or so"
		}
	case r.Error != "":
		j.State, j.Why = Failed, r.Error
	case r.Behind == 1:
		j.State, j.Why = Lags, "lacks the newest version, for "+Words(lag)
	case r.Behind > 1:
		j.State, j.Why = Lags, fmt.Sprintf("lacks the newest %d versions, for %s", r.Behind, Words(lag))
	case r.Rules != f.Rules:
		j.State, j.Why = Lags, "has other rules or keys than the database, for "+Words(lag)
	}
	j.Lag = lag.Seconds()
	return j
}

// Words is a duration for people: to the tenth of a second below ten, then to
// the second.
func Words(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// Beyond reports the replicas that lag by more than most.
func (r Report) Beyond(most time.Duration) []Replica {
	var list []Replica
	for _, one := range r.Replicas {
		if one.Lag > most.Seconds() {
			list = append(list, one)
		}
	}
	return list
}
