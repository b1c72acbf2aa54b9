package gossip

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/internal/accounts"
	"github.com/headgate-io/headgate/key"
)

// Transport carries messages to other replicas. Messages may be lost, repeated and late; who could
// write one may take from every bucket, so they must be authenticated.
type Transport interface {
	// Send sends a message to a replica, as well as it can, without waiting. It keeps nothing of message.
	Send(to uint64, message []byte)
}

// Options configures a Store. Transport is required; every other zero value is a safe default.
type Options struct {
	Transport Transport

	// Self is what this process is called. One that restarts is another. Default a random name.
	Self uint64

	// Interval is how often Tick is called: each time it tells every other replica what changed.
	// Shorter means more messages, and less that all admit together. 10ms to 10s; default 50 ms.
	Interval time.Duration

	// After is how long nothing is heard of a replica until it is presumed to admit its part.
	// Default 4 times Interval.
	After time.Duration

	// Most is how many percent of a limit one other replica may claim to have admitted. With less
	// than 100, one that lies takes no more than that away; and a replica that does get more of the
	// requests than that is believed too little, so that more is admitted than the limit says.
	// 1 to 100; default 100.
	Most int

	// MessageBytes is how long a message may be, so that it goes into one packet. 256 to 65,507;
	// default 1200.
	MessageBytes int

	// Messages is how many messages go to each replica in an Interval, at most. What has most to
	// tell goes first; a bucket whose turn does not come for After keeps to this replica's part of
	// its limit. Default 4: with the other defaults 96 kB a second, and 1,120 hot buckets a second.
	Messages int

	// MaxAccounts is how many buckets are remembered, at about 300 bytes each and 80 for each other
	// replica that uses it. Takes of others are denied. Default 1<<16.
	MaxAccounts int

	// Now is the clock, in nanoseconds. It must not step. Default the monotonic one.
	Now func() int64
}

// MaxReplicas is how many members there may be: messages grow with their square.
const MaxReplicas = 64

// Store decides by what this replica and, as far as is known, all others admitted. It is safe for
// concurrent use. It has no goroutine: whoever has it calls Tick, and Receive for each message.
type Store struct {
	o        Options
	accounts *accounts.Table[entry]
	silence  atomic.Pointer[Silence]

	peers struct {
		sync.Mutex
		all    map[uint64]*peer // guarded; the other members
		number uint64           // guarded; of messages that were sent
	}

	// joined is since when this replica waits for a copy of what others know; 0 if it does not.
	joined atomic.Int64

	told struct {
		sync.Mutex
		queue []*entry // guarded; what is to be told
	}

	counts counts
}

// peer is another member.
type peer struct {
	heard   int64  // when it was last
	resumed int64  // since when it is, without a pause
	number  uint64 // of its latest message
	unheard bool   // it says that it does not hear this replica
}

// entry is the account of one bucket.
type entry struct {
	mu      sync.Mutex
	account Account // guarded by mu
	key     key.Key
	known   bool // guarded by mu; a request of this replica's named its limit
	queued  bool // guarded by mu
}

