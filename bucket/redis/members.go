package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// MembersOptions configures Members. Every zero value is a safe default.
type MembersOptions struct {
	// Replica is what this process is called. Two with one name are counted as one, and take too
	// much between them. Default a random one.
	Replica uint64

	// TTL is after what time without a word a replica is taken to be gone. Longer leaves its share
	// unused for longer after a crash; shorter gives it away while it may still be using it, when
	// it is only slow. It says a word three times as often. Default 3 s.
	TTL time.Duration

	// Naming tells how this replica names buckets: those that share them have the same. It must not
	// tell the secret that names are made under; a name of a bucket that is nobody's does. Who has
	// another one counts as a replica all the same, and as a stranger.
	Naming uint64

	// Presumed is how many replicas there are taken to be as long as the server never answered. Too
	// few admit too much meanwhile. Default 1.
	Presumed int

	// Now tells the time, in Unix nanoseconds, to a Store with Options.CallersClock. Others ask the
	// server, and need none.
	Now func() int64
}

const beatsPerTTL = 3

// Members tells how many replicas share the buckets of a Store: those that said a word within TTL,
// by the server's clock. It is safe for concurrent use.
//
// A limit that each replica may spend a part of is divided by Replicas. The parts never add up to
// more than the whole: whoever joins has none until all others have heard of it, and whoever leaves
// says so, or is not heard of for TTL, before others take more. The exceptions are a replica that
// cannot reach the server for longer than TTL while others can, which goes on with the part it had;
// if the server is away for all, all do. And one that is the first to say a word to a server that
// forgot all: that takes itself for the only one until its next word.
type Members struct {
	speaker
	o   MembersOptions
	key string

	beating sync.Mutex // one word at a time

	using atomic.Int64 // what Replicas reports; written by who beats

	mu   sync.Mutex
	last census // guarded by mu; zero before the first
}

// census is what the server says to a word.
type census struct {
	count     int // of replicas
	told      int // by how many to divide
	strangers int
}

// NewMembers makes Members, or says everything that is wrong with o. Nobody knows of this replica before Beat or Run.
func NewMembers(s *Store, o MembersOptions) (*Members, error) {
	self, errSpeaker := newSpeaker(s, o.Replica, o.TTL, o.Now)
	if o.Presumed == 0 {
		o.Presumed = 1
	}
	var errPresumed error
	if o.Presumed < 1 || o.Presumed > maxPresumed {
		errPresumed = fmt.Errorf("Presumed is %d, want 1 to %d", o.Presumed, maxPresumed)
	}
	if err := errors.Join(errSpeaker, errPresumed); err != nil {
		return nil, fmt.Errorf("redis members: %w", err)
	}
	return &Members{speaker: self, o: o, key: s.prefix + "{members}"}, nil
}

const maxPresumed = 1 << 16

// Replicas is by how many to divide a limit: how many replicas there are, or more while others have
// not made room yet. 0 is for a replica that has just joined, and has no part yet. When the server
// does not answer, it stays what it was.
func (m *Members) Replicas() int { return int(m.using.Load()) }

// Count is how many replicas there are, this one included, as last heard; 0 if the server never answered.
func (m *Members) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last.count
}

// Strangers is how many of them name buckets in another way: they share nothing with this one, which nobody wants.
func (m *Members) Strangers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last.strangers
}

// Beat says a word, and hears who else is there.
func (m *Members) Beat(ctx context.Context) error {
	m.beating.Lock()
	defer m.beating.Unlock()
	heard, err := m.say(ctx, false)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.last = heard
		m.using.Store(int64(heard.told))
	case m.using.Load() == 0: // nobody can tell when there would be room
		m.using.Store(int64(max(m.last.count, m.o.Presumed)))
	}
	return err
}

// Leave says that this replica is going, so that others may take its part at once.
func (m *Members) Leave(ctx context.Context) error {
	m.beating.Lock()
	defer m.beating.Unlock()
	_, err := m.say(ctx, true)
	return err
}

func (m *Members) say(ctx context.Context, leaves bool) (census, error) {
	arg := binary.BigEndian.AppendUint64(m.says(int64(m.Replicas()), yes(leaves)), m.o.Naming)
	answer, err := m.store.run(ctx, membersScript, []string{m.key}, []string{string(arg)})
	if err != nil {
		return census{}, err
	}
	if len(answer) != 4 {
		return census{}, unreadable(answer)
	}
	var numbers [3]int
	for i := range numbers {
		n, ok := number(answer[i+1])
		if !ok {
			return census{}, unreadable(answer)
		}
		numbers[i] = int(n)
	}
	return census{numbers[0], numbers[1], numbers[2]}, nil
}

// Run says a word again and again until ctx ends, and then that this replica leaves. Beaten hears
// of every word whether it was heard; it may be nil.
func (m *Members) Run(ctx context.Context, beaten func(error)) {
	every := m.ttl / beatsPerTTL
	beat := time.NewTicker(every)
	defer beat.Stop()
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, every)
		err := m.Beat(within)
		cancel()
		if beaten != nil && ctx.Err() == nil {
			beaten(err)
		}
		select {
		case <-ctx.Done():
		case <-beat.C:
		}
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), every)
	defer cancel()
	_ = m.Leave(within) // else it is gone after TTL
}
