package revert

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/record"
)

// world is one replica over a real database, on a clock that the test moves.
type world struct {
	testing.TB
	*limited
	*Watcher
	store   *database.Store
	path    string
	elapsed time.Duration
	hidden  bool // the number of the rules in force is not known yet
	log     bytes.Buffer
}

var alice = record.Author{Actor: "alice"}

func newWorld(t testing.TB) *world {
	w := &world{TB: t, path: filepath.Join(t.TempDir(), "headgate.db")}
	var err error
	w.store, err = database.Open(t.Context(), sqlitetest.New(t, w.path))
	must(t, err)
	t.Cleanup(func() { must(t, w.store.Close()) })
	w.start()
	return w
}

// start is a start of the process: nothing is left of what it counted.
func (w *world) start() {
	w.limited = newLimited(w, nil)
	w.Watcher = New(Options{
		Settings:  Settings{Share: 50, For: 5 * time.Second, MinRequests: 100, MinCallers: 2, Watch: 30 * time.Second},
		Endpoints: w.endpoints, Reload: w.load, History: func() History { return w.store }, Name: "r1",
		Policies: func() (*policy.Set, int64) {
			set := w.Set()
			if set == nil || w.hidden {
				return set, 0
			}
			return set, set.Number()
		},
		Log:     slog.New(slog.NewTextHandler(&w.log, nil)),
		Elapsed: func() time.Duration { return w.elapsed }, Now: func() int64 { return 0 },
	})
	watcher := w.Watcher
	w.limited = newLimited(w, watcher.Observe)
}

// load puts in force what is in the database, or what was stays.
func (w *world) load(ctx context.Context) error {
	doc, _, err := w.store.Load(ctx)
	if err != nil {
		return err
	}
	set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: w.endpoints, Previous: w.Set()})
	if set == nil {
		return problems.Err()
	}
	w.use(set)
	return nil
}

// TestOtherEndpoints: a reload of the gateway with more endpoints, which have other numbers, leaves the watcher
// counting at those: what comes before it has noticed is not counted, and a change after that is judged.
func TestOtherEndpoints(t *testing.T) {
	w := newWorld(t)
	w.do("set GET /a wide")
	w.do("tick 6 /a")
	w.endpoints = table(t, "GET /0", "GET /1", "GET /2", "GET /3", "GET /a")
	must(t, w.load(t.Context()))
	w.do("tick 6 /a")
	w.do("set GET /a narrow")
	w.do("tick 12 /a")
	if got := w.Stats(); got.Reverted != 1 {
		t.Errorf("after the change: %+v, want it taken back\n%s", got, w.log.String())
	}
	if !strings.Contains(w.log.String(), "GET /a") {
		t.Errorf("the log does not name the endpoint: %s", w.log.String())
	}
}

// wide and narrow are limits within which everybody and nobody stays.
const wide, narrow = "1000000", "1"

// do runs one line of a script.
func (w *world) do(line string) {
	w.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "set": // an endpoint's limit an hour, and it acts
		w.do("write " + rest)
		must(w, w.load(w.Context()))
	case "write": // the same, and nobody has noticed yet
		i := strings.LastIndexByte(rest, ' ')
		limit, err := strconv.ParseInt(strings.NewReplacer("wide", wide, "narrow", narrow).Replace(rest[i+1:]), 10, 64)
		must(w, err)
		r := policy.Rule{Endpoint: rest[:i], Limit: limit, Per: time.Hour}
		if endpoint, shadow := strings.CutSuffix(r.Endpoint, " shadow"); shadow {
			r.Endpoint, r.Mode = endpoint, policy.Shadow
		}
		err = w.store.Set(w.Context(), alice, r)
		must(w, err)
	case "rollback": // a person's
		to, err := strconv.ParseInt(rest, 10, 64)
		must(w, err)
		_, err = w.store.Rollback(w.Context(), alice, to, 0)
		must(w, err)
		must(w, w.load(w.Context()))
	case "load":
		must(w, w.load(w.Context()))
	case "tick": // so many parts, with requests of four callers
		n, target, _ := strings.Cut(rest, " ")
		w.tick(n, func() {
			for from := byte(1); target != "" && from <= 4; from++ {
				w.send(w, target, from, 10)
			}
		})
	case "greedy": // so many parts, with requests of one caller
		n, target, _ := strings.Cut(rest, " ")
		w.tick(n, func() { w.send(w, target, 9, 100) })
	case "stall": // the process stands still
		d, err := time.ParseDuration(rest)
		must(w, err)
		w.elapsed += d
	case "start":
		w.start()
		must(w, w.load(w.Context()))
	case "hide", "show":
		w.hidden = verb == "hide"
	case "away":
		must(w, os.Rename(w.path, w.path+".away"))
	case "back":
		must(w, os.Rename(w.path+".away", w.path))
	default:
		w.Fatalf("no such line in a script: %s", line)
	}
}

