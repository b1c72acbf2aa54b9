package scoped

import (
	"sync/atomic"

	"github.com/headgate-io/headgate/bucket"
)

// Status is how the shared store is, and what became of requests because of it. Counts only grow.
type Status struct {
	// Lost says that a server of the shared store is taken for lost, since Since in Unix nanoseconds; 0 while none is.
	Lost  bool
	Since int64

	Servers []Server // that decisions ever needed

	Replicas int // as Options.Replicas says

	Losses uint64 // how often one was lost

	Failed uint64 // requests denied because it did not answer, before it was taken for lost
	Denied uint64 // requests denied while it was lost, as their rules say
	Shared uint64 // takes admitted by a share of the limit
	Opened uint64 // takes admitted because their rules say so

	Free     uint64 // takes admitted by what this replica has to itself of limits of scope lease
	Spared   uint64 // requests denied without a message, because it had denied the same shortly before
	Races    uint64 // requests that others left no room for while it was asked
	Undone   uint64 // of those, how many gave something back to it
	Replayed uint64 // buckets that were charged after an outage with what was admitted during it
	Missed   uint64 // takes, or buckets, of which that was not possible
}

type counts struct {
	lost, failed, denied, shared, opened, spared, free, races, undone, replayed, missed atomic.Uint64
}

// Status reports how the shared store is.
func (s *Store) Status() Status {
	c := &s.counts
	st := Status{
		Servers: s.servers(), Replicas: s.o.Replicas(), Losses: c.lost.Load(), Failed: c.failed.Load(),
		Denied: c.denied.Load(), Shared: c.shared.Load(),
		Opened: c.opened.Load(), Free: c.free.Load(), Spared: c.spared.Load(), Races: c.races.Load(),
		Undone: c.undone.Load(), Replayed: c.replayed.Load(), Missed: c.missed.Load(),
	}
	for _, one := range st.Servers {
		if one.Lost && (!st.Lost || one.Since < st.Since) {
			st.Lost, st.Since = true, one.Since
		}
	}
	return st
}

// tell tells that a server is lost, and why, or that its outage is over.
func (s *Store) tell(server int, over *outage, why error) {
	if s.o.Changed == nil {
		return
	}
	one := Server{Number: server, Lost: over == nil, Since: s.breaker(server).since.Load(), Why: why}
	if over != nil {
		one.Since = over.since
		one.Denied, one.Shared, one.Opened = over.denied.Load(), over.shared.Load(), over.opened.Load()
	}
	s.o.Changed(one, s.Status())
}

// Sharing says how buckets are shared: what all replicas admit together follows from it. While
// Count and Replicas differ, some replicas divide by the one and some by the other. One that has no
// part yet cannot tell by how many the others divide.
func (s *Store) Sharing() bucket.Sharing {
	divisor, count := s.o.Replicas(), s.o.Count()
	if count == 0 {
		count = divisor // nobody knows better
	}
	sharing := bucket.Sharing{Replicas: max(1, divisor, count), Fewest: max(1, min(divisor, count))}
	if s.o.Leases != nil {
		sharing.TTL, sharing.Free = s.o.Leases.Terms().TTL, s.o.Free
	}
	if s.o.Reports != nil {
		sharing.Interval = s.o.Reports.Interval()
	}
	if s.o.Gossip != nil {
		sharing.Heard = s.o.Gossip.Heard()
		sharing.Replicas = max(sharing.Replicas, s.o.Gossip.Replicas())
	}
	return sharing
}
