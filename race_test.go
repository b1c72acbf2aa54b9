//go:build race

package headgate_test

// The race detector makes sync.Pool drop one item in four, and what is made
// anew then counts. `make test` runs the allocation tests without it as well.
const allocationsUnderTest = 16
