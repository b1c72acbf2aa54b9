// Package quota lends tokens of limits to those who decide about requests by themselves, and tell
// afterwards how many they admitted: proxies that speak Envoy's protocol for rate limit quotas.
//
// A borrower reports each bucket that it knows, once an interval. The answer, and what it is sent
// between two reports, is an assignment: so many tokens, to be used within a time. They were taken
// out of the bucket before, so that all borrowers together have no more than it held:
//
//	report        bucket of 100, 10/s    assignment                 outstanding
//	1 denied      100 → 50               50 tokens, number 7        50
//	30 allowed    50                     –                          20
//	20 allowed    60 → 30                30 tokens, number 8        30
//	0             –                      the same again: number 8   30, and the bucket owes 30 at least
//	nothing more                         (ends, on both sides)      0 after the TTL
//
// An assignment under a new number takes the place of the one before, whose rest is lost; under the
// same number it prolongs it, and brings nothing. What is outstanding is never underestimated: an
// assignment may be on its way, and then the rest of the one before may be used as well.
//
// The promise: in any interval of length t all borrowers admit burst + rate·t + rate·(TTL + Grace)
// together, however many they are. What each token needs for it is that it was taken out of the
// bucket at most TTL + Grace before it is used, or that the bucket owes as many as are outstanding
// when the assignment is prolonged.
package quota

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/descriptor"
)

// Options configures a Book. Limits, Buckets, Name and Now are required.
type Options struct {
	// Limits returns those in force.
	Limits func() *descriptor.Limits

	// Buckets has what is lent, where Reach says.
	Buckets bucket.Store
	Reach   bucket.Reach

	// Name names the counter of a subject in a domain, and tells what the counters of a domain are
	// kept together by (bucket.Take.Tag).
	Name func(domain string, subject []byte) (key.Key, uint16)

	// Now is the time in Unix nanoseconds. It must not step.
	Now func() int64

	// TTL is how long an assignment may be used, in whole seconds: 4 s to a minute, default 5 s. It is sent again
	// when half of that is over. A longer one means fewer questions to the store, and a wider bound.
	TTL time.Duration

	// Replicas is how many Books lend of the same buckets, this one included. Default 1.
	Replicas func() int

	// MaxBorrowers, MaxBuckets and MaxTotal bound borrowers, the buckets of each and those of all together.
	// Defaults 1,000, 10,000 and 100,000, at about 500 bytes each, and their names.
	MaxBorrowers, MaxBuckets, MaxTotal int

	// Observe, if set, is told what was reported of buckets that met a limit.
	Observe func(limit *descriptor.Limit, allowed, denied uint64)

	// Failed, if set, is told of errors of Buckets. It must be quick.
	Failed func(error)
}

const (
	defaultTTL = 5 * time.Second
	leastTTL   = 4 * time.Second
	longestTTL = time.Minute

	// Grace is how much later than sent an assignment may begin to be used, on top of its TTL:
	// for messages on their way, and for timers of busy proxies.
	Grace = time.Second

	// Idle is how long a bucket without requests is remembered.
	Idle = 10 * time.Minute

	defaultBorrowers = 1_000
	defaultBuckets   = 10_000
	defaultTotal     = 100_000
)

// Bounds of the name of a bucket.
const (
	MaxPairs = descriptor.MaxUnordered
	MaxBytes = 1 << 10 // of all keys and values together
)

// Book knows who was lent what. It is safe for concurrent use.
type Book struct {
	o      Options
	ids    *key.Hasher
	number atomic.Uint32
	counts counts

	mu        sync.Mutex
	accounts  map[key.Key]*account // guarded by mu
	deserted  map[key.Key]*account // guarded by mu; those of accounts that nobody borrows of
	swept     int64                // guarded by mu; when the latter were last looked at
	borrowers int                  // guarded by mu
	buckets   int                  // guarded by mu; of all borrowers
}

type counts struct {
	lent, returned, late, refused, failed, grants, denials, abandoned atomic.Uint64
}

// Status is how a Book stands. Those that end in -s of what happened only grow.
type Status struct {
	Borrowers int // now
	Buckets   int // now, of all of them

	Lent     uint64 // tokens
	Returned uint64 // tokens that were given back to their buckets, because nobody used them
	// tokens that were charged afterwards: admitted without any, as a borrower does before its
	// first assignment
	Late      uint64
	Grants    uint64 // assignments of tokens
	Denials   uint64 // assignments that deny all
	Abandoned uint64 // buckets that were not asked for any more
	Refused   uint64 // reports of buckets beyond a bound
	Failed    uint64 // reports that were not answered because the store could not be asked
}

