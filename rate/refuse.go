package rate

import (
	"errors"
)

// refuse explains why l does not compile, by repairing it: Tokens when it drains too many units,
// Per when one token alone has too many, Burst when the whole has. Each field is lowered only if
// the ones before it do not settle the matter.
func refuse(l Limit) error {
	fixed := l
	if fraction(fixed, 1).Drain > MaxDrain {
		fixed.Tokens = largestTokens(fixed)
		if fixed.Tokens == 0 {
			fixed.Tokens = largestTokens(Limit{Tokens: l.Tokens, Per: l.Per, Burst: 1})
		}
		if fixed.Tokens == 0 {
			fixed.Per = MaxCapacity
			fixed.Tokens = largestTokens(Limit{Tokens: l.Tokens, Per: fixed.Per, Burst: 1})
		}
	}
	if largestBurst(fixed) == 0 {
		fixed.Per = MaxCapacity
	}
	fixed.Burst = min(l.Burst, largestBurst(fixed))

	return errors.Join(changed("Tokens", l.Tokens, fixed.Tokens), changed("Per", int64(l.Per), int64(fixed.Per)),
		changed("Burst", l.Burst, fixed.Burst))
}

func changed(field string, from, to int64) error {
	if from == to {
		return nil
	}
	return &RangeError{Field: field, Value: from, Limit: to}
}

// largestBurst is the largest Burst with which l compiles, or 0.
func largestBurst(l Limit) int64 {
	var most int64
	for _, tick := range ticks {
		if s := fraction(l, tick); s.Drain <= MaxDrain {
			most = max(most, MaxCapacity/s.Unit)
		}
	}
	return most
}

// largestTokens is the largest Tokens up to l.Tokens with which l compiles, or 0. A count that
// compiles is k*g for a divisor g of Per with k small enough to drain and Per/g small enough to
// hold, so the largest is found by looking at every divisor.
func largestTokens(l Limit) int64 {
	var most int64
	for _, g := range divisors(int64(l.Per)) {
		for _, tick := range ticks {
			unit := int64(l.Per) / g
			shared := gcd(tick, unit)
			if unit/shared > maxUnit(l.Burst) {
				continue
			}
			k := min(MaxDrain/(tick/shared), l.Tokens/g)
			most = max(most, k*g)
		}
	}
	return most
}

// divisors lists the divisors of n. A cofactor without a prime below 2^16 counts as one prime:
// periods that people write have none, and for the others a few divisors missing only make
// largestTokens name less than the largest count.
func divisors(n int64) []int64 {
	all := []int64{1}
	multiply := func(prime int64, times int) {
		known := len(all)
		for power := prime; times > 0; times-- {
			for _, d := range all[:known] {
				all = append(all, d*power)
			}
			if times > 1 {
				power *= prime
			}
		}
	}
	for prime := int64(2); prime < 1<<16 && prime*prime <= n; prime++ {
		times := 0
		for n%prime == 0 {
			n /= prime
			times++
		}
		multiply(prime, times)
	}
	if n > 1 {
		multiply(n, 1)
	}
	return all
}
