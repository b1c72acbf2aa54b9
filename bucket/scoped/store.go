package scoped

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gossip"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/report"
)

// Shared keeps buckets that all replicas share. bucket/redis does.
type Shared interface {
	bucket.Store

	// Attempt takes from all buckets or from none. If it took, undo gives back what has not drained since.
	Attempt(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (allowed bool,
		undo func(ctx context.Context, now int64), err error)
}

// Options configures a Store. Local is required; every other zero value is a safe default.
type Options struct {
	// Local keeps buckets in this process, and answers at once. bucket/memory does,
	// and is a bucket.Learner besides.
	Local bucket.Store

	// Strict has the buckets that are shared, those of scope lease as well: corrections go there,
	// and takes while Leases is nil. Nil means that there are none, and that a take from one is an
	// error.
	Strict Shared

	// Leases takes batches from buckets of Strict. It is this Store's alone.
	Leases *lease.Store

	// Reports decides over buckets of Strict of scope sync by what is known of them, and reports to
	// it afterwards. It is this Store's alone. While it is nil, takes from them are as those of
	// scope strict.
	Reports *report.Store

	// Gossip decides over buckets of scope gossip. It is this Store's alone, and its clock is that of
	// decisions. While it is nil, takes from them are local.
	Gossip *gossip.Store

	// Free is how many percent of limits of scope lease replicas have to themselves, in equal
	// parts: up to so much of a limit costs no message. The same at all replicas. More, and less of
	// a limit is left for a replica that gets most of the requests, which has the rest and its own
	// part: with 20 and 4 replicas, 85 %. And a request that costs more than the rest of the burst
	// is never admitted. 0 to 90; default 0.
	Free int

	// Replicas is by how many to divide limits of scope split, what is free of others, and what may
	// be unanswered of those of scope sync: how many run now, this one among them. 0 is for one
	// that has no part yet, and admits nothing under such limits. It is called once a take, and
	// must be quick. The default is 1.
	Replicas func() int

	// Count is how many replicas there are, this one included, also while Replicas does not divide
	// by that yet; 0 if nobody knows. What is told of all replicas together goes by it (Sharing),
	// and no decision does. The default is Replicas.
	Count func() int

	// Began is when this process did, in Unix nanoseconds of the clock that decisions are made by:
	// one that joins others begins with empty buckets of scope split. Default now.
	Began int64

	// Deadline is how long a decision waits for the shared store. Default 5 ms. Less than twice
	// what the slowest of a hundred answers takes, and healthy stores are taken for lost; more, and
	// requests wait so much longer while it is.
	Deadline time.Duration

	// Fault tells errors of the shared store that say something about it from those that are about
	// one bucket or one take. Nil counts all.
	Fault func(error) bool

	// Server says which of the servers of a shared store has the buckets of a tag, as a number of 0
	// to MaxServers-1 that it keeps. It is called once a take, and must be quick. Nil is for a
	// store that is one server.
	Server func(tag uint16) int

	// Changed, if set, is told whenever a server of the shared store is lost or back. It must be quick.
	Changed func(Server, Status)

	// MaxUsage is of how many buckets it is remembered what was admitted while the shared store was
	// lost, at about 200 bytes each. What is forgotten is not charged. Default 1<<14.
	MaxUsage int

	// Vary returns a number of 0 to n-1, by which pauses of replicas differ. The default is random;
	// a simulation has its own.
	Vary func(n int64) int64
}

const (
	defaultDeadline = 5 * time.Millisecond
	defaultUsage    = 1 << 14
)

// Store decides over buckets in several places. It is safe for concurrent use.
type Store struct {
	o Options

	splits  splits
	lanes   freeParts
	denials denials
	owed    owedPlaces
	spares  spares
	vary    func(n int64) int64

	breakers [MaxServers]atomic.Pointer[breaker] // by server; nil for those that were never needed

	latest atomic.Int64 // the time of a recent decision
	counts counts

	background func(func()) // runs what nobody waits for

	decisions sync.Pool // of *decision
}

// New returns a Store, or an error that names every field at fault.
func New(o Options) (*Store, error) {
	var errs []error
	if o.Local == nil {
		errs = append(errs, errors.New("Local is nil, want one"))
	}
	if o.Leases != nil && o.Strict == nil {
		errs = append(errs, errors.New("Strict is nil, want the store whose buckets Leases takes from"))
	}
	if o.Reports != nil && o.Strict == nil {
		errs = append(errs, errors.New("Strict is nil, want the store whose buckets Reports tells of"))
	}
	if o.Deadline == 0 {
		o.Deadline = defaultDeadline
	}
	if o.Deadline < 0 || o.Deadline > time.Minute {
		errs = append(errs, fmt.Errorf("Deadline is %v, want more than 0 and at most 1m", o.Deadline))
	}
	if o.MaxUsage == 0 {
		o.MaxUsage = defaultUsage
	}
	if o.MaxUsage < 0 {
		errs = append(errs, fmt.Errorf("MaxUsage is %d, want 1 or more, or 0 for %d", o.MaxUsage, defaultUsage))
	}
	if o.Free < 0 || o.Free > 90 {
		errs = append(errs, fmt.Errorf("Free is %d, want 0 to 90", o.Free))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("scoped bucket options: %w", err)
	}
	if o.Replicas == nil {
		o.Replicas = func() int { return 1 }
	}
	if o.Count == nil {
		o.Count = o.Replicas
	}
	if o.Began == 0 {
		o.Began = time.Now().UnixNano()
	}
	if o.Fault == nil {
		o.Fault = func(error) bool { return true }
	}
	s := &Store{o: o, background: func(f func()) { go f() }}
	if s.vary = o.Vary; s.vary == nil {
		s.vary = rand.Int64N
	}
	s.splits.init(o)
	s.lanes.init(o.Free)
	s.decisions.New = func() any { return new(decision) }
	if o.Leases != nil {
		o.Leases.OnAnswer(func(of *bucket.Take, err error) {
			s.answered(s.latest.Load(), s.server(of.Tag), route{}, err)
		})
	}
	if o.Reports != nil {
		o.Reports.OnAnswer(func(of *bucket.Take, err error) {
			s.answered(s.latest.Load(), s.server(of.Tag), route{}, err)
		})
	}
	return s, nil
}

// Learn tells the local store of a change of limits, if it wants to know.
func (s *Store) Learn(since, settled int64) { s.splits.hear(since, settled) }

// TryConsume takes from all buckets or from none, at the time now in Unix nanoseconds, and writes
// into outs[i] what became of takes[i]. It reports whether all takes that are not shadows were
// allowed. What was not asked is Unknown.
//
// A decision over local buckets alone is that of the local store. An error that is bucket.ErrLost
// says that the shared store could not be asked, and that rules do not let the request pass
// without.
func (s *Store) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if local(takes) {
		return s.o.Local.TryConsume(ctx, now, takes, outs)
	}
	if len(takes) == 1 && takes[0].Reach.Scope() == bucket.Lease && s.o.Leases != nil && len(outs) > 0 &&
		takes[0].Place == 0 {
		if allowed, decided := s.single(ctx, now, &takes[0], &outs[0]); decided {
			return allowed, nil
		}
	}
	if len(takes) == 1 && takes[0].Reach.Scope() == bucket.Gossip && s.o.Gossip != nil && len(outs) > 0 {
		return s.o.Gossip.Take(now, &takes[0], &outs[0]) || takes[0].Shadow, nil
	}
	d, err := s.begin(now, takes, outs, true)
	if err != nil {
		return false, err
	}
	defer s.end(d)
	allowed, err := s.decide(ctx, d)
	s.hold(d, allowed && err == nil)
	d.report(outs)
	s.complete(d, outs, allowed && err == nil)
	return allowed, err
}

// Peek answers what TryConsume would, and changes nothing. It asks every store that it has to,
// whatever another one says.
func (s *Store) Peek(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if local(takes) {
		return s.o.Local.Peek(ctx, now, takes, outs)
	}
	d, err := s.begin(now, takes, outs, false)
	if err != nil {
		return false, err
	}
	defer s.end(d)
	allowed, err := s.look(ctx, d)
	d.report(outs)
	s.complete(d, outs, false)
	return s.subtractPending(d, outs) && allowed, err
}

// local reports whether all takes are from local buckets.
func local(takes []bucket.Take) bool {
	for i := range takes {
		if takes[i].Reach.Scope() != bucket.Local {
			return false
		}
	}
	return true
}
