package scoped

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Correct changes the debts of buckets, those that are shared first, and writes to moved[i] how
// many units changes[i] added, or took off when below zero. Units of a bucket of scope split are
// those of the whole limit, and so are those of scope lease. Of the latter what is in the store is
// changed, and to fill it fills this replica's free part as well; what is held of a lease stays held.
// What was admitted of a limit of scope sync and is not reported yet is charged afterwards, also to
// a bucket that was filled; this replica hears of the change at once, and others within about a
// second. Of a bucket of scope gossip others hear what is added; what is given back here they keep
// charged until it has drained. Places among the requests under way are changed before all others,
// many at a time; one that cannot be given back now is given back as soon as the store answers.
//
// After an error nothing local was changed.
func (s *Store) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if len(moved) < len(changes) {
		return fmt.Errorf("there is room for %d results, want %d", len(moved), len(changes))
	}
	clear(moved[:len(changes)])
	if err := s.correctPlaces(ctx, now, changes, moved); err != nil {
		return err
	}
	for i := range changes {
		if changes[i].Reach.Scope().Shared() && changes[i].Place == 0 {
			if err := s.correctShared(ctx, now, changes[i:i+1], moved[i:i+1]); err != nil {
				return err
			}
		}
	}
	for i := range changes {
		if changes[i].Reach.Scope().Shared() {
			continue
		}
		if changes[i].Reach.Scope() == bucket.Gossip && s.o.Gossip != nil {
			moved[i] = s.o.Gossip.Correct(now, &changes[i])
			continue
		}
		if err := s.correctLocal(ctx, now, changes[i], moved[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) correctShared(ctx context.Context, now int64, change []bucket.Change, moved []int64) error {
	if s.o.Strict == nil {
		return errNothingShared
	}
	server := s.server(change[0].Tag)
	if s.breaker(server).outage.Load() != nil {
		return bucket.ErrLost
	}
	c, whole := change[0], change[0].Shape.Unit
	leased := c.Reach.Scope() == bucket.Lease && s.o.Leases != nil && !countsPlaces(&c.Shape)
	if countsPlaces(&c.Shape) {
		s.spares.drop(c.Key)
	}
	if leased && s.o.Free > 0 {
		k := s.splits.at(now).counts[0].replicas
		c.Shape = s.lanes.of(&c.Shape, k).rest
		c.Before = s.lanes.rest(c.Before, k, new([rate.MaxPast + 1]rate.Past))
		c.Units = restate(c.Units, c.Shape.Unit, whole)
		c.Left = bucket.Rescale(c.Left, c.Shape.Unit, whole, false)
	}
	if leased && c.Charged != 0 {
		s.ofBatch(&c)
	}
	within, cancel := context.WithTimeout(ctx, s.o.Deadline)
	defer cancel()
	err := s.o.Strict.Correct(within, now, []bucket.Change{c}, moved)
	moved[0] = stated(moved[0], whole, c.Shape.Unit)
	s.changed(&bucket.Take{Key: c.Key, Tag: c.Tag, Reach: c.Reach, Shape: c.Shape, Since: c.Since, Before: c.Before})
	if answer := err; answer == nil || ctx.Err() == nil {
		if errors.Is(err, bucket.ErrAnother) {
			answer = nil // which says nothing against the store
		}
		s.answered(now, server, route{}, answer)
	}
	if err != nil {
		return err
	}
	return s.fillFree(ctx, now, change[0])
}

// ofBatch has a charge that is given back count from when the batch may have been charged that it
// was admitted out of: it has drained since then.
func (s *Store) ofBatch(c *bucket.Change) {
	ttl := s.o.Leases.Terms().TTL
	c.Charged -= int64(ttl)
	if c.Units < 0 && c.Units != bucket.Fill {
		c.Left = max(0, c.Undrained()-c.Shape.Drained(ttl)-1)
		c.Units = -min(-c.Units, c.Left)
	}
}

// changed forgets what was heard of a bucket whose debt is another one now.
func (s *Store) changed(of *bucket.Take) {
	s.denials.forget(of.Key)
	switch scope := of.Reach.Scope(); {
	case scope == bucket.Lease && s.o.Leases != nil && !countsPlaces(&of.Shape):
		s.o.Leases.Recheck(of)
	case scope == bucket.Sync && s.o.Reports != nil:
		s.o.Reports.Refresh(of)
	}
}

// fillFree fills this replica's free part, if c fills a bucket that has one.
func (s *Store) fillFree(ctx context.Context, now int64, c bucket.Change) error {
	if c.Units != bucket.Fill || c.Reach.Scope() != bucket.Lease || s.o.Leases == nil || s.o.Free == 0 ||
		countsPlaces(&c.Shape) {
		return nil
	}
	v := s.splits.at(now)
	if s.lanes.part(c.Shape, v.counts[0].replicas).shape == (rate.Shape{}) {
		return nil
	}
	lane := bucket.Take{Key: freeKey(c.Key), Shape: c.Shape, Since: c.Since, Before: c.Before}
	s.splits.shareAt(v, now, &lane, new([rate.MaxPast + 1]rate.Past), &s.lanes)
	c.Key, c.Shape, c.Since, c.Before = lane.Key, lane.Shape, lane.Since, lane.Before
	return s.o.Local.Correct(ctx, now, []bucket.Change{c}, make([]int64, 1))
}

func (s *Store) correctLocal(ctx context.Context, now int64, c bucket.Change, moved []int64) error {
	if scope := c.Reach.Scope(); scope == bucket.Local || scope == bucket.Gossip {
		return s.o.Local.Correct(ctx, now, []bucket.Change{c}, moved)
	}
	t := bucket.Take{Key: c.Key, Shape: c.Shape, Since: c.Since, Before: c.Before}
	s.splits.share(now, &t, new([rate.MaxPast + 1]rate.Past))
	whole, part := c.Shape.Unit, t.Shape.Unit
	c.Units, c.Left = restate(c.Units, part, whole), bucket.Rescale(c.Left, part, whole, false)
	c.Shape, c.Since, c.Before = t.Shape, t.Since, t.Before
	if err := s.o.Local.Correct(ctx, now, []bucket.Change{c}, moved); err != nil {
		return err
	}
	moved[0] = stated(moved[0], whole, part)
	return nil
}

// restate is units of a change in those of another shape, rounded up: in favour of the limit.
func restate(units, to, from int64) int64 {
	switch {
	case to == from || units == bucket.Fill:
		return units
	case units > 0:
		return bucket.Rescale(units, to, from, true)
	}
	return -bucket.Rescale(-units, to, from, false)
}

// stated is what was moved, in units of another shape, rounded down.
func stated(moved, to, from int64) int64 {
	switch {
	case to == from:
		return moved
	case moved >= 0:
		return bucket.Rescale(moved, to, from, false)
	}
	return -bucket.Rescale(-moved, to, from, true)
}
