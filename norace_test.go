//go:build !race

package headgate_test

const allocationsUnderTest = 1
