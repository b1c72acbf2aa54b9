// Package sfv reads Lists of RFC 9651 whose members are Strings or Tokens, as RateLimit and RateLimit-Policy are.
package sfv

import (
	"strconv"
	"strings"
)

// Item is a member of a List of RFC 9651 section 3.1 that is a String or a Token,
// with its parameters.
type Item struct {
	Name   string
	Params map[string]Param
	Text   string // as it stands in the List
}

// Param is the value of a parameter, as far as RateLimit has a use for it: an
// Integer, a String or Token, or true.
type Param struct {
	Integer   int64
	IsInteger bool
	Text      string
	IsTrue    bool
}

// Integer is the parameter of a key, if it is an Integer.
func (i Item) Integer(key string) (int64, bool) {
	p := i.Params[key]
	return p.Integer, p.IsInteger
}

// maxItems bounds what is read of a field: a server that sends more is not
// describing quotas.
const maxItems = 64

// ParseList reads a List. It is false for what is not one, for one whose
// members are not all Strings or Tokens, and for one of more than 64.
func ParseList(field string) (items []Item, ok bool) {
	s := &scanner{rest: strings.Trim(field, " ")}
	for len(items) < maxItems {
		begin := s.rest
		name, ok := s.name()
		if !ok {
			return nil, false
		}
		params, ok := s.params()
		if !ok {
			return nil, false
		}
		items = append(items, Item{name, params, begin[:len(begin)-len(s.rest)]})
		s.blank()
		if s.rest == "" {
			return items, true
		}
		if !s.take(',') {
			return nil, false
		}
		s.blank()
	}
	return nil, false
}

// scanner reads from the front of rest.
type scanner struct{ rest string }

func (s *scanner) blank() { s.rest = strings.TrimLeft(s.rest, " \t") }

func (s *scanner) take(c byte) bool {
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// while takes the longest prefix of bytes that fit.
func (s *scanner) while(fits func(byte) bool) string {
	n := 0
	for n < len(s.rest) && fits(s.rest[n]) {
		n++
	}
	prefix := s.rest[:n]
	s.rest = s.rest[n:]
	return prefix
}

// name reads a String or a Token.
func (s *scanner) name() (string, bool) {
	if strings.HasPrefix(s.rest, `"`) {
		return s.text()
	}
	if s.rest == "" || !isAlpha(s.rest[0]) && s.rest[0] != '*' {
		return "", false
	}
	return s.while(func(c byte) bool { return isTokenChar(c) || c == ':' || c == '/' }), true
}

// text reads a String (RFC 9651 section 4.2.5).
func (s *scanner) text() (string, bool) {
	s.take('"')
	var b strings.Builder
	for s.rest != "" {
		c := s.rest[0]
		s.rest = s.rest[1:]
		switch {
		case c == '"':
			return b.String(), true
		case c == '\\':
			if s.rest == "" || s.rest[0] != '"' && s.rest[0] != '\\' {
				return "", false
			}
			b.WriteByte(s.rest[0])
			s.rest = s.rest[1:]
		case c < 0x20 || c > 0x7e:
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// params reads parameters (RFC 9651 section 4.2.3.2). Of two with one key, the last
// one counts.
func (s *scanner) params() (map[string]Param, bool) {
	params := make(map[string]Param)
	for s.take(';') {
		s.rest = strings.TrimLeft(s.rest, " ")
		if s.rest == "" || s.rest[0] != '*' && (s.rest[0] < 'a' || s.rest[0] > 'z') {
			return nil, false
		}
		key := s.while(isKeyChar)
		value, ok := Param{IsTrue: true}, true
		if s.take('=') {
			value, ok = s.value()
		}
		if !ok {
			return nil, false
		}
		params[key] = value
	}
	return params, true
}

// value reads a bare item of any type.
func (s *scanner) value() (p Param, ok bool) {
	if s.rest == "" {
		return Param{}, false
	}
	switch c := s.rest[0]; {
	case c == '"':
		p.Text, ok = s.text()
		return p, ok
	case c == ':':
		s.rest = s.rest[1:]
		s.while(isBase64)
		return Param{}, s.take(':')
	case c == '?':
		s.rest = s.rest[1:]
		p.IsTrue = s.take('1')
		return p, p.IsTrue || s.take('0')
	case c == '@':
		s.rest = s.rest[1:]
		_, _, ok = s.number()
		return Param{}, ok
	case c == '%':
		s.rest = s.rest[1:]
		_, ok = s.text()
		return Param{}, ok
	case c == '-' || isDigit(c):
		p.Integer, p.IsInteger, ok = s.number()
		return p, ok
	}
	p.Text, ok = s.name()
	return p, ok
}

// number reads an Integer of at most 15 digits, or a Decimal.
func (s *scanner) number() (n int64, isInteger, ok bool) {
	sign := int64(1)
	if s.take('-') {
		sign = -1
	}
	whole := s.while(isDigit)
	if whole == "" || len(whole) > 15 {
		return 0, false, false
	}
	if s.take('.') {
		fraction := s.while(isDigit)
		return 0, false, len(whole) <= 12 && len(fraction) >= 1 && len(fraction) <= 3
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	return sign * n, true, err == nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlpha(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isTokenChar(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func isKeyChar(c byte) bool {
	return c >= 'a' && c <= 'z' || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
}

func isBase64(c byte) bool {
	return isAlpha(c) || isDigit(c) || c == '+' || c == '/' || c == '='
}
