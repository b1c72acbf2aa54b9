package redis

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
)

// Throttler sends the command CL.THROTTLE, which the module redis-cell brings to Redis and
// Dragonfly has by itself. It must be safe for concurrent use.
type Throttler interface {
	// Throttle sends CL.THROTTLE with a key and the arguments behind it. It reports the answer, five
	// int64 in a []any; what the server answers as an error is an error whose text begins with the
	// server's. It returns when ctx is done, and never sends a command twice.
	Throttle(ctx context.Context, key string, args ...string) (any, error)
}

// Throttle keeps buckets in a store that has CL.THROTTLE and need run no scripts. What one bucket
// admits is what Store has it admit, and at most what drains in a millisecond besides: redis-cell
// forgets a debt so long before it has drained. The rest is less:
//
//   - Several buckets of one decision are looked at together, and then taken from together. If one
//     denies that the look had promised, the others stay charged: too much is denied, and never
//     too much admitted.
//   - Nothing is given back and nothing granted. Correct charges, as far as there is room.
//   - Under a changed limit a bucket keeps the time until it is full, and not what it owes.
//   - Waits are told in whole seconds, or as what the tokens that are missing take at most if that
//     is less.
//   - Leaky buckets cannot be kept, as turns are known to a second only.
//
// The time is the server's. It is safe for concurrent use, and holds no state but what it has
// computed of limits.
type Throttle struct {
	server Throttler
	prefix string
	quotas perShape[quota]
}

// NewThrottle makes a Throttle, or says everything that is wrong. It does not talk to the server.
// Prefix is as in Options.
func NewThrottle(server Throttler, prefix string) (*Throttle, error) {
	var errs []error
	if server == nil {
		errs = append(errs, errors.New("the server is nil, want one"))
	}
	if err := checkPrefix(prefix); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("buckets by CL.THROTTLE: %w", errors.Join(errs...))
	}
	if prefix == "" {
		prefix = defaultPrefix
	}
	return &Throttle{server: server, prefix: prefix}, nil
}

// asked is what one decision wants of one bucket, and what it was told.
type asked struct {
	take           *bucket.Take // the first that names the bucket
	quota          *quota
	tokens, shadow int64 // wanted by those who may be denied, and by shadows; -1 is more than the bucket holds
	told           throttleAnswer
	denied         bool // tokens were not to be had
	shadowDenied   bool // nor shadow on top of them
}

// merge makes one asked of all takes with the same key; of[i] is that of takes[i].
func (s *Throttle) merge(takes []bucket.Take) (all []asked, of []int, err error) {
	all, of = make([]asked, 0, len(takes)), make([]int, len(takes))
	for i := range takes {
		t := &takes[i]
		of[i] = slices.IndexFunc(all, func(a asked) bool { return a.take.Key == t.Key })
		if of[i] < 0 {
			q, err := s.quotas.of(t.Shape, newQuota)
			if err != nil {
				return nil, nil, fmt.Errorf("take %d: the limit %w", i, err)
			}
			of[i] = len(all)
			all = append(all, asked{take: t, quota: q})
		} else if all[of[i]].take.Shape != t.Shape {
			return nil, nil, fmt.Errorf("takes %d and %d name one bucket with two shapes", slices.Index(of, of[i]), i)
		}
		all[of[i]].add(t)
	}
	return all, of, nil
}

// add adds up what takes of one bucket want.
func (a *asked) add(t *bucket.Take) {
	sum := &a.tokens
	if t.Shadow {
		sum = &a.shadow
	}
	if t.Cost < 0 || *sum < 0 || t.Cost > a.quota.burst-*sum {
		*sum = -1
		return
	}
	*sum += t.Cost
}

// fit compares what is wanted with what a look has found.
func (a *asked) fit() {
	a.denied = a.tokens < 0 || a.tokens > a.told.remaining
	room := a.told.remaining - max(0, a.tokens)
	a.shadowDenied = a.shadow < 0 || a.shadow > max(0, room)
}

