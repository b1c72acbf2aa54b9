package main

import (
	"math"
	"testing"
	"time"

	"github.com/headgate-io/headgate/adaptive"
)

// TestScenarios holds limits that follow the API against what is promised of them: 0.85 of what the API could give, in
// every scenario; a 99th percentile of at most 1.5 times the objective while it is steadily asked for too much; and a
// multiplier that does not swing, and never leaves its bounds.
func TestScenarios(t *testing.T) { hold(t, scenarios(1.3)) }

func hold(t *testing.T, all []scenario) {
	t.Helper()
	for _, s := range all {
		check(t, s, run(s, newOurs(s.backend, true), 7))
	}
}

func check(t *testing.T, s scenario, o outcome) {
	t.Helper()
	if o.Goodput < 0.85 {
		t.Errorf("%s: goodput %.3f, want 0.85 or more", s.name, o.Goodput)
	}
	if s.steady && (o.P99 > s.slo*3/2 || o.CV > 0.15) {
		t.Errorf("%s: p99 %v, variation of m %.3f; want %v and 0.15 at most", s.name, o.P99, o.CV, s.slo*3/2)
	}
	if o.Least < float64(floor)/adaptive.Whole || o.Most > 1 {
		t.Errorf("%s: m is %.3f to %.3f, want %.3f to 1", s.name, o.Least, o.Most, float64(floor)/adaptive.Whole)
	}
}

// TestAtOnce: limits on requests under way that follow the API as well keep what is promised.
func TestAtOnce(t *testing.T) {
	s := scenarios(1.3)[1]
	check(t, s, run(s, newGuarded(s.backend, 10), 7))
}

// TestPoisoned: one caller of three, and half of fifty but one, lower nobody's rates while the API is well.
func TestPoisoned(t *testing.T) {
	for callers, poisoned := range map[int]int{3: 1, 50: 24} {
		s := scenario{backend: quick, name: "poisoned", seconds: 60, offered: always(0.6 * quick.mu),
			capacity: always(1),
			callers:  callers, poisoned: few(poisoned)}
		if o := run(s, newOurs(s.backend, true), 3); o.Least < 1 {
			t.Errorf("%d of %d callers lower the rates of all to %.2f", poisoned, callers, o.Least)
		}
	}
}

// TestSignalIsLost: m stays for ten seconds, and is 1 a minute after the last answer.
func TestSignalIsLost(t *testing.T) {
	s := scenario{backend: quick, name: "loss", seconds: 150, offered: between(0, 50, 3*quick.mu, 1),
		capacity: between(0, 50, 0.3, 1), callers: 20}
	o := run(s, newOurs(s.backend, true), 5)
	if m := o.Second[49]; m > 0.5 {
		t.Fatalf("m is %.2f, want less", m)
	}
	if o.Second[61] != o.Second[64] {
		t.Errorf("m is not frozen: %.3f, %.3f", o.Second[61], o.Second[64])
	}
	if o.Second[125] != 1 {
		t.Errorf("m is %.3f after 75 s, want 1", o.Second[125])
	}
}

// TestFloor: an API that cannot do anything still gets what the floor says, and m is 1 again when it can.
func TestFloor(t *testing.T) {
	s := scenario{backend: quick, name: "floor", seconds: 200, offered: always(1.3 * quick.mu),
		capacity: between(20, 60, 0.05, 1), callers: 20}
	o := run(s, newOurs(s.backend, true), 5)
	if least := math.Floor(o.Least * adaptive.Whole); least != floor {
		t.Errorf("m falls to %v, want %d", least, floor)
	}
	if o.Most > 1 || o.Second[199] < 0.7 {
		t.Errorf("m is %.2f at most and %.2f in the end", o.Most, o.Second[199])
	}
}

// TestPlant: the API of the scenarios is what it is said to be.
func TestPlant(t *testing.T) {
	s := scenario{backend: quick, name: "idle", seconds: 20, offered: always(quick.mu / 10),
		capacity: always(1), callers: 5}
	if o := run(s, open{}, 1); o.P99 > s.base+20*time.Millisecond || o.Goodput < 0.9 || o.Goodput > 1.1 {
		t.Errorf("%+v", o)
	}
}
