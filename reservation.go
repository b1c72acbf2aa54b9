package headgate

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/reservation"
)

// UntilSettled is the timeout for Reserve and its like of callers who settle for certain, as by a defer:
// the reservation does not expire, and once it is settled it is forgotten.
const UntilSettled = reservation.UntilSettled

// Reservation is a cost that was taken before it is known; see Reserve.
type Reservation struct {
	// ID is what Settle asks for. It is zero when the request was denied, and
	// when it was allowed with nothing taken; settling that changes nothing.
	ID reservation.ID

	// Cost is what the reservation holds, in tokens.
	Cost int64

	// Expires is when its cost stands as it is. Zero with a zero ID.
	Expires time.Time
}

// Reserve is Check for a request whose cost is known only afterwards: it takes
// an estimate, Request.Cost or else the endpoint's cost, from every bucket that
// applies or from none, and remembers it until timeout so that Settle can
// correct it. At least one token is taken, or nobody in debt would ever be
// denied. A reservation that is not settled by then keeps its estimate.
//
// A timeout of 0 or less is reservation.DefaultTimeout, but for UntilSettled; one above
// reservation.MaxTimeout is that. When Options.MaxReservations are outstanding,
// the request is denied as ReservationsFull.
//
// Under a rule with algorithm leaky_bucket an allowed request has to be held
// back for Decision.Wait, and its timeout begins at its turn. ReserveWait holds
// it back.
func (l *Limiter) Reserve(ctx context.Context, r Request, timeout time.Duration) (Reservation, Decision) {
	t := l.begin(ctx, &r)
	defer l.end(t)
	var made Reservation
	if l.prepare(ctx, t) {
		made = l.reserve(ctx, t, timeout)
	}
	l.tell(ctx, t)
	return made, t.decision
}

// ReserveWait is to Reserve what Wait is to Check: it returns when it is the
// request's turn. If ctx ends while the request waits, it returns its error, a
// denied Decision and no reservation, and gives back what the request took, as
// far as time has not done so already.
func (l *Limiter) ReserveWait(ctx context.Context, r Request, timeout time.Duration) (Reservation, Decision, error) {
	return l.reserveWait(ctx, r, timeout, true)
}

// WaitAnswer is Wait for a request whose answer will be known: where a rule that applies counts only some answers
// (policy.Rule.CountWhen), the reservation names what SettleAnswer corrects then. Without such a rule there is none,
// and when MaxReservations are outstanding: the request then counts, whatever it is answered.
func (l *Limiter) WaitAnswer(ctx context.Context, r Request, timeout time.Duration) (Reservation, Decision, error) {
	return l.reserveWait(ctx, r, timeout, false)
}

// CountsAnswers reports whether a rule in force counts only some answers, so that WaitAnswer may make a reservation.
func (l *Limiter) CountsAnswers() bool {
	set := l.policies.Set()
	return set != nil && set.CountsAnswers()
}

func (l *Limiter) reserveWait(ctx context.Context, r Request, timeout time.Duration, always bool) (Reservation,
	Decision, error) {
	t := l.begin(ctx, &r)
	defer l.end(t)
	var made Reservation
	if l.prepare(ctx, t) {
		if t.plan.Waits {
			defer l.waiting.Leave(l.queue(t))
		}
		switch {
		case always:
			made = l.reserve(ctx, t, timeout)
		case t.plan.Cost > 0 && (t.plan.Concurrent || t.plan.CountsAnswers()) && l.reservations.Begin(t.plan.Now):
			made = l.reserveBegun(ctx, t, timeout)
		default:
			l.consume(ctx, t)
		}
	}
	if err := l.await(ctx, t, made.ID); err != nil {
		return Reservation{}, t.decision, err
	}
	return made, t.decision, nil
}

func (l *Limiter) reserve(ctx context.Context, t *trip, timeout time.Duration) Reservation {
	p := &t.plan
	if p.Cost == 0 {
		p.SetCost(1)
	}
	if !l.reservations.Begin(p.Now) {
		t.decision.Reason, t.decision.Cost = ReservationsFull, p.Cost
		return Reservation{}
	}
	return l.reserveBegun(ctx, t, timeout)
}

// reserveBegun reserves in the place that Begin has taken.
func (l *Limiter) reserveBegun(ctx context.Context, t *trip, timeout time.Duration) Reservation {
	p := &t.plan
	taken := l.consume(ctx, t)
	if !taken || !t.decision.Allowed {
		l.reservations.Abandon()
		if taken && p.Concurrent {
			l.release(ctx, p)
		}
		return Reservation{}
	}
	until := int64(reservation.Never)
	if timeout != reservation.UntilSettled {
		until = p.Now + int64(reservation.Timeout(timeout)) + int64(t.decision.Wait)
	}
	receipt := l.reservations.Blank()
	p.Receipt(receipt)
	id := l.reservations.Add(receipt, until)
	t.decision.Reservation = id
	if p.Concurrent {
		l.keepPlaces()
	}
	return Reservation{ID: id, Cost: p.Cost, Expires: time.Unix(0, until).UTC()}
}

