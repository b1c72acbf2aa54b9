package endpoint

import "unicode/utf8"

// decodesToUTF8 reports whether canonical text is UTF-8 once decoded.
func decodesToUTF8(s []byte) bool {
	var sequence [utf8.UTFMax]byte
	n := 0
	for i := 0; i < len(s); i++ {
		b := s[i]
		if b == '%' {
			b = byte(unhex(s[i+1])<<4 | unhex(s[i+2]))
			i += 2
		}
		switch {
		case n == 0 && b < utf8.RuneSelf:
			continue
		case n == len(sequence):
			return false
		}
		sequence[n] = b
		n++
		if utf8.FullRune(sequence[:n]) {
			if r, size := utf8.DecodeRune(sequence[:n]); r == utf8.RuneError && size <= 1 {
				return false
			}
			n = 0
		}
	}
	return n == 0
}

func isDots(name []byte) bool {
	return len(name) == 1 && name[0] == '.' || len(name) == 2 && name[0] == '.' && name[1] == '.'
}

// dotStack decides what a .. removes. Servers that remove dots before they merge slashes, or that read ;x as a
// name, give segments without a name a turn; the others do not. They agree as long as no .. reaches a
// nameless segment that has a named one below it.
type dotStack struct {
	root     int  // length of dst where the path starts
	named    int  // segments with a name
	above    int  // those of them above the latest nameless one
	overVoid bool // there is a nameless one, with a named one below
}

func (d *dotStack) push(nameless bool) {
	switch {
	case !nameless:
		d.named++
		d.above++
	case d.named > 0:
		d.above, d.overVoid = 0, true
	}
}

// pop removes the last segment of dst. The root has no parent but itself.
func (d *dotStack) pop(dst []byte) ([]byte, Fault) {
	if d.above == 0 && d.overVoid {
		return dst, AmbiguousDots
	}
	if len(dst) == d.root {
		return dst, NoFault
	}
	d.named, d.above = max(d.named-1, 0), max(d.above-1, 0)
	end := len(dst) - 1
	for dst[end] != '/' {
		end--
	}
	return dst[:end], NoFault
}

// segmentReader reads a path segment by segment.
type segmentReader struct {
	profile Profile
	classes *[256]uint8 // of profile
	path    string
	braces  bool
	next    int // where the slash before the next segment is

	nameEnd int  // length of dst after the name of the segment just read
	params  bool // ;parameters followed it
	kept    bool // an encoded slash is part of it

	escapedSlash bool // there was an encoded slash
}

// append appends the decoded, re-encoded segment after the slash at next, and moves next to the slash after it.
// A slash may be an encoded one, when the profile says so.
func (r *segmentReader) append(dst []byte) ([]byte, Fault) {
	r.params, r.kept = false, false
	classes := r.classes
	from := r.next + r.slashWidth()
	i := from
	for i < len(r.path) {
		c := r.path[i]
		if classes[c]&^dotOrSlash == 0 {
			if !r.params || r.profile.Params != StripParams {
				dst = append(dst, c)
			}
			i++
			continue
		}
		b, width, fault := r.decode(i)
		if fault != NoFault {
			return dst, fault
		}
		if b == '/' {
			if width == 1 {
				break
			}
			r.escapedSlash = true
			if r.params && r.profile.Params == StripParams {
				return dst, EscapedSlash
			}
			if r.profile.EncodedSlash != KeepEncodedSlash {
				break
			}
			r.kept = true
		}
		if b == ';' && !r.params {
			switch {
			case r.profile.Params == RejectParams:
				return dst, Parameters
			case r.profile.Params == StripParams && width > 1:
				return dst, EscapedParams
			}
			r.params, r.nameEnd = true, len(dst)
		}
		if !r.params || r.profile.Params != StripParams {
			dst = r.appendByte(dst, b, width)
		}
		i += width
	}
	r.next = i
	if !r.params {
		r.nameEnd = len(dst)
	}
	if r.kept && r.dotsBesideSlash(from, i) {
		return dst, EscapedDots
	}
	return dst, NoFault
}

