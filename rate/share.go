package rate

import "math/bits"

// Keeping is what s holds for somebody who is to leave percent of its burst, 0 to 99, rounded down to whole tokens:
// the same rate with a smaller capacity. It holds a token at least.
func (s Shape) Keeping(percent int) Shape {
	s.Capacity -= s.tokens(percent) * s.Unit
	return s
}

// AtOnce is what s holds while a part of it is in force, in 1024ths: so many whole tokens, one at least.
func (s Shape) AtOnce(part int) Shape {
	s.Capacity = max(s.Unit, s.Capacity/s.Unit*int64(part)/Whole*s.Unit)
	return s
}

// Share is a part of s: percent of its rate, 1 to 99, and of its burst, which is rounded down to whole tokens. It is
// false where that holds no token. Shares of a hundred percent or less hold and drain no more than s together, and no
// more than what somebody leaves who keeps their sum (Keeping). A queue has no queues for parts: theirs are token
// buckets.
func (s Shape) Share(percent int) (part Shape, ok bool) {
	burst := s.tokens(percent)
	switch {
	case percent < 1 || percent > 99 || burst < 1:
		return Shape{}, false
	case !s.Algorithm.Drains():
		part = s
		part.Capacity, part.Drain = burst, burst
		return part, true
	}
	part = s.fraction(int64(percent), 100, burst)
	part.Algorithm = TokenBucket
	return part, true
}

// tokens is percent of the burst, rounded down.
func (s Shape) tokens(percent int) int64 {
	hi, lo := bits.Mul64(uint64(s.Burst()), uint64(max(0, min(percent, 99))))
	whole, _ := bits.Div64(hi, lo, 100)
	return int64(whole)
}
