package simulate

import (
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/rate"
)

// Authority is a store with one bucket in it.
type Authority struct {
	Shape  rate.Shape
	Clock  *Clock
	Ledger lease.Ledger
	Down   bool // answers nobody
}

// Change has the bucket go on under another limit.
func (a *Authority) Change(to rate.Shape) {
	a.Ledger.State = a.Ledger.State.Convert(a.Shape, to, a.Clock.Now())
	a.Shape = to
}

// Holder is a replica that admits out of leases on the bucket of an Authority.
type Holder struct {
	World     *World
	Terms     lease.Terms // complete
	Clock     *Clock
	Authority *Authority
	To, From  *Link

	// Deadline is how long a request waits for an answer.
	Deadline time.Duration

	// Free is the limit of what this replica has to itself, beside what it leases (bucket/scoped); zero for nothing.
	Free rate.Shape

	// Admitted hears of every request that is.
	Admitted func(tokens int64)

	Name     uint64
	Account  lease.Account
	Denied   int
	TimedOut int
	Asked    int // messages to the authority

	// Unbacked is how many tokens were admitted that no batch was good for: one that the authority
	// had charged for the limit as it is, and that was asked for less than a TTL ago.
	Unbacked int64

	lane    bucket.State
	waiting []waiter
	lent    lent
	changes int // of the limit
}

// lent is what a replica was given and has not admitted yet, whether or not it has heard of it: the
// most that it may hold.
type lent struct {
	batches []batch // by when they expire
	asked   uint64  // the latest question
	sent    int64   // when it was sent first
	given   uint64  // the latest question that was given something
}

type batch struct{ tokens, until int64 }

// ask notes a question, and returns when it was sent first.
func (l *lent) ask(now int64, seq uint64) (first int64) {
	if seq != l.asked {
		l.asked, l.sent = seq, now
	}
	return l.sent
}

// give notes what a question was given, once.
func (l *lent) give(got lease.Answer, until int64) {
	if got.Tokens > 0 && got.Seq > l.given {
		l.given, l.batches = got.Seq, append(l.batches, batch{got.Tokens, until})
	}
}

// spend takes tokens out of what expires first, and reports how many are not there.
func (l *lent) spend(now, tokens int64) (missing int64) {
	for len(l.batches) > 0 && tokens > 0 {
		b := &l.batches[0]
		if b.until > now {
			used := min(tokens, b.tokens)
			tokens, b.tokens = tokens-used, b.tokens-used
		}
		if b.until <= now || b.tokens == 0 {
			l.batches = l.batches[1:]
		}
	}
	return tokens
}

type waiter struct {
	cost  int64
	until time.Duration
}

// Request is a request that arrives.
func (h *Holder) Request(cost int64) {
	if h.free(cost) {
		h.Admitted(cost)
		return
	}
	h.decide(h.Account.Take(h.Clock.Now(), h.Terms, cost), waiter{cost, h.World.Now() + h.Deadline})
	h.ask()
}

// Refused is Request for one that another bucket denies some time later: what it took is given back.
func (h *Holder) Refused(cost int64, later time.Duration) {
	now, changes := h.Clock.Now(), h.changes
	until := h.Account.Until(now)
	if h.Account.Take(now, h.Terms, cost) == lease.Admit {
		h.World.After(later, func() {
			if changes == h.changes {
				h.Account.Return(h.Clock.Now(), cost, until)
			}
		})
	}
	h.ask()
}

// Change has the replica hear of another limit.
func (h *Holder) Change() {
	h.Account.Drop()
	h.lent.batches = nil
	h.changes++
}

// free takes out of what this replica has to itself.
func (h *Holder) free(cost int64) (ok bool) {
	if units, possible := h.Free.Units(cost); possible && units > 0 {
		h.lane, ok = h.lane.Try(h.Clock.Now(), &h.Free, units)
	}
	return ok
}

func (h *Holder) decide(v lease.Verdict, w waiter) {
	switch v {
	case lease.Admit:
		h.Unbacked += h.lent.spend(h.Clock.Now(), w.cost)
		h.Admitted(w.cost)
	case lease.Deny:
		h.Denied++
	case lease.Ask:
		h.waiting = append(h.waiting, w)
	}
}

// ask sends a question, if there is one.
func (h *Holder) ask() {
	q, ok := h.Account.Question(h.Clock.Now(), h.Terms)
	if !ok {
		return
	}
	h.Asked++
	open, changes, until := true, h.changes, h.lent.ask(h.Clock.Now(), q.Seq)+int64(h.Terms.TTL)
	h.To.Send(func() {
		if h.Authority.Down {
			return
		}
		got := h.Authority.Ledger.Grant(h.Authority.Clock.Now(), h.Authority.Shape, h.Name, q)
		if changes == h.changes {
			h.lent.give(got, until)
		}
		h.From.Send(func() {
			if h.Account.Answer(h.Clock.Now(), h.Terms, got, h.World.Between(0, h.Terms.Poll)) {
				h.retake()
			}
			open = false
		})
	})
	h.World.After(h.Deadline, func() {
		if open && h.Account.Failed(q.Seq) {
			h.retake()
		}
		open = false
	})
}

// retake tries again for all who wait, in the order in which they came.
func (h *Holder) retake() {
	all := h.waiting
	h.waiting = nil
	for _, w := range all {
		if w.until <= h.World.Now() {
			h.TimedOut++
			continue
		}
		h.decide(h.Account.Retake(h.Clock.Now(), w.cost), w)
	}
	h.ask()
}
