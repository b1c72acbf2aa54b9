package endpoint

import (
	"fmt"
	"slices"
)

// Problem is what CompileMost found wrong with one template.
type Problem struct {
	Template Template
	Err      error // why it is left out; nil if it is merged

	// Into is the template that it is merged into, and Target what both match with equal specificity.
	Into   Template
	Target string
}

// String says what is wrong with the template, and what it counts as if it is not left out.
func (p Problem) String() string {
	if p.Err != nil {
		return p.Err.Error()
	}
	return fmt.Sprintf("templates %q and %q both match %s with equal specificity: they count as one, %q", p.Into,
		p.Template, p.Target, p.Into)
}

// CompileMost is Compile for documents that others wrote: one template at fault does not cost the
// rest. Templates that match the same request with equal specificity count as one, under the ID of
// the first in the order given: what either matches is charged to one budget, and no client can
// choose between two. A template that no target can match under the profile is left out. The
// problems are in the order of templates. The error is about all of them together: too many
// methods, or too wide an overlap.
func CompileMost(templates []Template, p Profile) (*Table, []Problem, error) {
	var problems []Problem
	var routes []route
	seen := make(map[string]bool, len(templates))
	for _, t := range templates {
		plain := t
		plain.ends = withoutSlash
		if seen[plain.text] {
			routes = append(routes, route{Template: t}) // for the slash it may be written with
			continue
		}
		r, err := newRoute(t, 0, p)
		if err != nil {
			problems = append(problems, Problem{Template: t, Err: err})
			continue
		}
		seen[plain.text] = true
		routes = append(routes, r)
	}
	first, problems2 := merge(routes)
	problems = append(problems, problems2...)

	var kept []Template
	var aliases []alias
	for i, r := range routes {
		if of := routes[first[i]].Template; of.text != r.text {
			aliases = append(aliases, alias{r.Template, of})
		} else {
			kept = append(kept, r.Template)
		}
	}
	table, err := compileWith(kept, aliases, p)
	return table, problems, err
}

// merge returns for each route which one it counts as: itself, or an earlier one that it cannot be
// told from, directly or by way of others.
func merge(routes []route) (first []int, problems []Problem) {
	first = make([]int, len(routes))
	groups := make(map[string][]int)
	byText := make(map[string]int, len(routes))
	why := make([]string, len(routes))
	for i, r := range routes {
		first[i] = i
		if j, twice := byText[r.text]; twice {
			first[i] = first[j]
			continue
		}
		byText[r.text] = i
		key := specificity(r)
		for _, j := range groups[key] {
			target, both := bothMatch(routes[j], r)
			if !both || first[i] == first[j] {
				continue
			}
			from, into := max(first[i], first[j]), min(first[i], first[j])
			why[from] = target
			for k := range i + 1 {
				if first[k] == from {
					first[k] = into
				}
			}
		}
		groups[key] = append(groups[key], i)
	}
	for i, r := range routes {
		if first[i] != i && byText[r.text] == i {
			problems = append(problems, Problem{Template: r.Template, Into: routes[first[i]].Template, Target: why[i]})
		}
	}
	return slices.Clip(first), problems
}
