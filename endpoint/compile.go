package endpoint

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Compile makes a table of templates, in any order; the same text given twice is one template. The error joins
// everything that is wrong, each part naming the templates: two that match the same request with equal
// specificity (such as the same path with other parameter names), a path that is not canonical
// under the profile, the zero Template, and more variety than the table is built for: 64 methods, 64
// different lengths of text around a parameter in one place, or templates that overlap so widely that merging
// them takes more than 4096 + 64 × segments states and edges (real APIs need less than one for each segment).
func Compile(templates []Template, p Profile) (*Table, error) {
	return compileWith(templates, nil, p)
}

// alias is a template that counts as another: requests that match it have the other's ID.
type alias struct{ template, of Template }

// compileWith is Compile with templates that count as others, each of which is among templates.
func compileWith(templates []Template, aliases []alias, p Profile) (*Table, error) {
	templates = slices.Clone(templates)
	slices.SortFunc(templates, func(a, b Template) int {
		return cmp.Or(strings.Compare(a.Path(), b.Path()), strings.Compare(a.Method(), b.Method()),
			strings.Compare(a.Query(), b.Query()))
	})
	written := make(map[string]ends)
	for i := range templates {
		written[templates[i].text] |= templates[i].ends
		templates[i].ends = min(templates[i].ends, withoutSlash) // the zero Template stays one
	}
	templates = slices.Compact(templates)
	for _, a := range aliases {
		written[a.of.text] |= a.template.ends
	}

	routes, err := newRoutes(templates, aliases, p)
	if err := errors.Join(err, conflicts(routes)); err != nil {
		return nil, err
	}
	methods, err := methodColumns(routes)
	if err != nil {
		return nil, err
	}
	t := &Table{
		profile:   p,
		classes:   p.classes(),
		templates: templates,
		aliases:   aliases,
		methods:   methods,
		shapes:    make(map[string]ID, len(templates)),
		numbers:   numbersOf(templates),
	}
	for _, r := range routes {
		t.shapes[shape(r.Template, p.CaseInsensitive)] = r.id
	}
	b := newBuilder(routes)
	if err := b.build(); err != nil {
		return nil, err
	}
	t.automaton = b.automaton
	t.ids = make([]ID, len(methods)) // row 0: no template
	for _, ends := range b.rows {
		t.ids = append(t.ids, bestByMethod(ends, methods)...)
	}
	if slices.ContainsFunc(routes, func(r route) bool { return r.query > 0 }) {
		t.queries = make([]*queryRow, 1, len(b.rows)+1)
		for _, ends := range b.rows {
			q, err := newQueryRow(ends, methods)
			if err != nil {
				return nil, err
			}
			t.queries = append(t.queries, q)
		}
	}
	if t.strict, err = newStrict(t, routes, written); err != nil {
		return nil, err
	}
	return t, nil
}

// route is a template ready to be compiled.
type route struct {
	Template
	id ID
	// Letter case is folded in these, if the profile does.
	segments   []segment
	conditions []condition
}

func newRoutes(templates []Template, aliases []alias, p Profile) ([]route, error) {
	var problems []error
	routes := make([]route, 0, len(templates))
	for i, t := range templates {
		r, err := newRoute(t, ID(i+1), p)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		routes = append(routes, r)
	}
	for _, a := range aliases {
		of := a.of
		of.ends = withoutSlash
		r, err := newRoute(a.template, ID(slices.Index(templates, of)+1), p)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		routes = append(routes, r)
	}
	return routes, errors.Join(problems...)
}

func newRoute(t Template, id ID, p Profile) (route, error) {
	if t == (Template{}) {
		return route{}, errors.New("template is empty, want one made by ParseTemplate")
	}
	if _, err := canonicalTemplatePath(t.Path(), p); err != nil {
		return route{}, templateError(t.text, err)
	}
	segments, err := parseSegments(foldIf(p.CaseInsensitive, t.Path()))
	if err != nil {
		return route{}, templateError(t.text, err)
	}
	conditions := t.conditions()
	for i, c := range conditions {
		if i > 0 && slices.ContainsFunc(conditions[:i],
			func(other condition) bool { return strings.EqualFold(other.name, c.name) }) {
			return route{}, templateError(t.text,
				fmt.Errorf("query parameter %q is named twice but for letter case, want it once", c.name))
		}
	}
	return route{t, id, segments, conditions}, nil
}

// foldIf returns canonical text in lower case, escapes excepted, if fold is set.
func foldIf(fold bool, text string) string {
	if !fold {
		return text
	}
	folded := []byte(text)
	for i, c := range folded {
		if 'A' <= c && c <= 'Z' && !insideEscape(text, i) {
			folded[i] = c | 0x20
		}
	}
	return string(folded)
}

