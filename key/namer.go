package key

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"sync"
)

// MinSecret is how many bytes the secret of a Namer has at least.
const MinSecret = 16

// Namer names buckets that are kept outside of this process, where all who have its secret find
// them. Whoever sees a name learns neither the subject, which is often an address or an account and
// could be guessed, nor whether two names of different rules are of one. It is safe for concurrent
// use.
//
// A Namer takes about ten times as long as a Hasher for a name that it was not asked for of late.
type Namer struct {
	hashes sync.Pool
	names  *names
}

// NewNamer makes a Namer. All processes that share buckets need the same secret, and no others may
// have it; it is neither kept in readable form nor ever written. A secret that is replaced makes
// all buckets new ones, so full.
func NewNamer(secret []byte) (*Namer, error) {
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("the secret has %d bytes, want at least %d", len(secret), MinSecret)
	}
	// A secret that is used for something else as well, such as hashes of API keys, makes nothing
	// here that means something there.
	own := hmac.New(sha256.New, secret)
	own.Write([]byte("headgate: names of shared buckets"))
	derived := own.Sum(nil)
	return &Namer{
		hashes: sync.Pool{New: func() any { return &naming{hash: hmac.New(sha256.New, derived)} }}, names: newNames(),
	}, nil
}

// naming is what making one name takes.
type naming struct {
	hash hash.Hash
	text []byte
	sum  [sha256.Size]byte
}

// Name names the bucket of subject under rule at endpoint, which is a template rather than a
// number, as tables of endpoints differ between processes. It is HMAC-SHA-256, cut to 128 bits.
func (n *Namer) Name(rule uint64, endpoint string, subject []byte) Key {
	from := n.names.of(rule, endpoint, subject)
	name, known := n.names.find(from)
	if !known {
		name = n.make(rule, endpoint, subject)
		n.names.keep(from, name)
	}
	return name
}

func (n *Namer) make(rule uint64, endpoint string, subject []byte) Key {
	h := n.hashes.Get().(*naming)
	defer n.hashes.Put(h)
	h.text = binary.BigEndian.AppendUint64(append(h.text[:0], 'b'), rule)
	h.text = append(binary.BigEndian.AppendUint64(h.text, uint64(len(endpoint))), endpoint...)
	sum := h.of(subject)
	return Key{Hi: binary.BigEndian.Uint64(sum), Lo: binary.BigEndian.Uint64(sum[8:])}
}

// of is the hash of h.text and what comes behind it.
func (h *naming) of(rest []byte) []byte {
	h.text = append(h.text, rest...)
	h.hash.Reset()
	h.hash.Write(h.text)
	return h.hash.Sum(h.sum[:0])
}

// Tag is 16 bits of whose buckets are to be kept together. Many share one.
func (n *Namer) Tag(whose []byte) uint16 {
	const tags = "\x00" // where names have an endpoint
	from := n.names.of(0, tags, whose)
	tag, known := n.names.find(from)
	if !known {
		tag.Lo = uint64(n.makeTag(whose))
		n.names.keep(from, tag)
	}
	return uint16(tag.Lo)
}

func (n *Namer) makeTag(whose []byte) uint16 {
	h := n.hashes.Get().(*naming)
	defer n.hashes.Put(h)
	h.text = append(h.text[:0], 't')
	return binary.BigEndian.Uint16(h.of(whose))
}
