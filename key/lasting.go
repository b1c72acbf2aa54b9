package key

import (
	"encoding/binary"
	"math/bits"
)

// SeedSize is how many bytes the secret of lasting names has.
const SeedSize = 16

// sipKey is the secret of a Hasher whose names outlive the process.
type sipKey [2]uint64

// NewLasting returns a Hasher whose names are the same in every process that has the seed, which is
// a secret of random bytes. They stand in 64 bits, from which Lasting makes the whole again, so
// that a file of buckets names each by one word; two of n buckets have one name with probability
// n²·2⁻⁶⁵. Nobody who does not know the seed can bring that about (SipHash: a Fast Short-Input PRF,
// Aumasson and Bernstein, 2012). A name takes about twice as long
// (BenchmarkKey).
func NewLasting(seed [SeedSize]byte) *Hasher {
	return &Hasher{sip: &sipKey{binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:])}}
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

// sum is SipHash-2-4 of text.
func (k *sipKey) sum(text []byte) uint64 {
	v0, v1 := k[0]^0x736f6d6570736575, k[1]^0x646f72616e646f6d
	v2, v3 := k[0]^0x6c7967656e657261, k[1]^0x7465646279746573
	length := uint64(len(text))
	for ; len(text) >= 8; text = text[8:] {
		m := binary.LittleEndian.Uint64(text)
		v3 ^= m
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0 ^= m
	}
	m := length << 56
	for i, b := range text {
		m |= uint64(b) << (8 * i)
	}
	v3 ^= m
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= m
	v2 ^= 0xff
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return v0 ^ v1 ^ v2 ^ v3
}

func sipRound(v0, v1, v2, v3 uint64) (a, b, c, d uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
