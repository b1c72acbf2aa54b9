package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
)

// Digest is what is kept of an API key: HMAC-SHA-256 of its text under the
// secret of a Digester. It cannot be turned back into the key, nor guessed
// without the secret, so it may be stored, and finding it in a table tells
// nothing by the time it takes.
type Digest [sha256.Size]byte

// Rotation is a key that is stored under the previous secret of a Digester.
type Rotation struct {
	Old, New Digest // the one that it has, and the one to have in its place
	SecretID string // of the secret that New is under; see Digester.SecretIDs
}

// MinSecretLength is the shortest secret of a Digester, in bytes: the strength
// of the digest.
const MinSecretLength = 32

// Digester computes Digests under a secret, which can be replaced. It may be
// used concurrently. It never prints the secret.
type Digester struct {
	// A pointer, so that fmt, which cannot call methods on unexported fields,
	// prints no more than an address of a Digester inside another struct.
	secrets *atomic.Pointer[secrets]
}

// secrets is what a Digester works with between two replacements.
type secrets struct {
	current, previous *secret // previous is nil outside of an overlap
	memo              *memo   // of digests under current
}

type secret struct {
	id     string
	hashes sync.Pool // of *keyedHash
}

type keyedHash struct {
	mac  hash.Hash
	text [MaxKeyLength]byte // crc32 and hash.Hash make their arguments escape
	n    int                // bytes of text in use
	sum  Digest
}

func (h *keyedHash) digest() Digest {
	h.mac.Reset()
	h.mac.Write(h.text[:h.n])
	h.mac.Sum(h.sum[:0])
	return h.sum
}

func newSecret(field string, key []byte) (*secret, error) {
	if len(key) < MinSecretLength {
		return nil, fmt.Errorf("%s has %d bytes, want %d or more", field, len(key), MinSecretLength)
	}
	key = slices.Clone(key)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("headgate: the name of a secret"))
	s := &secret{id: hex.EncodeToString(mac.Sum(nil)[:4])}
	s.hashes.New = func() any { return &keyedHash{mac: hmac.New(sha256.New, key)} }
	return s, nil
}

func (s *secret) begin() *keyedHash { return s.hashes.Get().(*keyedHash) }

func (s *secret) end(h *keyedHash) {
	clear(h.text[:h.n]) // no key outlives its request here
	h.n = 0
	s.hashes.Put(h)
}

// NewDigester returns a Digester for a secret of at least MinSecretLength
// random bytes. Digests under another secret are useless: keep it as long as
// the keys.
func NewDigester(secret []byte) (*Digester, error) {
	d := &Digester{new(atomic.Pointer[secrets])}
	if err := d.Replace(secret, nil); err != nil {
		return nil, err
	}
	return d, nil
}

// Replace makes secret the one that digests are computed under. Unless
// previous is nil, a Resolver finds keys by their digest under it as well, and
// tells Options.Rotated of them; unknown keys cost it two look-ups as long.
// Requests under way end with what they began with.
func (d *Digester) Replace(secret, previous []byte) error {
	current, err := newSecret("secret", secret)
	if err != nil {
		return err
	}
	next := &secrets{current: current, memo: newMemo()}
	if previous != nil {
		if next.previous, err = newSecret("previous secret", previous); err != nil {
			return err
		}
		if hmac.Equal(secret, previous) {
			return errors.New("previous secret is the secret itself, want another one")
		}
	}
	d.secrets.Store(next)
	return nil
}

// SecretIDs returns names of the secret and of the previous one, "" if there
// is none: eight hexadecimal digits that tell secrets apart and tell nothing
// of them.
func (d *Digester) SecretIDs() (current, previous string) {
	s := d.secrets.Load()
	if s.previous != nil {
		previous = s.previous.id
	}
	return s.current.id, previous
}

// Digest returns the digest of a key's text under the current secret. Texts
// that are empty or above MaxKeyLength have the zero Digest: no key has them.
func (d *Digester) Digest(text string) Digest { return d.secrets.Load().current.digest(text) }

// PreviousDigest returns the digest under the previous secret, or the zero
// Digest if there is none.
func (d *Digester) PreviousDigest(text string) Digest {
	if s := d.secrets.Load(); s.previous != nil {
		return s.previous.digest(text)
	}
	return Digest{}
}

func (s *secret) digest(text string) Digest {
	if len(text) == 0 || len(text) > MaxKeyLength {
		return Digest{}
	}
	h := s.begin()
	defer s.end(h)
	h.n = copy(h.text[:], text)
	return h.digest()
}

const redacted = "[redacted]"

// String does not show the secret.
func (d Digester) String() string { return "identity.Digester" + redacted }

// Format does not show the secret, whatever the verb.
func (d Digester) Format(s fmt.State, _ rune) { io.WriteString(s, d.String()) }

// LogValue does not show the secret.
func (d Digester) LogValue() slog.Value { return slog.StringValue(d.String()) }
