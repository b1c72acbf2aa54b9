package lease

import (
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Ledger is the authority's side of one bucket: what it owes, and the last answer to each replica,
// so that a question that is asked twice is charged once. Its zero value is a full bucket that
// nobody asked for. Who has a Ledger guards it.
type Ledger struct {
	State bucket.State
	last  map[uint64]Answer // by replica
}

// Grant answers a question of a replica at now, in nanoseconds of the authority's clock: as many
// tokens as are wanted or there, and none if they are fewer than needed, because then they help
// nobody where they go. Question 0 is a look, and wants nothing.
func (l *Ledger) Grant(now int64, sh rate.Shape, replica uint64, q Question) Answer {
	if last, ok := l.last[replica]; ok && q.Seq > 0 && last.Seq >= q.Seq {
		if last.Seq == q.Seq {
			return last
		}
		return Answer{Seq: q.Seq} // older than what was answered: nobody waits for it
	}
	var o bucket.Outcome
	l.State.Report(&o, now, &sh, 0, true)
	granted := int64(0)
	if tokens := min(q.Want, o.Remaining); tokens >= max(1, q.Need) {
		if units, ok := sh.Units(tokens); ok {
			if after, ok := l.State.Try(now, &sh, units); ok {
				l.State, granted = after, tokens
			}
		}
	}
	got := q.Answer(granted, now, sh, l.State)
	if q.Seq == 0 {
		return got
	}
	if l.last == nil {
		l.last = map[uint64]Answer{}
	}
	l.last[replica] = got
	return got
}

// Answer is what to say to q when it got tokens, which left the bucket in a state at now.
func (q Question) Answer(tokens, now int64, sh rate.Shape, left bucket.State) Answer {
	var o bucket.Outcome
	left.Report(&o, now, &sh, 0, true)
	_, denied := left.Take(now, sh, min(max(1, q.Need), sh.Burst()))
	return Answer{
		Seq:    q.Seq,
		Tokens: tokens,
		Left:   o.Remaining,
		Burst:  sh.Burst(),
		Wait:   denied.RetryAfter,
		Reset:  o.ResetAfter,
	}
}

// Forget drops the answer to a replica. Who restarts begins to number at 1 again, and takes another name.
func (l *Ledger) Forget(replica uint64) { delete(l.last, replica) }

// Bound is what is admitted by all replicas together in any interval of length d, in tokens,
// rounded up: the burst, and what drains in d and in one TTL. No number of replicas enters, and no
// size of batches.
func Bound(sh rate.Shape, t Terms, d time.Duration) int64 {
	units := sh.Drained(d+t.Complete().TTL) + sh.Capacity
	return (units + sh.Unit - 1) / sh.Unit
}
