package endpoint

import "math/bits"

// edges is every named edge of an automaton in one open-addressed hash table: nothing for the collector to follow but
// two slices, and mostly one cache line for a look-up. No edge is further than window slots from where its hash
// says, so the dearest look-up has a constant price whatever a client sends: the client cannot choose what is in the
// table, and equality is decided by comparing bytes, so the hash needs no secret.
type edges struct {
	slots []slot
	shift uint8  // 64 less the number of hash bits that choose a slot
	seed  uint64 // one with which every edge found its place
	text  string // the text of all edges
}

// slot is one edge. Key 0 marks a free one: state 0 is the dead state, which has no edges.
type slot struct {
	key  uint64 // the state, then half of the hash
	from uint32 // where in edges.text
	len  uint32
	to   uint32
}

const window = 8

// find returns where the edge of state s called name leads.
func (e *edges) find(s uint32, name string) (to uint32, ok bool) {
	hash := hashText(e.seed^uint64(s)*spread, name)
	key := slotKey(s, hash)
	first := hash >> e.shift
	for i := range e.slots[first : first+window] {
		slot := &e.slots[first+uint64(i)]
		if slot.key == key && e.text[slot.from:slot.from+slot.len] == name {
			return slot.to, true
		}
		if slot.key == 0 {
			break
		}
	}
	return 0, false
}

// findAffix returns where the edge of probe s for a prefix and a suffix leads.
func (e *edges) findAffix(s uint32, prefix, suffix string) (to uint32, ok bool) {
	hash := hashAffix(e.seed^uint64(s)*spread, prefix, suffix)
	key := slotKey(s, hash)
	first := hash >> e.shift
	for i := range e.slots[first : first+window] {
		slot := &e.slots[first+uint64(i)]
		if slot.key == key {
			text := e.text[slot.from : slot.from+slot.len]
			if text[:len(prefix)] == prefix && text[len(prefix):] == suffix {
				return slot.to, true
			}
		}
		if slot.key == 0 {
			break
		}
	}
	return 0, false
}

func slotKey(s uint32, hash uint64) uint64 {
	return uint64(s)<<32 | hash&(1<<32-1)
}

// newEdges builds the table: at most half full, and with more room or another seed until every edge lies
// within its window.
func newEdges(named []namedEdge) edges {
	var e edges
	var text []byte
	for _, n := range named {
		text = append(text, n.text...)
	}
	e.text = string(text)
	for size := 2; ; size *= 2 {
		if size < 2*len(named) {
			continue
		}
		e.shift = uint8(65 - bits.Len(uint(size)))
		e.slots = make([]slot, size+window)
		for e.seed = 1; e.seed <= 4; e.seed++ {
			clear(e.slots)
			if e.place(named) {
				return e
			}
		}
	}
}

func (e *edges) place(named []namedEdge) bool {
	var from uint32
	for _, n := range named {
		seed := e.seed ^ uint64(n.from)*spread
		hash := hashText(seed, n.text)
		if n.probe {
			hash = hashAffix(seed, n.text[:n.prefix], n.text[n.prefix:])
		}
		s := slot{key: slotKey(n.from, hash), from: from, len: uint32(len(n.text)), to: n.to}
		from += s.len
		if !e.placeOne(hash>>e.shift, s) {
			return false
		}
	}
	return true
}

func (e *edges) placeOne(first uint64, s slot) bool {
	for i := range e.slots[first : first+window] {
		if free := &e.slots[first+uint64(i)]; free.key == 0 {
			*free = s
			return true
		}
	}
	return false
}

// spread is 2^64 divided by the golden ratio, odd: multiples of it are far apart.
const spread = 0x9E3779B97F4A7C15

func hashAffix(seed uint64, prefix, suffix string) uint64 {
	return hashText(hashText(seed, prefix), suffix)
}

// hashText folds s into seed, eight bytes at a time; the ends may overlap, so that there is no tail to walk.
func hashText(seed uint64, s string) uint64 {
	var first, last uint64
	switch n := len(s); {
	case n >= 8:
		for len(s) > 16 {
			seed = mix(seed^load64(s), spread)
			s = s[8:]
		}
		first, last = load64(s), load64(s[len(s)-8:])
	case n >= 4:
		first, last = load32(s), load32(s[n-4:])
	case n > 0:
		first, last = uint64(s[0])<<8|uint64(s[n>>1]), uint64(s[n-1])
	}
	return mix(first^seed, last<<1^uint64(len(s))*spread^spread)
}

// mix is the 128-bit product of two numbers, its halves combined: every bit of both reaches every bit of the
// result (the mixing step of wyhash).
func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// The compiler makes one load of each of these.

func load64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load32(s string) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}
