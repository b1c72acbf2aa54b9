//go:build long

package readers

import (
	"math/rand/v2"
	"testing"
)

// TestReadersAgree by millions.
func TestReadersAgreeForLong(t *testing.T) {
	for range 20 {
		agree(t, rand.Uint64(), 200_000)
	}
}
