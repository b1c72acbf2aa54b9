package wasm

import (
	"encoding/binary"
	"hash/fnv"
)

// What core/data.h names, in bytes.
const (
	headerBytes = 152
	setBytes    = 4*8 + slotsOfSet*32
	slotsOfSet  = 16
	magic       = 0x31454748
)

// record is a structure as it grows, little-endian.
type record []byte

func (r *record) u32(values ...uint32) {
	for _, v := range values {
		*r = binary.LittleEndian.AppendUint32(*r, v)
	}
}

func (r *record) i64(values ...int64) {
	for _, v := range values {
		*r = binary.LittleEndian.AppendUint64(*r, uint64(v))
	}
}

func (r *record) u64(values ...uint64) {
	for _, v := range values {
		*r = binary.LittleEndian.AppendUint64(*r, v)
	}
}

// place is where something stands in the data, from its beginning.
type place = uint32

// text is a place and a length.
type text struct{ at, length uint32 }

func (r *record) text(texts ...text) {
	for _, t := range texts {
		r.u32(t.at, t.length)
	}
}

// layout is the data as it grows, behind room for the header. Equal texts stand in it once.
type layout struct {
	data  []byte
	texts map[string]text
}

func newLayout() *layout {
	return &layout{data: make([]byte, headerBytes), texts: make(map[string]text)}
}

func (l *layout) put(r record) place {
	for len(l.data)%8 != 0 {
		l.data = append(l.data, 0)
	}
	at := place(len(l.data))
	l.data = append(l.data, r...)
	return at
}

func (l *layout) text(s string) text {
	t, known := l.texts[s]
	if !known {
		t = text{place(len(l.data)), uint32(len(s))}
		l.data = append(l.data, s...)
		l.texts[s] = t
	}
	return t
}

func (l *layout) list(texts []string) (n uint32, at place) {
	var r record
	for _, s := range texts {
		r.text(l.text(s))
	}
	return uint32(len(texts)), l.put(r)
}

// finish writes the header, all of which but its first fields is given.
func (l *layout) finish(header record) []byte {
	for len(l.data)%8 != 0 {
		l.data = append(l.data, 0)
	}
	copy(l.data[16:headerBytes], header)
	binary.LittleEndian.PutUint32(l.data, magic)
	binary.LittleEndian.PutUint32(l.data[4:], uint32(len(l.data)))
	sum := fnv.New64a()
	sum.Write(l.data[16:])
	binary.LittleEndian.PutUint64(l.data[8:], sum.Sum64())
	return l.data
}
