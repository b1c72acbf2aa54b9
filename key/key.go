// Package key names buckets. A name is a 128-bit keyed hash of (rule,
// endpoint, subject): fixed size whatever a client sends, nothing of the
// client readable in it, and under a secret drawn at start, so that nobody
// outside the process can choose two subjects that meet.
package key

import (
	"encoding/binary"
	"hash/maphash"
)

// Key names one bucket inside this process. It is meaningless to any other
// process and to this one after a restart, and is never written anywhere.
type Key struct{ Hi, Lo uint64 }

// Hasher makes Keys under two secrets of its own. It is immutable and safe for
// concurrent use.
type Hasher struct{ hi, lo maphash.Seed }

// NewHasher draws fresh secrets. Keys of different Hashers have nothing to do
// with each other.
func NewHasher() *Hasher {
	return &Hasher{hi: maphash.MakeSeed(), lo: maphash.MakeSeed()}
}

// inlineSubject is the longest subject hashed without an allocation. An
// address subject has 17 bytes, an API key's about 40.
const inlineSubject = 128

// Key names the bucket of subject under rule at endpoint.
//
// The three are encoded injectively before hashing: two fixed-width integers,
// then the subject as the rest. Subjects carry their own kind and lengths (see
// identity.Principal), so no separator exists that a client could smuggle in.
// Two different inputs meet with probability 2⁻¹²⁸.
func (h *Hasher) Key(rule uint64, endpoint uint32, subject []byte) Key {
	var inline [12 + inlineSubject]byte
	buf := append(appendHead(inline[:0], rule, endpoint), subject...)
	return Key{Hi: maphash.Bytes(h.hi, buf), Lo: maphash.Bytes(h.lo, buf)}
}

func appendHead(dst []byte, rule uint64, endpoint uint32) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, rule)
	return binary.LittleEndian.AppendUint32(dst, endpoint)
}
