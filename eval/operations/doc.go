// Package operations runs the real gateway through what operators do to it
// and what happens to them: rules changed from elsewhere, a database that
// breaks or vanishes, a process that is killed or told to stop, a clock that is
// set.
package operations
