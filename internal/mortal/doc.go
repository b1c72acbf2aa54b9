// Package mortal starts processes that end when the process that started them
// does, however that ended: what a test has started must not outlive it.
package mortal
