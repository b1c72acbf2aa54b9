package token

import (
	"bytes"
	"errors"
	"hash/maphash"
	"unicode/utf16"
	"unicode/utf8"
)

// A strict reader of JSON objects. encoding/json takes "SUB" for "sub" and the
// last of two names that are equal, so that two servers can read two subjects
// from one token; it also replaces what is no UTF-8 by U+FFFD, which makes one
// subject of two. Here all of that is refused, and only the values asked for
// are kept, in one pass without allocations: a forged token is read too.
//
// For the names exp and realm.id, {"exp":7,"realm":{"id":"a","x":[1]}} gives 7
// and "a".

const (
	maxMembers = 256 // names in a token, so that comparing them stays cheap
	maxDepth   = 12
	maxWanted  = 17 // paths
)

var (
	errSyntax    = errors.New("is not strict JSON")
	errDuplicate = errors.New("holds a name twice")
	errTooMany   = errors.New("holds more than 256 names, or is nested more than 12 deep")
)

type kind byte

const (
	absent kind = iota
	text
	number
	object
	array
	literal // true, false, null
)

// value is a part of the text that was read.
type value struct {
	kind    kind
	raw     []byte // a text without its quotes
	escaped bool   // raw holds a backslash
}

// path is where a value stands: the names that lead to it.
type path []string

// scanner reads one object. It may be used again.
type scanner struct {
	data   []byte
	at     int
	wanted []path // at most maxWanted
	found  [maxWanted]value

	seed    maphash.Seed
	members int
	hashes  [maxMembers]uint64
	names   [maxMembers]value
}

func newScanner() *scanner { return &scanner{seed: maphash.MakeSeed()} }

// read reads data, which must be one object, and keeps the values at wanted.
func (s *scanner) read(data []byte, wanted []path) error {
	s.data, s.at, s.wanted, s.members = data, 0, wanted, 0
	s.found = [len(s.found)]value{}
	s.space()
	if !s.next('{') {
		return errSyntax
	}
	if err := s.object(0, 1<<len(wanted)-1); err != nil {
		return err
	}
	s.space()
	if s.at != len(s.data) {
		return errSyntax
	}
	return nil
}

// object reads the members after the brace. mask says which of the wanted
// paths lead through this object.
func (s *scanner) object(depth int, mask uint) error {
	if depth == maxDepth {
		return errTooMany
	}
	first := s.members
	s.space()
	if s.next('}') {
		return nil
	}
	for {
		s.space()
		name, err := s.text()
		if err != nil {
			return err
		}
		if err := s.remember(name, first); err != nil {
			return err
		}
		s.space()
		if !s.next(':') {
			return errSyntax
		}
		if err := s.member(name, depth, mask); err != nil {
			return err
		}
		s.space()
		if s.next('}') {
			return nil
		}
		if !s.next(',') {
			return errSyntax
		}
	}
}

// member reads the value of a name and keeps it where it is wanted.
func (s *scanner) member(name value, depth int, mask uint) error {
	var ends, leads uint
	for i, p := range s.wanted {
		if mask&(1<<i) != 0 && depth < len(p) && name.is(p[depth]) {
			if depth == len(p)-1 {
				ends |= 1 << i
			} else {
				leads |= 1 << i
			}
		}
	}
	v, err := s.value(depth, leads)
	if err != nil {
		return err
	}
	for i := range s.wanted {
		if ends&(1<<i) != 0 {
			s.found[i] = v
		}
	}
	return nil
}

// remember refuses a name that the object, whose names begin at first, has
// already.
func (s *scanner) remember(name value, first int) error {
	if s.members == maxMembers {
		return errTooMany
	}
	if name.escaped { // "s\u0075b" is "sub"
		name = value{kind: text, raw: name.unescaped()}
	}
	h := maphash.Bytes(s.seed, name.raw)
	for i := first; i < s.members; i++ {
		if s.hashes[i] == h && bytes.Equal(s.names[i].raw, name.raw) {
			return errDuplicate
		}
	}
	// Names of objects inside this one stand here too, after those of it that
	// came before them. They cannot collide but by being equal, and equal
	// names of different objects are told apart below.
	s.hashes[s.members], s.names[s.members] = h, name
	s.members++
	return nil
}

func (s *scanner) value(depth int, mask uint) (v value, err error) {
	s.space()
	if s.at == len(s.data) {
		return v, errSyntax
	}
	start := s.at
	switch c := s.data[s.at]; {
	case c == '"':
		return s.text()
	case c == '{':
		s.at++
		v.kind = object
		err = s.nested(depth, mask)
	case c == '[':
		s.at++
		v.kind = array
		err = s.array(depth)
	case c == '-' || '0' <= c && c <= '9':
		v.kind = number
		err = s.number()
	default:
		v.kind = literal
		err = s.literal()
	}
	v.raw = s.data[start:s.at]
	return v, err
}

