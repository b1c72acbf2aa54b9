//go:build long

package main

import "testing"

// TestScenariosInFull asks for three times what the API can do, and ten times in a surge.
func TestScenariosInFull(t *testing.T) { hold(t, scenarios(3)) }

// TestSeveralGatewaysInFull is the same with three gateways before the API.
func TestSeveralGatewaysInFull(t *testing.T) {
	for _, s := range scenarios(3) {
		check(t, s, run(s, newSeveral(s.backend, 3), 7))
	}
}

// TestGatewaysThatHearNothing: without a word from the others each goes by what it sees itself.
func TestGatewaysThatHearNothing(t *testing.T) {
	s := scenarios(1.3)[1]
	all := newSeveral(quick, 3)
	all.heard = 1 << 62
	check(t, s, run(s, all, 7))
}
