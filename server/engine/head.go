package engine

import (
	"bytes"
	"net/http"
	"net/textproto"
)

// What is plain is short.
const (
	maxHead   = 4 << 10 // bytes of a head
	maxFields = 64      // of a head
)

// verdict is what was made of the bytes that have come.
type verdict uint8

const (
	incomplete verdict = iota // plain so far
	plain                     // a whole head
	other                     // for net/http, which sees the same bytes
	later                     // nothing has come for a while
)

// head is what was read of the head of a request. Texts are parts of one copy of it.
type head struct {
	method, target, host string
	fields               []field // without Host
	length               int64   // of the body; 0 if there is none
	closes               bool    // the client wants the connection to end
	size                 int     // of the head in bytes

	text string // all of it

	at, scanned int // where the present line begins, and what was looked at for its end
	marks       []mark
	hosts       int
	lengths     int
	connections int
	hostAt      mark
	targetAt    mark

	without rule // is not applied; in tests
}

// field is a field with its name in canonical form.
type field struct{ name, value string }

// mark is where a field stands in the text.
type mark struct{ nameAt, nameEnd, valueAt, valueEnd int }

// rule is one of those that make a head plain. Tests take out one at a time, to see that the comparison with net/http
// would notice.
type rule uint8

const (
	none rule = iota
	knownMethod
	originForm
	targetBytes
	percentPairs
	version11
	lineEnds
	firstLine
	nameBytes
	spaceBeforeColon
	noUnderscore
	valueBytes
	oneHost
	hostBytes
	oneLength
	lengthDigits
	noCoding
	connectionOptions
	noPragma
	noExpect
	noUpgrade
	noTrailer
	rules // how many there are
)

// holds reports whether a rule is applied. It is asked where one was broken, and nowhere else.
func (h *head) holds(r rule) bool { return h.without != r }

// begin forgets a head that was not finished, or that is over.
func (h *head) begin() {
	h.at, h.scanned, h.hosts, h.lengths, h.connections, h.length, h.closes = 0, 0, 0, 0, 0, 0, false
	h.marks, h.method = h.marks[:0], ""
}

// read goes on with a head that begins at buf[0], of which more has come.
func (h *head) read(buf []byte) verdict {
	// Most requests of a connection have the same head, byte by byte.
	if h.at == 0 && h.size > 0 && len(buf) >= h.size && string(buf[:h.size]) == h.text {
		return plain
	}
	if h.size > 0 { // of the head before
		h.size = 0
		h.begin()
	}
	for {
		n := bytes.IndexByte(buf[h.scanned:], '\n')
		if n < 0 {
			h.scanned = len(buf)
			if len(buf) >= maxHead {
				return other
			}
			return incomplete
		}
		end := h.scanned + n
		from, to := h.at, end
		if end > from && buf[end-1] == '\r' {
			to--
		} else if h.holds(lineEnds) {
			return other
		}
		h.at, h.scanned = end+1, end+1
		if h.at > maxHead {
			return other
		}
		switch {
		case h.method == "":
			if from == to && !h.holds(firstLine) {
				continue
			}
			if !h.requestLine(buf, from, to) {
				return other
			}
		case from == to:
			if h.hosts != 1 && h.holds(oneHost) {
				return other
			}
			h.keep(buf[:end+1])
			return plain
		case !h.field(buf, from, to):
			return other
		}
	}
}

// methods are those that are plain. CONNECT and PRI are no requests for a resource.
var methods = [...]string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch,
	http.MethodHead, http.MethodOptions}

