package framework

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/endpoint"
)

// token is plain text, or a parameter if it has a name.
type token struct {
	text  string
	name  string
	expr  string // the expression that the parameter must match as a whole; none for anything
	slash bool   // it may hold slashes
}

// answer says whether a route takes what another one does.
type answer int

const (
	no answer = iota
	maybe
	yes
)

// segment is what a path asks between two slashes.
type segment struct {
	tokens []token
	rest   bool           // one segment or more
	whole  *regexp.Regexp // what it must match, if that is known
	tree   *syntax.Regexp // of its one parameter and nothing else
}

// path is a path as one template can hold it.
type path []segment

// pathsOf are the paths of a route's alternatives, without those that another one takes already, and which of them
// end in a slash.
func pathsOf(alternatives [][]token, fold bool) (kept []path, ends []bool, err error) {
	var paths []path
	for _, tokens := range alternatives {
		p, err := pathOf(tokens, fold)
		if err != nil {
			return nil, nil, err
		}
		if _, err := endpoint.ParsePath("GET", p.String()); err != nil {
			return nil, nil, err
		}
		paths = append(paths, p)
	}
	for i, p := range paths {
		taken := slices.ContainsFunc(kept, func(q path) bool {
			return q.template(fold).takes(p.template(fold), fold) == yes
		})
		for _, q := range paths[i+1:] {
			taken = taken || q.String() != p.String() && q.template(fold).takes(p.template(fold), fold) == yes
		}
		if !taken {
			tokens := alternatives[i]
			kept = append(kept, p)
			ends = append(ends, len(tokens) > 0 && strings.HasSuffix(tokens[len(tokens)-1].text, "/"))
		}
	}
	return kept, ends, nil
}

