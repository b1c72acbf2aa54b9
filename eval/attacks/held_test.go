package main

import (
	"os"
	"testing"
	"time"
)

// answerWithin is what others may have to wait for an answer, whatever one client
// does. On a machine that is busy with something else it is busyFactor times what
// they waited before, and amidOtherTests where other packages are tested at the same
// time: without the bounds nobody is answered at all.
const (
	answerWithin   = 2 * time.Second
	amidOtherTests = 15 * time.Second
	busyFactor     = 20
)

// TestMain is also the beginning of the attacker's process.
func TestMain(m *testing.M) {
	if holdApart() {
		return
	}
	os.Exit(m.Run())
}

func holdOut(t *testing.T, v vector, descriptors, connections int, span, within time.Duration) {
	t.Helper()
	l := testLab(t)
	s, err := openSite(l, descriptors, "", v.tls)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.measureHeld(t.Context(), v, connections, 1, span, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("held at most %d of %d, %d opened, %d goroutines, %.0f MiB more; honest p99 %v, was %v; /healthz %v",
		h.most, h.connections, h.opened, h.goroutines, h.memory, h.attacked.p99(), h.quiet.p99(), h.health)
	if h.attacked.failed > 0 || h.attacked.asked == 0 || h.quiet.asked == 0 {
		t.Fatalf("%d of %d honest requests failed", h.attacked.failed, h.attacked.asked)
	}
	within = max(within, busyFactor*h.quiet.slowest)
	if slowest := h.attacked.slowest; slowest > within {
		t.Errorf("an honest request took %v, want at most %v", slowest, within)
	}
	if h.health > within {
		t.Errorf("/healthz took %v, want at most %v", h.health, within)
	}
	if h.opened < h.connections/2 {
		t.Errorf("the attacker opened %d connections, want %d or more: this was no attack", h.opened, h.connections/2)
	}
}

// TestOneClientHoldsNobodyOut is the attack in small: more connections than the
// process has descriptors for, by three of the ways to hold one.
func TestOneClientHoldsNobodyOut(t *testing.T) {
	for _, v := range vectors {
		connections := 1200
		switch v.name {
		case "no body, to a path that is not there", "slow read":
		case zeroWindowName:
			connections = 20 * v.share
		default:
			continue
		}
		t.Run(v.name, func(t *testing.T) { holdOut(t, v, 1024, connections, redial, amidOtherTests) })
	}
}

// TestLong4200ConnectionsAt4096Descriptors is the attack as it was found: it
// took the gateway and its admin listener from everybody.
func TestLong4200ConnectionsAt4096Descriptors(t *testing.T) {
	for _, v := range vectors {
		connections := 4200
		if v.name == zeroWindowName {
			connections = 150 * v.share
		}
		t.Run(v.name, func(t *testing.T) { holdOut(t, v, 4096, connections, 5*time.Second, answerWithin) })
	}
}
