package scoped

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/deadline"
	"github.com/headgate-io/headgate/rate"
)

// decision is one on its way: the takes in groups, by where they are decided.
type decision struct {
	now   int64
	takes []bucket.Take // the caller's

	local, leased, strict group
	gossiped              group       // of scope gossip
	known, synced         group       // of scope sync: all, and those that were decided by what is known
	lanes, rest           group       // of leased takes that have a free part: from there, and from the store
	spent                 []spending  // takes of places that are spare here
	vias                  []visit     // to each server that has shared buckets of them
	admitted              []admission // those that pass because nobody can be asked

	pasts [][rate.MaxPast + 1]rate.Past // of local takes, and of the rest
	until []int64                       // of leased takes: when what they took expires
	taken int64                         // when takes of scope sync were, on the clock of Options.Reports

	refuser *outage // that of a server for whose sake rules deny the request

	partless bool // this replica has no part of limits that are divided

	one    [1]bucket.Take // of one that is decided alone, and what its free part says
	answer [1]bucket.Outcome
}

// group is takes that are decided in one place.
type group struct {
	takes   []bucket.Take
	outs    []bucket.Outcome
	of      []int // their places in the decision
	servers []int // that have their buckets, if they are shared and it matters
}

func (g *group) reset() {
	clear(g.takes) // keeps nobody's past alive
	g.takes, g.outs, g.of, g.servers = g.takes[:0], g.outs[:0], g.of[:0], g.servers[:0]
}

// cut forgets all takes but the first n.
func (g *group) cut(n int) { g.takes, g.outs, g.of = g.takes[:n], g.outs[:n], g.of[:n] }

func (g *group) add(i int, t *bucket.Take) *bucket.Take {
	g.takes = append(g.takes, *t)
	g.outs = append(g.outs, bucket.Outcome{Allowed: true, Unknown: true})
	g.of = append(g.of, i)
	return &g.takes[len(g.takes)-1]
}

// keep drops the takes that are not good. It must have a server for each.
func (g *group) keep(good func(i int) bool) {
	n := 0
	for i := range g.takes {
		if good(i) {
			g.takes[n], g.outs[n], g.of[n], g.servers[n] = g.takes[i], g.outs[i], g.of[i], g.servers[i]
			n++
		}
	}
	clear(g.takes[n:])
	g.takes, g.outs, g.of, g.servers = g.takes[:n], g.outs[:n], g.of[:n], g.servers[:n]
}

// forget marks what a group was told as not asked: it is not true any more, or was never.
func (g *group) forget() { unasked(g.outs) }

func unasked(outs []bucket.Outcome) {
	for i := range outs {
		outs[i] = bucket.Outcome{Allowed: true, Unknown: true}
	}
}

// enforced reports whether any take of a group may stand in the way.
func (g *group) enforced() bool {
	for i := range g.takes {
		if !g.takes[i].Shadow {
			return true
		}
	}
	return false
}

var errNothingShared = errors.New("a take is from a shared bucket, and there is no shared store: want Options.Strict")

// begin sorts the takes of a decision. Spends says that it is to take what it finds: it may have places that are spare.
func (s *Store) begin(now int64, takes []bucket.Take, outs []bucket.Outcome, spends bool) (*decision, error) {
	if len(outs) < len(takes) {
		return nil, fmt.Errorf("there is room for %d outcomes, want %d", len(outs), len(takes))
	}
	d := s.decisions.Get().(*decision)
	d.now, d.takes, d.admitted, d.partless = now, takes, d.admitted[:0], false
	if cap(d.pasts) < 2*len(takes) {
		d.pasts = make([][rate.MaxPast + 1]rate.Past, 2*len(takes))
	}
	d.pasts = d.pasts[:0]
	for i := range takes {
		switch scope := takes[i].Reach.Scope(); {
		case scope == bucket.Local || scope == bucket.Gossip && s.o.Gossip == nil:
			d.local.add(i, &takes[i])
		case scope == bucket.Gossip:
			d.gossiped.add(i, &takes[i])
		case scope == bucket.Split:
			d.partless = s.splits.share(now, d.local.add(i, &takes[i]), d.past()) == none
		case s.o.Strict == nil:
			s.end(d)
			return nil, errNothingShared
		case scope == bucket.Lease && takes[i].Place != 0:
			if spends && s.spend(now, d, i) {
				continue
			}
			if t := d.strict.add(i, &takes[i]); !spends && s.waits(now, t) {
				t.Cost = 0 // it is counted already
			}
		case scope == bucket.Lease && s.o.Leases != nil:
			s.lease(now, d, i)
		case scope == bucket.Sync && s.o.Reports != nil:
			d.known.add(i, &takes[i])
		default:
			d.strict.add(i, &takes[i])
		}
	}
	s.latest.Store(now)
	return d, nil
}

