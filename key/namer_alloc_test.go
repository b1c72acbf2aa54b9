//go:build !race

package key_test

import "testing"

// The race detector has pools forget things.
func TestNameAllocatesNothing(t *testing.T) {
	n, subject := namer(t, secret), []byte("someone")
	if got := testing.AllocsPerRun(100, func() { n.Name(1, "GET /a", subject) }); got > 0 {
		t.Errorf("Name allocates %v times, want 0", got)
	}
}
