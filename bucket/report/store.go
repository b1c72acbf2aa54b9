package report

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/internal/accounts"
	"github.com/headgate-io/headgate/bucket/internal/outbox"
	"github.com/headgate-io/headgate/rate"
)

// Authority keeps the buckets that replicas report about. It is safe for concurrent use.
type Authority interface {
	// ReportAll charges what is told of many buckets, each once, and writes the answers or errors
	// there. A report under a number that it has charged before, or below, is not charged again.
	// After an error it is not known whether it was charged.
	ReportAll(ctx context.Context, replica uint64, told []Told)
}

// Told is a report about the bucket of a take, and what came of it.
type Told struct {
	Of      bucket.Take
	Report  Report
	Answer  Answer
	Err     error
	Message int // the number of the message that held it, where it took several: what is lost with one is one failure
}

// Options configures a Store. Authority is required; every other zero value is a safe default.
type Options struct {
	Authority Authority

	// Interval is how long what was admitted waits to be reported, at most. Longer means fewer
	// messages, and more that all replicas admit together beyond the limit: what drains in an
	// Interval for each. The same at all replicas. 1ms to 10s; default 100 ms.
	Interval time.Duration

	// Replica is what this process is called in reports. Two with one name would be taken for one
	// that tells twice; so would one that restarts under its old name. Default a random one, as it
	// should be.
	Replica uint64

	// Deadline is how long to wait for the authority. No request waits for it. Default 5 ms.
	Deadline time.Duration

	// Gather is how long a report that must not wait for the Interval, because half of the headroom
	// is used up, waits for others to go with it. Default 0.
	Gather time.Duration

	// MaxAccounts is how many buckets are remembered, at about 400 bytes each. Takes from others
	// are for the authority. Default 1<<16.
	MaxAccounts int

	// Now is the clock, in nanoseconds. It must not step. Default the monotonic one: rates are lowered
	// (bucket.Take.Lowered) for who has that of decisions.
	Now func() int64
}

const (
	defaultInterval = 100 * time.Millisecond
	defaultDeadline = 5 * time.Millisecond
	defaultAccounts = 1 << 16

	// fresh is how old an answer is at most that denies: who gives tokens back elsewhere is heard of then.
	fresh = int64(time.Second)
)

// Store admits by what is known, and reports it. It is safe for concurrent use.
type Store struct {
	o        Options
	accounts *accounts.Table[entry]

	answered func(*bucket.Take, error) // may be nil
	outboxes [kinds]outbox.Box[entry, Told]
	counts   counts
}

// entry is the account of one bucket.
type entry struct {
	mu       sync.Mutex
	account  Account       // guarded by mu
	shape    rate.Shape    // guarded by mu; which the account counts in
	since    int64         // guarded by mu; when it took effect
	before   *rate.Past    // guarded by mu; what it replaced
	lowered  *rate.Lowered // guarded by mu; by how much its rate is, as takes say
	replicas int           // guarded by mu; for which headroom is
	headroom int64         // guarded by mu
	queued   [kinds]bool   // guarded by mu; it is in the outbox, by kind
	gone     bool          // guarded by mu; it was forgotten
}

// New returns a Store, or an error that names every field at fault.
func New(o Options) (*Store, error) {
	var errs []error
	if o.Authority == nil {
		errs = append(errs, errors.New("Authority is nil, want one"))
	}
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	if o.Interval < time.Millisecond || o.Interval > 10*time.Second {
		errs = append(errs, fmt.Errorf("Interval is %v, want 1ms to 10s", o.Interval))
	}
	if o.Deadline == 0 {
		o.Deadline = defaultDeadline
	}
	if o.Deadline < 0 || o.Deadline > time.Minute {
		errs = append(errs, fmt.Errorf("Deadline is %v, want more than 0 and at most 1m", o.Deadline))
	}
	if o.Gather < 0 || o.Gather > o.Interval {
		errs = append(errs, fmt.Errorf("Gather is %v, want 0 or more and at most Interval, which is %v",
			o.Gather, o.Interval))
	}
	if o.MaxAccounts == 0 {
		o.MaxAccounts = defaultAccounts
	}
	if o.MaxAccounts < accounts.Shards {
		errs = append(errs, fmt.Errorf("MaxAccounts is %d, want %d or more", o.MaxAccounts, accounts.Shards))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("report options: %w", err)
	}
	for o.Replica == 0 {
		o.Replica = rand.Uint64()
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() int64 { return int64(time.Since(start)) }
	}
	s := &Store{o: o, accounts: accounts.New[entry](o.MaxAccounts)}
	s.open()
	return s, nil
}

