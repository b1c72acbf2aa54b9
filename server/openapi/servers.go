package openapi

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// documentBases reports the base paths that hold for the whole document.
func (d *document) documentBases(top []member) []string {
	if d.servers {
		if servers := find(top, "servers"); servers != nil {
			return d.serverBases(servers, "servers")
		}
		return []string{""} // OpenAPI 3: the default is a server at "/"
	}
	base := find(top, "basePath")
	if base == nil || base.kind() == null {
		return []string{""}
	}
	path := base.text()
	if base.kind() != scalar || path != "" && !strings.HasPrefix(path, "/") {
		d.fault(base, "basePath is %s, want a path that begins with a slash", shown(base))
		return nil
	}
	return []string{trimBase(path)}
}

// serverBases reports the distinct base paths of a list of servers, in their
// order. Servers that differ in the host alone are one.
func (d *document) serverBases(servers node, where string) []string {
	if servers.kind() != list {
		d.fault(servers, "%s is %s, want a list of servers", where, servers.kind())
		return nil
	}
	var bases []string
	part := d.part
	defer func() { d.part = part }()
	d.part = true // as long as another server is left
	faults := len(d.warnings)
	for i, n := range servers.items() {
		where := fmt.Sprintf("%s[%d]", where, i)
		server, ok := d.mapping(n, where, "a server: a mapping with a url")
		if !ok {
			continue
		}
		address := find(server, "url")
		if address == nil || address.kind() != scalar {
			d.fault(n, "%s: url is missing, want one such as \"https://api.example.com/v1\" or \"/v1\"", where)
			continue
		}
		text, ok := d.expand(address, find(server, "variables"), where)
		if !ok {
			continue
		}
		base, err := basePath(text)
		if err != nil {
			d.fault(address, "%s: url is %s, which %w", where, quoted(text), err)
			continue
		}
		if !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	switch {
	case bases == nil && len(servers.items()) == 0:
		return []string{""} // OpenAPI 3: an empty list is a server at "/"
	case bases == nil && !part: // of the whole document, of which nothing is left then
		for _, w := range d.warnings[faults:] {
			d.faults = append(d.faults, errors.New(w.Text))
		}
		d.warnings = d.warnings[:faults]
	}
	return bases
}

var variable = regexp.MustCompile(`\{[^{}]*\}`)

// expand puts the defaults of a server's variables into its URL. The other
// values a variable may take are not endpoints of this document.
func (d *document) expand(address, variables node, where string) (string, bool) {
	var known []member
	if variables != nil {
		known, _ = d.mapping(variables, where+" variables", "a mapping of names to variables")
	}
	ok := true
	origin := originOf(address.text())
	at := 0
	text := variable.ReplaceAllStringFunc(address.text(), func(braced string) string {
		name := braced[1 : len(braced)-1]
		at += strings.Index(address.text()[at:], braced) + len(braced)
		if at <= origin {
			if at <= strings.Index(address.text(), "://") {
				return "https"
			}
			return "1" // as a host or a port: no path depends on either
		}
		v := find(known, name)
		if v != nil {
			members, isMapping := d.mapping(v, where+" variables "+quoted(name), "a mapping with a default")
			if value := find(members, "default"); value != nil && value.kind() == scalar {
				return value.text()
			} else if !isMapping {
				ok = false
				return ""
			}
		}
		d.fault(address, "%s: url names the variable %s, which has no default, want it under variables",
			where, quoted(name))
		ok = false
		return ""
	})
	return text, ok
}

// originOf is the length of the scheme and the host that a server's URL begins with, 0 if it has none.
func originOf(address string) int {
	scheme := strings.Index(address, "://")
	if scheme < 0 || strings.Contains(address[:scheme], "/") {
		return 0
	}
	path := strings.IndexByte(address[scheme+3:], '/')
	if path < 0 {
		return len(address)
	}
	return scheme + 3 + path
}

// basePath reports the path of a server's URL without its last slash. A URL
// without a leading slash is relative to where the document was published,
// which is not known here; the root is assumed.
func basePath(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || strings.ContainsAny(address, "<>") { // a placeholder, as in <your-host>
		return "", errors.New("is no URL, want one such as \"https://api.example.com/v1\" or \"/v1\"")
	}
	path := u.EscapedPath()
	first, _, _ := strings.Cut(path, "/")
	looksLikeHost := strings.Contains(first, ".") && strings.Trim(first, ".") != ""
	if u.Opaque != "" || u.Host == "" && looksLikeHost {
		return "", fmt.Errorf("has no scheme, want %q, or a path that begins with a slash", "https://"+address)
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return trimBase(path), nil
}

// trimBase removes what would stand doubled or change nothing before a path:
// steps that stay where they are, and the last slash.
func trimBase(path string) string {
	for strings.HasPrefix(path, "/./") || strings.HasPrefix(path, "/../") {
		path = path[strings.IndexByte(path[1:], '/')+1:]
	}
	if path == "/." || path == "/.." {
		return ""
	}
	return strings.TrimRight(path, "/")
}
