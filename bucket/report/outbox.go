package report

import (
	"context"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/messages"
)

// outbox is the buckets that are about to be reported about, once by each kind: so there are never
// more than twice as many as accounts.
type outbox struct {
	mu      sync.Mutex
	queues  [2][]outgoing // guarded by mu; by kind
	leaving [2]bool       // guarded by mu; a departure of the kind is under way
}

// What waits for an Interval, and what does not, as half of its headroom is used up. Only the
// latter leave together, or one hot bucket would have all others reported as often as itself.
const (
	calm = iota
	urgent
)

// outgoing is a bucket to report about. What to tell is seen when it is sent.
type outgoing struct {
	take   bucket.Take
	entry  *entry
	report Report
}

// mostTogether is how many reports go by one message. The server answers nobody else meanwhile: for
// about a millisecond.
const mostTogether = 128

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
	e.queued[kind] = true
	box := &s.outbox
	box.mu.Lock()
	defer box.mu.Unlock()
	box.queues[kind] = append(box.queues[kind], outgoing{take: *take, entry: e})
	if box.leaving[kind] {
		return
	}
	box.leaving[kind] = true
	go s.leave(kind)
}

// leave sends all that is there when it is time.
func (s *Store) leave(kind int) {
	wait := s.o.Interval
	if kind == urgent {
		wait = s.o.Gather
	}
	if wait > 0 {
		time.Sleep(wait)
	}
	s.sendAll(context.Background(), kind)
}

// sendAll sends what waits of a kind.
func (s *Store) sendAll(ctx context.Context, kind int) {
	for all := s.gathered(kind); len(all) > 0; {
		n := min(len(all), mostTogether)
		s.send(ctx, all[:n])
		all = all[n:]
	}
}

// Flush reports at once whatever waits for its Interval, until all is answered or ctx is done: for
// a process that is about to end, after the last take. What has no answer then may not be charged,
// at most a headroom a bucket.
func (s *Store) Flush(ctx context.Context) {
	for {
		s.sendAll(ctx, urgent)
		s.sendAll(ctx, calm)
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

// gathered is what to report now.
func (s *Store) gathered(kind int) []outgoing {
	box := &s.outbox
	box.mu.Lock()
	all := box.queues[kind]
	box.queues[kind], box.leaving[kind] = nil, false
	box.mu.Unlock()
	due := all[:0]
	for _, o := range all {
		o.entry.mu.Lock()
		o.entry.queued[kind] = false
		// What is told is of the limit as it is now, and says what was before: the authority finds
		// the bucket as an earlier limit left it.
		o.take.Shape, o.take.Since, o.take.Before = o.entry.shape, o.entry.since, o.entry.before
		var ok bool
		if o.report, ok = o.entry.account.Report(); ok {
			due = append(due, o)
		}
		o.entry.mu.Unlock()
	}
	return due
}

// send tells the authority, and notes what it says.
func (s *Store) send(ctx context.Context, out []outgoing) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Deadline)
	told := make([]Told, len(out))
	for i := range out {
		told[i].Of, told[i].Report = out[i].take, out[i].report
	}
	s.o.Authority.ReportAll(ctx, s.o.Replica, told)
	cancel()
	s.counts.reports.Add(uint64(len(told)))
	s.tell(told)
	for i := range out {
		s.came(out[i].entry, &told[i])
	}
}

// tell counts messages, and tells of each how it ended.
func (s *Store) tell(told []Told) {
	n := messages.Each(told, func(t *Told) (int, error) { return t.Message, t.Err }, func(first *Told, err error) {
		if s.answered != nil {
			s.answered(&first.Of, err)
		}
	})
	s.counts.messages.Add(uint64(n))
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
		told.Answer.Debt = min(bucket.Rescale(told.Answer.Debt, e.shape.Unit, told.Of.Shape.Unit, true), e.shape.MaxDebt())
	}
	if e.account.Answer(s.o.Now(), &e.shape, told.Answer) {
		s.counts.charged.Add(uint64(told.Report.Tokens))
	}
	s.post(&told.Of, e)
}