// requestLine reads GET /path?query HTTP/1.1.
func (h *head) requestLine(buf []byte, from, to int) bool {
	line := buf[from:to]
	space := bytes.IndexByte(line, ' ')
	if space <= 0 {
		return false
	}
	for _, m := range methods {
		if string(line[:space]) == m {
			h.method = m
		}
	}
	if h.method == "" {
		if h.holds(knownMethod) {
			return false
		}
		h.method = string(line[:space])
	}
	rest := line[space+1:]
	const version = " HTTP/1.1"
	end := len(rest) - len(version)
	if end < 1 {
		return false
	}
	if string(rest[end:]) != version && h.holds(version11) {
		return false
	}
	target := rest[:end]
	if target[0] != '/' && h.holds(originForm) {
		return false
	}
	for i, c := range target {
		switch {
		case is[c]&inTarget != 0:
		case c == '%':
			if (i+2 >= len(target) || is[target[i+1]]&hex == 0 || is[target[i+2]]&hex == 0) && h.holds(percentPairs) {
				return false
			}
		case h.holds(targetBytes):
			return false
		}
	}
	h.targetAt = mark{valueAt: from + space + 1, valueEnd: from + space + 1 + end}
	return true
}

// What bytes may stand in.
const (
	inTarget uint8 = 1 << iota // as they are
	hex
	inName
	inValue
	inHost
)

var is = func() (is [256]uint8) {
	for c := range 256 {
		b := byte(c)
		letter := 'a' <= b|0x20 && b|0x20 <= 'z' && b < 0x80
		digit := '0' <= b && b <= '9'
		if letter || digit || bytes.IndexByte([]byte("-._~!$&'()*+,;=:@/?"), b) >= 0 { // RFC 3986 section 3.3, 3.4
			is[c] |= inTarget
		}
		if digit || 'a' <= b|0x20 && b|0x20 <= 'f' {
			is[c] |= hex
		}
		if letter || digit || b == '-' {
			is[c] |= inName
		}
		if ' ' <= b && b <= '~' || b == '\t' {
			is[c] |= inValue
		}
		if letter || digit || bytes.IndexByte([]byte("-.:[]"), b) >= 0 {
			is[c] |= inHost
		}
	}
	return is
}()

// field reads Name: value.
func (h *head) field(buf []byte, from, to int) bool {
	colon := from
	for colon < to && is[buf[colon]]&inName != 0 {
		colon++
	}
	nameEnd := colon
	if colon == from || colon == to || buf[colon] != ':' {
		if colon = h.otherName(buf, from, to); colon < 0 {
			return false
		}
		nameEnd = colon
		for nameEnd > from && buf[nameEnd-1] == ' ' {
			nameEnd--
		}
	}
	first, last := colon+1, to
	for first < last && (buf[first] == ' ' || buf[first] == '\t') {
		first++
	}
	for last > first && (buf[last-1] == ' ' || buf[last-1] == '\t') {
		last--
	}
	for _, c := range buf[first:last] {
		if is[c]&inValue == 0 && h.holds(valueBytes) {
			return false
		}
	}
	if len(h.marks) == maxFields {
		return false
	}
	return h.frames(buf[from:nameEnd], buf[first:last], mark{from, nameEnd, first, last})
}

// otherName returns where the colon of a field is whose name is none of ours, or -1. Only a test asks for it.
func (h *head) otherName(buf []byte, from, to int) int {
	colon := bytes.IndexByte(buf[from:to], ':')
	if colon <= 0 {
		return -1
	}
	for _, c := range buf[from : from+colon] {
		switch {
		case is[c]&inName != 0:
		case c == '_' && !h.holds(noUnderscore):
		case c == ' ' && !h.holds(spaceBeforeColon):
		case !h.holds(nameBytes):
		default:
			return -1
		}
	}
	return from + colon
}

