package redis

import (
	"context"
	"fmt"
	"math"

	"github.com/headgate-io/headgate/bucket"
)

// Correct changes the debts of buckets outside of any request, one after the other, and writes to moved[i] how many units changes[i] added to
// the debt, or took off it when below zero. Where the store counts in coarser units, a charge is rounded up and what is given back is rounded
// down. After an error, earlier changes have been made, and moved says which: the others are 0.
func (s *Store) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if len(moved) < len(changes) {
		return fmt.Errorf("there is room for %d results, want %d", len(moved), len(changes))
	}
	clear(moved[:len(changes)])
	for i := range changes {
		c := &changes[i]
		take := []bucket.Take{{Key: c.Key, Shape: c.Shape, Tag: c.Tag, Since: c.Since, Before: c.Before}}
		claims, _, err := s.merge(take)
		if err == nil {
			moved[i], err = s.correct(ctx, now, &claims[0], c.Units)
		}
		if err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
	}
	return nil
}

// correct moves units of the limit's own shape.
func (s *Store) correct(ctx context.Context, now int64, c *claim, units int64) (int64, error) {
	sh := c.shape
	switch {
	case units > 0:
		moved, err := s.shift(ctx, now, c, min(bucket.Rescale(units, sh.Unit, sh.own, true), sh.MaxDebt()), 0)
		return min(bucket.Rescale(moved, sh.own, sh.Unit, false), units), err
	case units == bucket.Fill:
		units = -math.MaxInt64 // whose negation does not overflow
	}
	moved, err := s.shift(ctx, now, c, -min(bucket.Rescale(-units, sh.Unit, sh.own, false), exact), 0)
	return -bucket.Rescale(-moved, sh.own, sh.Unit, true), err
}

// shift moves units of the store's shape. Those below zero that were charged at a time give back only what has not drained since; 0 says that
// this has been seen to.
func (s *Store) shift(ctx context.Context, now int64, c *claim, units, charged int64) (moved int64, err error) {
	sh := c.shape
	arg := appendDoubles(nil, s.time(now), units, sh.MaxDebt(), micros(charged), c.since(), sh.Drain, micros(sh.Tick))
	args := []string{string(append(arg, sh.name...))}
	for range attempts {
		answer, err := s.run(ctx, shiftScript, []string{c.key}, args)
		if err != nil {
			return 0, err
		}
		if len(answer) == 4 && answer[1] == int64(-1) && answer[2] == int64(1) {
			if _, changed := answer[3].(string); changed {
				if args, err = s.restated(answer, []*claim{c}, args); err != nil {
					return 0, err
				}
				continue
			}
		}
		moved, ok := answer[1].(int64)
		if !ok || len(answer) != 4 || !c.read(answer[0], answer[2], answer[3]) {
			return 0, unreadable(answer)
		}
		return moved, nil
	}
	return 0, &Error{Busy, errRestless}
}
