package daemon

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/server/metrics"
	"github.com/headgate-io/headgate/server/redis"
)

// watched is what the servers of the store told of themselves last.
type watched struct {
	state  redis.State
	known  bool
	slow   bool   // they take most of store.deadline to answer
	mended uint64 // buckets that were put in order, as last told
}

// saw notes how the servers of the store are, and says what has changed.
func (s *shared) saw(now redis.State, err error) {
	if err != nil {
		return // that it does not answer is said elsewhere
	}
	s.mu.Lock()
	before := s.watched
	s.watched = watched{state: now, known: true, slow: 2*now.Trip > s.conf.Deadline, mended: s.mended()}
	after := s.watched
	s.mu.Unlock()
	if len(now.Faults) > 0 && !slices.Equal(now.Faults, before.state.Faults) {
		s.log.Error("the store of shared buckets loses them, so limits are not kept", "error",
			strings.Join(now.Faults, "; "))
	}
	if len(now.Faults) == 0 && len(before.state.Faults) > 0 {
		s.log.Info("the store of shared buckets keeps them again")
	}
	if len(now.Risks) > 0 && !slices.Equal(now.Risks, before.state.Risks) {
		s.log.Warn("a failover of the store of shared buckets may admit limits twice", "reason",
			strings.Join(now.Risks, "; "))
	}
	if after.slow && !before.slow {
		s.log.Warn("the store of shared buckets takes most of store.deadline to answer, so requests are denied "+
			"that need not be: want store.deadline at least four times as long",
			"answers_in", now.Trip.Round(time.Microsecond), "deadline", s.conf.Deadline)
	}
	if n := after.mended - before.mended; n > 0 {
		s.log.Warn("buckets in the store were put in order: what was under their names was none, or was dated "+
			"ahead of the server's clock", "buckets", n)
	}
}

// observed tells the metrics how the servers of the store are.
func (s *shared) observed(m *metrics.StoreStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Evicting, m.Unguarded = len(s.watched.state.Faults), len(s.watched.state.Risks)
	m.Watched, m.Offset, m.Within, m.Trip = s.watched.known, s.watched.state.Offset, s.watched.state.Within,
		s.watched.state.Trip
	m.Mended = s.mended()
}

// ahead is by how much the clock of this machine is ahead of that of the store's server that
// differs most, false while nobody knows.
func (s *shared) ahead() (time.Duration, bool) {
	if s == nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watched.state.Offset, s.watched.known
}
