package database

import (
	"hash/maphash"
	"strings"
)

// recent keeps texts that were read lately, so that the many rows with one text
// share one string. It is no bigger for a million texts than for a few thousand:
// one that it has no place for takes another's, and is merely kept twice.
type recent struct {
	seed  maphash.Seed
	slots []string
	last  string // rules of one project often follow each other
}

// The first slots are made for a table of a few rules; a longer one gets more.
const fewSlots, manySlots = 1 << 6, 1 << 14

// share returns the equal string that was read before, or a copy of s: the bytes
// of s may be the database's.
func (r *recent) share(s string) string {
	if s == "" {
		return ""
	}
	if s == r.last {
		return r.last
	}
	at := r.slot(maphash.String(r.seed, s))
	if *at != s {
		*at = strings.Clone(s)
	}
	r.last = *at
	return *at
}

// text is share for bytes that will be overwritten.
func (r *recent) text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if string(b) == r.last {
		return r.last
	}
	at := r.slot(maphash.Bytes(r.seed, b))
	if *at != string(b) {
		*at = string(b)
	}
	r.last = *at
	return *at
}

func (r *recent) slot(hash uint64) *string { return &r.slots[hash&uint64(len(r.slots)-1)] }

// newRecent makes room for the texts of so many rows, or of an unknown number.
func newRecent(rows int) recent {
	size := fewSlots
	for size < 2*rows && size < manySlots {
		size *= 2
	}
	return recent{seed: maphash.MakeSeed(), slots: make([]string, size)}
}
