package scoped

import (
	"context"
	"fmt"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Correct changes the debts of buckets, those that are shared first, and writes to moved[i] how many units changes[i] added, or took off when below
// zero. Units of a bucket of scope split are those of the whole limit. What is held of a lease stays held.
//
// After an error nothing local was changed.
func (s *Store) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if len(moved) < len(changes) {
		return fmt.Errorf("there is room for %d results, want %d", len(moved), len(changes))
	}
	clear(moved[:len(changes)])
	for i := range changes {
		if changes[i].Reach.Scope().Shared() {
			if err := s.correctShared(ctx, now, changes[i:i+1], moved[i:i+1]); err != nil {
				return err
			}
		}
	}
	for i := range changes {
		if changes[i].Reach.Scope().Shared() {
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
	within, cancel := context.WithTimeout(ctx, s.o.Deadline)
	defer cancel()
	err := s.o.Strict.Correct(within, now, change, moved)
	s.denials.forget(change[0].Key)
	if err == nil || ctx.Err() == nil {
		s.answered(now, server, ways{}, err)
	}
	return err
}

func (s *Store) correctLocal(ctx context.Context, now int64, c bucket.Change, moved []int64) error {
	if c.Reach.Scope() == bucket.Local {
		return s.o.Local.Correct(ctx, now, []bucket.Change{c}, moved)
	}
	t := bucket.Take{Key: c.Key, Shape: c.Shape, Since: c.Since, Before: c.Before}
	s.splits.share(now, &t, new([rate.MaxPast + 1]rate.Past))
	whole, part := c.Shape.Unit, t.Shape.Unit
	switch {
	case c.Units > 0:
		c.Units = bucket.Rescale(c.Units, part, whole, true)
	case c.Units != bucket.Fill:
		c.Units = -bucket.Rescale(-c.Units, part, whole, false)
	}
	c.Shape, c.Since, c.Before = t.Shape, t.Since, t.Before
	if err := s.o.Local.Correct(ctx, now, []bucket.Change{c}, moved); err != nil {
		return err
	}
	if moved[0] >= 0 {
		moved[0] = bucket.Rescale(moved[0], whole, part, false)
	} else {
		moved[0] = -bucket.Rescale(-moved[0], whole, part, true)
	}
	return nil
}