// past is room for one take's past.
func (d *decision) past() *[rate.MaxPast + 1]rate.Past {
	d.pasts = d.pasts[:len(d.pasts)+1]
	return &d.pasts[len(d.pasts)-1]
}

func (s *Store) end(d *decision) {
	d.takes, d.refuser, d.spent = nil, nil, d.spent[:0]
	clear(d.admitted)
	for _, g := range [...]*group{&d.local, &d.leased, &d.strict, &d.lanes, &d.rest, &d.known, &d.synced, &d.gossiped} {
		g.reset()
	}
	s.decisions.Put(d)
}

// report writes what became of all takes.
func (d *decision) report(outs []bucket.Outcome) {
	for i := range d.takes {
		outs[i] = bucket.Outcome{Allowed: true, Unknown: true}
	}
	for _, g := range [...]*group{&d.local, &d.leased, &d.strict, &d.synced, &d.gossiped} {
		for i, of := range g.of {
			outs[of] = g.outs[i]
			if d.partless && d.takes[of].Reach.Scope() == bucket.Split {
				untilPart(&d.takes[of], &outs[of])
			}
		}
	}
	for i := range d.spent {
		if one := &d.spent[i]; one.told {
			outs[one.of] = one.outcome()
		}
	}
}

// untilPart says when a replica without a part of a limit may have one: that is not for the limit to say.
func untilPart(t *bucket.Take, o *bucket.Outcome) {
	const soon = time.Second
	o.Never = o.Never && t.Cost > t.Shape.Burst()
	if !o.Allowed && !o.Never {
		o.RetryAfter = soon
	}
	o.ResetAfter = min(o.ResetAfter, soon)
}

// shared reports whether there is anything to ask the shared store about.
func (d *decision) shared() bool { return len(d.leased.takes)+len(d.strict.takes) > 0 }

// decide decides, and charges.
func (s *Store) decide(ctx context.Context, d *decision) (bool, error) {
	if len(d.gossiped.takes) > 0 {
		return s.decideGossiped(ctx, d)
	}
	return s.decideShared(ctx, d)
}

func (s *Store) decideShared(ctx context.Context, d *decision) (bool, error) {
	if len(d.known.takes) > 0 {
		return s.decideSynced(ctx, d)
	}
	return s.decideRest(ctx, d)
}

func (s *Store) decideRest(ctx context.Context, d *decision) (bool, error) {
	if len(d.lanes.takes) > 0 {
		if decided, err := s.decideFree(ctx, d); decided {
			return err == nil, err
		}
	}
	if !d.shared() {
		return s.o.Local.TryConsume(ctx, d.now, d.local.takes, d.local.outs)
	}
	defer s.release(d)
	lost := s.choose(d)
	if d.tries() {
		d.askDirectly()
	}
	for {
		if lost && s.goWithout(d) {
			return s.close(ctx, d)
		}
		allowed, again, err := s.ask(ctx, d)
		if !again {
			return allowed, err
		}
		s.lose(d)
		lost = true
	}
}

// close denies a request because of what its rules say while a server is lost. Nobody who is there is asked.
func (s *Store) close(ctx context.Context, d *decision) (bool, error) {
	allowed, err := s.o.Local.Peek(ctx, d.now, d.local.takes, d.local.outs)
	if allowed && err == nil {
		s.counts.denied.Add(1)
		d.refuser.denied.Add(1)
		err = bucket.ErrLost
	}
	return false, err
}

// lose goes on without the servers that a decision has tried in vain.
func (s *Store) lose(d *decision) {
	for i := range d.vias {
		if v := &d.vias[i]; v.failed {
			v.outage, v.failed = s.breaker(v.server).outage.Load(), false
		}
	}
	s.release(d)
}

// ask decides with the servers that are there. Again says that one was tried in vain.
func (s *Store) ask(ctx context.Context, d *decision) (allowed, again bool, err error) {
	allowed, err = s.o.Local.Peek(ctx, d.now, d.local.takes, d.local.outs)
	if !allowed || err != nil {
		return false, false, err
	}
	if s.remembered(d) {
		allowed, err = s.deny(ctx, d)
		return allowed, false, err
	}
	within := ctx
	if len(d.strict.takes) > 0 { // else most wait for nothing, and a deadline costs more than all the rest
		limited := deadline.After(ctx, s.o.Deadline)
		defer limited.End()
		within = limited
	}
	if allowed, err := s.takeLeases(within, d); !allowed {
		allowed, err = s.refuse(ctx, d, err)
		return allowed, false, err
	}
	back, allowed, lost, err := s.attempt(within, ctx, d)
	if !allowed {
		s.giveBack(ctx, d, nil)
		if lost {
			return false, true, nil
		}
		allowed, err = s.refuse(ctx, d, err)
		return allowed, false, err
	}
	if allowed, err = s.o.Local.TryConsume(ctx, d.now, d.local.takes, d.local.outs); !allowed {
		s.counts.races.Add(1)
		s.giveBack(ctx, d, back)
		d.leased.forget()
		d.strict.forget()
	} else if err == nil {
		s.use(d)
	}
	return allowed, false, err
}

