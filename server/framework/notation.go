package framework

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxAlternatives bounds the ways in which a route with optional parts may be written.
const maxAlternatives = 16

// part is a token, or parts that may be absent.
type part struct {
	token
	optional []part
}

// alternatives are the ways to write a route: with and without each optional part, the shortest first.
func alternatives(parts []part) ([][]token, error) {
	all := [][]token{nil}
	for _, p := range parts {
		var behind [][]token
		if p.optional == nil {
			behind = [][]token{{p.token}}
		} else {
			var err error
			if behind, err = alternatives(p.optional); err != nil {
				return nil, err
			}
			behind = append([][]token{nil}, behind...)
		}
		if len(all)*len(behind) > maxAlternatives {
			return nil, fmt.Errorf("it can be written in more than %d ways", maxAlternatives)
		}
		var next [][]token
		for _, before := range all {
			for _, b := range behind {
				next = append(next, append(slices.Clone(before), b...))
			}
		}
		all = next
	}
	return all, nil
}

func plain(text string) part { return part{token: token{text: text}} }

// parameter is a parameter that must match an expression, in the notation of regular expressions that all of the
// frameworks share; "" for a segment of any text.
func parameter(name, expression string) (part, error) {
	if name == "" {
		name = "part"
	}
	t := token{name: name}
	switch expression {
	case "", "[^/]+", "[^/]+?", "[^/.]+", "[^./]+":
		return part{token: t}, nil
	case ".*", "(.*)":
		t.slash = true
		return part{optional: []part{{token: t}}}, nil
	case ".+", ".+?", "[^/].*?", "[^/].*":
		t.slash = true
		return part{token: t}, nil
	}
	slash, bare, err := holds(expression)
	if err != nil {
		return part{}, err
	}
	t.slash = slash
	t.expr = expression
	if bare {
		return part{optional: []part{{token: t}}}, nil
	}
	return part{token: t}, nil
}

// braces reads {name} and {name:convertor} of Starlette. where has the expression of each parameter.
func braces(text string, where map[string]string) (parts []part, err error) {
	for text != "" {
		before, behind, ok := strings.Cut(text, "{")
		if before != "" {
			parts = append(parts, plain(before))
		}
		if !ok {
			break
		}
		inner, rest, ok := strings.Cut(behind, "}")
		if !ok {
			return nil, errors.New("a brace is not closed")
		}
		name, _, _ := strings.Cut(inner, ":")
		p, err := parameter(name, where[name])
		if err != nil {
			return nil, err
		}
		parts, text = append(parts, p), rest
	}
	return parts, nil
}

// converters are those of Flask, and of Django where a list says no expression.
var converters = map[string]string{
	"": "[^/]+", "str": "[^/]+", "string": "[^/]+", "path": "[^/].*?", "int": "[0-9]+", "float": `[0-9]+\.[0-9]+`,
	"slug": "[-a-zA-Z0-9_]+",
	"uuid": "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
}

// angles reads <name>, <converter:name> and <converter(arguments):name> of Django and Flask. where has the
// expressions that are known of parameters.
func angles(text string, where map[string]string) (parts []part, err error) {
	for text != "" {
		before, behind, ok := strings.Cut(text, "<")
		if before != "" {
			parts = append(parts, plain(before))
		}
		if !ok {
			break
		}
		inner, rest, ok := strings.Cut(behind, ">")
		if !ok {
			return nil, errors.New("< is not closed")
		}
		converter, name, ok := cutLast(inner, ":")
		if !ok {
			converter, name = "", inner
		}
		expression, known := where[name]
		if !known {
			if expression, err = converted(converter); err != nil {
				return nil, err
			}
		}
		p, err := parameter(name, expression)
		if err != nil {
			return nil, err
		}
		parts, text = append(parts, p), rest
	}
	return parts, nil
}

// converted is the expression of a converter, whose arguments bound lengths and values.
func converted(converter string) (string, error) {
	name, arguments, _ := strings.Cut(converter, "(")
	if name == "any" {
		var words []string
		for _, word := range strings.Split(strings.TrimSuffix(arguments, ")"), ",") {
			words = append(words, regexp.QuoteMeta(strings.Trim(strings.TrimSpace(word), `'"`)))
		}
		return strings.Join(words, "|"), nil
	}
	if name == "int" && strings.Contains(arguments, "signed") {
		return "-?[0-9]+", nil
	}
	expression, ok := converters[name]
	if !ok {
		return "", fmt.Errorf("converter %s is not known here", clip(converter))
	}
	return expression, nil
}