// release gives back the places that a request took which is refused all the same.
func (l *Limiter) release(ctx context.Context, p *charge.Plan) {
	receipt := l.reservations.Blank()
	p.Receipt(receipt)
	// What cannot be given back is kept for as long as that of a process that has died.
	_ = l.planner.Release(context.WithoutCancel(ctx), l.buckets, receipt,
		charge.Settlement{Set: p.Set, Now: l.clock.Now(), Wall: p.Wall})
}

// renewEvery is how often places of requests under way are looked at: several times in the third of the shortest time
// that a rule can keep them for, after which they are renewed.
const renewEvery = time.Second / 2

// keepPlaces has the places of requests under way renewed for as long as there are any.
func (l *Limiter) keepPlaces() {
	if !l.renewing.Load() && l.renewing.CompareAndSwap(false, true) {
		time.AfterFunc(renewEvery, l.renewAndGoOn)
	}
}

func (l *Limiter) renewAndGoOn() {
	if l.renew() {
		time.AfterFunc(renewEvery, l.renewAndGoOn)
		return
	}
	l.renewing.Store(false)
	if len(l.reservations.Concurrent(nil, l.clock.Now())) > 0 { // it came in between
		l.keepPlaces()
	}
}

// renew renews the places that are due, and reports whether there are any.
func (l *Limiter) renew() (any bool) {
	now := l.clock.Now()
	receipts := l.reservations.Concurrent(nil, now)
	set, _ := l.rules(now)
	// What fails is due again the next time, and a place that is lost in the end is another's.
	_ = l.planner.Renew(context.Background(), l.buckets, receipts,
		charge.Settlement{Set: set, Now: now, Wall: l.clock.Wall(now)})
	return len(receipts) > 0
}

// LimitsConcurrency reports whether a rule in force limits how many requests are under way, so that whoever knows when
// they end should ask by WaitAnswer.
func (l *Limiter) LimitsConcurrency() bool {
	set := l.policies.Set()
	return set != nil && set.LimitsConcurrency()
}

// Places is how many requests are under way whose end will be told, by the rule that limits how many may be, under its
// policy.Terms.ID. It looks at all of them.
func (l *Limiter) Places() map[uint64]int64 { return l.reservations.Places(l.clock.Now()) }

// Reservations reports the state of the table of reservations.
func (l *Limiter) Reservations() reservation.Stats { return l.reservations.Stats(l.clock.Now()) }

// Settle corrects a reservation to the tokens that were actually spent, once.
// Every further call with the same ID changes nothing and says so, so a caller
// that does not know whether its call got through may repeat it.
//
// Where actual is below the estimate, each bucket gets back the difference, but
// no more than has not drained of the estimate since, max(0, estimate − drained):
// time gave back the rest already, and giving it twice would grant tokens that
// nobody paid for. Where
// actual is above, each bucket owes the difference, even beyond its burst, and
// later requests wait until it has drained; what a bucket may owe in all is
// bounded by twice its burst (rate.Shape.MaxDebt).
//
// A rule that counts in windows gives the difference back in the window, or the
// cell, that counted the estimate, as long as that counts and the limit is still
// the one it was; and counts what is above from now on, up to its limit.
//
// Shadow buckets that were charged are settled too. When the rules have changed
// since, buckets are corrected under those in force now; a rule that changed more
// than once gives nothing back.
//
// An error means that a bucket was not corrected, or may not have been. The
// reservation stands, and a further call settles the rest. What a shared store
// was to give back and did not answer for is not among that: it may have been
// given.
func (l *Limiter) Settle(ctx context.Context, id reservation.ID, actual int64) (reservation.Settlement, error) {
	return l.settle(ctx, id, l.clock.Now(), Answer{Actual: actual})
}

// Answer is what a request came to that was reserved for.
type Answer struct {
	// Actual is what it has cost, in tokens.
	Actual int64

	// Status is that of its answer over HTTP, if there was one and it is complete; else 0. Rules that
	// count only some answers (policy.Rule.CountWhen) get back what has not drained of the estimate if it is
	// another. What they count was written in them when the request came.
	Status int

	// Forgiven says that the rules of its endpoint turn out not to count it, such as a login that
	// succeeded where only failures count: they get back what has not drained of the estimate.
	// Rules for "*" count every request, so they are settled to Actual; without one, whoever has a
	// good password could ask for its check as often as it likes. Rules that say themselves which
	// answers count go by Status.
	Forgiven bool

	// Abandoned says that the caller left while the request was held back until its turn, so that it was never served:
	// rules that count requests do not count it either.
	Abandoned bool
}

