// Package override tells by its name whether a field of a request asks a server
// for another method or target than those of the request line.
package override

import (
	"slices"
	"strings"
)

// Kind is what a field is, by its name alone. Names are compared without regard to
// case, and _ is a hyphen: CGI and its heirs see no difference.
type Kind uint8

const (
	Plain      Kind = iota
	OfProxies       // proxies say with it what they did
	Overriding      // asks for another method or target
)

// Of decides by patterns rather than by a list: frameworks agree on how such
// fields are called, and not on one name.
func Of(name string) Kind {
	if len(name) < len("x-url") {
		return Plain
	}
	if first, second := folded(name[0]), folded(name[1]); first != 'x' || second != '-' {
		// gunicorn reads these
		if Alike(name, "path-info") || Alike(name, "script-name") || Alike(name, "request-uri") {
			return Overriding
		}
		if len(name) < len("http-method") || strings.IndexByte("hHmM_-", name[0]) < 0 {
			return Plain
		}
	}
	var buf [64]byte
	text := Lower(buf[:0], name)
	if rest, ok := strings.CutPrefix(text, "x-"); ok {
		return ofX(rest)
	}
	if strings.Contains(text, "method-override") || strings.HasPrefix(text, "http-method") {
		return Overriding
	}
	return Plain
}

// Lower returns a name with every byte folded, as far as it fits into buf: no
// name that means anything is longer.
func Lower(buf []byte, name string) string {
	for i := range min(len(name), cap(buf)) {
		buf = append(buf, folded(name[i]))
	}
	return string(buf)
}

// ofX is Of for names that begin with X-, and rest is what follows.
func ofX(rest string) Kind {
	switch {
	case strings.Contains(rest, "method-override"), strings.Contains(rest, "override-method"),
		strings.HasPrefix(rest, "http-method"), rest == "method":
		return Overriding
	case rest == "path-info", rest == "script-name", rest == "request-uri", rest == "url", rest == "uri",
		strings.HasPrefix(rest, "invoke-"), strings.HasPrefix(rest, "middleware-"): // the last two are Next.js's
		return Overriding
	case slices.ContainsFunc(beforeTargets, func(prefix string) bool { return strings.HasPrefix(rest, prefix) }) &&
		slices.ContainsFunc(targets, func(suffix string) bool { return strings.HasSuffix(rest, suffix) }):
		return Overriding
	case strings.HasPrefix(rest, "forwarded-"), strings.HasPrefix(rest, "original-forwarded-"), rest == "original-host",
		rest == "host", strings.HasSuffix(rest, "-host-override"):
		return OfProxies
	}
	return Plain
}

var (
	beforeTargets = []string{"original-", "rewrite-", "rewritten-", "forwarded-", "envoy-original-",
		"matched-", "proxy-"}
	targets = []string{"-url", "-uri", "-path", "-method", "-query"}
)

// Alike reports whether some server may take one field for the other.
func Alike(a, b string) bool {
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
