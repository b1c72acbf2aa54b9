package policy

import (
	"math"

	"github.com/headgate-io/headgate/rate"
)

// mostFormer is how many rules that are gone a Set remembers.
const mostFormer = 1 << 16

// former are the rules that earlier Sets had, as long as their buckets may owe
// anything: they may come back with another limit.
type former struct {
	rules map[uint64]formerRule // by Terms.ID; never changed once the Set is made

	// unknownUntil is the time until which a rule that is not among them may
	// have been there all the same, because there were too many.
	unknownUntil int64
}

type formerRule struct {
	ruleWas
	settled int64 // when no bucket owes anything, in Unix nanoseconds
}

// add remembers a rule that is gone, while its buckets may owe anything.
func (f *former) add(id uint64, r formerRule, now int64) {
	switch {
	case r.settled <= now:
	case len(f.rules) >= mostFormer:
		f.unknownUntil = max(f.unknownUntil, r.settled)
	default:
		if f.rules == nil {
			f.rules = map[uint64]formerRule{}
		}
		f.rules[id] = r
	}
}

// ruleWas is what a rule's buckets were counted by.
type ruleWas struct {
	shape  rate.Shape
	since  int64
	before *rate.Past
}

// follows is since when a rule has its shape, and what came before it.
func (c *dating) follows(shape rate.Shape, old ruleWas) (since int64, before *rate.Past) {
	return c.followsAt(shape, old, c.now)
}

// followsAt is follows for a rule that comes into force at another time.
func (c *dating) followsAt(shape rate.Shape, old ruleWas, now int64) (since int64, before *rate.Past) {
	if old.shape == shape {
		return old.since, c.share(shape.Recall(old.since, old.before, now))
	}
	since = max(now, old.since) // a clock that stepped back orders nothing
	return since, c.share(old.shape.Replaced(old.since, old.before, since))
}

// share returns the one past of this Set that says the same: a change of many
// rules at once makes few.
func (c *dating) share(p *rate.Past) *rate.Past {
	if p == nil {
		return nil
	}
	own := *p
	own.Before = c.share(p.Before)
	if known, ok := c.pasts[own]; ok {
		return known
	}
	c.pasts[own] = p
	if own.Before != p.Before {
		c.pasts[own] = &own
	}
	return c.pasts[own]
}

// longestDebt is how long a debt lasts at most that a bucket had when the new Set
// came into force, whichever of its limits and those before it is counted by.
func (c *dating) longestDebt() (longest int64) {
	of := [][]rate.Shape{c.set.shapes}
	if c.o.Previous != nil {
		of = append(of, c.o.Previous.shapes)
	}
	for _, shapes := range of {
		for _, sh := range shapes {
			longest = max(longest, sh.Settled(0, nil))
		}
	}
	if c.o.Predecessor != nil {
		longest = max(longest, c.o.Predecessor.longest(func(sh rate.Shape) int64 { return sh.Settled(0, nil) }))
	}
	window := int64(0) // by which a limit that follows one with windows begins later
	for p := range c.pasts {
		window = max(window, int64(p.Window), int64(p.Shape.Window()))
	}
	if longest > math.MaxInt64-window {
		return math.MaxInt64
	}
	return longest + window
}

// formerRules is what the new Set remembers of rules that it does not have.
func (c *dating) formerRules() former {
	prev := c.o.Previous
	switch {
	case prev == nil && c.o.Predecessor != nil:
		c.set.since = c.now
		return c.o.Predecessor.former(c)
	case prev == nil:
		return former{}
	}
	c.set.since = c.now
	gone := former{unknownUntil: prev.former.unknownUntil}
	for id, r := range prev.former.rules {
		gone.add(id, r, c.now)
	}
	for id := range prev.Len() {
		if !c.kept[id] && prev.isInForce(RuleID(id), c.wall) {
			old := prev.Terms(RuleID(id))
			gone.add(old.ID, formerRule{ruleWas{old.Shape, old.Since, old.Before},
				old.Shape.Settled(c.now, old.Before)}, c.now)
		}
	}
	if len(gone.rules) > 0 {
		for i := range c.set.rows {
			delete(gone.rules, c.set.rows[i].id)
		}
	}
	return gone
}
