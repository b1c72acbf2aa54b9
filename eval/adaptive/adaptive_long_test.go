//go:build long

package main

import "testing"

// TestScenariosInFull asks for three times what the API can do, and ten times in a surge.
func TestScenariosInFull(t *testing.T) { hold(t, scenarios(3)) }
