package callers_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate-io/headgate/internal/callers"
	"github.com/headgate-io/headgate/key"
)

// TestEachCallerHasOneSet, of eight entries, that is all it shares with others.
func TestEachCallerHasOneSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{1, 512, 513, 5000} {
		table := callers.New[uint64](most)
		if room := table.Room(); room < most || room >= 2*max(most, 512) {
			t.Errorf("room for %d callers, want %d or up to twice as many", room, most)
		}
		in := map[key.Key]uint64{}
		for n := range uint64(300) {
			k := key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()}
			mu, set := table.Lock(k)
			mu.Unlock()
			if n == 0 && set != nil {
				t.Error("who only looks has memory taken")
			}
			mu, set = table.LockMade(k)
			if len(set) != 8 {
				t.Fatalf("a set of %d entries", len(set))
			}
			if set[0] == 0 {
				set[0] = n + 1 // names the set
			}
			in[k] = set[0]
			mu.Unlock()
		}
		for k, n := range in {
			mu, set := table.Lock(k)
			if set[0] != n {
				t.Errorf("caller %v was in set %d, and is in %d", k, n, set[0])
			}
			mu.Unlock()
		}
		seen := map[uint64]int{}
		for i := range callers.Shards {
			table.Visit(i, func(entries []uint64) {
				for _, e := range entries {
					seen[e]++
				}
			})
		}
		for _, n := range in {
			if seen[n] != 1 {
				t.Errorf("set %d was seen %d times", n, seen[n])
			}
		}
	}
}
