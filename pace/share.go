package pace

import "time"

// Sharer is a [Pacer] that shares a quota with other processes: it tells an
// aggregator what it sends, and is told what all of them do. [AATB], [XATB] and
// [Auto] start such pacers.
type Sharer interface {
	Pacer

	// Queue notes how many requests are not served yet, waiting or under way. It is
	// called whenever their number changes.
	Queue(now time.Duration, requests int)

	// NextReport returns when the next report is due: now or earlier means at once.
	NextReport(now time.Duration) time.Duration

	// Report returns the report that is due, and false if none is.
	Report(now time.Duration) (Report, bool)

	// Told notes what the aggregator answered to a report.
	Told(now time.Duration, a Aggregate)
}

// Report is what one client tells the others, by way of an aggregator. Counts are
// since its last report of any kind.
type Report struct {
	Congested bool  // a request was just refused; otherwise it is a report in its turn
	Sent      int64 // attempts that were answered
	Accepted  int64 // of them
	Refused   int64 // of them
	Waiting   int   // requests that are not served yet
}

// Aggregate is what an aggregator makes of the reports on one quota. It comes from
// the network: an algorithm bounds what it does because of it.
type Aggregate struct {
	Sent        int64         // attempts of all clients in the window
	Active      int           // clients that reported in the window
	Refusals    int64         // reports of a refusal in the window
	Refused     int           // clients that they came from
	Waiting     int64         // requests that are not served yet, of all clients
	LastRefusal time.Duration // how long ago the last refusal was reported, negative if none is known
	PerSecond   float64       // the rate of the quota, 0 if unknown
	Partial     bool          // the aggregator has not watched for a whole window yet
}

// plausible returns a without what cannot be: counts below zero, more clients
// refused than there are.
func (a Aggregate) plausible() Aggregate {
	a.Sent, a.Waiting = max(0, a.Sent), max(0, a.Waiting)
	a.Active = max(1, a.Active)
	a.Refused = min(max(0, a.Refused), a.Active)
	a.Refusals = max(0, a.Refusals)
	if !(a.PerSecond > 0 && a.PerSecond < 1e9) { // NaN too
		a.PerSecond = 0
	}
	return a
}

// never is a time that does not come.
const never = time.Duration(1<<63 - 1)