func (w *world) tick(times string, traffic func()) {
	w.Helper()
	n, err := strconv.Atoi(times)
	must(w, err)
	for range n {
		traffic()
		w.elapsed += time.Second
		w.Tick(w.Context())
	}
}

// history is the actions since the first two versions, oldest first.
func (w *world) history() string {
	w.Helper()
	list, err := w.store.History(w.Context(), 0, 100)
	must(w, err)
	var text string
	for _, v := range list {
		action := v.Action
		if v.Of > 0 {
			action += fmt.Sprintf("(%d)", v.Of)
		}
		text = action + " " + text
	}
	return strings.TrimSpace(text)
}

// Version 1 is the empty beginning, 2 a wide limit on GET /a, 3 one on GET /b.
func TestWatcher(t *testing.T) {
	const begin = "start; set GET /a wide; set GET /b wide; tick 5 /a; "
	cases := []struct {
		name   string
		script string
		want   string // the history after version 3
		stats  Stats
	}{
		{"a change turns callers away", "set GET /a narrow; tick 6 /a", "set revert(3)", Stats{Reverted: 1}},
		{"not for long enough", "set GET /a narrow; tick 5 /a", "set", Stats{Trials: 1}},
		{"and it is over, once", "set GET /a narrow; tick 20 /a", "set revert(3)", Stats{Reverted: 1}},
		{"a looser rule", "set GET /a 2000000; tick 10 /a", "set", Stats{}},
		{"a looser rule under attack", "set GET /a 100; tick 40; set GET /a 101; tick 20 /a", "set set", Stats{}},
		{"a rule in shadow", "set GET /a shadow narrow; tick 10 /a", "set", Stats{}},
		{"nobody calls", "set GET /a narrow; tick 10", "set", Stats{Trials: 1}},
		{"one greedy caller", "set GET /a 50; greedy 10 /a", "set", Stats{Trials: 1}},
		{"after the watch", "set GET /a narrow; tick 31; tick 10 /a", "set", Stats{}},
		{"a default where there is no other rule", "set default narrow; tick 6 /c", "set revert(3)",
			Stats{Reverted: 1}},
		{"a default that other rules hide", "set default narrow; tick 10 /a", "set", Stats{Trials: 1}}, // of GET /c
		{"an attack on an endpoint whose rules are as before",
			"set GET /c narrow; tick 31; set GET /a 2000000; tick 10 /c", "set set", Stats{}},
		{"as bad before", "set GET /a narrow; tick 31; tick 5 /a; set GET /a 2; tick 10 /a", "set set", Stats{}},

		{"two changes, both at fault", "set GET /a 5; tick 2 /a; set GET /a narrow; tick 6 /a", "set set revert(3)",
			Stats{Reverted: 1}},
		{"two at once, both at fault", "write GET /a 5; set GET /a narrow; tick 6 /a", "set set revert(3)",
			Stats{Reverted: 1}},
		{"another since, not at fault", "set GET /a narrow; tick 2 /a; set GET /b 2000000; tick 10 /a", "set set",
			Stats{Mixed: 1}},
		{"another at once, not at fault", "write GET /a narrow; set GET /b 2000000; tick 10 /a", "set set",
			Stats{Mixed: 1}},
		{"another before, not at fault", "set GET /b 2000000; tick 2 /a; set GET /a narrow; tick 6 /a",
			"set set revert(4)", Stats{Reverted: 1}},
		{"one before proved well, and another is not at fault",
			"set GET /a 900000; tick 8 /a; set GET /b 2000000; tick 1 /a; set GET /a narrow; tick 6 /a",
			"set set set revert(5)", Stats{Reverted: 1}},
		{"one before proved well", "set GET /a 900000; tick 8 /a; set GET /a narrow; tick 6 /a", "set set revert(4)",
			Stats{Reverted: 1}},
		{"one before had no time to prove well",
			"set GET /a 900000; tick 4 /a; set GET /b 2000000; tick 1 /a; set GET /a narrow; tick 8 /a", "set set set",
			Stats{Mixed: 1}},
		{"nobody came to prove one before well",
			"set GET /a 900000; tick 8; set GET /b 2000000; tick 1; set GET /a narrow; tick 8 /a", "set set set",
			Stats{Mixed: 1}},
		{"one before proved well, and a looser one came after it",
			"set GET /a 900000; tick 8 /a; set GET /a 950000; tick 2 /a; set GET /a narrow; tick 6 /a",
			"set set set revert(3)", Stats{Reverted: 1}},

		{"an operator acts first", "set GET /a narrow; tick 3 /a; write GET /a wide; tick 10 /a", "set set",
			Stats{Conflicts: 1}},
		{"an operator mends it, and it acts", "set GET /a narrow; tick 3 /a; set GET /a wide; tick 10 /a", "set set",
			Stats{Trials: 1}},
		{"an operator rolls back", "set GET /a narrow; tick 3 /a; rollback 3; tick 10 /a", "set rollback(3)", Stats{}},
		{"somebody insists", "set GET /a narrow; tick 6 /a; set GET /a narrow; tick 20 /a", "set revert(3) set",
			Stats{Reverted: 1}},
		{"somebody insists on two endpoints that are flooded", "set GET /a narrow; tick 7 /a; set GET /b narrow; " +
			"tick 7 /b; set GET /a narrow; tick 20 /a; set GET /b narrow; tick 20 /b",
			"set revert(3) set revert(5) set set", Stats{Reverted: 2}},
		{"somebody insists, after a restart",
			"set GET /a narrow; tick 6 /a; start; tick 5 /a; set GET /a narrow; tick 20 /a",
			"set revert(3) set", Stats{}},
		{"somebody tries another limit", "set GET /a narrow; tick 12 /a; set GET /a 2; tick 6 /a",
			"set revert(3) set revert(5)", Stats{Reverted: 2}},
		{"somebody insists, and changes another rule too",
			"set GET /a narrow; tick 7 /a; write GET /a narrow; set GET /c narrow; tick 6 /c", "set revert(3) set set",
			Stats{Reverted: 1, Mixed: 1}},

		{"a database that is away while it is noticed", "set GET /a narrow; away; tick 3 /a; back; tick 6 /a",
			"set revert(3)", Stats{Reverted: 1}},
		{"a database that is away when it is time", "set GET /a narrow; tick 3 /a; away; tick 5 /a; back; tick 1 /a",
			"set revert(3)", Stats{Reverted: 1, Failed: 3}},
		{"a number that comes late", "hide; set GET /a narrow; tick 3 /a; show; tick 6 /a", "set revert(3)",
			Stats{Reverted: 1}},
		{"and after a reload", "hide; set GET /a narrow; tick 2 /a; load; tick 1 /a; show; tick 6 /a", "set revert(3)",
			Stats{Reverted: 1}},
		{"and with one", "hide; set GET /a narrow; tick 3 /a; show; load; tick 6 /a", "set revert(3)",
			Stats{Reverted: 1}},
		{"a number that comes too late", "hide; set GET /a narrow; tick 31 /a; show; tick 6 /a", "set", Stats{}},
		{"another change before the number comes",
			"hide; set GET /a narrow; tick 3 /a; show; set GET /b 2000000; tick 10 /a", "set set", Stats{}},
		{"a process that stands still", "set GET /a narrow; tick 5 /a; stall 10s; tick 5 /a", "set", Stats{Trials: 1}},
		{"and goes on", "set GET /a narrow; tick 5 /a; stall 10s; tick 6 /a", "set revert(3)", Stats{Reverted: 1}},
		{"a reload of the same rules", "set GET /a narrow; tick 3 /a; load; tick 3 /a", "set revert(3)",
			Stats{Reverted: 1}},
		{"a replica that starts after the change", "write GET /a narrow; start; tick 10 /a", "set", Stats{}},
	}
	for _, c := range cases {
		w := newWorld(t)
		for line := range strings.SplitSeq(begin+c.script, "; ") {
			w.do(line)
		}
		got := strings.TrimPrefix(w.history(), "start set set ")
		if got != c.want || w.Stats() != c.stats {
			t.Errorf("%s: history %q and %+v, want %q and %+v\n%s", c.name, got, w.Stats(), c.want, c.stats, &w.log)
		}
		if n := strings.Count(w.log.String(), "a change was taken back"); n != strings.Count(c.want, "revert") {
			t.Errorf("%s: the log says %d times that a change was taken back, want as often as the history %s\n%s",
				c.name, n, c.want, &w.log)
		}
	}
}

