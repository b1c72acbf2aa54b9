package identity

import (
	"net/netip"
	"strconv"
	"strings"
)

// How the client's address is found with trusted ranges; strategy.go has the
// other ways.
//
// Each proxy appends the address it was connected from, so a forwarding
// header grows to the right, and only what our own proxies appended is true.
// The walk starts at the peer and goes from the right end of the header to the
// left, as long as the hop just found is a trusted proxy, which vouches for
// the hop before it. With 10.0.0.0/8 trusted:
//
//	peer 10.0.0.1, X-Forwarded-For: 6.6.6.6, 203.0.113.9, 10.0.0.7
//
// 10.0.0.1 is trusted, so is 10.0.0.7; 203.0.113.9 is not, and it is the
// client. 6.6.6.6 is whatever that client chose to send. Nothing left of an
// untrusted hop is looked at, so it cannot make an invalid header of a valid
// one either.
//
// A hop that names no address ends the walk at the hop that reported it: the
// last address known to be true.

const (
	maxHops      = 64      // more proxies in a row than anyone has
	maxListBytes = 8 << 10 // of the header, from its right end
)

const (
	xForwardedFor = "X-Forwarded-For"
	forwarded     = "Forwarded" // RFC 7239
)

// Stop says why the walk to the client's address ended where it did.
type Stop uint8

const (
	stopNot           Stop = iota // still walking
	StopNoPeer                    // no peer address was given: headers are not read
	StopPeerUntrusted             // the peer is not a trusted proxy: headers are not read
	StopNoHeader                  // the trusted peer sent no forwarding header
	StopUntrusted                 // the hop is outside TrustedProxies: the usual end
	StopAllTrusted                // every hop was trusted: the leftmost one counts
	StopEmpty                     // the next hop is empty or names no client
	StopUnknown                   // the next hop is "unknown" or an unspecified address
	StopObfuscated                // the next hop is an obfuscated name such as "_gazonk"
	StopMalformed                 // the next hop is no address
	StopTooLong                   // 64 hops or 8 KiB were looked at
	StopCounted                   // TrustedCount: the hop is the ProxyCount-th
	StopTooFew                    // TrustedCount: the header has fewer hops, so the peer counts
	StopNamed                     // SingleHeader: ClientHeader names the address
	StopRepeated                  // SingleHeader: ClientHeader has several lines, so the peer counts
	stops                         // how many there are
)

var stopNames = [stops]string{
	stopNot:           "not resolved",
	StopNoPeer:        "no peer address was given",
	StopPeerUntrusted: "the peer is not a trusted proxy, so headers are not read",
	StopNoHeader:      "the trusted peer sent no forwarding header",
	StopUntrusted:     "the first address outside the trusted proxies",
	StopAllTrusted:    "every hop is a trusted proxy",
	StopEmpty:         "the hop before it is empty",
	StopUnknown:       "the hop before it is unknown",
	StopObfuscated:    "the hop before it is obfuscated",
	StopMalformed:     "the hop before it is not an address",
	StopTooLong:       "the header is too long to look further",
	StopCounted:       "as many hops as there are proxies",
	StopTooFew:        "the header has fewer hops than there are proxies",
	StopNamed:         "the one address that the trusted peer names",
	StopRepeated:      "the header has more than one line",
}

// String returns a sentence fragment for people.
func (s Stop) String() string {
	if s < stops {
		return stopNames[s]
	}
	return "Stop(" + strconv.Itoa(int(s)) + ")"
}

// Hop says how the client's address was found.
type Hop struct {
	Header string // the forwarding header that was read; empty if none was
	Index  int    // 0 is the peer, 1 the rightmost hop of Header, and so on leftwards
	Stop   Stop   // why the walk ended there
}

// String returns a sentence fragment for people, such as
// "hop 2 from the right of X-Forwarded-For: the first address outside the trusted proxies".
func (h Hop) String() string {
	switch {
	case h.Header == "":
		return h.Stop.String()
	case h.Stop == StopNamed:
		return h.Header + ": " + h.Stop.String()
	case h.Index == 0:
		return "the peer, " + h.Header + " was read: " + h.Stop.String()
	}
	return "hop " + strconv.Itoa(h.Index) + " from the right of " + h.Header + ": " + h.Stop.String()
}

// walk goes from the trusted peer to the client's address.
func (r *Resolver) walk(client netip.Addr, lines []string) (netip.Addr, Hop) {
	hop := Hop{Header: r.addressHeader}
	hops := hopList{lines: lines, quotes: r.rfc7239, bytes: maxListBytes}
	for {
		next, stop := r.next(&hops, hop.Index)
		if stop != stopNot {
			hop.Stop = stop
			break
		}
		client = next
		hop.Index++
		if !r.trusted.contains(client) {
			hop.Stop = StopUntrusted
			break
		}
	}
	return client, hop
}

// next reads one more hop from the right, after the first walked ones.
func (r *Resolver) next(l *hopList, walked int) (netip.Addr, Stop) {
	if walked == maxHops && !l.empty() {
		return netip.Addr{}, StopTooLong
	}
	element, stop := l.pop()
	switch {
	case stop != stopNot:
		return netip.Addr{}, stop
	case r.rfc7239:
		return parseForwarded(element)
	}
	return parseNode(element, true)
}