// shape returns the text of a template without the names of its parameters: equal for templates that match the
// same requests.
func shape(t Template, fold bool) string {
	var b strings.Builder
	b.WriteString(t.Method())
	b.WriteByte(' ')
	path := foldIf(fold, t.Path())
	for {
		before, after, ok := strings.Cut(path, "{")
		b.WriteString(before)
		if !ok {
			break
		}
		var name string
		name, path, _ = strings.Cut(after, "}")
		b.WriteByte('{')
		if strings.HasSuffix(name, "...") {
			b.WriteString("...")
		}
		b.WriteByte('}')
	}
	separator := byte('?')
	for _, c := range t.conditions() {
		b.WriteByte(separator)
		separator = '&'
		b.WriteString(escapeQuery(c.name) + "=")
		if c.any {
			b.WriteString("{}")
		} else {
			b.WriteString(escapeQuery(c.value))
		}
	}
	return b.String()
}

// numbersOf returns Table.Number of templates in the order of IDs.
func numbersOf(templates []Template) []uint64 {
	numbers := make([]uint64, 1, 1+len(templates))
	for _, t := range templates {
		digest := sha256.Sum256([]byte(shape(t, false)))
		numbers = append(numbers, binary.BigEndian.Uint64(digest[:]))
	}
	return numbers
}

// compareSpecificity orders two templates that match the same path: negative if a is the more specific.
func compareSpecificity(a, b []segment) int {
	for i := range min(len(a), len(b)) {
		if c := cmp.Or(cmp.Compare(b[i].kind, a[i].kind), cmp.Compare(b[i].affix.len(), a[i].affix.len())); c != 0 {
			return c
		}
	}
	return 0
}

// conflicts returns an error for every two routes of one method that match some path with equal specificity. Only
// routes that agree in everything but parameter names and the text around parameters can.
func conflicts(routes []route) error {
	groups := make(map[string][]route)
	for _, r := range routes {
		key := specificity(r)
		groups[key] = append(groups[key], r)
	}
	var problems []error
	for _, r := range routes {
		for _, other := range groups[specificity(r)] {
			if path, ok := bothMatch(r, other); ok && r.id < other.id {
				problems = append(problems,
					fmt.Errorf("templates %q and %q both match %s with equal specificity: remove one, or make one "+
						"more specific",
						r, other, path))
			}
		}
	}
	return errors.Join(problems...)
}

// bothMatch returns a target that two routes with equal specificity text both match, if there is one.
func bothMatch(a, b route) (string, bool) {
	path, ok := commonPath(a.segments, b.segments)
	query, meet := commonQuery(a.conditions, b.conditions)
	if query != "" {
		path += "?" + query
	}
	return path, ok && meet
}

// specificity returns a text that is equal for routes of one method and equal specificity that may match the same path.
func specificity(r route) string {
	var b strings.Builder
	b.WriteString(r.Method())
	for _, s := range r.segments {
		fmt.Fprintf(&b, "/%d:%d:%s", s.kind, s.affix.len(), s.text)
	}
	fmt.Fprintf(&b, "?%d:%d", len(r.conditions), values(r.conditions))
	return b.String()
}

// commonPath returns a path that two routes with equal specificity text both match, if there is one.
func commonPath(a, b []segment) (string, bool) {
	path := "/"
	for i := range a {
		if i > 0 {
			path += "/"
		}
		if !a[i].affix.meets(b[i].affix) {
			return "", false
		}
		if a[i].kind == exact {
			path += a[i].text
			continue
		}
		path += longer(a[i].prefix, b[i].prefix) + "x" + filled(a[i].middle)
		if b[i].middle != a[i].middle {
			path += filled(b[i].middle)
		}
		path += longer(a[i].suffix, b[i].suffix)
	}
	return path, true
}

// filled returns the texts between parameters, each with a value after it.
func filled(middle string) string { return strings.ReplaceAll(middle, endOfText, "x") }

func longer(a, b string) string {
	if len(a) > len(b) {
		return a
	}
	return b
}

// maxMethods bounds the time that Match takes to find a method. The IANA registry has 39.
const maxMethods = 64

// methodColumns returns every declared method, the commonest first, with HEAD if there is a GET.
func methodColumns(templates []route) ([]string, error) {
	count := make(map[string]int)
	for _, t := range templates {
		count[t.Method()]++
	}
	if count["GET"] > 0 {
		count["HEAD"]++
	}
	var methods []string
	for m := range count {
		methods = append(methods, m)
	}
	if len(methods) > maxMethods {
		return nil, fmt.Errorf("templates have %d methods, want at most %d", len(methods), maxMethods)
	}
	slices.SortFunc(methods, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(a, b))
	})
	return methods, nil
}

// servingInOrder returns those of routes that may serve a method, the most specific first.
func servingInOrder(routes []*route, method string) []*route {
	var serving []*route
	for _, r := range routes {
		if r.Method() == method || method == "HEAD" && r.Method() == "GET" {
			serving = append(serving, r)
		}
	}
	declared := func(r *route) int {
		if r.Method() == method {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(serving, func(a, b *route) int {
		return cmp.Or(compareSpecificity(a.segments, b.segments), compareConditions(a.conditions, b.conditions),
			declared(a)-declared(b))
	})
	return serving
}

// bestByMethod returns, for each method, the ID of the most specific of the routes that have it whatever the query.
func bestByMethod(routes []*route, methods []string) []ID {
	ids := make([]ID, len(methods))
	for i, m := range methods {
		for _, r := range servingInOrder(routes, m) {
			if len(r.conditions) == 0 {
				ids[i] = r.id
				break
			}
		}
	}
	return ids
}
