package scoped_test

import (
	"testing"

	"github.com/headgate-io/headgate/bucket/scoped"
)

// What is told of all replicas together counts those that have no part yet, and those that divide
// by another number than this one.
func TestSharingIsNeverTooLittle(t *testing.T) {
	for _, c := range []struct {
		name             string
		divisor, count   int
		replicas, fewest int
	}{
		{"all have heard", 4, 4, 4, 4},
		{"one has joined, and has no part yet", 0, 4, 4, 1},
		{"another has joined", 3, 4, 4, 3},
		{"another has left", 4, 3, 4, 3},
		{"the store never answered, and as many are presumed", 8, 0, 8, 8},
		{"it has not answered yet", 0, 0, 1, 1},
	} {
		s := open(t, scoped.Options{Replicas: func() int { return c.divisor }, Count: func() int { return c.count }})
		if got := s.Sharing(); got.Replicas != c.replicas || got.Fewest != c.fewest {
			t.Errorf("%s: %d replicas, of which some divide by %d, want %d and %d", c.name, got.Replicas, got.Fewest,
				c.replicas, c.fewest)
		}
	}
}
