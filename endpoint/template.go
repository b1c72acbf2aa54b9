package endpoint

import (
	"fmt"
	"strings"
)

// Template is one endpoint: a method and a path whose segments may be parameters, as in "GET
// /v1/items/{id}". Templates are comparable with ==, where one written with a slash at the end is
// another. The zero Template is no endpoint.
type Template struct {
	text  string // in canonical form
	space int    // where the method ends
	query int    // where the query starts, after the ?; 0 for none
	ends  ends   // how it was written; see RefuseTrailingSlash
}

// maxTemplate is how long a template may be, in bytes: the length of a URI that RFC 9110 section 4.1 asks every
// server to take.
const maxTemplate = 8000

// ParseTemplate reads a template: a method, one space, a path.
//
//	GET /v1/items              a literal path
//	GET /v1/items/{id}         {id} is one segment, never empty
//	GET /v1/items/{id}.json    a parameter may have literal text before and after it in its segment
//	POST /v1/items/{id}:copy   so this is no special case
//	GET /compare/{from}...{to} several parameters in a segment, each of one byte or more, with literal text between them
//	POST /secrets/%3Acreate    a segment that begins with a literal colon
//	GET /files/{path...}       the last parameter may take one or more segments: /files/a and /files/a/b, not /files
//	GET /rpc?action=login      a query parameter that must have this value
//	GET /b/{b}?acl={acl}       one that must be there
//
// Methods are case-sensitive (RFC 9110 section 9.1) and written in upper case. The path must be in
// canonical form, that is, what [Profile.Canonical] returns (braces aside); a trailing slash is
// dropped, but see [RefuseTrailingSlash]. Parameter names hold ASCII letters, digits and _ - . [ ],
// and mean nothing to matching. A segment may not start with a colon, which is written %3A there,
// nor be a single star, because in other notations those are parameters. In a query, all but
// letters, digits and - . _ ~ ! $ ' ( ) * , / : @ [ ] is written as %XX; the order of its
// parameters means nothing.
func ParseTemplate(text string) (Template, error) {
	method, path, err := splitTemplate(text)
	if err != nil {
		return Template{}, templateError(text, err)
	}
	path, query, hasQuery := strings.Cut(path, "?")
	end := withoutSlash
	if len(path) > 1 && strings.HasSuffix(path, "/") {
		end = withSlash
	}
	if _, err := parseSegments(path); err != nil {
		return Template{}, templateError(text, err)
	}
	// What depends on the profile of a table is left to Compile.
	path, err = canonicalTemplatePath(path, Profile{EncodedSlash: KeepEncodedSlash, Params: KeepParams,
		AllowDoubleEncoding: true})
	if err != nil {
		return Template{}, templateError(text, err)
	}
	t := Template{text: method + " " + path, space: len(method), ends: end}
	if hasQuery {
		_, query, err = parseQuery(query)
		if err != nil {
			return Template{}, templateError(text, err)
		}
		t.text, t.query = t.text+"?"+query, len(t.text)+1
	}
	return t, nil
}

// ParsePath is ParseTemplate for a path as OpenAPI documents have it, which need not be canonical:
// a segment may begin with a literal colon, a byte that a target cannot hold stands for its escape,
// and dot segments, repeated slashes and needless escapes are what [Profile.Canonical] makes of
// them.
func ParsePath(method, path string) (Template, error) {
	text := method + " " + path
	path, query, hasQuery := strings.Cut(path, "?")
	if !strings.HasPrefix(path, "/") {
		return ParseTemplate(text) // which says what is wrong
	}
	p := Profile{EncodedSlash: KeepEncodedSlash, Params: KeepParams, AllowDoubleEncoding: true}
	out, fault := p.appendPath(nil, escapeRaw(path), true)
	if fault != NoFault {
		return Template{}, templateError(text, fmt.Errorf("path %s, so no target can match it", fault))
	}
	canonical := literalColons(string(out))
	if len(canonical) > 1 && strings.HasSuffix(path, "/") {
		canonical += "/" // see RefuseTrailingSlash
	}
	if hasQuery {
		canonical += "?" + query
	}
	return ParseTemplate(method + " " + canonical)
}