// TryConsume takes from all buckets, or denies, and reports as Store.TryConsume does. See Throttle
// for what may stay charged though it denies.
func (s *Throttle) TryConsume(ctx context.Context, _ int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	return s.decide(ctx, takes, outs, true)
}

// Attempt is TryConsume. Undo does nothing: the command gives nothing back.
func (s *Throttle) Attempt(ctx context.Context, _ int64, takes []bucket.Take, outs []bucket.Outcome) (allowed bool,
	undo func(ctx context.Context, now int64), err error) {
	allowed, err = s.decide(ctx, takes, outs, true)
	if !allowed || err != nil {
		return false, nil, err
	}
	return true, func(context.Context, int64) {}, nil
}

// Peek answers what TryConsume would, and changes nothing.
func (s *Throttle) Peek(ctx context.Context, _ int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	return s.decide(ctx, takes, outs, false)
}

func (s *Throttle) decide(ctx context.Context, takes []bucket.Take, outs []bucket.Outcome,
	charge bool) (allowed bool, err error) {
	if len(outs) < len(takes) {
		return false, fmt.Errorf("there is room for %d outcomes, want %d", len(outs), len(takes))
	}
	all, of, err := s.merge(takes)
	if err != nil {
		return false, err
	}
	if len(all) == 1 && charge && all[0].shadow == 0 && all[0].tokens >= 0 {
		allowed, err = s.takeAll(ctx, all) // which looks by itself
	} else if allowed, err = s.lookAtAll(ctx, all); allowed && charge && err == nil {
		allowed, err = s.takeAll(ctx, all)
	}
	if err != nil {
		return false, err
	}
	for i := range takes {
		all[of[i]].report(&outs[i], takes[i].Shadow)
	}
	return allowed, nil
}

// lookAtAll takes nothing, and reports whether everything that is wanted is there.
func (s *Throttle) lookAtAll(ctx context.Context, all []asked) (bool, error) {
	err := forAll(all, func(a *asked) (err error) {
		if a.told, err = s.ask(ctx, a, 0); err == nil {
			a.fit()
		}
		return err
	})
	return !slices.ContainsFunc(all, func(a asked) bool { return a.denied }), err
}

// takeAll takes what is wanted of each, shadows where there was room, and reports whether nobody was denied.
func (s *Throttle) takeAll(ctx context.Context, all []asked) (bool, error) {
	err := forAll(all, func(a *asked) (err error) {
		if !a.shadowDenied && a.shadow > 0 {
			if a.told, err = s.ask(ctx, a, a.tokens+a.shadow); err != nil || !a.told.limited {
				return err
			}
			a.shadowDenied = true // somebody was quicker
		}
		if a.tokens > 0 || len(all) == 1 {
			a.told, err = s.ask(ctx, a, a.tokens)
			a.denied = a.tokens > 0 && a.told.limited // a look is never denied
		}
		return err
	})
	return !slices.ContainsFunc(all, func(a asked) bool { return a.denied }), err
}

// forAll does something for all at the same time.
func forAll(all []asked, do func(*asked) error) error {
	if len(all) == 1 {
		return do(&all[0])
	}
	errs := make([]error, len(all))
	var others sync.WaitGroup
	for i := range all {
		others.Go(func() { errs[i] = do(&all[i]) })
	}
	others.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ask sends the command.
func (s *Throttle) ask(ctx context.Context, a *asked, quantity int64) (throttleAnswer, error) {
	answer, err := s.server.Throttle(ctx, s.name(a.take), a.quota.args[0], a.quota.args[1], a.quota.args[2],
		strconv.FormatInt(quantity, 10))
	if err != nil {
		return throttleAnswer{}, fault(err)
	}
	r, ok := readThrottled(answer, a.quota.burst)
	if !ok {
		return throttleAnswer{}, &Error{NoScripts,
			fmt.Errorf("CL.THROTTLE answered a %T that it never answers", answer)}
	}
	return r, nil
}

// name is text alone: redis-cell takes nothing else for a key.
func (s *Throttle) name(t *bucket.Take) string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], t.Key.Hi)
	binary.BigEndian.PutUint64(raw[8:], t.Key.Lo)
	return s.prefix + "=" + base64.RawURLEncoding.EncodeToString(raw[:]) // no name of Store has this sign
}

