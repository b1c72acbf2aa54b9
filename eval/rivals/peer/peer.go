// Package peer makes rate limiters of other people, and Headgate's own, answer one question in one
// way: may the owner of this key go on?
//
// One file holds one of them. Each is set up as its documentation shows, in memory, with a limit so
// high that it denies nothing: a fair decision is one that every limiter answers alike. Each reads
// a clock of its own, as it would in a server.
package peer

import (
	"fmt"
	"time"
)

// Peer is a limiter that can be measured beside others.
type Peer struct {
	Name   string // as tables show it, and as the command line calls it
	Module string // whose version the page states; empty for what lives in this repository
	How    string // the algorithm, and what is kept for a key

	// Exact says that a key has a budget of its own and that the verdict depends on its requests
	// alone: not on keys that share a cell, and not on an estimate of when earlier requests came.
	Exact bool

	// Bound is what limits the number of keys, if anything does.
	Bound string

	// Floor marks what limits nothing, and is there to be subtracted.
	Floor bool

	// Open makes an empty limiter for about that many keys.
	Open func(keys int) (Limiter, error)
}

// Limiter is an open limiter.
type Limiter interface {
	// Worker returns a way to ask, for one goroutine.
	Worker() Decide
}

// Decide takes one token of key, and says whether there was one.
type Decide func(key string) bool

// The budget of every key: more than a measurement uses up, and it takes longer than that to come
// back, so that every key that was asked for once stays live. Limiters with a window get the burst
// for a day.
const (
	perToken = 30 * time.Second
	burst    = 100_000_000
)

// All are the peers in the order of the tables: Headgate, the rivals, the floors.
func All() []Peer {
	return []Peer{headgate, xtime, goLimiter, throttledPeer, throttledLRU, ulule, httpratePeer, echo, hashAdd,
		hashAddClock, noop}
}

// Find returns the peer of a name.
func Find(name string) (Peer, error) {
	for _, p := range All() {
		if p.Name == name {
			return p, nil
		}
	}
	return Peer{}, fmt.Errorf("there is no limiter %q", name)
}

// workers is a Limiter made of one function.
type workers func() Decide

func (w workers) Worker() Decide { return w() }

// shared is a Limiter whose goroutines need nothing of their own.
func shared(decide Decide) Limiter {
	return workers(func() Decide { return decide })
}
