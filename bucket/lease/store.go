package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/internal/accounts"
	"github.com/headgate-io/headgate/bucket/internal/outbox"
	"github.com/headgate-io/headgate/rate"
)

// Authority keeps the buckets that replicas lease of. It is safe for concurrent use.
type Authority interface {
	// Ask answers a question about the bucket of a take. A question under a number that it has
	// answered before, of the same replica, gets the same answer and is charged once; number 0 is a
	// look, which charges nothing. An error means that it could not find out; whether the question
	// was charged is then not known.
	Ask(ctx context.Context, replica uint64, of bucket.Take, q Question) (Answer, error)
}

// Batcher is an Authority that answers many questions by one message.
type Batcher interface {
	Authority

	// AskAll answers what was asked, each question as Ask does, and writes its answer or its error there.
	AskAll(ctx context.Context, replica uint64, asked []Asked)
}

// Asked is a question about the bucket of a take, and what came of it.
type Asked struct {
	Of       bucket.Take
	Question Question
	Answer   Answer
	Err      error
	Message  int // the number of the message that held it, where it took several: what is lost with one is one failure
}

// Options configures a Store. Authority is required; every other zero value is a safe default.
type Options struct {
	Authority Authority
	Terms     Terms

	// Replica is what this process is called in questions. Two with one name would be taken for one
	// that asks twice; so would one that restarts under its old name. Default a random one, as it
	// should be.
	Replica uint64

	// Deadline is how long a request waits for the authority. Default 5 ms.
	Deadline time.Duration

	// Gather is how long a question waits for others to go with it, if Authority is a Batcher; four
	// times as long if no request waits for the answer. Longer means fewer messages, and longer
	// waits for those who need the answer. Default 0: none waits.
	Gather time.Duration

	// MaxAccounts is how many buckets are remembered, at about 500 bytes each. One that is
	// forgotten costs what it held, and messages: never a token too many. Default 1<<16; 512 at least.
	MaxAccounts int

	// Now is the clock, in nanoseconds. It must not step. Default the monotonic one.
	Now func() int64

	// Vary returns a number of 0 to n-1, by which waits of replicas differ. The default is random;
	// a simulation has its own.
	Vary func(n int64) int64
}

const (
	defaultDeadline = 5 * time.Millisecond
	defaultAccounts = 1 << 16
)

// Store admits out of leases. It is safe for concurrent use.
type Store struct {
	o        Options
	accounts *accounts.Table[entry]

	answered func(*bucket.Take, error) // may be nil
	outbox   outbox.Box[entry, Asked]
	counts   counts
}

// entry is the account of one bucket, and who waits for its next answer.
type entry struct {
	mu      sync.Mutex
	account Account       // guarded by mu
	shape   rate.Shape    // guarded by mu; of what the account holds
	since   int64         // guarded by mu; when it took effect
	before  *rate.Past    // guarded by mu; what it replaced
	lowered *rate.Lowered // guarded by mu; by how much its rate is, as takes say
	waiting *answer       // guarded by mu; nil while nobody waits
	queued  bool          // guarded by mu; it is in the outbox
}

// answer is what some requests wait for.
type answer struct {
	came chan struct{} // closed when it did, or will not
	err  error         // why it will not; written before came is closed
}

