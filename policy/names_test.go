package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// names numbers what a map would, through every growth, and finds nothing else.
func TestNamesNumberWhatAMapWould(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 63, 64, 65, 5000} {
		table, want := newNames(), map[string]uint32{}
		for range n {
			name := fmt.Sprint("name ", random.IntN(n+n/2))
			if want[name] == 0 {
				want[name] = uint32(len(want) + 1)
			}
			if got, ok := table.add(name); got != want[name] || !ok {
				t.Fatalf("add(%q) as one of %d = %d, %v, want %d", name, n, got, ok, want[name])
			}
		}
		for range 2 { // as it grew, and trimmed
			if table.len() != len(want) {
				t.Errorf("len() = %d, want %d", table.len(), len(want))
			}
			for name, number := range want {
				if got := table.find(name); got != number || string(table.name(number)) != name {
					t.Fatalf("find(%q) = %d, name(%d) = %q, want %d and the name", name, got, number,
						table.name(number), number)
				}
			}
			for i := range n {
				if other := fmt.Sprint("other ", i); table.find(other) != 0 {
					t.Fatalf("find(%q) = %d, want 0: it was never added", other, table.find(other))
				}
			}
			table.trim()
		}
	}
}
