// Package pattern reads the route patterns of Go routers as endpoint templates.
//
//	var routes []pattern.Route
//	for _, r := range engine.Routes() { // a *gin.Engine
//		routes = append(routes, pattern.Route{Method: r.Method, Pattern: r.Path})
//	}
//	table, err := pattern.Gin.Table(routes...)
//
// A table made so chooses the template of the route that the router chooses, for every target that the dialect's
// profile accepts: routers differ in what a parameter takes, and each difference is a way to be counted as
// one endpoint and served as another. What has no template that does is an error.
package pattern

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/endpoint"
)

// Dialect is how a router writes its patterns.
type Dialect uint8

const (
	// ServeMux is net/http's router since Go 1.22: "GET /items/{id}", "/files/{path...}", "/static/", "/{$}". The
	// method stands in the pattern.
	ServeMux Dialect = iota + 1
	// Chi is github.com/go-chi/chi: /items/{id}, /items/{id:[0-9]+}, /files/*.
	Chi
	// Gin is github.com/gin-gonic/gin: /items/:id, /files/*path. It reads the decoded path, as gin does unless
	// UseRawPath is set.
	Gin
	// Echo is github.com/labstack/echo: /items/:id, /files/*. A parameter at the end takes slashes too
	// unless another route goes on behind it, so it becomes {id...} then.
	Echo
	// Fiber is github.com/gofiber/fiber: /items/:id, /files/*, /files/+. It takes the first route that
	// fits, in the order in which they were registered, so a more specific one has to stand before. It
	// reads the path undecoded, as fiber does unless UnescapePath is set, and no letter case or slash at
	// the end tells two routes apart.
	Fiber
)

var names = map[string]Dialect{"servemux": ServeMux, "chi": Chi, "gin": Gin, "echo": Echo, "fiber": Fiber}

// Parse returns the dialect called servemux, chi, gin, echo or fiber.
func Parse(name string) (Dialect, error) {
	if d, ok := names[name]; ok {
		return d, nil
	}
	return 0, fmt.Errorf("dialect is %q, want servemux, chi, gin, echo or fiber", name)
}

// String returns the name that Parse takes.
func (d Dialect) String() string {
	for name, dialect := range names {
		if dialect == d {
			return name
		}
	}
	return fmt.Sprintf("Dialect(%d)", uint8(d))
}

// Profile returns how the router reads targets, with what it reads in its own way refused: dot segments, which none
// of them removes once they are encoded; elsewhere repeated slashes, between which some find an empty parameter;
// needless escapes, which chi and echo compare as they are written; and a slash at the end that no pattern has, which
// a router may serve by a less specific route.
func (d Dialect) Profile() endpoint.Profile {
	p := endpoint.Profile{
		EncodedSlash: endpoint.KeepEncodedSlash, Params: endpoint.KeepParams,
		Refuse: endpoint.RefuseDotSegments | endpoint.RefuseTrailingSlash,
	}
	switch d {
	case Chi, Echo:
		p.Refuse |= endpoint.RefuseRepeatedSlashes | endpoint.RefuseUnreservedEscapes
	case Gin:
		p.EncodedSlash = endpoint.DecodeEncodedSlash
		p.Refuse |= endpoint.RefuseRepeatedSlashes
	case Fiber:
		p = endpoint.Strictest()
		p.Params = endpoint.KeepParams
	}
	return p
}

// Route is a pattern as a router reports it.
type Route struct {
	Method  string // empty or ANY for every method; part of the pattern for ServeMux
	Pattern string
}

// methods are what a route for every method is taken for: those of RFC 9110 but CONNECT, which is
// never let through, and PATCH.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"}

// Table returns the table of all routes of one router, which reads targets as the router does.
func (d Dialect) Table(routes ...Route) (*endpoint.Table, error) {
	templates, err := d.Templates(routes...)
	if err != nil {
		return nil, err
	}
	return endpoint.Compile(templates, d.Profile())
}

// Templates returns the templates of all routes of one router, which decide together what each of
// them takes. Routes that cannot be told apart by templates, such as /{id:[0-9]+} and /{slug},
// share the first one's. The error joins what is wrong, and names the patterns.
func (d Dialect) Templates(routes ...Route) ([]endpoint.Template, error) {
	var all []route
	var faults []error
	for _, r := range routes {
		read, err := d.read(r)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s pattern %q: %w", d, r.Pattern, err))
			continue
		}
		all = append(all, read...)
	}
	if d == ServeMux {
		faults = append(faults, oneHost(all))
	}
	switch d {
	case Echo:
		faults = append(faults, takeSlashes(all)...)
	case Fiber:
		faults = append(faults, outOfOrder(all)...)
	}
	all = merge(withoutTaken(all))
	faults = append(faults, d.borrowed(all)...)
	var templates []endpoint.Template
	for _, r := range all {
		t, err := r.template()
		if err != nil {
			faults = append(faults, fmt.Errorf("%s pattern %q: %w", d, r.pattern, err))
			continue
		}
		templates = append(templates, t)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return templates, nil
}

