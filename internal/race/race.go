// Package race tells tests whether the race detector watches them.
//
// It makes what takes locks many times slower, and learns nothing from the
// thousandth step of a property that one goroutine walks through. So such a
// property does less under it, and `make unit` runs it in full without it.
// What several goroutines do at once is never cut.
package race

// Fewer is n without the race detector, and with it an eighth of n, at least 1.
func Fewer[N int | uint64](n N) N {
	if Enabled {
		return max(1, n/8)
	}
	return n
}
