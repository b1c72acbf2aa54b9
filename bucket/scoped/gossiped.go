package scoped

import "context"

// Takes of scope gossip are decided here and at once, by what this replica and others admitted.

// decideGossiped decides where some buckets are of scope gossip.
func (s *Store) decideGossiped(ctx context.Context, d *decision) (allowed bool, err error) {
	allowed = true
	for i := range d.gossiped.takes {
		t, o := &d.gossiped.takes[i], &d.gossiped.outs[i]
		allowed = (s.o.Gossip.Take(d.now, t, o) || t.Shadow) && allowed
	}
	if allowed {
		allowed, err = s.decideShared(ctx, d)
	} else if allowed, err = s.o.Local.Peek(ctx, d.now, d.local.takes, d.local.outs); err == nil {
		allowed, err = s.deny(ctx, d)
	}
	if !allowed || err != nil {
		s.returnGossiped(d)
	}
	return allowed, err
}

// returnGossiped gives back what was taken, for a request that is denied.
func (s *Store) returnGossiped(d *decision) {
	for i := range d.gossiped.takes {
		t, o := &d.gossiped.takes[i], &d.gossiped.outs[i]
		if o.Allowed && t.Cost > 0 && s.o.Gossip.Return(t, d.now) {
			o.Remaining += t.Cost
		}
	}
}

// lookGossiped reports whether no take of scope gossip that is enforced would be denied.
func (s *Store) lookGossiped(d *decision) (allowed bool) {
	allowed = true
	for i := range d.gossiped.takes {
		t := &d.gossiped.takes[i]
		allowed = (s.o.Gossip.Look(d.now, t, &d.gossiped.outs[i]) || t.Shadow) && allowed
	}
	return allowed
}