// SettleAnswer is Settle for rules that do not count every request. It gives back what this
// reservation took and nothing of what others did.
func (l *Limiter) SettleAnswer(ctx context.Context, id reservation.ID, a Answer) (reservation.Settlement, error) {
	return l.settle(ctx, id, l.clock.Now(), a)
}

func (l *Limiter) settle(ctx context.Context, id reservation.ID, now int64, a Answer) (reservation.Settlement,
	error) {
	if a.Actual < 0 {
		return reservation.Settlement{}, fmt.Errorf("actual is %d, want 0 or more", a.Actual)
	}
	if id == (reservation.ID{}) {
		return reservation.Settlement{Status: reservation.NothingReserved, Actual: a.Actual}, nil
	}
	taken, s, err := l.reservations.Claim(id, now)
	if taken == nil || err != nil {
		return s, err
	}
	set, _ := l.rules(now)
	s.Actual = a.Actual
	s.Uncharged, err = l.planner.Settle(ctx, l.buckets, taken, charge.Settlement{
		Set: set, Now: now, Wall: l.clock.Wall(now), Actual: a.Actual, Forgiven: a.Forgiven, Status: a.Status,
		Void: a.Abandoned,
	})
	if err != nil {
		l.reservations.Release(id, now)
		return reservation.Settlement{}, fmt.Errorf("settle a reservation: %w", err)
	}
	l.reservations.Finish(id, s)
	if !a.Abandoned {
		l.settled(id, now, a)
	}
	return s, nil
}

// Exchange is an admitted request on its way to the API behind, at an endpoint of Options.Adaptive: who sends it on
// says when, and when it is answered. The zero value is one that nothing is to be learned from, and does nothing.
//
//	x := lim.Exchange(&d)
//	x.Sent()
//	answer, err := send(request)
//	x.Answered(err != nil || answer.StatusCode >= 500)
type Exchange struct {
	endpoint *adaptive.Endpoint
	clock    Clock
	caller   uint64
	sent     int64
}

// callers has numbers stand for callers that nobody outside can choose.
var callers = maphash.MakeSeed()

// Exchange is what there is to learn from a request that d has admitted.
func (l *Limiter) Exchange(d *Decision) Exchange {
	if l.adaptive == nil || d.endpoints == nil || !d.Allowed {
		return Exchange{}
	}
	at := l.adaptive.At(d.endpoints, d.Endpoint.ID)
	if at == nil {
		return Exchange{}
	}
	var room [64]byte
	return Exchange{
		endpoint: at, clock: l.clock, caller: maphash.Bytes(callers, d.Principal.AppendSubject(room[:0])),
	}
}

// Zero reports whether nothing is to be learned.
func (x *Exchange) Zero() bool { return x.endpoint == nil }

// Sent says that the request is sent to the API now, whose time begins: nothing that its client has a say in comes
// after it, such as the rest of a body.
func (x *Exchange) Sent() {
	if x.endpoint != nil {
		x.sent = x.clock.Now()
		x.endpoint.Sent(x.sent, x.caller)
	}
}

// Answered says that the answer begins now, or that there is none. Failed is one that says that the API could not do
// what it should: a status of 5xx.
func (x *Exchange) Answered(failed bool) {
	if x.endpoint != nil {
		now := x.clock.Now()
		x.endpoint.Answered(now, x.caller, time.Duration(now-x.sent), failed)
	}
}

// Left says that nobody waits for the answer any more: its client has left, or the request goes another way.
func (x *Exchange) Left() {
	if x.endpoint != nil {
		now := x.clock.Now()
		x.endpoint.Left(now, x.caller, time.Duration(now-x.sent))
	}
}

// Answered counts, for the scores of its callers, what the API answered to a request that was allowed, with a status
// of HTTP (Options.Scores). What did not come from the API is not counted: answers of who decides, such as a 429, say
// nothing of the caller.
func (l *Limiter) Answered(d *Decision, status int) {
	if l.scores.Settings() == nil || !d.Allowed || d.Endpoint.Status != endpoint.Known || status < 200 {
		return
	}
	now := l.clock.Now()
	l.scores.Answered(now, l.callerOf(d, &d.Principal), status)
	for i := range d.Others {
		l.scores.Answered(now, l.scores.Caller(&d.Others[i]), status)
	}
}

// CountsScores reports whether callers are scored, so that Answered does something.
func (l *Limiter) CountsScores() bool { return l.scores.Settings() != nil }