// New returns a Book, or an error that names every field at fault.
func New(o Options) (*Book, error) {
	var errs []error
	if o.Limits == nil || o.Buckets == nil || o.Name == nil || o.Now == nil {
		errs = append(errs, errors.New("one of Limits, Buckets, Name and Now is nil, want all"))
	}
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	if o.TTL < leastTTL || o.TTL > longestTTL || o.TTL%time.Second != 0 {
		errs = append(errs, fmt.Errorf("TTL is %v, want whole seconds, %v to %v", o.TTL, leastTTL, longestTTL))
	}
	for _, n := range []struct {
		name  string
		value *int
		most  int
	}{{"MaxBorrowers", &o.MaxBorrowers, defaultBorrowers}, {"MaxBuckets", &o.MaxBuckets, defaultBuckets},
		{"MaxTotal", &o.MaxTotal, defaultTotal}} {
		if *n.value == 0 {
			*n.value = n.most
		}
		if *n.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %d, want 1 or more, or 0 for %d", n.name, *n.value, n.most))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("quota options: %w", err)
	}
	if o.Replicas == nil {
		o.Replicas = func() int { return 1 }
	}
	if o.Observe == nil {
		o.Observe = func(*descriptor.Limit, uint64, uint64) {}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	b := &Book{o: o, ids: key.NewHasher(), accounts: map[key.Key]*account{}, deserted: map[key.Key]*account{}}
	b.number.Store(rand.Uint32N(maxNumber)) // so that a borrower that was lent by another one meets no number twice
	return b, nil
}

// Status says how the Book stands.
func (b *Book) Status() Status {
	c := &b.counts
	s := Status{
		Lent: c.lent.Load(), Returned: c.returned.Load(), Late: c.late.Load(), Grants: c.grants.Load(),
		Denials:   c.denials.Load(),
		Abandoned: c.abandoned.Load(), Refused: c.refused.Load(), Failed: c.failed.Load(),
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Borrowers, s.Buckets = b.borrowers, b.buckets
	return s
}

// Excess is how many tokens of a bucket all borrowers together may admit in any interval, besides its burst and
// what its rate gives in that interval: what drains in a TTL and Grace, rounded up.
func Excess(shape rate.Shape, ttl time.Duration) int64 {
	drained, unit := shape.Drained(ttl+Grace), shape.Unit
	return drained/unit + min(1, drained%unit)
}

// lasts is how long tokens may be used after their assignment was sent, in nanoseconds.
func (b *Book) lasts() int64 { return int64(b.o.TTL + Grace) }

// maxNumber is the number of numbers of assignments.
const maxNumber = 999_999_999

// next is the number of another assignment, 1 to maxNumber.
func (b *Book) next() uint32 { return b.number.Add(1)%maxNumber + 1 }

// join finds the account of a bucket, or opens one, for one more loan.
func (b *Book) join(name key.Key) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.accounts[name]
	if a == nil {
		a = &account{name: name}
		b.accounts[name] = a
	}
	a.loanCount++
	delete(b.deserted, name)
	return a
}

// leave is for a loan that has left an account, in which tokens are outstanding until a time.
func (b *Book) leave(a *account, until, now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.loanCount--
	a.keep = max(a.keep, until)
	if a.loanCount == 0 {
		b.deserted[a.name] = a
	}
	if now-b.swept < int64(time.Second) && now >= b.swept {
		return
	}
	b.swept = now
	for name, a := range b.deserted {
		if a.keep <= now {
			delete(b.deserted, name)
			delete(b.accounts, name)
		}
	}
}

// room takes a place for a bucket, if there is one.
func (b *Book) room() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buckets >= b.o.MaxTotal {
		return false
	}
	b.buckets++
	return true
}

func (b *Book) free(n int) {
	b.mu.Lock()
	b.buckets -= n
	b.mu.Unlock()
}

// failed notes an error of the store.
func (b *Book) failed(err error) {
	b.counts.failed.Add(1)
	b.o.Failed(err)
}

// correct adds units of debt to the bucket of a take, or takes them off when below zero.
func (b *Book) correct(ctx context.Context, now int64, t *bucket.Take, units, charged int64) error {
	if units == 0 {
		return nil
	}
	change := []bucket.Change{{
		Key: t.Key, Shape: t.Shape, Tag: t.Tag, Reach: t.Reach, Since: t.Since, Before: t.Before, Units: units,
		Charged: charged,
	}}
	return b.o.Buckets.Correct(ctx, now, change, make([]int64, 1))
}