// New returns a Store, or an error that names every field at fault.
func New(o Options) (*Store, error) {
	var errs []error
	if o.Authority == nil {
		errs = append(errs, errors.New("Authority is nil, want one"))
	}
	o.Terms = o.Terms.Complete()
	if o.Terms.TTL < time.Millisecond || o.Terms.TTL > time.Minute {
		errs = append(errs, fmt.Errorf("Terms.TTL is %v, want 1ms to 1m", o.Terms.TTL))
	}
	if o.Terms.Poll < time.Millisecond || o.Terms.Poll > o.Terms.TTL {
		errs = append(errs, fmt.Errorf("Terms.Poll is %v, want 1ms to Terms.TTL, which is %v",
			o.Terms.Poll, o.Terms.TTL))
	}
	if o.Deadline == 0 {
		o.Deadline = defaultDeadline
	}
	if o.Deadline < 0 || o.Deadline > o.Terms.TTL {
		errs = append(errs, fmt.Errorf("Deadline is %v, want more than 0 and at most Terms.TTL, which is %v",
			o.Deadline, o.Terms.TTL))
	}
	if o.Gather < 0 || o.Gather > o.Deadline/2 {
		errs = append(errs, fmt.Errorf("Gather is %v, want 0 or more and at most half of Deadline, which is %v",
			o.Gather, o.Deadline))
	}
	if o.MaxAccounts == 0 {
		o.MaxAccounts = defaultAccounts
	}
	if o.MaxAccounts < accounts.Shards {
		errs = append(errs, fmt.Errorf("MaxAccounts is %d, want %d or more", o.MaxAccounts, accounts.Shards))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("lease options: %w", err)
	}
	for o.Replica == 0 {
		o.Replica = rand.Uint64()
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() int64 { return int64(time.Since(start)) }
	}
	if o.Vary == nil {
		o.Vary = rand.Int64N
	}
	// With room for fewer than are looked at, the last of them would be one that somebody is using.
	room := max(o.MaxAccounts, accounts.Looked*accounts.Shards)
	s := &Store{o: o, accounts: accounts.New[entry](room)}
	s.open()
	return s, nil
}

// OnAnswer has f hear of every question, about the bucket of a take, how it ended, before anybody
// does who waits for it: requests that wait together fail together, so their errors do not tell how
// often the authority fails. It is called on other goroutines and must be quick. OnAnswer comes
// before the first take.
func (s *Store) OnAnswer(f func(of *bucket.Take, err error)) { s.answered = f }

// Terms are those of the leases, complete.
func (s *Store) Terms() Terms { return s.o.Terms }

// TryConsume takes from all buckets or from none. The time is the Store's own. An error means that
// the authority failed or took longer than the deadline, or that a bucket cannot be leased; what
// was taken is back then.
func (s *Store) TryConsume(ctx context.Context, _ int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	return s.Hold(ctx, s.o.Deadline, takes, outs, nil)
}

// Hold is TryConsume of what may have to be returned, and waits no longer than the caller's
// patience. Into until, which is nil or as long as takes, it writes until when what each of them
// took may be; 0 if it took nothing.
func (s *Store) Hold(ctx context.Context, patience time.Duration, takes []bucket.Take, outs []bucket.Outcome,
	until []int64) (bool, error) {
	if err := check(takes, outs); err != nil {
		return false, err
	}
	var room [4]attempt
	tries := room[:0]
	if len(takes) > len(room) {
		tries = make([]attempt, 0, len(takes))
	}
	now := s.o.Now()
	waits := false
	for i := range takes {
		tries = append(tries, attempt{entry: s.entry(now, &takes[i])})
		s.first(now, &takes[i], &tries[i])
		waits = waits || tries[i].verdict == Ask
	}
	var err error
	if waits {
		err = s.wait(ctx, min(patience, s.o.Deadline), takes, tries)
		now = s.o.Now()
	}
	allowed := err == nil
	for i := range tries {
		allowed = allowed && (tries[i].verdict == Admit || takes[i].Shadow)
	}
	for i := range tries {
		s.finish(now, &takes[i], &tries[i], allowed, &outs[i])
		if until != nil {
			until[i] = 0
			if allowed && tries[i].verdict == Admit && takes[i].Cost > 0 {
				until[i] = tries[i].until
			}
		}
	}
	return allowed, err
}

// TryHeld is TryConsume of one take, 1 token or more, if what is held or known of its bucket
// decides it. It reports false, and has changed nothing, where the authority has to be asked, or
// the take is anything but usual.
func (s *Store) TryHeld(take *bucket.Take, out *bucket.Outcome) (allowed, decided bool) {
	e := s.find(take)
	if _, possible := take.Shape.Units(take.Cost); e == nil || !possible {
		return false, false
	}
	now := s.o.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shape != take.Shape || !e.account.Ready(now, take.Cost) {
		return false, false
	}
	e.lowered = take.Lowered
	allowed = e.account.Take(now, s.o.Terms, take.Cost) == Admit
	if e.account.Due(now, s.o.Terms) {
		s.post(take, e, calm)
	}
	*out = bucket.Outcome{Allowed: allowed}
	s.counts.lost(&e.account)
	e.report(now, take, out)
	return allowed, true
}

