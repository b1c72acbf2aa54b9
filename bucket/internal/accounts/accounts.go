// Package accounts keeps what one replica knows of shared buckets, in a table of bounded size.
package accounts

import (
	"sync"
	"sync/atomic"

	"github.com/headgate-io/headgate/key"
)

// Shards is by how many locks a Table is guarded. It has room for one account of each at least.
const Shards = 64

// Table holds accounts by the names of their buckets. It is safe for concurrent use; what guards an
// account is its owner's affair.
type Table[A any] struct {
	most   int           // accounts of a shard
	opened atomic.Uint32 // how many accounts ever were
	shards [Shards]shard[A]
}

type shard[A any] struct {
	mu       sync.Mutex
	accounts map[key.Key]*A // guarded by mu
	_        [48]byte       // keeps shards off each other's cache lines
}

// New returns a Table with room for so many accounts, Shards or more.
func New[A any](most int) *Table[A] {
	t := &Table[A]{most: most / Shards}
	for i := range t.shards {
		t.shards[i].accounts = map[key.Key]*A{}
	}
	return t
}

func (t *Table[A]) shard(k key.Key) *shard[A] { return &t.shards[k.Hi%Shards] }

// Find returns the account of a bucket, or nil. Held, which may be nil, is called with it while it
// cannot be forgotten.
func (t *Table[A]) Find(k key.Key, held func(*A)) *A {
	s := t.shard(k)
	s.mu.Lock()
	a := s.accounts[k]
	if a != nil && held != nil {
		held(a)
	}
	s.mu.Unlock()
	return a
}

// Looked is how many accounts are asked whether they may be forgotten, to make room for another.
const Looked = 8

// Open is Find, and makes the account if there is none: the nth that was ever made. Where there is
// no room, forget is asked of up to Looked others, in an order that nobody can foresee, whether
// they may go; last says that nobody else will be asked. Open returns nil if none may.
func (t *Table[A]) Open(k key.Key, made func(nth uint32) *A, forget func(a *A, last bool) bool, held func(*A)) *A {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[k]
	if a == nil {
		if len(s.accounts) >= t.most && !s.forget(forget) {
			return nil
		}
		a = made(t.opened.Add(1))
		s.accounts[k] = a
	}
	if held != nil {
		held(a)
	}
	return a
}

func (s *shard[A]) forget(may func(a *A, last bool) bool) bool {
	left := min(Looked, len(s.accounts))
	for k, a := range s.accounts {
		if left--; may(a, left == 0) {
			delete(s.accounts, k)
			return true
		}
		if left == 0 {
			break
		}
	}
	return false
}

// Each calls f with every account, while none is made or forgotten beside it, and reports how many
// there are.
func (t *Table[A]) Each(f func(*A)) (accounts int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		accounts += len(s.accounts)
		for _, a := range s.accounts {
			f(a)
		}
		s.mu.Unlock()
	}
	return accounts
}
