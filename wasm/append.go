package wasm

import (
	"encoding/binary"
	"errors"
)

// A module of WebAssembly is a list of sections (core specification, section 5.5): a number, a length, and what it
// holds. Appended here are a data segment, behind what the module has, and memory for it.
const (
	sectionMemory = 5
	sectionGlobal = 6
	sectionExport = 7
	sectionData   = 11
	sectionCount  = 12 // of data segments, before the code
)

// heapBase is the global that says where the module's own data ends.
const heapBase = "__heap_base"

var errModule = errors.New("the module is not one that `make wasm` makes")

// appendData returns module with data at the address that base says, in a memory of so many pages of 64 KiB.
func appendData(module []byte, base uint32, data []byte, pages uint32) ([]byte, error) {
	out := append([]byte(nil), module[:8]...)
	for rest := module[8:]; len(rest) > 0; {
		kind, body, after, err := cutSection(rest)
		if err != nil {
			return nil, err
		}
		rest = after
		switch kind {
		case sectionMemory:
			body = append([]byte{1, 1}, uleb(pages)...) // one memory, with a bound: what it begins with
			body = append(body, uleb(pages)...)
		case sectionCount:
			n, _ := binary.Uvarint(body)
			body = uleb(uint32(n) + 1)
		case sectionData:
			n, size := binary.Uvarint(body)
			segments := append(uleb(uint32(n)+1), body[size:]...)
			segments = append(segments, 0, 0x41) // active, in memory 0, at the constant
			segments = append(segments, sleb(int32(base))...)
			segments = append(segments, 0x0B)
			segments = append(segments, uleb(uint32(len(data)))...)
			body = append(segments, data...)
		}
		out = append(out, kind)
		out = append(out, uleb(uint32(len(body)))...)
		out = append(out, body...)
	}
	return out, nil
}

// baseOf is where a module's own data ends.
func baseOf(module []byte) (uint32, error) {
	var globals []uint32
	at := -1
	if len(module) < 8 {
		return 0, errModule
	}
	for rest := module[8:]; len(rest) > 0; {
		kind, body, after, err := cutSection(rest)
		if err != nil {
			return 0, err
		}
		rest = after
		r := reader{b: body}
		switch kind {
		case sectionGlobal:
			for n := r.number(); n > 0 && !r.failed; n-- {
				r.skip(3) // its type, whether it changes, i32.const
				globals = append(globals, r.number())
				r.skip(1)
			}
		case sectionExport:
			for n := r.number(); n > 0 && !r.failed; n-- {
				name := r.take(int(r.number()))
				r.skip(1)
				if index := r.number(); string(name) == heapBase {
					at = int(index)
				}
			}
		}
		if r.failed {
			return 0, errModule
		}
	}
	if at < 0 || at >= len(globals) {
		return 0, errModule
	}
	return globals[at], nil
}

func cutSection(b []byte) (kind byte, body, rest []byte, err error) {
	n, size := binary.Uvarint(b[1:])
	if size <= 0 || n > uint64(len(b)-1-size) {
		return 0, nil, nil, errModule
	}
	b, kind = b[1+size:], b[0]
	return kind, b[:n], b[n:], nil
}

// reader reads what the linker wrote: numbers below 2^31, so that signed and unsigned ones differ in nothing but the
// sign bit of their last byte, which is 0.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) number() uint32 {
	n, size := binary.Uvarint(r.b)
	r.skip(size)
	return uint32(n)
}

func (r *reader) skip(n int) { r.take(n) }

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.failed = true
		return nil
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func uleb(n uint32) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func sleb(n int32) []byte {
	var b []byte
	for {
		c := byte(n & 0x7F)
		n >>= 7
		if n == 0 && c&0x40 == 0 || n == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}
