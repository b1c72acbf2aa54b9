package lease

import (
	"context"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/messages"
)

// outbox is the buckets that questions are about to be sent about, each once: so there are never more than accounts.
type outbox struct {
	mu      sync.Mutex
	queue   []outgoing // guarded by mu
	leaving [2]bool    // guarded by mu; questions that nobody waits for, and those that somebody does, are about to be sent
}

// outgoing is a bucket to ask about. What to ask is seen when it is sent: the same for all who came to wait by then.
type outgoing struct {
	take  bucket.Take
	entry *entry
	q     Question
}

// mostTogether is how many questions go by one message. The server answers nobody else meanwhile:
// for about a millisecond.
const mostTogether = 128

// calm is how many times longer a question waits for others if nobody waits for its answer. It asks
// for half of what is used in a TTL or less, long before that is needed.
const calm = 4

// post has something asked. The entry is locked.
func (s *Store) post(take *bucket.Take, e *entry, urgent bool) {
	batcher, many := s.o.Authority.(Batcher)
	if !many {
		if q, ok := e.account.Question(s.o.Now(), s.o.Terms); ok {
			go s.send([]outgoing{{*take, e, q}}, s.askOne)
		}
		return
	}
	wait, kind := calm*s.o.Gather, 0
	if urgent {
		wait, kind = s.o.Gather, 1
	}
	box := &s.outbox
	box.mu.Lock()
	defer box.mu.Unlock()
	if !e.queued {
		e.queued = true
		box.queue = append(box.queue, outgoing{take: *take, entry: e})
	}
	if box.leaving[kind] {
		return
	}
	box.leaving[kind] = true
	go func() {
		if wait > 0 {
			time.Sleep(wait)
		}
		s.sendAll(s.gathered(kind), func(ctx context.Context, asked []Asked) { batcher.AskAll(ctx, s.o.Replica, asked) })
	}()
}

// mostAtOnce is how many messages are under way at once, of those that are sent because there are
// too many questions for one. Were they sent one after the other, who waits for the last would wait
// for the network as often as there are messages, and its deadline began before all of them.
const mostAtOnce = 8

// sendAll sends questions in as many messages as it takes.
func (s *Store) sendAll(all []outgoing, ask func(context.Context, []Asked)) {
	var sending sync.WaitGroup
	places := make(chan struct{}, mostAtOnce)
	for len(all) > 0 {
		group := all[:min(len(all), mostTogether)]
		all = all[len(group):]
		places <- struct{}{}
		sending.Go(func() {
			s.send(group, ask)
			<-places
		})
	}
	sending.Wait()
}

// gathered is what to ask now.
func (s *Store) gathered(kind int) []outgoing {
	box := &s.outbox
	box.mu.Lock()
	all := box.queue
	box.queue, box.leaving[kind] = nil, false
	box.mu.Unlock()
	due := all[:0]
	for _, o := range all {
		o.entry.mu.Lock()
		o.entry.queued = false
		// What is asked is of the limit as it is now, which may be another one than when the question was posted.
		o.take.Shape, o.take.Since, o.take.Before = o.entry.shape, o.entry.since, o.entry.before
		var ok bool
		if o.q, ok = o.entry.account.Question(s.o.Now(), s.o.Terms); ok {
			due = append(due, o)
		}
		o.entry.mu.Unlock()
	}
	return due
}

func (s *Store) askOne(ctx context.Context, asked []Asked) {
	asked[0].Answer, asked[0].Err = s.o.Authority.Ask(ctx, s.o.Replica, asked[0].Of, asked[0].Question)
}

// send asks the authority, and wakes all who wait.
func (s *Store) send(out []outgoing, ask func(context.Context, []Asked)) {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Deadline)
	asked := make([]Asked, len(out))
	for i := range out {
		asked[i].Of, asked[i].Question = out[i].take, out[i].q
	}
	ask(ctx, asked)
	cancel()
	s.counts.questions.Add(uint64(len(asked)))
	s.tell(asked)
	for i := range out {
		s.came(out[i].entry, &asked[i])
	}
}

// tell counts messages, and tells of each how it ended.
func (s *Store) tell(asked []Asked) {
	n := messages.Each(asked, func(a *Asked) (int, error) { return a.Message, a.Err }, func(first *Asked, err error) {
		if s.answered != nil {
			s.answered(&first.Of, err)
		}
	})
	s.counts.messages.Add(uint64(n))
}

// came notes what came of a question.
func (s *Store) came(e *entry, a *Asked) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.Err != nil {
		s.counts.failed.Add(1)
		e.account.Failed(a.Question.Seq)
	} else {
		s.counts.granted.Add(uint64(a.Answer.Tokens))
		if a.Answer.Tokens < a.Question.Want {
			s.counts.short.Add(1)
		}
		e.account.Answer(s.o.Now(), s.o.Terms, a.Answer, time.Duration(s.o.Vary(int64(s.o.Terms.Poll))))
	}
	s.counts.lost(&e.account)
	if e.waiting != nil {
		e.waiting.err = a.Err
		close(e.waiting.came)
		e.waiting = nil
	}
}
