// Package key names buckets. A name is a 128-bit keyed hash of (rule,
// endpoint, subject): fixed size whatever a client sends, nothing of the
// client readable in it, and under a secret drawn at start, so that nobody
// outside the process can choose two subjects that meet.
package key

import (
	"hash/maphash"

	"github.com/headgate-io/headgate/internal/siphash"
)

// Key names one bucket inside this process. It is meaningless to any other
// process and to this one after a restart, and is never written anywhere, unless a seed
// makes it last (NewLasting).
type Key struct{ Hi, Lo uint64 }

// Hasher makes Keys under two secrets of its own. It is immutable and safe for
// concurrent use.
type Hasher struct {
	hi, lo  maphash.Seed
	lasting *siphash.Key // in their place, for names that last
}

// NewHasher draws fresh secrets. Keys of different Hashers have nothing to do
// with each other.
func NewHasher() *Hasher {
	return &Hasher{hi: maphash.MakeSeed(), lo: maphash.MakeSeed()}
}

// The determinant of the four is odd, so that (rule, endpoint) → (hi, lo) is a
// bijection modulo 2⁶⁴.
const (
	ruleHi, endpointHi = 0x9e3779b97f4a7c15, 0xd1342543de82ef96
	ruleLo, endpointLo = 0xbf58476d1ce4e5b9, 0x94d049bb133111eb
)

// Key names the bucket of subject under rule at endpoint.
//
// Only the subject is chosen by clients, and only it is hashed. Rule and
// endpoint are added to the hash through a bijection, so the keys of one
// subject all differ, and two different inputs meet with probability 2⁻¹²⁸.
// Subjects carry their own kind and lengths (see identity.Principal). Hashing
// a copy that has rule and endpoint in front takes twice as long: the
// processor waits for what was just written in pieces (BenchmarkKey).
func (h *Hasher) Key(rule, endpoint uint64, subject []byte) Key {
	if h.lasting != nil {
		return Lasting(h.lasting.Sum64(subject) + rule*ruleLo + endpoint*endpointLo)
	}
	return Key{
		Hi: maphash.Bytes(h.hi, subject) + rule*ruleHi + endpoint*endpointHi,
		Lo: maphash.Bytes(h.lo, subject) + rule*ruleLo + endpoint*endpointLo,
	}
}
