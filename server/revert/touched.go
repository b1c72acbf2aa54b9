package revert

import (
	"slices"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// mostResolved bounds the look-ups that find out what a version touched. An
// import of rules for thousands of tenants is not worth more: beyond the bound
// all endpoints count as touched, which measures more and blames no less.
const mostResolved = 1 << 20

// tenant is whom a rule is for; zero for everybody.
type tenant struct{ project, tier string }

// touched reports the endpoints at which changes make other rules apply in new
// than in old, to whom they are for. A rule that another one hides, or for a
// template that no endpoint has, touches nothing. tighter is true of those where
// a request may be denied that would not have been.
func touched(changes []record.Change, old, new *policy.Set, table *endpoint.Table, now int64) (list []endpoint.ID,
	tighter map[endpoint.ID]bool) {
	whole := map[tenant]bool{}           // changed at all endpoints, perhaps
	single := map[tenant][]endpoint.ID{} // or at these
	for _, c := range changes {
		rule := c.After
		if rule == nil {
			rule = c.Before
		}
		if rule == nil {
			whole[tenant{project: c.Project}] = true // its tier
			continue
		}
		whom := tenant{rule.Project, rule.Tier}
		if ids, ok := named(rule.Endpoint, table); ok {
			single[whom] = append(single[whom], ids...)
		} else {
			whole[whom] = true
		}
	}
	hit := make([]bool, table.Len()+1)
	r := resolver{old: old, new: new, now: now, tighter: map[endpoint.ID]bool{}}
	if len(whole)*len(hit) > mostResolved {
		for id := range hit {
			hit[id], r.tighter[endpoint.ID(id)] = true, true
		}
	} else {
		for whom := range whole {
			for id := range hit {
				hit[id] = r.differ(endpoint.ID(id), whom) || hit[id]
			}
		}
	}
	for whom, ids := range single {
		for _, id := range ids {
			hit[id] = r.differ(id, whom) || hit[id]
		}
	}
	for id, is := range hit {
		if is {
			list = append(list, endpoint.ID(id))
		}
	}
	return list, r.tighter
}

// named reports the endpoint of a rule, or false if it may be for many.
func named(text string, table *endpoint.Table) ([]endpoint.ID, bool) {
	if text == policy.Default || text == policy.All || text == policy.UnknownEndpoint {
		return nil, false
	}
	template, err := endpoint.ParseTemplate(text)
	if err != nil {
		return nil, true
	}
	id, ok := table.Lookup(template)
	if !ok {
		return nil, true
	}
	return []endpoint.ID{id}, true
}

// resolver compares what applies in two Sets.
type resolver struct {
	old, new *policy.Set
	now      int64
	was, is  []policy.Applied
	tighter  map[endpoint.ID]bool
}

func (r *resolver) differ(id endpoint.ID, whom tenant) bool {
	m := endpoint.Match{ID: id, Status: endpoint.Known}
	if id == endpoint.Unknown {
		m.Status = endpoint.UnknownPath
	}
	r.was = r.old.Resolve(r.was[:0], r.now, m, whom.project, whom.tier)
	r.is = r.new.Resolve(r.is[:0], r.now, m, whom.project, whom.tier)
	if slices.EqualFunc(r.was, r.is, func(a, b policy.Applied) bool {
		return a.Level == b.Level && r.old.Rule(a.Rule) == r.new.Rule(b.Rule)
	}) {
		return false
	}
	if !r.loosened() {
		r.tighter[id] = true
	}
	return true
}

// loosened reports whether every rule that denies now gives at least what one
// gave before that counted the same.
func (r *resolver) loosened() bool {
	for _, is := range r.is {
		rule := r.new.Rule(is.Rule)
		if rule.Mode == policy.Shadow {
			continue
		}
		if !slices.ContainsFunc(r.was, func(was policy.Applied) bool {
			return was.Level.EveryEndpoint() == is.Level.EveryEndpoint() && atLeast(rule, r.old.Rule(was.Rule))
		}) {
			return false
		}
	}
	return true
}

// atLeast reports whether a denies nobody whom b, which holds for all, lets pass.
func atLeast(a, b policy.Rule) bool {
	return b.Mode != policy.Shadow && (b.EnforcePercent == 0 || b.EnforcePercent == 100) && a.Subject == b.Subject &&
		a.Algorithm == b.Algorithm && a.CountWhen == b.CountWhen && a.Penalty == b.Penalty && a.Refusal == b.Refusal &&
		a.Priority == b.Priority &&
		a.Burst >= b.Burst && float64(a.Limit)/float64(a.Per) >= float64(b.Limit)/float64(b.Per) && a.Per <= b.Per
}
