// Package siphash is SipHash-2-4 of Aumasson and Bernstein (2012): a hash of short texts for which nobody who does not
// know its key finds two of the same, or learns one from others, but by chance.
package siphash

import (
	"encoding/binary"
	"math/bits"
)

// Size is how many bytes a key has.
const Size = 16

// Key is the secret of a hash.
type Key struct{ k0, k1 uint64 }

// New returns a key of random bytes.
func New(b [Size]byte) Key {
	return Key{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// Sum64 is the hash of 64 bits.
func (k *Key) Sum64(text []byte) uint64 {
	v0, v1, v2, v3 := k.absorb(text, 0)
	v0, v1, v2, v3 = four(v0, v1, v2^0xff, v3)
	return v0 ^ v1 ^ v2 ^ v3
}

// Sum128 is the hash of 128 bits; lo is written first.
func (k *Key) Sum128(text []byte) (lo, hi uint64) {
	v0, v1, v2, v3 := k.absorb(text, 0xee)
	v0, v1, v2, v3 = four(v0, v1, v2^0xee, v3)
	lo = v0 ^ v1 ^ v2 ^ v3
	v0, v1, v2, v3 = four(v0, v1^0xdd, v2, v3)
	return lo, v0 ^ v1 ^ v2 ^ v3
}

// absorb takes in all of a text; wide tells the longer hash from the other. The state is four variables, which stand
// in registers: as a struct it takes twice as long.
func (k *Key) absorb(text []byte, wide uint64) (v0, v1, v2, v3 uint64) {
	v0, v1 = k.k0^0x736f6d6570736575, k.k1^0x646f72616e646f6d^wide
	v2, v3 = k.k0^0x6c7967656e657261, k.k1^0x7465646279746573
	last := uint64(len(text)) << 56
	for ; len(text) >= 8; text = text[8:] {
		w := binary.LittleEndian.Uint64(text)
		v3 ^= w
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0 ^= w
	}
	for i, b := range text {
		last |= uint64(b) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	return v0 ^ last, v1, v2, v3
}

func four(v0, v1, v2, v3 uint64) (a, b, c, d uint64) {
	for range 4 {
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
	}
	return v0, v1, v2, v3
}

func round(v0, v1, v2, v3 uint64) (a, b, c, d uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v1
	v0 += v3
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
