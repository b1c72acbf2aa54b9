package body

import (
	"net/http"
	"strings"
)

// Wants says in which format a request's body is to be read, from its header
// alone: whoever gets a Fault need not read it.
//
// A Content-Type is one media type with no parameter but charset=utf-8. A
// second one, in a line of its own or behind a comma, is refused, and so is any
// Content-Encoding but identity.
func (f *Finder) Wants(header http.Header) (Format, Fault) {
	for _, encoding := range header["Content-Encoding"] {
		if !strings.EqualFold(trim(encoding), "identity") {
			return 0, Encoding
		}
	}
	types := header["Content-Type"]
	if len(types) != 1 {
		return 0, Media
	}
	media, parameters, more := strings.Cut(types[0], ";")
	format := JSON
	switch media = trim(media); {
	case strings.EqualFold(media, "application/x-www-form-urlencoded"):
		format = Form
	case strings.EqualFold(media, "application/json"):
	case !isJSON(media):
		return 0, Media
	}
	if f.field.Format != Any && f.field.Format != format {
		return 0, Media
	}
	if more && !isUTF8(parameters) {
		return 0, Charset
	}
	return format, None
}

// isJSON reports whether media is application/NAME+json (RFC 6839 section 3.1).
func isJSON(media string) bool {
	const prefix, suffix = "application/", "+json"
	if len(media) <= len(prefix)+len(suffix) || !strings.EqualFold(media[:len(prefix)], prefix) ||
		!strings.EqualFold(media[len(media)-len(suffix):], suffix) {
		return false
	}
	for _, c := range []byte(media[len(prefix):]) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte("!#$&-^_.+", c) >= 0) {
			return false
		}
	}
	return true
}

// isUTF8 reports whether parameters are charset=utf-8 and nothing else.
func isUTF8(parameters string) bool {
	name, value, _ := strings.Cut(trim(parameters), "=")
	if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
		value = value[1 : len(value)-1]
	}
	return strings.EqualFold(name, "charset") && strings.EqualFold(value, "utf-8")
}

func trim(s string) string { return strings.Trim(s, " \t") }
