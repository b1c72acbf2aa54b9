package redis

import (
	"testing"

	"github.com/headgate-io/headgate/rate"
)

// TestShapesThatMeet has more shapes than there are places for: each is what is computed of it, whoever was asked for
// before.
func TestShapesThatMeet(t *testing.T) {
	var s shapes
	places := map[uint64]bool{}
	const many = 3 << shapeBits
	for range 2 {
		for n := range int64(many) {
			asked := rate.Shape{Drain: 1, Unit: 1000 + n, Capacity: 2 * (1000 + n), Tick: 1000}
			got, err := s.of(asked)
			want, wantErr := Coarsen(asked)
			if err != nil || wantErr != nil || got.Shape != want || got.own != asked.Unit {
				t.Fatalf("%v is %+v (%v), want %v (%v)", asked, got, err, want, wantErr)
			}
			places[spread(&asked)] = true
		}
	}
	if len(places) < 1<<shapeBits*9/10 {
		t.Errorf("%d shapes share %d places of %d, want most to be used", many, len(places), 1<<shapeBits)
	}
	known := rate.Shape{Drain: 1, Unit: 7, Capacity: 7, Tick: 1000}
	if n := testing.AllocsPerRun(100, func() { _, _ = s.of(known) }); n > 0 {
		t.Errorf("one that is known takes %v allocations, want 0", n)
	}
}
