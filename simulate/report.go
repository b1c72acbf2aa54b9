package simulate

import (
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/rate"
)

// Charger is a store with one bucket in it, which replicas report to.
type Charger struct {
	Shape  rate.Shape
	Clock  *Clock
	Ledger report.Ledger
	Down   bool // answers nobody

	Charged int64 // units that were ever added to the debt
}

// Change has the bucket go on under another limit.
func (c *Charger) Change(to rate.Shape) {
	c.Ledger.State = c.Ledger.State.Convert(c.Shape, to, c.Clock.Now())
	c.Shape = to
}

// charge charges a report.
func (c *Charger) charge(name uint64, told report.Report) report.Answer {
	now, wide := c.Clock.Now(), c.Shape
	wide.Capacity = wide.MaxDebt()
	before := c.Ledger.State.Convert(c.Shape, wide, now).Debt
	got := c.Ledger.Charge(now, c.Shape, name, told)
	c.Charged += got.Debt - before
	return got
}

// Reporter is a replica that admits by what it knows of the bucket of a Charger, and reports it afterwards.
type Reporter struct {
	World    *World
	Interval time.Duration
	Headroom int64
	Clock    *Clock
	Charger  *Charger
	To, From *Link

	// Deadline is how long it waits for an answer to a report, before it takes it for lost.
	Deadline time.Duration

	// Admitted hears of every request that is: of one that the store was asked about when it was charged there.
	Admitted func(tokens int64)

	Name    uint64
	Account report.Account
	Denied  int
	Asked   int // requests that the store was asked about
	Sent    int // reports

	waiting bool // for the interval to be over
}

// Request is a request that arrives.
func (r *Reporter) Request(cost int64) {
	now := r.Clock.Now()
	switch r.Account.Take(now, &r.Charger.Shape, r.Headroom, cost) {
	case report.Admit:
		r.Admitted(cost)
	case report.Deny:
		r.Denied++
		if r.Account.Stale(now - int64(time.Second)) {
			r.Account.Look()
		}
	case report.Ask:
		r.ask(cost)
	}
	r.report()
}

// Refused is Request for one that another bucket denies some time later: what it took is given back.
func (r *Reporter) Refused(cost int64, later time.Duration) {
	now, sh := r.Clock.Now(), r.Charger.Shape
	if r.Account.Take(now, &sh, r.Headroom, cost) == report.Admit {
		r.World.After(later, func() {
			if sh == r.Charger.Shape {
				r.Account.Return(r.Clock.Now(), &sh, cost, now)
			}
		})
	}
	r.report()
}

// Change has the replica hear of another limit than from.
func (r *Reporter) Change(from rate.Shape, headroom int64) {
	r.Account.Change(r.Clock.Now(), &from, &r.Charger.Shape)
	r.Headroom = headroom
}

// ask asks the store for tokens, as a take of scope strict.
func (r *Reporter) ask(cost int64) {
	r.Asked++
	r.To.Send(func() {
		c := r.Charger
		units, ok := c.Shape.Units(cost)
		if c.Down || !ok {
			return
		}
		var allowed bool
		if c.Ledger.State, allowed = c.Ledger.State.Try(c.Clock.Now(), &c.Shape, units); allowed {
			c.Charged += units
			r.Admitted(cost)
		}
	})
}

// report sends a report when it is time, if there is anything to tell.
func (r *Reporter) report() {
	switch {
	case !r.Account.Due():
	case r.Account.Urgent(r.Headroom):
		r.send()
	case !r.waiting:
		r.later()
	}
}

func (r *Reporter) later() {
	r.waiting = true
	r.World.After(r.Interval, func() {
		r.waiting = false
		r.send()
	})
}

func (r *Reporter) send() {
	told, ok := r.Account.Report()
	if !ok {
		return
	}
	r.Sent++
	open, name := true, r.Name
	r.To.Send(func() {
		c := r.Charger
		if c.Down {
			return
		}
		got, of := c.charge(name, told), c.Shape
		r.From.Send(func() {
			if of != c.Shape { // as report.Store does
				got.Debt = min(bucket.Rescale(got.Debt, c.Shape.Unit, of.Unit, true), c.Shape.MaxDebt())
			}
			if name == r.Name && r.Account.Answer(r.Clock.Now(), &c.Shape, got) {
				r.report()
			}
			open = false
		})
	})
	r.World.After(r.Deadline, func() {
		if open && name == r.Name {
			if r.Account.Failed(told.Seq); r.Account.Due() && !r.waiting {
				r.later()
			}
		}
		open = false
	})
}

// Crash has the replica begin anew: what it had not reported yet is forgotten, and so is what it knew.
func (r *Reporter) Crash(name uint64) { r.Name, r.Account = name, report.NewAccount(1) }

// Owed is what the store's bucket owes beyond its capacity, in tokens, rounded up; below zero if there is room.
func (c *Charger) Owed() int64 {
	debt := bucket.State.Owed(c.Ledger.State, &c.Shape, c.Clock.Now())
	return debt - c.Shape.Burst()
}
