package identity

import (
	"crypto/rand"
	"encoding/binary"
	mathrand "math/rand/v2"
	"sync/atomic"

	"github.com/headgate-io/headgate/internal/siphash"
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
	key   siphash.Key
	slots [memoSlots]memoSlot
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
	var key [siphash.Size]byte
	if _, err := rand.Read(key[:]); err != nil {
		panic(err) // crypto/rand.Read never fails unless its Reader was replaced
	}
	return &memo{key: siphash.New(key)}
}

func (m *memo) tag(text []byte) tag {
	lo, hi := m.key.Sum128(text)
	return tag{hi, lo}
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
