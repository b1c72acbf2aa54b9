package endpoint

import "strings"

// MaxProbes lets tests state the bound that Work is held to.
const MaxProbes = maxProbes

// Work returns how many segments of a canonical path walk reads, and how many times it looks into
// the table of edges at most: once for a segment, once more for each probe.
func (t *Table) Work(path string) (segments, looks int) {
	s := t.start
	for name := range strings.SplitSeq(path[1:], "/") {
		if len(path) == 1 {
			break
		}
		segments++
		looks++
		st := t.states[s]
		to := st.other
		if next, ok := t.edges.find(s, name); st.named && ok {
			to = next
		}
		for to&isProbe != 0 {
			looks++
			to = t.probe(to&^isProbe, name)
		}
		if s = to; t.states[s].final {
			break
		}
	}
	if s != t.walk(path) {
		panic("Work does not do what walk does")
	}
	return segments, looks
}

// States returns the number of states and edges.
func (t *Table) States() (states, edges int) {
	for _, s := range t.edges.slots {
		if s.key != 0 {
			edges++
		}
	}
	return len(t.states), edges
}

// HasUpper is what decides whether the case of a target can matter.
var HasUpper = hasUpper