// New returns a Store without any other member, or an error that names every field at fault.
func New(o Options) (*Store, error) {
	var errs []error
	if o.Transport == nil {
		errs = append(errs, errors.New("Transport is nil, want one"))
	}
	if o.Interval == 0 {
		o.Interval = 50 * time.Millisecond
	}
	if o.Interval < 10*time.Millisecond || o.Interval > 10*time.Second {
		errs = append(errs, fmt.Errorf("Interval is %v, want 10ms to 10s", o.Interval))
	}
	if o.After == 0 {
		o.After = 4 * o.Interval
	}
	if o.After < 2*o.Interval || o.After > time.Minute {
		errs = append(errs, fmt.Errorf("After is %v, want twice Interval, which is %v, to 1m", o.After, o.Interval))
	}
	if o.Most == 0 {
		o.Most = 100
	}
	if o.Most < 1 || o.Most > 100 {
		errs = append(errs, fmt.Errorf("Most is %d, want 1 to 100", o.Most))
	}
	if o.MessageBytes == 0 {
		o.MessageBytes = 1200
	}
	if o.MessageBytes < 256 || o.MessageBytes > 65507 {
		errs = append(errs, fmt.Errorf("MessageBytes is %d, want 256 to 65507", o.MessageBytes))
	}
	if o.Messages == 0 {
		o.Messages = 4
	}
	if o.Messages < 1 || o.Messages > 1000 {
		errs = append(errs, fmt.Errorf("Messages is %d, want 1 to 1000", o.Messages))
	}
	if o.MaxAccounts == 0 {
		o.MaxAccounts = 1 << 16
	}
	if o.MaxAccounts < accounts.Shards {
		errs = append(errs, fmt.Errorf("MaxAccounts is %d, want %d or more", o.MaxAccounts, accounts.Shards))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("gossip options: %w", err)
	}
	for o.Self == 0 {
		o.Self = rand.Uint64()
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() int64 { return int64(time.Since(start)) + 1 }
	}
	s := &Store{o: o, accounts: accounts.New[entry](o.MaxAccounts)}
	s.peers.all = map[uint64]*peer{}
	s.silence.Store(&Silence{Replicas: 1, After: o.After})
	return s, nil
}

// Self is what this process is called.
func (s *Store) Self() uint64 { return s.o.Self }

// Replicas is how many members there are, this one among them.
func (s *Store) Replicas() int { return s.silence.Load().Replicas }

// Interval is how often Tick is to be called.
func (s *Store) Interval() time.Duration { return s.o.Interval }

// Heard is within which time of an admission every other replica is told of it, or takes this one
// for silent.
func (s *Store) Heard() time.Duration { return s.o.After + s.o.Interval }

// Now is the Store's clock.
func (s *Store) Now() int64 { return s.o.Now() }

// SetMembers says which other replicas there are: those that are heard of, and those that are not
// and may run all the same. Who is left out is neither believed nor presumed to admit anything. An
// error says that there are too many; then nothing changes.
func (s *Store) SetMembers(others []uint64) error {
	if len(others) >= MaxReplicas {
		return fmt.Errorf("there are %d replicas, want %d at most", len(others)+1, MaxReplicas)
	}
	now := s.o.Now()
	s.peers.Lock()
	all := make(map[uint64]*peer, len(others))
	gone := false
	for _, name := range others {
		if p := s.peers.all[name]; p != nil {
			all[name] = p
		} else if name != s.o.Self {
			all[name] = &peer{heard: now, resumed: now}
		}
	}
	for name := range s.peers.all {
		gone = gone || all[name] == nil
	}
	s.peers.all = all
	s.see(now)
	s.peers.Unlock()
	if gone {
		s.accounts.Each(func(e *entry) {
			e.mu.Lock()
			e.account.Keep(func(name uint64) bool { return all[name] != nil })
			e.mu.Unlock()
		})
	}
	return nil
}

// Join says that this replica joins others that may have admitted something before: its buckets
// begin empty, until Copy brings what one of them knows.
func (s *Store) Join() { s.joined.Store(max(1, s.o.Now())) }

// First says that nobody is there whom this replica could join: its buckets are full.
func (s *Store) First() { s.joined.Store(0) }

// see restates what is heard of others. The peers are locked.
func (s *Store) see(now int64) {
	v := &Silence{Replicas: len(s.peers.all) + 1, After: s.o.After}
	for name, p := range s.peers.all {
		switch {
		case now-p.heard > int64(s.o.After):
			v.Silent = append(v.Silent, Silent{Name: name, Since: p.heard})
		case p.unheard:
			v.Unheard = true
		}
	}
	s.silence.Store(v)
}

