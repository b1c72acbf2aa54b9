package quota

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/server/descriptor"
)

// Kind is what an assignment has a borrower do.
type Kind uint8

const (
	Nothing  Kind = iota // go on as before: it is none
	Tokens               // admit as many requests
	AllowAll             // of no limit
	DenyAll              // there is nothing to be had
	Abandon              // forget the bucket
)

// Assignment is the answer to a report of a bucket.
type Assignment struct {
	Kind   Kind
	Tokens uint32        // to be had at once; nothing is added to them
	Number uint32        // 1 to 999,999,999: the same again prolongs, another one takes the place of the one before
	TTL    time.Duration // from when it comes; whole seconds
	Again  bool          // it is the one before, and prolongs it
}

// Usage is a report of a bucket.
type Usage struct {
	Bucket          []descriptor.Entry // in the order of their keys, each once; 1 to MaxPairs
	Allowed, Denied uint64             // requests since the last report
}

// Borrower is one who decides by itself, about requests of one domain. It is not safe for
// concurrent use.
type Borrower struct {
	book   *Book
	domain string
	loans  map[key.Key]*loan
	id     []byte
}

// ErrFull is that there are as many borrowers as the Book takes.
var ErrFull = errors.New("there are too many borrowers")

// Open admits a borrower. Close has to be called at its end.
func (b *Book) Open(domain string) (*Borrower, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.borrowers >= b.o.MaxBorrowers {
		return nil, ErrFull
	}
	b.borrowers++
	return &Borrower{book: b, domain: domain, loans: map[key.Key]*loan{}}, nil
}

// Close forgets the borrower. What it was lent may be in use until it ends, and counts as used.
func (r *Borrower) Close() {
	for id, l := range r.loans {
		r.drop(id, l)
	}
	r.book.mu.Lock()
	r.book.borrowers--
	r.book.mu.Unlock()
}

func (r *Borrower) drop(id key.Key, l *loan) {
	delete(r.loans, id)
	r.part(l)
	r.book.free(1)
}

// part takes a loan out of the account that it is in.
func (r *Borrower) part(l *loan) {
	if l.account != nil {
		now := r.book.o.Now()
		r.book.leave(l.account, l.desert(now), now)
		l.account = nil
	}
}

// mostReported bounds what one report can say of one bucket.
const mostReported = 1 << 40

// Report takes a report of a bucket, and answers it. A bucket beyond a bound is denied, without
// being remembered, and abandoned once nobody asks for it. An error of the store is no answer: then
// what was lent goes on until it ends.
func (r *Borrower) Report(ctx context.Context, u Usage) Assignment {
	b, now := r.book, r.book.o.Now()
	allowed, denied := int64(min(u.Allowed, mostReported)), int64(min(u.Denied, mostReported))
	id := r.name(u.Bucket)
	l := r.loans[id]
	if l == nil {
		if !fits(u.Bucket) || !r.admit(now) {
			b.counts.refused.Add(1)
			return r.refuse(allowed + denied)
		}
		l = &loan{asked: now, entries: slices.Clone(u.Bucket)}
		r.loans[id] = l
	}
	limit, ordered := b.o.Limits().FindAnyOrder(r.domain, u.Bucket)
	if limit != nil {
		b.o.Observe(limit, uint64(allowed), uint64(denied))
	}
	if l.account != nil { // others look at what this one has
		l.account.mu.Lock()
	}
	l.note(now, allowed+denied, allowed)
	if l.account != nil {
		l.account.mu.Unlock()
	}
	if now-l.asked >= int64(Idle) {
		return r.idle(ctx, now, id, l, r.take(limit, ordered))
	}
	return r.decide(ctx, now, l, limit, ordered, allowed, true)
}

// Turn is how often to call Turns.
const Turn = time.Second

// patience is for how long a bucket is lent to that was not reported. Envoy 1.40 reports every five
// seconds, whatever its configuration says.
const patience = 12 * time.Second

