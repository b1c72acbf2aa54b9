package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/rate"
)

// LedgerOptions configures a Ledger. Every zero value is a safe default.
type LedgerOptions struct {
	// Keep is how long the number of a replica's last report about a bucket is remembered, at about
	// 100 bytes each: one that was lost and comes again later than that is charged twice, which
	// admits nothing. Default 1s.
	Keep time.Duration

	// Now tells the time, in Unix nanoseconds, to a Store with Options.CallersClock. Others ask the
	// server, and need none.
	Now func() int64
}

// Ledger charges what replicas report of the buckets of a Store. A report and a decision of the
// Store about one bucket see the same debt, so rules may change between both. It is safe for
// concurrent use.
type Ledger struct {
	store *Store
	keep  time.Duration
	now   func() int64
}

var _ report.Authority = (*Ledger)(nil)

// NewLedger makes a Ledger, or says everything that is wrong with o.
func NewLedger(s *Store, o LedgerOptions) (*Ledger, error) {
	var errs []error
	if s == nil {
		errs = append(errs, errors.New("the store is nil, want one"))
	}
	if o.Keep == 0 {
		o.Keep = time.Second
	}
	if o.Keep < time.Millisecond || o.Keep > time.Hour {
		errs = append(errs, fmt.Errorf("Keep is %v, want 1ms to 1h", o.Keep))
	}
	if s != nil && s.callers && o.Now == nil {
		errs = append(errs, errors.New("Now is nil, want a clock: the store has CallersClock"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("redis ledger: %w", errors.Join(errs...))
	}
	if !s.callers {
		o.Now = func() int64 { return 0 }
	}
	return &Ledger{s, o.Keep, o.Now}, nil
}

// ReportAll charges what is told by one script; in a cluster by one for every tag. Each bucket is named once.
func (l *Ledger) ReportAll(ctx context.Context, replica uint64, told []report.Told) {
	groups := tagged[*entry]{cluster: l.store.cluster}
	for i := range told {
		e, err := l.entry(replica, &told[i])
		if err != nil {
			told[i].Err = err
			continue
		}
		told[i].Message = groups.add(told[i].Of.Tag, e)
	}
	groups.each(func(group []*entry) { l.chargeGroup(ctx, group) })
}

// entry is a report as it is sent.
type entry struct {
	told  *report.Told
	claim *claim
	keys  []string // the bucket's, and the number's
	arg   string
}

func (l *Ledger) entry(replica uint64, t *report.Told) (*entry, error) {
	of := t.Of
	of.Cost = 0
	claims, _, err := l.store.merge([]bucket.Take{of})
	if err != nil {
		return nil, err
	}
	c := claims[0]
	sh, seq := c.shape, t.Report.Seq
	var room [320]byte
	moment := l.store.moment(l.now())
	age, back := c.age(moment)
	var spans [rate.MaxSpans]rate.Span
	slow := slownessOf(spans[:0], &c.take, moment)
	arg := appendDoubles(room[:0], l.store.time(l.now()), int64(seq>>32), int64(seq&(1<<32-1)),
		min(sh.UnitsSaturating(t.Report.Tokens), sh.MaxDebt()), sh.MaxDebt(),
		age, back, sh.Drain, micros(sh.Tick), l.keep.Milliseconds(), slow.code())
	mark := append(binary.BigEndian.AppendUint64([]byte(c.key), replica), 'r') // which ends as no lease's answer does
	arg = append(slow.appendTo(arg), sh.name...)
	return &entry{told: t, claim: c, keys: []string{c.key, string(mark)}, arg: string(arg)}, nil
}

// chargeGroup charges reports together, and those about buckets that were left under another limit
// once more by themselves.
func (l *Ledger) chargeGroup(ctx context.Context, group []*entry) {
	var keys, args []string
	for _, e := range group {
		keys, args = append(keys, e.keys...), append(args, e.arg)
	}
	sent := l.store.moment(0)
	answer, err := l.store.run(ctx, reportScript, keys, args)
	t := trip{sent, l.store.moment(0)}
	if err == nil && len(answer) != charged*len(group) {
		err = unreadable(answer)
	}
	var why *Error
	// under one of the names: what came before it was charged, and is not charged twice
	foreign := errors.As(err, &why) && why.Cause == ForeignValue
	for i, e := range group {
		switch {
		case foreign:
			e.told.Err = l.charge(ctx, e, nil, t)
		case err != nil:
			e.told.Err = err
		default:
			e.told.Err = l.charge(ctx, e, answer[charged*i:charged*(i+1)], t)
		}
	}
}

// charged is how many values the script answers to a report.
const charged = 2

// charge reads an answer of a trip, or has one report charged by itself if there is none, or the
// bucket was left under another limit.
func (l *Ledger) charge(ctx context.Context, e *entry, answer []any, t trip) (err error) {
	args := []string{e.arg}
	for n := range attempts {
		if answer != nil {
			value, isString := answer[1].(string)
			left, ok := number(answer[0])
			switch held, changed := strings.CutPrefix(value, "c"); {
			case !ok || !isString || value != "" && !changed:
				return unreadable(answer)
			case value == "":
				debt := bucket.Rescale(left, e.claim.shape.own, e.claim.shape.Unit, true)
				e.told.Answer = report.Answer{Seq: e.told.Report.Seq, Debt: min(debt, e.told.Of.Shape.MaxDebt())}
				return nil
			default:
				found := []any{answer[0], int64(-1), int64(1), held}
				if args, err = l.store.restated(ctx, found, l.store.dates(left*1000, t), []*claim{e.claim}, args,
					n == 0); err != nil {
					return err
				}
			}
		}
		t.sent = l.store.moment(0)
		if answer, err = l.store.run(ctx, reportScript, e.keys, args); err != nil {
			return err
		}
		t.came = l.store.moment(0)
		if len(answer) != charged {
			return unreadable(answer)
		}
	}
	return &Error{Busy, errRestless}
}
