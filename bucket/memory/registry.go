package memory

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/headgate-io/headgate/rate"
)

// registry numbers shapes, so that a slot holds four bytes for one. Numbers start at 1.
//
// A number is looked up without a lock, and its shape read without one too. What makes this safe is
// when numbers are taken back: only by reclaim, which visits all shards in between, and every
// reader holds the lock of the shard whose slot has the number or is about to get it. In detail:
// reclaim first begins a new epoch. Then it takes each shard's lock and marks the shapes of its
// slots with the epoch. A reader that held the lock before has stored its number by then, so
// reclaim sees it; one that comes later sees the new epoch and marks the shape itself, in intern.
// What is not marked in the end is free, and the mark of a free number, 0, is set and tested
// atomically.
type registry struct {
	list  []rate.Shape    // by number
	marks []atomic.Uint32 // by number: the epoch in which the shape was last known to be used; 0 is free
	epoch atomic.Uint32
	seed  maphash.Seed
	// numbers by hash of the shape, with linear probing; replaced when numbers are freed
	index atomic.Pointer[[]atomic.Uint32]

	refusals atomic.Int64 // shapes that found no room since the last reclaim
	patience atomic.Int64 // refusals that are borne before the next

	mu   sync.Mutex
	free []uint32 // numbers that were taken back; guarded by mu
	next uint32   // numbers from here on were never used; guarded by mu

	sweeping sync.Mutex // held by reclaim; no shard is locked by who waits for it
}

func newRegistry(most int) *registry {
	r := &registry{
		list:  make([]rate.Shape, most+1),
		marks: make([]atomic.Uint32, most+1),
		seed:  maphash.MakeSeed(),
		next:  1,
	}
	r.epoch.Store(1)
	index := make([]atomic.Uint32, r.indexLen())
	r.index.Store(&index)
	return r
}

// indexLen is the power of two that leaves at least half of the index empty.
func (r *registry) indexLen() int {
	n := 4
	for n < 2*(len(r.list)-1) {
		n *= 2
	}
	return n
}

// intern returns the number of shape, or 0 if there is no room for it. The caller holds the lock of
// the shard where it will be stored.
func (r *registry) intern(shape rate.Shape) uint32 {
	hash := maphash.Comparable(r.seed, shape)
	if number := r.find(hash, shape); number != 0 {
		return number
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if number := r.find(hash, shape); number != 0 {
		return number
	}
	number := r.next
	switch {
	case int(number) < len(r.list):
		r.next++
	case len(r.free) > 0:
		number = r.free[len(r.free)-1]
		r.free = r.free[:len(r.free)-1]
	default:
		r.refusals.Add(1)
		return 0
	}
	r.list[number] = shape
	r.marks[number].Store(r.epoch.Load())
	r.add(*r.index.Load(), hash, number)
	return number
}

func (r *registry) find(hash uint64, shape rate.Shape) uint32 {
	index := *r.index.Load()
	for i := hash; ; i++ {
		number := index[i&uint64(len(index)-1)].Load()
		if number == 0 {
			return 0
		}
		if r.mark(number) && r.list[number] == shape {
			return number
		}
	}
}

// mark says that a shape is used. It reports false for a number that is free. Once it returns true
// the shape stays where it is until the shard that the caller has locked was visited by a later
// reclaim.
func (r *registry) mark(number uint32) bool {
	epoch, mark := r.epoch.Load(), &r.marks[number]
	for {
		switch seen := mark.Load(); {
		case seen == 0:
			return false
		case seen >= epoch || mark.CompareAndSwap(seen, epoch):
			return true
		}
	}
}

func (r *registry) add(index []atomic.Uint32, hash uint64, number uint32) {
	i := hash & uint64(len(index)-1)
	for index[i].Load() != 0 {
		i = (i + 1) & uint64(len(index)-1)
	}
	index[i].Store(number)
}

// worthReclaiming says whether to sweep the table for shapes that are no longer used. After a sweep
// that brought little there is no hurry: as many buckets have to do without a slot as make up for
// the price of the next.
func (r *registry) worthReclaiming() bool { return r.refusals.Load() > r.patience.Load() }

// takeBack frees all numbers that were not marked in this epoch. The caller holds r.sweeping and
// has marked those in use; price is what that cost, in buckets that may do without a slot before it
// is done again in vain.
func (r *registry) takeBack(price int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	epoch := r.epoch.Load()
	index := make([]atomic.Uint32, r.indexLen())
	for number := uint32(1); number < r.next; number++ {
		mark := &r.marks[number]
		for seen := mark.Load(); seen != 0 && seen < epoch; seen = mark.Load() {
			if mark.CompareAndSwap(seen, 0) {
				r.free = append(r.free, number)
			}
		}
		if mark.Load() != 0 {
			r.add(index, maphash.Comparable(r.seed, r.list[number]), number)
		}
	}
	r.index.Store(&index)
	r.refusals.Store(0)
	r.patience.Store(0)
	if len(r.free) <= len(r.list)/8 {
		r.patience.Store(price)
	}
}

// used is how many numbers are taken.
func (r *registry) used() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int(r.next) - 1 - len(r.free)
}

// most is the largest value of f for any shape that is used.
func (r *registry) most(f func(rate.Shape) float64) (most float64) {
	r.mu.Lock()
	next := r.next
	r.mu.Unlock()
	for number := uint32(1); number < next; number++ {
		if shape, ok := r.shape(number); ok {
			most = max(most, f(shape))
		}
	}
	return most
}

// shape is the shape of a number, if that is taken.
func (r *registry) shape(number uint32) (rate.Shape, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list[number], r.marks[number].Load() != 0
}
