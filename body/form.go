package body

import (
	"bytes"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/paramname"
)

// findForm appends the value of a field of a form (WHATWG URL standard, section
// 5.1) to dst. What no browser or library writes is refused, since servers
// disagree about it: raw spaces, controls and bytes beyond ASCII, a raw ";",
// which some take for "&", and a "%" without two digits.
func findForm(dst, b, name []byte, most int) ([]byte, Fault) {
	found := false
	for len(b) > 0 {
		pair := b
		if at := bytes.IndexByte(b, '&'); at >= 0 {
			pair, b = b[:at], b[at+1:]
		} else {
			b = nil
		}
		if !wellFormed(pair) {
			return nil, Syntax
		}
		if len(pair) == 0 {
			continue
		}
		key, value, _ := bytes.Cut(pair, []byte{'='})
		mine, fault := compareForm(key, name)
		switch {
		case fault != None:
			return nil, fault
		case !mine:
			continue
		case found:
			return nil, Twice
		}
		found = true
		var ok bool
		if dst, ok = decode(dst, value, most); !ok {
			return nil, Length
		}
	}
	switch {
	case !found:
		return nil, Missing
	case !utf8.Valid(dst):
		return nil, Text
	}
	return dst, None
}

// compareForm reports whether an encoded key is the name that is looked for. It is Alike if some server may take it
// for that.
func compareForm(key, want []byte) (bool, Fault) {
	var space [paramname.Most]byte
	name, whole := decode(space[:0], key, len(space))
	switch {
	case bytes.Equal(name, want):
		return true, None
	case !whole && paramname.Odd(name), paramname.Alike(name, want):
		return false, Alike
	}
	return false, None
}

// inQuery reports whether the query of a target may name the field as well.
func inQuery(query string, want []byte) bool {
	for start := 0; start < len(query); {
		end := start
		for end < len(query) && query[end] != '&' && query[end] != ';' && query[end] != '?' {
			end++
		}
		// A pair may be as long as a target; of its name the beginning is enough.
		var space [4 * mostName * 3]byte
		pair := append(space[:0], query[start:min(end, start+len(space))]...)
		start = end + 1
		if at := bytes.IndexByte(pair, '='); at >= 0 {
			pair = pair[:at]
		}
		if !escapes(pair) {
			return true // no two servers agree on what it names
		}
		if mine, fault := compareForm(pair, want); mine || fault != None {
			return true
		}
	}
	return false
}

// wellFormed reports whether b is what a form's serialiser writes.
func wellFormed(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c >= 0x7f || c == ';' {
			return false
		}
	}
	return escapes(b)
}

func escapes(b []byte) bool {
	for i := bytes.IndexByte(b, '%'); i >= 0; {
		if len(b) < i+3 {
			return false
		}
		_, high := hex(b[i+1])
		_, low := hex(b[i+2])
		if !high || !low {
			return false
		}
		next := bytes.IndexByte(b[i+3:], '%')
		if next < 0 {
			break
		}
		i += 3 + next
	}
	return true
}

// decode appends what b, which is well formed, stands for, once and as long as
// dst stays within most bytes; it reports false beyond.
func decode(dst, b []byte, most int) ([]byte, bool) {
	for i := 0; i < len(b); i++ {
		if len(dst) == most {
			return dst, false
		}
		switch c := b[i]; c {
		case '+':
			dst = append(dst, ' ')
		case '%':
			high, _ := hex(b[i+1])
			low, _ := hex(b[i+2])
			dst = append(dst, high<<4|low)
			i += 2
		default:
			dst = append(dst, c)
		}
	}
	return dst, true
}

// FormText returns the text in a field of a form, such as the query of a target; None and false if it is not there. As
// for a Finder, a name that stands twice or that some server may take for another is a Fault, and so is what no browser
// or library writes.
func FormText(form []byte, name string) (text string, there bool, fault Fault) {
	found, fault := findForm(nil, form, []byte(name), len(form)+1)
	if fault == Missing {
		return "", false, None
	}
	return string(found), fault == None, fault
}
