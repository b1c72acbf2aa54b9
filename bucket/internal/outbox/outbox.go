// Package outbox gathers what a replica has to tell the authority of shared buckets, and sends it
// by messages that hold many things each.
package outbox

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
)

// Together is how many things go by one message at most. The authority answers nobody else meanwhile:
// for about a millisecond.
const Together = 128

// AtOnce is how many messages may be under way at once, of those that are sent because there is too
// much for one. Were they sent one after the other, who waits for the last would wait for the
// network as often as there are messages, and its deadline began before all of them.
const AtOnce = 8

// Options says what becomes of things T about entries E. All fields are required.
type Options[E, T any] struct {
	// Due is what to tell about a bucket, which was posted with that take; false if there is nothing.
	// It is asked when the message is sent, so that all that happened by then is in it.
	Due func(e *E, take bucket.Take) (T, bool)

	// Send sends things, at most Together, within Deadline, and notes in each what became of it.
	Send             func(ctx context.Context, things []T)
	Deadline         time.Duration
	Together, AtOnce int

	// Of says by the number of which message a thing went, and what became of it; Ended hears of
	// every message how that ended, as Each says.
	Of    func(*T) (message int, err error)
	Ended func(first *T, err error)

	// Came hears what became of each thing, after Ended.
	Came func(e *E, t *T)
}

// Box holds the entries that there is something to tell about. It is safe for concurrent use.
type Box[E, T any] struct {
	Things   atomic.Uint64 // that were sent
	Messages atomic.Uint64 // that held them

	o       Options[E, T]
	mu      sync.Mutex
	queue   []posted[E] // guarded by mu
	leaving [2]bool     // guarded by mu; a departure is to come, by its kind
}

type posted[E any] struct {
	take  bucket.Take
	entry *E
}

// Open makes a Box ready.
func (b *Box[E, T]) Open(o Options[E, T]) { b.o = o }

// Post has the bucket of a take told about, with all that is posted until the next departure of a
// kind, 0 or 1. If there is none to come, one is in wait. Queued is whether the entry is in the Box:
// then it is not put there twice, so that there are never more than entries. Post sets it and Due
// has to reset it; the same lock guards it.
func (b *Box[E, T]) Post(take *bucket.Take, e *E, queued *bool, kind int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !*queued {
		*queued = true
		b.queue = append(b.queue, posted[E]{*take, e})
	}
	if b.leaving[kind] {
		return
	}
	b.leaving[kind] = true
	go func() {
		if wait > 0 {
			time.Sleep(wait)
		}
		b.Leave(context.Background(), kind)
	}()
}

// Leave sends all that is there, as a departure of a kind, and returns when everything is answered.
func (b *Box[E, T]) Leave(ctx context.Context, kind int) {
	entries, things := b.due(kind)
	var sending sync.WaitGroup
	places := make(chan struct{}, b.o.AtOnce)
	for len(things) > 0 {
		n := min(len(things), b.o.Together)
		about, group := entries[:n], things[:n]
		entries, things = entries[n:], things[n:]
		places <- struct{}{}
		sending.Go(func() {
			b.send(ctx, about, group)
			<-places
		})
	}
	sending.Wait()
}

// due is what to tell now, and about which entries.
func (b *Box[E, T]) due(kind int) ([]*E, []T) {
	b.mu.Lock()
	all := b.queue
	b.queue, b.leaving[kind] = nil, false
	b.mu.Unlock()
	entries, things := make([]*E, 0, len(all)), make([]T, 0, len(all))
	for i := range all {
		if t, ok := b.o.Due(all[i].entry, all[i].take); ok {
			entries, things = append(entries, all[i].entry), append(things, t)
		}
	}
	return entries, things
}

func (b *Box[E, T]) send(ctx context.Context, about []*E, group []T) {
	ctx, cancel := context.WithTimeout(ctx, b.o.Deadline)
	b.o.Send(ctx, group)
	cancel()
	b.Things.Add(uint64(len(group)))
	b.Messages.Add(uint64(Each(group, b.o.Of, b.o.Ended)))
	for i := range group {
		b.o.Came(about[i], &group[i])
	}
}
