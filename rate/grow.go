package rate

import "math/bits"

// Grow returns s with a burst that is larger by tokens, at the same rate. What does not fit under
// MaxCapacity is left out, and a number below 1 changes nothing. Nor does a limit that counts in
// windows grow: it has no burst beside the limit.
func (s Shape) Grow(tokens int64) Shape {
	if tokens < 1 || s.Unit < 1 || !s.Algorithm.Drains() {
		return s
	}
	tokens = min(tokens, (MaxCapacity-s.Capacity)/s.Unit)
	s.Capacity += tokens * s.Unit
	return s
}

// MaxDebt is the most that a bucket may ever owe: its capacity, and as much again for costs that
// became known only after they were spent. Where twice the capacity leaves MaxCapacity, that is the
// bound. A window counts no more than the limit.
func (s Shape) MaxDebt() int64 {
	if !s.Algorithm.Drains() {
		return s.Capacity
	}
	return s.Capacity + min(s.Capacity, MaxCapacity-s.Capacity)
}

// UnitsSaturating is what tokens weigh, at most MaxCapacity; 0 for tokens below 1. Unlike Units it
// does not ask whether a bucket can hold them.
func (s Shape) UnitsSaturating(tokens int64) int64 {
	if tokens < 1 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(tokens), uint64(s.Unit))
	if hi != 0 || lo > MaxCapacity {
		return MaxCapacity
	}
	return int64(lo)
}