// throttleAnswer is what CL.THROTTLE answered.
type throttleAnswer struct {
	limited      bool
	remaining    int64         // tokens, 0 to the burst
	retry, reset time.Duration // at most; -1 for nothing told
}

// readThrottled reads an answer, or reports false for what is none.
func readThrottled(answer any, burst int64) (r throttleAnswer, ok bool) {
	list, _ := answer.([]any)
	var n [5]int64
	if len(list) != len(n) {
		return r, false
	}
	for i := range n {
		if n[i], ok = list[i].(int64); !ok {
			return r, false
		}
	}
	if n[0] != 0 && n[0] != 1 || n[1] != burst {
		return r, false
	}
	// Of a bucket that was full for a while before its name expired, some servers say that more is left than it holds.
	r.limited, r.remaining = n[0] == 1, min(max(0, n[2]), burst)
	r.retry, r.reset = atMost(n[3]), atMost(n[4])
	return r, true
}

// atMost is what so many seconds stand for at most: redis-cell 0.2 rounds down, and later ones up.
func atMost(seconds int64) time.Duration {
	if seconds < 0 || seconds >= int64(longest/time.Second) {
		return -1
	}
	return time.Duration(seconds+1) * time.Second
}

// report writes what became of a take.
func (a *asked) report(o *bucket.Outcome, shadow bool) {
	wanted, denied := a.tokens, a.denied
	if shadow {
		wanted, denied = a.shadow, a.shadowDenied
	}
	q := a.quota
	*o = bucket.Outcome{Allowed: !denied, Remaining: a.told.remaining}
	if owed := q.burst - a.told.remaining; owed > 0 {
		o.ResetAfter = q.within(owed, a.told.reset)
	}
	switch {
	case !denied:
	case wanted < 0:
		o.Never = true
	case shadow:
		o.RetryAfter = q.within(wanted+max(0, a.tokens)-a.told.remaining, -1)
	case a.told.limited:
		o.RetryAfter = q.within(wanted-a.told.remaining, a.told.retry)
	default:
		o.RetryAfter = q.within(wanted-a.told.remaining, -1)
	}
}

var errNothingBack = errors.New(
	"a store that has CL.THROTTLE alone gives no tokens back: they come back as the limit says")

// Correct charges what changes add, as far as their buckets have room for it, and writes to moved[i]
// how many units that was. What a change would give back of a request stays taken, which is no
// error: the limit is not exceeded by it. To grant tokens or to fill a bucket is one.
func (s *Throttle) Correct(ctx context.Context, _ int64, changes []bucket.Change, moved []int64) error {
	if len(moved) < len(changes) {
		return fmt.Errorf("there is room for %d results, want %d", len(moved), len(changes))
	}
	clear(moved[:len(changes)])
	for i := range changes {
		if err := s.correct(ctx, &changes[i], &moved[i]); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
	}
	return nil
}

func (s *Throttle) correct(ctx context.Context, c *bucket.Change, moved *int64) error {
	switch {
	case c.Units <= 0 && c.Charged != 0 || c.Units == 0:
		return nil
	case c.Units < 0:
		return errNothingBack
	}
	tokens := c.Units / c.Shape.Unit
	if c.Units%c.Shape.Unit > 0 {
		tokens++ // in favour of the limit
	}
	all, _, err := s.merge([]bucket.Take{{Key: c.Key, Shape: c.Shape}})
	if err != nil {
		return err
	}
	a := &all[0]
	for want := min(tokens, a.quota.burst); want > 0; want = min(want-1, a.told.remaining) {
		if a.told, err = s.ask(ctx, a, want); err != nil {
			return err
		}
		if !a.told.limited {
			*moved = min(c.Units, want*c.Shape.Unit)
			return nil
		}
	}
	return nil
}
