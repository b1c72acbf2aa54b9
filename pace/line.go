package pace

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// line is the queue of one quota.
type line struct {
	quota string
	of    *Transport

	mu         sync.Mutex
	pacer      Pacer       // guarded by mu, as all below
	waiting    queue       //
	arrivals   uint64      // how many requests came, to order them
	users      int         // calls of RoundTrip under way
	unanswered int         // attempts on the network
	sleeping   func() bool // ends the wait until the next attempt may be sent, nil if there is none
	attempts   uint64
	refused    uint64
	accepted   uint64
	waited     time.Duration // of all attempts, in the queue
	reserves   time.Duration // when the server last said that it reserves, below 0: it did not
	share      *share        // nil without telemetry
}

func newLine(t *Transport, quota string) *line {
	l := &line{quota: quota, of: t, reserves: -1}
	l.pacer = t.options.Algorithm.Start(t.now(), t.options.Random)
	l.share = newShare(l)
	return l
}

// waiter is a request in the queue.
type waiter struct {
	priority int
	arrival  uint64 // 0 before its first wait
	latest   time.Duration
	turn     chan error // nil: send now
	at       int        // index in the queue, -1 outside
}

func (l *line) enter() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	l.queued()
}

func (l *line) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users--
	l.queued()
}

// idle reports whether nobody uses the line, and whether it is paused.
func (l *line) idle() (unused, paused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.of.now()
	return l.users == 0, l.pacer.Next(now) > now
}

func (l *line) state() QuotaState {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.of.now()
	return QuotaState{
		Quota: l.quota, Waiting: len(l.waiting), Unanswered: l.unanswered,
		Attempts: l.attempts, Refused: l.refused, Waited: l.waited, Pause: max(0, l.pacer.Next(now)-now),
		Rate: l.pacer.Rate(), Mode: l.pacer.Mode(now),
	}
}

// wait returns nil when it is w's turn. A request that waits again, after a refusal,
// has the place that it had.
func (l *line) wait(ctx context.Context, w *waiter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	now := l.of.now()
	if w.arrival == 0 {
		if len(l.waiting) >= l.of.options.MaxQueue {
			defer l.mu.Unlock()
			return l.throttled(QueueFull, l.pacer.Next(now), now)
		}
		l.arrivals++
		w.arrival = l.arrivals
	}
	heap.Push(&l.waiting, w)
	l.dispatch(now)
	l.mu.Unlock()

	tooLate := make(chan struct{})
	defer l.of.options.Clock.AfterFunc(w.latest-now, func() { close(tooLate) })()
	select {
	case err := <-w.turn:
		return err
	case <-ctx.Done():
		return l.abandon(w, ctx.Err())
	case <-tooLate:
		return l.abandon(w, nil)
	}
}

// abandon takes w out of the queue, or gives its turn back. Its error is err, or
// Throttled if that is nil.
func (l *line) abandon(w *waiter, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.of.now()
	if err == nil {
		err = l.throttled(TooLate, l.pacer.Next(now), now)
	}
	if w.at >= 0 {
		heap.Remove(&l.waiting, w.at)
		return err
	}
	if turn := <-w.turn; turn != nil {
		return err
	}
	l.unanswered--
	l.dispatch(now)
	return err
}

func (l *line) throttled(reason Reason, at, now time.Duration) error {
	return &Throttled{Quota: l.quota, RetryAfter: max(0, at-now), Reason: reason}
}

// dispatch gives turns to those at the head of the queue, as many as may go now. The
// caller holds mu.
func (l *line) dispatch(now time.Duration) {
	for len(l.waiting) > 0 {
		if at := l.pacer.Next(now); at > now {
			l.refuseLate(at, now)
			if len(l.waiting) > 0 {
				l.wake(at - now)
			}
			return
		}
		if most := l.pacer.Concurrent(); most > 0 && l.unanswered >= most {
			return // the next answer dispatches
		}
		w := heap.Pop(&l.waiting).(*waiter)
		l.pacer.Sent(now)
		l.unanswered++
		w.turn <- nil
	}
}

// refuseLate ends the wait of all who would be sent too late, now that it is known.
func (l *line) refuseLate(at, now time.Duration) {
	var late []*waiter
	for _, w := range l.waiting {
		if w.latest < at {
			late = append(late, w)
		}
	}
	for _, w := range late {
		heap.Remove(&l.waiting, w.at)
		w.turn <- l.throttled(TooLate, at, now)
	}
}

// wake dispatches after a time. What it was set to before no longer holds; to dispatch once more
// does no harm.
func (l *line) wake(after time.Duration) {
	if l.sleeping != nil {
		l.sleeping()
	}
	l.sleeping = l.of.options.Clock.AfterFunc(after, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dispatch(l.of.now())
	})
}

// unanswer notes that an attempt ended without an answer. That says nothing of the
// quota.
func (l *line) unanswer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts++
	l.unanswered--
	l.dispatch(l.of.now())
	l.queued()
}

// answer notes what an attempt was answered. The server cannot ask for more than
// longest.
func (l *line) answer(a *Attempt, longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.of.now()
	l.attempts++
	l.unanswered--
	hint := a.Hint
	hint.Wait = min(hint.Wait, longest)
	if hint.Reserves || hint.Slot {
		l.reserves = now
	}
	l.waited += a.Waited
	switch {
	case a.Refused:
		l.refused++
		l.pacer.Refused(now, a.Number, hint)
	case a.Status < 500: // a server that fails says nothing of its quota
		l.accepted++
		l.pacer.Accepted(now, hint)
	}
	l.dispatch(now)
	l.queued()
}

// reservesFor is for how long a server is believed to reserve that no longer says so: it
// may be another one behind the same name.
const reservesFor = 10 * time.Minute

// pending is what the next attempt tells a server that reserves: how many more requests
// wait. It is false for other servers.
func (l *line) pending() (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reserves < 0 || l.of.now()-l.reserves > reservesFor {
		return 0, false
	}
	return len(l.waiting), true
}

// queue is a heap of waiters: the highest priority first, then the first to come.
type queue []*waiter

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if q[i].priority != q[j].priority {
		return q[i].priority > q[j].priority
	}
	return q[i].arrival < q[j].arrival
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(w any) {
	w.(*waiter).at = len(*q)
	*q = append(*q, w.(*waiter))
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	w := old[len(old)-1]
	old[len(old)-1] = nil
	w.at = -1
	*q = old[:len(old)-1]
	return w
}
