package identity

import (
	"errors"
	"fmt"
	"strings"
)

// KeySources are the places of a request where an API key may stand. The zero
// value is the header X-Api-Key and Authorization: Bearer.
type KeySources struct {
	// Header is a header that holds a key and nothing else; empty means none.
	Header string

	// Bearer reads "Authorization: Bearer", where the text begins as a key of
	// Options.KeyFormats does; other bearer tokens are Options.Tokens' affair.
	Bearer bool

	// Query is the name of a query parameter that holds a key; empty means
	// none. A target with a key in it is copied where headers are not: browser
	// histories, Referer, the access logs of every proxy before and behind.
	// Turn it on for clients that can send nothing else.
	Query string
}

func (s KeySources) withDefaults() KeySources {
	if s == (KeySources{}) {
		return KeySources{Header: defaultKeyHeader, Bearer: true}
	}
	s.Header = canonical(s.Header, "")
	return s
}

func (s KeySources) check() error {
	var errs []error
	if _, rest := cutToken(s.Header); rest != "" {
		errs = append(errs, fmt.Errorf("KeySources.Header is %q, want the name of a header", s.Header))
	}
	switch s.Header {
	case authorization, xForwardedFor, forwarded:
		errs = append(errs, fmt.Errorf("KeySources.Header is %q, want a header of its own", s.Header))
	}
	if len(s.Query) > maxPrefix || strings.ContainsFunc(s.Query, func(c rune) bool {
		return c >= 0x80 || !alphanumeric(byte(c)) && !strings.ContainsRune("_-.~", c)
	}) {
		errs = append(errs,
			fmt.Errorf("KeySources.Query is %q, want the name of a parameter: at most %d letters, digits and _-.~",
				s.Query, maxPrefix))
	}
	return errors.Join(errs...)
}

// same reports whether two credentials are one.
func (p presented) same(q presented) bool {
	if !p.escaped && !q.escaped {
		return p.text == q.text
	}
	for i, j := 0, 0; ; {
		if i == len(p.text) || j == len(q.text) {
			return i == len(p.text) && j == len(q.text)
		}
		a, okA := p.next(&i)
		b, okB := q.next(&j)
		if !okA || !okB || a != b {
			return false
		}
	}
}

// next decodes the byte at *i and moves on. It decodes once: what an escape
// stands for is a byte of the key, whatever it is.
func (p presented) next(i *int) (c byte, ok bool) {
	c = p.text[*i]
	*i++
	if !p.escaped || c != '%' {
		return c, true
	}
	if len(p.text) < *i+2 {
		return 0, false
	}
	hi, lo := unhex(p.text[*i]), unhex(p.text[*i+1])
	*i += 2
	return hi<<4 | lo, hi < 16 && lo < 16
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}

// read copies a credential into h, decoded. It reports false for one that is
// too long or badly escaped.
func (h *keyedHash) read(p presented) bool {
	if !p.escaped {
		h.n = copy(h.text[:], p.text)
		return h.n == len(p.text)
	}
	for i := 0; i < len(p.text); h.n++ {
		c, ok := p.next(&i)
		if !ok || h.n == len(h.text) {
			return false
		}
		h.text[h.n] = c
	}
	return true
}

// BearerIsKey reports whether the value of an Authorization header says that it
// is an API key and not another credential.
func (r *Resolver) BearerIsKey(value string) bool {
	text, is := cutBearer(value)
	return is && r.sources.Bearer && r.claimed(text)
}

// claimed reports whether a bearer credential says that it is an API key: by
// its prefix, or, in a format without one, by its length.
func (r *Resolver) claimed(text string) bool {
	for i := range r.formats {
		f := &r.formats[i]
		if strings.HasPrefix(text, f.Prefix) && (f.Prefix != "" || f.fits(len(text))) {
			return true
		}
	}
	return false
}

const (
	bearerScheme = "Bearer"
	proofScheme  = "DPoP"
)

// cutBearer cuts the scheme off (RFC 9110 §11.4, RFC 6750 §2.1).
func cutBearer(line string) (text string, is bool) { return cutScheme(line, bearerScheme) }

