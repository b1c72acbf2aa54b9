package scoped

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// outage is one time without a server of the shared store.
type outage struct {
	since    int64 // Unix nanoseconds
	replicas int   // as it was then: nobody can say what it is now

	denied, shared, opened atomic.Uint64 // as Server has them

	mu    sync.Mutex
	usage map[key.Key]*used // guarded by mu; what was admitted of each bucket, nil once that is being charged
	// guarded by mu; places among the requests under way of those that were admitted by a share, with the buckets
	// that they are of
	places map[uint32]bucket.Take
}

// used is what was admitted of a bucket that nobody could ask.
type used struct {
	take  bucket.Take // whole
	shape rate.Shape  // the part's rate, the whole's burst
	state bucket.State
}

// newOutage begins one.
func (s *Store) newOutage(now int64) *outage {
	return &outage{since: now, replicas: s.splits.now(), usage: map[key.Key]*used{}, places: map[uint32]bucket.Take{}}
}

// answered notes how a server of the shared store answered.
func (s *Store) answered(now int64, server int, way route, err error) {
	if err != nil && !s.o.Fault(err) {
		return
	}
	how := well
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		how = nothing
	case err != nil:
		how = badly
	}
	turn, over := s.breaker(server).answered(now, way, how)
	if err == nil {
		s.returnPlaces(now, turn == closed)
	}
	switch turn {
	case opened:
		s.counts.lost.Add(1)
		s.tell(server, nil, err)
	case closed:
		s.tell(server, over, nil)
		s.background(func() { s.replay(now, over) })
	}
}

// spent is before every bucket that takes the place of one that nobody can ask: it begins empty.
var spent = rate.Past{Spent: true}

// fallBack makes t a take from the local bucket with a share of the limit. It is another one for every outage.
func (s *Store) fallBack(t *bucket.Take, o *outage) {
	t.Key = key.Key{Hi: mix(t.Key.Hi ^ uint64(o.since)), Lo: mix(t.Key.Lo + uint64(o.since))}
	if t.Place != 0 {
		t.Shape, t.Since, t.Before = placesShare(t.Shape, o.replicas), 0, nil
		return
	}
	t.Shape, t.Since, t.Before = s.splits.parts.part(t.Shape, o.replicas).shape, o.since, &spent
}

// mix spreads the bits of x over a word (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// use notes what was admitted without servers that are lost.
func (s *Store) use(d *decision) {
	for i := range d.admitted {
		s.useOne(d.now, &d.admitted[i].take, d.admitted[i].outage)
	}
}

func (s *Store) useOne(now int64, t *bucket.Take, o *outage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t.Reach.Loss() == bucket.LossShare {
		s.counts.shared.Add(1)
		o.shared.Add(1)
	} else {
		s.counts.opened.Add(1)
		o.opened.Add(1)
	}
	if t.Cost <= 0 {
		return
	}
	if t.Place != 0 {
		s.usePlace(t, o)
		return
	}
	u := o.usage[t.Key]
	if u == nil {
		if len(o.usage) >= s.o.MaxUsage || o.usage == nil {
			s.counts.missed.Add(1)
			return
		}
		u = &used{take: *t}
		u.take.Before = nil // which is not ours
		part := s.splits.parts.part(t.Shape, o.replicas).shape
		u.shape = part.Grow(t.Shape.Burst() - part.Burst())
		o.usage[t.Key] = u
	}
	u.state, _ = u.state.Shift(now, u.shape, u.shape.UnitsSaturating(t.Cost), 0)
}

// replayPatience is how long replaying may take. What is not charged then is not charged at all.
const replayPatience = 10 * time.Second

// replay charges what was admitted during an outage, as far as it has not drained at this replica's
// part of the rate, and up to a burst. All replicas do so, each for its part.
func (s *Store) replay(now int64, o *outage) {
	ctx, cancel := context.WithTimeout(context.Background(), replayPatience)
	defer cancel()
	o.mu.Lock()
	usage := o.usage
	o.usage = nil
	o.mu.Unlock()
	for k, u := range usage {
		t := &u.take
		owed := min(u.state.Owed(&u.shape, now), t.Shape.Burst())
		if owed <= 0 {
			continue
		}
		change := [1]bucket.Change{{Key: k, Tag: t.Tag, Reach: t.Reach, Shape: t.Shape, Since: t.Since,
			Units: owed * t.Shape.Unit}}
		var moved [1]int64
		if err := s.o.Strict.Correct(ctx, now, change[:], moved[:]); err != nil {
			s.counts.missed.Add(1)
			continue
		}
		s.denials.forget(k)
		s.counts.replayed.Add(1)
	}
}
