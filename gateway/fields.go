package gateway

import (
	"net/http"
	"slices"
	"strings"
)

// Three kinds of fields do not pass as they came, in the header and in the
// trailer alike: those that this gateway reads or writes, under whatever
// spelling; those by which proxies speak to servers, which a client must not;
// and those that ask the API for another method or target than the ones that
// were charged. Names are compared without regard to case, and _ is a hyphen:
// CGI and its heirs see no difference.

const (
	xForwardedFor   = "X-Forwarded-For"
	xForwardedHost  = "X-Forwarded-Host"
	xForwardedProto = "X-Forwarded-Proto"

	forwarded = "Forwarded"
)

// fields decides which fields of a request pass.
type fields struct {
	managed []string // read or written here
	passed  []string // overrides that pass
}

func newFields(o *Options) *fields {
	f := &fields{
		managed: []string{xForwardedFor, xForwardedHost, xForwardedProto, forwarded, "Authorization", "Content-Type", "Content-Encoding"},
		passed:  o.PassOverrides,
	}
	for _, name := range []string{o.ClientHeader, o.KeyHeader} {
		if name != "" {
			f.managed = append(f.managed, name)
		}
	}
	return f
}

// clean removes from a header what must not pass. Of the fields that are managed
// it removes the look-alikes alone, such as X_Forwarded_For, which no proxy
// writes; the fields themselves are rewrite's business.
func (f *fields) clean(h http.Header, trusted bool) {
	for name := range h {
		switch kindOf(name) {
		case overriding:
			if !f.passes(name) && !f.isNamed(name) {
				delete(h, name)
			}
			continue
		case ofProxies:
			if !trusted && !f.passes(name) && !f.isManaged(name) {
				delete(h, name)
				continue
			}
		}
		if strings.IndexByte(name, '_') >= 0 && f.isManaged(name) && !f.isNamed(name) {
			delete(h, name)
		}
	}
}

// cleanTrailer removes from a trailer what means something in a header.
func (f *fields) cleanTrailer(trailer http.Header) {
	for name := range trailer {
		if kindOf(name) != plain || f.isManaged(name) || headerOnly(name) {
			delete(trailer, name)
		}
	}
}

func (f *fields) passes(name string) bool {
	return slices.ContainsFunc(f.passed, func(passed string) bool { return strings.EqualFold(passed, name) })
}

func (f *fields) isManaged(name string) bool {
	return slices.ContainsFunc(f.managed, func(managed string) bool { return alike(managed, name) })
}

// isNamed reports whether name is that of a managed field as it was given.
func (f *fields) isNamed(name string) bool {
	return slices.ContainsFunc(f.managed, func(managed string) bool { return strings.EqualFold(managed, name) })
}

// alike reports whether some server may take one field for the other.
func alike(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if folded(a[i]) != folded(b[i]) {
			return false
		}
	}
	return true
}

func folded(c byte) byte {
	switch {
	case c == '_':
		return '-'
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	}
	return c
}

// kind is what a field is to this gateway, by its name alone.
type kind uint8

const (
	plain      kind = iota
	ofProxies       // proxies say with it what they did
	overriding      // asks for another method or target
)

// Overrides reports whether a field is dropped because it asks for another
// method or target than those of the request line, or comes from proxies alone;
// see Options.PassOverrides. X-Forwarded-For, -Host and -Proto, which are made
// anew, are none.
func Overrides(name string) bool {
	switch kindOf(name) {
	case overriding:
		return true
	case ofProxies:
		return !alike(name, xForwardedFor) && !alike(name, xForwardedHost) && !alike(name, xForwardedProto)
	}
	return false
}

// kindOf decides by patterns rather than by a list: frameworks agree on how such
// fields are called, and not on one name.
func kindOf(name string) kind {
	if len(name) < len("x-url") {
		return plain
	}
	if first, second := folded(name[0]), folded(name[1]); first != 'x' || second != '-' {
		if alike(name, "path-info") || alike(name, "script-name") || alike(name, "request-uri") { // gunicorn reads these
			return overriding
		}
		if len(name) < len("http-method") || strings.IndexByte("hHmM_-", name[0]) < 0 {
			return plain
		}
	}
	var buf [64]byte
	text := lower(buf[:0], name)
	if rest, ok := strings.CutPrefix(text, "x-"); ok {
		return kindOfX(rest)
	}
	if strings.Contains(text, "method-override") || strings.HasPrefix(text, "http-method") {
		return overriding
	}
	return plain
}

// lower returns a name with every byte folded, as far as it fits into buf: no
// name that means anything is longer.
func lower(buf []byte, name string) string {
	for i := range min(len(name), cap(buf)) {
		buf = append(buf, folded(name[i]))
	}
	return string(buf)
}

// kindOfX is kindOf for names that begin with X-, and rest is what follows.
func kindOfX(rest string) kind {
	switch {
	case strings.Contains(rest, "method-override"), strings.Contains(rest, "override-method"), strings.HasPrefix(rest, "http-method"), rest == "method":
		return overriding
	case rest == "path-info", rest == "script-name", rest == "request-uri", rest == "url", rest == "uri",
		strings.HasPrefix(rest, "invoke-"), strings.HasPrefix(rest, "middleware-"): // the last two are Next.js's
		return overriding
	case slices.ContainsFunc(beforeTargets, func(prefix string) bool { return strings.HasPrefix(rest, prefix) }) &&
		slices.ContainsFunc(targets, func(suffix string) bool { return strings.HasSuffix(rest, suffix) }):
		return overriding
	case strings.HasPrefix(rest, "forwarded-"), strings.HasPrefix(rest, "original-forwarded-"), rest == "original-host", rest == "host", strings.HasSuffix(rest, "-host-override"):
		return ofProxies
	}
	return plain
}

var (
	beforeTargets = []string{"original-", "rewrite-", "rewritten-", "forwarded-", "envoy-original-", "matched-", "proxy-"}
	targets       = []string{"-url", "-uri", "-path", "-method", "-query"}
)

// headerOnly reports whether a server must not take a field from a trailer (RFC
// 9110 section 6.5.1): it frames or routes the message, authenticates somebody,
// changes what is asked for or says how the content is to be read.
func headerOnly(name string) bool {
	var buf [64]byte
	switch text := lower(buf[:0], name); text {
	case "authorization", "cookie", "cookie2", "set-cookie", "host", "transfer-encoding", "connection", "keep-alive", "upgrade", "te",
		"trailer", "expect", "max-forwards", "range", "cache-control", "pragma", "forwarded", "via", "origin", "referer", "idempotency-key",
		"http2-settings", "early-data", "priority", "prefer", "date", "accept":
		return true
	case "content-digest":
		return false // RFC 9530 section 2 has it there
	default:
		return strings.HasPrefix(text, "content-") || strings.HasPrefix(text, "if-") || strings.HasPrefix(text, "proxy-") || strings.HasPrefix(text, "accept-")
	}
}
