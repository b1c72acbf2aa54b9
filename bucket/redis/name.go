package redis

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/headgate-io/headgate/bucket"
)

// prefix of all names, unless configured.
const defaultPrefix = "hg"

// maxPrefix bounds a configured one: names are most of what a bucket takes.
const maxPrefix = 16

// appendBucket appends the name of a bucket: the prefix, the tag in braces, by which a cluster chooses a server, the rule, and the key. With
// "hg" it takes 29 bytes, the most that servers keep in 32.
//
//	hg{rTQ}Ab3dE_................
//	   │   │     └ 16 bytes, from all that names the bucket
//	   │   └ 6 letters for 32 bits of the rule
//	   └ 3 letters for 16 bits of whose bucket it is
//
// The key is raw bytes behind the braces, so that none of them can be mistaken for one.
func appendBucket(dst []byte, prefix string, t *bucket.Take) []byte {
	var raw [16]byte
	dst = append(append(dst, prefix...), '{')
	binary.BigEndian.PutUint16(raw[:], t.Tag)
	dst = base64.RawURLEncoding.AppendEncode(dst, raw[:2])
	dst = append(dst, '}')
	binary.BigEndian.PutUint32(raw[:], t.Rule)
	dst = base64.RawURLEncoding.AppendEncode(dst, raw[:4])
	binary.BigEndian.PutUint64(raw[:], t.Key.Hi)
	binary.BigEndian.PutUint64(raw[8:], t.Key.Lo)
	return append(dst, raw[:]...)
}