func cutLast(text, separator string) (before, behind string, ok bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return "", text, false
	}
	return text[:i], text[i+len(separator):], true
}

func word(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// named cuts a name off the start of text.
func named(text string) (name, rest string) {
	n := 0
	for n < len(text) && word(text[n]) {
		n++
	}
	return text[:n], text[n:]
}

// colons reads what Rails and Express have in common: :name, *name, an escape by \, and parts that may be absent
// within the signs opens and shuts.
func colons(text string, opens, shuts byte, where map[string]string) ([]part, error) {
	parts, rest, err := colonsUntil(text, opens, shuts, where, 0)
	if err == nil && rest != "" {
		return nil, fmt.Errorf("%q has nothing to end", shuts)
	}
	return parts, err
}

func colonsUntil(text string, opens, shuts byte, where map[string]string, depth int) (parts []part, rest string,
	err error) {
	if depth > 8 {
		return nil, "", errors.New("optional parts lie more than eight deep")
	}
	for text != "" {
		c := text[0]
		switch {
		case c == shuts && depth > 0, c == shuts:
			return parts, text, nil
		case c == opens:
			inner, behind, err := colonsUntil(text[1:], opens, shuts, where, depth+1)
			if err != nil {
				return nil, "", err
			}
			if behind == "" {
				return nil, "", fmt.Errorf("%q is not closed", opens)
			}
			if inner != nil {
				parts = append(parts, part{optional: inner})
			}
			text = behind[1:]
		case c == ':' || c == '*':
			name, behind := named(text[1:])
			if quoted, ok := strings.CutPrefix(text[1:], `"`); ok {
				if name, behind, ok = strings.Cut(quoted, `"`); !ok {
					return nil, "", errors.New("a name in quotes is not closed")
				}
			}
			if name == "" {
				return nil, "", fmt.Errorf("%q has no name behind it", c)
			}
			expression, known := where[name]
			if c == '*' && !known {
				expression = ".+"
			}
			p, err := parameter(name, expression)
			if err != nil {
				return nil, "", err
			}
			parts, text = append(parts, p), behind
		case c == '\\' && len(text) > 1:
			parts, text = append(parts, plain(text[1:2])), text[2:]
		case strings.IndexByte(`\()[]{}+?!`, c) >= 0:
			return nil, "", fmt.Errorf("%q is not understood", c)
		default:
			n := strings.IndexAny(text[1:], `:*\()[]{}+?!`)
			if n < 0 {
				n = len(text) - 1
			}
			parts, text = append(parts, plain(text[:n+1])), text[n+1:]
		}
	}
	return parts, "", nil
}

// express4 reads the notation of Express 4: :name, :name(expression), :name?, a group in parentheses, and *.
func express4(text string) (parts []part, err error) {
	for text != "" {
		c := text[0]
		switch {
		case c == ':' || c == '(' || c == '*':
			name, expression := "", ""
			if c == ':' {
				if name, text = named(text[1:]); name == "" {
					return nil, errors.New("a colon has no name behind it")
				}
			}
			if c == '*' {
				expression, text = ".*", text[1:]
			} else if strings.HasPrefix(text, "(") {
				end := closing(text)
				if end < 0 {
					return nil, errors.New("a parenthesis is not closed")
				}
				expression, text = text[1:end], text[end+1:]
			}
			p, err := parameter(name, expression)
			if err != nil {
				return nil, err
			}
			if after, ok := strings.CutPrefix(text, "?"); ok {
				text = after // with the slash before it
				inner := []part{p}
				if n := len(parts) - 1; n >= 0 && parts[n].optional == nil && strings.HasSuffix(parts[n].text, "/") {
					inner = []part{plain("/"), p}
					parts[n].text = strings.TrimSuffix(parts[n].text, "/")
				}
				p = part{optional: inner}
			} else if strings.HasPrefix(text, "*") || strings.HasPrefix(text, "+") {
				return nil, errors.New("a parameter is repeated")
			}
			parts = append(parts, p)
		case strings.IndexByte(`?+[]{}|^$\)`, c) >= 0:
			return nil, fmt.Errorf("%q is not understood", c)
		default:
			n := strings.IndexAny(text[1:], `:(*?+[]{}|^$\)`)
			if n < 0 {
				n = len(text) - 1
			}
			if n+1 < len(text) && text[n+1] == '?' { // it says of the last letter that it may be absent
				return nil, errors.New(`"?" behind plain text is not understood`)
			}
			parts, text = append(parts, plain(text[:n+1])), text[n+1:]
		}
	}
	return parts, nil
}

// closing is where the parenthesis at the start of text is closed, or -1.
func closing(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}