// Turns looks once more at what was reported lately, and tells of each bucket that has something
// else to do than before: what it was lent is used up by now, to all appearance, or ends soon. So
// the time between two reports may be longer than it takes to use up a burst, or than the TTL. A
// bucket that is not reported any more gets nothing, and ends.
func (r *Borrower) Turns(ctx context.Context, tell func([]descriptor.Entry, Assignment)) {
	b, now := r.book, r.book.o.Now()
	limits := b.o.Limits()
	for id, l := range r.loans {
		switch silent := now - l.reported; {
		case silent >= int64(Idle):
			r.drop(id, l)
			continue
		case silent >= int64(patience) || silent < int64(Turn)/2:
			continue
		}
		limit, ordered := limits.FindAnyOrder(r.domain, l.entries)
		if got := r.decide(ctx, now, l, limit, ordered, 0, false); got.Kind != Nothing {
			tell(l.entries, got)
		}
	}
}

// decide says what a bucket is to do, which was reported just now to have admitted so many
// requests, or was not reported.
func (r *Borrower) decide(ctx context.Context, now int64, l *loan, limit *descriptor.Limit, ordered []descriptor.Entry,
	allowed int64, reported bool) Assignment {
	switch {
	case limit == nil || limit.Unlimited || limit.Shadow:
		if limit != nil && limit.Shadow && limit.Shape.Unit > 0 {
			r.shadow(ctx, now, r.take(limit, ordered), allowed)
		}
		r.part(l)
		return r.blanket(now, l, AllowAll)
	case limit.Nothing:
		r.part(l)
		return r.blanket(now, l, DenyAll)
	}
	take := r.take(limit, ordered)
	if l.account != nil && l.account.name != take.Key {
		r.part(l)
	}
	if l.account == nil {
		l.account = r.book.join(take.Key)
		l.account.mu.Lock()
		l.account.loans = append(l.account.loans, l)
		l.account.mu.Unlock()
	}
	return r.lend(ctx, now, l, take, allowed, reported)
}

// name is what a bucket is known by: its entries, each with its length, in the order of their keys.
func (r *Borrower) name(entries []descriptor.Entry) key.Key {
	r.id = r.id[:0]
	for _, e := range entries {
		r.id = fmt.Appendf(r.id, "%d:%s%d:%s", len(e.Key), e.Key, len(e.Value), e.Value)
	}
	return r.book.ids.Key(0, 0, r.id)
}

// fits reports whether the name of a bucket is within its bounds.
func fits(entries []descriptor.Entry) bool {
	n := 0
	for _, e := range entries {
		n += len(e.Key) + len(e.Value)
	}
	return len(entries) <= MaxPairs && n <= MaxBytes
}

// looked is how many buckets are looked at for one that is idle, to make room for another.
const looked = 8

// admit makes room for one more bucket. One that had no requests for a TTL gives way.
func (r *Borrower) admit(now int64) bool {
	if len(r.loans) < r.book.o.MaxBuckets && r.book.room() {
		return true
	}
	n := 0
	for id, l := range r.loans { // in an order that nobody can foresee
		if now-l.asked > int64(r.book.o.TTL) {
			r.drop(id, l)
			return r.book.room()
		}
		if n++; n == looked {
			break
		}
	}
	return false
}

// refuse answers for a bucket that is not remembered.
func (r *Borrower) refuse(requests int64) Assignment {
	if requests == 0 {
		return Assignment{Kind: Abandon}
	}
	r.book.counts.denials.Add(1)
	return Assignment{Kind: DenyAll, TTL: r.book.o.TTL}
}

func (r *Borrower) take(limit *descriptor.Limit, ordered []descriptor.Entry) bucket.Take {
	if limit == nil {
		return bucket.Take{}
	}
	t := bucket.Take{Shape: limit.Shape, Since: limit.Since, Before: limit.Before, Reach: r.book.o.Reach}
	t.Key, t.Tag = r.book.o.Name(r.domain, limit.Subject(nil, ordered))
	return t
}

