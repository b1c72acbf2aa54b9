package rate

import "math/big"

// MaxParts is in how many parts Divide divides at most.
const MaxParts = 1 << 16

// Divide returns a k-th of s: its rate divided by k, which is exact for limits in whole seconds, and a little less for some odd numbers of nanoseconds; and its burst
// divided by k and rounded down, but no less than one token, as a bucket that never holds one admits nothing. So k of them drain what
// s does, and hold what s does or k tokens, whichever is more. A k below 2 changes nothing, nor can a limit be divided that counts in windows.
func (s Shape) Divide(k int) Shape {
	if k < 2 || s.Unit < 1 || s.Drain < 1 || !s.Algorithm.Drains() {
		return s
	}
	parts := int64(min(k, MaxParts))
	burst := max(1, s.Burst()/parts)
	for _, tick := range ticks {
		if tick < s.Tick {
			continue
		}
		drain := s.Drain * (tick / s.Tick) // below 2^52
		g := gcd(drain, s.Unit)
		drain, unit := drain/g, s.Unit/g
		g = gcd(drain, parts)
		drain, times := drain/g, parts/g
		if drain <= MaxDrain && unit <= maxUnit(burst)/times {
			return Shape{Drain: drain, Unit: unit * times, Capacity: burst * unit * times, Tick: tick, Algorithm: s.Algorithm}
		}
	}
	return s.slower(parts, burst)
}

// slower is the shape nearest to a part of s from below, of those with the largest numbers. A burst that is not 1 never comes here.
func (s Shape) slower(parts, burst int64) Shape {
	tick := ticks[len(ticks)-1]
	drains, units := big.NewInt(s.Drain*(tick/s.Tick)), new(big.Int).Mul(big.NewInt(s.Unit), big.NewInt(parts))
	drain, unit := big.NewInt(MaxDrain), big.NewInt(maxUnit(burst))
	if most := quotient(unit, drains, units); most.Cmp(drain) < 0 {
		drain = most
	} else {
		unit = quotient(drain, units, drains)
		unit.Add(unit, big.NewInt(1))
	}
	return Shape{Drain: drain.Int64(), Unit: unit.Int64(), Capacity: burst * unit.Int64(), Tick: tick, Algorithm: s.Algorithm}
}

// quotient is a*b/c, rounded down.
func quotient(a, b, c *big.Int) *big.Int {
	product := new(big.Int).Mul(a, b)
	return product.Quo(product, c)
}
