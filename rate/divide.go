package rate

import "math/big"

// MaxParts is in how many parts Divide divides at most.
const MaxParts = 1 << 16

// Divide returns a k-th of s: its rate divided by k, which is exact for limits in whole seconds,
// and a little less for some odd numbers of nanoseconds; and its burst divided by k and rounded
// down, but no less than one token, as a bucket that never holds one admits nothing. So k of them
// drain what s does, and hold what s does or k tokens, whichever is more. A k below 2 changes
// nothing, nor can a limit be divided that counts in windows.
func (s Shape) Divide(k int) Shape {
	if k < 2 || s.Unit < 1 || s.Drain < 1 || !s.Algorithm.Drains() {
		return s
	}
	parts := int64(min(k, MaxParts))
	return s.fraction(1, parts, max(1, s.Burst()/parts))
}

// fraction is s with another burst and num/den of its rate, which is at most 1. Num is at most 100,
// den at most 100*MaxParts, and the burst at most that of s.
func (s Shape) fraction(num, den, burst int64) Shape {
	for _, tick := range ticks {
		if tick < s.Tick {
			continue
		}
		drain := s.Drain * (tick / s.Tick) // below 2^52
		g := gcd(drain, s.Unit)
		drain, unit := drain/g, s.Unit/g
		g = gcd(drain, den)
		drain, times := drain/g, den/g
		g = gcd(num, times)
		more, times := num/g, times/g
		g = gcd(more, unit)
		more, unit = more/g, unit/g
		if drain <= MaxDrain/more && unit <= maxUnit(burst)/times {
			return Shape{
				Drain:     drain * more,
				Unit:      unit * times,
				Capacity:  burst * unit * times,
				Tick:      tick,
				Algorithm: s.Algorithm,
			}
		}
	}
	return s.slower(num, den, burst)
}

// slower is the shape nearest to num/den of s from below, of those with the largest numbers. A
// burst that is not 1 hardly ever comes here.
func (s Shape) slower(num, den, burst int64) Shape {
	tick := ticks[len(ticks)-1]
	drains, units := big.NewInt(s.Drain*(tick/s.Tick)), new(big.Int).Mul(big.NewInt(s.Unit), big.NewInt(den))
	drains.Mul(drains, big.NewInt(num))
	drain, unit := big.NewInt(MaxDrain), big.NewInt(maxUnit(burst))
	if most := quotient(unit, drains, units); most.Cmp(drain) < 0 {
		drain = most
	} else {
		unit = quotient(drain, units, drains)
		unit.Add(unit, big.NewInt(1))
	}
	return Shape{
		Drain:     drain.Int64(),
		Unit:      unit.Int64(),
		Capacity:  burst * unit.Int64(),
		Tick:      tick,
		Algorithm: s.Algorithm,
	}
}

// quotient is a*b/c, rounded down.
func quotient(a, b, c *big.Int) *big.Int {
	product := new(big.Int).Mul(a, b)
	return product.Quo(product, c)
}