// shadow charges what a limit that refuses nothing would have let pass.
func (r *Borrower) shadow(ctx context.Context, now int64, t bucket.Take, allowed int64) {
	if t.Cost = min(allowed, t.Shape.Burst()); t.Cost > 0 {
		t.Shadow = true
		if _, err := r.book.o.Buckets.TryConsume(ctx, now, []bucket.Take{t}, make([]bucket.Outcome, 1)); err != nil {
			r.book.failed(err)
		}
	}
}

// blanket answers the same for every request.
func (r *Borrower) blanket(now int64, l *loan, kind Kind) Assignment {
	if l.kind == kind && !r.due(now, l) {
		return Assignment{}
	}
	if kind == DenyAll {
		r.book.counts.denials.Add(1)
	}
	l.kind, l.size, l.used, l.sent = kind, 0, 0, now
	return Assignment{Kind: kind, TTL: r.book.o.TTL}
}

// due reports whether an assignment has to be sent again, so that it does not end before the next turn, and some time
// is left for what is on its way.
func (r *Borrower) due(now int64, l *loan) bool { return 2*(now-l.sent) >= int64(r.book.o.TTL) }

// idle takes back what an idle bucket has, and abandons it when that has ended: then what nobody used is in
// the bucket again.
func (r *Borrower) idle(ctx context.Context, now int64, id key.Key, l *loan, t bucket.Take) Assignment {
	if a := l.account; a != nil {
		a.mu.Lock()
		r.settle(ctx, now, l, &t, 0)
		left := len(l.batches)
		a.mu.Unlock()
		if left > 0 {
			return r.blanket(now, l, DenyAll)
		}
	}
	r.drop(id, l)
	r.book.counts.abandoned.Add(1)
	return Assignment{Kind: Abandon}
}

// settle accounts for what was admitted: out of what was lent, else out of what a borrower was lent that is
// gone, which may be this one, else it is charged now. What ended unused goes back to the bucket, less what
// has drained since it was taken: before a report nobody knows that it was not used. The account is locked.
func (r *Borrower) settle(ctx context.Context, now int64, l *loan, t *bucket.Take, allowed int64) {
	b, a := r.book, l.account
	over := allowed
	l.batches, over = spend(l.batches, over)
	a.orphans, over = spend(a.orphans, over)
	if l.owed = min(l.owed+over, mostReported); l.owed > 0 && t.Shape.Unit > 0 {
		if err := b.correct(ctx, now, t, t.Shape.UnitsSaturating(l.owed), 0); err != nil {
			b.failed(err)
		} else {
			b.counts.late.Add(uint64(l.owed))
			l.owed = 0
		}
	}
	l.batches = slices.DeleteFunc(l.batches, func(old batch) bool {
		if old.until > now {
			return false
		}
		if back, ok := old.shape.Units(old.tokens); ok && old.shape == t.Shape && t.Since <= old.charged {
			if units := bucket.Unspent(old.shape, old.shape, old.units, back, old.charged, now); units > 0 {
				if err := b.correct(ctx, now, t, -units, old.charged); err != nil {
					b.failed(err) // then it stays charged
				} else {
					b.counts.returned.Add(uint64(units / old.shape.Unit))
				}
			}
		}
		return true
	})
}

