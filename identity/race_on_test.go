//go:build race

package identity_test

// The race detector makes sync.Pool forget at random, so what it holds is
// allocated anew now and then.
const raceEnabled = true
