package endpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The templates are compiled into a deterministic automaton over segments. A plain trie has to go
// back when the literal branch it took turns out to be a dead end: with /a/b/c and /{x}/b/d the
// path /a/b/d enters at a and fails at d. Here a state is the set of all trie nodes that the
// segments so far may lead to (the subset construction), so the walk never goes back:
//
//	           a          b          c → /a/b/c
//	start ───────▶ {1,4} ───▶ {2,5} ─┤
//	  │ other                        d → /{x}/b/d
//	  └──────────▶ {4} ─────▶ {5} ───── d → /{x}/b/d
//
// For each segment the walk looks for an edge that names it, and otherwise takes the edge "other".
// Where a parameter has text around it, "other" leads through a chain of probes: states that look
// not at the whole segment but at as many of its first and last bytes as some affix has, and for
// the text between several parameters at what is between those. At most maxProbes of them follow
// each other, so a path takes a time that is linear in its length.

// automaton is the compiled form. It holds no pointers but those of its tables.
type automaton struct {
	states  []state
	edges   edges
	start   uint32
	middles []string // see affix.middle; by state.middle-1
}

// state is what the segments read so far may still become. State 0 is dead: nothing matches any more.
type state struct {
	other uint32 // where to go when no edge names the segment; a probe if isProbe is set
	row   uint32 // the templates that end here, as a row of Table.ids; 0 for none
	// A probe looks at the first prefix and the last suffix bytes of the segment.
	prefix, suffix uint16
	middle         uint16 // and at the text between them, if it is not 0
	named          bool   // it has edges
	final          bool   // every segment leads back here
}

// isProbe marks the number of a state that looks at the same segment again.
const isProbe = 1 << 31

const (
	// maxProbes bounds the looks at one segment.
	maxProbes = 64
	// maxMiddles bounds the different texts between parameters.
	maxMiddles = 1<<16 - 1
	// Templates that overlap in every combination need a state for each. That is at most 2^n for n
	// parameters beside literals, and never happens by accident.
	minStates        = 4096
	statesPerSegment = 64
)

// walk returns the state that a canonical path leads to.
func (a *automaton) walk(path string) uint32 {
	s := a.start
	if len(path) == 1 {
		return s
	}
	for from := 1; ; {
		to := from
		for to < len(path) && path[to] != '/' {
			to++
		}
		s = a.step(s, path[from:to])
		if to == len(path) || a.states[s].final {
			return s
		}
		from = to + 1
	}
}

// step returns the state that one segment leads to from state s.
func (a *automaton) step(s uint32, name string) uint32 {
	st := &a.states[s]
	to := st.other
	if st.named {
		if next, ok := a.edges.find(s, name); ok {
			to = next
		}
	}
	for to&isProbe != 0 {
		to = a.probe(to&^isProbe, name)
	}
	return to
}

// probe returns where a segment leads to from a probe: another probe, or a state.
func (a *automaton) probe(s uint32, name string) uint32 {
	st := &a.states[s]
	prefix, suffix := int(st.prefix), len(name)-int(st.suffix)
	if prefix < suffix && !insideEscape(name, suffix) &&
		(st.middle == 0 || holds(name[prefix:suffix], a.middles[st.middle-1])) {
		if next, ok := a.edges.findAffix(s, name[:prefix], name[suffix:]); ok {
			return next
		}
	}
	return st.other
}

// node is a node of the trie of all templates, the automaton's raw material.
type node struct {
	literals map[string]int
	affixes  map[affix]int
	param    int // 0 for none: no edge leads to the root
	rest     int
	isRest   bool // {name...} leads here, and every further segment back here
	ends     []*route
}

type builder struct {
	automaton
	nodes  []node
	sets   map[string]uint32 // the state of a set of nodes
	queue  [][]int           // sets whose state has no edges yet
	of     []uint32          // the states of queue
	named  []namedEdge
	rows   [][]*route // what ends in each row, from 1
	limit  int
	failed error
}

// namedEdge is an edge of state from, for the segment text, or, if from is a probe, for segments that start with
// text[:prefix] and end with the remainder.
type namedEdge struct {
	from, to uint32
	text     string
	probe    bool
	prefix   int
}

func newBuilder(routes []route) *builder {
	b := &builder{nodes: make([]node, 1), sets: make(map[string]uint32), limit: minStates}
	for i := range routes {
		b.add(&routes[i])
	}
	b.states = []state{{final: true}}
	return b
}

