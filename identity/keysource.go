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
		errs = append(errs, fmt.Errorf("KeySources.Query is %q, want the name of a parameter: at most %d letters, digits and _-.~", s.Query, maxPrefix))
	}
	return errors.Join(errs...)
}

// presented is a credential as it stands in the request.
type presented struct {
	text    string
	escaped bool // percent-encoded, from a query
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

// credential finds the one credential of a request. Its kind is Address if
// there is none. Two that differ are unusable, as is one header or parameter
// given twice: whoever sent them, another server may have read the other one.
func (r *Resolver) credential(e *Evidence) (kind Kind, found presented, why Rejection) {
	if e.Header != nil && (r.tokens != nil || r.sources.Bearer) {
		if kind, found, why = r.bearer(e.Header); why == Ambiguous {
			return kind, found, why
		}
	}
	if e.Header != nil && r.sources.Header != "" {
		if lines := e.Header.Values(r.sources.Header); len(lines) > 0 {
			key := presented{text: lines[0]}
			if len(lines) > 1 || kind == Token || kind == APIKey && !key.same(found) {
				return Address, presented{}, Ambiguous
			}
			kind, found, why = APIKey, key, NotRejected
		}
	}
	if r.sources.Query != "" {
		if key, times := parameter(e.Target, r.sources.Query); times > 0 {
			if times > 1 || kind == Token || kind == APIKey && !key.same(found) {
				return Address, presented{}, Ambiguous
			}
			kind, found, why = APIKey, key, NotRejected
		}
	}
	return kind, found, why
}

// bearer finds the credential in the Authorization header. Other schemes than
// Bearer are the application's affair.
func (r *Resolver) bearer(h Headers) (kind Kind, found presented, why Rejection) {
	lines := h.Values(authorization)
	switch len(lines) {
	case 0:
		return Address, presented{}, NotRejected
	case 1:
	default:
		return Address, presented{}, Ambiguous
	}
	text, is := cutBearer(lines[0])
	switch {
	case !is:
		return Address, presented{}, NotRejected
	case r.sources.Bearer && r.claimed(text):
		return APIKey, presented{text: text}, NotRejected
	case r.tokens != nil:
		return Token, presented{text: text}, NotRejected
	}
	return Address, presented{}, TokenUnchecked
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

// cutBearer cuts the scheme off (RFC 9110 §11.4, RFC 6750 §2.1).
func cutBearer(line string) (text string, is bool) {
	const scheme = "Bearer"
	if len(line) < len(scheme) || !strings.EqualFold(line[:len(scheme)], scheme) {
		return "", false
	}
	text = line[len(scheme):]
	if text != "" && text[0] != ' ' {
		return "", false
	}
	return strings.TrimLeft(text, " "), true
}

// parameter finds a parameter in the query of a raw target, and says how often
// it is there. Names are compared decoded, as servers compare them. Only & ends
// a parameter; to some servers ; does too. To those no value that is a key here
// is another, because a key holds no ;, and one that they alone would find,
// beside a ;, counts as given twice: it is not known which one the API reads.
func parameter(target, name string) (value presented, times int) {
	at := strings.IndexByte(target, '?')
	if at < 0 {
		return value, 0
	}
	for query, more := target[at+1:], true; more; {
		var pair string
		pair, query, more = strings.Cut(query, "&")
		if rest, is := cutName(pair, name); is {
			value = presented{text: rest, escaped: true}
			times++
			continue
		}
		for parts := strings.IndexByte(pair, ';') >= 0; parts; {
			var part string
			part, pair, parts = strings.Cut(pair, ";")
			if _, is := cutName(part, name); is {
				times += 2
			}
		}
	}
	return value, times
}

// cutName reports whether a pair has the name, which holds no % and no =, and
// what stands behind its "=".
func cutName(pair, name string) (value string, is bool) {
	p := presented{text: pair, escaped: true}
	i := 0
	for j := range len(name) {
		if i == len(pair) || pair[i] == '=' {
			return "", false
		}
		if c, ok := p.next(&i); !ok || c != name[j] {
			return "", false
		}
	}
	switch {
	case i == len(pair):
		return "", true
	case pair[i] == '=':
		return pair[i+1:], true
	}
	return "", false
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
	if _, times := parameter(target, name); name == "" || times == 0 {
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
