package llm

import (
	"bytes"
	"encoding/binary"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// Answer reads one answer as it passes. Its zero value reads nothing until Begin.
type Answer struct {
	read  func(*Answer, []byte)
	json  scanner
	total counts

	// of a stream of events (WHATWG HTML section 9.2)
	line  []byte // the beginning of one, as far as it tells what the line is
	data  bool   // the line is data
	ended bool   // the last byte was a carriage return

	// of Amazon's frames
	head    [12]byte
	have    int
	skip    uint32 // bytes of headers to come
	payload uint32
	trailer uint32
}

// Begin says how the answer begins. A body that is not read, as it is compressed or of another
// kind, tells nothing but by fields of the header (Bedrock's invoke).
func (a *Answer) Begin(header http.Header) {
	*a = Answer{line: a.line[:0]}
	for name, key := range map[string]word{"X-Amzn-Bedrock-Input-Token-Count": inputKey,
		"X-Amzn-Bedrock-Output-Token-Count": outputKey} {
		if n, err := strconv.ParseInt(header.Get(name), 10, 64); err == nil && n >= 0 {
			a.total.by[key], a.total.known = bounded(n), true
		}
	}
	if encoding := header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return
	}
	switch kind, _, _ := mime.ParseMediaType(header.Get("Content-Type")); {
	case kind == "text/event-stream":
		a.read = (*Answer).events
	case kind == "application/vnd.amazon.eventstream":
		a.read = (*Answer).frames
	case kind == "application/json", strings.HasSuffix(kind, "+json"):
		a.read = func(a *Answer, p []byte) { a.json.write(p) }
	}
}

// Write reads the next piece of the body.
func (a *Answer) Write(p []byte) {
	if a.read != nil {
		a.read(a, p)
	}
}

// Usage is what the answer has said so far. Known is false if it has said nothing.
func (a *Answer) Usage() (u Usage, known bool) {
	all := a.total
	all.merge(&a.json.found)
	return all.usage(), all.known
}

// Written is how many bytes of text have passed, as JSON writes them.
func (a *Answer) Written() int64 { return a.json.written }

// next ends an event.
func (a *Answer) next() {
	a.total.merge(&a.json.found)
	a.json.found = counts{}
	a.json.reset()
}

// mostLine is how much of a line tells what it is: "event: response.output_text.done" is among the longest.
const mostLine = 64

func (a *Answer) events(p []byte) {
	for len(p) > 0 {
		c := p[0]
		switch {
		case c == '\n' && a.ended: // a carriage return has ended the line
			a.ended = false
		case c == '\n' || c == '\r':
			a.ended = c == '\r'
			a.endLine()
		case a.data:
			a.ended = false
			n := bytes.IndexAny(p, "\r\n")
			if n < 0 {
				n = len(p)
			}
			a.json.write(p[:n])
			p = p[n:]
			continue
		default:
			a.ended = false
			if len(a.line) < mostLine {
				a.line = append(a.line, c)
				a.data = string(a.line) == "data:"
			}
		}
		p = p[1:]
	}
}

func (a *Answer) endLine() {
	switch {
	case a.data:
		a.json.next('\n') // several lines of data are one text
	case len(a.line) == 0: // an empty line ends the event
		a.next()
	default:
		if name, ok := strings.CutPrefix(string(a.line), "event:"); ok {
			name = strings.TrimSpace(name)
			a.json.silent = strings.HasPrefix(name, "response.") && !strings.HasSuffix(name, ".delta")
		}
	}
	a.line, a.data = a.line[:0], false
}

// frames reads Amazon's event stream encoding: a prelude of the frame's length, that of its headers and a checksum, the
// headers, the payload and a checksum.
func (a *Answer) frames(p []byte) {
	for len(p) > 0 {
		switch {
		case a.have < len(a.head):
			n := copy(a.head[a.have:], p)
			a.have, p = a.have+n, p[n:]
			if a.have < len(a.head) {
				return
			}
			whole, headers := binary.BigEndian.Uint32(a.head[:4]), binary.BigEndian.Uint32(a.head[4:8])
			if whole < 16 || headers > whole-16 {
				a.read = nil // no frame, so nothing behind it is where it should be
				return
			}
			a.skip, a.payload, a.trailer = headers, whole-16-headers, 4
		case a.skip > 0:
			p = p[take(&a.skip, p):]
		case a.payload > 0:
			n := take(&a.payload, p)
			a.json.write(p[:n])
			p = p[n:]
		default:
			p = p[take(&a.trailer, p):]
			if a.trailer == 0 {
				a.have = 0
				a.next()
			}
		}
	}
}

// take takes as many of p off left as there are.
func take(left *uint32, p []byte) int {
	n := int(min(uint64(*left), uint64(len(p))))
	*left -= uint32(n)
	return n
}
