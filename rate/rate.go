// Package rate compiles a limit, as people write it, into the exact integers that buckets count with.
//
// A limit of N tokens per Per nanoseconds drains N/Per tokens of debt a nanosecond, which is seldom
// a whole number. So a token is divided into units: with g = gcd(N, Per), one token is Per/g units
// and N/g units drain every nanosecond, both without a remainder. For 3 tokens per second g is 1, a
// token is 1,000,000,000 units and 3 of them drain each nanosecond: after 333,333,333 ns there are
// 999,999,999 units back, one short of a token; one nanosecond later the token is there. No rate is
// ever rounded.
//
// Units are finer than any clock, and a large burst of fine units leaves 63 bits. Then the same
// drain is stated per microsecond or per millisecond, which divides both sides of the fraction
// further; buckets still decide to the nanosecond (see bucket.State).
package rate

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

const (
	// MaxDrain bounds Shape.Drain.
	MaxDrain = 1 << 32

	// MaxCapacity bounds Shape.Capacity, so that a bucket's debt and one tick's drain never leave an int64 together.
	MaxCapacity = 1 << 62
)

// Limit is what a rule says: Tokens per Per, and at most Burst at once. All three are at least 1.
// An Algorithm that counts in windows has no burst beside its Tokens, and wants it equal.
type Limit struct {
	Tokens    int64
	Per       time.Duration
	Burst     int64
	Algorithm Algorithm
}

// Shape is a Limit compiled to exact integers. Shapes are comparable: two limits that compile to
// the same Shape behave alike. The zero Shape holds nothing and admits nothing.
type Shape struct {
	Drain    int64 // units drained per tick, 1 to MaxDrain
	Unit     int64 // units in one token
	Capacity int64 // units the bucket holds, a multiple of Unit, at most MaxCapacity
	Tick     int64 // nanoseconds in a tick: 1, 1_000 or 1_000_000; the finest that Capacity allows

	// Algorithm is how the limit is counted. If it counts in windows, a token is one unit, a tick
	// is the window, and Drain and Capacity are both the limit, whatever MaxDrain says.
	Algorithm Algorithm

	// Phase says when the windows begin: so many seconds, less one, after multiples of Tick. 0 is
	// when the key of a bucket says, so that not all end at once. Compile leaves it at 0.
	Phase uint32
}

// RangeError says which field of a Limit stands in the way.
type RangeError struct {
	Field string // Tokens, Per or Burst
	Value int64  // what it is; nanoseconds for Per

	// Limit is what it may be. Below 1 that is 1. Above, it is the largest smaller value for which
	// a limit whose named fields are all replaced in this way compiles.
	Limit int64

	counted bool // no divisor matters
}

func (e *RangeError) Error() string {
	value, limit := fmt.Sprint(e.Value), fmt.Sprint(e.Limit)
	if e.Field == "Per" {
		value, limit = time.Duration(e.Value).String(), time.Duration(e.Limit).String()
	}
	if e.Value < e.Limit {
		return fmt.Sprintf("%s is %s, want %s or more", e.Field, value, limit)
	}
	if e.Field == "Tokens" && !e.counted {
		// Larger counts may work as well: what matters is the divisor that Tokens shares with Per.
		return fmt.Sprintf("Tokens is %s, want a count that shares a larger divisor with Per, such as %s", value, limit)
	}
	return fmt.Sprintf("%s is %s, want %s or less", e.Field, value, limit)
}

// ticks in the order of preference.
var ticks = [...]int64{1, 1_000, 1_000_000}