// plain is a in the one form that is compared, masked and kept: unmapped and
// without a zone. An unspecified address names no host and gives none.
func plain(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// hopList reads a header's elements from the right. All its lines are one list
// (RFC 9110 §5.3).
type hopList struct {
	lines  []string // not begun
	line   string   // what is left of the line begun
	begun  bool     // line has another element, perhaps an empty one
	quotes bool     // a comma inside a quoted string does not separate
	bytes  int      // how many more may be looked at
}

func (l *hopList) empty() bool { return !l.begun && len(l.lines) == 0 }

// pop returns the rightmost element without the white space around it, or why
// there is none.
func (l *hopList) pop() (element string, stop Stop) {
	if l.empty() {
		return "", StopAllTrusted
	}
	if !l.begun {
		last := len(l.lines) - 1
		l.line, l.lines, l.begun = l.lines[last], l.lines[:last], true
	}
	window := l.line[max(0, len(l.line)-l.bytes):]
	comma := l.lastComma(window)
	if comma < 0 && len(window) < len(l.line) {
		return "", StopTooLong
	}
	element = window[comma+1:]
	l.bytes -= min(l.bytes, len(element)+1)
	l.begun = comma >= 0
	if l.begun {
		l.line = l.line[:len(l.line)-len(element)-1]
	}
	return trim(element), stopNot
}

func (l *hopList) lastComma(s string) int {
	if l.quotes {
		return lastUnquotedComma(s)
	}
	return strings.LastIndexByte(s, ',')
}

// trim removes optional white space (RFC 9110 §5.6.3).
func trim(s string) string {
	for s != "" && blank(s[0]) {
		s = s[1:]
	}
	for s != "" && blank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// parseNode reads the address of one hop: an IPv4 address, an IPv6 address in
// brackets, or, if bare is set, one without; a port may follow. It is the node
// of RFC 7239 §6, and what X-Forwarded-For holds by custom.
func parseNode(s string, bare bool) (netip.Addr, Stop) {
	switch {
	case s == "":
		return netip.Addr{}, StopEmpty
	case s[0] == '[':
		host, port, closed := strings.Cut(s[1:], "]")
		if !closed || !validPort(port) {
			return netip.Addr{}, StopMalformed
		}
		return parseIPv6(host)
	}
	colon := strings.IndexByte(s, ':')
	if colon < 0 {
		return parseName(s)
	}
	if strings.IndexByte(s[colon+1:], ':') >= 0 {
		if !bare {
			return netip.Addr{}, StopMalformed
		}
		return parseIPv6(s)
	}
	if !validPort(s[colon:]) {
		return netip.Addr{}, StopMalformed
	}
	return parseName(s[:colon])
}

// parseName reads what may stand without brackets: an IPv4 address, "unknown"
// or an obfuscated name.
func parseName(s string) (netip.Addr, Stop) {
	if a, ok := parseIPv4(s); ok {
		return known(a)
	}
	switch {
	case strings.EqualFold(s, "unknown"):
		return netip.Addr{}, StopUnknown
	case len(s) > 1 && s[0] == '_' && isName(s[1:]):
		return netip.Addr{}, StopObfuscated
	}
	return netip.Addr{}, StopMalformed
}

// parseIPv4 reads the four decimal numbers of an IPv4 address and nothing
// else: no leading zeros, which some read as octal, and no fewer parts. It
// accepts what netip.ParseAddr does; that allocates an error for what it
// refuses.
func parseIPv4(s string) (netip.Addr, bool) {
	var octets [4]byte
	n, value, digits := 0, 0, 0
	for i := range len(s) {
		c := s[i]
		switch {
		case '0' <= c && c <= '9' && (value > 0 || digits == 0):
			if value = 10*value + int(c-'0'); value > 255 {
				return netip.Addr{}, false
			}
			digits++
		case c == '.' && digits > 0 && n < 3:
			octets[n] = byte(value)
			n, value, digits = n+1, 0, 0
		default:
			return netip.Addr{}, false
		}
	}
	octets[3] = byte(value)
	return netip.AddrFrom4(octets), n == 3 && digits > 0
}

// parseIPv6 reads an IPv6 address and drops its zone, which means nothing
// outside the machine that wrote it.
func parseIPv6(s string) (netip.Addr, Stop) {
	s, zone, zoned := strings.Cut(s, "%")
	if zoned && !isName(zone) {
		return netip.Addr{}, StopMalformed
	}
	const longest = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
	// Garbage is sorted out first, because ParseAddr allocates an error.
	if len(s) > longest || !couldBeIPv6(s) {
		return netip.Addr{}, StopMalformed
	}
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() {
		return netip.Addr{}, StopMalformed
	}
	return known(a)
}

func known(a netip.Addr) (netip.Addr, Stop) {
	if a = plain(a); !a.IsValid() {
		return a, StopUnknown
	}
	return a, stopNot
}

func couldBeIPv6(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f', 'A' <= c && c <= 'F', c == ':', c == '.':
		default:
			return false
		}
	}
	return true
}

// validPort reports whether s is empty or a colon with a port, which may be
// obfuscated (RFC 7239 §6.2, §6.3). What the port is does not matter.
func validPort(s string) bool {
	if s == "" {
		return true
	}
	if s[0] != ':' || len(s) == 1 {
		return false
	}
	if s[1] == '_' {
		return isName(s[2:])
	}
	for i := range len(s[1:]) {
		if c := s[1+i]; c < '0' || '9' < c {
			return false
		}
	}
	return len(s) <= len(":65535")
}

// isName reports whether s is what may follow the underscore of an obfuscated
// name (RFC 7239 §6.3).
func isName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case alphanumeric(c), c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return s != ""
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