// OnAnswer has f hear of every message, about the bucket of a take, how it ended. It is called on
// other goroutines and must be quick. OnAnswer comes before the first take.
func (s *Store) OnAnswer(f func(of *bucket.Take, err error)) { s.answered = f }

// Interval is how long what was admitted waits to be reported.
func (s *Store) Interval() time.Duration { return s.o.Interval }

// Now is the Store's clock.
func (s *Store) Now() int64 { return s.o.Now() }

// Take takes from the bucket of a take at now, on the Store's clock, where so many replicas share
// it, and writes to o how that stands as far as is known. After Ask nothing is known, and o says
// so.
func (s *Store) Take(now int64, take *bucket.Take, replicas int, o *bucket.Outcome) Verdict {
	*o = bucket.Outcome{Allowed: true, Unknown: true}
	e := s.entry(now, take)
	if e == nil {
		s.counts.asked.Add(1)
		return Ask
	}
	defer e.mu.Unlock()
	e.meet(now, s.o.Interval, take, replicas)
	v := Admit
	if take.Cost != 0 {
		v = e.account.Take(now, &e.shape, e.headroom, take.Cost)
	}
	switch v {
	case Ask:
		s.counts.asked.Add(1)
		s.post(take, e)
		return v
	case Deny:
		s.counts.denied.Add(1)
		if e.account.Stale(now - fresh) {
			e.account.Look()
		}
	case Admit:
		s.counts.admitted.Add(uint64(max(0, take.Cost)))
	}
	e.account.Describe(o, now, &e.shape, take.Cost, v == Admit)
	o.RetryAfter, o.ResetAfter = e.lowered.Stretch(o.RetryAfter), e.lowered.Stretch(o.ResetAfter)
	s.post(take, e)
	return v
}

// Return takes back what Take admitted at a time, for a request that was denied elsewhere, unless
// it was reported meanwhile.
func (s *Store) Return(take *bucket.Take, taken int64) {
	e := s.find(take)
	if e == nil || take.Cost <= 0 {
		return
	}
	defer e.mu.Unlock()
	if e.shape == take.Shape && e.account.Return(s.o.Now(), &e.shape, take.Cost, taken) {
		s.counts.returned.Add(uint64(take.Cost))
	}
}

// Pending is how many tokens of a take's bucket this replica admitted that the authority may not know of.
func (s *Store) Pending(take *bucket.Take) int64 {
	e := s.find(take)
	if e == nil {
		return 0
	}
	defer e.mu.Unlock()
	return e.account.Pending()
}

// Refresh has a take's bucket reported at once, for the sake of the answer: its debt was changed at the authority.
func (s *Store) Refresh(take *bucket.Take) {
	e := s.find(take)
	if e == nil {
		return
	}
	defer e.mu.Unlock()
	e.account.Look()
	s.postAs(urgent, take, e)
}

// entry finds the account of a take, or opens one, and locks it. It is nil if there is no room.
func (s *Store) entry(now int64, take *bucket.Take) *entry {
	made := func(nth uint32) *entry { return &entry{account: NewAccount(nth), shape: take.Shape} }
	return s.accounts.Open(take.Key, made, func(e *entry, _ bool) bool { return e.forget(now) }, lock)
}

// find is the account of a take, locked, or nil.
func (s *Store) find(take *bucket.Take) *entry { return s.accounts.Find(take.Key, lock) }

func lock(e *entry) { e.mu.Lock() }

// forget says whether an account may go: what it admitted must have been told.
func (e *entry) forget(now int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = e.account.Idle(now, &e.shape)
	return e.gone
}

// meet has an account count as a take does. The entry is locked.
func (e *entry) meet(now int64, interval time.Duration, take *bucket.Take, replicas int) {
	e.since, e.before, e.lowered = take.Since, take.Before, take.Slower()
	e.account.Slow(now, e.lowered)
	if e.shape != take.Shape {
		e.account.Change(now, &e.shape, &take.Shape)
		e.shape, e.replicas = take.Shape, 0
	}
	if e.replicas != replicas {
		e.replicas, e.headroom = replicas, bucket.Headroom(e.shape, interval, replicas)
	}
}