// Return takes back what Hold admitted, for a request that was denied elsewhere, and of which
// nothing was used: all of it, as far as it is still good.
func (s *Store) Return(takes []bucket.Take, until []int64) {
	now := s.o.Now()
	for i := range takes {
		take := &takes[i]
		if until[i] <= now {
			continue
		}
		e := s.entry(now, take)
		e.mu.Lock()
		if e.shape == take.Shape {
			e.account.Return(now, take.Cost, until[i])
			s.counts.returned.Add(uint64(take.Cost))
		}
		e.mu.Unlock()
	}
}

// attempt is a take on its way.
type attempt struct {
	entry   *entry
	verdict Verdict
	until   int64 // until when what was taken may be returned
	never   bool
	answer  *answer // while the verdict is Ask
}

func check(takes []bucket.Take, outs []bucket.Outcome) error {
	if len(outs) < len(takes) {
		return fmt.Errorf("outs has room for %d outcomes, want %d", len(outs), len(takes))
	}
	for i := range takes {
		if !takes[i].Shape.Algorithm.Drains() {
			return fmt.Errorf(
				"takes[%d] is of a limit that counts in windows, want one whose debt drains: windows cannot be "+
					"leased", i)
		}
	}
	return nil
}

// entry finds the account of a take, or opens one.
func (s *Store) entry(now int64, take *bucket.Take) *entry {
	made := func(nth uint32) *entry { return &entry{account: NewAccount(nth), shape: take.Shape} }
	return s.accounts.Open(take.Key, made, func(e *entry, last bool) bool { return s.forget(e, now, last) }, nil)
}

// forget says whether an account may go: one that is idle, or else the last. Whoever waits for an
// answer to an account that is forgotten gets it.
func (s *Store) forget(e *entry, now int64, last bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.account.Idle(now) && !last {
		return false
	}
	s.counts.expired.Add(uint64(add(e.account.Held(now), e.account.Lost())))
	return true
}

// first tries a take for the first time.
func (s *Store) first(now int64, take *bucket.Take, t *attempt) {
	units, ok := take.Shape.Units(take.Cost)
	if t.never = !ok; t.never || units == 0 {
		if ok {
			t.verdict = Admit
		}
		return
	}
	e := t.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shape != take.Shape {
		e.shape = take.Shape
		e.account.Drop() // of another limit: lost, which grants nothing
	}
	e.since, e.before, e.lowered = take.Since, take.Before, take.Lowered
	t.until = e.account.Until(now)
	t.verdict = e.account.Take(now, s.o.Terms, take.Cost)
	s.ask(now, take, e, t)
}

// ask sends what is to be asked, and joins those who wait. The entry is locked.
func (s *Store) ask(now int64, take *bucket.Take, e *entry, t *attempt) {
	if e.account.Due(now, s.o.Terms) {
		kind := calm
		if t.verdict == Ask {
			kind = urgent
		}
		s.post(take, e, kind)
	}
	if t.verdict == Ask {
		if e.waiting == nil {
			e.waiting = &answer{came: make(chan struct{})}
		}
		t.answer = e.waiting
	}
}

// errNoAnswer is what TryConsume reports when an answer takes too long.
var errNoAnswer = errors.New("lease: no answer within the deadline")

// wait waits for answers until every attempt has its verdict, or the patience is at its end.
func (s *Store) wait(ctx context.Context, patience time.Duration, takes []bucket.Take, tries []attempt) error {
	over := time.NewTimer(patience)
	defer over.Stop()
	for i := range tries {
		t := &tries[i]
		for t.verdict == Ask {
			select {
			case <-t.answer.came:
				if t.answer.err != nil {
					return t.answer.err
				}
			case <-ctx.Done():
				return ctx.Err()
			case <-over.C:
				return errNoAnswer
			}
			s.again(&takes[i], t)
		}
	}
	return nil
}

