package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's binary be the child that the program starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-task" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A short run measures every database, and what it finds makes the page.
func TestEverythingIsMeasured(t *testing.T) {
	p := plan{rounds: 2, within: time.Nanosecond, most: 1_000, changes: 3, phases: 2, phase: 20 * time.Millisecond}
	found, err := p.all(t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if found.rounds != 1 { // for two there is no time
		t.Errorf("%d rounds, want one", found.rounds)
	}
	if len(found.loads) != 6 || len(found.checks) != 2 || len(found.changes) != 4 || len(found.lookUps) != 1 {
		t.Errorf("found %+v, want six databases' loads, two's checks, four ways to learn of changes and a look-up",
			found)
	}
	for d, loads := range found.loads {
		if l := loads[0]; l.Read <= 0 || l.Rest() <= 0 || l.Again <= 0 || l.Processor <= 0 || l.Bytes <= 0 ||
			l.Peak < l.Idle {
			t.Errorf("%v: %+v, want times and sizes above 0 and a peak above what was there", d, l)
		}
	}
	for d, checks := range found.checks {
		c := checks[0]
		if c.Reloads < p.phases || c.Reloading.Samples == 0 || c.Beside.Samples == 0 || c.Quiet.Samples == 0 {
			t.Errorf("%v: %+v, want decisions in every kind of phases and a reload in each of one kind", d, c)
		}
		for _, times := range []Times{c.Quiet, c.Beside, c.Reloading} {
			if times.P50 > times.P99 || times.P99 > times.P999 {
				t.Errorf("%v: %+v, want percentiles that rise", d, times)
			}
		}
	}
	for d, c := range found.changes {
		if c.Samples != p.changes || c.Most <= 0 || c.P50 > c.P99 {
			t.Errorf("%v: %+v, want %d changes", d, c, p.changes)
		}
	}
	text := p.page(found, time.Now())
	for _, row := range []string{"| SQLite | 1,000 |", "| MariaDB | 1,000 full |", "| PostgreSQL | NOTIFY |",
		"| PostgreSQL | looking |", "| any, at random |", "| no rule: one read at random of as much memory |",
		"Goal: in force after at most 1,500 ms", "Goal: P99 of at most 50 ms", "| SQLite | reloading |",
		"| SQLite | beside |", "| PostgreSQL | reloading by beside |"} {
		if !strings.Contains(text, row) {
			t.Errorf("the page lacks %q:\n%s", row, text)
		}
	}
}

// Times that are counted have the percentiles of those that are listed, however long they are.
func TestTimes(t *testing.T) {
	var s spent
	for i := range 10_000 {
		s.add(time.Duration(9_999-i) * 10 * time.Nanosecond)
	}
	if got, want := s.times(), (Times{50, 99, 99.9, 10_000}); got != want {
		t.Errorf("times = %+v, want %+v", got, want)
	}
}

func TestUnknownTask(t *testing.T) {
	err := run([]string{"-task", "sing"}, t.Output(), t.Output())
	if err == nil || !strings.Contains(err.Error(), `task is "sing"`) {
		t.Errorf("run = %v, want the task named", err)
	}
}
