package scoped

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// A place among the requests under way is the one thing that is taken from the shared store and has to come back: what
// nobody gives back denies others until it is kept no longer. So a place that may have been taken, and a place whose
// giving back got no answer, are given back again, as soon as the store has answered something. Each has a name, so
// once too often does no harm.

// owedPlaces are those that are to be given back.
type owedPlaces struct {
	mu    sync.Mutex
	all   []owedPlace // guarded by mu
	again int64       // guarded by mu; not before this time

	any atomic.Bool // there are some
}

type owedPlace struct {
	change bucket.Change
	until  int64 // when the store has forgotten the place by itself
}

// pauseOwed is between two attempts to give places back, at least.
const pauseOwed = int64(100 * time.Millisecond)

// mostOwed bounds the places of one attempt.
const mostOwed = 64

// owe notes that a place is to be given back.
func (s *Store) owe(now int64, c bucket.Change) {
	c.Before = nil // which is not ours
	s.oweAll([]owedPlace{{c, now + c.Shape.Tick + int64(time.Second)}})
}

// oweAll notes that places are to be given back, as many as there is room for: others are kept for as long as those of
// a process that has died.
func (s *Store) oweAll(places []owedPlace) {
	o := &s.owed
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, places[:min(len(places), max(0, s.o.MaxUsage-len(o.all)))]...)
	o.any.Store(len(o.all) > 0)
}

// owePlaces notes that the places of a decision that got no answer are to be given back.
func (s *Store) owePlaces(now int64, takes []bucket.Take) {
	for i := range takes {
		if t := &takes[i]; t.Place != 0 && t.Cost > 0 {
			s.owe(now, bucket.Change{Key: t.Key, Tag: t.Tag, Reach: t.Reach, Shape: t.Shape, Place: t.Place, Units: -1})
		}
	}
}

// returnPlaces gives back some of what is owed, in the background; at once if a server is back.
func (s *Store) returnPlaces(now int64, back bool) {
	if !s.owed.any.Load() {
		return
	}
	if some := s.owed.some(now, back); len(some) > 0 {
		s.background(func() { s.returnThese(now, some) })
	}
}

// some takes those out that are to be given back next, if it is time for that, or urgent.
func (o *owedPlaces) some(now int64, urgent bool) []owedPlace {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !urgent && now < o.again && o.again <= now+pauseOwed {
		return nil
	}
	o.again = now + pauseOwed
	n := min(len(o.all), mostOwed)
	some := o.all[:n:n]
	o.all = append([]owedPlace(nil), o.all[n:]...)
	o.any.Store(len(o.all) > 0)
	return some
}

func (s *Store) returnThese(now int64, owed []owedPlace) {
	batches := map[int][]owedPlace{} // by server
	for _, one := range owed {
		if now < one.until {
			server := s.server(one.change.Tag)
			batches[server] = append(batches[server], one)
		}
	}
	for server, batch := range batches {
		changes := make([]bucket.Change, len(batch))
		for i := range batch {
			changes[i] = batch[i].change
		}
		if s.breaker(server).outage.Load() != nil ||
			s.sendPlaces(context.Background(), now, server, changes, make([]int64, len(batch))) != nil {
			s.oweAll(batch)
		}
	}
}

// sendPlaces has a server change places, also for a client that has left.
func (s *Store) sendPlaces(ctx context.Context, now int64, server int, changes []bucket.Change, moved []int64) error {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Deadline)
	defer cancel()
	err := s.o.Strict.Correct(within, now, changes, moved)
	s.answered(now, server, route{}, err)
	for i := range changes {
		s.denials.forget(changes[i].Key)
	}
	return err
}

// placesShare is the share that one of k replicas has of a limit on requests under way.
func placesShare(whole rate.Shape, k int) rate.Shape {
	whole.Capacity = max(1, whole.Capacity/int64(max(1, k)))
	whole.Drain = whole.Capacity
	return whole
}

// usePlace notes a place of a request that was admitted without its server. o is locked.
func (s *Store) usePlace(t *bucket.Take, o *outage) {
	if len(o.places) >= s.o.MaxUsage {
		s.counts.missed.Add(1)
		return
	}
	share := *t
	s.fallBack(&share, o)
	o.places[t.Place] = share
}

// correctPlaces makes those changes that are of places.
func (s *Store) correctPlaces(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	var batches map[int][]int // by server
	asked := changes
	for i := range changes {
		c := &changes[i]
		if c.Place == 0 || !c.Reach.Scope().Shared() {
			continue
		}
		if s.o.Strict == nil {
			return errNothingShared
		}
		if c.Reach.Scope() == bucket.Lease {
			name, left, done := s.leave(now, c)
			if left {
				moved[i] = -1
			}
			if done {
				continue
			}
			if name != c.Place {
				if &changes[0] == &asked[0] {
					changes = slices.Clone(asked)
				}
				changes[i].Place = name
			}
		}
		if batches == nil {
			batches = map[int][]int{}
		}
		server := s.server(c.Tag)
		batches[server] = append(batches[server], i)
	}
	var failed []error
	for server, batch := range batches {
		if o := s.breaker(server).outage.Load(); o != nil {
			failed = append(failed, s.correctWithout(ctx, now, o, changes, moved, batch))
		} else if err := s.correctAt(ctx, now, server, changes, moved, batch); err != nil {
			failed = append(failed, err)
		}
	}
	for i := range asked {
		c := &asked[i]
		if c.Place == 0 || !c.Renew || c.Reach.Scope() != bucket.Lease || moved[i] <= 0 {
			continue
		}
		if named := changes[i]; !s.spares.renewed(c.Place, named.Place, now) {
			named.Renew = false
			s.owe(now, named)
		}
	}
	return errors.Join(failed...)
}

// correctAt has a server change places.
func (s *Store) correctAt(ctx context.Context, now int64, server int, changes []bucket.Change, moved []int64,
	batch []int) error {
	some, got := make([]bucket.Change, len(batch)), make([]int64, len(batch))
	for n, i := range batch {
		some[n] = changes[i]
	}
	if err := s.sendPlaces(ctx, now, server, some, got); err != nil {
		return s.notCorrected(now, changes, batch, err)
	}
	for n, i := range batch {
		moved[i] = got[n]
	}
	return nil
}

// notCorrected notes what is to be given back another time. Who wants a place anew has to try again.
func (s *Store) notCorrected(now int64, changes []bucket.Change, batch []int, err error) error {
	var failed error
	for _, i := range batch {
		if changes[i].Renew {
			failed = err
		} else {
			s.owe(now, changes[i])
		}
	}
	return failed
}

// correctWithout changes places while their server is lost, of requests that were admitted in that time.
func (s *Store) correctWithout(ctx context.Context, now int64, o *outage, changes []bucket.Change, moved []int64,
	batch []int) error {
	var elsewhere []int
	for _, i := range batch {
		c := changes[i]
		o.mu.Lock()
		share, admitted := o.places[c.Place]
		if !c.Renew {
			delete(o.places, c.Place)
		}
		o.mu.Unlock()
		switch {
		case !admitted:
			elsewhere = append(elsewhere, i)
			continue
		case share.Reach.Loss() != bucket.LossShare:
			continue // it is counted nowhere
		}
		c.Key, c.Shape, c.Since, c.Before = share.Key, share.Shape, share.Since, share.Before
		if err := s.o.Local.Correct(ctx, now, []bucket.Change{c}, moved[i:i+1]); err != nil {
			return err
		}
	}
	return s.notCorrected(now, changes, elsewhere, bucket.ErrLost)
}
