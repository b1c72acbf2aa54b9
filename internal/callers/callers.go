// Package callers keeps something of each of so many callers at most, in memory of a fixed size.
package callers

import (
	"sync"

	"github.com/headgate-io/headgate/key"
)

const (
	// Shards is how many locks a Table has.
	Shards = 64

	ways = 8 // entries of a set, one of which a caller can have
)

// Table has room for entries of callers. Its memory is taken when the first one is needed. What is free in a set, and
// who has to leave one that is full, is for the user to say.
type Table[E any] struct {
	sets   uint64 // of each shard, a power of two
	shards [Shards]shard[E]
}

type shard[E any] struct {
	mu      sync.Mutex
	entries []E // guarded by mu; nil until one is needed
	_       [32]byte
}

// New returns a Table for so many callers or more.
func New[E any](callers int) *Table[E] {
	t := &Table[E]{sets: 1}
	for t.Room() < callers {
		t.sets *= 2
	}
	return t
}

// Room is for how many callers there is room.
func (t *Table[E]) Room() int { return int(t.sets * Shards * ways) }

// Lock locks the set of a caller, and returns it: none while there is none, so that who only looks takes no memory.
func (t *Table[E]) Lock(k key.Key) (unlock *sync.Mutex, set []E) {
	s := &t.shards[k.Lo%Shards]
	s.mu.Lock()
	if s.entries == nil {
		return &s.mu, nil
	}
	at := k.Hi & (t.sets - 1) * ways
	return &s.mu, s.entries[at : at+ways]
}

// LockMade is Lock, and makes the set if there is none.
func (t *Table[E]) LockMade(k key.Key) (unlock *sync.Mutex, set []E) {
	mu, set := t.Lock(k)
	if set == nil {
		t.shards[k.Lo%Shards].entries = make([]E, t.sets*ways)
		mu.Unlock()
		return t.Lock(k)
	}
	return mu, set
}

// Visit shows all entries of a shard, one of Shards, while it is locked.
func (t *Table[E]) Visit(shard int, visit func(entries []E)) {
	s := &t.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	visit(s.entries)
}