// frames reads the fields that say where a request ends, or what becomes of the connection, and notes all others. It
// reports whether net/http may be spared the request.
func (h *head) frames(name, value []byte, m mark) bool {
	switch len(name) {
	case len("Te"):
		if fold(name, "te") {
			return !h.holds(noTrailer) && h.note(m)
		}
	case len("Host"):
		if fold(name, "host") {
			h.hosts++
			h.hostAt = m
			return (h.hosts == 1 || !h.holds(oneHost)) && (hostLike(value) || !h.holds(hostBytes))
		}
	case len("Expect"): // and Pragma
		if fold(name, "expect") {
			return !h.holds(noExpect) && h.note(m)
		}
		if fold(name, "pragma") {
			return !h.holds(noPragma) && h.note(m)
		}
	case len("Upgrade"): // and Trailer
		if fold(name, "upgrade") {
			return !h.holds(noUpgrade) && h.note(m)
		}
		if fold(name, "trailer") {
			return !h.holds(noTrailer) && h.note(m)
		}
	case len("Connection"):
		if fold(name, "connection") {
			h.connections++
			closes := fold(value, "close")
			if (h.connections > 1 || !closes && !fold(value, "keep-alive")) && h.holds(connectionOptions) {
				return false
			}
			h.closes = h.closes || closes
		}
	case len("Content-Length"): // and HTTP2-Settings
		if fold(name, "content-length") {
			h.lengths++
			n, ok := parseLength(value)
			if !ok && h.holds(lengthDigits) || h.lengths > 1 && h.holds(oneLength) {
				return false
			}
			h.length = n
		}
		if fold(name, "http2-settings") {
			return !h.holds(noUpgrade) && h.note(m)
		}
	case len("Transfer-Encoding"):
		if fold(name, "transfer-encoding") {
			return !h.holds(noCoding) && h.note(m)
		}
	case len("Proxy-Connection"):
		if fold(name, "proxy-connection") {
			return !h.holds(connectionOptions) && h.note(m)
		}
	}
	return h.note(m)
}

func (h *head) note(m mark) bool {
	h.marks = append(h.marks, m)
	return true
}

// hostLike reports whether a Host is a name or an address, perhaps with a port. That it means something is for others
// to see; it is the same for all.
func hostLike(value []byte) bool {
	for _, c := range value {
		if is[c]&inHost == 0 {
			return false
		}
	}
	return len(value) > 0
}

// parseLength reads digits alone.
func parseLength(value []byte) (n int64, ok bool) {
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(value) > 0 && len(value) <= 15
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

// keep copies a head that is whole, which stays behind as long as anybody has a part of it.
func (h *head) keep(buf []byte) {
	h.text, h.size = string(buf), len(buf)
	h.target = h.text[h.targetAt.valueAt:h.targetAt.valueEnd]
	h.host = h.text[h.hostAt.valueAt:h.hostAt.valueEnd]
	h.fields = h.fields[:0]
	for _, m := range h.marks {
		h.fields = append(h.fields, field{canonical(buf[m.nameAt:m.nameEnd]), h.text[m.valueAt:m.valueEnd]})
	}
	h.at = 0
}

// canonical returns the form of a name in http.Header.
func canonical(name []byte) string {
	if known, ok := names[string(name)]; ok {
		return known
	}
	return textproto.CanonicalMIMEHeaderKey(string(name))
}

// names are those of common fields, as they are written, by how they are kept.
var names = func() map[string]string {
	known := map[string]string{}
	for _, name := range []string{"Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Cache-Control",
		"Connection", "Content-Length", "Content-Type", "Cookie", "Dnt", "Forwarded", "If-Modified-Since",
		"If-None-Match", "Idempotency-Key", "Origin", "Priority", "Range", "Referer", "Sec-Fetch-Dest",
		"Sec-Fetch-Mode",
		"Sec-Fetch-Site", "Sec-Fetch-User", "Traceparent", "Upgrade-Insecure-Requests", "User-Agent", "X-Api-Key",
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "X-Request-Id"} {
		known[name] = name
		known[string(bytes.ToLower([]byte(name)))] = name
	}
	for written, kept := range map[string]string{"DNT": "Dnt", "X-API-Key": "X-Api-Key", "X-Real-IP": "X-Real-Ip",
		"X-Request-ID": "X-Request-Id"} {
		known[written] = kept
	}
	return known
}()