// lend says what a bucket is to do that has a limit.
func (r *Borrower) lend(ctx context.Context, now int64, l *loan, t bucket.Take, allowed int64,
	reported bool) Assignment {
	b, a := r.book, l.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if reported {
		r.settle(ctx, now, l, &t, allowed)
	}

	// An assignment that may have ended by the time the answer comes is not prolonged: under the
	// same number it would be full again.
	alive := l.kind == Tokens && l.shape == t.Shape && now-l.sent < int64(b.o.TTL)*3/4
	rest := int64(0)
	if alive {
		rest = l.rest(now)
	}
	pace := l.pace(int64(Turn))
	need := pace + pace/2
	due := r.due(now, l)
	switch {
	case alive && rest >= max(1, need) && !due:
		l.hungry = false
		return Assignment{}
	case pace == 0 && l.kind == DenyAll: // until somebody asks
		l.hungry = false
		return r.blanket(now, l, DenyAll)
	}
	out := make([]bucket.Outcome, 1)
	if _, err := b.o.Buckets.Peek(ctx, now, []bucket.Take{t}, out); err != nil {
		b.failed(err)
		return Assignment{}
	}
	left, reset := out[0].Remaining, out[0].ResetAfter
	replicas := int64(max(1, b.o.Replicas()))
	wanting, turns, hungry := a.wanting(l, now)
	l.turn = now
	parts := wanting * replicas
	fair := left / (2 * parts)
	if rest < max(1, need) || pace > 0 && rest < fair/4 {
		ask := max(need+1, fair)
		scarce := left/parts < ask
		if scarce {
			ask = min(pace+pace/8+1, max(1, left*whole/turns))
		}
		if ask = min(ask, left); ask > rest && !(scarce && ask < 2*rest) {
			if got, err := r.draw(ctx, now, t, ask, out); err != nil {
				b.failed(err)
				return Assignment{}
			} else if got > 0 {
				l.hungry = got < pace
				return r.grant(now, l, &t, got)
			}
		}
	}
	l.hungry = rest < pace
	switch {
	case !alive, due && rest > 0 && pace == 0 && hungry && left == 0: // the latter gives up what another one waits for
		return r.blanket(now, l, DenyAll)
	case !due:
		return Assignment{}
	}

	// To prolong it, the bucket has to owe what is outstanding: what was taken for that has drained
	// meanwhile, as far as nobody else owes it. What is outstanding is overestimated; another
	// assignment may cost less.
	owed := t.Shape.Drained(max(0, reset-stamped)) // at least
	outstanding := a.outstanding(now) * replicas
	units := t.Shape.UnitsSaturating(outstanding) - owed
	if units > t.Shape.UnitsSaturating(rest) {
		got, err := r.draw(ctx, now, t, min(max(rest, need+1), left), out)
		switch {
		case err != nil:
			b.failed(err)
			return Assignment{}
		case got > 0:
			return r.grant(now, l, &t, got)
		case outstanding > t.Shape.Burst():
			return r.blanket(now, l, DenyAll)
		}
	}
	if err := b.correct(ctx, now, &t, max(0, units), 0); err != nil {
		b.failed(err)
		return Assignment{}
	}
	l.prolong(now, now+b.lasts())
	again := r.last(l)
	again.Again = true
	return again
}

// stamped is how much later than it is a store may say that a bucket is full: they count in milliseconds, and
// round up.
const stamped = 2 * time.Millisecond

// draw takes tokens out of a bucket: as many as are asked for, or what is there.
func (r *Borrower) draw(ctx context.Context, now int64, t bucket.Take, ask int64,
	out []bucket.Outcome) (got int64, err error) {
	for range 2 {
		ask = min(ask, t.Shape.Burst(), math.MaxUint32)
		if t.Cost = ask; ask < 1 {
			return 0, nil
		}
		ok, err := r.book.o.Buckets.TryConsume(ctx, now, []bucket.Take{t}, out)
		if err != nil || ok {
			return ask, err
		}
		ask = min(ask, out[0].Remaining) // others were quicker
	}
	return 0, nil
}

// grant assigns tokens that were taken out of the bucket at now.
func (r *Borrower) grant(now int64, l *loan, t *bucket.Take, tokens int64) Assignment {
	b := r.book
	units, _ := t.Shape.Units(tokens)
	l.kind, l.number, l.size, l.used, l.began, l.sent, l.shape = Tokens, b.next(), tokens, 0, now, now, t.Shape
	l.hold(batch{tokens: tokens, until: now + b.lasts(), number: l.number, charged: now, units: units, shape: t.Shape})
	b.counts.grants.Add(1)
	b.counts.lent.Add(uint64(tokens))
	return r.last(l)
}

// last is the last assignment of tokens once more.
func (r *Borrower) last(l *loan) Assignment {
	return Assignment{Kind: Tokens, Tokens: uint32(l.size), Number: l.number, TTL: r.book.o.TTL}
}
