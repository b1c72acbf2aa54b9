package activity

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
)

// Names are hashes in the place of callers, under secrets that last as long as the process.
type Names struct {
	keys   *key.Hasher
	secret [32]byte
}

// NewNames returns Names with secrets of their own.
func NewNames() *Names {
	n := &Names{keys: key.NewHasher()}
	_, _ = rand.Read(n.secret[:]) // never fails
	return n
}

// Hash is what Caller.Hash says of a caller.
func (n *Names) Hash(who *identity.Principal) string { return n.shown(n.name(who)) }

// name is the key of a caller: 128 bits.
func (n *Names) name(who *identity.Principal) key.Key {
	var room [maxSubject]byte
	return n.keys.Key(0, 0, who.AppendSubject(room[:0]))
}

// shown is a slow hash of the quick one, from which a patient reader might learn something.
func (n *Names) shown(k key.Key) string {
	mac := hmac.New(sha256.New, n.secret[:])
	_, _ = mac.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, k.Hi), k.Lo))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
