package redis

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/headgate-io/headgate/bucket"
)

// prefix of all names, unless configured.
const defaultPrefix = "hg"

// maxPrefix bounds a configured one. With more than two bytes a name takes 16 bytes more of the server's memory.
const maxPrefix = 16

func checkPrefix(prefix string) error {
	if len(prefix) > maxPrefix || strings.Trim(prefix,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:") != "" {
		return fmt.Errorf("Prefix is %q, want up to %d letters, digits or any of -_.:", prefix, maxPrefix)
	}
	return nil
}

// keyLength is how many bytes of a Key are in a name. Only buckets of one tag can be mistaken for
// each other: of ten million, two by a chance of one in a hundred million, and nobody without the
// secret can look for such.
const keyLength = 7

// appendBucket appends the name of a bucket: the prefix, the tag in braces, by which a cluster
// chooses a server, and the key. With "hg" it takes 14 bytes, the most that servers keep in 16.
//
//	hg{rTQ}.......
//	   │   └ 7 bytes, from all that names the bucket
//	   └ 3 letters for 16 bits of whose bucket it is
//
// The key is raw bytes behind the braces, so that none of them can be mistaken for one.
func appendBucket(dst []byte, prefix string, t *bucket.Take) []byte {
	var raw [8]byte
	dst = append(append(dst, prefix...), '{')
	binary.BigEndian.PutUint16(raw[:], t.Tag)
	dst = base64.RawURLEncoding.AppendEncode(dst, raw[:2])
	binary.BigEndian.PutUint64(raw[:], t.Key.Hi)
	return append(append(dst, '}'), raw[8-keyLength:]...)
}
