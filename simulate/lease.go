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

	lane    bucket.State
	waiting []waiter
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
	open := true
	h.To.Send(func() {
		if h.Authority.Down {
			return
		}
		got := h.Authority.Ledger.Grant(h.Authority.Clock.Now(), h.Authority.Shape, h.Name, q)
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