// dotsBesideSlash reports whether a part of path[from:to], a segment with encoded slashes, would be a dot segment, or
// empty, if they were slashes. (Go's ServeMux takes the segment %2F for a slash at the end.)
func (r *segmentReader) dotsBesideSlash(from, to int) bool {
	dots, other, params := 0, false, false
	unsafe := func() bool { return !other && dots <= 2 }
	for from < to {
		b, width, _ := r.decode(from)
		from += width
		switch {
		case b == '/':
			if unsafe() {
				return true
			}
			dots, other, params = 0, false, false
		case params:
		case b == ';':
			params = true
		case b == '.':
			dots++
		default:
			other = true
		}
	}
	return unsafe()
}

// dotsFault returns why the segment just read, a dot segment, may not be one.
func (r *segmentReader) dotsFault() Fault {
	switch {
	case r.params:
		return DotParams
	case r.profile.Refuse.has(RefuseDotSegments):
		return DotSegment
	}
	return NoFault
}

func (r *segmentReader) slashWidth() int {
	if r.path[r.next] == '%' {
		return 3
	}
	return 1
}

// decode returns the byte that path[i:] starts with and how many bytes spell it.
func (r *segmentReader) decode(i int) (b byte, width int, fault Fault) {
	b = r.path[i]
	if b == '\\' {
		return b, 1, Backslash
	}
	if b != '%' {
		return b, 1, NoFault
	}
	b, ok := unescape(r.path, i)
	switch {
	case !ok:
		fault = BadEscape
	case b < 0x20 || b == 0x7F:
		fault = ControlByte
	case (b == '/' || b == '\\') && r.profile.EncodedSlash == RejectEncodedSlash:
		fault = EscapedSlash
	case b == '\\':
		fault = Backslash
	case b == '%' && !r.profile.AllowDoubleEncoding && r.hexAt(i+3):
		fault = DoubleEncoded
	case r.profile.Refuse.has(RefuseUnreservedEscapes) && unreserved(b):
		fault = NeedlessEscape
	}
	return b, 3, fault
}

// hexAt reports whether path[i:] decodes to two hexadecimal digits and whatever follows.
func (r *segmentReader) hexAt(i int) bool {
	for range 2 {
		if i >= len(r.path) {
			return false
		}
		b, width := r.path[i], 1
		if b == '%' {
			b, _ = unescape(r.path, i) // zero, hence no digit, if malformed
			width = 3
		}
		if unhex(b) < 0 {
			return false
		}
		i += width
	}
	return true
}

// appendByte appends the canonical spelling of b, which took width bytes in the target.
func (r *segmentReader) appendByte(dst []byte, b byte, width int) []byte {
	const digits = "0123456789ABCDEF"
	switch {
	case r.profile.CaseInsensitive && 'A' <= b && b <= 'Z':
		return append(dst, b|0x20)
	case b == '/': // a kept one
	case cleanBytes[0][b]&stop == 0, b == ';', r.braces && width == 1:
		return append(dst, b)
	}
	return append(dst, '%', digits[b>>4], digits[b&15])
}

// unreserved reports whether b is an unreserved character of RFC 3986 section 2.3.
func unreserved(b byte) bool {
	return isAlphanumeric(b) || b == '-' || b == '.' || b == '_' || b == '~'
}

// unescape returns the byte that the escape at s[i] stands for.
func unescape(s string, i int) (b byte, ok bool) {
	if i+2 >= len(s) {
		return 0, false
	}
	high, low := unhex(s[i+1]), unhex(s[i+2])
	if high|low < 0 {
		return 0, false
	}
	return byte(high<<4 | low), true
}

// unhex returns the value of a hexadecimal digit, or -1.
func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// rawBytesValid reports whether a target may hold every byte of s as itself.
func rawBytesValid(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7F || s[i] == '#' {
			return false
		}
	}
	return true
}
