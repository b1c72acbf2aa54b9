package token_test

import (
	"crypto/rsa"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/token"
)

// smartCardPrime returns a prime as the smart cards made them: k·M + 65537^a mod M, with the
// product M of the first 126 primes, as keys of 2048 bits have it.
func smartCardPrime(random *rand.Rand) *big.Int {
	m := big.NewInt(1)
	for p, n := int64(2), 0; n < 126; p++ {
		if big.NewInt(p).ProbablyPrime(0) {
			m.Mul(m, big.NewInt(p))
			n++
		}
	}
	for {
		a := new(big.Int).Exp(big.NewInt(65537), new(big.Int).SetUint64(random.Uint64()), m)
		k := new(big.Int).SetUint64(random.Uint64()>>10 | 1<<53)
		p := a.Add(a, k.Mul(k, m))
		if p.ProbablyPrime(20) {
			return p
		}
	}
}

func TestKeysOfSmartCardsAreRefused(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	p, q := smartCardPrime(random), smartCardPrime(random)
	weak := &rsa.PublicKey{N: new(big.Int).Mul(p, q), E: 65537}
	if bits := weak.N.BitLen(); bits < 2000 {
		t.Fatalf("the modulus has %d bits", bits)
	}
	published, err := os.ReadFile("testdata/roca-modulus.txt")
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := new(big.Int).SetString(strings.TrimSpace(string(published)), 0); !ok || !token.Guessable(n) {
		t.Errorf("the published modulus %x is not recognised", n)
	}
	if !token.Guessable(weak.N) {
		t.Error("a modulus of two such primes is not recognised")
	}
	if other := new(big.Int).Mul(p, rsaKey.Primes[0]); token.Guessable(other) {
		t.Error("a modulus with one such prime is taken for one of two")
	}
	if token.Guessable(rsaKey.N) || token.Guessable(otherRSA.N) {
		t.Error("an ordinary key is taken for one of a smart card")
	}
	for range 200 {
		bytes := make([]byte, 256)
		for i := range bytes {
			bytes[i] = byte(random.Uint32())
		}
		if n := new(big.Int).SetBytes(bytes); token.Guessable(n) {
			t.Fatalf("%d is taken for a modulus of a smart card", n)
		}
	}

	weak.N = new(big.Int).Mul(p, smartCardPrime(random))
	for weak.N.BitLen() < 2048 {
		weak.N.Mul(weak.N, smartCardPrime(random))
	}
	_, err = token.ParseJWKS([]byte(fmt.Sprintf(`{"keys":[%s]}`, rsaJWK("card 7", weak, ""))), []string{"RS256"}, false)
	if err == nil || !strings.Contains(err.Error(), `kid "card 7"`) ||
		!strings.Contains(err.Error(), "CVE-2017-15361") {
		t.Errorf("a set with such a key alone: %v, want an error that names its kid and why", err)
	}
	short := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 1023, 1), E: 65537}
	if _, err := token.ParseJWKS([]byte(fmt.Sprintf(`{"keys":[%s]}`, rsaJWK("old", short, ""))), []string{"RS256"},
		false); err == nil || !strings.Contains(err.Error(), `kid "old"`) ||
		!strings.Contains(err.Error(), "1024 bits") {
		t.Errorf("a set with a key of 1024 bits: %v", err)
	}
}
