package identity

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"log/slog"
	"slices"
	"sync"
)

// The text of an API key is
//
//	hg_ 003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf 1sh72b     (without the spaces)
//
// a fixed prefix that secret scanners can look for, 256 random bits in base
// 62, and the CRC-32 of all of that in base 62. The checksum is no secret: it
// lets a typing mistake, a truncated paste or a made-up key be refused without
// asking the database.

const (
	keyPrefix      = "hg_"
	keyRandomBytes = 32
	keyBodyLength  = 43 // 62^43 > 2^256
	keySumLength   = 6  // 62^6 > 2^32
	keySumAt       = len(keyPrefix) + keyBodyLength
)

// KeyLength is the length of every API key, in bytes.
const KeyLength = keySumAt + keySumLength

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewKey returns the text of a new API key with 256 bits from crypto/rand. It
// is shown to its holder once; keep its Digest.
func NewKey() (text string, err error) {
	var random [keyRandomBytes]byte
	if _, err := io.ReadFull(rand.Reader, random[:]); err != nil {
		return "", fmt.Errorf("draw an API key: %w", err)
	}
	key := append(make([]byte, 0, KeyLength), keyPrefix...)
	key = appendBase62(key, random[:], keyBodyLength)
	sum := crc32.ChecksumIEEE(key)
	key = appendBase62(key, []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}, keySumLength)
	return string(key), nil
}

// appendBase62 appends the big-endian number as exactly length digits, which
// must suffice. It overwrites number.
func appendBase62(dst, number []byte, length int) []byte {
	for range length {
		remainder := 0
		for i, b := range number {
			remainder = remainder<<8 | int(b)
			number[i] = byte(remainder / 62)
			remainder %= 62
		}
		dst = append(dst, base62[remainder])
	}
	slices.Reverse(dst[len(dst)-length:])
	return dst
}

// WellFormedKey reports whether text could be an API key: its length, prefix
// and checksum are right. It looks nothing up. One changed character is always
// found out; a random text passes once in four billion.
func WellFormedKey(text string) bool {
	return len(text) == KeyLength && wellFormed([]byte(text))
}

// wellFormed is WellFormedKey for KeyLength bytes. That the random part is in
// base 62 is not looked at: who forges a checksum can as well use the right
// alphabet.
func wellFormed(text []byte) bool {
	sum, ok := parseBase62(text[keySumAt:])
	return ok && string(text[:len(keyPrefix)]) == keyPrefix && sum == uint64(crc32.ChecksumIEEE(text[:keySumAt]))
}

func parseBase62(s []byte) (n uint64, ok bool) {
	for i := range len(s) {
		var digit byte
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			digit = c - '0'
		case 'A' <= c && c <= 'Z':
			digit = c - 'A' + 10
		case 'a' <= c && c <= 'z':
			digit = c - 'a' + 36
		default:
			return 0, false
		}
		n = 62*n + uint64(digit)
	}
	return n, true
}

// Digest is what is kept of an API key: HMAC-SHA-256 of its text under the
// secret of a Digester. It cannot be turned back into the key, nor guessed
// without the secret, so it may be stored, and finding it in a table tells
// nothing by the time it takes.
type Digest [sha256.Size]byte

// MinSecretLength is the shortest secret of a Digester, in bytes: the strength
// of the digest.
const MinSecretLength = 32

// Digester computes Digests under one secret. It may be used concurrently. It
// never prints the secret.
type Digester struct {
	// A pointer, so that fmt, which cannot call methods on unexported fields,
	// prints no more than an address of a Digester inside another struct.
	hashes *sync.Pool // of *keyedHash
}

type keyedHash struct {
	mac  hash.Hash
	text [KeyLength]byte // crc32 and hash.Hash make their arguments escape
	sum  Digest
}

func (h *keyedHash) digest() Digest {
	h.mac.Reset()
	h.mac.Write(h.text[:])
	h.mac.Sum(h.sum[:0])
	return h.sum
}

// NewDigester returns a Digester for a secret of at least MinSecretLength
// random bytes. Digests under another secret are useless: keep it as long as
// the keys.
func NewDigester(secret []byte) (*Digester, error) {
	if len(secret) < MinSecretLength {
		return nil, fmt.Errorf("secret has %d bytes, want %d or more", len(secret), MinSecretLength)
	}
	secret = slices.Clone(secret)
	return &Digester{&sync.Pool{New: func() any {
		return &keyedHash{mac: hmac.New(sha256.New, secret)}
	}}}, nil
}

// Digest returns the digest of a key's text. Texts that are not WellFormedKeys
// have the zero Digest: no key has them.
func (d *Digester) Digest(text string) Digest {
	digest, _ := d.digest(text)
	return digest
}

// digest returns the digest of a key's text, and false without having computed
// anything if the text is not well formed.
func (d *Digester) digest(text string) (digest Digest, ok bool) {
	if len(text) != KeyLength {
		return Digest{}, false
	}
	h := d.hashes.Get().(*keyedHash)
	copy(h.text[:], text)
	if ok = wellFormed(h.text[:]); ok {
		digest = h.digest()
	}
	h.text = [KeyLength]byte{} // no key outlives its request here
	d.hashes.Put(h)
	return digest, ok
}

const redacted = "[redacted]"

// String does not show the secret.
func (d Digester) String() string { return "identity.Digester" + redacted }

// Format does not show the secret, whatever the verb.
func (d Digester) Format(s fmt.State, _ rune) { io.WriteString(s, d.String()) }

// LogValue does not show the secret.
func (d Digester) LogValue() slog.Value { return slog.StringValue(d.String()) }
