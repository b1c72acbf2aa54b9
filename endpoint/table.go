package endpoint

import (
	"iter"
	"slices"
	"strings"
	"unsafe"
)

// ID names a template within one [Table]. IDs are 1, 2, 3 … in the order of the templates' paths, then methods, so
// the same set of templates always gets the same IDs.
type ID uint32

// Unknown is the ID of whatever no template matches.
const Unknown ID = 0

// Status says what a request is to a table.
type Status uint8

const (
	UnknownPath   Status = iota // no template has this path
	UnknownMethod               // some have, but none with this method
	Known
	Invalid // the target is not one, see Fault
)

// String returns the status in words.
func (s Status) String() string {
	switch s {
	case UnknownPath:
		return "unknown path"
	case UnknownMethod:
		return "unknown method"
	case Known:
		return "known"
	}
	return "invalid"
}

// Match is the answer to one request. The zero Match is a request to an unknown path.
type Match struct {
	ID     ID // Unknown unless Status is Known
	Status Status
	Fault  Fault // why Status is Invalid
}

// Table holds compiled templates; see [Compile]. It never changes, so any number of goroutines may use it.
type Table struct {
	profile   Profile
	classes   *[256]uint8   // of profile
	templates []Template    // by ID-1
	aliases   []alias       // templates that count as one of those
	shapes    map[string]ID // see Table.shape
	numbers   []uint64      // by ID; see Table.Number

	automaton
	methods []string    // the columns of ids: the commonest first
	ids     []ID        // for each row of states, the ID for each method
	queries []*queryRow // for each row, nil where no template names a query parameter; nil if none does anywhere
	strict  *strict     // what other templates are asked for; nil if the profile does not want that
}

// Match finds the template of a request: among those whose method and path match, the most specific
// one. Templates are compared segment by segment from the left: literal text is more specific than
// a parameter with literal text around it (more text before less), that one more than a bare
// parameter, and that more than {name...}. So GET /users/me is served by GET /users/{id} when only
// DELETE /users/me is declared. Of equal paths, the one that names more query parameters wins, then
// the one that asks for more values. Where a template that matches the path names a parameter, a
// target that gives it twice, or so that servers may disagree about it, is Invalid.
//
// HEAD counts as GET where HEAD is not declared itself. Any other undeclared method, OPTIONS
// included, is UnknownMethod: never part of another method's budget. CONNECT, and what is no method
// at all, is Invalid.
func (t *Table) Match(method, target string) Match {
	m := t.matchAlone(method, target)
	if t.strict != nil {
		return t.strict.judge(t, m, method, target)
	}
	return m
}

// matchAlone is Match without what the profile refuses for the sake of other templates.
func (t *Table) matchAlone(method, target string) Match {
	path, ok := clean(target, t.classes)
	if !ok {
		return t.matchDirty(method, target)
	}
	return t.match(method, path, target)
}

// matchDirty keeps the buffer out of the stack frame of Match, which would otherwise have to be zeroed for every
// clean target too.
//
//go:noinline
func (t *Table) matchDirty(method, target string) Match {
	var buf [maxStack]byte
	path, fault := t.profile.AppendCanonical(buf[:0], target)
	if fault != NoFault {
		return Match{Status: Invalid, Fault: fault}
	}
	// The bytes are read before this function returns, written no more, and not kept; a copy would allocate.
	return t.match(method, unsafe.String(unsafe.SliceData(path), len(path)), target)
}

// match finds the template of a path, and of the target it was made of if that must be read for its query.
func (t *Table) match(method, path, target string) Match {
	s := t.walk(path)
	ids := t.row(s)
	if ids == nil {
		return undeclared(method, UnknownPath)
	}
	if t.queries != nil {
		if q := t.queries[t.states[s].row]; q != nil {
			return t.matchQuery(q, ids, method, target)
		}
	}
	for i, m := range t.methods {
		if m == method && ids[i] != Unknown {
			return Match{ID: ids[i], Status: Known}
		}
	}
	return undeclared(method, UnknownMethod)
}

// undeclared is the answer to a request that no template matches. A method is looked at here alone: a declared one is a
// token other than CONNECT.
func undeclared(method string, s Status) Match {
	switch {
	case method == "CONNECT":
		return Match{Status: Invalid, Fault: Tunnel}
	case !isToken(method):
		return Match{Status: Invalid, Fault: BadMethod}
	}
	return Match{Status: s}
}

