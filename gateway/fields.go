package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/override"
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
		managed: []string{xForwardedFor, xForwardedHost, xForwardedProto, forwarded, "Authorization", "Content-Type",
			"Content-Encoding"},
		passed: o.PassOverrides,
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
		switch override.Of(name) {
		case override.Overriding:
			if !f.passes(name) && !f.isNamed(name) {
				delete(h, name)
			}
			continue
		case override.OfProxies:
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
		if override.Of(name) != override.Plain || f.isManaged(name) || headerOnly(name) {
			delete(trailer, name)
		}
	}
}

func (f *fields) passes(name string) bool {
	return slices.ContainsFunc(f.passed, func(passed string) bool { return strings.EqualFold(passed, name) })
}

func (f *fields) isManaged(name string) bool {
	return slices.ContainsFunc(f.managed, func(managed string) bool { return override.Alike(managed, name) })
}

// isNamed reports whether name is that of a managed field as it was given.
func (f *fields) isNamed(name string) bool {
	return slices.ContainsFunc(f.managed, func(managed string) bool { return strings.EqualFold(managed, name) })
}

// Overrides reports whether a field is dropped because it asks for another
// method or target than those of the request line, or comes from proxies alone;
// see Options.PassOverrides. X-Forwarded-For, -Host and -Proto, which are made
// anew, are none.
func Overrides(name string) bool {
	switch override.Of(name) {
	case override.Overriding:
		return true
	case override.OfProxies:
		return !override.Alike(name, xForwardedFor) && !override.Alike(name, xForwardedHost) &&
			!override.Alike(name, xForwardedProto)
	}
	return false
}

// headerOnly reports whether a server must not take a field from a trailer (RFC
// 9110 section 6.5.1): it frames or routes the message, authenticates somebody,
// changes what is asked for or says how the content is to be read.
func headerOnly(name string) bool {
	var buf [64]byte
	switch text := override.Lower(buf[:0], name); text {
	case "authorization", "cookie", "cookie2", "set-cookie", "host", "transfer-encoding", "connection", "keep-alive",
		"upgrade", "te",
		"trailer", "expect", "max-forwards", "range", "cache-control", "pragma", "forwarded", "via", "origin",
		"referer", "idempotency-key",
		"http2-settings", "early-data", "priority", "prefer", "date", "accept":
		return true
	case "content-digest":
		return false // RFC 9530 section 2 has it there
	default:
		return strings.HasPrefix(text, "content-") || strings.HasPrefix(text, "if-") ||
			strings.HasPrefix(text, "proxy-") || strings.HasPrefix(text, "accept-")
	}
}