func TestWhy(t *testing.T) {
	w := newWorld(t)
	for line := range strings.SplitSeq("start; set GET /a wide; tick 5 /a; set GET /a narrow; tick 6 /a", "; ") {
		w.do(line)
	}
	now, err := w.store.Current(t.Context())
	must(t, err)
	const want = "GET /a: 100 % of 200 requests denied for 5s after version 3 by alice; before: 0 % of 160 requests"
	if now.Actor != "auto-revert" || now.Claimed != "r1" || now.Why != want ||
		now.Action != record.ActionRevert || now.Of != 2 {
		t.Errorf("version = %+v, want one by auto-revert, because %q", now, want)
	}
	w.do("tick 1")
	flag := w.Reverted()
	if flag == nil || flag.Version != now.ID || flag.Restored != 2 || flag.Why != want {
		t.Errorf("Reverted = %+v, want version %d", flag, now.ID)
	}
	w.do("start")
	w.do("tick 1")
	if flag := w.Reverted(); flag == nil || flag.Why != want {
		t.Errorf("Reverted after a restart = %+v, want it to be said still", flag)
	}
	w.do("set GET /b wide")
	w.do("tick 1")
	if flag := w.Reverted(); flag != nil {
		t.Errorf("Reverted after somebody's change = %+v, want nil", flag)
	}
}

