package key

import "github.com/headgate-io/headgate/internal/siphash"

// SeedSize is how many bytes the secret of lasting names has.
const SeedSize = siphash.Size

// NewLasting returns a Hasher whose names are the same in every process that has the seed, which is
// a secret of random bytes. They stand in 64 bits, from which Lasting makes the whole again, so
// that a file of buckets names each by one word; two of n buckets have one name with probability
// n²·2⁻⁶⁵. Nobody who does not know the seed can bring that about (SipHash: a Fast Short-Input PRF,
// Aumasson and Bernstein, 2012). A name takes about twice as long
// (BenchmarkKey).
func NewLasting(seed [SeedSize]byte) *Hasher {
	lasting := siphash.New(seed)
	return &Hasher{lasting: &lasting}
}

// Lasting is the Key of NewLasting's that has this half.
func Lasting(lo uint64) Key {
	// The finalizer of splitmix64, so that the place of a bucket in a table, which goes by Hi, does
	// not depend on the same bits as what tells it from its neighbours.
	hi := lo + 0x9e3779b97f4a7c15
	hi = (hi ^ hi>>30) * 0xbf58476d1ce4e5b9
	hi = (hi ^ hi>>27) * 0x94d049bb133111eb
	return Key{Hi: hi ^ hi>>31, Lo: lo}
}
