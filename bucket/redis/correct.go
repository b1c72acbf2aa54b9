package redis

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Correct changes the debts of buckets outside of any request, one after the other, and writes to
// moved[i] how many units changes[i] added to the debt, or took off it when below zero. Where the
// store counts in coarser units, a charge is rounded up and what is given back is rounded down.
// What is given back of a request (bucket.Change.Charged) is so much less as was given to the
// bucket since, by whatever process, and nothing if it was filled: others may have used that.
// However late the message arrives, it gives back no more than has not drained by then
// (bucket.Change.Left); and one that arrives again within a minute gives nothing. Places among the
// requests under way come before all others, many in one message. After an error,
// earlier changes have been made, and moved says which: the others are 0.
func (s *Store) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if len(moved) < len(changes) {
		return fmt.Errorf("there is room for %d results, want %d", len(moved), len(changes))
	}
	clear(moved[:len(changes)])
	if err := s.correctPlaces(ctx, now, changes, moved); err != nil {
		return err
	}
	for i := range changes {
		c := &changes[i]
		if countsPlaces(&c.Shape) {
			continue
		}
		take := []bucket.Take{{Key: c.Key, Shape: c.Shape, Tag: c.Tag, Since: c.Since, Before: c.Before,
			Lowered: c.Lowered}}
		claims, _, err := s.merge(take)
		if err == nil {
			moved[i], err = s.correct(ctx, now, claims[0], c)
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
		moved, err := s.shift(ctx, now, c, shift{units: min(bucket.Rescale(units, sh.Unit, sh.own, true), sh.MaxDebt()),
			asof: -1, after: -1})
		return min(bucket.Rescale(moved, sh.own, sh.Unit, false), units), err
	}
	back := shift{units: -exact, asof: -1, after: -1, remember: rememberGiven, once: by.Once}
	if units != bucket.Fill {
		back.units = -min(bucket.Rescale(-units, sh.Unit, sh.own, false), exact)
	}
	if by.Charged != 0 {
		moment := s.moment(now)
		behind, err := s.behind(ctx, c)
		if err != nil {
			return 0, err
		}
		left := bucket.Rescale(by.Undrained(), sh.Unit, sh.own, false)
		back.ofCharge(sh, left, micros(moment+behind), micros(moment+behind-max(0, now-by.Charged)))
	}
	moved, err := s.shift(ctx, now, c, back)
	return -bucket.Rescale(-moved, sh.own, sh.Unit, true), err
}

// behind is what times of Options.Now lack to those of the server that has the bucket of c, at
// least. Who never heard of that server asks.
func (s *Store) behind(ctx context.Context, c *claim) (int64, error) {
	if s.callers {
		return 0, nil
	}
	if known := s.clocks.of(c.take.Tag).Load(); known != 0 {
		return known, nil
	}
	looked := *c
	_, err := s.together(ctx, 0, []*claim{&looked}, false)
	return s.clocks.of(c.take.Tag).Load(), err
}

// rememberGiven is for how long it is remembered that a bucket was given units: longer than
// requests whose cost is not settled last (reservation.MaxTimeout). It takes about 160
// bytes for a bucket that an operator has filled or granted tokens to.
const rememberGiven = 25 * time.Hour

// shift is a change of a debt, in units of the store's shape.
type shift struct {
	units int64
	left  int64 // of the charge that units below zero give back, what had not drained
	asof  int64 // at this time, in microseconds by the server's clock; -1 for units of no charge
	// and what was given to the bucket after this time is not given back again; -1 for units of no
	// charge
	after    int64
	remember time.Duration // for how long to remember that units were given to the bucket; 0 if none are
	once     bucket.Once   // under which name they are given
	named    time.Duration // for how long that is remembered
}

// mostRepeated is for how long it is remembered that a charge was given back, at most: a message
// that the network delivers twice comes sooner.
const mostRepeated = time.Minute

// ofCharge makes s give back what was charged, in a message that may arrive late, and twice.
func (s *shift) ofCharge(sh *shape, left, asof, after int64) {
	s.left, s.asof, s.after, s.remember = left, asof, after, 0
	s.once = bucket.Once{Name: rand.Uint64() | 1}
	s.named = min(sh.TimeToFull(left), mostRepeated) + time.Second
}

// shift moves what is owed.
func (s *Store) shift(ctx context.Context, now int64, c *claim, by shift) (moved int64, err error) {
	sh := c.shape
	moment := s.moment(now)
	age, back := c.age(moment)
	var spans [rate.MaxSpans]rate.Span
	slow := slownessOf(spans[:0], &c.take, moment)
	named := max(by.named, by.remember)
	arg := appendDoubles(nil, s.time(now), by.units, sh.MaxDebt(), by.left, by.asof, by.after,
		by.remember.Milliseconds(), named.Milliseconds(), age, back, sh.Drain, micros(sh.Tick), slow.code())
	arg = slow.appendTo(arg)
	keys := []string{c.key}
	if by.after >= 0 || by.remember > 0 {
		keys = append(keys, c.key+"g") // of another length than the names of buckets, of answers and of numbers
	}
	if by.once != (bucket.Once{}) {
		// which ends as no report's number does
		keys = append(keys, string(append(binary.BigEndian.AppendUint64([]byte(c.key), by.once.Name), 'o')))
		arg = binary.BigEndian.AppendUint64(arg, by.once.Of)
	}
	args := []string{string(append(arg, sh.name...))}
	for n := range attempts {
		answer, dates, err := s.runDated(ctx, c.take.Tag, shiftScript, keys, args)
		if err != nil {
			return 0, err
		}
		if len(answer) == 4 && answer[1] == int64(-1) && answer[2] == int64(1) {
			if _, changed := answer[3].(string); changed {
				if args, err = s.restated(ctx, answer, dates, []*claim{c}, args, n == 0); err != nil {
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
