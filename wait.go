package headgate

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/internal/waiters"
	"github.com/headgate-io/headgate/reservation"
)

// Wait is Check for callers who hold the request back until its turn: it decides, and if rules with
// algorithm leaky_bucket tell an admitted request to wait, returns when the longest of the waits is
// over.
//
// Nobody waits in vain: a request whose turn would come after ctx's deadline or Request.MaxWait, or
// that finds no place among MaxWaiters, is denied at once, takes nothing, and is told when to come back.
// If ctx ends while the request waits, Wait returns its error and a denied Decision, and gives back
// what the request took, as far as time has not done so already.
//
// Waiting costs the caller's goroutine and a timer of its own, and the Limiter a count and as much as a reservation.
func (l *Limiter) Wait(ctx context.Context, r Request) (Decision, error) {
	t := l.begin(ctx, &r)
	defer l.end(t)
	if !l.prepare(ctx, t) {
		l.tell(ctx, t)
		return t.decision, nil
	}
	if t.plan.Waits {
		defer l.waiting.Leave(l.queue(t))
	}
	l.consume(ctx, t)
	err := l.await(ctx, t, reservation.ID{})
	return t.decision, err
}

// Waiters reports how many requests wait for their turn, or are being decided and may have to, and how many may.
func (l *Limiter) Waiters() (waiting, most int) {
	return l.waiting.Count(), int(l.terms.Load().maxWaiters)
}

// WithoutPlace reports how many requests found no place to wait: because it was full, because others of their
// caller wait already and have its share, or because what was left is for higher classes (policy.Priority). They were
// denied unless it was their turn.
func (l *Limiter) WithoutPlace() (full, beyondShare, lowerClass uint64) {
	r := l.waiting.Refused()
	return r.Full.Load(), r.BeyondShare.Load(), r.LowerClass.Load()
}

// queue finds a place for a request that may have to wait, which is to be left. One that finds none may not wait.
func (l *Limiter) queue(t *trip) (place int) {
	var part waiters.Part
	if places := t.plan.Set.Places(); places != nil {
		class := t.plan.Class
		part = waiters.Part{Class: uint8(class), Kept: places.Kept(class), Guaranteed: places.Guaranteed(class).Percent}
	}
	place = l.waiting.Enter(t.terms.maxWaiters, &t.decision.Principal, part)
	if place == waiters.NoPlace {
		t.plan.LimitWait(-1)
	}
	return place
}

// awaitTurn reports whether wait was over before ctx was.
func awaitTurn(ctx context.Context, wait time.Duration) bool {
	turn := time.NewTimer(wait)
	defer turn.Stop()
	select {
	case <-turn.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// await tells Options.Observe of a request, and holds it back until its turn if it has to wait. If its caller leaves,
// the decision is reversed. What a request took that has not reserved it is held until its turn, so that it gives
// nothing back to a bucket that somebody fills meanwhile.
func (l *Limiter) await(ctx context.Context, t *trip, made reservation.ID) error {
	wait := t.decision.Wait
	if wait > 0 && made == (reservation.ID{}) {
		receipt := l.reservations.Blank()
		t.plan.Receipt(receipt)
		made = l.reservations.Hold(receipt)
		defer l.reservations.LetGo(made)
	}
	l.tellTurn(ctx, t)
	if wait <= 0 || awaitTurn(ctx, wait) {
		return nil
	}
	now := l.clock.Now()
	// What cannot be given back stays taken, which denies somebody later and admits nobody.
	_, _ = l.settle(context.WithoutCancel(ctx), made, now, Answer{Abandoned: true})
	l.abandon(t, now)
	return ctx.Err()
}

// tellTurn is tell for a request that may have been told to wait.
func (l *Limiter) tellTurn(ctx context.Context, t *trip) {
	if t.decision.Wait > 0 && l.left != nil {
		t.decision.Waiting = rand.Uint64() | 1
	}
	l.tell(ctx, t)
}

// abandon reverses the decision about a request whose caller has left.
func (l *Limiter) abandon(t *trip, now int64) {
	t.decision.Allowed, t.decision.Reason = false, Abandoned
	if l.left != nil {
		l.left(&t.request, &t.decision, now)
	}
}

// acceptWait passes on how long the request may wait: what it says, or Options.MaxWait, and what ctx leaves.
func (t *trip) acceptWait(ctx context.Context) {
	most := cmp.Or(t.request.MaxWait, t.terms.maxWait)
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left <= 0 {
			left = -1
		}
		if most == 0 || left < most {
			most = left
		}
	}
	t.plan.LimitWait(most)
}
