package pattern

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// splitServeMux takes a pattern "METHOD HOST/PATH" apart, whose method and host may be absent.
func splitServeMux(r Route) (method, host, path string, err error) {
	path = r.Pattern
	if m, after, ok := strings.Cut(path, " "); ok {
		method, path = m, strings.TrimLeft(after, " \t")
	}
	switch {
	case r.Method != "" && method != "" && r.Method != method:
		return "", "", "", fmt.Errorf("method is %q, and %q in the pattern, want one", r.Method, method)
	case method == "":
		method = r.Method
	}
	slash := strings.IndexByte(path, '/')
	if slash < 0 {
		return "", "", "", fmt.Errorf("path is %q, want one that starts with /", path)
	}
	return method, path[:slash], path[slash:], nil
}

// oneHost refuses patterns of several hosts: templates have none, so what one host serves would be counted as what
// another does.
func oneHost(routes []route) error {
	for _, r := range routes {
		if r.host != routes[0].host {
			return fmt.Errorf("servemux patterns %q and %q differ in their hosts %q and %q, want one: templates "+
				"have no host, so give each its own list and limiter",
				routes[0].pattern, r.pattern, routes[0].host, r.host)
		}
	}
	return nil
}

func serveMuxPart(text string) (p part, end bool, err error) {
	if !strings.ContainsAny(text, "{}") {
		plain, err := url.PathUnescape(text)
		if err != nil {
			plain = text // as ServeMux has it
		}
		return literalPart(plain), false, nil
	}
	name, opened := strings.CutPrefix(text, "{")
	name, closed := strings.CutSuffix(name, "}")
	if !opened || !closed || name == "" {
		return part{}, false, fmt.Errorf("segment is %q, want {name} alone", text)
	}
	if name == "$" {
		return part{}, true, nil
	}
	if name, ok := strings.CutSuffix(name, "..."); ok {
		return part{kind: rest, name: safe(name)}, true, nil
	}
	return part{kind: param, name: safe(name)}, false, nil
}

// chiPart reads text with {name}, {name:expression} and * in it. A parameter of chi ends at the first byte that is
// the one after it in the pattern, where a template lets it reach to the last.
func chiPart(text string) (p part, end bool, err error) {
	if text == "*" {
		return part{kind: rest, name: "rest"}, true, nil
	}
	var around []string // the text between parameters
	var params []string
	left := text
	for {
		opens := strings.IndexByte(left, '{')
		if opens < 0 {
			break
		}
		closes := closing(left, opens)
		name, expression, isExpression := strings.Cut(left[opens+1:closes], ":")
		if name == "" {
			return part{}, false, fmt.Errorf("segment is %q, want a name in its braces", text)
		}
		if isExpression {
			p.wide = true
			if closes+1 < len(left) {
				return part{}, false,
					fmt.Errorf(
						"parameter %q has an expression, and text after it, want none: chi lets it take slashes "+
							"then", "{"+name+":"+expression+"}")
			}
		}
		around, params = append(around, left[:opens]), append(params, safe(name))
		left = left[closes+1:]
	}
	if strings.Contains(text, "*") && (len(params) == 0 || strings.Contains(strings.Join(around, "")+left, "*")) {
		return part{}, false, fmt.Errorf("segment is %q, want * alone: a template cannot end within a segment", text)
	}
	if len(params) == 0 {
		p := literalPart(text)
		if p.prefix != text {
			return part{}, false,
				fmt.Errorf("segment is %q, want only what needs no escape: chi compares the escapes of a client", text)
		}
		p.wide = !unreserved(text)
		return p, false, nil
	}
	p.kind, p.name = param, strings.Join(params, "-")
	p.prefix, p.suffix = canonical(around[0]), canonical(left)
	if len(params) > 1 || left != "" || !unreserved(around[0]) {
		p.wide = true
	}
	return p, false, nil
}

// closing returns where the brace at opens is closed.
func closing(text string, opens int) int {
	depth := 0
	for i := opens; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(text) - 1
}

