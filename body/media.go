package body

import (
	"net/http"
	"slices"
	"strings"
)

// Wants says in which format a request's body is to be read, from its header
// alone: whoever gets a Fault need not read it.
//
// A Content-Type is one media type with no parameter but charset=utf-8. A
// second one, in a line of its own or behind a comma, is refused, and so is any
// Content-Encoding but identity.
func (f *Finder) Wants(header http.Header) (Format, Fault) {
	format, parameters, fault := media(header, f.field.Format)
	if fault == None && parameters != "" && !isUTF8(parameters[1:]) {
		return 0, Charset
	}
	return format, fault
}

// Compressed reports whether a body is another text than what was meant: any Content-Encoding but identity.
func Compressed(header http.Header) bool {
	return slices.ContainsFunc(header["Content-Encoding"],
		func(encoding string) bool { return !strings.EqualFold(trim(encoding), "identity") })
}

// media says in which format a body is to be read, and which parameters stand behind its type, with the semicolon.
func media(header http.Header, want Format) (format Format, parameters string, fault Fault) {
	if Compressed(header) {
		return 0, "", Encoding
	}
	types := header["Content-Type"]
	if len(types) != 1 {
		return 0, "", Media
	}
	kind := types[0]
	if end := strings.IndexByte(kind, ';'); end >= 0 {
		kind, parameters = kind[:end], kind[end:]
	}
	switch kind = trim(kind); {
	case strings.EqualFold(kind, "application/x-www-form-urlencoded"):
		format = Form
	case strings.EqualFold(kind, "application/json"):
	case !isJSON(kind):
		return 0, "", Media
	}
	if want != Any && want != format {
		return 0, "", Media
	}
	return format, parameters, None
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

// isUTF8 reports whether parameters are one, charset=utf-8.
func isUTF8(parameters string) bool {
	name, value, _ := strings.Cut(trim(parameters), "=")
	if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
		value = value[1 : len(value)-1]
	}
	return strings.EqualFold(name, "charset") && strings.EqualFold(value, "utf-8")
}

func trim(s string) string { return strings.Trim(s, " \t") }
