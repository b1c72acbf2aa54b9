package scoped

import (
	"context"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Most takes of scope lease come alone, and are answered out of what this replica has: its free part, or
// what it holds or knows of the rest. Such a one is a take from a local bucket, and where its free part
// has no room one look at what is leased. It needs nothing of what puts decisions over several
// places together, and waits for nothing. Every other, and whatever is unusual, is left to decide,
// which says the same at more length.

// single decides over one take of scope lease if what this replica has is enough for that; else it has changed nothing.
func (s *Store) single(ctx context.Context, now int64, t *bucket.Take, o *bucket.Outcome) (allowed, decided bool) {
	if t.Shadow || t.Before != nil || t.Cost < 1 || s.lost(t.Tag) {
		return false, false
	}
	d := s.decisions.Get().(*decision)
	defer s.decisions.Put(d)
	one := d.one[:]
	one[0] = *t
	rest := &t.Shape
	var lane bucket.Outcome // of nothing, if there is none
	if s.o.Free > 0 {
		v := s.splits.at(now)
		divided := s.lanes.of(&t.Shape, v.counts[0].replicas)
		rest = &divided.rest
		if divided.lane.shape != (rate.Shape{}) {
			since := max(t.Since, v.counts[0].since)
			if !divided.lane.settled(now, since) {
				return false, false
			}
			one[0].Key, one[0].Shape, one[0].Since = freeKey(t.Key), divided.lane.shape, since
			allowed, err := s.o.Local.TryConsume(ctx, now, one, d.answer[:])
			if err != nil {
				return false, false // decide meets it again, and tells of it
			}
			lane = d.answer[0]
			one[0].Key, one[0].Shape, one[0].Since = t.Key, *rest, t.Since
			if allowed {
				*o = lane
				s.addRest(o, &one[0])
				s.counts.free.Add(1)
				return true, true
			}
		}
	}
	if s.starves(rest) {
		return false, false
	}
	one[0].Shape = *rest
	s.latest.Store(now) // a question may be sent
	if allowed, decided = s.o.Leases.TryHeld(&one[0], o); decided {
		addFree(o, &lane)
	}
	return allowed, decided
}