// route is a pattern that was read, for one method.
type route struct {
	pattern string // as it was given
	bare    bool   // what a rest takes is nothing
	method  string
	host    string
	parts   []part
	ends    ends
}

// ends says whether targets of a route end in a slash, which templates are written with then
// (endpoint.RefuseTrailingSlash).
type ends uint8

const (
	plain ends = 1 << iota
	slash
)

// part is what a route asks of one segment.
type part struct {
	kind           kind
	prefix, suffix string // of kind param, canonical
	name           string // of a parameter
	// wide says that the template takes segments here that the router does not.
	wide bool
}

type kind uint8

const (
	rest    kind = iota // one segment or more
	param               // one segment
	literal             // the text prefix
)

func (r route) template() (endpoint.Template, error) {
	path := r.path()
	if r.ends == slash && path != "/" {
		path += "/"
	}
	t, err := endpoint.ParseTemplate(r.method + " " + path)
	if err == nil && r.ends == plain|slash {
		t = t.EitherEnd()
	}
	return t, err
}

// path returns the path of the route's template, without a slash at the end.
func (r route) path() string {
	var b strings.Builder
	for _, p := range r.parts {
		switch b.WriteByte('/'); p.kind {
		case literal:
			b.WriteString(p.prefix)
		case param:
			b.WriteString(p.prefix + "{" + p.name + "}" + p.suffix)
		case rest:
			b.WriteString("{" + p.name + "...}")
		}
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// shape is equal for routes whose templates match the same requests.
func (r route) shape() string {
	var b strings.Builder
	b.WriteString(r.method)
	for _, p := range r.parts {
		fmt.Fprintf(&b, "/%d%s{}%s", p.kind, p.prefix, p.suffix)
	}
	return b.String()
}

// read reads one pattern: a route for each of its methods, and for each of its lengths.
func (d Dialect) read(r Route) ([]route, error) {
	method, pattern, host := r.Method, r.Pattern, ""
	if d == ServeMux {
		var err error
		if method, host, pattern, err = splitServeMux(r); err != nil {
			return nil, err
		}
	}
	if !strings.HasPrefix(pattern, "/") {
		return nil, fmt.Errorf("path is %q, want one that starts with /", pattern)
	}
	parts, err := d.parts(pattern)
	if err != nil {
		return nil, err
	}
	each := []string{method}
	if method == "" || method == "ANY" {
		each = methods
	}
	var found []route
	for _, method := range each {
		if method == "CONNECT" || d == Echo && method == "echo_route_not_found" {
			continue // as gin's Any registers it; what echo's groups with middleware have for all that they do not find
		}
		whole := route{pattern: r.Pattern, method: method, host: host, parts: parts, ends: endsOf(pattern, parts)}
		found = append(found, whole)
		// What is left for a rest may be nothing, behind the slash before it.
		if n := len(parts) - 1; n >= 0 && parts[n].kind == rest {
			bare := whole
			bare.bare, bare.parts, bare.ends = true, parts[:n], plain|slash
			found = append(found, bare)
		}
	}
	return found, nil
}

func endsOf(pattern string, parts []part) ends {
	if n := len(parts); n > 0 && parts[n-1].kind == rest { // which takes /files/a and the folder /files/a/
		return plain | slash
	}
	if strings.HasSuffix(pattern, "/") || strings.HasSuffix(pattern, "/{$}") {
		return slash
	}
	return plain
}

func (d Dialect) parts(pattern string) ([]part, error) {
	var parts []part
	texts, err := d.segments(pattern[1:])
	if err != nil {
		return nil, err
	}
	for i, text := range texts {
		last := i == len(texts)-1
		if text == "" {
			if last {
				if d == ServeMux {
					parts = append(parts, part{kind: rest, name: "rest"})
				}
				break // the slash at the end
			}
			return nil, errors.New("it holds an empty segment, want single slashes")
		}
		p, end, err := d.part(text)
		switch {
		case err != nil:
			return nil, err
		case end && !last:
			return nil, fmt.Errorf("%q stands before the end, want it last", text)
		case end && p == (part{}): // {$}
			continue
		}
		if p.kind == literal && (p.prefix == "." || p.prefix == "..") {
			return nil, fmt.Errorf("segment is %q, which no target keeps", text)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// segments splits at slashes that are not within braces: a regular expression of chi may hold them.
func (d Dialect) segments(text string) (all []string, err error) {
	depth, from := 0, 0
	for i := range len(text) {
		switch {
		case text[i] == '{' && (d == ServeMux || d == Chi):
			depth++
		case text[i] == '}' && (d == ServeMux || d == Chi):
			depth--
		case text[i] == '/' && depth == 0:
			all, from = append(all, text[from:i]), i+1
		}
		if depth < 0 {
			break
		}
	}
	if depth != 0 {
		return nil, errors.New("its braces do not match, want {name}")
	}
	return append(all, text[from:]), nil
}

// part reads a segment; end says that nothing may follow it.
func (d Dialect) part(text string) (p part, end bool, err error) {
	switch d {
	case ServeMux:
		return serveMuxPart(text)
	case Chi:
		return chiPart(text)
	case Fiber:
		return fiberPart(text)
	}
	return colonPart(text, d)
}

// literalPart returns a segment of text that stands for itself.
func literalPart(text string) part { return part{kind: literal, prefix: canonical(text)} }

// canonical escapes what a canonical path does not hold as itself.
func canonical(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7F || strings.IndexByte(`#%?\{}/`, c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// withoutTaken leaves out what a rest that takes nothing has in common with another route. /files/*
// takes /files/, but /{x} takes /files, and to a template the two are one.
func withoutTaken(routes []route) (left []route) {
	for _, r := range routes {
		taken := r.bare && slices.ContainsFunc(routes, func(other route) bool {
			return !other.bare && other.method == r.method && overlap(r.parts, other.parts)
		})
		if !taken {
			left = append(left, r)
		}
	}
	return left
}

// merge leaves the first of the routes whose templates match the same requests.
func merge(routes []route) []route {
	seen := make(map[string]int)
	var merged []route
	for _, r := range routes {
		if i, ok := seen[r.shape()]; ok {
			merged[i].ends |= r.ends
			// What the one refuses the other may serve, from the same budget.
			for n, p := range r.parts {
				if !p.wide {
					merged[i].parts = slices.Clone(merged[i].parts)
					merged[i].parts[n].wide = false
				}
			}
			continue
		}
		seen[r.shape()] = len(merged)
		merged = append(merged, r)
	}
	return merged
}

// borrowed reports the routes whose template takes requests that the router gives to another route: where a regular
// expression refuses a segment, the router goes on to a less specific route, and a template does not.
func (d Dialect) borrowed(routes []route) (faults []error) {
	reported := make(map[[2]string]bool)
	for _, wide := range routes {
		if !slices.ContainsFunc(wide.parts, func(p part) bool { return p.wide }) {
			continue
		}
		for _, other := range routes {
			pair := [2]string{wide.pattern, other.pattern}
			if wide.method != other.method || wide.pattern == other.pattern || reported[pair] ||
				!moreSpecific(wide, other) || !overlap(wide.parts, other.parts) {
				continue
			}
			reported[pair] = true
			faults = append(faults,
				fmt.Errorf("%s pattern %q: a path may match its template %q although the router refuses it and "+
					"serves %q: make them differ in a segment of plain text",
					d, wide.pattern, wide.path(), other.pattern))
		}
	}
	return faults
}

// moreSpecific reports whether the template of a wins over that of b.
func moreSpecific(a, b route) bool {
	for i := range min(len(a.parts), len(b.parts)) {
		p, q := a.parts[i], b.parts[i]
		if p.kind != q.kind {
			return p.kind > q.kind
		}
		if n, m := len(p.prefix)+len(p.suffix), len(q.prefix)+len(q.suffix); p.kind == param && n != m {
			return n > m
		}
	}
	return false
}

// overlap reports whether some path may match both.
func overlap(a, b []part) bool {
	for i := 0; ; i++ {
		switch {
		case i == len(a) || i == len(b):
			return len(a) == len(b)
		case a[i].kind == rest || b[i].kind == rest:
			return true
		case !a[i].meets(b[i]):
			return false
		}
	}
}

func (p part) meets(q part) bool {
	if p.kind == literal && q.kind == literal {
		return p.prefix == q.prefix
	}
	if p.kind == literal {
		p, q = q, p
	}
	if q.kind == literal {
		return strings.HasPrefix(q.prefix, p.prefix) && strings.HasSuffix(q.prefix, p.suffix)
	}
	return (strings.HasPrefix(p.prefix, q.prefix) || strings.HasPrefix(q.prefix, p.prefix)) &&
		(strings.HasSuffix(p.suffix, q.suffix) || strings.HasSuffix(q.suffix, p.suffix))
}
