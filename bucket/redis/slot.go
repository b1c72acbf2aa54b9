package redis

import (
	"encoding/base64"
	"encoding/binary"
)

// Slots is in how many parts a cluster divides all names.
const Slots = 1 << 14

// Slot is the part that has the buckets of a tag: which server has it is for the cluster to say.
func Slot(tag uint16) uint16 {
	var raw [2]byte
	var letters [3]byte
	binary.BigEndian.PutUint16(raw[:], tag)
	base64.RawURLEncoding.Encode(letters[:], raw[:])
	sum := uint16(0)
	// CRC-16/XMODEM, of what stands in braces: "Redis cluster specification", key distribution
	// model
	for _, c := range letters {
		sum ^= uint16(c) << 8
		for range 8 {
			carry := sum >> 15
			sum = sum<<1 ^ carry*0x1021
		}
	}
	return sum % Slots
}