// add puts a route into the trie.
func (b *builder) add(r *route) {
	at := 0
	for _, s := range r.segments {
		at = b.child(at, s)
		b.limit += statesPerSegment
	}
	b.nodes[at].ends = append(b.nodes[at].ends, r)
}

// child returns the node that segment s leads to from node at, made if need be.
func (b *builder) child(at int, s segment) int {
	n := &b.nodes[at]
	next := len(b.nodes)
	switch s.kind {
	case exact:
		next = childOf(&n.literals, s.text, next)
	case affixed:
		next = childOf(&n.affixes, s.affix, next)
	case param:
		n.param = cmp.Or(n.param, next)
		next = n.param
	case rest:
		n.rest = cmp.Or(n.rest, next)
		next = n.rest
	}
	if next == len(b.nodes) {
		b.nodes = append(b.nodes, node{isRest: s.kind == rest})
	}
	return next
}

func childOf[K comparable](children *map[K]int, key K, next int) int {
	if *children == nil {
		*children = make(map[K]int)
	}
	if child, ok := (*children)[key]; ok {
		return child
	}
	(*children)[key] = next
	return next
}

func (b *builder) build() error {
	b.start = b.state([]int{0})
	for i := 0; i < len(b.queue); i++ {
		b.expand(b.of[i], b.queue[i])
		if b.failed != nil {
			return b.failed
		}
	}
	b.edges = newEdges(b.named)
	return nil
}

