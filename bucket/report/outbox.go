package report

import (
	"context"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/internal/outbox"
)

// What waits for an Interval, and what does not, as half of its headroom is used up. Only the
// latter leave together, or one hot bucket would have all others reported as often as itself.
const (
	calm = iota
	urgent
	kinds
)

// open makes the outboxes ready, one of each kind.
func (s *Store) open() {
	for kind := range s.outboxes {
		s.outboxes[kind].Open(outbox.Options[entry, Told]{
			Due:      func(e *entry, take bucket.Take) (Told, bool) { return e.due(kind, take) },
			Send:     func(ctx context.Context, told []Told) { s.o.Authority.ReportAll(ctx, s.o.Replica, told) },
			Came:     s.came,
			Deadline: s.o.Deadline, Together: outbox.Together, AtOnce: 1, // nobody waits
			Of: func(t *Told) (int, error) { return t.Message, t.Err },
			Ended: func(first *Told, err error) {
				if s.answered != nil {
					s.answered(&first.Of, err)
				}
			},
		})
	}
}

// post has an account reported, if there is anything to tell. The entry is locked.
func (s *Store) post(take *bucket.Take, e *entry) {
	if !e.account.Due() {
		return
	}
	if e.account.Urgent(e.headroom) {
		s.postAs(urgent, take, e)
		return
	}
	s.postAs(calm, take, e)
}

func (s *Store) postAs(kind int, take *bucket.Take, e *entry) {
	if e.queued[kind] || e.gone {
		return
	}
	wait := s.o.Interval
	if kind == urgent {
		wait = s.o.Gather
	}
	s.outboxes[kind].Post(take, e, &e.queued[kind], 0, wait)
}

// due is what to tell now. It is of the limit as it is now, and says what was before: the authority
// finds the bucket as an earlier limit left it.
func (e *entry) due(kind int, take bucket.Take) (Told, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queued[kind] = false
	take.Shape, take.Since, take.Before, take.Lowered = e.shape, e.since, e.before, e.lowered
	r, ok := e.account.Report()
	return Told{Of: take, Report: r}, ok
}

// Flush reports at once whatever waits for its Interval, until all is answered or ctx is done: for
// a process that is about to end, after the last take. What has no answer then may not be charged,
// at most a headroom a bucket.
func (s *Store) Flush(ctx context.Context) {
	for {
		s.outboxes[urgent].Leave(ctx, 0)
		s.outboxes[calm].Leave(ctx, 0)
		if s.Status().Pending == 0 {
			return
		}
		select { // reports are under way, behind which there is more to tell; or they were lost
		case <-ctx.Done():
			return
		case <-time.After(min(s.o.Deadline, defaultDeadline)):
		}
	}
}

// came notes what came of a report. What has none is told again after an Interval.
func (s *Store) came(e *entry, told *Told) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if told.Err != nil {
		s.counts.failed.Add(1)
		e.account.Failed(told.Report.Seq)
		s.postAs(calm, &told.Of, e)
		return
	}
	if told.Of.Shape != e.shape { // the limit changed meanwhile
		told.Answer.Debt = min(bucket.Rescale(told.Answer.Debt, e.shape.Unit, told.Of.Shape.Unit, true),
			e.shape.MaxDebt())
	}
	if e.account.Answer(s.o.Now(), &e.shape, told.Answer) {
		s.counts.charged.Add(uint64(told.Report.Tokens))
	}
	s.post(&told.Of, e)
}
