package httplimit

import (
	"net/http"
	"net/url"
	"strings"
)

// Target returns the target of r in origin form, path and query as they stood
// on the wire, and never decoded. It is empty, which no Limiter lets pass, where
// r has no target that everybody reads in the same way:
//
//   - Over HTTP/1 a target is in origin form, or in absolute form (RFC 9112
//     sections 3.2.1 and 3.2.2) with the scheme http or https and an authority
//     that is a host with or without a port; that is cut to path and query.
//     Where net/url reads other text as a URL, such as x:/path, it finds a path
//     there, so a server behind might serve it.
//   - Over HTTP/2 and HTTP/3 it is in origin form (RFC 9113 section 8.3.1).
//   - r.URL is what net/http reads in that target. A request without
//     RequestURI, which was made by hand, has the target that is in r.URL, if
//     its Path and its RawPath agree.
//
// A target that begins with / may still have no safe reading, which package
// endpoint decides.
func Target(r *http.Request) string { return target(r, false) }

// target is Target, with Options.Rewritten.
func target(r *http.Request, rewritten bool) string {
	if r.URL == nil || r.URL.Opaque != "" {
		return ""
	}
	if r.RequestURI == "" {
		return targetOf(r.URL)
	}
	line := originForm(r)
	switch {
	case line == "" || agrees(r.URL, line):
		return line
	case rewritten:
		return targetOf(r.URL)
	}
	return ""
}

// originForm returns the target of r's request line in origin form, or nothing.
func originForm(r *http.Request) string {
	if r.RequestURI[0] == '/' {
		return r.RequestURI
	}
	scheme, rest, ok := strings.Cut(r.RequestURI, "://")
	if !ok || !webScheme(scheme) || r.ProtoMajor > 1 {
		return ""
	}
	authority, path := rest, ""
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		authority, path = rest[:end], rest[end:]
	}
	switch {
	case !plainAuthority(authority):
		return ""
	case path != "" && path[0] == '/':
		return path
	case r.Method == http.MethodOptions:
		return "" // stands for "*" (RFC 9112 section 3.2.4)
	}
	return "/" + path // RFC 9110 section 4.2.3: an empty path is /
}

func webScheme(scheme string) bool {
	return strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")
}

// plainAuthority reports whether an authority is a host with or without a port.
// It has no user: nobody sends one to a server, and RFC 9110 section 4.2.4 says
// to take it for an error.
func plainAuthority(authority string) bool {
	host, port := authority, ""
	if colon := strings.LastIndexByte(authority, ':'); colon > strings.LastIndexByte(authority, ']') {
		host, port = authority[:colon], authority[colon+1:]
	}
	if strings.Trim(port, "0123456789") != "" || host == "" {
		return false
	}
	if literal, ok := strings.CutPrefix(host, "["); ok { // an IPv6 address without a zone
		literal, ok = strings.CutSuffix(literal, "]")
		return ok && literal != "" && strings.Trim(literal, "0123456789abcdefABCDEF:.") == ""
	}
	for i := range len(host) {
		switch c := host[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~':
		default:
			return false
		}
	}
	return true
}

// agrees reports whether u says the same path and query as the target line.
func agrees(u *url.URL, line string) bool {
	path, query, _ := strings.Cut(line, "?")
	switch {
	case u.RawQuery != query:
		return false
	case u.RawPath != "":
		return u.RawPath == path && decodesTo(path, u.Path)
	case strings.IndexByte(path, '%') < 0:
		return u.Path == path || u.Path == "" && path == "/"
	}
	return u.EscapedPath() == path
}

// targetOf returns the target that a URL asks for, or nothing where some who
// read it may find another path than others.
func targetOf(u *url.URL) string {
	path := u.RawPath
	switch {
	case u.Scheme != "" && !webScheme(u.Scheme):
		return ""
	case path == "":
		path = u.EscapedPath()
	case strings.IndexByte(path, '?') >= 0 || !decodesTo(path, u.Path):
		return ""
	}
	if path == "" {
		path = "/"
	}
	if u.RawQuery == "" && !u.ForceQuery {
		return path
	}
	return path + "?" + u.RawQuery
}

// decodesTo reports whether escaped is decoded once.
func decodesTo(escaped, decoded string) bool {
	n := 0
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		if c == '%' {
			if i+2 >= len(escaped) {
				return false
			}
			high, low := hexDigit(escaped[i+1]), hexDigit(escaped[i+2])
			if high < 0 || low < 0 {
				return false
			}
			c = byte(high<<4 | low)
			i += 2
		}
		if n == len(decoded) || decoded[n] != c {
			return false
		}
		n++
	}
	return n == len(decoded)
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
