package identity

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// The text of an API key that is made here is
//
//	hg_ 003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf 1sh72b     (without the spaces)
//
// a prefix that secret scanners can look for, 256 random bits in base 62, and
// the CRC-32 of all of that in base 62. The checksum is no secret: it lets a
// typing mistake, a truncated paste or a random text be refused without asking
// the database. Who forges keys can compute it, and then meets 256 bits.

const (
	defaultPrefix  = "hg_"
	keyRandomBytes = 32
	keyBodyLength  = 43 // 62^43 > 2^256
	keySumLength   = 6  // 62^6 > 2^32
	keyTailLength  = keyBodyLength + keySumLength
	maxPrefix      = 32
)

// Bounds of API keys, in bytes with their prefix.
const (
	// KeyLength is the length of the keys of NewKey.
	KeyLength = len(defaultPrefix) + keyTailLength
	// MinForeignKey is the shortest key made elsewhere that is accepted:
	// shorter ones are guessed too soon.
	MinForeignKey = 16
	// MaxKeyLength is the longest key of any format.
	MaxKeyLength = 256
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// KeyFormat is the shape of API keys. The zero value is that of NewKey. A text
// that has the shape of no accepted format is refused without a look-up.
type KeyFormat struct {
	// Prefix begins every key: at most 32 letters, digits, "_" and "-", such as
	// "acme_live_". Default "hg_"; for keys made elsewhere it may be empty.
	Prefix string

	// MinLength and MaxLength are the shortest and longest keys that were made
	// elsewhere, with their prefix: 16 to 256 bytes of visible ASCII. They have
	// no checksum, so every text of the shape costs a digest and a look-up.
	// Both 0: keys that New makes, 49 bytes longer than Prefix.
	MinLength, MaxLength int
}

// made reports whether New makes keys of the format.
func (f KeyFormat) made() bool { return f.MinLength == 0 && f.MaxLength == 0 }

func (f KeyFormat) withDefaults() KeyFormat {
	if f.Prefix == "" && f.made() {
		f.Prefix = defaultPrefix
	}
	return f
}

// Check names every field at fault.
func (f KeyFormat) Check() error {
	var errs []error
	if len(f.Prefix) > maxPrefix || !isPrefix(f.Prefix) {
		errs = append(errs, fmt.Errorf("Prefix is %.40q, want at most %d letters, digits, _ and -",
			f.Prefix, maxPrefix))
	}
	if f.made() {
		return errors.Join(errs...)
	}
	if least := max(MinForeignKey, len(f.Prefix)+MinForeignKey/2); f.MinLength < least || f.MinLength > MaxKeyLength {
		errs = append(errs,
			fmt.Errorf("MinLength is %d, want %d to %d with this prefix: shorter keys are guessed too soon",
				f.MinLength, least, MaxKeyLength))
	}
	if f.MaxLength < f.MinLength || f.MaxLength > MaxKeyLength {
		errs = append(errs, fmt.Errorf("MaxLength is %d, want MinLength to %d", f.MaxLength, MaxKeyLength))
	}
	return errors.Join(errs...)
}

func isPrefix(s string) bool {
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// New returns the text of a new API key with 256 bits from crypto/rand. It is
// shown to its holder once; keep its Digest.
func (f KeyFormat) New() (text string, err error) {
	f = f.withDefaults()
	if err := f.Check(); err != nil {
		return "", err
	}
	if !f.made() {
		return "", errors.New("MinLength and MaxLength are of keys made elsewhere, want 0 to make one")
	}
	var random [keyRandomBytes]byte
	if _, err := io.ReadFull(rand.Reader, random[:]); err != nil {
		return "", fmt.Errorf("draw an API key: %w", err)
	}
	key := append(make([]byte, 0, len(f.Prefix)+keyTailLength), f.Prefix...)
	key = appendBase62(key, random[:], keyBodyLength)
	sum := crc32.ChecksumIEEE(key)
	key = appendBase62(key, []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}, keySumLength)
	return string(key), nil
}

// Match reports whether text has the shape of the format, its checksum
// included where it has one. It looks nothing up.
func (f KeyFormat) Match(text string) bool {
	f = f.withDefaults()
	return f.fits(len(text)) && f.match([]byte(text))
}

// fits reports whether a key of the format can have n bytes.
func (f *KeyFormat) fits(n int) bool {
	if f.made() {
		return n == len(f.Prefix)+keyTailLength
	}
	return f.MinLength <= n && n <= f.MaxLength
}

// match is Match for a text that fits and a format with its defaults. That the
// random part of a key made here is in base 62 is not looked at: who forges a
// checksum can as well use the right alphabet.
func (f *KeyFormat) match(text []byte) bool {
	if string(text[:len(f.Prefix)]) != f.Prefix {
		return false
	}
	if f.made() {
		sumAt := len(text) - keySumLength
		sum, ok := parseBase62(text[sumAt:])
		return ok && sum == uint64(crc32.ChecksumIEEE(text[:sumAt]))
	}
	for _, c := range text {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// NewKey returns the text of a new API key of the zero KeyFormat. It is shown
// to its holder once; keep its Digest.
func NewKey() (text string, err error) { return KeyFormat{}.New() }

// WellFormedKey reports whether text could be an API key of the zero KeyFormat:
// its length, prefix and checksum are right. It looks nothing up. One changed
// character is always found out; a random text passes once in four billion.
func WellFormedKey(text string) bool { return KeyFormat{}.Match(text) }

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
