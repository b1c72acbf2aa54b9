package scoped_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// second is the limit of most tests: ten tokens, and one more each second.
var second = rate.Limit{Tokens: 1, Per: time.Second, Burst: 10}

// start is when all tests begin.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()

func shapeOf(t testing.TB, l rate.Limit) rate.Shape {
	t.Helper()
	sh, err := rate.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

// take is a take of one token from bucket n.
func take(t testing.TB, n uint64, l rate.Limit, s bucket.Scope, loss bucket.Loss) bucket.Take {
	t.Helper()
	return bucket.Take{Key: buckettest.Key(n), Shape: shapeOf(t, l), Cost: 1, Reach: bucket.NewReach(s, loss)}
}

func table(t testing.TB) *memory.Store {
	t.Helper()
	store, err := memory.New(memory.Options{MaxBuckets: 4096})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func open(t testing.TB, o scoped.Options) *scoped.Store {
	t.Helper()
	if o.Local == nil {
		o.Local = table(t)
	}
	if o.Deadline == 0 {
		o.Deadline = time.Minute // of real time, which these tests are not about
	}
	store, err := scoped.New(o)
	if err != nil {
		t.Fatal(err)
	}
	scoped.Inline(store)
	return store
}

// remote is a shared store in this process, which fails when it is told to.
type remote struct {
	mu    sync.Mutex
	table *memory.Store
	asked int
	fail  func(ask string) error // nil never fails
	late  func(ask string) error // an error after all was done; nil for none
}

var errGone = errors.New("the store is gone")

func newRemote(t testing.TB) *remote { return &remote{table: table(t)} }

func (r *remote) begin(ask string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.fail != nil {
		return r.fail(ask)
	}
	return nil
}

func (r *remote) Attempt(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool,
	func(context.Context, int64), error) {
	if err := r.begin("attempt"); err != nil {
		return false, nil, err
	}
	allowed, err := r.table.TryConsume(ctx, now, takes, outs)
	if err == nil && r.late != nil {
		err = r.late("attempt")
	}
	if !allowed || err != nil {
		return false, nil, err
	}
	var back []bucket.Change
	for i := range takes {
		if t := &takes[i]; outs[i].Allowed {
			units, _ := t.Shape.Units(t.Cost)
			back = append(back, bucket.Change{
				Key:   t.Key,
				Shape: t.Shape,
				Since: t.Since,
				Units: -bucket.Unspent(t.Shape, t.Shape, units, units, now, now),
			})
		}
	}
	return true, func(ctx context.Context, now int64) {
		if r.begin("undo") == nil {
			_ = r.table.Correct(ctx, now, back, make([]int64, len(back)))
		}
	}, nil
}

func (r *remote) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	allowed, _, err := r.Attempt(ctx, now, takes, outs)
	return allowed, err
}

func (r *remote) Peek(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if err := r.begin("peek"); err != nil {
		return false, err
	}
	return r.table.Peek(ctx, now, takes, outs)
}

func (r *remote) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if err := r.begin("correct"); err != nil {
		return err
	}
	return r.table.Correct(ctx, now, changes, moved)
}

// left is how many tokens a bucket holds.
func (r *remote) left(t testing.TB, now int64, of bucket.Take) int64 {
	t.Helper()
	of.Cost, of.Reach, of.Shadow = 0, 0, false
	outs := make([]bucket.Outcome, 1)
	if _, err := r.table.Peek(context.Background(), now, []bucket.Take{of}, outs); err != nil {
		t.Fatal(err)
	}
	return outs[0].Remaining
}

// authority answers questions of leases out of ledgers.
type authority struct {
	mu      sync.Mutex
	now     func() int64
	ledgers map[key.Key]*lease.Ledger
	fail    func() error
}

func (a *authority) Ask(_ context.Context, replica uint64, of bucket.Take, q lease.Question) (lease.Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fail != nil {
		if err := a.fail(); err != nil {
			return lease.Answer{}, err
		}
	}
	l := a.ledgers[of.Key]
	if l == nil {
		l = &lease.Ledger{}
		a.ledgers[of.Key] = l
	}
	return l.Grant(a.now(), of.Shape, replica, q), nil
}

func leases(t testing.TB, now func() int64) (*lease.Store, *authority) {
	t.Helper()
	a := &authority{now: now, ledgers: map[key.Key]*lease.Ledger{}}
	store, err := lease.New(lease.Options{Authority: a, Now: now, Terms: lease.Terms{TTL: time.Minute},
		Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return store, a
}

// try decides takes that must not err.
func try(t testing.TB, s *scoped.Store, now int64, takes ...bucket.Take) (bool, []bucket.Outcome) {
	t.Helper()
	outs := make([]bucket.Outcome, len(takes))
	allowed, err := s.TryConsume(context.Background(), now, takes, outs)
	if err != nil {
		t.Fatal(err)
	}
	return allowed, outs
}
