package graphql

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/httplimit"
)

// portion is what a field adds to sums.
type portion struct{ cost, per amount }

// portions are what fields cost in the operations of a request, and the operations' roots, by name.
type portions struct{ of map[string]amount }

// maxPortions is how many are told.
const maxPortions = 20

// Portions says what the fields of a request cost, by "Type.field" of the schema: each with the objects that it holds,
// without what is asked of them. The dearest come first; of more than 20 the rest is one. A request without a price has
// none, but for one that costs too much. It is for httplimit.Priced.
func (p *Pricer) Portions(r *http.Request, target string, text []byte) []httplimit.Portion {
	asks := *p
	asks.portions = &portions{map[string]amount{}}
	_, _ = asks.request(r, target, text)
	of := asks.portions.of
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), strings.Compare(a, b))
	})
	var list []httplimit.Portion
	rest := amount(0)
	for i, name := range names {
		switch {
		case of[name] == 0: // and all after it
		case i < maxPortions:
			list = append(list, httplimit.Portion{What: name, Cost: of[name].tokens()})
		default:
			rest = rest.plus(of[name])
		}
	}
	if rest > 0 {
		list = append(list, httplimit.Portion{What: "all others", Cost: rest.tokens()})
	}
	return list
}

func (a amount) tokens() float64 { return float64(a) / float64(unit) }

// told adds those of an operation.
func (p *portions) told(root *typ, all *sums) {
	if p == nil {
		return
	}
	p.of[root.name] = p.of[root.name].plus(root.weight)
	for name, one := range all.of {
		p.of[name] = p.of[name].plus(one.cost)
	}
}

// add adds what other sums are made of. Those of a fragment are used again, so they stay what they are.
func (s *sums) add(other *sums) {
	if s.of == nil && len(other.of) > 0 {
		s.of = make(map[string]portion, len(other.of))
	}
	for name, one := range other.of {
		s.of[name] = portion{s.of[name].cost.plus(one.cost), s.of[name].per.plus(one.per)}
	}
}

// portionsOf is what a field and those within it cost: its own, and of each object that it holds what each says.
func portionsOf(name string, own, weight amount, above bool, inner map[string]portion,
	each func(weight, cost, per amount) amount) map[string]portion {
	all := make(map[string]portion, len(inner)+1)
	add := func(name string, one amount) {
		p := all[name]
		if above {
			p.per = p.per.plus(one)
		} else {
			p.cost = p.cost.plus(one)
		}
		all[name] = p
	}
	for of, one := range inner {
		add(of, each(0, one.cost, one.per))
	}
	add(name, each(weight, 0, 0))
	p := all[name]
	p.cost = p.cost.plus(own)
	all[name] = p
	return all
}
