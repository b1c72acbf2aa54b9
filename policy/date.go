package policy

import (
	"bytes"
	"slices"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/rate"
)

// dating is since when rules have their limit, and what came before, by the previous Set.
type dating struct {
	*task
	*numbering
	*grouping

	pasts map[rate.Past]*rate.Past
	kept  []bool // by RuleID of the previous Set: the new one has it too
}

// dateRows notes since when rows have their limit, and what came before.
//
// A temporary rule and the lasting one of the same place have one bucket, whose
// limit changes when the temporary one comes, and again when it expires. That
// time is known now, so the lasting rule is dated ahead: nobody need be there to
// change it.
func (c *dating) dateRows() {
	s, since := c.set, c.sinceOf()
	for i := range c.rows {
		if g := &c.groups[c.grouped[i]]; g.count == 0 {
			continue
		}
		id := c.placed(i)
		r := &s.rows[id]
		if !s.isInForce(id, c.wall) {
			continue // dated with the one that is, or over
		}
		lasting, pair := s.StandsFor(id)
		from, past := since(c.grouped[i], r)
		c.date(r, from, past)
		if pair {
			shape, ends := s.shapes[r.limit], s.extras[r.extra].expires
			s.ends = append(s.ends, ends)
			from, past = c.followsAt(s.shapes[s.rows[lasting].limit], ruleWas{shape, from, past}, ends-(c.wall-c.now))
			c.date(&s.rows[lasting], from, past)
		}
	}
	slices.Sort(s.ends)
	s.ends = slices.Compact(s.ends)
}

func (c *dating) date(r *row, since int64, before *rate.Past) {
	if since != 0 {
		e := c.set.extras[r.extra]
		e.since, e.before = since, before
		r.extra = c.extra(e)
	}
}

// sinceOf returns the function that finds Terms.Since and Terms.Before of a row.
//
// A rule that the previous Set had with the same shape goes on as before. With
// another shape, its buckets owe what they owe in the old one, and the new one
// counts from now. So it is with a rule that was there earlier and comes back:
// it was in nobody's way meanwhile. Without a previous Set there is nothing to
// convert.
func (c *dating) sinceOf() func(g uint32, r *row) (int64, *rate.Past) {
	prev := c.o.Previous
	switch {
	case prev == nil && c.o.Predecessor != nil:
		return c.o.Predecessor.sinceOf(c)
	case prev == nil:
		return func(uint32, *row) (int64, *rate.Past) { return 0, nil }
	}
	groups := make([]group, len(c.groups))
	endpoints := c.previousEndpoints()
	projects, tiers := renumber(&c.set.projects, &prev.projects), renumber(&c.set.tiers, &prev.tiers)
	for i, g := range c.groups {
		ep, ok := g.endpoint, true
		if g.endpoint < uint32(len(c.set.byEndpoint)) {
			ep, ok = endpoints[g.endpoint], g.endpoint == rowUnknown || endpoints[g.endpoint] != 0
		}
		w := g.who
		switch {
		case w.isTier():
			w = ofTier(tiers[w.number()])
		case w != 0:
			w = ofProject(projects[w.number()])
		}
		if ok && g.count > 0 && (w != 0) == (g.who != 0) {
			groups[i] = prev.groupNear(g.start, ep, w)
		}
	}
	c.kept = make([]bool, len(prev.rows))
	return func(g uint32, r *row) (int64, *rate.Past) {
		shape := c.set.shapes[r.limit]
		if id, ok := prev.counting(groups[g], r.subject, r.id, c.wall); ok {
			c.keep(id)
			old := prev.Terms(id)
			return c.follows(shape, ruleWas{old.Shape, old.Since, old.Before})
		}
		if old, ok := prev.former.rules[r.id]; ok && old.settled > c.now {
			return c.follows(shape, old.ruleWas)
		}
		if c.now < prev.former.unknownUntil {
			return c.now, c.share(&rate.Past{Window: rate.MaxWindow}) // it may be one of those that are forgotten
		}
		return c.now, nil
	}
}

// keep marks a rule of the previous Set, and the one that shares its bucket, as
// one that the new Set has.
func (c *dating) keep(id RuleID) {
	c.kept[id] = true
	if other, ok := c.o.Previous.StandsFor(id); ok {
		c.kept[other] = true
	}
	if other, ok := c.o.Previous.replacedBy(id); ok {
		c.kept[other] = true
	}
}

// previousEndpoints reports the numbers that the endpoints had in the previous
// Set, 0 where it did not have them.
func (c *dating) previousEndpoints() []uint32 {
	prev := c.o.Previous
	numbers := make([]uint32, len(c.set.byEndpoint))
	for n := 1; n < len(numbers); n++ {
		if prev.endpoints == c.o.Endpoints {
			numbers[n] = uint32(n)
			continue
		}
		if prev.endpoints == nil {
			continue
		}
		if id, ok := prev.endpoints.Lookup(c.o.Endpoints.Template(endpoint.ID(n))); ok {
			numbers[n] = uint32(id)
		}
	}
	return numbers
}

// renumber reports, for every number in one table of names, the number in another.
// Of a document that changed little, most have the same in both.
func renumber(from, to *names) []uint32 {
	numbers := make([]uint32, from.len()+1)
	for n := uint32(1); n <= uint32(from.len()); n++ {
		if name := from.name(n); n <= uint32(to.len()) && bytes.Equal(name, to.name(n)) {
			numbers[n] = n
		} else {
			numbers[n] = to.findBytes(name)
		}
	}
	return numbers
}
