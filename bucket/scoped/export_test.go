package scoped

// Inline has a Store do at once what it would do in the background, and vary nothing: for simulations.
func Inline(s *Store) {
	s.background = func(f func()) { f() }
	s.vary = func(n int64) int64 { return n / 2 }
}
