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
type scanner struct {
	b []byte
	i int // of the next byte

	path     [][]byte
	maxDepth int

	depth int             // containers open
	kinds uint64          // of those, by depth: 1 is an object
	on    int             // of those, the outermost that lie on the path
	seen  [mostNames]bool // names of the path that were met

	// What the value to come is: the field, or on the way to it.
	target, step bool

	found, escaped bool // the field is there, with escapes
	from, to       int  // where its text stands; a slice here would escape to the heap
	kind           bool // it, or what is on the way, is of a wrong kind
}

// findJSON appends the value at path to dst.
func findJSON(dst, b []byte, path [][]byte, maxDepth, most int) ([]byte, Fault) {
	from, to, escaped, fault := locate(b, path, maxDepth)
	if fault != None {
		return nil, fault
	}
	dst, ok := unescape(dst, b[from:to], escaped, most)
	if !ok {
		return nil, Length
	}
	return dst, None
}

// locate says where the value at path stands, a string without its quotes.
func locate(b []byte, path [][]byte, maxDepth int) (from, to int, escaped bool, fault Fault) {
	if !utf8.Valid(b) {
		return 0, 0, false, Syntax
	}
	s := scanner{b: b, path: path, maxDepth: maxDepth, step: true}
	if c := s.peek(); c != '{' && s.i < len(b) {
		return 0, 0, false, Kind // not worth a look: there is no field in it
	}
	for more := true; more; {
		fault := s.value()
		if fault == None {
			more, fault = s.next()
		}
		if fault != None {
			return 0, 0, false, fault
		}
	}
	s.peek()
	switch {
	case s.i != len(b):
		return 0, 0, false, Syntax
	case s.kind:
		return 0, 0, false, Kind
	case !s.found:
		return 0, 0, false, Missing
	}
	return s.from, s.to, s.escaped, None
}

// peek skips white space and returns the next byte; 0, which JSON has nowhere,
// is the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\n', '\t', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// value reads a value; of a container, up to the end of the first value in it
// that is none.
func (s *scanner) value() Fault {
	for {
		c := s.peek()
		if c != '{' && c != '[' {
			return s.scalar(c)
		}
		empty, fault := s.open(c)
		if empty || fault != None {
			return fault
		}
	}
}

// open enters a container, up to its first value.
func (s *scanner) open(c byte) (empty bool, fault Fault) {
	if s.depth == s.maxDepth {
		return false, Depth
	}
	s.kind = s.kind || s.target || s.step && c == '['
	s.kinds &^= 1 << s.depth
	if c == '{' {
		s.kinds |= 1 << s.depth
		if s.step {
			s.on++
		}
	}
	s.depth++
	s.i++
	s.target, s.step = false, false
	switch {
	case s.peek() == c+2: // '}' follows '{' in ASCII as ']' does '['
		return true, None
	case c == '{':
		return false, s.name()
	}
	return false, None
}

// next goes from the end of a value to the next one, out of all containers that
// end between. It reports false at the end of the document.
func (s *scanner) next() (more bool, fault Fault) {
	for s.depth > 0 {
		object := s.kinds>>(s.depth-1)&1 == 1
		switch c := s.peek(); {
		case object && c == '}', !object && c == ']':
			if s.on == s.depth {
				s.on--
			}
			s.depth--
			s.i++
		case c != ',':
			return false, Syntax
		case object:
			s.i++
			return true, s.name()
		default:
			s.i++
			s.target, s.step = false, false
			return true, None
		}
	}
	return false, None
}

// label reads a member's name, as it stands between its quotes, and the colon.
func (s *scanner) label() (raw []byte, escaped, ok bool) {
	if s.peek() != '"' {
		return nil, false, false
	}
	end, escaped, ok := text(s.b, s.i+1)
	if !ok {
		return nil, false, false
	}
	raw = s.b[s.i+1 : end]
	s.i = end + 1
	ok = s.peek() == ':'
	s.i++
	return raw, escaped, ok
}

// name reads a member's name and the colon, and says what its value is.
func (s *scanner) name() Fault {
	raw, escaped, ok := s.label()
	if !ok {
		return Syntax
	}
	s.target, s.step = false, false
	if s.on != s.depth {
		return None
	}
	mine, fault := compare(raw, escaped, s.path[s.depth-1])
	switch {
	case !mine:
		return fault
	case s.seen[s.depth-1]:
		return Twice
	}
	s.seen[s.depth-1] = true
	s.target = s.depth == len(s.path)
	s.step = !s.target
	return None
}

// scalar reads a value that is no container and begins with c.
func (s *scanner) scalar(c byte) Fault {
	s.kind = s.kind || s.step
	switch c {
	case '"':
		return s.text()
	case 't', 'f', 'n':
		word := literal(c)
		if !bytes.HasPrefix(s.b[s.i:], word) {
			return Syntax
		}
		s.kind = s.kind || s.target
		s.i += len(word)
		return None
	}
	end, whole, ok := number(s.b, s.i)
	if !ok {
		return Syntax
	}
	switch {
	case s.target && !whole:
		s.kind = true // the name may stand again behind it
	case s.target:
		s.found, s.from, s.to = true, s.i, end
	}
	s.i = end
	return None
}

func (s *scanner) text() Fault {
	end, escaped, ok := text(s.b, s.i+1)
	if !ok {
		return Syntax
	}
	if s.target {
		s.found, s.escaped, s.from, s.to = true, escaped, s.i+1, end
	}
	s.i = end + 1
	return None
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
	negative := i < len(b) && b[i] == '-'
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