func cutScheme(line, scheme string) (text string, is bool) {
	if len(line) < len(scheme) || !strings.EqualFold(line[:len(scheme)], scheme) {
		return "", false
	}
	text = line[len(scheme):]
	if text != "" && text[0] != ' ' {
		return "", false
	}
	return strings.Trim(text, " \t"), true
}

// eachParameter yields the values of a parameter in the query of a raw target,
// as they stand there. Only & ends a parameter; to some servers ; does too, so
// what they alone would find is yielded as well.
func eachParameter(target, name string, yield func(presented)) {
	at := strings.IndexByte(target, '?')
	if at < 0 {
		return
	}
	try := func(pair string) {
		if value, is := cutName(pair, name); is {
			yield(presented{text: value, kind: APIKey, escaped: true})
		}
	}
	for query, more := target[at+1:], true; more; {
		var pair string
		pair, query, more = strings.Cut(query, "&")
		try(pair)
		for parts := strings.IndexByte(pair, ';') >= 0; parts; {
			var part string
			part, pair, parts = strings.Cut(pair, ";")
			try(part)
		}
	}
}

// cutName reports whether a pair has the name, which holds no % and no =, and
// what stands behind its "=". Names are compared as the most lenient servers
// do: decoded, in any case (ASP.NET), without blanks before them, with a dot, a
// blank or a bracket for an underscore (PHP), in brackets or with brackets
// behind them (qs; PHP, Rack).
func cutName(pair, name string) (value string, is bool) {
	p := presented{text: pair, escaped: true}
	i, n, behind := 0, 0, false
	for i < len(pair) && pair[i] != '=' {
		plus := pair[i] == '+'
		c, ok := p.next(&i)
		if plus {
			c = ' '
		}
		switch {
		case behind:
		case !ok:
			return "", false
		case n == 0 && (c == ' ' || c == '['):
		case n < len(name) && (lower(c) == lower(name[n]) || name[n] == '_' && (c == '.' || c == ' ' || c == '[')):
			n++
		case n == len(name) && (c == '[' || c == ']' || c == 0):
			behind = true
		default:
			return "", false
		}
	}
	switch {
	case n < len(name):
		return "", false
	case i == len(pair):
		return "", true
	}
	return pair[i+1:], true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// RedactTarget returns a raw target without the values of the query parameter
// that may hold API keys, for showing it to people. Without such a parameter it
// is target itself.
func (r *Resolver) RedactTarget(target string) string {
	return r.rewriteQuery(target, func(name string) (string, bool) { return name + "=" + redacted, true })
}

// StripTarget returns a raw target without the query parameter that may hold
// API keys, for a server behind that must not see them. All else stays as it
// is.
func (r *Resolver) StripTarget(target string) string {
	return r.rewriteQuery(target, func(string) (string, bool) { return "", false })
}

// rewriteQuery replaces, or leaves out, the parameter that may hold a key.
func (r *Resolver) rewriteQuery(target string, replace func(name string) (pair string, keep bool)) string {
	name := r.sources.Query
	there := false
	if name != "" {
		eachParameter(target, name, func(presented) { there = true })
	}
	if !there {
		return target
	}
	path, query, _ := strings.Cut(target, "?")
	var kept []string
	for _, pair := range strings.Split(query, "&") {
		if _, is := cutName(pair, name); is {
			var keep bool
			if pair, keep = replace(name); !keep {
				continue
			}
		} else if strings.Contains(pair, ";") {
			pair = rewriteParts(pair, name, replace)
		}
		kept = append(kept, pair)
	}
	if len(kept) == 0 {
		return path
	}
	return path + "?" + strings.Join(kept, "&")
}

// rewriteParts is rewriteQuery for what stands behind a ; in a pair.
func rewriteParts(pair, name string, replace func(name string) (pair string, keep bool)) string {
	var kept []string
	for _, part := range strings.Split(pair, ";") {
		if _, is := cutName(part, name); is {
			var keep bool
			if part, keep = replace(name); !keep {
				continue
			}
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, ";")
}
