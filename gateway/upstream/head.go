package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
)

const (
	maxHead    = 256 << 10 // bytes of the heads of an answer, with those that announce it
	maxFields  = 512       // of a head
	maxInterim = 64        // answers with a status of 1xx before the answer
)

// Field is where a field stands in the text of a head.
type Field struct{ nameAt, nameEnd, valueAt, valueEnd int32 }

// Name returns the field's name as the server wrote it. text is Answer.Head, or its bytes as a string.
func (f Field) Name(text string) string { return text[f.nameAt:f.nameEnd] }

// Value returns the field's value without white space around it.
func (f Field) Value(text string) string { return text[f.valueAt:f.valueEnd] }

// Lengths of bodies that no Content-Length says.
const (
	untilClose = -1
	chunked    = -2
)

// version is how every answer begins.
const version = "HTTP/1."

// head is what was read of an answer's head.
type head struct {
	status int
	fields []Field
	size   int   // of the head in bytes, once it is whole
	length int64 // of the body, or untilClose, or chunked
	keep   bool  // the server may keep the connection open

	at, scanned int // where the present line begins, and what was looked at for its end
	old         bool
	lengths     int // fields of this name
	codings     int // Transfer-Encoding
	declared    int64
	closes      bool
}

func (h *head) reset() { *h = head{fields: h.fields[:0]} }

// ErrMalformed says that a server's answer is none, or one that could be read in two ways.
var ErrMalformed = errors.New("malformed answer")

func malformed(format string, about ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, about...))
}

// more reads on in a head that begins at buf[0], of which more has come. It reports whether the head is whole.
func (h *head) more(buf []byte, toHEAD bool) (whole bool, err error) {
	for {
		n := bytes.IndexByte(buf[h.scanned:], '\n')
		if n < 0 {
			h.scanned = len(buf)
			if h.status == 0 && string(buf[:min(len(buf), len(version))]) != version[:min(len(buf), len(version))] {
				return false, malformed("it begins with %.20q, want HTTP/1.1", buf)
			}
			return false, nil
		}
		end := h.scanned + n
		if end == h.at || buf[end-1] != '\r' {
			return false, malformed("a line ends without CR")
		}
		from, to := h.at, end-1
		h.at, h.scanned = end+1, end+1
		switch {
		case h.status == 0:
			err = h.statusLine(buf[from:to])
		case from == to:
			h.size = end + 1
			return true, h.frame(toHEAD)
		default:
			err = h.field(buf, from, to)
		}
		if err != nil {
			return false, err
		}
	}
}

// statusLine reads HTTP/1.1 200 OK.
func (h *head) statusLine(line []byte) error {
	const shape = "HTTP/1.1 200"
	if len(line) < len(shape) || string(line[:7]) != version || line[7] != '1' && line[7] != '0' || line[8] != ' ' {
		return malformed("its first line is %.40q", line)
	}
	h.old = line[7] == '0'
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return malformed("its status is %.10q", line[9:])
		}
		h.status = h.status*10 + int(c-'0')
	}
	if h.status < 100 || len(line) > 12 && line[12] != ' ' || !plain(line[12:]) {
		return malformed("its first line is %.40q", line)
	}
	return nil
}

// plain reports whether no byte of a value is a control character but tabs.
func plain(value []byte) bool {
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7F {
			return false
		}
	}
	return true
}

// token says which bytes names are made of (RFC 9110 section 5.6.2).
var token = func() (is [256]bool) {
	for c := range is {
		is[c] = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), byte(c)) >= 0
	}
	return is
}()

// parseField reads the line buf[from:to].
func parseField(buf []byte, from, to int) (Field, error) {
	colon := from
	for colon < to && token[buf[colon]] {
		colon++
	}
	if colon == from || colon == to || buf[colon] != ':' {
		return Field{}, malformed("a field begins with %.40q", buf[from:to])
	}
	first, last := colon+1, to
	for first < last && (buf[first] == ' ' || buf[first] == '\t') {
		first++
	}
	for last > first && (buf[last-1] == ' ' || buf[last-1] == '\t') {
		last--
	}
	if !plain(buf[first:last]) {
		return Field{}, malformed("field %.40q has control characters in its value", buf[from:colon])
	}
	return Field{int32(from), int32(colon), int32(first), int32(last)}, nil
}

func (h *head) field(buf []byte, from, to int) error {
	f, err := parseField(buf, from, to)
	if err != nil {
		return err
	}
	if len(h.fields) == maxFields {
		return malformed("it has more than %d fields", maxFields)
	}
	h.fields = append(h.fields, f)
	name, value := buf[f.nameAt:f.nameEnd], buf[f.valueAt:f.valueEnd]
	switch {
	case fold(name, "content-length"):
		h.lengths++
		h.declared, err = parseLength(value)
	case fold(name, "transfer-encoding"):
		h.codings++
		if !fold(value, "chunked") {
			err = malformed("its Transfer-Encoding is %.40q, want chunked", value)
		}
	case fold(name, "connection"):
		for option := range items(value) {
			h.closes = h.closes || !fold(option, "keep-alive") // whatever else it says
		}
	case fold(name, "trailer"):
		for item := range items(value) {
			if fold(item, "content-length") || fold(item, "transfer-encoding") || fold(item, "trailer") {
				err = malformed("its Trailer announces %s", item)
			}
		}
	}
	return err
}

// items are those of a list (RFC 9110 section 5.6.1), but for empty ones.
func items(value []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for item := range bytes.SplitSeq(value, []byte(",")) {
			if item = bytes.Trim(item, " \t"); len(item) > 0 && !yield(item) {
				return
			}
		}
	}
}

// fold reports whether b is the lower-case text in whatever case.
func fold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

func parseLength(value []byte) (n int64, err error) {
	if len(value) == 0 || len(value) > 18 {
		return 0, malformed("its Content-Length is %.40q", value)
	}
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, malformed("its Content-Length is %.40q", value)
		}
		n = n*10 + int64(c-'0')
	}
	return n, nil
}

// frame says where the body ends, once all fields are known (RFC 9112 section 6.3).
func (h *head) frame(toHEAD bool) error {
	switch {
	case h.lengths > 1:
		return malformed("it has %d fields Content-Length", h.lengths)
	case h.codings > 1:
		return malformed("it has %d fields Transfer-Encoding", h.codings)
	case h.codings > 0 && h.lengths > 0:
		return malformed("it has both Content-Length and Transfer-Encoding")
	case h.codings > 0 && h.old:
		return malformed("it has Transfer-Encoding, and is of HTTP/1.0")
	}
	h.keep = !h.closes && !h.old
	switch {
	case h.status == 101:
		return malformed("it goes over to another protocol, which nobody asked for")
	case h.status < 200:
		if h.codings > 0 || h.declared > 0 {
			return malformed("it has status %d and a body", h.status)
		}
	case toHEAD:
	case h.status == 204 || h.status == 304:
		// A body would be taken for the next answer. One that is announced for 304 is that of a 200.
		h.keep = h.keep && h.codings == 0 && (h.status == 304 || h.declared == 0)
	case h.codings > 0:
		h.length = chunked
	case h.lengths > 0:
		h.length = h.declared
	default:
		h.length, h.keep = untilClose, false
	}
	return nil
}

// ValidField reports whether a field may be sent: its name is a token, and its value has no control
// characters but tabs.
func ValidField(name, value string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		if !token[name[i]] {
			return false
		}
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7F {
			return false
		}
	}
	return true
}
