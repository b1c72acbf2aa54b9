package body

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// The scanner goes through a document once, from left to right, and remembers
// one bit for each open container and one number: how many of them, from the
// outside, lie on the path to the field. For user.email in
//
//	{"user": {"name": "x", "email": "a@b"}, "tags": [{"email": "c"}]}
//
// the outer object and the one of user are on the path when "email" comes, and
// only there is a name compared. The whole document is checked all the same:
// what follows the field may be what another parser trips over.

// findJSON appends the value at path to dst.
func findJSON(dst, b []byte, path [][]byte, maxDepth, most int) ([]byte, Fault) {
	if !utf8.Valid(b) {
		return nil, Syntax
	}
	var (
		i            = space(b, 0)
		depth        int             // containers open
		kinds        uint64          // of those, by depth: 1 is an object
		on           int             // of those, the outermost that lie on the path
		seen         [mostNames]bool // names of the path that were met
		target, step = false, true   // the value to come is the field, is on the way to it
		found, kind  bool            // the field is in dst; it was of a wrong kind
	)
	if i < len(b) && b[i] != '{' {
		return nil, Kind // not worth a look: there is no field in it
	}
value:
	if i = space(b, i); i == len(b) {
		return nil, Syntax
	}
	switch c := b[i]; c {
	case '{', '[':
		if depth == maxDepth {
			return nil, Depth
		}
		kind = kind || target || step && c == '['
		kinds &^= 1 << depth
		if c == '{' {
			kinds |= 1 << depth
			if step {
				on++
			}
		}
		depth++
		if i = space(b, i+1); i == len(b) {
			return nil, Syntax
		}
		if b[i] == c+2 { // '}' follows '{' in ASCII as ']' does '['
			goto after
		}
		if c == '{' {
			goto key
		}
		target, step = false, false
		goto value
	case '"':
		end, escaped, ok := text(b, i+1)
		if !ok {
			return nil, Syntax
		}
		if target {
			if dst, ok = unescape(dst, b[i+1:end], escaped, most); !ok {
				return nil, Length
			}
			found = true
		}
		kind = kind || step
		i = end + 1
	case 't', 'f', 'n':
		word := literal(c)
		if !bytes.HasPrefix(b[i:], word) {
			return nil, Syntax
		}
		kind = kind || target || step
		i += len(word)
	default:
		end, whole, ok := number(b, i)
		if !ok {
			return nil, Syntax
		}
		if target {
			if !whole {
				return nil, Kind
			}
			dst, found = append(dst, b[i:end]...), true
		}
		kind = kind || step
		i = end
	}

after:
	if depth == 0 {
		switch {
		case space(b, i) != len(b):
			return nil, Syntax
		case kind:
			return nil, Kind
		case !found:
			return nil, Missing
		}
		return dst, None
	}
	if i = space(b, i); i == len(b) {
		return nil, Syntax
	}
	switch object := kinds>>(depth-1)&1 == 1; {
	case object && b[i] == '}', !object && b[i] == ']':
		if on == depth {
			on--
		}
		depth--
		i++
		goto after
	case b[i] != ',':
		return nil, Syntax
	case !object:
		target, step = false, false
		i++
		goto value
	}
	if i = space(b, i+1); i == len(b) {
		return nil, Syntax
	}

key:
	if b[i] != '"' {
		return nil, Syntax
	}
	{
		end, escaped, ok := text(b, i+1)
		if !ok {
			return nil, Syntax
		}
		target, step = false, false
		if on == depth {
			mine, fault := compare(b[i+1:end], escaped, path[depth-1])
			if fault == None && mine && seen[depth-1] {
				fault = Twice
			}
			if fault != None {
				return nil, fault
			}
			if mine {
				seen[depth-1] = true
				target = depth == len(path)
				step = !target
			}
		}
		if i = space(b, end+1); i == len(b) || b[i] != ':' {
			return nil, Syntax
		}
		i++
	}
	goto value
}

// compare reports whether a name, as it stands between its quotes, is the one
// that is looked for.
func compare(raw []byte, escaped bool, want []byte) (bool, Fault) {
	var space [4 * mostName]byte
	name := raw
	if escaped {
		// What does not fit is longer than any name; its beginning is enough to
		// see whether it may be taken for one.
		name, _ = unescape(space[:0], raw, true, len(space)-utf8.UTFMax)
	}
	if bytes.Equal(name, want) {
		return true, None
	}
	if alike(name, want) {
		return false, Alike
	}
	return false, None
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

var trueWord, falseWord, nullWord = []byte("true"), []byte("false"), []byte("null")

func literal(c byte) []byte {
	switch c {
	case 't':
		return trueWord
	case 'f':
		return falseWord
	}
	return nullWord
}

// text returns where the quote that ends the string stands whose first byte is
// b[i]. Every escape is checked: half a surrogate pair is no character, and
// parsers make different ones of it (RFC 8259 section 8.2).
func text(b []byte, i int) (end int, escaped, ok bool) {
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			return i, escaped, true
		case c < 0x20:
			return 0, false, false
		case c != '\\':
			i++
		default:
			escaped = true
			_, size := escape(b[i:])
			if size == 0 {
				return 0, false, false
			}
			i += size
		}
	}
	return 0, false, false
}

// escape reads the escape that b begins with, and returns its size, 0 if it is
// none.
func escape(b []byte) (r rune, size int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch c := b[1]; c {
	case '"', '\\', '/':
		return rune(c), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
	default:
		return 0, 0
	}
	r, ok := unit(b)
	switch {
	case !ok:
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	low, ok := unit(b[6:])
	if !ok {
		return 0, 0
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

// unit reads \uXXXX.
func unit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	r := rune(0)
	for _, c := range b[2:6] {
		d, ok := hex(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

func hex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// unescape appends a string that text has checked, as long as dst stays within
// most bytes; it reports false beyond.
func unescape(dst, raw []byte, escaped bool, most int) ([]byte, bool) {
	if !escaped {
		if len(raw) > most {
			return dst, false
		}
		return append(dst, raw...), true
	}
	for i := 0; i < len(raw); {
		if len(dst) >= most {
			return dst, false
		}
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			i++
			continue
		}
		r, size := escape(raw[i:])
		dst = utf8.AppendRune(dst, r)
		i += size
	}
	return dst, true
}

// safeInteger is the largest whole number that a parser with 64-bit floats
// keeps apart from its neighbours (RFC 8259 section 6).
const safeInteger = 1<<53 - 1

// number returns where the number ends that begins at b[i], and whether it is
// a whole number with one spelling that every parser reads alike.
func number(b []byte, i int) (end int, whole, ok bool) {
	negative := b[i] == '-'
	if negative {
		i++
	}
	first := i
	i = digits(b, i)
	switch {
	case i == first, b[first] == '0' && i > first+1:
		return 0, false, false
	}
	whole = i-first <= 16 && (!negative || b[first] != '0')
	if whole {
		n := int64(0)
		for _, c := range b[first:i] {
			n = n*10 + int64(c-'0')
		}
		whole = n <= safeInteger
	}
	if i < len(b) && b[i] == '.' {
		whole = false
		after := i + 1
		if i = digits(b, after); i == after {
			return 0, false, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		whole = false
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		after := i
		if i = digits(b, after); i == after {
			return 0, false, false
		}
	}
	return i, whole, true
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}
