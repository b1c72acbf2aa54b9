package policy

import (
	"hash/maphash"
	"math"
	"math/bits"
)

// names numbers strings from 1 and finds them again. It keeps the bytes of all
// strings in one block and no pointer to any of them, so a million names cost
// the garbage collector nothing: with "acme" and "byte" in it,
//
//	block  a c m e b y t e
//	ends   0 4 8
//	slots  0 2 0 1          (by hash, linear probing; 0 is free)
//
// A slot has the number in its low bits and a part of the hash, a tag, in those
// that are left: a name that is another one is mostly not looked at, and with a
// million of them every look is a wait for memory.
//
// Number 0 stands for the empty string.
type names struct {
	seed   maphash.Seed // secret: project names may be chosen by tenants
	block  []byte
	ends   []uint32 // ends[n] is where name n ends and name n+1 starts
	slots  []uint32 // a power of two, at most half full
	hashes []uint32 // of name n+1, so that growing reads no names; nil once trimmed

	last       string // what was added last: rules of one project often follow each other
	lastNumber uint32
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
	if s == "" || len(t.ends) == 1 {
		return 0 // without names a hash is work for nothing
	}
	n, _ := t.probe(s, t.hash(s))
	return n
}

// findBytes is find for a name of another table.
func (t *names) findBytes(s []byte) uint32 { return t.find(string(s)) }

func (t *names) hash(s string) uint32 { return uint32(maphash.String(t.seed, s)) }

// low are the bits of a slot that hold a number: enough for as many names as
// there are slots. The low bits of a hash choose the slot, so the others tell
// more.
func (t *names) low() uint32 { return uint32(len(t.slots)) - 1 }

// probe reports the number of s and its slot, or 0 and the slot it would get.
func (t *names) probe(s string, hash uint32) (n uint32, slot uint32) {
	low := t.low()
	for i := hash & low; ; i = (i + 1) & low {
		slot := t.slots[i]
		if slot == 0 {
			return 0, i
		}
		if (slot^hash)&^low != 0 {
			continue
		}
		if n := slot & low; string(t.block[t.ends[n-1]:t.ends[n]]) == s {
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
	if s == t.last {
		return t.lastNumber, true
	}
	hash := t.hash(s)
	n, slot := t.probe(s, hash)
	if n == 0 {
		if uint64(len(t.block))+uint64(len(s)) > math.MaxUint32 {
			return 0, false
		}
		t.block = append(t.block, s...)
		t.ends = append(t.ends, uint32(len(t.block)))
		t.hashes = append(t.hashes, hash)
		n = uint32(t.len())
		t.slots[slot] = hash&^t.low() | n
		if 2*t.len() >= len(t.slots) {
			t.grow()
		}
	}
	t.last, t.lastNumber = s, n
	return n, true
}

func (t *names) grow() {
	t.slots = make([]uint32, 4*len(t.slots))
	t.index()
}

// index fills slots that are empty.
func (t *names) index() {
	low := t.low()
	for n, hash := range t.hashes {
		i := hash & low
		for t.slots[i] != 0 {
			i = (i + 1) & low
		}
		t.slots[i] = hash&^low | uint32(n+1)
	}
}

// trim gives back the room that growing left. Nothing is added afterwards.
func (t *names) trim() {
	t.block = append(make([]byte, 0, len(t.block)), t.block...)
	t.ends = append(make([]uint32, 0, len(t.ends)), t.ends...)
	if size := max(128, 1<<bits.Len(uint(2*t.len()))); size < len(t.slots) {
		t.slots = make([]uint32, size)
		t.index()
	}
	t.hashes, t.last = nil, ""
}