// state returns the state of a set of nodes, made and queued if need be.
func (b *builder) state(set []int) uint32 {
	if len(set) == 0 {
		return 0
	}
	slices.Sort(set)
	var key strings.Builder
	for _, n := range set {
		key.Write([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
	}
	if s, ok := b.sets[key.String()]; ok {
		return s
	}
	s := b.newState(set)
	b.sets[key.String()] = s
	b.queue, b.of = append(b.queue, set), append(b.of, s)
	if ends := b.ends(set); len(ends) > 0 {
		b.rows = append(b.rows, ends)
		b.states[s].row = uint32(len(b.rows))
	}
	return s
}

// newState adds a state without edges, unless there are too many.
func (b *builder) newState(set []int) uint32 {
	// A state has any number of edges; both count.
	if len(b.states)+len(b.named) >= b.limit && b.failed == nil {
		b.failed = fmt.Errorf(
			"templates overlap so widely that matching them in one pass takes more than %d states and edges: "+
				"make more of their segments literal, or use fewer; among those that overlap are %s", b.limit,
			b.examples(set))
	}
	b.states = append(b.states, state{})
	return uint32(len(b.states) - 1)
}

// examples names some templates that are still possible in a set of nodes.
func (b *builder) examples(set []int) string {
	var names []string
	for _, n := range set[:min(len(set), 3)] {
		names = append(names, fmt.Sprintf("%q", b.example(n)))
	}
	return strings.Join(names, ", ")
}

// example returns a template at or below a node.
func (b *builder) example(n int) *route {
	for len(b.nodes[n].ends) == 0 {
		n = b.children(n)[0]
	}
	return b.nodes[n].ends[0]
}

func (b *builder) children(n int) []int {
	at := &b.nodes[n]
	var all []int
	for _, child := range at.literals {
		all = append(all, child)
	}
	for _, child := range at.affixes {
		all = append(all, child)
	}
	for _, child := range []int{at.param, at.rest} {
		if child != 0 {
			all = append(all, child)
		}
	}
	slices.Sort(all)
	return all
}

func (b *builder) ends(set []int) (ends []*route) {
	for _, n := range set {
		ends = append(ends, b.nodes[n].ends...)
	}
	return ends
}

// expand gives the state s of a set of nodes its edges.
func (b *builder) expand(s uint32, set []int) {
	var names []string
	affixes := make(map[affix]bool)
	for _, n := range set {
		for name := range b.nodes[n].literals {
			names = append(names, name)
		}
		for a := range b.nodes[n].affixes {
			affixes[a] = true
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		matched := make(map[affix]bool)
		for a := range affixes {
			matched[a] = a.matches(name)
		}
		b.edge(namedEdge{from: s, to: b.state(b.after(set, name, matched)), text: name})
	}
	groups := groupByLength(affixes)
	if len(groups) > maxProbes && b.failed == nil {
		b.failed = fmt.Errorf(
			"parameters of %s and others have text of %d different lengths around them in one place, want at most %d",
			b.examples(set), len(groups), maxProbes)
	}
	other := b.probes(set, groups, nil)
	b.states[s].other = other
	b.states[s].final = other == s && !b.states[s].named
}

func (b *builder) edge(e namedEdge) {
	b.named = append(b.named, e)
	b.states[e.from].named = true
}

// after returns the nodes that a segment leads to from a set of nodes: one called name, or one that no literal
// names if name is empty, with the given affixes.
func (b *builder) after(set []int, name string, matched map[affix]bool) []int {
	var next []int
	for _, n := range set {
		at := &b.nodes[n]
		if at.isRest {
			next = append(next, n)
		}
		if child, ok := at.literals[name]; ok {
			next = append(next, child)
		}
		for a, child := range at.affixes {
			if matched[a] {
				next = append(next, child)
			}
		}
		for _, child := range []int{at.param, at.rest} {
			if child != 0 {
				next = append(next, child)
			}
		}
	}
	return next
}

// groupByLength returns affixes in groups of equal lengths, the longest first. Of one group, a segment
// can have only one. One with text between parameters is a group by itself.
func groupByLength(set map[affix]bool) (groups [][]affix) {
	affixes := make([]affix, 0, len(set))
	for a := range set {
		affixes = append(affixes, a)
	}
	lengths := func(a, b affix) int {
		return cmp.Or(cmp.Compare(b.len(), a.len()), cmp.Compare(len(b.prefix), len(a.prefix)),
			strings.Compare(a.middle, b.middle))
	}
	slices.SortFunc(affixes, func(a, b affix) int {
		return cmp.Or(lengths(a, b), strings.Compare(a.prefix, b.prefix), strings.Compare(a.suffix, b.suffix))
	})
	for i, a := range affixes {
		if i == 0 || a.middle != "" || lengths(affixes[i-1], a) != 0 {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], a)
	}
	return groups
}

// probes returns the first of the probes that find out which affixes of groups a segment has besides those already
// matched; or, if there is nothing left to find out, the state it leads to.
func (b *builder) probes(set []int, groups [][]affix, matched []affix) uint32 {
	if b.failed != nil {
		return 0
	}
	for ; len(groups) > 0; groups = groups[1:] {
		possible, certain := stillPossible(groups[0], matched)
		if certain {
			matched = append(matched[:len(matched):len(matched)], possible...)
			continue
		}
		if len(possible) > 0 {
			return b.probeFor(set, possible, groups[1:], matched)
		}
	}
	has := make(map[affix]bool)
	for _, a := range matched {
		has[a] = true
	}
	return b.state(b.after(set, "", has))
}

// probeFor returns a probe for affixes of equal lengths.
func (b *builder) probeFor(set []int, possible []affix, groups [][]affix, matched []affix) uint32 {
	probe := b.newState(set)
	b.states[probe].prefix, b.states[probe].suffix = uint16(len(possible[0].prefix)), uint16(len(possible[0].suffix))
	b.states[probe].middle = b.middle(possible[0].middle)
	other := b.probes(set, groups, matched)
	b.states[probe].other = other
	for _, a := range possible {
		to := b.probes(set, groups, append(matched[:len(matched):len(matched)], a))
		b.edge(namedEdge{from: probe, to: to, text: a.prefix + a.suffix, probe: true, prefix: len(a.prefix)})
	}
	return probe | isProbe
}

// middle returns the number of the texts between parameters, 0 for none.
func (b *builder) middle(text string) uint16 {
	if text == "" {
		return 0
	}
	at := slices.Index(b.middles, text)
	if at < 0 {
		at = len(b.middles)
		b.middles = append(b.middles, text)
	}
	if at >= maxMiddles && b.failed == nil {
		b.failed = fmt.Errorf("templates have more than %d different texts between parameters of one segment",
			maxMiddles)
	}
	return uint16(at + 1)
}

// stillPossible returns those of a group of affixes that a segment may have that has all of matched; certain says
// that it must have one, which is then alone.
func stillPossible(group, matched []affix) (possible []affix, certain bool) {
	for _, a := range group {
		conflict := slices.ContainsFunc(matched, func(m affix) bool { return !a.meets(m) })
		if conflict {
			continue
		}
		implied := slices.ContainsFunc(matched, func(m affix) bool {
			return strings.HasPrefix(m.prefix, a.prefix) && endsWith(m.suffix, a.suffix) &&
				(a.middle == "" || a.middle == m.middle)
		})
		if implied {
			return []affix{a}, true
		}
		possible = append(possible, a)
	}
	return possible, false
}