// Take takes from the bucket of a take at now, on the Store's clock, and writes to o how that
// stands as far as is known. It reports whether there was room.
func (s *Store) Take(now int64, take *bucket.Take, o *bucket.Outcome) bool {
	e := s.entry(now, take)
	if e == nil {
		s.counts.crowded.Add(1)
		*o = bucket.Outcome{RetryAfter: s.o.Interval}
		return false
	}
	v := s.silence.Load()
	e.meet(now, v, take)
	ok := e.account.Take(now, v, take.Cost)
	e.account.Describe(o, now, take.Cost, ok)
	if ok && take.Cost > 0 && !e.queued {
		s.queue(e)
	}
	e.mu.Unlock()
	if ok {
		s.counts.admitted.Add(uint64(max(0, take.Cost)))
	} else {
		s.counts.denied.Add(1)
	}
	return ok
}

// Look is Take that changes nothing.
func (s *Store) Look(now int64, take *bucket.Take, o *bucket.Outcome) bool {
	e := s.accounts.Find(take.Key, lock)
	if e == nil {
		fresh := Open(0, take.Shape, now)
		s.begin(&fresh)
		return look(&fresh, now, s.silence.Load(), take, o)
	}
	defer e.mu.Unlock()
	e.meet(now, s.silence.Load(), take)
	return look(&e.account, now, s.silence.Load(), take, o)
}

// look takes from a copy.
func look(a *Account, now int64, v *Silence, take *bucket.Take, o *bucket.Outcome) bool {
	tried := *a
	tried.others = slices.Clone(a.others)
	ok := tried.Take(now, v, take.Cost)
	tried.Describe(o, now, take.Cost, ok)
	return ok
}

// Return takes back what Take admitted at a time, for a request that was denied elsewhere. It
// reports false if others were told of it: then it stays taken.
func (s *Store) Return(take *bucket.Take, taken int64) bool {
	e := s.accounts.Find(take.Key, lock)
	if e == nil {
		return false
	}
	defer e.mu.Unlock()
	ok := e.account.Shape() == take.Shape && e.account.Return(s.o.Now(), take.Cost, taken)
	if ok {
		s.counts.returned.Add(uint64(take.Cost))
	}
	return ok
}

// Correct changes the debt of a bucket, and reports by how many units. Others hear of it. Of what is
// given back comes back there what this replica admitted and has not drained; the rest here alone.
func (s *Store) Correct(now int64, c *bucket.Change) (moved int64) {
	e := s.entry(now, &bucket.Take{Key: c.Key, Shape: c.Shape})
	if e == nil {
		return 0
	}
	defer e.mu.Unlock()
	v := s.silence.Load()
	e.meet(now, v, &bucket.Take{Shape: c.Shape})
	moved = e.account.Correct(now, v, c)
	if moved != 0 {
		s.queue(e)
	}
	return moved
}

// entry finds the account of a take, or opens one, and locks it. It is nil if there is no room.
func (s *Store) entry(now int64, take *bucket.Take) *entry {
	if e := s.accounts.Find(take.Key, lock); e != nil {
		return e // mostly: what opens one need not be made (BenchmarkGossipBesideLocal)
	}
	made := func(nth uint32) *entry {
		e := &entry{account: Open(nth, take.Shape, now), key: take.Key}
		s.begin(&e.account)
		return e
	}
	return s.accounts.Open(take.Key, made, func(e *entry, _ bool) bool { return e.forget(now) }, lock)
}

// begin empties the bucket of one that joins others and does not know yet what they know.
func (s *Store) begin(a *Account) {
	if since := s.joined.Load(); since != 0 {
		a.Spend(since)
	}
}

func lock(e *entry) { e.mu.Lock() }

// forget says whether an account may go.
func (e *entry) forget(now int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.queued && e.account.Idle(now)
}

// meet has an account count as a take does. The entry is locked.
func (e *entry) meet(now int64, v *Silence, take *bucket.Take) {
	if e.account.shape != take.Shape { // without a copy: a take of 160 ns is 25 shorter (BenchmarkTake)
		e.account.Change(now, v.Replicas, &take.Shape)
	}
	e.known = true
}

// queue has an account told of. The entry is locked.
func (s *Store) queue(e *entry) {
	if e.queued {
		return
	}
	e.queued = true
	s.told.Lock()
	s.told.queue = append(s.told.queue, e)
	s.told.Unlock()
}