// pathOf splits tokens at the slashes of their plain text.
func pathOf(tokens []token, fold bool) (path, error) {
	var p path
	var now segment
	end := func() error {
		if len(now.tokens) == 0 {
			return nil // the slash at the start or the end, or two
		}
		for i, t := range now.tokens {
			switch {
			case t.name != "" && t.slash && len(now.tokens) > 1:
				return fmt.Errorf("{%s} takes slashes and has text beside it, which no template can say", t.name)
			case t.name != "" && i > 0 && now.tokens[i-1].name != "":
				return fmt.Errorf("{%s} and {%s} touch, which no template can say", now.tokens[i-1].name, t.name)
			}
			now.rest = now.rest || t.slash
		}
		now.whole = now.expression(fold)
		if len(now.tokens) == 1 && now.tokens[0].expr != "" {
			var err error
			if now.tree, err = parseExpression(now.tokens[0].expr); err != nil {
				return err
			}
		}
		p, now = append(p, now), segment{}
		return nil
	}
	for _, t := range tokens {
		if t.name != "" {
			now.tokens = append(now.tokens, t)
			continue
		}
		for i, text := range strings.Split(t.text, "/") {
			if i > 0 {
				if err := end(); err != nil {
					return nil, err
				}
			}
			if n := len(now.tokens) - 1; text != "" && n >= 0 && now.tokens[n].name == "" {
				now.tokens[n].text += text
			} else if text != "" {
				now.tokens = append(now.tokens, token{text: text})
			}
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	for _, s := range p[:max(0, len(p)-1)] {
		if s.rest {
			return nil, fmt.Errorf("{%s} takes slashes and stands before the end, which no template can say",
				s.tokens[0].name)
		}
	}
	if len(p) > 100 {
		return nil, errors.New("it has more than 100 segments")
	}
	return p, nil
}

// escape is for what is plain text in a route and is not in a template.
var escape = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D", "?", "%3F", "#", "%23")

// String is the path of the template.
func (p path) String() string {
	if len(p) == 0 {
		return "/"
	}
	var b strings.Builder
	for _, s := range p {
		b.WriteByte('/')
		for _, t := range s.tokens {
			switch {
			case t.name == "":
				b.WriteString(escape.Replace(t.text))
			case s.rest:
				b.WriteString("{" + safe(t.name) + "...}")
			default:
				b.WriteString("{" + safe(t.name) + "}")
			}
		}
	}
	return b.String()
}

// safe is a name that templates can have; names mean nothing to matching.
func safe(name string) string {
	return strings.Map(func(c rune) rune {
		if c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' {
			return c
		}
		return '_'
	}, name)
}

// expression is what a whole segment must match, or nil if that is not known.
func (s segment) expression(fold bool) *regexp.Regexp {
	var b strings.Builder
	if fold {
		b.WriteString("(?i)")
	}
	for _, t := range s.tokens {
		switch {
		case t.name == "":
			b.WriteString(regexp.QuoteMeta(t.text))
		case t.expr == "":
			b.WriteString("(?s:.+)")
		default:
			b.WriteString("(?:" + t.expr + ")")
		}
	}
	whole, err := regexp.Compile(`\A(?:` + b.String() + `)\z`)
	if err != nil {
		return nil
	}
	return whole
}

// template is p as its template takes it, whatever its expressions refuse.
func (p path) template(fold bool) path {
	q := make(path, len(p))
	for i, s := range p {
		q[i] = segment{tokens: slices.Clone(s.tokens), rest: s.rest}
		for n := range q[i].tokens {
			q[i].tokens[n].expr = ""
		}
		q[i].whole = q[i].expression(fold)
	}
	return q
}

// wide reports whether p's template takes what p does not.
func (p path) wide() bool {
	return slices.ContainsFunc(p, func(s segment) bool {
		return slices.ContainsFunc(s.tokens, func(t token) bool { return t.expr != "" })
	})
}

// takes reports whether p takes all that q does, some of it perhaps, or nothing.
func (p path) takes(q path, fold bool) answer {
	if p.apart(q, fold) {
		return no
	}
	all := yes
	for i := 0; ; i++ {
		switch {
		case i == len(p) || i == len(q):
			if len(p) != len(q) {
				return no
			}
			return all
		case p[i].rest:
			if p[i].tokens[0].expr != "" {
				return maybe
			}
			return all
		case q[i].rest:
			return maybe
		}
		all = min(all, p[i].takes(q[i], fold))
		if all == no {
			return no
		}
	}
}

// apart reports whether the plain text of two paths differs: of most pairs it does, which is quick to see.
func (p path) apart(q path, fold bool) bool {
	for i := range min(len(p), len(q)) {
		a, b := p[i].tokens, q[i].tokens
		if len(a) == 1 && len(b) == 1 && a[0].name == "" && b[0].name == "" && a[0].text != b[0].text &&
			!(fold && strings.EqualFold(a[0].text, b[0].text)) {
			return true
		}
	}
	return false
}

func (s segment) ends() (prefix, suffix string, params int) {
	first, last := s.tokens[0], s.tokens[len(s.tokens)-1]
	for _, t := range s.tokens {
		if t.name != "" {
			params++
		}
	}
	if params == 0 {
		return first.text, "", 0
	}
	return first.text, last.text, params // the text of a parameter is empty
}

func (s segment) takes(o segment, fold bool) answer {
	prefix, suffix, params := s.ends()
	before, behind, others := o.ends()
	if fold {
		prefix, suffix, before, behind = strings.ToLower(prefix), strings.ToLower(suffix), strings.ToLower(before),
			strings.ToLower(behind)
	}
	switch {
	case params == 0 && others == 0:
		if prefix == before {
			return yes
		}
		return no
	case params == 0:
		if o.takes(s, fold) == no {
			return no
		}
		return maybe
	case others == 0:
		return s.fits(before, prefix, suffix, params)
	case s.cannotHold(o) || o.cannotHold(s):
		return no
	}
	if !(strings.HasPrefix(before, prefix) || strings.HasPrefix(prefix, before)) ||
		!(strings.HasSuffix(behind, suffix) || strings.HasSuffix(suffix, behind)) {
		return no
	}
	if params == 1 && strings.HasPrefix(before, prefix) && strings.HasSuffix(behind, suffix) && s.accepts(o) {
		return yes
	}
	return maybe
}

// fits reports whether s takes text, which is plain text.
func (s segment) fits(text, prefix, suffix string, params int) answer {
	wide := slices.ContainsFunc(s.tokens, func(t token) bool { return t.expr != "" })
	if params == 1 && !wide { // which is most of them
		if len(text) > len(prefix)+len(suffix) && strings.HasPrefix(text, prefix) && strings.HasSuffix(text, suffix) {
			return yes
		}
		return no
	}
	if s.whole == nil {
		return maybe
	}
	if s.whole.MatchString(text) {
		return yes
	}
	return no
}

// cannotHold reports whether plain text of o has a letter that no expression of s can match. s has one parameter.
func (s segment) cannotHold(o segment) bool {
	return s.tree != nil && slices.ContainsFunc(o.tokens, func(t token) bool {
		return strings.ContainsFunc(t.text, func(c rune) bool { return !mayHold(s.tree, c) })
	})
}

// accepts reports whether the one parameter of s takes whatever o holds.
func (s segment) accepts(o segment) bool {
	for _, t := range s.tokens {
		if t.name == "" || t.expr == "" {
			continue
		}
		if len(o.tokens) != len(s.tokens) {
			return false
		}
		return slices.ContainsFunc(o.tokens, func(u token) bool {
			return u.expr == t.expr
		})
	}
	return true
}

// wins reports whether the template of p is chosen before that of q, of two that both match.
func (p path) wins(q path) bool {
	for i := range min(len(p), len(q)) {
		a, b := p[i].rank(), q[i].rank()
		if a != b {
			return a > b
		}
	}
	return false
}

// rank orders segments: plain text, then parameters by the text beside them, then what takes slashes.
func (s segment) rank() int {
	prefix, suffix, params := s.ends()
	switch {
	case params == 0:
		return 1 << 20
	case s.rest:
		return 0
	}
	return 1 + len(prefix) + len(suffix)
}