// matchQuery is match where templates name query parameters.
func (t *Table) matchQuery(q *queryRow, ids []ID, method, target string) Match {
	var g given
	_, query, _ := strings.Cut(target, "?")
	if fault := q.read(query, t.profile, &g); fault != NoFault {
		return Match{Status: Invalid, Fault: fault}
	}
	status := UnknownPath
	for i, m := range t.methods {
		id := q.choose(i, &g, ids[i])
		if id == Unknown {
			continue
		}
		if m == method {
			return Match{ID: id, Status: Known}
		}
		status = UnknownMethod
	}
	return undeclared(method, status)
}

// row returns the IDs of the templates that a path leading to state s matches, for each of
// t.methods, or nil if there are none.
func (t *Table) row(s uint32) []ID {
	row := int(t.states[s].row) * len(t.methods)
	if row == 0 {
		return nil
	}
	return t.ids[row : row+len(t.methods)]
}

// Canonical returns the canonical form of a target under the table's profile, or why it is invalid.
func (t *Table) Canonical(target string) (path string, fault Fault) {
	path, fault = t.profile.Canonical(target)
	if fault == TrailingSlash && t.strict.allowsSlash() && len(t.Allowed(target)) > 0 {
		return t.strict.lenient.profile.Canonical(target)
	}
	return path, fault
}

// Same reports whether two targets have one canonical form. Queries do not count, and an invalid target is the same as
// none.
func (t *Table) Same(a, b string) bool {
	x, fault := t.Canonical(a)
	if fault != NoFault {
		return false
	}
	y, fault := t.Canonical(b)
	return fault == NoFault && x == y
}

// Allowed returns the methods that a target may be used with, sorted, as the Allow field of a 405
// lists them (RFC 9110 section 10.2.1): those for which Match says Known. It is nil when the path
// is unknown or the target invalid. Methods of messages are none that a request may have.
func (t *Table) Allowed(target string) []string {
	if t.strict != nil {
		p := t.profile
		p.Refuse &^= RefuseTrailingSlash
		return slices.DeleteFunc(t.allowed(p, target),
			func(method string) bool { return t.Match(method, target).Status != Known })
	}
	return t.allowed(t.profile, target)
}

func (t *Table) allowed(p Profile, target string) []string {
	path, fault := p.Canonical(target)
	if fault != NoFault {
		return nil
	}
	s := t.walk(path)
	ids := t.row(s)
	if ids == nil {
		return nil
	}
	var g given
	var q *queryRow
	if t.queries != nil && t.queries[t.states[s].row] != nil {
		q = t.queries[t.states[s].row]
		_, query, _ := strings.Cut(target, "?")
		if q.read(query, t.profile, &g) != NoFault {
			return nil
		}
	}
	allowed := make([]string, 0, len(ids))
	for i, id := range ids {
		if q != nil {
			id = q.choose(i, &g, id)
		}
		if id != Unknown && !OfMessages(t.methods[i]) {
			allowed = append(allowed, t.methods[i])
		}
	}
	slices.Sort(allowed)
	return allowed
}

// Len returns the number of templates; the IDs go from 1 to Len.
func (t *Table) Len() int { return len(t.templates) }

// Template returns the template with the given ID, or the zero Template if there is none.
func (t *Table) Template(id ID) Template {
	if id == Unknown || int(id) > len(t.templates) {
		return Template{}
	}
	return t.templates[id-1]
}

// All yields every template in the order of IDs.
func (t *Table) All() iter.Seq2[ID, Template] {
	return func(yield func(ID, Template) bool) {
		for i, template := range t.templates {
			if !yield(ID(i+1), template) {
				return
			}
		}
	}
}

// Number names a template in every table that has it, under whatever parameter names, where an ID is one of this
// table alone: for what has to last longer than a table. Those of two templates differ but for an accident of 2⁻⁶⁴.
// That of Unknown is 0.
func (t *Table) Number(id ID) uint64 { return t.numbers[id] }

// Lookup returns the ID of a template that is in the table, under whatever parameter names.
func (t *Table) Lookup(template Template) (ID, bool) {
	id, ok := t.shapes[shape(template, t.profile.CaseInsensitive)]
	return id, ok
}
