package main

import (
	"testing"
	"time"
)

// TestSeveralGateways: three before one API keep what one promises.
func TestSeveralGateways(t *testing.T) {
	for _, s := range scenarios(1.3)[:2] {
		check(t, s, run(s, newSeveral(s.backend, 3), 7))
	}
}

// TestOneGatewayInTrouble: one of three whose own way to the API fails lowers nobody's limit while the API is well, and
// neither it nor one that is frozen keeps the others from following the API.
func TestOneGatewayInTrouble(t *testing.T) {
	well := scenario{backend: quick, name: "well", seconds: 60, offered: always(0.6 * quick.mu), capacity: always(1),
		callers: 50}
	all := newSeveral(quick, 3)
	all.broken = 1
	if o := run(well, all, 3); o.Least < 1 {
		t.Errorf("one in trouble of three lowers the rates of all to %.2f", o.Least)
	}
	if m := all.gateways[0].multiplier(epoch + 60*int64(time.Second)); m > 0.2 {
		t.Errorf("its own multiplier is %.2f, want the floor", m)
	}
	for _, trouble := range []struct{ broken, frozen int }{{1, 0}, {0, 1}} {
		s := scenarios(1.3)[1]
		all := newSeveral(quick, 3)
		all.broken, all.frozen = trouble.broken, trouble.frozen
		check(t, s, run(s, all, 7))
	}
}
