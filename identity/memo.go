package identity

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	mathrand "math/rand/v2"
	"sync/atomic"
)

// memo remembers the digests of keys that were found, so that a key in steady
// use costs one SipHash (35 ns) in place of a checksum and an HMAC-SHA-256 (180
// ns). It says nothing of whether a key is valid: the KeyFinder is asked for
// the digest every time.
//
// A text is known by its 128-bit SipHash-2-4 under a secret of this process. It
// is a pseudo-random function, so nobody without that secret finds a second
// text for a hash but by chance, 2⁻¹²⁸ at each try, and comparing hashes may
// take whatever time it takes. Texts are not kept. Only keys that were found
// are put in, so that made-up ones drive nothing out.
type memo struct {
	k0, k1 uint64
	slots  [memoSlots]memoSlot
}

const (
	memoSlots = 1 << 12 // 56 bytes each

	// A digest replaces another at one use in so many: where more keys are in
	// use than there are slots, remembering each would cost more than it saves.
	memoReplace = 8
)

// memoSlot is written under an odd seq. All is atomic, so that who reads a slot
// that is being written sees a seq that is odd or differs, and no lock is held.
type memoSlot struct {
	seq    atomic.Uint64
	tag    [2]atomic.Uint64
	digest [4]atomic.Uint64
}

type tag struct{ hi, lo uint64 }

func newMemo() *memo {
	var key [16]byte
	if _, err := rand.Read(key[:]); err != nil {
		panic(err) // crypto/rand.Read never fails unless its Reader was replaced
	}
	return &memo{k0: binary.LittleEndian.Uint64(key[:]), k1: binary.LittleEndian.Uint64(key[8:])}
}

func (m *memo) get(t tag) (d Digest, ok bool) {
	s := &m.slots[t.lo%memoSlots]
	seq := s.seq.Load()
	if seq == 0 || seq&1 != 0 || s.tag[0].Load() != t.hi || s.tag[1].Load() != t.lo {
		return d, false
	}
	for i := range s.digest {
		binary.LittleEndian.PutUint64(d[8*i:], s.digest[i].Load())
	}
	return d, s.seq.Load() == seq
}

func (m *memo) put(t tag, d *Digest) {
	s := &m.slots[t.lo%memoSlots]
	seq := s.seq.Load()
	if seq != 0 && mathrand.Uint32()%memoReplace != 0 {
		return
	}
	if seq&1 != 0 || !s.seq.CompareAndSwap(seq, seq+1) {
		return // somebody else is writing
	}
	s.tag[0].Store(t.hi)
	s.tag[1].Store(t.lo)
	for i := range s.digest {
		s.digest[i].Store(binary.LittleEndian.Uint64(d[8*i:]))
	}
	s.seq.Store(seq + 2)
}

// hash is SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, and
// their reference implementation).
func (m *memo) hash(p []byte) tag {
	v0 := m.k0 ^ 0x736f6d6570736575
	v1 := m.k1 ^ 0x646f72616e646f6d ^ 0xee
	v2 := m.k0 ^ 0x6c7967656e657261
	v3 := m.k1 ^ 0x7465646279746573
	last := uint64(len(p)) << 56
	for ; len(p) >= 8; p = p[8:] {
		w := binary.LittleEndian.Uint64(p)
		v3 ^= w
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0 ^= w
	}
	for i, c := range p {
		last |= uint64(c) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= last
	v2 ^= 0xee
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	lo := v0 ^ v1 ^ v2 ^ v3
	v1 ^= 0xdd
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return tag{lo: lo, hi: v0 ^ v1 ^ v2 ^ v3}
}

func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
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
