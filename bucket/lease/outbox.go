package lease

import (
	"context"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/internal/outbox"
)

// Questions that nobody waits for leave later than those that somebody does, and with whichever
// leave first.
const (
	calm = iota
	urgent
)

// calmer is how many times longer a question waits for others if nobody waits for its answer. It asks
// for half of what is used in a TTL or less, long before that is needed.
const calmer = 4

// open makes the outbox ready.
func (s *Store) open() {
	o := outbox.Options[entry, Asked]{
		Due: s.due, Send: s.askEach, Came: s.came,
		Deadline: s.o.Deadline, Together: 1, AtOnce: outbox.AtOnce,
		Of: func(a *Asked) (int, error) { return a.Message, a.Err },
		Ended: func(first *Asked, err error) {
			if s.answered != nil {
				s.answered(&first.Of, err)
			}
		},
	}
	if batcher, many := s.o.Authority.(Batcher); many {
		o.Together = outbox.Together
		o.Send = func(ctx context.Context, asked []Asked) { batcher.AskAll(ctx, s.o.Replica, asked) }
	} else {
		s.o.Gather = 0
	}
	s.outbox.Open(o)
}

func (s *Store) askEach(ctx context.Context, asked []Asked) {
	for i := range asked {
		asked[i].Answer, asked[i].Err = s.o.Authority.Ask(ctx, s.o.Replica, asked[i].Of, asked[i].Question)
	}
}

// post has something asked. The entry is locked.
func (s *Store) post(take *bucket.Take, e *entry, kind int) {
	wait := s.o.Gather
	if kind == calm {
		wait *= calmer
	}
	s.outbox.Post(take, e, &e.queued, kind, wait)
}

// due is what to ask now: the same for all who came to wait by then.
func (s *Store) due(e *entry, take bucket.Take) (Asked, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queued = false
	// What is asked is of the limit as it is now, which may be another one than when the question was posted.
	take.Shape, take.Since, take.Before, take.Lowered = e.shape, e.since, e.before, e.lowered
	q, ok := e.account.Question(s.o.Now(), s.o.Terms)
	return Asked{Of: take, Question: q}, ok
}

// came notes what came of a question, and wakes all who wait.
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
