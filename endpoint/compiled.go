package endpoint

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// AppendCompiled appends what Match reads of a table to data, for code in other languages that matches as it does: the
// module of package wasm, whose core/endpoint.h names every field. It returns the place of the table in data, from
// data's beginning; so are all places in it. Numbers are little-endian. The error says what has no such form: a query
// parameter that a template names.
func (t *Table) AppendCompiled(data []byte) (_ []byte, place uint32, err error) {
	if t.queries != nil {
		for _, template := range t.templates {
			if template.query > 0 {
				return data, 0, fmt.Errorf("template %q names a query parameter, want none", template)
			}
		}
	}
	w := compiled(data)
	h := w.automaton(t)
	h[4] = byte(t.profile.Refuse &^ RefuseOtherCase)
	if s := t.strict; s != nil {
		h.set(strictOffset, 1)
		tables := []struct {
			at    int
			table *Table
		}{{foldedOffset, s.folded}, {othersOffset, s.others}, {bareOffset, s.bare}}
		for _, other := range tables {
			if other.table != nil {
				h.set(other.at, w.header(w.automaton(other.table)))
			}
		}
		if s.slashed != nil {
			lenient := append(compiledHeader(nil), h...)
			lenient[4] &^= byte(RefuseTrailingSlash)
			lenient.set(strictOffset, 0)
			h.set(lenientOffset, w.header(lenient))
			written := make([]byte, 1, 1+len(s.slashed))
			for i, template := range t.templates {
				ends := byte(s.slashed[i])
				if strings.HasSuffix(template.Path(), "...}") {
					ends |= 4
				}
				written = append(written, ends)
			}
			h.set(endsOffset, w.bytes(written))
		}
		h.setBool(upperOffset, s.upper)
		h.setBool(tailsOffset, s.tails)
	}
	place = w.header(h)
	return w, place, nil
}

// compiled is data as it grows; compiledHeader is what tells of one table, until it is written.
type (
	compiled       []byte
	compiledHeader []byte
)

// Where fields stand in a header.
const (
	startOffset   = 8 // the first of nine numbers
	strictOffset  = 44
	seedOffset    = 48
	foldedOffset  = 56
	lenientOffset = 60
	othersOffset  = 64
	bareOffset    = 68
	endsOffset    = 72
	upperOffset   = 76
	tailsOffset   = 80
	headerBytes   = 88
)

func (h compiledHeader) set(at int, value uint32) { binary.LittleEndian.PutUint32(h[at:], value) }

func (h compiledHeader) setBool(at int, value bool) {
	if value {
		h.set(at, 1)
	}
}

// align makes the next place one that eight bytes may stand at, and returns it.
func (w *compiled) align() uint32 {
	for len(*w)%8 != 0 {
		*w = append(*w, 0)
	}
	return uint32(len(*w))
}

func (w *compiled) bytes(b []byte) uint32 {
	place := w.align()
	*w = append(*w, b...)
	return place
}

func (w *compiled) header(h compiledHeader) uint32 { return w.bytes(h) }

// texts writes texts, and then where each is and how long.
func (w *compiled) texts(texts []string) uint32 {
	var index []byte
	for _, text := range texts {
		index = binary.LittleEndian.AppendUint32(index, uint32(len(*w)))
		index = binary.LittleEndian.AppendUint32(index, uint32(len(text)))
		*w = append(*w, text...)
	}
	return w.bytes(index)
}

// automaton writes the tables of t, and returns a header for them.
func (w *compiled) automaton(t *Table) compiledHeader {
	h := make(compiledHeader, headerBytes)
	p := t.profile
	h[0], h[1], h[4] = byte(p.EncodedSlash), byte(p.Params), byte(p.Refuse)
	if p.CaseInsensitive {
		h[2] = 1
	}
	if p.AllowDoubleEncoding {
		h[3] = 1
	}
	order := binary.LittleEndian
	var states []byte
	for _, s := range t.states {
		states = order.AppendUint32(order.AppendUint32(states, s.other), s.row)
		states = order.AppendUint16(order.AppendUint16(states, s.prefix), s.suffix)
		flags := uint16(0)
		if s.named {
			flags |= 1
		}
		if s.final {
			flags |= 2
		}
		states = order.AppendUint16(order.AppendUint16(states, s.middle), flags)
	}
	var slots []byte
	for _, s := range t.edges.slots {
		slots = order.AppendUint32(order.AppendUint64(slots, s.key), s.from)
		slots = order.AppendUint32(order.AppendUint32(order.AppendUint32(slots, s.len), s.to), 0)
	}
	var ids []byte
	for _, id := range t.ids {
		ids = order.AppendUint32(ids, uint32(id))
	}
	for i, value := range []uint32{t.start, w.bytes(states), w.bytes(slots), w.bytes([]byte(t.edges.text)),
		uint32(t.edges.shift), uint32(len(t.methods)), w.texts(t.methods), w.bytes(ids), w.texts(t.middles)} {
		h.set(startOffset+4*i, value)
	}
	order.PutUint64(h[seedOffset:], t.edges.seed)
	return h
}
