// Package bucket counts tokens: exactly, in integers, without a clock of its own.
//
// A bucket is the debt of those who took from it. Debt drains at the rate of the limit; a take is
// admitted when its cost on top of the debt that is left still fits under the burst. This is the
// token bucket seen from the other side, and it has a pleasant zero: no debt is a full bucket, so a
// bucket that was never seen, one that was forgotten after it drained, and a full one are the same.
//
// With 2 tokens per second and a burst of 3, in tokens of debt:
//
//	  at      take   debt before   answer                    debt after
//	0.0 s        3             0   allowed, 0 remain                  3
//	0.0 s        1             3   retry after 0.5 s                  3
//	0.5 s        1             2   allowed, 0 remain                  3
//	9.9 s        1             0   allowed, 2 remain                  1
//
// In any interval of t nanoseconds, whatever its ends, the admitted cost is at most the burst plus what drains in t.
package bucket

import (
	"errors"
	"time"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Take is one attempt to take tokens from one bucket.
type Take struct {
	Key   key.Key
	Shape rate.Shape

	// Since is the time, in Unix nanoseconds, at which Shape took effect for this rule; 0 means
	// always. Before is what it replaced, as far as that can matter. A store that finds a bucket as
	// it was left under an earlier shape takes it through every change since: see Held.Follow.
	Since  int64
	Before *rate.Past

	Cost int64 // tokens; 0 only looks

	// Shadow takes never cause a denial: they do not keep the others from being
	// admitted, and are charged if they fit themselves and the others are charged.
	Shadow bool

	// Reach is for whoever keeps buckets in several places: where this one is kept, and what
	// becomes of the take while nobody can ask there.
	Reach Reach

	// Tag is for stores outside the process, where names are read by clusters: whose the bucket is,
	// in 16 bits. Buckets of one tag are kept together, so that one decision can name them all.
	// What tells buckets apart is Key alone.
	Tag uint16

	// Place names what a take of a limit on requests under way takes, for a store that several
	// processes share: a number that this one gives no other request for as long as such places are
	// kept. 0 for every other take, and where the bucket is in this process.
	Place uint32

	// Kept is how much of the burst stays for others, in percent, 0 to 99, rounded down to whole
	// tokens: the take is allowed if the bucket is left with as much, and told how it stands without.
	// Takes of one bucket share the first one's. Buckets of scope lease, sync and gossip keep nothing,
	// nor do those of which takes have a Place.
	Kept uint8

	// MaxWait is the longest that a take of a leaky bucket accepts to be told to wait; one that
	// would have to wait longer is denied. 0 accepts every wait, which is at most what the burst
	// takes to drain; below 0 accepts none. Takes of one bucket share the first one's.
	MaxWait time.Duration

	// Lowered is by how much the rate of Shape was lowered of late; nil for not at all. It is obeyed of
	// token buckets, as what a queue has told those who wait would not hold; and neither by
	// CL.THROTTLE nor in scope gossip. Of sliding logs, which count requests under way where it is not
	// nil, it is which part of the limit is in force: all that they count stays, and a take is allowed
	// if it is within that part. It never makes a bucket hold more than one at the full rate,
	// whatever each of those says who share it. A bucket that gives way to others in a full table is
	// remembered by the full rate.
	Lowered *rate.Lowered
}

// Slower is Lowered where it is obeyed: of token buckets.
func (t *Take) Slower() *rate.Lowered {
	if t.Shape.Algorithm != rate.TokenBucket {
		return nil
	}
	return t.Lowered
}

// Part is the part in force of what t is limited to, in 1024ths: rate.Whole where all of it is, as of a limit of one
// request under way, of which one may be at least.
func (t *Take) Part() int {
	part := t.Lowered.Part()
	if t.fewer() && t.Shape.AtOnce(part).Capacity == t.Shape.Capacity {
		return rate.Whole
	}
	return part
}

// ErrLost is an error of a store that has seen to what becomes of takes while a bucket cannot be
// asked (Take.Reach): this decision is a denial. Other errors leave that to the caller.
var ErrLost = errors.New("the shared store cannot be asked")

// Outcome is what became of one take.
type Outcome struct {
	// Allowed says that this bucket holds what was asked of it. When several takes are decided
	// together that is not yet a yes: unless all are allowed none is charged, and the fields below
	// describe the bucket as it stays.
	Allowed bool

	// Never says that the cost is above the burst, or negative: no wait helps, and RetryAfter is 0.
	Never bool

	// Unknown says that the bucket was not asked: another take had denied the request before, or
	// there was nobody to ask. Allowed then says that it stood in nobody's way, and the rest says
	// nothing.
	Unknown bool

	// Remaining is how many whole tokens are left.
	Remaining int64

	// RetryAfter is 0 when allowed. Otherwise the same take succeeds in exactly that time, and not
	// a nanosecond earlier, if nobody else takes meanwhile.
	RetryAfter time.Duration

	// ResetAfter is the time until the bucket is full.
	ResetAfter time.Duration

	// Wait is how long a request that was charged to a leaky bucket has to wait before it goes on; 0 for every other.
	Wait time.Duration

	// Later is by how much later than now a window, or a cell of a sliding log, counts what it is
	// charged, since others came before whose now was later; 0 for every other. Change.Charged is to be told
	// that time.
	Later time.Duration
}
