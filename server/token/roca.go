package token

import "math/big"

// A library in smart cards and TPMs made RSA primes of the form k·M + 65537^a
// mod M, where M is the product of the first primes, so that few bits of them are
// random and the modulus can be factored (CVE-2017-15361, "ROCA"; Nemec and
// others, "The Return of Coppersmith's Attack", CCS 2017). The modulus is then a
// power of 65537 modulo M, which section 3.1 of that paper tells by its discrete
// logarithm: in the groups of the small primes it is found by trial, and all of
// them have to be residues of one number.
//
// Of other moduli one in 2^157 is taken for one of these.

// rocaPrimes are those that divide M for keys of every length, without 2.
var rocaPrimes = []uint64{
	3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97,
	101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
}

// guessable reports whether an RSA modulus was made by that library.
func guessable(modulus *big.Int) bool {
	logarithm, order := new(big.Int), big.NewInt(1)
	for _, p := range rocaPrimes {
		residue := new(big.Int).Mod(modulus, new(big.Int).SetUint64(p)).Uint64()
		log, cycle, ok := discreteLog(residue, p)
		if !ok || !combine(logarithm, order, log, cycle) {
			return false
		}
	}
	return true
}

// discreteLog returns an exponent of 65537 with which it is residue modulo p,
// and the order of 65537.
func discreteLog(residue, p uint64) (log, order uint64, ok bool) {
	power := uint64(1)
	for {
		if power == residue {
			log, ok = order, true
		}
		power = power * 65537 % p
		if order++; power == 1 {
			return log, order, ok
		}
	}
}

// combine narrows x modulo m to what is log modulo order as well (Chinese
// remainders, of moduli with common factors), or reports that there is none.
func combine(x, m *big.Int, log, order uint64) bool {
	step, n := new(big.Int).Set(m), new(big.Int).SetUint64(order)
	common := new(big.Int).GCD(nil, nil, m, n)
	for range order { // of which one fits, if any
		if new(big.Int).Mod(x, n).Uint64() == log {
			m.Mul(m, n.Div(n, common))
			return true
		}
		x.Add(x, step)
	}
	return false
}
