package headgate

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

const (
	defaultReservations = 1 << 16
	mostReservations    = 1 << 24

	// DefaultReservationTimeout stands for a timeout of 0.
	DefaultReservationTimeout = time.Minute

	// MaxReservationTimeout bounds how long a reservation holds its place.
	MaxReservationTimeout = 24 * time.Hour
)

// ReservationID names a reservation: 128 random bits, in which nothing of the
// client can be read. Whoever knows one can settle it, so it is as
// confidential as the answer to the request. The zero ID names nothing.
type ReservationID [16]byte

// String returns 32 hexadecimal digits.
func (id ReservationID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText writes what String returns.
func (id ReservationID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads 32 hexadecimal digits.
func (id *ReservationID) UnmarshalText(text []byte) error {
	var read ReservationID
	wrong := errors.New("reservation ID is not 32 hexadecimal digits") // not repeated: it may be confidential
	if len(text) != 2*len(read) {
		return wrong
	}
	if _, err := hex.Decode(read[:], text); err != nil {
		return wrong
	}
	*id = read
	return nil
}

// Reservation is a cost that was taken before it is known; see Reserve.
type Reservation struct {
	// ID is what Settle asks for. It is zero when the request was denied, and
	// when it was allowed with nothing taken; settling that changes nothing.
	ID ReservationID

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
// A timeout of 0 or less is DefaultReservationTimeout, one above
// MaxReservationTimeout is that. When Options.MaxReservations are outstanding,
// the request is denied as ReservationsFull.
//
// Under a rule with algorithm leaky_bucket an allowed request has to be held
// back for Decision.Wait, and its timeout begins at its turn. ReserveWait holds
// it back.
func (l *Limiter) Reserve(ctx context.Context, r Request, timeout time.Duration) (Reservation, Decision) {
	t := l.begin(r)
	defer l.end(t)
	var made Reservation
	if l.prepare(ctx, t) {
		made = l.reserve(ctx, t, timeout)
	}
	l.tell(t)
	return made, t.decision
}

// ReserveWait is to Reserve what Wait is to Check: it returns when it is the
// request's turn. If ctx ends while the request waits, it returns its error, a
// denied Decision and no reservation, and gives back what the request took, as
// far as time has not done so already.
func (l *Limiter) ReserveWait(ctx context.Context, r Request, timeout time.Duration) (Reservation, Decision, error) {
	t := l.begin(r)
	defer l.end(t)
	var made Reservation
	if l.prepare(ctx, t) {
		if t.shaped {
			defer l.queue(t)()
		}
		made = l.reserve(ctx, t, timeout)
	}
	l.tell(t)
	if t.decision.Wait <= 0 || awaitTurn(ctx, t.decision.Wait) {
		return made, t.decision, nil
	}
	t.decision.Allowed, t.decision.Reason = false, Abandoned
	// What cannot be given back stays taken until it has drained.
	_, _ = l.Settle(context.WithoutCancel(ctx), made.ID, 0)
	return Reservation{}, t.decision, ctx.Err()
}

func (l *Limiter) reserve(ctx context.Context, t *trip, timeout time.Duration) Reservation {
	if l.correct == nil {
		l.conclude(t, false, errCannotCorrect)
		t.decision.Allowed, t.decision.Lost = false, false
		return Reservation{}
	}
	if t.cost == 0 {
		t.cost = 1
		for i := range t.takes {
			t.takes[i].Cost = 1
		}
	}
	if !l.reservations.begin(t.now) {
		t.decision.Reason, t.decision.Cost = ReservationsFull, t.cost
		return Reservation{}
	}
	allowed, err := l.buckets.TryConsume(ctx, t.now, t.takes, t.outs)
	l.conclude(t, allowed, err)
	if !allowed || err != nil {
		l.reservations.abandon()
		return Reservation{}
	}
	until := t.now + int64(bounded(timeout)) + int64(t.decision.Wait)
	id := l.reservations.add(entry{
		at: t.now, until: until, cost: t.cost, match: t.match,
		project: t.who.Project, tier: t.who.Tier, charges: chargesOf(t),
	})
	return Reservation{ID: id, Cost: t.cost, Expires: time.Unix(0, until).UTC()}
}

func bounded(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return DefaultReservationTimeout
	}
	return min(timeout, MaxReservationTimeout)
}

// charge is what a reservation took from one bucket.
type charge struct {
	rule  uint64 // policy.Terms.ID
	every bool   // a rule for "*"
	key   key.Key
	tag   uint16 // and reach, as in bucket.Take
	reach bucket.Reach
	shape rate.Shape
	units int64

	guard int64 // of a guard, when the project had moved last; see policy.Guard

	corrected bool // or it may have been; a settlement that is repeated leaves it alone
}

// chargesOf lists the buckets that an allowed trip took from: those of all
// enforced rules, and of the shadow rules that had room.
func chargesOf(t *trip) []charge {
	charges := make([]charge, 0, len(t.takes))
	for i := range t.takes {
		take := &t.takes[i]
		units, possible := take.Shape.Units(take.Cost)
		if !possible || !t.outs[i].Allowed {
			continue
		}
		a := t.applied[i]
		if t.outs[i].Unknown {
			units = 0 // it passed without being charged there, so nothing comes back
		}
		made := charge{rule: t.set.Terms(a.Rule).ID, every: a.Level.EveryEndpoint(), key: take.Key, tag: take.Tag, reach: take.Reach, shape: take.Shape, units: units}
		if i >= t.doubted {
			if g := &t.guards[i-t.doubted]; g.Rung {
				made.rule = g.ID
			} else {
				made.guard = take.Since
			}
		}
		charges = append(charges, made)
	}
	return charges
}

// SettleStatus says what became of a settlement.
type SettleStatus uint8

const (
	// Settled: the buckets were corrected.
	Settled SettleStatus = iota
	// AlreadySettled: an earlier call did that. Nothing was changed.
	AlreadySettled
	// ReservationExpired: it came after the reservation's timeout. The
	// estimate stays charged, and nothing was changed.
	ReservationExpired
	// NoReservation: there is none of that ID: it was never made, or settled or
	// expired so long ago that it is forgotten. Nothing was changed.
	NoReservation
	// NothingReserved: the ID is zero. Nothing was taken, so nothing was
	// changed.
	NothingReserved
)

var settleStatusNames = [...]string{"settled", "already_settled", "reservation_expired", "no_reservation", "nothing_reserved"}

// String returns the status as metrics write it.
func (s SettleStatus) String() string {
	if int(s) < len(settleStatusNames) {
		return settleStatusNames[s]
	}
	return "unknown_status"
}

// Settlement is the answer to Settle. For AlreadySettled it repeats the first
// call's Reserved and Actual.
type Settlement struct {
	Status SettleStatus

	Reserved int64 // tokens that the reservation held
	Actual   int64 // tokens that were spent in the end

	// Uncharged is how many of the tokens above the estimate some bucket did
	// not take on, because it would have owed more than twice its burst, or
	// because its rule applies no more. 0 in nearly every life.
	Uncharged int64
}

var (
	errCannotCorrect = errors.New("the buckets do not implement headgate.Corrector")

	// ErrSettling is what Settle returns while another call settles the same
	// reservation. Nothing is wrong; ask again to hear how it ended.
	ErrSettling = errors.New("another call is settling this reservation")
)

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
func (l *Limiter) Settle(ctx context.Context, id ReservationID, actual int64) (Settlement, error) {
	return l.settleOnce(ctx, id, actual, false)
}

// Forgive is Settle for a request that its endpoint's rules turn out not to
// count, such as a login that succeeded where only failures count: they get back
// what has not drained of the estimate. Rules for "*" count every request, so
// they are settled to actual; without one, whoever has a good password could ask
// for its check as often as it likes.
//
// It gives back what this reservation took and nothing of what others did.
func (l *Limiter) Forgive(ctx context.Context, id ReservationID, actual int64) (Settlement, error) {
	return l.settleOnce(ctx, id, actual, true)
}

func (l *Limiter) settleOnce(ctx context.Context, id ReservationID, actual int64, forgiven bool) (Settlement, error) {
	if actual < 0 {
		return Settlement{}, fmt.Errorf("actual is %d, want 0 or more", actual)
	}
	if id == (ReservationID{}) {
		return Settlement{Status: NothingReserved, Actual: actual}, nil
	}
	now := l.clock.Now()
	e, s, err := l.reservations.claim(id, now)
	if e == nil || err != nil {
		return s, err
	}
	s.Actual = actual
	if s.Uncharged, err = l.settle(ctx, now, e, actual, forgiven); err != nil {
		l.reservations.release(id)
		return Settlement{}, fmt.Errorf("settle a reservation: %w", err)
	}
	l.reservations.finish(id, s)
	return s, nil
}

// settle corrects the buckets of a reservation, and reports how many tokens of
// the difference some of them did not take on.
func (l *Limiter) settle(ctx context.Context, now int64, e *entry, actual int64, forgiven bool) (uncharged int64, err error) {
	if actual == e.cost && !forgiven {
		return 0, nil
	}
	var failed []error
	set := l.rules(now)
	var applied [policy.MaxApplied]policy.Applied
	inForce := applied[:0]
	if set != nil {
		inForce = set.Resolve(inForce, l.clock.Wall(now), e.match, e.project, e.tier)
		for _, g := range set.Climb(nil, l.clock.Wall(now), e.match, e.project, inForce, nil) {
			inForce = append(inForce, policy.Applied{Rule: g.Rule, Level: inForce[g.Of].Level})
		}
	}
	for i := range e.charges {
		if e.charges[i].corrected {
			continue
		}
		if set != nil && e.charges[i].guard != 0 && set.Moved(now, e.project, e.tier) != e.charges[i].guard {
			continue // it moved again, or long ago: what was taken stays taken
		}
		due := actual
		if forgiven && !e.charges[i].every {
			due = 0
		}
		c, ok := l.correction(now, e, &e.charges[i], set, inForce, due)
		if !ok {
			e.uncharged = max(e.uncharged, due-e.cost)
			continue
		}
		if err := l.correctOne(ctx, now, e, &e.charges[i], &c, actual); err != nil {
			failed = append(failed, err)
		}
	}
	return e.uncharged, errors.Join(failed...)
}

// correctOne makes the change of one charge, and notes whether it was, or may have
// been. What is added twice is to the client's cost; what is given back twice
// would be tokens that nobody paid for.
func (l *Limiter) correctOne(ctx context.Context, now int64, e *entry, of *charge, c *bucket.Change, actual int64) error {
	var moved [1]int64
	err := l.correct.Correct(ctx, now, []bucket.Change{*c}, moved[:])
	if err != nil {
		of.corrected = c.Units < 0 && of.reach.Scope().Shared() && !errors.Is(err, bucket.ErrLost)
		return err
	}
	of.corrected = true
	if c.Units > 0 {
		e.uncharged = max(e.uncharged, actual-e.cost-moved[0]/c.Shape.Unit)
	}
	return nil
}

// correction is the change of one bucket, in terms of its rule as it is now.
// It reports false for a rule that applies to such requests no more: its bucket
// is left alone, since no shape is known that it surely has.
func (l *Limiter) correction(now int64, e *entry, from *charge, set *policy.Set, inForce []policy.Applied, actual int64) (bucket.Change, bool) {
	for _, a := range inForce {
		terms := set.Terms(a.Rule)
		if terms.ID != from.rule {
			continue
		}
		if from.guard != 0 {
			terms.Shape, terms.Since, terms.Before = from.shape, from.guard, nil
		}
		take := [1]bucket.Take{{Key: from.key, Shape: terms.Shape, Since: terms.Since, Before: terms.Before}}
		l.allowances.apply(now, take[:], new([]rate.Past))
		c := bucket.Change{Key: from.key, Tag: from.tag, Reach: from.reach, Shape: take[0].Shape, Since: take[0].Since, Before: take[0].Before}
		if actual > e.cost {
			c.Units = c.Shape.UnitsSaturating(actual - e.cost)
		} else {
			back := from.shape.UnitsSaturating(e.cost - actual)
			c.Units, c.Charged = -bucket.Unspent(from.shape, c.Shape, from.units, back, e.at, now), e.at
			if changedTwice(&terms, e.at) || !c.Shape.Algorithm.Drains() && c.Since > e.at {
				c.Units = 0 // it may have been another limit in between
			}
		}
		return c, true
	}
	return bucket.Change{}, false
}

// changedTwice says whether a rule may have had a third limit, between the one
// that charged at a time and the one that it has: which may have given back or
// forgiven what was charged, whatever the first and the last say.
func changedTwice(terms *policy.Terms, at int64) bool {
	return terms.Since > at && (terms.Before == nil || terms.Before.Since > at || terms.Before.Shape == (rate.Shape{}))
}
