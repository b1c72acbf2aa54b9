package identity

import (
	"net/netip"
	"strings"
)

// RFC 7239 from the right.
//
//	Forwarded: for="6.6.6.6, for=203.0.113.9;proto=https, for="[2001:db8::7]:443"
//
// is read element by element from its right end: for="[2001:db8::7]:443", then
// for=203.0.113.9;proto=https. A comma inside a quoted string does not
// separate, and quotes pair up from the right as they do from the left, as
// long as they pair up at all. Here the first one does not: a client sent it.
// A parser that begins on the left reads `6.6.6.6, for=203.0.113.9;proto=https, for=`
// as one string and fails, so that any client could hide behind its proxy's
// address. From the right, what a client sent is always beyond its own hop.

// parseForwarded reads the address in the "for" parameter of one
// forwarded-element (RFC 7239 §4). Of the grammar it tolerates one breach:
// white space around the semicolons, which proxies write.
func parseForwarded(s string) (netip.Addr, Stop) {
	var node string
	var seen parameters
	for s != "" {
		if s[0] == ';' || blank(s[0]) {
			s = s[1:]
			continue
		}
		name, value, rest, ok := cutPair(s)
		if !ok {
			return netip.Addr{}, StopMalformed
		}
		which := parameterOf(name)
		if !seen.add(which) {
			return netip.Addr{}, StopMalformed
		}
		if which == parameterFor {
			node = value
			if node == "" {
				return netip.Addr{}, StopMalformed
			}
		}
		s = rest
	}
	return parseNode(node, false)
}

// parameters is the set of RFC 7239's own parameters seen in an element, each
// of which may be there once.
type parameters uint8

const (
	parameterFor parameters = 1 << iota
	parameterBy
	parameterHost
	parameterProto

	otherParameter parameters = 0
)

func (p *parameters) add(which parameters) (first bool) {
	first = *p&which == 0
	*p |= which
	return first
}

// parameterOf tells RFC 7239's own parameters apart, mostly by their length.
func parameterOf(name string) parameters {
	which, known := otherParameter, ""
	switch len(name) {
	case 2:
		which, known = parameterBy, "by"
	case 3:
		which, known = parameterFor, "for"
	case 4:
		which, known = parameterHost, "host"
	case 5:
		which, known = parameterProto, "proto"
	}
	if name != known && !strings.EqualFold(name, known) {
		return otherParameter
	}
	return which
}

// cutPair cuts name=value from s, up to the semicolon or the end.
func cutPair(s string) (name, value, rest string, ok bool) {
	name, s = cutToken(s)
	if name == "" || s == "" || s[0] != '=' {
		return "", "", "", false
	}
	s = s[1:]
	if s != "" && s[0] == '"' {
		value, s, ok = cutQuoted(s)
	} else {
		value, s = cutToken(s)
		ok = value != ""
	}
	s = trim(s)
	return name, value, s, ok && (s == "" || s[0] == ';')
}

// cutToken cuts a token (RFC 9110 §5.6.2) from the front of s. Colons and
// brackets are not part of one, so ports and IPv6 addresses must be quoted.
func cutToken(s string) (token, rest string) {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

var tokenBytes = func() (is [256]bool) {
	for c := range is {
		is[c] = alphanumeric(byte(c)) || strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0
	}
	return is
}()

// cutQuoted cuts a quoted-string (RFC 9110 §5.6.4) from the front of s and
// returns its content without the backslashes.
func cutQuoted(s string) (content, rest string, ok bool) {
	escaped := false
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			content = s[1:i]
			if escaped {
				content = unescape(content)
			}
			return content, s[i+1:], true
		case c == '\\':
			escaped = true
			if i++; i == len(s) || control(s[i]) {
				return "", "", false
			}
		case control(c):
			return "", "", false
		}
	}
	return "", "", false
}

func control(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }

// unescape is the one place of the walk that allocates: no proxy escapes an
// address.
func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++ // cutQuoted has seen that a byte follows
		}
		b = append(b, s[i])
	}
	return string(b)
}

// lastUnquotedComma reports the index of the last comma outside quoted
// strings, quotes paired from the right, or -1.
func lastUnquotedComma(s string) int {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch s[i] {
		case '"':
			if !quoted || !endsInEscape(s[:i]) {
				quoted = !quoted
			}
		case ',':
			if !quoted {
				return i
			}
		}
	}
	return -1
}

// endsInEscape reports whether s ends in an odd number of backslashes, so that
// what follows is part of a quoted string.
func endsInEscape(s string) bool {
	return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1
}