// takeLeases takes from what is leased.
func (s *Store) takeLeases(ctx context.Context, d *decision) (bool, error) {
	if len(d.leased.takes) == 0 {
		return true, nil
	}
	if cap(d.until) < len(d.leased.takes) {
		d.until = make([]int64, len(d.leased.takes))
	}
	d.until = d.until[:len(d.leased.takes)]
	allowed, err := s.o.Leases.Hold(ctx, s.o.Deadline, d.leased.takes, d.leased.outs, d.until)
	if err == nil {
		return allowed, nil
	}
	clear(d.until)
	d.leased.forget()
	return !d.leased.enforced(), err
}

// giveBack undoes what was taken, for a request that is denied, and whose client may have left.
func (s *Store) giveBack(ctx context.Context, d *decision, back undo) {
	if len(d.leased.takes) > 0 {
		s.o.Leases.Return(d.leased.takes, d.until)
		for i := range d.leased.takes {
			if d.until[i] != 0 {
				d.leased.outs[i].Remaining += d.leased.takes[i].Cost
			}
		}
	}
	if back != nil {
		s.counts.undone.Add(1)
		s.undo(ctx, d.now, back)
	}
}

// undo gives back within the deadline, also for a client that has left.
func (s *Store) undo(ctx context.Context, now int64, back undo) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Deadline)
	defer cancel()
	back(ctx, now)
}

// refuse denies, because a shared bucket did, or could not be asked.
func (s *Store) refuse(ctx context.Context, d *decision, err error) (bool, error) {
	if err == nil {
		return s.deny(ctx, d)
	}
	s.counts.failed.Add(1)
	return false, fmt.Errorf("%w: %w", bucket.ErrLost, err)
}

// deny tells of the local buckets how they stay: Peek has told how they would be.
func (s *Store) deny(ctx context.Context, d *decision) (bool, error) {
	for i := range d.local.takes {
		if d.local.outs[i].Allowed {
			d.local.takes[i].Cost = 0
		}
	}
	_, err := s.o.Local.Peek(ctx, d.now, d.local.takes, d.local.outs)
	return false, err
}

// look is Peek for buckets that are not all local.
func (s *Store) look(ctx context.Context, d *decision) (bool, error) {
	gossiped := s.lookGossiped(d)
	allowed, err := s.lookElsewhere(ctx, d)
	return allowed && gossiped, err
}

func (s *Store) lookElsewhere(ctx context.Context, d *decision) (bool, error) {
	if len(d.lanes.takes) > 0 {
		if err := s.lookBoth(ctx, d); err != nil {
			return false, err
		}
	}
	s.lookAtAll(d)
	refused := d.shared() && s.noteLost(d) && s.goWithout(d)
	allowed, err := s.o.Local.Peek(ctx, d.now, d.local.takes, d.local.outs)
	if err != nil {
		return false, err
	}
	if refused {
		return false, lostIf(allowed)
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Deadline)
	defer cancel()
	if len(d.leased.takes) > 0 {
		allowed, err = s.lookAt(&d.leased, allowed,
			func(g *group) (bool, error) { return s.o.Leases.Peek(ctx, d.now, g.takes, g.outs) })
	}
	if err == nil && len(d.strict.takes) > 0 {
		allowed, err = s.lookAt(&d.strict, allowed,
			func(g *group) (bool, error) { return s.o.Strict.Peek(ctx, d.now, g.takes, g.outs) })
	}
	return allowed, err
}

func lostIf(allowed bool) error {
	if allowed {
		return bucket.ErrLost
	}
	return nil
}

// noteLost notes which servers that a decision needs are lost, and tries none. It reports whether there are any.
func (s *Store) noteLost(d *decision) (lost bool) {
	lost = s.choose(d)
	for i := range d.vias {
		if v := &d.vias[i]; v.probe {
			v.outage = s.breaker(v.server).outage.Load()
			lost = lost || v.outage != nil
		}
	}
	s.release(d)
	return lost
}

// lookAt asks about a group, and joins the answer with what is known.
func (s *Store) lookAt(g *group, before bool, peek func(*group) (bool, error)) (bool, error) {
	allowed, err := peek(g)
	switch {
	case err == nil:
		return before && allowed, nil
	case g.enforced():
		g.forget()
		return false, fmt.Errorf("%w: %w", bucket.ErrLost, err)
	}
	g.forget()
	return before, nil
}
