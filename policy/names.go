package policy

import (
	"hash/maphash"
	"math"
)

// names numbers strings from 1 and finds them again. It keeps the bytes of all
// strings in one block and no pointer to any of them, so a million names cost
// the garbage collector nothing: with "acme" and "byte" in it,
//
//	block  a c m e b y t e
//	ends   0 4 8
//	slots  0 2 0 1          (by hash, linear probing; 0 is free)
//
// Number 0 stands for the empty string.
type names struct {
	seed  maphash.Seed // secret: project names may be chosen by tenants
	block []byte
	ends  []uint32 // ends[n] is where name n ends and name n+1 starts
	slots []uint32 // a power of two, at most half full
}

func newNames() names {
	return names{seed: maphash.MakeSeed(), ends: make([]uint32, 1, 64), slots: make([]uint32, 128)}
}

// len reports how many names there are, and so the highest number.
func (t *names) len() int { return len(t.ends) - 1 }

// name returns the bytes of name n, which the caller must not change.
func (t *names) name(n uint32) []byte {
	if n == 0 {
		return nil
	}
	return t.block[t.ends[n-1]:t.ends[n]]
}

// find reports the number of s, or 0.
func (t *names) find(s string) uint32 {
	if s == "" {
		return 0
	}
	n, _ := t.probe(s)
	return n
}

// findBytes is find for a name of another table.
func (t *names) findBytes(s []byte) uint32 { return t.find(string(s)) }

// probe reports the number of s and its slot, or 0 and the slot it would get.
func (t *names) probe(s string) (n uint32, slot int) {
	mask := len(t.slots) - 1
	for i := int(maphash.String(t.seed, s)) & mask; ; i = (i + 1) & mask {
		n := t.slots[i]
		if n == 0 || string(t.block[t.ends[n-1]:t.ends[n]]) == s {
			return n, i
		}
	}
}

// add returns the number of s, a new one if need be. It reports false when the
// block would outgrow its offsets: 4 GiB of names.
func (t *names) add(s string) (uint32, bool) {
	if s == "" {
		return 0, true
	}
	n, slot := t.probe(s)
	if n != 0 {
		return n, true
	}
	if uint64(len(t.block))+uint64(len(s)) > math.MaxUint32 {
		return 0, false
	}
	t.block = append(t.block, s...)
	t.ends = append(t.ends, uint32(len(t.block)))
	n = uint32(t.len())
	t.slots[slot] = n
	if 2*t.len() >= len(t.slots) {
		t.grow()
	}
	return n, true
}

func (t *names) grow() {
	t.slots = make([]uint32, 2*len(t.slots))
	mask := len(t.slots) - 1
	for n := uint32(1); n <= uint32(t.len()); n++ {
		i := int(maphash.Bytes(t.seed, t.name(n))) & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = n
	}
}

// trim gives back the room that growing left.
func (t *names) trim() {
	t.block = append(make([]byte, 0, len(t.block)), t.block...)
	t.ends = append(make([]uint32, 0, len(t.ends)), t.ends...)
}
