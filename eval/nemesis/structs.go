package nemesis

import (
	"encoding/binary"
	"math"

	lua "github.com/yuin/gopher-lua"
)

// The parts of Redis's struct library that the scripts use: little-endian doubles (d) and unsigned
// integers of n bytes (In).

// fields calls f for each field of a format, with its length in bytes.
func fields(l *lua.LState, format string, f func(kind byte, size int)) {
	if format == "" || format[0] != '<' {
		l.RaiseError("struct format %q, want one that begins with <", format)
	}
	for i := 1; i < len(format); i++ {
		switch format[i] {
		case 'd':
			f('d', 8)
		case 'I':
			if i++; i == len(format) || format[i] < '1' || format[i] > '8' {
				l.RaiseError("struct format %q, want a size of 1 to 8 after I", format)
			}
			f('I', int(format[i]-'0'))
		default:
			l.RaiseError("struct format %q, want d and I alone", format)
		}
	}
}

// pack is struct.pack.
func pack(l *lua.LState) int {
	var out []byte
	argument := 1
	fields(l, l.CheckString(1), func(kind byte, size int) {
		argument++
		n := float64(l.CheckNumber(argument))
		bits := math.Float64bits(n)
		if kind == 'I' {
			bits = uint64(int64(n))
			if n < 0 || n != math.Trunc(n) || size < 8 && bits>>(8*size) != 0 {
				// Redis would cut it, and no script may count on that
				l.RaiseError("struct.pack: %v does not fit in %d bytes", n, size)
			}
		}
		out = append(out, binary.LittleEndian.AppendUint64(nil, bits)[:size]...)
	})
	l.Push(lua.LString(out))
	return 1
}

// unpack is struct.unpack: the fields, and where the next would begin.
func unpack(l *lua.LState) int {
	data, at, n := l.CheckString(2), l.OptInt(3, 1)-1, 0
	fields(l, l.CheckString(1), func(kind byte, size int) {
		if at+size > len(data) {
			l.RaiseError("data string too short")
		}
		var room [8]byte
		copy(room[:], data[at:at+size])
		bits := binary.LittleEndian.Uint64(room[:])
		if kind == 'd' {
			l.Push(lua.LNumber(math.Float64frombits(bits)))
		} else {
			l.Push(lua.LNumber(bits))
		}
		at += size
		n++
	})
	l.Push(lua.LNumber(at + 1))
	return n + 1
}
