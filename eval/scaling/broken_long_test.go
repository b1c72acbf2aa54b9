//go:build long

package main

import (
	"testing"
	"time"
)

// Gateways that are killed as by a power cut, any of them, all but one and all at once, and gateways between
// which messages are lost, late, or pass in one direction, and one of which lies: what an API receives is
// within what is published, and when it is over the limit is used again.
func TestKilledAndParted(t *testing.T) {
	p := plan{limit: 100, kills: allKills, troubles: allTroubles, seed: uint64(time.Now().UnixNano())}
	t.Logf("seed %d", p.seed)
	found, err := p.all(testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	if err := found.beyond(); err != nil {
		t.Error(err)
	}
	if len(found.Kills) != len(allKills)*len(killRules) || len(found.Troubles) != len(allTroubles) {
		t.Fatalf("%d and %d outcomes, want one for each rule and each trouble", len(found.Kills), len(found.Troubles))
	}
	for _, u := range found.Kills {
		if u.Used < 0.2 || u.After < 0.5 {
			t.Errorf("%v: want a fifth of the limit used meanwhile, and half of it afterwards", u)
		}
	}
	for i, u := range found.Troubles {
		// Who believes a liar all that it claims serves nobody.
		if least := 0.6; allTroubles[i].most != 100 && u.Used < least {
			t.Errorf("%v: want %.1f of the limit used meanwhile", u, least)
		}
	}
}
