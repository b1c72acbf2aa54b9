package body

import "unicode/utf8"

// Members calls each with the members of the object that a text is: their names without escapes, which are others once
// it returns, and their values as they are written. The whole text is read, whatever each returns, and is a Fault if it
// is not one JSON object by RFC 8259; else the first Fault of each comes back. A name may come twice.
func Members(text []byte, each func(name, value []byte) Fault) Fault {
	return contents(text, '{', each)
}

// Elements is Members for the elements of an array.
func Elements(text []byte, each func(value []byte) Fault) Fault {
	return contents(text, '[', func(_, value []byte) Fault { return each(value) })
}

// Unquote returns the string that a value is, as Members has it; false if it is none.
func Unquote(value []byte) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	raw := value[1 : len(value)-1]
	s, ok := unescape(make([]byte, 0, len(raw)), raw, true, len(raw)+1)
	return string(s), ok
}

// contents calls each with what stands in the outermost container of a text, which begins with open.
func contents(b []byte, open byte, each func(name, value []byte) Fault) (first Fault) {
	if !utf8.Valid(b) {
		return Syntax
	}
	s := scanner{b: b, maxDepth: MostDepth}
	if s.peek() != open {
		return Kind
	}
	s.i++
	s.depth = 1
	end := open + 2 // '}' follows '{' in ASCII as ']' does '['
	var name []byte
	for more := s.peek() != end; more; {
		if open == '{' {
			raw, escaped, ok := s.label()
			if !ok {
				return Syntax
			}
			name, _ = unescape(name[:0], raw, escaped, len(raw)+1)
		}
		s.peek()
		from := s.i
		if fault := s.whole(); fault != None {
			return fault
		}
		if fault := each(name, b[from:s.i]); first == None {
			first = fault
		}
		switch s.peek() {
		case ',':
			s.i++
		case end:
			more = false
		default:
			return Syntax
		}
	}
	s.i++
	if s.peek(); s.i != len(b) {
		return Syntax
	}
	return first
}

// whole reads a value with all that it holds.
func (s *scanner) whole() Fault {
	in := scanner{b: s.b, i: s.i, maxDepth: s.maxDepth - s.depth}
	for more := true; more; {
		fault := in.value()
		if fault == None {
			more, fault = in.next()
		}
		if fault != None {
			return fault
		}
	}
	s.i = in.i
	return None
}
