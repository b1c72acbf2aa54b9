// Package keys holds API keys against the real process: what a revocation
// takes to act, what made-up keys cost, and that no credential is ever written
// down.
package keys
