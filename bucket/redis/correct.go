package redis

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/bucket"
)

// Correct changes the debts of buckets outside of any request, one after the other, and writes to moved[i] how many units changes[i] added to
// the debt, or took off it when below zero. Where the store counts in coarser units, a charge is rounded up and what is given back is rounded
// down. What is given back of a request (bucket.Change.Charged) is so much less as was given to the bucket since, by whatever process, and nothing if it was
// filled: others may have used that. It counts as decided earlier by what is left until ctx is done, as the message may take so long. After an error, earlier
// changes have been made, and moved says which: the others are 0.
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
			moved[i], err = s.correct(ctx, now, &claims[0], c)
		}
		if err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
	}
	return nil
}

// correct moves units of the limit's own shape.
func (s *Store) correct(ctx context.Context, now int64, c *claim, by *bucket.Change) (int64, error) {
	sh, units := c.shape, by.Units
	if units > 0 {
		moved, err := s.shift(ctx, now, c, shift{units: min(bucket.Rescale(units, sh.Unit, sh.own, true), sh.MaxDebt()), ago: -1})
		return min(bucket.Rescale(moved, sh.own, sh.Unit, false), units), err
	}
	back := shift{units: -exact, ago: -1, remember: rememberGiven}
	if units != bucket.Fill {
		back.units = -min(bucket.Rescale(-units, sh.Unit, sh.own, false), exact)
	}
	if by.Charged != 0 {
		back.ago, back.remember = max(0, micros(now-by.Charged))+s.underWay(ctx), 0
	}
	if by.Charged == 0 {
		back.once = by.Once
	}
	moved, err := s.shift(ctx, now, c, back)
	return -bucket.Rescale(-moved, sh.own, sh.Unit, true), err
}

// underWay is for how many microseconds a message may be on its way. Until it arrives a request that it tells of is that much older, and the bucket may
// be filled meanwhile. Who waits without a deadline is not told of.
func (s *Store) underWay(ctx context.Context) int64 {
	until, ok := ctx.Deadline()
	if !ok || s.callers {
		return 0
	}
	return max(0, time.Until(until).Microseconds())
}

// rememberGiven is for how long it is remembered that a bucket was given units: longer than requests whose cost is not settled last
// (headgate.MaxReservationTimeout). It takes about 160 bytes for a bucket that an operator has filled or granted tokens to.
const rememberGiven = 25 * time.Hour

// shift is a change of a debt, in units of the store's shape.
type shift struct {
	units    int64
	charged  int64         // the server's time at which units below zero were charged: what has drained since is not given back; 0 if this has been seen to
	ago      int64         // how many microseconds ago the request was decided that units below zero were charged to; -1 for none
	remember time.Duration // for how long to remember that units were given to the bucket; 0 if none are
	once     bucket.Once   // under which name they are given; for as long it is remembered
}

// shift moves what is owed.
func (s *Store) shift(ctx context.Context, now int64, c *claim, by shift) (moved int64, err error) {
	sh := c.shape
	arg := appendDoubles(nil, s.time(now), by.units, sh.MaxDebt(), micros(by.charged), by.ago, by.remember.Milliseconds(), c.since(), sh.Drain, micros(sh.Tick))
	keys := []string{c.key}
	if by.ago >= 0 || by.charged > 0 || by.remember > 0 {
		keys = append(keys, c.key+"g") // of another length than the names of buckets, of answers and of numbers
	}
	if by.once != (bucket.Once{}) {
		keys = append(keys, string(append(binary.BigEndian.AppendUint64([]byte(c.key), by.once.Name), 'o'))) // which ends as no report's number does
		arg = binary.BigEndian.AppendUint64(arg, by.once.Of)
	}
	args := []string{string(append(arg, sh.name...))}
	for range attempts {
		answer, err := s.run(ctx, shiftScript, keys, args)
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
		if len(answer) == 4 && answer[1] == int64(0) && answer[3] == "" {
			return 0, bucket.ErrAnother
		}
		moved, ok := answer[1].(int64)
		if !ok || len(answer) != 4 || !c.read(answer[0], answer[2], answer[3]) {
			return 0, unreadable(answer)
		}
		return moved, nil
	}
	return 0, &Error{Busy, errRestless}
}
