package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/rate"
)

// AuthorityOptions configures an Authority. Every zero value is a safe default.
type AuthorityOptions struct {
	// TTL is that of the leases. An answer is remembered four times as long, while a replica may
	// ask the same again: each takes some 150 bytes of the server's memory for that time. Default
	// 100 ms.
	TTL time.Duration

	// Now tells the time, in Unix nanoseconds, to a Store with Options.CallersClock. Others ask the
	// server, and need none.
	Now func() int64
}

// Authority answers questions for leases on the buckets of a Store. A lease and a decision of the
// Store about one bucket see the same debt, so rules may change between both. It is safe for
// concurrent use.
type Authority struct {
	store *Store
	keep  time.Duration
	now   func() int64
}

var _ lease.Batcher = (*Authority)(nil)

// NewAuthority makes an Authority, or says everything that is wrong with o.
func NewAuthority(s *Store, o AuthorityOptions) (*Authority, error) {
	var errs []error
	if s == nil {
		errs = append(errs, errors.New("the store is nil, want one"))
	}
	if o.TTL == 0 {
		o.TTL = lease.Terms{}.Complete().TTL
	}
	if o.TTL < time.Millisecond || o.TTL > time.Minute {
		errs = append(errs, fmt.Errorf("TTL is %v, want 1ms to 1m", o.TTL))
	}
	if s != nil && s.callers && o.Now == nil {
		errs = append(errs, errors.New("Now is nil, want a clock: the store has CallersClock"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("redis lease authority: %w", errors.Join(errs...))
	}
	if !s.callers {
		o.Now = func() int64 { return 0 }
	}
	return &Authority{s, 4 * o.TTL, o.Now}, nil
}

// Ask answers a question about the bucket of a take. An error is an *Error if the server could not
// answer; whether the question was charged is not known then, and asking it again under its number
// finds out. If the server loses its memory in between, or the answer came to be as old as it is
// remembered, it is charged twice: tokens are lost, and none is made.
func (a *Authority) Ask(ctx context.Context, replica uint64, of bucket.Take, q lease.Question) (lease.Answer, error) {
	p, err := a.pose(replica, of, q)
	if err != nil {
		return lease.Answer{}, err
	}
	return a.ask(ctx, p)
}

// AskAll answers many questions by one script; in a cluster by one for every tag. Questions about
// one bucket are not asked together.
func (a *Authority) AskAll(ctx context.Context, replica uint64, asked []lease.Asked) {
	groups := tagged[*posed]{cluster: a.store.cluster}
	for i := range asked {
		p, err := a.pose(replica, asked[i].Of, asked[i].Question)
		if err != nil {
			asked[i].Err = err
			continue
		}
		p.asked = &asked[i]
		asked[i].Message = groups.add(asked[i].Of.Tag, p)
	}
	groups.each(func(group []*posed) { a.askGroup(ctx, group) })
}

// posed is a question as it is sent.
type posed struct {
	q     lease.Question
	claim *claim
	keys  []string // the bucket's, and the last answer's
	arg   string
	asked *lease.Asked
}

func (a *Authority) pose(replica uint64, of bucket.Take, q lease.Question) (*posed, error) {
	of.Cost = 0
	claims, _, err := a.store.merge([]bucket.Take{of})
	if err != nil {
		return nil, err
	}
	c := claims[0]
	if q.Seq == 0 {
		q.Want = 0 // a look
	}
	keys := []string{c.key, string(binary.BigEndian.AppendUint64([]byte(c.key), replica))}
	return &posed{q: q, claim: c, keys: keys, arg: a.question(c, q)}, nil
}

// ask asks one question, also about a bucket that was left under another limit.
func (a *Authority) ask(ctx context.Context, p *posed) (lease.Answer, error) {
	args := []string{p.arg}
	for n := range attempts {
		answer, dates, err := a.store.runDated(ctx, p.claim.take.Tag, grantScript, p.keys, args)
		if err != nil {
			return lease.Answer{}, err
		}
		if len(answer) != answered {
			return lease.Answer{}, unreadable(answer)
		}
		if answer[1] != int64(-1) {
			return p.read(answer)
		}
		if args, err = a.store.restated(ctx, answer, dates, []*claim{p.claim}, args, p.q.Seq > 0 &&
			n == 0); err != nil {
			return lease.Answer{}, err
		}
	}
	return lease.Answer{}, &Error{Busy, errRestless}
}

// askGroup asks questions together, and those about buckets that were left under another limit once more by themselves.
func (a *Authority) askGroup(ctx context.Context, group []*posed) {
	var keys, args []string
	for _, p := range group {
		keys, args = append(keys, p.keys...), append(args, p.arg)
	}
	answer, _, err := a.store.runDated(ctx, group[0].claim.take.Tag, grantScript, keys, args)
	if err == nil && len(answer) != answered*len(group) {
		err = unreadable(answer)
	}
	var why *Error
	// under one of the names: what came before it was done, and is not done twice
	foreign := errors.As(err, &why) && why.Cause == ForeignValue
	for i, p := range group {
		switch {
		case foreign:
			p.asked.Answer, p.asked.Err = a.ask(ctx, p)
		case err != nil:
			p.asked.Err = err
		case answer[answered*i+1] == int64(-1):
			p.asked.Answer, p.asked.Err = a.ask(ctx, p)
		default:
			p.asked.Answer, p.asked.Err = p.read(answer[answered*i : answered*(i+1)])
		}
	}
}

// answered is how many values the script answers to a question.
const answered = 4

// read reads what the script answered, unless that is that the bucket was left under another limit.
func (p *posed) read(answer []any) (lease.Answer, error) {
	if answer[1] == int64(-2) {
		got, err := remembered(answer[2], p.keys, p.q)
		return p.inTime(got), err
	}
	tokens, ok := number(answer[1])
	if !ok || !p.claim.read(answer[0], answer[2], answer[3]) {
		return lease.Answer{}, unreadable(answer)
	}
	return p.inTime(p.q.Answer(tokens, p.claim.at, p.claim.shape.Shape, p.claim.state)), nil
}

// question is q as the script reads it. More than the burst can neither be had nor needed.
func (a *Authority) question(c *claim, q lease.Question) string {
	most := c.shape.Burst() + 1
	var room [320]byte
	moment := a.store.moment(a.now())
	age, back := c.age(moment)
	var spans [rate.MaxSpans]rate.Span
	slow := slownessOf(spans[:0], &c.take, moment)
	arg := appendDoubles(room[:0], a.store.time(a.now()), int64(q.Seq>>32), int64(q.Seq&(1<<32-1)),
		min(max(0, q.Want), most), min(max(0, q.Need), most),
		age, back, c.shape.Drain, micros(c.shape.Tick), c.shape.Capacity, c.shape.Unit, a.keep.Milliseconds(),
		slow.code())
	return string(append(slow.appendTo(arg), c.shape.name...))
}

// kept is the length of an answer as the script keeps it, before the bytes of the shape.
const kept = 8 + 4*stateLength/2

// remembered is the answer that is kept for q: to q itself, or "" to a later question.
func remembered(answer any, keys []string, q lease.Question) (lease.Answer, error) {
	value, ok := answer.(string)
	switch {
	case !ok:
		return lease.Answer{}, unreadable([]any{answer})
	case value == "":
		return lease.Answer{Seq: q.Seq}, nil // nobody waits for it
	case len(value) < kept:
		return lease.Answer{}, foreign(keys[1])
	}
	shape, ok := readName(value[kept:])
	tokens, at := sevenBytes(value[8:]), sevenBytes(value[15:])
	left := bucket.State{Debt: sevenBytes(value[22:]), Stamp: sevenBytes(value[29:]) * 1000}
	if !ok || max(tokens, at, left.Debt, left.Stamp/1000) >= exact {
		return lease.Answer{}, foreign(keys[1])
	}
	return q.Answer(tokens, at*1000, shape, left), nil
}

// inTime has waits be as long as they take at the rate in force, rounded up to whole microseconds, as the
// server's clock shows when they are over.
func (p *posed) inTime(a lease.Answer) lease.Answer {
	l := p.claim.take.Slower()
	a.Wait, a.Reset = roundUp(l.Stretch(a.Wait)), roundUp(l.Stretch(a.Reset))
	return a
}