// nested reads an object inside another, whose names are not compared with
// those around it.
func (s *scanner) nested(depth int, mask uint) error {
	first := s.members
	if err := s.object(depth+1, mask); err != nil {
		return err
	}
	for i := first; i < s.members; i++ { // still counted, never equal
		s.names[i], s.hashes[i] = value{}, 0
	}
	return nil
}

func (s *scanner) array(depth int) error {
	if depth+1 == maxDepth {
		return errTooMany
	}
	s.space()
	if s.next(']') {
		return nil
	}
	for {
		if _, err := s.value(depth+1, 0); err != nil {
			return err
		}
		s.space()
		if s.next(']') {
			return nil
		}
		if !s.next(',') {
			return errSyntax
		}
	}
}

// text reads a string. Its text is valid: UTF-8, no control characters, every
// escape whole.
func (s *scanner) text() (value, error) {
	if !s.next('"') {
		return value{}, errSyntax
	}
	v := value{kind: text}
	ascii := true
	start := s.at
	for s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c == '"':
			v.raw = s.data[start:s.at]
			s.at++
			if !ascii && !utf8.Valid(v.raw) {
				return v, errSyntax
			}
			return v, nil
		case c < ' ':
			return v, errSyntax
		case c == '\\':
			v.escaped = true
			n := escape(s.data[s.at:])
			if n == 0 {
				return v, errSyntax
			}
			s.at += n
		default:
			ascii = ascii && c < utf8.RuneSelf
			s.at++
		}
	}
	return v, errSyntax
}

// escape returns the length of the escape that b begins with, 0 if it is none.
// Half of a surrogate pair is none: all of them would read as U+FFFD.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	if b[1] != 'u' {
		if bytes.IndexByte([]byte(`"\/bfnrt`), b[1]) < 0 {
			return 0
		}
		return 2
	}
	r, ok := unit(b)
	switch {
	case !ok:
		return 0
	case !utf16.IsSurrogate(r):
		return 6
	}
	low, ok := unit(b[6:])
	if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
		return 0
	}
	return 12
}

// unit reads \uXXXX.
func unit(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescaped returns what a text stands for. Its escapes were checked.
func (v value) unescaped() []byte {
	if !v.escaped {
		return v.raw
	}
	out := make([]byte, 0, len(v.raw))
	for b := v.raw; len(b) > 0; {
		if b[0] != '\\' {
			out, b = append(out, b[0]), b[1:]
			continue
		}
		n := escape(b)
		switch b[1] {
		case 'u':
			r, _ := unit(b)
			if n == 12 {
				low, _ := unit(b[6:])
				r = utf16.DecodeRune(r, low)
			}
			out = utf8.AppendRune(out, r)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		default:
			out = append(out, b[1])
		}
		b = b[n:]
	}
	return out
}

// is reports whether v is the text s.
func (v value) is(s string) bool {
	return v.kind == text && (!v.escaped && string(v.raw) == s || v.escaped && string(v.unescaped()) == s)
}

// number reads a number of RFC 8259 section 6.
func (s *scanner) number() error {
	s.next('-')
	if !s.next('0') && !s.digits() {
		return errSyntax
	}
	if s.next('.') && !s.digits() {
		return errSyntax
	}
	if s.next('e') || s.next('E') {
		if !s.next('+') {
			s.next('-')
		}
		if !s.digits() {
			return errSyntax
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.at
	for s.at < len(s.data) && '0' <= s.data[s.at] && s.data[s.at] <= '9' {
		s.at++
	}
	return s.at > start
}

func (s *scanner) literal() error {
	for _, word := range []string{"true", "false", "null"} {
		if len(s.data)-s.at >= len(word) && string(s.data[s.at:s.at+len(word)]) == word {
			s.at += len(word)
			return nil
		}
	}
	return errSyntax
}

func (s *scanner) next(c byte) bool {
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// seconds reads a NumericDate (RFC 7519 section 2), without its fraction. An
// exponent or a sign is refused: no issuer writes one, and 1e308 is no time.
func (v value) seconds() (n int64, ok bool) {
	if v.kind != number {
		return 0, false
	}
	const latest = 253402300799 // the last second of the year 9999
	whole, _, _ := bytes.Cut(v.raw, []byte("."))
	if len(whole) > len("253402300799") || bytes.ContainsAny(v.raw, "eE-") {
		return 0, false
	}
	for _, c := range whole {
		n = 10*n + int64(c-'0')
	}
	return n, n <= latest
}

// holds reports whether v is one of names, or an array of texts that holds one.
func (v value) holds(names []string) bool {
	if v.kind == text {
		for _, name := range names {
			if v.is(name) {
				return true
			}
		}
		return false
	}
	if v.kind != array {
		return false
	}
	s := scanner{data: v.raw, at: 1}
	found := false
	for {
		s.space()
		if s.next(']') {
			return found
		}
		element, err := s.text()
		if err != nil {
			return false // an element that is no text
		}
		found = found || element.holds(names)
		s.space()
		s.next(',')
	}
}