// Two replicas see the same, and one of them acts.
func TestTwoReplicas(t *testing.T) {
	one := newWorld(t)
	two := &world{TB: t, store: one.store, path: one.path}
	for _, line := range strings.Split("start; set GET /a wide; tick 5 /a", "; ") {
		one.do(line)
	}
	two.do("start")
	two.do("tick 5 /a")
	one.do("set GET /a narrow")
	two.do("load")
	for range 6 {
		one.do("tick 1 /a")
		two.do("tick 1 /a")
	}
	if got := one.history(); got != "start set set revert(2)" {
		t.Errorf("history = %s, want one revert", got)
	}
	if one.Stats().Reverted != 1 || two.Stats().Conflicts != 1 {
		t.Errorf("one %+v, two %+v, want the first to have acted and the second to have found it done",
			one.Stats(), two.Stats())
	}
}

// What would not load again is not brought back.
func TestCheckRefuses(t *testing.T) {
	w := newWorld(t)
	w.Watcher.o.Check = func(_, after policy.Document) error { return fmt.Errorf("no") }
	for _, line := range strings.Split("set GET /a wide; tick 5 /a; set GET /a narrow; tick 8 /a", "; ") {
		w.do(line)
	}
	if got, stats := w.history(), w.Stats(); got != "start set set" || stats.Failed == 0 || stats.Reverted != 0 {
		t.Errorf("history = %s, %+v, want no revert", got, stats)
	}
}
