package report

import (
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Ledger is the authority's side of one bucket: what it owes, and the number of the last report of
// each replica, so that one that is sent twice is charged once. Its zero value is a full bucket
// that nobody reported about. Who has a Ledger guards it.
type Ledger struct {
	State bucket.State
	last  map[uint64]uint64 // by replica
}

// Charge charges what a replica reports at now, in nanoseconds of the authority's clock, whatever
// is owed already, up to twice the burst.
func (l *Ledger) Charge(now int64, sh rate.Shape, replica uint64, r Report) Answer {
	if r.Seq > l.last[replica] {
		if l.last == nil {
			l.last = map[uint64]uint64{}
		}
		l.last[replica] = r.Seq
		l.State, _ = l.State.Shift(now, sh, sh.UnitsSaturating(r.Tokens), 0)
	}
	return Answer{Seq: r.Seq, Debt: owed(l.State, &sh, now)}
}

// Bound is what is admitted by so many replicas together in any interval of length d, in tokens,
// rounded up: the burst, what drains in d, and the headroom of each. No delay enters, and no
// interval between reports but by the headroom.
func Bound(sh rate.Shape, interval time.Duration, replicas int, d time.Duration) int64 {
	units := sh.Drained(d) + sh.Capacity
	return (units+sh.Unit-1)/sh.Unit + int64(replicas)*bucket.Headroom(sh, interval, replicas)
}
