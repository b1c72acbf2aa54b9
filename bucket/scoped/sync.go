package scoped

import (
	"context"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/report"
)

// Takes of scope sync are decided by what this replica knows of their buckets, and reported to the
// store afterwards. Where too much of it is unanswered (report.Ask), or the store is lost or tried,
// they are takes as of scope strict from the same bucket.

// takeSynced takes of buckets of scope sync, and sorts out what is for the store to say. It reports
// whether no take that is enforced was denied.
func (s *Store) takeSynced(d *decision) (allowed bool) {
	d.taken = s.o.Reports.Now()
	replicas := s.splits.now()
	allowed = true
	for i := range d.known.takes {
		t, of := &d.known.takes[i], d.known.of[i]
		if t.Shape.Algorithm.Drains() && !s.lost(t.Tag) {
			var o bucket.Outcome
			verdict := s.o.Reports.Take(d.taken, t, replicas, &o)
			if verdict != report.Ask {
				d.synced.add(of, t)
				d.synced.outs[len(d.synced.outs)-1] = o
				allowed = allowed && (verdict == report.Admit || t.Shadow)
				continue
			}
		}
		d.strict.add(of, t)
	}
	return allowed
}

// returnSynced gives back what spend took, for a request that is denied.
func (s *Store) returnSynced(d *decision) {
	for i := range d.synced.takes {
		t, o := &d.synced.takes[i], &d.synced.outs[i]
		if o.Allowed && t.Cost > 0 {
			s.o.Reports.Return(t, d.taken)
			o.Remaining += t.Cost
		}
	}
}

// decideSynced decides where some buckets are of scope sync.
func (s *Store) decideSynced(ctx context.Context, d *decision) (allowed bool, err error) {
	if s.takeSynced(d) {
		allowed, err = s.decideRest(ctx, d)
	} else if allowed, err = s.o.Local.Peek(ctx, d.now, d.local.takes, d.local.outs); err == nil {
		allowed, err = s.deny(ctx, d)
	}
	if !allowed || err != nil {
		s.returnSynced(d)
	}
	return allowed, err
}

// lookAtAll has the store looked at for buckets of scope sync.
func (s *Store) lookAtAll(d *decision) {
	for i, of := range d.known.of {
		d.strict.add(of, &d.known.takes[i])
	}
}

// subtractPending takes off what was looked at in the store what it does not know of yet.
func (s *Store) subtractPending(d *decision, outs []bucket.Outcome) (allowed bool) {
	allowed = true
	for i, of := range d.known.of {
		o, t := &outs[of], &d.known.takes[i]
		if o.Unknown {
			continue
		}
		o.Remaining = max(0, o.Remaining-s.o.Reports.Pending(t))
		if o.Allowed && o.Remaining < t.Cost {
			units, _ := t.Shape.Units(t.Cost - o.Remaining)
			o.Allowed, o.RetryAfter = false, t.Lowered.Stretch(t.Shape.TimeToFull(units))
			allowed = allowed && t.Shadow
		}
	}
	return allowed
}