// colonPart reads text with :name or *name in it, which reach to the end of the segment.
func colonPart(text string, d Dialect) (p part, end bool, err error) {
	i := strings.IndexAny(text, ":*")
	switch {
	case strings.Contains(text, `\`):
		return part{}, false, fmt.Errorf(`segment is %q, want no \: a template cannot hold what it escapes`, text)
	case i < 0:
		p := literalPart(text)
		if d == Echo {
			if p.prefix != text {
				return part{}, false,
					fmt.Errorf("segment is %q, want only what needs no escape: echo compares the escapes of a client",
						text)
			}
			p.wide = !unreserved(text)
		}
		return p, false, nil
	case strings.ContainsAny(text[i+1:], ":*"):
		return part{}, false, fmt.Errorf("segment is %q, want one parameter in it", text)
	case text[i] == '*' && i > 0:
		return part{}, false, fmt.Errorf("segment is %q, want * at its start: a template cannot end within a segment",
			text)
	case text[i] == '*' && d == Gin && text == "*":
		return part{}, false, errors.New(`segment is "*", want a name after it`)
	case text[i] == '*':
		return part{kind: rest, name: safe(text[1:])}, true, nil
	case i == len(text)-1:
		return part{}, false, fmt.Errorf("segment is %q, want a name after the colon", text)
	}
	return part{
		kind:   param,
		name:   safe(text[i+1:]),
		prefix: canonical(text[:i]),
		wide:   d == Echo && !unreserved(text[:i]),
	}, false, nil
}

// fiberPart reads plain text, :name, or * or + at the end. Fiber has more, such as several parameters in a
// segment, optional ones and constraints, for which there is no template.
func fiberPart(text string) (p part, end bool, err error) {
	name, isParam := strings.CutPrefix(text, ":")
	switch {
	case text == "*" || text == "+":
		return part{kind: rest, name: "rest"}, true, nil
	case isParam && name != "" && unreserved(name) && !strings.ContainsAny(name, "-.~"):
		return part{kind: param, name: safe(name)}, false, nil
	case isParam:
		return part{}, false, fmt.Errorf("segment is %q, want :name alone: no template has what fiber reads besides",
			text)
	case !unreserved(text):
		return part{}, false,
			fmt.Errorf("segment is %q, want letters, digits and - . _ ~ alone, :name, or * or + at the end", text)
	}
	return literalPart(text), false, nil
}

// outOfOrder reports the routes of fiber that one before them serves, although templates choose them: all of
// their paths or some.
func outOfOrder(routes []route) (faults []error) {
	folded := slices.Clone(routes)
	for i := range folded {
		folded[i].parts = slices.Clone(folded[i].parts)
		for n := range folded[i].parts {
			folded[i].parts[n].prefix = strings.ToLower(folded[i].parts[n].prefix)
		}
	}
	reported := make(map[[2]string]bool)
	for j := range folded {
		for i := range folded[:j] {
			first, second := routes[i], routes[j]
			pair := [2]string{first.pattern, second.pattern}
			if first.method != second.method || first.shape() == second.shape() || first.pattern == second.pattern ||
				reported[pair] || !overlap(folded[i].parts, folded[j].parts) {
				continue
			}
			switch {
			case moreSpecific(folded[j], folded[i]) || first.bare && !second.bare:
				faults = append(faults,
					fmt.Errorf("fiber pattern %q: %q stands before it, and serves paths of both: register the more "+
						"specific one first", second.pattern, first.pattern))
			case !overlap(first.parts, second.parts):
				faults = append(faults,
					fmt.Errorf("fiber pattern %q: it differs from %q, which stands before it, in letter case, want "+
						"another path", second.pattern, first.pattern))
			default:
				continue
			}
			reported[pair] = true
		}
	}
	return faults
}

// takeSlashes lets the last parameter of echo's routes take what follows, slashes included, where
// no route goes on behind it.
func takeSlashes(routes []route) (faults []error) {
	goesOn := make(map[string]bool)
	for _, r := range routes {
		key := ""
		for i, p := range r.parts {
			key += "/" + p.prefix
			if p.kind == param {
				key += ":"
			}
			goesOn[key] = goesOn[key] || i < len(r.parts)-1 || endsInSlash(r.pattern)
		}
	}
	for n, r := range routes {
		key := ""
		for i, p := range r.parts {
			key += "/" + p.prefix
			if p.kind == param {
				key += ":"
			}
			if i < len(r.parts)-1 || p.kind != param || goesOn[key] {
				continue
			}
			if p.prefix != "" {
				faults = append(faults,
					fmt.Errorf("echo pattern %q: its parameter takes slashes too, because no route goes on behind "+
						"it, want no text before it or another slash at the end", r.pattern))
			}
			routes[n].parts = append(append([]part{}, r.parts[:i]...), part{kind: rest, name: p.name})
		}
	}
	return faults
}

func endsInSlash(pattern string) bool { return len(pattern) > 1 && strings.HasSuffix(pattern, "/") }

// safe returns a name that templates can have: theirs mean nothing to matching.
func safe(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || strings.IndexByte("_-[]", c) >= 0 ||
			c == '.' && b.Len() > 0 {
			b.WriteByte(c)
		} else {
			b.WriteByte('_')
		}
	}
	if b.Len() == 0 {
		return "rest"
	}
	return strings.TrimRight(b.String(), ".")
}

// unreserved reports whether no client writes text in another way: it has neither reserved characters nor escapes.
func unreserved(text string) bool {
	for _, c := range []byte(text) {
		if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || strings.IndexByte("-._~", c) >= 0) {
			return false
		}
	}
	return true
}
