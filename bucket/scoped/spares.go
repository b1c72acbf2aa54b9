package scoped

import (
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Under scope lease the place of a request that has ended is not given back at once, but kept for the next request of
// the same bucket. Whoever finds such a spare place needs no message, neither when it begins nor, mostly, when it ends:
//
//	first request    takes place 1 of the store          ends: place 1 is spare here
//	second request   takes the spare, and is place 1     ends: place 1 is spare again
//	nobody comes                                          place 1 is given back after one or two TTLs of leases, or
//	                                                      seconds where that is less
//
// To the store a spare is a place like others. So there are never more than the limit, and those of a gateway that is
// killed end as others do. The store has to hear of each place within the time that it is kept for. A place is spare
// only within a sixth of that since it did, and a request takes its own anew after a third: that leaves half.

// spares are places that are kept for requests to come, and those that requests have.
type spares struct {
	mu    sync.Mutex
	idle  map[key.Key][]spare // guarded by mu; by bucket, and the one that was left last is taken first
	taken map[uint32]spare    // guarded by mu; by which place requests say that they have
	names map[uint32]bool     // guarded by mu; of all of both, as the store knows them
	n     int                 // guarded by mu; idle ones
	round uint64              // guarded by mu; how many times all were looked through
	timed bool                // guarded by mu; they will be again
	over  bool                // guarded by mu; none is kept any more
}

// spare is a place of the store.
type spare struct {
	key   key.Key
	tag   uint16
	reach bucket.Reach
	shape rate.Shape // that it was admitted by
	place uint32     // its name, which is that of the request that took it of the store
	since int64      // when the store was asked last to keep it, in Unix nanoseconds
	left  int64      // how many were free when it was taken of the store
	round uint64     // in which it became idle, or the store was asked to keep it
}

// spareFor is for how long a place is spare at least before it is given back, and at most twice as long.
func (s *Store) spareFor() time.Duration { return min(s.o.Leases.Terms().TTL, time.Second) }

// fresh reports whether the store has heard of a place so lately that another request may have it.
func (p *spare) fresh(now int64) bool { return p.since <= now && now-p.since < p.shape.Tick/6 }

// change is what gives a place back.
func (p *spare) change() bucket.Change {
	return bucket.Change{Key: p.key, Tag: p.tag, Reach: p.reach, Shape: p.shape, Place: p.place, Units: -1,
		Charged: p.since}
}

// spends reports whether takes of places of a scope may have spare ones.
func (s *Store) spends(t *bucket.Take) bool {
	return t.Place != 0 && t.Cost > 0 && !t.Shadow && t.Reach.Scope() == bucket.Lease && s.o.Leases != nil
}

// spend has a take of a decision be of a spare place, if there is one. One that was admitted by another limit is given
// back: a lower limit is for those who come.
func (s *Store) spend(now int64, d *decision, of int) bool {
	t := &d.takes[of]
	if !s.spends(t) || s.lost(t.Tag) {
		return false
	}
	p := &s.spares
	p.mu.Lock()
	var stale []owedPlace
	found := false
	for list := p.idle[t.Key]; len(list) > 0 && !found; {
		last := list[len(list)-1]
		list = list[:len(list)-1]
		if p.n--; len(list) > 0 {
			p.idle[t.Key] = list
		} else {
			delete(p.idle, t.Key)
		}
		if found = last.shape == t.Shape && last.fresh(now); found {
			d.spent = append(d.spent, spending{of: of, spare: last})
		} else {
			delete(p.names, last.place)
			stale = append(stale, owedPlace{last.change(), now + last.shape.Tick + int64(time.Second)})
		}
	}
	p.mu.Unlock()
	if len(stale) > 0 {
		s.background(func() { s.returnThese(now, stale) })
	}
	return found
}

// waits reports whether a take would have a spare place.
func (s *Store) waits(now int64, t *bucket.Take) bool {
	if !s.spends(t) || s.lost(t.Tag) {
		return false
	}
	p := &s.spares
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[t.Key]
	return len(list) > 0 && list[len(list)-1].shape == t.Shape && list[len(list)-1].fresh(now)
}

// spending is a take of a decision that has a spare place.
type spending struct {
	of int
	spare
	told bool // the decision is an admission
}

// outcome is what is known of the places of a bucket when a spare one was taken: what was heard of them last.
func (p *spending) outcome() bucket.Outcome {
	return bucket.Outcome{Allowed: true, Remaining: p.left, ResetAfter: time.Duration(p.shape.Tick)}
}

// hold notes which places a decision took of the store, and which spare ones; those of one that is denied are spare
// again.
func (s *Store) hold(d *decision, allowed bool) {
	for i := range d.spent {
		one := &d.spent[i]
		if !allowed {
			s.keep(one.spare) // for no longer than before
			continue
		}
		s.counts.free.Add(1)
		one.told = true
		s.note(d.takes[one.of].Place, one.spare)
	}
	if !allowed {
		return
	}
	for i, of := range d.strict.of {
		t := &d.takes[of]
		if o := &d.strict.outs[i]; s.spends(t) && o.Allowed && !o.Unknown {
			s.note(t.Place, spare{
				key: t.Key, tag: t.Tag, reach: t.Reach, shape: t.Shape, place: t.Place, since: d.now, left: o.Remaining,
			})
		}
	}
}

// note notes that a request has a place. Of more than can be remembered, places are given back under their own names.
func (s *Store) note(request uint32, one spare) {
	p := &s.spares
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken == nil {
		p.taken, p.names = map[uint32]spare{}, map[uint32]bool{}
	}
	if len(p.taken) < s.o.MaxUsage || one.place != request { // one under another name has to be found
		one.round = p.round
		p.taken[request], p.names[one.place] = one, true
		s.sweepAgainLocked()
	}
}

// keep keeps a place for whoever comes next, and sees that it is given back if nobody does.
func (s *Store) keep(one spare) {
	p := &s.spares
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = map[key.Key][]spare{}
	}
	p.idle[one.key] = append(p.idle[one.key], one)
	p.n++
	s.sweepAgainLocked()
}

