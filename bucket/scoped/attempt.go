package scoped

import (
	"context"
	"sync"

	"github.com/headgate-io/headgate/bucket"
)

// undo gives back what an attempt took.
type undo func(ctx context.Context, now int64)

// inquiry is the takes of a decision that one server is asked about, and what it said.
type inquiry struct {
	via   *visit
	takes []bucket.Take
	outs  []bucket.Outcome

	allowed bool
	undo    undo
	err     error
}

// enforced reports whether any take of an inquiry may stand in the way.
func (p *inquiry) enforced() bool {
	for i := range p.takes {
		if !p.takes[i].Shadow {
			return true
		}
	}
	return false
}

// attempt takes from the shared store, from all servers or from none. Lost says that a server was
// tried and is still not there.
func (s *Store) attempt(within, ctx context.Context, d *decision) (back undo, allowed, lost bool, err error) {
	switch len(d.strict.takes) {
	case 0:
		return nil, true, false, nil
	case 1:
		p := inquiry{via: d.visitOf(d.strict.servers[0]), takes: d.strict.takes, outs: d.strict.outs}
		s.askOne(within, ctx, d.now, &p)
		return p.undo, p.allowed, p.lost(), p.err
	}
	all := d.inquiries()
	if len(all) == 1 {
		p := &all[0]
		s.askOne(within, ctx, d.now, p)
		return p.undo, p.allowed, p.lost(), p.err
	}
	var others sync.WaitGroup
	for i := range all[1:] {
		others.Go(func() { s.askOne(within, ctx, d.now, &all[1+i]) })
	}
	s.askOne(within, ctx, d.now, &all[0])
	others.Wait()
	return s.together(ctx, d, all)
}

// inquiries are the takes by server. They are put in that order.
func (d *decision) inquiries() (all []inquiry) {
	g := &d.strict
	if alike(g.servers) {
		return []inquiry{{via: d.visitOf(g.servers[0]), takes: g.takes, outs: g.outs}}
	}
	sorted := group{}
	for i := range d.vias {
		from := len(sorted.takes)
		for j, server := range g.servers {
			if server == d.vias[i].server {
				sorted.add(g.of[j], &g.takes[j])
				sorted.servers = append(sorted.servers, server)
			}
		}
		if len(sorted.takes) > from {
			all = append(all, inquiry{via: &d.vias[i]})
		}
	}
	*g = sorted
	for from, i := 0, 0; i < len(all); i++ {
		to := from
		for to < len(g.servers) && g.servers[to] == all[i].via.server {
			to++
		}
		all[i].takes, all[i].outs = g.takes[from:to], g.outs[from:to]
		from = to
	}
	return all
}

func alike(servers []int) bool {
	for _, n := range servers[1:] {
		if n != servers[0] {
			return false
		}
	}
	return true
}

// askOne asks one server.
func (s *Store) askOne(within, ctx context.Context, now int64, p *inquiry) {
	p.allowed, p.undo, p.err = s.o.Strict.Attempt(within, now, p.takes, p.outs)
	if p.err == nil {
		s.answered(now, p.via.server, p.via.route, nil)
		s.remember(now, p.takes, p.outs, p.allowed)
		return
	}
	unasked(p.outs)
	s.owePlaces(now, p.takes) // they may have been taken
	p.via.failed = p.via.probe
	if ctx.Err() == nil { // else the client has left, which says nothing about the store
		s.answered(now, p.via.server, p.via.route, p.err)
	}
	p.undo, p.allowed = nil, !p.enforced() && !p.via.probe
}

// lost says that the server of an inquiry was tried, and is still not there.
func (p *inquiry) lost() bool { return p.via.failed }

// together joins what several servers said. If one denies, or fails, the others get back what they gave.
func (s *Store) together(ctx context.Context, d *decision, all []inquiry) (back undo, allowed, lost bool, err error) {
	allowed = true
	var failed error
	for i := range all {
		p := &all[i]
		allowed = allowed && p.allowed
		lost = lost || p.lost()
		if p.err != nil && !p.allowed && !p.lost() {
			failed = p.err // which nothing makes up for
		} else if p.err != nil && err == nil {
			err = p.err
		}
	}
	if failed != nil {
		lost, err = false, failed
	}
	back = func(ctx context.Context, now int64) {
		var each sync.WaitGroup
		for i := range all {
			if all[i].undo != nil {
				each.Go(func() { all[i].undo(ctx, now) })
			}
		}
		each.Wait()
	}
	if allowed {
		return back, true, false, nil
	}
	s.undo(ctx, d.now, back)
	for i := range all {
		if p := &all[i]; p.undo != nil {
			unasked(p.outs) // it is true no more
			s.forget(p.takes)
		}
	}
	if denied(all) { // for certain: no way around a server changes that
		return nil, false, false, nil
	}
	return nil, false, lost, err
}

// denied reports whether a server said no.
func denied(all []inquiry) bool {
	for i := range all {
		if !all[i].allowed && all[i].err == nil {
			return true
		}
	}
	return false
}
