package scoped

import (
	"context"
	"slices"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Most keys are asked for less often than a batch is worth its message. So each replica has a part
// of a limit of scope lease to itself: its free part, which is a local bucket with a k-th of Options.Free
// percent of the limit. The bucket in the shared store has the rest. A take goes to the free part, and
// only where that is empty to what is leased:
//
//	100 per second, burst 100, k = 4, Free = 20     free part   5 per second, burst 5     at each of 4
//	                                                rest       80 per second, burst 80    in the shared store, by leases
//
// Nothing is counted twice, and the parts are the whole. So the bound stays what it is for leases,
// less what drains of the free parts in a TTL; and the free parts go on while the shared store is away. A
// free part changes with the number of replicas as a part of a split limit does: who joins begins with
// an empty one. Where a free part would hold less than two tokens there is none, and the bucket in the
// store is whole.

// freeParts is how limits are set aside.
type freeParts struct{ divisions[halves] }

// halves is a limit in two: what a replica has to itself, and what is in the store.
type halves struct {
	lane portion
	rest rate.Shape
}

func (l *freeParts) init(percent int) {
	l.divide = func(whole rate.Shape, k int) halves {
		if k == none { // of others nothing is known but that they have theirs
			_, rest, _ := whole.SetAside(percent, 1)
			return halves{rest: rest}
		}
		lane, rest, _ := whole.SetAside(percent, k)
		return halves{newPortion(lane), rest}
	}
}

// part makes free parts a divider.
func (l *freeParts) part(whole rate.Shape, k int) *portion { return &l.of(&whole, k).lane }

// rest is the past of what is in the store.
func (l *freeParts) rest(p *rate.Past, k int, room *[rate.MaxPast + 1]rate.Past) *rate.Past {
	var first *rate.Past
	at := &first
	for i := 0; p != nil && i < len(room); p, i = p.Before, i+1 {
		room[i] = *p
		if p.Shape != (rate.Shape{}) {
			room[i].Shape = l.of(&p.Shape, k).rest
		}
		room[i].Before = nil
		*at, at = &room[i], &room[i].Before
	}
	return first
}

// freeKey is the key of a free part, as another bucket of the local store may have that of the limit.
func freeKey(k key.Key) key.Key {
	const lane = 0x6c616e65
	return key.Key{Hi: mix(k.Hi ^ lane), Lo: mix(k.Lo + lane)}
}

// lease sorts a take of scope lease: into what is leased, or there and into the free parts.
func (s *Store) lease(now int64, d *decision, i int) {
	t := &d.takes[i]
	if s.o.Free == 0 {
		s.addRestOf(d, i, t)
		return
	}
	v := s.splits.at(now)
	k := v.counts[0].replicas
	divided := s.lanes.of(&t.Shape, k)
	whole := *t
	whole.Shape = divided.rest
	if t.Before != nil {
		whole.Before = s.lanes.rest(t.Before, k, d.past())
	}
	if divided.lane.shape == (rate.Shape{}) {
		s.addRestOf(d, i, &whole)
		return
	}
	d.rest.add(i, &whole)
	lane := d.lanes.add(i, t)
	lane.Key = freeKey(t.Key)
	s.splits.shareAt(v, now, lane, d.past(), &s.lanes)
}

// addRestOf has a take of scope lease decided by what is leased of its bucket, or by the bucket
// itself where that cannot be leased.
func (s *Store) addRestOf(d *decision, of int, t *bucket.Take) *bucket.Take {
	if s.starves(&t.Shape) {
		return d.strict.add(of, t)
	}
	return d.leased.add(of, t)
}

// starves reports whether a bucket is full again long before a replica asks for it the next time,
// so that most of its rate would never be leased: one of 400 per second with a burst of 2 is full
// after 5 ms. Such a bucket is asked for each request.
func (s *Store) starves(sh *rate.Shape) bool {
	return sh.Drained(2*s.o.Leases.Terms().Poll) > sh.Capacity
}

// decideFree decides out of free parts, if that is all it takes; else it sorts the takes that have free parts into
// those where there is room and those of what is leased.
func (s *Store) decideFree(ctx context.Context, d *decision) (decided bool, err error) {
	n := len(d.local.takes)
	if !d.shared() {
		for i, of := range d.lanes.of {
			d.local.add(of, &d.lanes.takes[i]).Shadow = false // all of it, or nothing yet
		}
		decided, err = s.o.Local.TryConsume(ctx, d.now, d.local.takes, d.local.outs)
		if decided || err != nil {
			return true, err
		}
		copy(d.lanes.outs, d.local.outs[n:])
		d.local.cut(n)
	} else if _, err := s.o.Local.Peek(ctx, d.now, d.lanes.takes, d.lanes.outs); err != nil {
		return true, err
	}
	s.assign(d)
	return false, nil
}

// assign has takes go to their free parts where there is room, and else to what is leased.
func (s *Store) assign(d *decision) {
	for i := range d.lanes.of {
		s.assignOne(d, i)
	}
}

func (s *Store) assignOne(d *decision, i int) {
	if d.lanes.outs[i].Allowed {
		d.local.add(d.lanes.of[i], &d.lanes.takes[i])
	} else {
		s.addRestOf(d, d.lanes.of[i], &d.rest.takes[i])
	}
}

// complete adds to what was told of one half of a limit what is known of the other, and counts what
// was free if it was charged.
func (s *Store) complete(d *decision, outs []bucket.Outcome, charged bool) {
	for i, of := range d.lanes.of {
		o, lane := &outs[of], &d.lanes.outs[i]
		switch {
		case o.Unknown:
		case d.asked(of):
			addFree(o, lane)
		case !s.lost(d.rest.takes[i].Tag):
			s.addRest(o, &d.rest.takes[i])
		}
		if charged && o.Allowed && lane.Allowed {
			s.counts.free.Add(1)
		}
	}
}

// addFree adds to what was told of the rest of a limit how its free part stands.
func addFree(rest, lane *bucket.Outcome) {
	rest.Remaining += lane.Remaining
	rest.ResetAfter = max(rest.ResetAfter, lane.ResetAfter)
	if rest.RetryAfter > 0 && lane.RetryAfter > 0 {
		rest.RetryAfter = min(rest.RetryAfter, lane.RetryAfter)
	}
}

// addRest adds to what was told of a free part what is known of the rest of the limit.
func (s *Store) addRest(lane *bucket.Outcome, rest *bucket.Take) {
	left, reset := s.o.Leases.Known(rest)
	lane.Remaining += left
	lane.ResetAfter = max(lane.ResetAfter, reset)
}

// asked reports whether the take at a place is one of what is in the store.
func (d *decision) asked(place int) bool {
	return slices.Contains(d.leased.of, place) || slices.Contains(d.strict.of, place)
}

// lookBoth has both halves of limits looked at; of what has room in its free part nothing is asked of
// the store. While that is lost there is one half.
func (s *Store) lookBoth(ctx context.Context, d *decision) error {
	if _, err := s.o.Local.Peek(ctx, d.now, d.lanes.takes, d.lanes.outs); err != nil {
		return err
	}
	for i, of := range d.lanes.of {
		if !s.lost(d.rest.takes[i].Tag) {
			if rest := s.addRestOf(d, of, &d.rest.takes[i]); d.lanes.outs[i].Allowed {
				rest.Cost = 0
			}
			continue
		}
		s.assignOne(d, i)
	}
	return nil
}

// lost reports whether the server of a tag is.
func (s *Store) lost(tag uint16) bool { return s.breaker(s.server(tag)).outage.Load() != nil }