// Compile turns l into exact integers, or says with one *RangeError per field why there are none.
// Every limit that people write compiles: what is refused drains more than MaxDrain units a
// nanosecond, or holds more than MaxCapacity units even at the coarsest tick.
func Compile(l Limit) (Shape, error) {
	if l.Tokens < 1 || l.Per < 1 || l.Burst < 1 {
		return Shape{}, errors.Join(atLeastOne("Tokens", l.Tokens), atLeastOne("Per", int64(l.Per)),
			atLeastOne("Burst", l.Burst))
	}
	if !l.Algorithm.Drains() {
		return compileWindow(l)
	}
	for _, tick := range ticks {
		if s := fraction(l, tick); s.Unit <= maxUnit(l.Burst) && s.Drain <= MaxDrain {
			s.Capacity, s.Algorithm = l.Burst*s.Unit, l.Algorithm
			return s, nil
		}
	}
	return Shape{}, refuse(l)
}

// Units is what cost tokens weigh. It is false for a cost below zero and for one that a full bucket could not pay.
func (s Shape) Units(cost int64) (units int64, ok bool) { return Units(&s, cost) }

// Units is s.Units without copying s, for hot paths.
func Units(s *Shape, cost int64) (units int64, ok bool) {
	hi, lo := bits.Mul64(uint64(cost), uint64(s.Unit))
	if cost < 0 || s.Unit == 0 || hi != 0 || lo > uint64(s.Capacity) {
		return 0, false
	}
	return int64(lo), true
}

// Burst is how many tokens a full bucket holds.
func (s Shape) Burst() int64 {
	if s.Unit == 0 {
		return 0
	}
	return s.Capacity / s.Unit
}

// TimeToFull is how long debt units take to drain, rounded up to a nanosecond. What takes longer
// than the 292 years of a time.Duration takes the longest time.Duration.
func (s Shape) TimeToFull(debt int64) time.Duration { return TimeToFull(&s, debt) }

// TimeToFull is s.TimeToFull without copying s, for hot paths.
func TimeToFull(s *Shape, debt int64) time.Duration {
	if debt > 0 && s.Tick == 1 && s.Drain == 1 {
		// as most limits have it whose tokens divide their time; a division takes longer than the
		// rest
		return time.Duration(debt)
	}
	return s.divide(debt)
}

// divide is TimeToFull for every other limit.
func (s *Shape) divide(debt int64) time.Duration {
	switch {
	case debt <= 0:
		return 0
	case s.Drain <= 0:
		return math.MaxInt64
	case s.Tick == 1:
		return time.Duration((uint64(debt) + uint64(s.Drain) - 1) / uint64(s.Drain))
	}
	hi, lo := bits.Mul64(uint64(debt), uint64(s.Tick))
	lo, carry := bits.Add64(lo, uint64(s.Drain)-1, 0)
	hi += carry
	if hi >= uint64(s.Drain) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(s.Drain))
	return time.Duration(min(q, math.MaxInt64))
}

// Drained is how many whole units drain in d, at most MaxCapacity.
func (s Shape) Drained(d time.Duration) int64 {
	if d <= 0 || s.Tick <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(d), uint64(s.Drain))
	if hi >= uint64(s.Tick) {
		return MaxCapacity
	}
	q, _ := bits.Div64(hi, lo, uint64(s.Tick))
	return int64(min(q, MaxCapacity))
}

// fraction reduces l's rate to Drain units per tick and Unit units per token. Capacity is left
// open; Drain is only meant when it is at most MaxDrain, and is kept from overflowing beyond.
func fraction(l Limit, tick int64) Shape {
	g := gcd(l.Tokens, int64(l.Per))
	drain, unit := l.Tokens/g, int64(l.Per)/g
	g = gcd(tick, unit) // drain and unit have no divisor in common, so this is gcd(drain*tick, unit)
	return Shape{Drain: min(drain, MaxDrain+1) * (tick / g), Unit: unit / g, Tick: tick}
}

// maxUnit is the largest Unit with which burst tokens fit in MaxCapacity.
func maxUnit(burst int64) int64 { return MaxCapacity / burst }

func atLeastOne(field string, value int64) error {
	if value >= 1 {
		return nil
	}
	return &RangeError{Field: field, Value: value, Limit: 1}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
