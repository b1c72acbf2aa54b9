package simulate

import (
	"time"

	"github.com/headgate-io/headgate/rate"
)

// Envelope finds the interval in which most was admitted beyond what a rate allows: the Lindley
// maximum, in one pass over what was admitted. Its zero value, with a Shape, has seen nothing.
type Envelope struct {
	Shape rate.Shape

	Admitted int64 // tokens

	backlog int64 // units over the rate, since the worst beginning so far
	worst   int64
	last    time.Duration
}

// Admit notes tokens that were admitted at a time, which does not run back.
func (e *Envelope) Admit(at time.Duration, tokens int64) {
	e.backlog = max(0, e.backlog-e.Shape.Drained(at-e.last)) + tokens*e.Shape.Unit
	e.worst, e.last = max(e.worst, e.backlog), at
	e.Admitted += tokens
}

// Excess is the most that was admitted in any interval beyond the burst and what drains in the
// interval, in tokens, rounded up; below zero if there always was room.
func (e *Envelope) Excess() int64 {
	over := e.worst - e.Shape.Capacity
	if over > 0 {
		return (over + e.Shape.Unit - 1) / e.Shape.Unit
	}
	return over / e.Shape.Unit
}

// Utilisation is the part that was admitted of what could have been until end: the smaller of the
// demand, in tokens, and the limit.
func (e *Envelope) Utilisation(end time.Duration, demand int64) float64 {
	could := min(demand, (e.Shape.Drained(end)+e.Shape.Capacity)/e.Shape.Unit)
	if could == 0 {
		return 1
	}
	return float64(e.Admitted) / float64(could)
}
