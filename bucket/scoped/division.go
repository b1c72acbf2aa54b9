package scoped

import (
	"sync"
	"sync/atomic"

	"github.com/headgate-io/headgate/rate"
)

// divisions remembers how limits were divided. Rules have few limits; should there ever be many, it forgets them all.
//
// It is read in every decision over a divided limit, so what was read last is found without a lock
// and without hashing a whole shape.
type divisions[T any] struct {
	divide func(whole rate.Shape, k int) T
	near   [nearby]atomic.Pointer[division[T]]

	mu    sync.RWMutex
	known map[part]*division[T] // guarded by mu; forgotten whole when it has mostParts
}

const (
	nearby    = 1 << 8
	mostParts = 1 << 14
)

// part is a limit that so many share.
type part struct {
	of rate.Shape
	k  int
}

// division is what became of a part. It never changes.
type division[T any] struct {
	part
	made T
}

// of is how a limit is divided among k.
func (d *divisions[T]) of(whole *rate.Shape, k int) *T {
	near := &d.near[place(whole, k)]
	if found := near.Load(); found != nil && found.k == k && found.of == *whole {
		return &found.made
	}
	found := d.find(part{*whole, k})
	near.Store(found)
	return &found.made
}

// place is where a division is near: its own, or that of some others.
func place(s *rate.Shape, k int) uint64 {
	return mix(uint64(s.Capacity)^mix(uint64(s.Drain)^uint64(s.Unit)<<32^uint64(k))) % nearby
}

func (d *divisions[T]) find(p part) *division[T] {
	d.mu.RLock()
	found := d.known[p]
	d.mu.RUnlock()
	if found != nil {
		return found
	}
	made := &division[T]{p, d.divide(p.of, p.k)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || len(d.known) >= mostParts {
		d.known = map[part]*division[T]{}
	}
	d.known[p] = made
	return made
}

// portion is what one replica has of a limit: no shape for nothing.
type portion struct {
	shape   rate.Shape
	settles int64 // how long after it took effect nothing of before can matter: whatever a bucket owed has drained
}

func newPortion(s rate.Shape) portion { return portion{s, s.Settled(0, nil)} }

// settled reports whether nothing can matter at now of before the portion took effect.
func (p *portion) settled(now, since int64) bool { return now-since > p.settles }
