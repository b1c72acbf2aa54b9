package framework

import (
	"fmt"
	"maps"
	"slices"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/convert"
)

// route is one method of one way to write a route.
type route struct {
	line    int
	method  string
	pattern string // as the application has it
	path    path
	ends    bool   // in a slash
	query   string // that it asks for, such as "?action=login", or none
	text    string // of the template
}

// done makes the templates: the routes that are served, in their order, each once.
func (r *report) done() Routes {
	found := Routes{Found: len(r.routes)}
	byMethod := map[string][]route{}
	seen := map[string]bool{}
	for _, now := range r.routes {
		t, err := endpoint.ParsePath(now.method, now.path.String()+now.query)
		if err != nil {
			r.lost(now.line, "%s: %v", now.pattern, err)
			continue
		}
		now.text = t.String()
		if r.first && !r.reached(byMethod[now.method], now) {
			continue
		}
		byMethod[now.method] = append(byMethod[now.method], now)
		if shape := now.method + now.path.shape() + now.query; !seen[shape] {
			seen[shape] = true
			found.Templates = append(found.Templates, now.text)
		}
	}
	for _, method := range slices.Sorted(maps.Keys(byMethod)) {
		r.borrowed(byMethod[method])
	}
	if r.extensions > 0 {
		r.differs(0, "an extension, as (.:format) allows it, is an endpoint of its own at %d routes, with buckets of "+
			"its own: delete these lines if nobody asks so", r.extensions)
	}
	found.Notes = r.said()
	return found
}

// reached reports whether requests come to a route in spite of those before it.
func (r *report) reached(before []route, now route) bool {
	for _, first := range before {
		if first.line == now.line && first.pattern == now.pattern {
			continue // another way to write it
		}
		switch first.path.takes(now.path, r.folds) {
		case no:
			continue
		case yes:
			if r.slash && first.ends != now.ends && !first.path.open() && !now.path.open() {
				r.note(convert.Differs, now.line, now.method, "%s and %s, which stands before it, differ by a slash "+
					"at the end: both ways count as %s", now.pattern, at(first), now.path)
				return true
			}
			if first.path.String() != now.path.String() { // else it is the same endpoint
				r.note(convert.Lost, now.line, now.method, "%s is never served: %s stands before it and takes all "+
					"its requests",
					now.pattern, at(first))
			}
			return false
		}
		if now.path.wins(first.path) {
			r.note(convert.Differs, now.line, now.method,
				"%s: some of its requests are served by %s, which stands before it, and count as %s", now.pattern,
				at(first), now.path)
			return true
		}
	}
	return true
}

// open reports whether p takes slashes, also at its end.
func (p path) open() bool { return len(p) > 0 && p[len(p)-1].rest }

// borrowed notes where a template takes requests that an expression refuses and another route serves.
func (r *report) borrowed(routes []route) {
	shapes := map[string]route{}
	for _, narrow := range routes {
		shape := narrow.path.shape() + narrow.query
		if other, twice := shapes[shape]; twice && (other.line != narrow.line || other.pattern != narrow.pattern) {
			r.note(convert.Differs, narrow.line, narrow.method, "%s and %s are one endpoint: templates cannot tell "+
				"them apart",
				narrow.pattern, at(other))
		} else if !twice {
			shapes[shape] = narrow
		}
		if !narrow.path.wide() {
			continue
		}
		template := narrow.path.template(r.folds)
		for _, other := range routes {
			if (other.line != narrow.line || other.pattern != narrow.pattern) && narrow.path.wins(other.path) &&
				template.takes(other.path, r.folds) != no {
				r.note(convert.Differs, narrow.line, narrow.method, "%s: what its expression refuses and %s serves "+
					"counts as %s",
					narrow.pattern, at(other), narrow.path)
				break
			}
		}
	}
}

// shape is equal for paths whose templates match the same requests.
func (p path) shape() string {
	text := ""
	for _, s := range p {
		text += "/"
		for _, t := range s.tokens {
			switch {
			case s.rest:
				text += "{...}"
			case t.name != "":
				text += "{}"
			default:
				text += escape.Replace(t.text)
			}
		}
	}
	return text
}

func at(r route) string {
	if r.line == 0 {
		return r.pattern
	}
	return fmt.Sprintf("%s (line %d)", r.pattern, r.line)
}
