package redis

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// claim is what one decision wants of one bucket, and what it was told.
type claim struct {
	take          bucket.Take // the first that names the bucket, in the store's shape
	shape         *shape
	key           string
	units, shadow int64 // of the store's shape, wanted in all and by shadows; -1 is more than the bucket holds

	texts [2]string // room for key and an argument as an Evaler takes them, which else are allocated each time

	at            int64        // the time of the decision, in Unix nanoseconds
	state         bucket.State // after it, or as found if it was denied
	allowed       bool         // units fit
	shadowAllowed bool         // shadow fits on top
}

// alone is room for what most decisions want, one take of one bucket.
type alone struct {
	claim
	all [1]*claim
	of  [1]int
}

// merge makes one claim of all takes with the same key; of[i] is that of takes[i].
func (s *Store) merge(takes []bucket.Take) (claims []*claim, of []int, err error) {
	var room alone
	claims, of = room.all[:0], room.of[:]
	if len(takes) > 1 {
		claims, of = make([]*claim, 0, len(takes)), make([]int, len(takes))
	}
	var name [64]byte
	for i := range takes {
		t := &takes[i]
		of[i] = slices.IndexFunc(claims, func(c *claim) bool { return c.take.Key == t.Key })
		if of[i] < 0 {
			shape, err := s.shapeOf(t)
			if err != nil {
				return nil, nil, fmt.Errorf("take %d: the limit %w", i, err)
			}
			c := &room.claim
			if i > 0 {
				c = new(claim)
			}
			c.take, c.shape, c.key = *t, shape, string(appendBucket(name[:0], s.prefix, t))
			of[i], claims = len(claims), append(claims, c)
		} else if takes[slices.Index(of, of[i])].Shape != t.Shape {
			return nil, nil, fmt.Errorf("takes %d and %d name one bucket with two shapes", slices.Index(of, of[i]), i)
		}
		claims[of[i]].add(t)
	}
	for _, c := range claims {
		if c.take.Shape = c.shape.Shape; c.isPlace() {
			c.take.Since, c.take.Before = 0, nil // a place says itself until when it is kept
			continue
		}
		c.take.Since = ceilMicros(c.take.Since)
		c.take.Before = s.shapes.past(c.take.Before)
	}
	return claims, of, nil
}

// ceilMicros rounds a time up to a whole microsecond, as the server tells times.
func ceilMicros(nanos int64) int64 {
	if nanos%1000 > 0 {
		return nanos - nanos%1000 + 1000
	}
	return nanos
}

// add adds up what takes of one bucket want. A sum above the capacity can never be had, like a single cost above it.
func (c *claim) add(t *bucket.Take) {
	if c.isPlace() {
		c.addPlace(t)
		return
	}
	sum := &c.units
	if t.Shadow {
		sum = &c.shadow
	}
	units, possible := rate.Units(&c.shape.Shape, t.Cost)
	if !possible || *sum < 0 || units > c.shape.Capacity-*sum {
		*sum = -1
		return
	}
	*sum += units
}

// wants is c as the script reads it.
func (s *Store) wants(c *claim, now int64, charge bool) string {
	var room [128]byte
	moment := s.moment(now)
	age, back := c.age(moment)
	var spans [rate.MaxSpans]rate.Span
	slow := slownessOf(spans[:0], &c.take, moment)
	arg := appendDoubles(room[:0], s.time(now), yes(charge), c.units, c.shadow, c.longest(), age, back, slow.code())
	if c.take.Kept > 0 {
		met := c.take.Met()
		arg = appendDoubles(arg, met.Drain, micros(met.Tick), met.Capacity)
	} else {
		arg = append(arg, c.shape.numbers...)
	}
	return string(append(slow.appendTo(arg), c.shape.name...))
}

// time is what a script is told about the time: that of the caller, or 0 to look at its own clock.
func (s *Store) time(now int64) int64 {
	if !s.callers {
		return 0
	}
	return max(1, micros(now))
}

func yes(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// longest is the longest wait that c accepts, in microseconds; -1 for any.
func (c *claim) longest() int64 {
	if c.shape.Algorithm != rate.LeakyBucket || c.take.MaxWait == 0 {
		return -1
	}
	return min(max(0, c.take.MaxWait.Microseconds()), exact/4)
}

// plain says that one.lua can charge c.
func (s *Store) plain(c *claim, now int64) bool {
	if c.units <= 0 || c.shadow != 0 || c.take.Kept > 0 || c.take.Lowered != nil || c.longest() >= 0 ||
		c.shape.Tick != int64(time.Microsecond) {
		return false
	}
	if c.take.Before == nil { // which is most: there is no age to ask the clock for
		return true
	}
	age, _ := c.age(s.moment(now))
	return age < 0
}

// read takes the bucket's state from what a script answered, and reports whether it is one.
func (c *claim) read(at, debt, stamp any) bool {
	now, ok1 := number(at)
	owed, ok2 := number(debt)
	then, ok3 := number(stamp)
	c.at, c.state = now*1000, bucket.State{Debt: owed, Stamp: then * 1000}
	return ok1 && ok2 && ok3
}

// charged is how much a decision that was allowed takes from the bucket.
func (c *claim) charged() int64 {
	if c.shadowAllowed {
		return c.units + c.shadow
	}
	return c.units
}

// report writes what became of a take of c, when the decision as a whole was allowed or not.
func (c *claim) report(o *bucket.Outcome, shadow, all bool) {
	units, allowed := c.units, c.allowed
	if shadow {
		units, allowed = c.shadow, c.shadowAllowed
	}
	if c.isPlace() {
		c.reportPlace(o, allowed)
		return
	}
	met := c.take.Met()
	c.state.Report(o, c.at, &met, units, allowed)
	l := c.take.Slower()
	o.RetryAfter, o.ResetAfter = l.Stretch(o.RetryAfter), l.Stretch(o.ResetAfter)
	if c.take.Shape.Algorithm == rate.LeakyBucket {
		c.reportWait(o, units, shadow, all)
	}
	// Waits in whole microseconds, as the server's clock shows when they are over.
	o.RetryAfter, o.ResetAfter, o.Wait = roundUp(o.RetryAfter), roundUp(o.ResetAfter), roundUp(o.Wait)
}

// reportWait completes the outcome of a take of a leaky bucket. Nobody waits for a decision that
// was denied as a whole, nor for nothing.
func (c *claim) reportWait(o *bucket.Outcome, wanted int64, shadow, all bool) {
	own := int64(0)
	if c.shadowAllowed {
		own = c.shadow
	}
	if !shadow {
		own += c.units // shadows came after
	}
	switch {
	case wanted <= 0 || o.Allowed && !all:
	case !all || shadow && !c.shadowAllowed:
		c.take.ReportWait(o, c.state, c.at, 0)
	default:
		c.take.ReportWait(o, c.state, c.at, own)
	}
}

func roundUp(d time.Duration) time.Duration {
	if over := d % time.Microsecond; over > 0 && d < 1<<63-1000 {
		return d - over + time.Microsecond
	}
	return d
}
