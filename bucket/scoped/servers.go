package scoped

import (
	"context"

	"github.com/headgate-io/headgate/bucket"
)

// A shared store may be several servers, each with the buckets of some tags. One of them that is
// lost is no reason to do without the others, so each has a breaker of its own. A decision over
// buckets of several servers asks all of them that are there, and does for the others what rules
// say.

// MaxServers bounds how many servers of a shared store are told apart. Those beyond share the breakers of the first.
const MaxServers = 1 << 10

// Server is how one server of the shared store is.
type Server struct {
	Number int // as Options.Server says

	Lost  bool
	Since int64 // in Unix nanoseconds since when it is lost, the last time; 0 if it never was

	// What became of requests for its sake in the outage that is told to be over: requests denied,
	// takes admitted by a share of the limit, and takes admitted because their rules say so. 0
	// while it is lost, and in a Status.
	Denied, Shared, Opened uint64

	Why error // it was taken for lost, where that is told; nil else
}

// server is the number of the server that has the bucket of a take.
func (s *Store) server(tag uint16) int {
	if s.o.Server == nil {
		return 0
	}
	return int(uint(s.o.Server(tag)) % MaxServers)
}

// breaker is that of a server.
func (s *Store) breaker(server int) *breaker {
	at := &s.breakers[server]
	if b := at.Load(); b != nil {
		return b
	}
	at.CompareAndSwap(nil, &breaker{vary: s.vary, begin: s.newOutage})
	return at.Load()
}

// Retire says that a server has no buckets any more: others have them. If it was lost, that is over.
func (s *Store) Retire(server int) {
	server = int(uint(server) % MaxServers)
	b := s.breakers[server].Load()
	if b == nil {
		return
	}
	if over := b.end(); over != nil {
		s.tell(server, over, nil)
		s.background(func() { s.replay(s.latest.Load(), over) })
	}
}

// Try tries each server that is lost and due for it, as a request that needs one does: for a
// process that gets no requests meanwhile. Ask has a server take from a bucket, within
// Options.Deadline.
func (s *Store) Try(ctx context.Context, now int64, ask func(ctx context.Context, server int) error) {
	for server := range s.breakers {
		b := s.breakers[server].Load()
		if b == nil || b.outage.Load() == nil {
			continue
		}
		way := b.route(now)
		if !way.probe {
			continue
		}
		within, cancel := context.WithTimeout(ctx, s.o.Deadline)
		err := ask(within, server)
		cancel()
		if ctx.Err() == nil {
			s.answered(now, server, way, err)
		}
		b.release()
	}
}

// visit is how a decision gets to the buckets of one server.
type visit struct {
	server int
	route
	outage *outage // if it is lost
	failed bool    // it was tried in vain
}

// choose finds a way to every server that a decision needs. It reports whether one of them is not there.
func (s *Store) choose(d *decision) (lost bool) {
	d.vias = d.vias[:0]
	for _, g := range [...]*group{&d.leased, &d.strict} {
		for i := range g.takes {
			server := s.server(g.takes[i].Tag)
			if g.servers = append(g.servers, server); d.visitOf(server) != nil {
				continue
			}
			b := s.breaker(server)
			v := visit{server: server, route: b.route(d.now)}
			if v.lost {
				v.outage = b.outage.Load() // nil if it came back this moment
			}
			lost = lost || v.outage != nil
			d.vias = append(d.vias, v)
		}
	}
	return lost
}

// release ends the tries of a decision.
func (s *Store) release(d *decision) {
	for i := range d.vias {
		if v := &d.vias[i]; v.probe {
			s.breaker(v.server).release()
			v.probe = false
		}
	}
}

// visitOf is the way to a server, nil if none was chosen yet.
func (d *decision) visitOf(server int) *visit {
	for i := range d.vias {
		if d.vias[i].server == server {
			return &d.vias[i]
		}
	}
	return nil
}

// askDirectly has buckets of servers that are tried asked directly: what is held of them would tell
// nothing of the server, and they are the same.
func (d *decision) askDirectly() {
	d.leased.keep(func(i int) bool {
		if !d.visitOf(d.leased.servers[i]).probe {
			return true
		}
		d.strict.add(d.leased.of[i], &d.leased.takes[i])
		d.strict.servers = append(d.strict.servers, d.leased.servers[i])
		return false
	})
}

// tries reports whether a decision tries a server that is lost.
func (d *decision) tries() bool {
	for i := range d.vias {
		if d.vias[i].probe {
			return true
		}
	}
	return false
}

// status of all servers that a decision has ever needed.
func (s *Store) servers() (all []Server) {
	for n := range s.breakers {
		b := s.breakers[n].Load()
		if b == nil {
			continue
		}
		one := Server{Number: n, Since: b.since.Load()}
		one.Lost = b.outage.Load() != nil
		all = append(all, one)
	}
	return all
}

// admission is a take that passes because nobody can be asked.
type admission struct {
	take   bucket.Take // from the server, as it was to be asked
	outage *outage
}

// goWithout sends takes from servers that are lost where their rules want them meanwhile. It reports
// whether one is to be denied.
func (s *Store) goWithout(d *decision) (refused bool) {
	for _, g := range [...]*group{&d.leased, &d.strict} {
		g.keep(func(i int) bool {
			o := d.visitOf(g.servers[i]).outage
			if o == nil {
				return true
			}
			t := &g.takes[i]
			switch t.Reach.Loss() {
			case bucket.LossShare:
				s.fallBack(d.local.add(g.of[i], t), o)
				d.admitted = append(d.admitted, admission{*t, o})
			case bucket.LossOpen:
				d.admitted = append(d.admitted, admission{*t, o})
			default:
				if !t.Shadow && !refused {
					refused, d.refuser = true, o
				}
			}
			return false
		})
	}
	return refused
}
