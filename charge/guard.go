package charge

import (
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// guard adds attempts on the buckets of other tiers that have to have room as
// well, beside those of the rules that are named by their subject.
//
// A caller may have to do with both: its project moves, and others who share a
// bucket with it, or it itself with its next request, name a tier.
func (pl *Planner) guard(p *Plan, named int) {
	who := p.caller.Who
	p.guards = p.guards[:0]
	if who.Tier != "" || who.Kind != identity.Address && pl.namedTiers() {
		pl.guardLarger(p, named)
	}
	if p.Set.Moved(p.Now, who.Project, who.Tier) != 0 {
		pl.guardEarlier(p, named)
	}
}

// guardLarger adds attempts on the buckets of larger tiers, for a caller whose
// credential says in which one it is; see policy.Set.LargerTiers.
func (pl *Planner) guardLarger(p *Plan, named int) {
	p.guards = p.Set.LargerTiers(p.guards, p.Wall, p.Match, p.caller.Who.Project, p.applied[:named], p)
	for i := range p.guards {
		g := &p.guards[i]
		own := &p.Takes[p.from+g.Of]
		take := bucket.Take{
			Since:  g.Since,
			Before: g.Before,
			Cost:   own.Cost,
			Shape:  g.Shape,
			Tag:    own.Tag,
			Reach:  own.Reach,

			Lowered: own.Lowered,
		}
		take.Key = pl.guardKey(p, g, false)
		if shape := p.Set.Terms(p.applied[g.Of].Rule).Shape; own.Shape.Capacity != shape.Capacity { // by an allowance
			take.Shape = g.Shape.Grow(own.Shape.Burst() - shape.Burst())
		}
		p.add(g, Charge{Kind: Larger, As: g.Rule, id: g.ID}, take)
	}
}

// guardEarlier adds attempts on the buckets that the caller had before its project
// changed its tier; see policy.Guard. It runs only while a move is remembered.
func (pl *Planner) guardEarlier(p *Plan, named int) {
	larger := len(p.guards)
	p.guards = p.Set.EarlierTiers(p.guards, p.Wall, p.Match, p.caller.Who.Project, p.applied[:named], p)
	for i := range p.guards[larger:] {
		g := &p.guards[larger+i]
		own, terms := &p.Takes[p.from+g.Of], p.Set.Terms(p.applied[g.Of].Rule)
		p.moves = append(p.moves, [2]rate.Past{})
		take := bucket.Take{
			Key: pl.guardKey(p, g, false), Since: g.Since, Before: g.Past(&p.moves[len(p.moves)-1]), Cost: own.Cost,
			Shape: g.Shape.Grow(own.Shape.Burst() - terms.Shape.Burst()), // by an allowance
			Tag:   own.Tag, Reach: own.Reach, Lowered: own.Lowered,
		}
		if g.Own && g.Shape.Capacity <= terms.Shape.Capacity {
			if g.Since >= own.Since {
				own.Since, own.Before = take.Since, take.Before
			}
			continue
		}
		if g.Own {
			own.Key = pl.guardKey(p, g, true)
		}
		p.add(g, Charge{Kind: Earlier, id: terms.ID, moved: take.Since}, take)
	}
}

// add adds a charge beside the one that g guards, unless its bucket is charged already: by a rule that applies because
// of a score.
func (p *Plan) add(g *policy.Guard, c Charge, take bucket.Take) {
	if sameBucket(p.Takes[p.from:], take.Key) >= 0 {
		return
	}
	c.Applied, c.Principal = p.applied[g.Of], uint8(p.principal)
	c.Of, c.Place = p.first+g.Of, len(p.Takes)
	c.most = p.Charges[c.Of].most
	p.Charges = append(p.Charges, c)
	p.Takes = append(p.Takes, take)
}

// guardKey names the bucket of the rule that was in force before, or, for the
// time that a project is back under that rule, the bucket of its stay.
func (pl *Planner) guardKey(p *Plan, g *policy.Guard, stay bool) key.Key {
	a := p.applied[g.Of]
	if s := p.Set.Terms(a.Rule).Subject; stay {
		p.bytes = p.caller.AppendStay(p.bytes[:0], s)
	} else {
		p.bytes = p.caller.Append(p.bytes[:0], s)
	}
	if p.Takes[p.from+g.Of].Reach.Scope().Named() {
		return pl.nameOf(p, g.ID, a.Level)
	}
	return pl.keys.Key(g.ID, p.endpointOf(a.Level), p.bytes)
}
