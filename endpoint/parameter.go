package endpoint

import (
	"iter"
	"strings"
)

// Parameter reports the value that a target gives a parameter of the template that it matched, so that two values are
// equal only where servers may read them as one. It is the part of the canonical form that stands for the parameter,
// and what programs commonly read in one way is one text: digits without the zeros before them, and a UUID (RFC 9562
// section 4) in lower case. The value is not bounded here.
//
//	GET /v1/customers/{customer}    /v1//customers/%30042?x    "42"
//	GET /files/{path...}            /files/a/b                 "a/b"
//
// It is false if the template has no such parameter, or more than one in its segment: where one of {a}-{b} ends
// cannot be told. Parameter allocates only where the target is not canonical, or a UUID not in lower case.
func (t *Table) Parameter(id ID, target, name string) (value string, ok bool) {
	p, ok := t.Template(id).parameter(name)
	if !ok {
		return "", false
	}
	path, fault := t.Canonical(target)
	if fault != NoFault {
		return "", false
	}
	if value, ok = p.in(path); !ok || value == "" {
		return "", false
	}
	return ParameterValue(value), true
}

// Parameters yields the parameters of a template whose values Table.Parameter tells.
func (t Template) Parameters() iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest := t.Path(); ; {
			_, after, ok := strings.Cut(rest, "{")
			if !ok {
				return
			}
			var name string
			name, rest, _ = strings.Cut(after, "}")
			name = strings.TrimSuffix(name, "...")
			if _, alone := t.parameter(name); alone && !yield(name) {
				return
			}
		}
	}
}

// place is where the value of a parameter stands in a path.
type place struct {
	segment        int // from 0
	prefix, suffix int // bytes of literal text around it in the segment
	rest           bool
}

// parameter finds a parameter that has its segment for itself. The first of a name counts.
func (t Template) parameter(name string) (p place, ok bool) {
	rest := strings.TrimPrefix(t.Path(), "/")
	for rest != "" && name != "" {
		var segment string
		segment, rest, _ = strings.Cut(rest, "/")
		open, end := strings.IndexByte(segment, '{'), strings.IndexByte(segment, '}')
		if open < 0 || strings.TrimSuffix(segment[open+1:end], "...") != name {
			p.segment++ // and where it stands behind another one, none is found
			continue
		}
		p.prefix, p.suffix = open, len(segment)-1-end
		if strings.HasPrefix(segment, "%3A") { // as templates write a colon
			p.prefix -= len("%3A") - len(":")
		}
		p.rest = strings.HasSuffix(segment[:end], "...")
		return p, strings.Count(segment, "{") == 1
	}
	return p, false
}

// in is the value in a canonical path, which matches the template.
func (p place) in(path string) (value string, ok bool) {
	rest := path
	for n := 0; ; n++ {
		_, rest, ok = strings.Cut(rest, "/")
		if !ok {
			return "", false
		}
		if n == p.segment {
			break
		}
	}
	if p.rest {
		return rest, true
	}
	segment, _, _ := strings.Cut(rest, "/")
	if len(segment) < p.prefix+p.suffix {
		return "", false
	}
	return segment[p.prefix : len(segment)-p.suffix], true
}

// ParameterValue is the value of a parameter as Table.Parameter tells it, of one that is canonical text: it makes one
// text of those that stand for one number or one UUID.
func ParameterValue(value string) string {
	switch {
	case strings.Trim(value, "0123456789") == "":
		if short := strings.TrimLeft(value, "0"); short != "" {
			return short
		}
		return "0"
	case isUUID(value):
		return strings.ToLower(value)
	}
	return value
}

func isUUID(s string) bool {
	if len(s) != len("00000000-0000-0000-0000-000000000000") {
		return false
	}
	for i := range len(s) {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (s[i] == '-') || !dash && unhex(s[i]) < 0 {
			return false
		}
	}
	return true
}