// sweepAgainLocked has places be looked through, as they are from time to time while there are any.
func (s *Store) sweepAgainLocked() {
	if p := &s.spares; !p.timed {
		p.timed = true
		time.AfterFunc(s.spareFor(), s.sweep)
	}
}

// sweep gives places back that nobody took since the sweep before.
func (s *Store) sweep() { s.giveSparesBack(false) }

// Leave gives back the places that are kept for requests to come, and has none kept any more: for a process that ends,
// once its requests have.
func (s *Store) Leave() { s.giveSparesBack(true) }

func (s *Store) giveSparesBack(all bool) {
	now := s.latest.Load()
	p := &s.spares
	p.mu.Lock()
	var owed []owedPlace
	for k, list := range p.idle {
		left := list[:0]
		for _, one := range list {
			if all || one.round < p.round {
				delete(p.names, one.place)
				owed = append(owed, owedPlace{one.change(), now + one.shape.Tick + int64(time.Second)})
			} else {
				left = append(left, one)
			}
		}
		if p.idle[k] = left; len(left) == 0 {
			delete(p.idle, k)
		}
	}
	p.n -= len(owed)
	if p.over = p.over || all; !all {
		s.forgetTakenLocked()
		p.round++
		if p.timed = false; p.n > 0 || len(p.taken) > 0 {
			s.sweepAgainLocked()
		}
	}
	p.mu.Unlock()
	for len(owed) > 0 {
		n := min(len(owed), mostOwed)
		s.returnThese(now, owed[:n])
		owed = owed[n:]
	}
}

// forgetTakenLocked forgets the places of requests whose end nobody told, once the store keeps them no longer: by how
// often they were looked through since, as the clock of decisions may step.
func (s *Store) forgetTakenLocked() {
	p, each := &s.spares, int64(s.spareFor())
	for request, one := range p.taken {
		if passed := int64(p.round-one.round) - 1; passed*each > one.shape.Tick+one.shape.Tick/6 {
			delete(p.taken, request)
			delete(p.names, one.place)
		}
	}
}

// leave has a place that a request gives back be spare, if it may be. It reports the name that the place has in the
// store otherwise, and also where it is to be taken anew. Done says that the store is not to hear of it: the place is
// spare now, or has been left before, and another request has it.
func (s *Store) leave(now int64, c *bucket.Change) (name uint32, left, done bool) {
	p := &s.spares
	p.mu.Lock()
	one, ok := p.taken[c.Place]
	name = c.Place
	if ok {
		name = one.place
	}
	switch {
	case !ok:
		done = p.names[c.Place]
	case !c.Renew:
		delete(p.taken, c.Place)
		if left = !p.over && p.n < s.o.MaxUsage && one.fresh(now); !left {
			delete(p.names, one.place)
		}
		one.round = p.round
	}
	p.mu.Unlock()
	if left {
		s.keep(one)
	}
	return name, left, done || left
}

// renewed notes that the store has been asked to keep the place of a request. It is false if the request has ended
// meanwhile, and nobody has the place: the store may have it again.
func (p *spares) renewed(request, name uint32, now int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, ok := p.taken[request]
	if ok && one.place == name {
		one.since, one.round = now, p.round
		p.taken[request] = one
	}
	return ok || name == request || p.names[name] // of its own name whoever asked hears, and sees to it
}

// drop forgets all places of a bucket that was filled: the store has none of them any more.
func (p *spares) drop(k key.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.idle[k] {
		delete(p.names, one.place)
		p.n--
	}
	delete(p.idle, k)
	for request, one := range p.taken {
		if one.key == k {
			one.since = 0 // so that it is not kept for others
			p.taken[request] = one
		}
	}
}

// countsPlaces reports whether a limit that is shared is one on requests under way: no other is counted in logs.
func countsPlaces(sh *rate.Shape) bool { return sh.Algorithm == rate.SlidingLog }
