package scoped

import (
	"sync/atomic"

	"github.com/headgate-io/headgate/bucket"
)

// Status is how the shared store is, and what became of requests because of it. Counts only grow.
type Status struct {
	// Lost says that the shared store is taken for lost, since Since in Unix nanoseconds; 0 while it is not.
	Lost  bool
	Since int64

	Replicas int // as Options.Replicas says

	Losses uint64 // how often it was lost

	Failed uint64 // requests denied because it did not answer, before it was taken for lost
	Denied uint64 // requests denied while it was lost, as their rules say
	Shared uint64 // takes admitted by a share of the limit
	Opened uint64 // takes admitted because their rules say so

	Spared   uint64 // requests denied without a message, because it had denied the same shortly before
	Races    uint64 // requests that others left no room for while it was asked
	Undone   uint64 // of those, how many gave something back to it
	Replayed uint64 // buckets that were charged after an outage with what was admitted during it
	Missed   uint64 // takes, or buckets, of which that was not possible
}

type counts struct {
	lost, failed, denied, shared, opened, spared, races, undone, replayed, missed atomic.Uint64
}

// Status reports how the shared store is.
func (s *Store) Status() Status {
	c := &s.counts
	st := Status{
		Replicas: s.o.Replicas(), Losses: c.lost.Load(), Failed: c.failed.Load(), Denied: c.denied.Load(), Shared: c.shared.Load(),
		Opened: c.opened.Load(), Spared: c.spared.Load(), Races: c.races.Load(), Undone: c.undone.Load(), Replayed: c.replayed.Load(), Missed: c.missed.Load(),
	}
	if o := s.breaker.outage.Load(); o != nil {
		st.Lost, st.Since = true, o.since
	}
	return st
}

func (s *Store) tell() {
	if s.o.Changed != nil {
		s.o.Changed(s.Status())
	}
}

// Sharing says how buckets are shared, for bucket.Bound.
func (s *Store) Sharing() bucket.Sharing {
	sharing := bucket.Sharing{Replicas: max(1, s.o.Replicas())}
	if s.o.Leases != nil {
		sharing.TTL = s.o.Leases.Terms().TTL
	}
	return sharing
}