// escapeRaw escapes the bytes that no target holds as themselves.
func escapeRaw(path string) string {
	if rawBytesValid(path) {
		return path
	}
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; rawBytesValid(path[i : i+1]) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func templateError(text string, err error) error {
	const shown = 200
	if len(text) > shown {
		text = text[:shown] + "..."
	}
	return fmt.Errorf("template %q: %w", text, err)
}

// String returns the text of the template, which ParseTemplate reads back but for a slash at the end.
func (t Template) String() string { return t.text }

// Method returns the method, such as "GET".
func (t Template) Method() string { return t.text[:t.space] }

// Path returns the path, such as "/v1/items/{id}", without a query.
func (t Template) Path() string {
	switch {
	case t.text == "":
		return ""
	case t.query > 0:
		return t.text[t.space+1 : t.query-1]
	}
	return t.text[t.space+1:]
}

// Query returns the query parameters that the template names, such as "action=login", or nothing.
func (t Template) Query() string {
	if t.query == 0 {
		return ""
	}
	return t.text[t.query:]
}

// conditions returns what the template asks of the query. Its letter case is never folded: most
// servers that ignore case in paths do not in queries.
func (t Template) conditions() []condition {
	if t.query == 0 {
		return nil
	}
	conditions, _, _ := parseQuery(t.Query()) // ParseTemplate has seen that it can
	return conditions
}

// lower folds ASCII letters.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

func splitTemplate(text string) (method, path string, err error) {
	if len(text) > maxTemplate {
		return "", "", fmt.Errorf("it has %d bytes, want at most %d", len(text), maxTemplate)
	}
	method, path, ok := strings.Cut(text, " ")
	switch {
	case !ok && strings.HasPrefix(text, "/"):
		return "", "", fmt.Errorf("it has no method, want %q", "GET "+text)
	case !ok:
		return "", "", fmt.Errorf(`want a method, a space and a path, like "GET /v1/items/{id}"`)
	case method == "*":
		return "", "", fmt.Errorf(`method is "*", want one template for each method`)
	case !isToken(method):
		return "", "", fmt.Errorf(`method is %q, want a token like "GET"`, method)
	case method != strings.ToUpper(method):
		return "", "", fmt.Errorf("method is %q, want %q: methods are case-sensitive", method, strings.ToUpper(method))
	case method == "CONNECT":
		return "", "", fmt.Errorf("method is CONNECT, which is never let through: it asks for a tunnel, not for a path")
	case !strings.HasPrefix(path, "/"):
		return "", "", fmt.Errorf("path is %q, want one that starts with / after a single space", path)
	}
	return method, path, nil
}

// isToken reports whether s is a token of RFC 9110 section 5.6.2, as methods are.
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(s[i])) {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// canonicalTemplatePath returns path without a trailing slash, or an error if it is not canonical
// under p, letter case aside.
func canonicalTemplatePath(path string, p Profile) (string, error) {
	p.CaseInsensitive = false
	if !rawBytesValid(path) {
		return "", fmt.Errorf("path %s: want %%XX instead", RawByte)
	}
	out, fault := p.appendPath(nil, path, true)
	if fault != NoFault {
		return "", fmt.Errorf("path %s, so no target can match it", fault)
	}
	canonical := literalColons(string(out))
	if path != canonical && path != canonical+"/" {
		return "", fmt.Errorf("path is %q, want its canonical form %q", path, canonical)
	}
	return canonical, nil
}

// literalColons writes the colon that a segment of canonical text begins with as templates do.
func literalColons(path string) string { return strings.ReplaceAll(path, "/:", "/%3A") }

// kind is what a segment of a template is, from the least to the most specific.
type kind uint8

const (
	rest    kind = iota // {name...}
	param               // {name}
	affixed             // prefix{name}suffix
	exact               // literal text
)

// segment is a part of a template's path between slashes.
type segment struct {
	kind kind
	affix
	text string // of kind exact
}

// affix is the literal text around a parameter, and between several.
type affix struct {
	prefix, suffix string
	middle         string // the texts between parameters, each followed by endOfText; empty for a single parameter
}

// endOfText is no byte of canonical text.
const endOfText = "\x00"

// len is how many bytes of a segment the text takes.
func (a affix) len() int {
	return len(a.prefix) + len(a.suffix) + len(a.middle) - strings.Count(a.middle, endOfText)
}

// matches reports whether a segment of a canonical path has the affixes with something in between.
func (a affix) matches(name string) bool {
	return len(name) > a.len() && strings.HasPrefix(name, a.prefix) && endsWith(name, a.suffix) &&
		holds(name[len(a.prefix):len(name)-len(a.suffix)], a.middle)
}

// holds reports whether canonical text has the texts of middle in their order, with something before, between and after
// them. Where there are several ways, the first place of each text leaves most for the next.
func holds(text, middle string) bool {
	for middle != "" {
		var piece string
		piece, middle, _ = strings.Cut(middle, endOfText)
		at := 1
		for ; ; at++ {
			if at > len(text) {
				return false
			}
			next := strings.Index(text[at:], piece)
			if next < 0 {
				return false
			}
			if at += next; !insideEscape(text, at) {
				break
			}
		}
		text = text[at+len(piece):]
	}
	return text != ""
}

// endsWith is strings.HasSuffix for decoded text: it does not take the 3F of the escape %3F for a suffix 3F.
func endsWith(name, suffix string) bool {
	return strings.HasSuffix(name, suffix) && !insideEscape(name, len(name)-len(suffix))
}

// insideEscape reports whether i lies within an escape of canonical text, where each % starts one.
func insideEscape(s string, i int) bool {
	return i < len(s) && (i >= 1 && s[i-1] == '%' || i >= 2 && s[i-2] == '%')
}

// meets reports whether some segment has the affixes of both. The texts between parameters prevent
// nothing: those of both can follow each other.
func (a affix) meets(b affix) bool {
	return (strings.HasPrefix(a.prefix, b.prefix) || strings.HasPrefix(b.prefix, a.prefix)) &&
		(endsWith(a.suffix, b.suffix) || endsWith(b.suffix, a.suffix))
}

// parseSegments splits a path that starts with / and reads its parameters.
func parseSegments(path string) ([]segment, error) {
	texts := strings.Split(strings.TrimSuffix(path[1:], "/"), "/")
	if len(texts) == 1 && texts[0] == "" {
		return nil, nil
	}
	segments := make([]segment, len(texts))
	for i, text := range texts {
		s, err := parseSegment(text)
		if err != nil {
			return nil, err
		}
		if s.kind == rest && i < len(texts)-1 {
			return nil, fmt.Errorf("segment %q is followed by %q, want it last", text, texts[i+1])
		}
		segments[i] = s
	}
	return segments, nil
}

func parseSegment(text string) (segment, error) {
	if strings.HasPrefix(text, "%3A") {
		return parseParameters(":" + text[len("%3A"):])
	}
	switch {
	case strings.HasPrefix(text, ":"):
		return segment{}, fmt.Errorf("segment is %q, want %q: a parameter is written in braces", text, "{"+text[1:]+"}")
	case text == "*" || text == "**":
		return segment{}, fmt.Errorf(`segment is %q, want "{name}" for one segment or "{name...}" for all that follow`,
			text)
	}
	return parseParameters(text)
}

// parseParameters reads a segment that begins with a parameter or with literal text.
func parseParameters(text string) (segment, error) {
	opens, closes := strings.IndexByte(text, '{'), strings.IndexByte(text, '}')
	switch {
	case opens < 0 && closes < 0:
		return segment{kind: exact, text: text}, nil
	case closes < 0:
		return segment{}, fmt.Errorf("segment %q opens a parameter and does not close it, want {name}", text)
	case opens < 0 || closes < opens:
		return segment{}, fmt.Errorf("segment %q closes a parameter that it does not open, want {name}", text)
	}
	if strings.ContainsAny(text[closes+1:], "{}") {
		return parseSeveral(text)
	}
	name, around := text[opens+1:closes], affix{prefix: text[:opens], suffix: text[closes+1:]}
	if strings.Contains(name, "{") {
		return segment{}, fmt.Errorf("segment %q opens a parameter inside another, want {name}", text)
	}
	base, isRest := strings.CutSuffix(name, "...")
	switch {
	case !isName(base):
		return segment{}, fmt.Errorf("parameter is %q, want {name} with letters, digits and _ - . [ ]",
			text[opens:closes+1])
	case isRest && around.len() > 0:
		return segment{}, fmt.Errorf("segment is %q, want %q without text around it", text, "{"+name+"}")
	case isRest:
		return segment{kind: rest}, nil
	case around.len() > 0:
		return segment{kind: affixed, affix: around}, nil
	}
	return segment{kind: param}, nil
}

// parseSeveral reads a segment with several parameters, as in {base}...{head}. Where one ends and
// the next begins cannot be told in general (a-b-c has two readings of {x}-{y}), and need not be:
// both readings are the same endpoint. Parameters without text between them count as one.
func parseSeveral(text string) (segment, error) {
	left, middle := text, ""
	for strings.ContainsAny(left, "{}") {
		opens, closes := strings.IndexByte(left, '{'), strings.IndexByte(left, '}')
		if opens < 0 || closes < opens || !isName(left[opens+1:closes]) ||
			strings.HasSuffix(left[opens+1:closes], "...") {
			return segment{},
				fmt.Errorf("segment is %q, want each parameter in it as {name} with letters, digits and _ - . [ ]",
					text)
		}
		if left != text && opens > 0 {
			middle += left[:opens] + endOfText
		}
		left = left[closes+1:]
	}
	around := affix{prefix: text[:strings.IndexByte(text, '{')], suffix: left, middle: middle}
	if around.len() > 0 {
		return segment{kind: affixed, affix: around}, nil
	}
	return segment{kind: param}, nil
}

func isName(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.ContainsRune("_-.[]", rune(s[i])) {
			return false
		}
	}
	return s != ""
}
