package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
)

// AuthorityOptions configures an Authority. Every zero value is a safe default.
type AuthorityOptions struct {
	// TTL is that of the leases. An answer is remembered four times as long, while a replica may ask the same again: each takes some 150 bytes
	// of the server's memory for that time. Default 100 ms.
	TTL time.Duration

	// Now tells the time, in Unix nanoseconds, to a Store with Options.CallersClock. Others ask the server, and need none.
	Now func() int64
}

// Authority answers questions for leases on the buckets of a Store. A lease and a decision of the Store about one bucket see the same debt, so rules
// may change between both. It is safe for concurrent use.
type Authority struct {
	store *Store
	keep  time.Duration
	now   func() int64
}

var _ lease.Authority = (*Authority)(nil)

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

// Ask answers a question about the bucket of a take. An error is an *Error if the server could not answer; whether the question was charged is not known
// then, and asking it again under its number finds out. If the server loses its memory in between, or the answer came to be as old as it is remembered,
// it is charged twice: tokens are lost, and none is made.
func (a *Authority) Ask(ctx context.Context, replica uint64, of bucket.Take, q lease.Question) (lease.Answer, error) {
	of.Cost = 0
	claims, _, err := a.store.merge([]bucket.Take{of})
	if err != nil {
		return lease.Answer{}, err
	}
	c := &claims[0]
	if q.Seq == 0 {
		q.Want = 0 // a look
	}
	keys := []string{c.key}
	if q.Seq > 0 {
		keys = append(keys, string(binary.BigEndian.AppendUint64([]byte(c.key), replica)))
	}
	args := []string{a.question(c, q)}
	for range attempts {
		answer, err := a.store.run(ctx, grantScript, keys, args)
		if err != nil {
			return lease.Answer{}, err
		}
		switch {
		case answer[1] == int64(-2) && len(answer) == 3:
			return remembered(answer[2], keys, q)
		case answer[1] == int64(-1):
			if args, err = a.store.restated(answer, []*claim{c}, args); err != nil {
				return lease.Answer{}, err
			}
			continue
		}
		if len(answer) != 4 {
			return lease.Answer{}, unreadable(answer)
		}
		tokens, ok := number(answer[1])
		if !ok || !c.read(answer[0], answer[2], answer[3]) {
			return lease.Answer{}, unreadable(answer)
		}
		return inMicros(q.Answer(tokens, c.at, c.shape.Shape, c.state)), nil
	}
	return lease.Answer{}, &Error{Busy, errRestless}
}

// question is q as the script reads it. More than the burst can neither be had nor needed.
func (a *Authority) question(c *claim, q lease.Question) string {
	most := c.shape.Burst() + 1
	var room [128]byte
	arg := appendDoubles(room[:0], a.store.time(a.now()), int64(q.Seq>>32), int64(q.Seq&(1<<32-1)), min(max(0, q.Want), most), min(max(0, q.Need), most),
		c.since(), c.shape.Drain, micros(c.shape.Tick), c.shape.Capacity, c.shape.Unit, a.keep.Milliseconds())
	return string(append(arg, c.shape.name...))
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
	return inMicros(q.Answer(tokens, at*1000, shape, left)), nil
}

// inMicros rounds waits up to whole microseconds, as the server's clock shows when they are over.
func inMicros(a lease.Answer) lease.Answer {
	a.Wait, a.Reset = roundUp(a.Wait), roundUp(a.Reset)
	return a
}