// again tries a take anew, after an answer.
func (s *Store) again(take *bucket.Take, t *attempt) {
	e := t.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	now := s.o.Now()
	if e.shape != take.Shape {
		t.verdict = Deny // by a change of the limit: the next request meets the new one
		return
	}
	t.until = e.account.Until(now)
	t.verdict = e.account.Retake(now, take.Cost)
	s.ask(now, take, e, t)
}

// finish returns what was taken, if not all were admitted, and says how the bucket stands.
func (s *Store) finish(now int64, take *bucket.Take, t *attempt, allowed bool, out *bucket.Outcome) {
	*out = bucket.Outcome{Allowed: t.verdict == Admit, Never: t.never}
	e := t.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shape != take.Shape {
		return
	}
	if !allowed && t.verdict == Admit && take.Cost > 0 {
		e.account.Return(now, take.Cost, t.until)
		s.counts.returned.Add(uint64(take.Cost))
	}
	s.counts.lost(&e.account)
	e.report(now, take, out)
}

// report writes what the account knows of its bucket. The entry is locked.
func (e *entry) report(now int64, take *bucket.Take, out *bucket.Outcome) {
	out.Remaining = min(e.account.Remaining(now), take.Shape.Burst())
	out.ResetAfter = e.account.ResetAfter(now)
	if !out.Allowed && !out.Never {
		out.RetryAfter = e.account.RetryAfter(now)
	}
}

// Peek answers what TryConsume would, out of what is held and what the authority says to a look.
func (s *Store) Peek(ctx context.Context, _ int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if err := check(takes, outs); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Deadline)
	defer cancel()
	allowed := true
	for i := range takes {
		take, out := &takes[i], &outs[i]
		got, err := s.o.Authority.Ask(ctx, s.o.Replica, *take, Question{Need: max(1, take.Cost)})
		if err != nil {
			return false, err
		}
		_, ok := take.Shape.Units(take.Cost)
		*out = bucket.Outcome{
			Never:      !ok,
			Remaining:  min(got.Left+s.held(take), take.Shape.Burst()),
			ResetAfter: got.Reset,
		}
		if out.Allowed = ok && take.Cost <= out.Remaining; !out.Allowed && ok {
			out.RetryAfter = got.Wait
		}
		allowed = allowed && (out.Allowed || take.Shadow)
	}
	return allowed, nil
}

// Known is how much is left of a take's bucket as far as this replica knows without asking, and
// when the bucket is full: where it knows nothing, the bucket is.
func (s *Store) Known(take *bucket.Take) (remaining int64, reset time.Duration) {
	e := s.find(take)
	if e == nil {
		return take.Shape.Burst(), 0
	}
	now := s.o.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shape != take.Shape {
		return take.Shape.Burst(), 0
	}
	reset, least := e.account.ResetAfter(now), int64(0)
	if reset < math.MaxInt64-time.Duration(now) { // else it may be longer, and says nothing of what has drained
		least = take.Shape.Burst() - (take.Shape.Drained(reset)+take.Shape.Unit-1)/take.Shape.Unit
	}
	return min(max(e.account.Remaining(now), least), take.Shape.Burst()), reset
}

// Recheck has the authority asked about the bucket of a take, whatever it said last: its debt was changed there.
func (s *Store) Recheck(take *bucket.Take) {
	if e := s.find(take); e != nil {
		e.mu.Lock()
		e.account.Recheck()
		e.mu.Unlock()
	}
}

// find is the account of a take, or nil.
func (s *Store) find(take *bucket.Take) *entry { return s.accounts.Find(take.Key, nil) }

// held is how many tokens are held of a take's bucket.
func (s *Store) held(take *bucket.Take) int64 {
	e := s.find(take)
	if e == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shape != take.Shape {
		return 0
	}
	return e.account.Held(s.o.Now())
}
