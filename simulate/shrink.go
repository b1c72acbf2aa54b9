package simulate

import "slices"

// Shrink drops what a failure does not need: it returns some of n things, by their numbers, of
// which fails says that they fail and none can be dropped alone. It is greedy: halves are tried
// before single things, so of many that do not matter most go at once. At most so many trials are
// made.
func Shrink(n, trials int, fails func(kept []int) bool) []int {
	kept := make([]int, n)
	for i := range kept {
		kept[i] = i
	}
	for size := max(1, n/2); ; size = max(1, size/2) {
		dropped := false
		for at := 0; at < len(kept) && trials > 0; {
			fewer := slices.Delete(slices.Clone(kept), at, min(at+size, len(kept)))
			trials--
			if fails(fewer) {
				kept, dropped = fewer, true
				continue
			}
			at += size
		}
		if trials == 0 || size == 1 && !dropped {
			return kept
		}
	}
}
