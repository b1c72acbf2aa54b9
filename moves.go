package headgate

import (
	"slices"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// guard adds attempts on the buckets of other tiers that have to have room as
// well. Afterwards t.guards has one for each take from t.doubted on.
//
// A caller may have to do with both: its project moves, and others who share a
// bucket with it, or it itself with its next request, name a tier.
func (l *Limiter) guard(t *trip) {
	t.guards = t.guards[:0]
	if t.who.Tier != "" || t.who.Kind != identity.Address && l.namedTiers() {
		l.guardLadder(t)
	}
	if t.set.Moved(t.now, t.who.Project, t.who.Tier) != 0 {
		l.guardMove(t)
	}
}

// guardLadder adds attempts on the buckets of larger tiers, for a caller whose
// credential says in which one it is; see policy.Set.Climb.
func (l *Limiter) guardLadder(t *trip) {
	t.guards = t.set.Climb(t.guards, l.clock.Wall(t.now), t.match, t.who.Project, t.applied[:t.named], t)
	if len(t.guards) == 0 {
		return
	}
	first := len(t.takes)
	t.takes = slices.Grow(t.takes, len(t.guards))[:first+len(t.guards)]
	for i := range t.guards {
		g, take := &t.guards[i], &t.takes[first+i]
		own, applied := &t.takes[g.Of], t.applied[g.Of]
		t.applied = append(t.applied, applied)
		*take = bucket.Take{Since: g.Since, Before: g.Before, Cost: t.cost, Shape: g.Shape, Tag: own.Tag, Reach: own.Reach}
		take.Key = l.guardKey(t, g, false)
		if shape := t.set.Terms(applied.Rule).Shape; own.Shape.Capacity != shape.Capacity { // by an allowance
			take.Shape = g.Shape.Grow(own.Shape.Burst() - shape.Burst())
		}
	}
	l.makeRoom(t)
}

// guardMove adds attempts on the buckets that the caller had before its project
// changed its tier; see policy.Guard. It runs only while a move is remembered.
func (l *Limiter) guardMove(t *trip) {
	rungs := len(t.guards)
	all := t.set.Guards(t.guards, l.clock.Wall(t.now), t.match, t.who.Project, t.applied[:t.named], t)
	t.guards = all[:rungs]
	if len(t.guardPasts) < len(all) {
		t.guardPasts = make([][2]rate.Past, len(all))
	}
	for i, g := range all[rungs:] {
		own, shape := &t.takes[g.Of], t.set.Terms(t.applied[g.Of].Rule).Shape
		take := bucket.Take{
			Key: l.guardKey(t, &g, false), Since: g.Since, Before: g.Past(&t.guardPasts[i]), Cost: t.cost,
			Shape: g.Shape.Grow(own.Shape.Burst() - shape.Burst()), // by an allowance
			Tag:   own.Tag, Reach: own.Reach,
		}
		if g.Own && g.Shape.Capacity <= shape.Capacity {
			if g.Since >= own.Since {
				own.Since, own.Before = take.Since, take.Before
			}
			continue
		}
		if g.Own {
			own.Key = l.guardKey(t, &g, true)
		}
		t.guards = append(t.guards, g)
		t.applied = append(t.applied, t.applied[g.Of])
		t.takes = append(t.takes, take)
	}
	l.makeRoom(t)
}

// guardKey names the bucket of the rule that was in force before, or, for the
// time that a project is back under that rule, the bucket of its stay.
func (l *Limiter) guardKey(t *trip, g *policy.Guard, stay bool) key.Key {
	a := t.applied[g.Of]
	t.subject = t.subject[:0]
	if stay {
		t.subject = append(t.subject, tagStay)
	}
	t.subject = l.appendSubject(t.subject, t.set.Terms(a.Rule).Subject, t)
	if t.takes[g.Of].Reach.Scope().Shared() {
		return l.nameOf(t, g.ID, t.endpointOf(a))
	}
	return l.keys.Key(g.ID, t.endpointOf(a), t.subject)
}
