package quota

import (
	"slices"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/descriptor"
)

// account is a bucket, and who borrows of it.
type account struct {
	name key.Key

	loanCount int   // guarded by Book.mu
	keep      int64 // guarded by Book.mu; until when tokens are outstanding that nobody answers for

	mu      sync.Mutex // held while the store is asked, so that what is outstanding is what it was asked for
	loans   []*loan    // guarded by mu
	orphans []batch    // guarded by mu; of borrowers that are gone, or that hold another bucket now
}

// loan is what one borrower has of one bucket. It is guarded by the mutex of its account.
type loan struct {
	account *account

	// What may be outstanding, the oldest first.
	batches []batch

	// The last assignment.
	kind   Kind
	number uint32
	size   int64 // tokens
	used   int64 // of them, as far as reports say
	began  int64 // when it was sent first
	sent   int64 // and last
	shape  rate.Shape

	// What was reported: requests of the last interval, and of the one before.
	lately, before int64
	every          int64 // nanoseconds between the last two reports; 0 until there are two
	reported       int64 // when the last report came
	asked          int64 // when the last one came that had requests
	turn           int64 // when it was last looked at whether it needs more
	hungry         bool  // had less than it wanted

	entries []descriptor.Entry // the name of the bucket

	owed int64 // tokens admitted without any that could not be charged yet
}

// batch is some tokens that may be outstanding.
type batch struct {
	tokens  int64
	until   int64 // when they are not any more
	number  uint32
	charged int64 // when they were taken out of the bucket, which was charged units
	units   int64
	shape   rate.Shape
}

// maxBatches bounds what is remembered of a loan. There is one for each report of a TTL, as a rule.
const maxBatches = 16

// note notes a report of so many requests, some of them admitted.
func (l *loan) note(now, requests, allowed int64) {
	since := l.reported
	if l.reported != 0 {
		l.every = max(0, now-l.reported)
	}
	l.before, l.lately, l.reported = l.lately, requests, now
	if requests > 0 {
		l.asked = now
	}
	if l.kind != Tokens || since == 0 { // all of it was before the first assignment
		return
	}
	if every := max(1, l.every); l.began > since {
		allowed = portion(allowed, min(every, now-l.began), every) // the rest was of the assignment before
	}
	l.used = min(l.size, l.used+allowed)
}

// portion is n·part/whole, rounded up.
func portion(n, part, whole int64) int64 { return bucket.Rescale(n, part, whole, true) }

// pace is how many requests to expect in a period of the time ahead: as many as lately, and for an
// interval in which there were fewer half as many as before it.
func (l *loan) pace(period int64) int64 {
	n, every := max(l.lately, l.before/2), l.every
	if every == 0 {
		every = int64(time.Second) // of the first report, which came with the first request
	}
	return portion(n, period, every)
}

// rest is how much is left of the last assignment, as far as reports and the pace tell.
func (l *loan) rest(now int64) int64 {
	return max(0, l.size-l.used-l.pace(max(0, now-max(l.sent, l.reported))))
}

// spend notes that tokens were used, and returns how many of them nobody was lent. The oldest go
// first: then what is left is good for longest, so that it is overestimated, if anything.
func spend(batches []batch, tokens int64) (_ []batch, over int64) {
	for i := range batches {
		b := &batches[i]
		n := min(tokens, b.tokens)
		b.tokens -= n
		tokens -= n
	}
	return slices.DeleteFunc(batches, func(b batch) bool { return b.tokens == 0 }), tokens
}

// hold adds a batch.
func (l *loan) hold(b batch) {
	if len(l.batches) >= maxBatches {
		l.batches = merge(l.batches)
	}
	l.batches = append(l.batches, b)
}

// merge makes one of the two oldest batches: outstanding for longer, and charged earlier.
func merge(batches []batch) []batch {
	a, b := batches[0], batches[1]
	b.tokens += a.tokens
	b.until = max(a.until, b.until)
	if b.shape == a.shape {
		b.units += a.units
		b.charged = min(a.charged, b.charged)
	} else {
		b.units = 0 // gives nothing back
	}
	batches[1] = b
	return batches[1:]
}

// prolong has the last assignment end at a later time.
func (l *loan) prolong(now, until int64) {
	for i := range l.batches {
		if l.batches[i].number == l.number {
			l.batches[i].until = until
		}
	}
	l.sent = now
}

// outstanding is how many tokens may be used yet, of all borrowers. Those of batches that have ended count in
// loans until their borrower reports.
func (a *account) outstanding(now int64) (tokens int64) {
	a.orphans = slices.DeleteFunc(a.orphans, func(b batch) bool { return b.until <= now })
	for _, b := range a.orphans {
		tokens += b.tokens
	}
	for _, l := range a.loans {
		for _, b := range l.batches {
			if b.until > now {
				tokens += b.tokens
			}
		}
	}
	return tokens
}

// whole is a turn of a borrower, as wanting counts them.
const whole = 1 << 10

// wanting counts the borrowers that have requests, l among them in any case, and tells whether
// one of the others has less than it wanted. Turns are how much of what is left is the others' until
// it is l's turn again, in parts of whole, and l's own: of one that has just had its turn nothing, of one
// whose turn is about to come a whole.
func (a *account) wanting(l *loan, now int64) (n, turns int64, hungry bool) {
	n, turns = 1, whole
	for _, other := range a.loans {
		if other == l || now-other.reported >= int64(patience) || other.pace(int64(Turn)) == 0 {
			continue
		}
		n++
		hungry = hungry || other.hungry
		turns += whole * min(max(0, now-other.turn), int64(Turn)) / int64(Turn)
	}
	return n, turns, hungry
}

// desert takes a loan out of its account, where its tokens stay until they end. It returns when that is.
func (l *loan) desert(now int64) (until int64) {
	a := l.account
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loans = slices.DeleteFunc(a.loans, func(other *loan) bool { return other == l })
	a.orphans = slices.DeleteFunc(append(a.orphans, l.batches...), func(b batch) bool { return b.until <= now })
	for len(a.orphans) > maxBatches {
		a.orphans = merge(a.orphans)
	}
	l.batches, l.kind, l.size, l.used = nil, Nothing, 0, 0
	for _, b := range a.orphans {
		until = max(until, b.until)
	}
	return until
}
