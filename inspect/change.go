package inspect

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge"
)

// Approve is asked before a bucket is changed, and told which; an error keeps
// it as it is. It is where a change is written down: what cannot be, does not
// happen. Nil approves.
type Approve func(Bucket) error

// Reset makes one bucket full, as if its client had never come, and ends its
// allowance; reservations that are outstanding give nothing more back to it. It
// reports the bucket as it is then. The query must name exactly
// one bucket.
func Reset(ctx context.Context, l *headgate.Limiter, q Query, approve Approve) (Bucket, error) {
	n, err := one(ctx, l, &q)
	if err == nil {
		err = approve.ask(n)
	}
	if err == nil {
		err = aboutOnce(l.Fill(ctx, n.plan, n.charge, q.Once))
	}
	if err != nil {
		return Bucket{}, err
	}
	return n.again(ctx, l)
}

// Grant gives one bucket amount tokens, and reports the bucket as it is then and
// how many it was given.
//
// With a zero until they are given once and the bucket is never more than full:
// what does not fit is not given, and reservations that are outstanding give back
// so much less. Otherwise the bucket's burst is larger by
// amount until then, so that in any interval at most amount is admitted besides
// what would be anyway; it starts with all of it, drains at the same rate, and
// what was used beyond the burst at the end is forgiven. A second such grant to
// the bucket takes the place of the first, so repeating one is harmless. It is
// bounded by charge.MaxAllowanceTime and headgate.Options.MaxAllowances, and it ends with the
// process. A rule that counts in windows has no burst beside its limit, and other
// processes would not know of it where they share the bucket, so such a grant to
// a bucket of theirs is a QueryError.
func Grant(ctx context.Context, l *headgate.Limiter, q Query, amount int64, until time.Time,
	approve Approve) (granted Bucket, given int64, err error) {
	if amount < 1 {
		return Bucket{}, 0, wrongQuery("amount is %d, want 1 or more", amount)
	}
	if err := checkUntil(until, l.Wall()); err != nil {
		return Bucket{}, 0, err
	}
	n, err := one(ctx, l, &q)
	if err == nil {
		err = checkGrant(n, amount, until)
	}
	if err == nil {
		err = approve.ask(n)
	}
	if err != nil {
		return Bucket{}, 0, err
	}
	given = amount
	if until.IsZero() {
		given, err = l.TopUp(ctx, n.plan, n.charge, amount, q.Once)
	} else {
		err = l.Allow(n.plan, n.charge, amount, until)
	}
	if err != nil {
		return Bucket{}, 0, aboutOnce(err)
	}
	granted, err = n.again(ctx, l)
	return granted, given, err
}

// aboutOnce makes an error of a change that Query.Once names as another one was,
// one of the query.
func aboutOnce(err error) error {
	if errors.Is(err, bucket.ErrAnother) {
		return wrongQuery("%v", bucket.ErrAnother)
	}
	return err
}

// ask asks for approval to change a bucket.
func (a Approve) ask(n *named) error {
	if a == nil {
		return nil
	}
	return a(n.Bucket)
}

func checkUntil(until, now time.Time) error {
	switch {
	case until.IsZero():
		return nil
	case !until.After(now):
		return wrongQuery("expires is %s, want a time in the future", until.Format(time.RFC3339))
	case until.Sub(now) > charge.MaxAllowanceTime:
		return wrongQuery("expires is %s, want at most %v from now; a rule of its own lasts longer",
			until.Format(time.RFC3339), charge.MaxAllowanceTime)
	}
	return nil
}

// maxGrant bounds what is granted: a thousand bursts is a decision about the
// rule, not about a bucket.
const maxGrant = 1000

func checkGrant(n *named, amount int64, until time.Time) error {
	terms := n.plan.Set.Terms(n.plan.Charges[n.charge].Rule)
	if !until.IsZero() && !terms.Shape.Algorithm.Drains() {
		counts := "in windows"
		if terms.Concurrent {
			counts = "requests under way"
		}
		return wrongQuery("rule %q counts %s, which have no burst to enlarge for a time: grant without an expiry, or "+
			"change the rule", n.Rule, counts)
	}
	if scope := n.plan.Takes[n.plan.Charges[n.charge].Place].Reach.Scope(); !until.IsZero() && scope.Named() {
		return wrongQuery("rule %q is %v, and other processes would not know of a larger burst of its bucket: "+
			"grant without an expiry, or set a rule that expires", n.Rule, terms.Scope)
	}
	if amount/maxGrant >= n.Burst && amount > maxGrant*n.Burst {
		return wrongQuery("amount is %d, want at most %d times the burst of %d; change the rule for more", amount,
			maxGrant, n.Burst)
	}
	if most := terms.Shape.Grow(amount).Burst() - terms.Shape.Burst(); !until.IsZero() && most < amount {
		return wrongQuery("amount is %d, want at most %d, with which the burst can still be counted", amount, most)
	}
	return nil
}

// one finds the one bucket that a query names.
func one(ctx context.Context, l *headgate.Limiter, q *Query) (*named, error) {
	found, skipped, err := find(ctx, l, q)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0 && len(skipped) == 0:
		return nil, wrongQuery("no rule applies there, so there is no bucket")
	case len(found) == 0:
		return nil, wrongQuery("the query names no bucket: rule %q needs %s", skipped[0].Rule, skipped[0].Needs)
	case len(found) > 1:
		subjects := make([]string, len(found))
		for i := range found {
			subjects[i] = found[i].Subject
		}
		return nil, wrongQuery("the query names %d buckets, want one: say which subject, %s", len(found),
			strings.Join(subjects, " or "))
	}
	return &found[0], nil
}

// again reports the bucket as it is after a change.
func (n *named) again(ctx context.Context, l *headgate.Limiter) (Bucket, error) {
	p := &charge.Plan{Request: n.plan.Request}
	if err := l.Plan(p); err != nil {
		return Bucket{}, err
	}
	// By the same rules the same is charged, unless a temporary one has ended in between.
	if len(p.Charges) == len(n.plan.Charges) && p.Charges[n.charge].Rule == n.plan.Charges[n.charge].Rule {
		n.plan = p
	}
	err := n.look(ctx, l)
	return n.Bucket, err
}
