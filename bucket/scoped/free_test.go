package scoped_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// laned is a store with free parts of 20 percent, or Options.Free, for one of k replicas, at
// whatever time the test says.
func laned(t testing.TB, k int, o scoped.Options) (*scoped.Store, *authority, *atomic.Int64) {
	t.Helper()
	now := new(atomic.Int64)
	now.Store(start)
	held, keeper := leases(t, now.Load)
	o.Leases = held
	if o.Free == 0 {
		o.Free = 20
	}
	if o.Strict == nil {
		o.Strict = newRemote(t)
	}
	o.Began = start - int64(time.Hour) // so free parts have filled
	o.Replicas = func() int { return k }
	return open(t, o), keeper, now
}

// asked is how many buckets the authority was asked about.
func (a *authority) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ledgers)
}

var hundred = rate.Limit{Tokens: 100, Per: time.Second, Burst: 100}

// A key that is asked for seldom sends no message; one that is asked for often does, and then has
// the rest of the limit.
func TestLanesSendNoMessage(t *testing.T) {
	s, keeper, now := laned(t, 4, scoped.Options{})
	one := take(t, 1, hundred, bucket.Lease, 0)
	for i := range 1000 { // 5 per second, as the free part has
		if allowed, outs := try(t, s, now.Load(), one); !allowed || i > 100 && outs[0].Remaining != 84 {
			t.Fatalf("take %d: %t, %+v, want it allowed, 4 left in the lane, and 80 in the store as far as is known", i,
				allowed, outs)
		}
		now.Add(int64(200 * time.Millisecond))
	}
	if got := keeper.asked(); got != 0 {
		t.Errorf("the store was asked about %d buckets, want 0", got)
	}
	if free := s.Status().Free; free != 1000 {
		t.Errorf("%d takes were free, want 1000", free)
	}
	now.Add(int64(time.Minute))
	admitted := 0
	for range 200 {
		if allowed, _ := try(t, s, now.Load(), one); allowed {
			admitted++
		}
	}
	if admitted != 85 {
		t.Errorf("%d admitted at one moment, want 85: 5 of the lane and 80 of the rest", admitted)
	}
	if got := s.Sharing().Envelope(hundred, bucket.Lease); got.Burst != 100 || got.Excess != 80*60 {
		t.Errorf(
			"the envelope is %+v, want a burst of 100, and what 80 per second are in the minute of the test's "+
				"leases", got)
	}
}

// What another bucket denies takes nothing of a free part; what a free part cannot give is taken of the rest,
// whatever else is taken with it.
func TestLanesTakeAllOrNothing(t *testing.T) {
	s, _, now := laned(t, 4, scoped.Options{})
	lane, narrow, strict := take(t, 1, hundred, bucket.Lease, 0), take(t, 2, second, bucket.Local, 0),
		take(t, 3, hundred, bucket.Strict, 0)
	left := func(of bucket.Take) int64 {
		t.Helper()
		of.Cost = 0
		outs := make([]bucket.Outcome, 1)
		if _, err := s.Peek(context.Background(), now.Load(), []bucket.Take{of}, outs); err != nil {
			t.Fatal(err)
		}
		return outs[0].Remaining
	}
	for i := range 30 { // of which the local bucket admits 10
		allowed, _ := try(t, s, now.Load(), lane, narrow, strict)
		if want := i < 10; allowed != want {
			t.Fatalf("take %d: %t, want %t", i, allowed, want)
		}
	}
	if got := left(lane); got != 75 {
		t.Errorf("%d left of the limit, want 75 of the 85 that one replica can have", got)
	}
	if got := left(strict); got != 90 {
		t.Errorf("%d left of the strict bucket, want 90", got)
	}
	if allowed, _ := try(t, s, now.Load(), costing(lane, 60)); !allowed {
		t.Error("60 tokens of 75 are denied")
	}
	if allowed, outs := try(t, s, now.Load(), costing(lane, 81)); allowed || !outs[0].Never {
		t.Errorf("81 tokens: %t, %+v, want never: the rest holds 80", allowed, outs[0])
	}
	watched := take(t, 9, hundred, bucket.Lease, 0)
	for i := range 100 {
		if allowed, outs := try(t, s, now.Load(), shadow(watched)); !allowed || outs[0].Allowed != (i < 85) {
			t.Fatalf("shadow take %d: %t, %+v, want it let through, and known to be over the limit from the 86th on", i,
				allowed, outs[0])
		}
	}
}

// Tokens that are given back go to the rest; a bucket that is filled is filled in both halves.
func TestLanesAreCorrected(t *testing.T) {
	far := newRemote(t)
	s, _, now := laned(t, 4, scoped.Options{Strict: far})
	one := take(t, 1, hundred, bucket.Lease, 0)
	for range 5 {
		try(t, s, now.Load(), one)
	}
	rest := far.table
	_, whole, _ := one.Shape.SetAside(20, 4)
	inStore := one
	inStore.Shape, inStore.Reach = whole, 0
	if allowed, err := rest.TryConsume(context.Background(), now.Load(), []bucket.Take{costing(inStore, 50)},
		make([]bucket.Outcome, 1)); !allowed || err != nil {
		t.Fatal(allowed, err)
	}
	change := bucket.Change{Key: one.Key, Shape: one.Shape, Reach: one.Reach, Units: -10 * one.Shape.Unit}
	moved := make([]int64, 1)
	if err := s.Correct(context.Background(), now.Load(), []bucket.Change{change}, moved); err != nil ||
		moved[0] != change.Units {
		t.Errorf("10 tokens given back: %d units, %v, want %d", moved[0], err, change.Units)
	}
	if got := far.left(t, now.Load(), inStore); got != 40 {
		t.Errorf("%d left in the store, want 40", got)
	}
	change.Units = bucket.Fill
	if err := s.Correct(context.Background(), now.Load(), []bucket.Change{change}, moved); err != nil ||
		moved[0] != -40*one.Shape.Unit {
		t.Errorf("filled: %d units, %v, want -40 tokens", moved[0], err)
	}
	for i := range 5 {
		if allowed, _ := try(t, s, now.Load(), one); !allowed || s.Status().Free != uint64(6+i) {
			t.Errorf("take %d after it was filled: %t, %d free, want it out of the lane", i, allowed, s.Status().Free)
		}
	}
}

// Tokens that are given back to a bucket which denied are seen at once by who gave them, and by
// others within a second: a quota that would have one again in hours must not deny for so long.
func TestLeasesThatDeniedHearOfTokensGivenBack(t *testing.T) {
	daily := rate.Limit{Tokens: 10, Per: 24 * time.Hour, Burst: 10}
	for name, c := range map[string]struct {
		here bool
		wait time.Duration
	}{"here": {here: true}, "elsewhere": {wait: time.Second}} {
		t.Run(name, func(t *testing.T) {
			now := new(atomic.Int64)
			now.Store(start)
			held, keeper := leases(t, now.Load)
			s := open(t, scoped.Options{Strict: newRemote(t), Leases: held})
			one := take(t, 1, daily, bucket.Lease, 0)
			try(t, s, start, costing(one, 10))
			denied, outs := try(t, s, start, one)
			if want := 24 * time.Hour / 10; denied || outs[0].RetryAfter != want {
				t.Fatalf("an empty bucket: %t, %+v, want it denied for %v", denied, outs, want)
			}
			*keeper.ledgers[one.Key] = lease.Ledger{}
			if c.here {
				fill := []bucket.Change{{Key: one.Key, Shape: one.Shape, Reach: one.Reach, Units: bucket.Fill}}
				if err := s.Correct(context.Background(), start, fill, make([]int64, 1)); err != nil {
					t.Fatal(err)
				}
			}
			now.Add(int64(c.wait))
			if allowed, outs := try(t, s, now.Load(), one); !allowed {
				t.Errorf("after %v: %+v, want it admitted", c.wait, outs)
			}
		})
	}
}

// A bucket that could not be filled in the store is filled in no half.
func TestLanesAreNotFilledInVain(t *testing.T) {
	far := newRemote(t)
	s, _, now := laned(t, 4, scoped.Options{Strict: far})
	one := take(t, 1, hundred, bucket.Lease, 0)
	for range 5 { // all of the free part
		try(t, s, now.Load(), one)
	}
	far.fail = func(string) error { return errGone }
	change := []bucket.Change{{Key: one.Key, Shape: one.Shape, Reach: one.Reach, Units: bucket.Fill}}
	if err := s.Correct(context.Background(), now.Load(), change, make([]int64, 1)); !errors.Is(err, errGone) {
		t.Errorf("Correct: %v, want %v", err, errGone)
	}
	if try(t, s, now.Load(), one); s.Status().Free != 5 {
		t.Errorf("%d taken out of the lane, want the 5 before", s.Status().Free)
	}
}

// While the store is lost, free parts go on; rules say what becomes of the rest.
func TestLanesWithoutTheStore(t *testing.T) {
	for _, c := range []struct {
		loss bucket.Loss
		want int // of 100 takes at a moment
		late int // of 100 more, long after
	}{
		{bucket.LossClosed, 5, 5},
		{bucket.LossShare, 5, 5 + 20}, // the share begins empty
		{bucket.LossOpen, 100, 100},
	} {
		far := newRemote(t)
		s, _, now := laned(t, 4, scoped.Options{Strict: far})
		lose(t, s, far, now.Load())
		for round, want := range []int{c.want, c.late} {
			admitted := 0
			for range 100 {
				allowed, err := s.TryConsume(context.Background(), now.Load(),
					[]bucket.Take{take(t, 77, hundred, bucket.Lease, c.loss)}, make([]bucket.Outcome, 1))
				if err != nil && !errors.Is(err, bucket.ErrLost) {
					t.Fatal(err)
				}
				if allowed {
					admitted++
				}
			}
			if admitted != want {
				t.Errorf("loss %d, round %d: %d admitted, want %d", c.loss, round, admitted, want)
			}
			now.Add(int64(10 * time.Second))
		}
	}
}

// lanedFleet is replicas that share a limit by leases and free parts: production's stores over one
// ledger and a network, in a bubble whose time is made up.
type lanedFleet struct {
	began  time.Time
	keeper *authority
	take   bucket.Take

	mu       sync.Mutex
	stores   []*scoped.Store
	known    []*atomic.Int64 // how many replicas each one believes there are
	gone     map[int]bool
	envelope simulate.Envelope
	sent     int64
	all      sync.WaitGroup
}

func (f *lanedFleet) now() int64 { return start + int64(time.Since(f.began)) }

// delayed is an authority at the other end of a network, which takes its time and loses messages.
type delayed struct {
	to   lease.Authority
	loss float64
}

func (d delayed) Ask(ctx context.Context, replica uint64, of bucket.Take, q lease.Question) (lease.Answer, error) {
	way := func() error {
		late := time.Duration(rand.Int64N(int64(time.Millisecond)))
		if rand.Float64() < d.loss {
			late = time.Hour
		}
		select {
		case <-time.After(late):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := way(); err != nil {
		return lease.Answer{}, err
	}
	got, err := d.to.Ask(ctx, replica, of, q)
	return got, errors.Join(err, way())
}

// join adds a replica that began some time ago, and is heard of by the others up to lag later.
func (f *lanedFleet) join(t testing.TB, loss float64, ago, lag time.Duration) {
	held, err := lease.New(lease.Options{Authority: delayed{f.keeper, loss}})
	if err != nil {
		t.Fatal(err)
	}
	own := new(atomic.Int64)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = append(f.known, own)
	own.Store(int64(len(f.known) - len(f.gone)))
	f.stores = append(f.stores, open(t, scoped.Options{
		Strict: newRemote(t), Leases: held, Free: 20, Replicas: func() int { return int(own.Load()) },
		Began: f.now() - int64(ago),
	}))
	f.tell(lag)
}

// tell has every replica count the replicas within lag. What it learns is how many there are then:
// news that came in another order than they were sent would leave it with an old number for ever,
// as no replica is that counts again and again.
func (f *lanedFleet) tell(lag time.Duration) {
	for _, k := range f.known {
		time.AfterFunc(time.Duration(rand.Int64N(int64(lag)+1)), func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			k.Store(int64(len(f.stores) - len(f.gone)))
		})
	}
}

func (f *lanedFleet) leave(i int, lag time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone[i] = true
	f.tell(lag)
}

// request is one at a replica, if it is there.
func (f *lanedFleet) request(t *testing.T, i int) {
	f.mu.Lock()
	if i >= len(f.stores) || f.gone[i] {
		f.mu.Unlock()
		return
	}
	s := f.stores[i]
	f.sent++
	f.mu.Unlock()
	f.all.Go(func() {
		allowed, err := s.TryConsume(context.Background(), f.now(), []bucket.Take{f.take}, make([]bucket.Outcome, 1))
		if err != nil && !errors.Is(err, bucket.ErrLost) {
			t.Error(err)
		}
		if allowed {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.envelope.Admit(time.Since(f.began), 1)
		}
	})
}

// Leases and free parts together keep to the envelope that is published, and use the limit; while
// replicas come and go, no more is added than is for split limits, of the part that is free.
func TestLanesHold(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lanesHold(t, seed) })
		})
	}
}

func lanesHold(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 23))
	l := rate.Limit{Tokens: 50 + r.Int64N(1000), Per: time.Second, Burst: 100 + r.Int64N(1000)}
	f := &lanedFleet{began: time.Now(), take: take(t, 1, l, bucket.Lease, 0), gone: map[int]bool{}}
	_, f.keeper = leases(t, f.now)
	const end, lag = 3 * time.Second, 500 * time.Millisecond
	loss := []float64{0, 0.01, 0.2}[r.IntN(3)]
	for range 1 + r.IntN(7) {
		f.join(t, loss, time.Hour, 0)
	}
	time.Sleep(time.Millisecond)
	first, more := len(f.stores), 0.0
	promised := f.stores[0].Sharing().Envelope(l, bucket.Lease)
	f.envelope.Shape = shapeOf(t, rate.Limit{Tokens: promised.Tokens, Per: promised.Per, Burst: promised.Burst})
	if seed%2 == 1 {
		for range r.IntN(4) {
			time.AfterFunc(time.Duration(r.Int64N(int64(end))), func() { f.join(t, loss, 0, lag) })
			more += lag.Seconds() * float64(l.Tokens) / 5 // one more part, while the others have not heard
		}
		gone := r.IntN(first)
		time.AfterFunc(time.Duration(r.Int64N(int64(end))), func() { f.leave(gone, lag) })
		more += float64(l.Burst)/5 + 16 // its part of the burst, and what rounding kept of others'
	}
	demand := []float64{0.3, 1.1, 4}[r.IntN(3)] * float64(l.Tokens)
	for i := range first + 3 {
		f.all.Go(func() {
			own := rand.New(rand.NewPCG(seed, uint64(i)))
			for time.Since(f.began) < end {
				time.Sleep(time.Duration(own.ExpFloat64() / demand * float64(first) * float64(time.Second)))
				f.request(t, i)
			}
		})
	}
	f.all.Wait()
	time.Sleep(time.Second) // for questions that nobody waits for
	if over := float64(f.envelope.Excess()); over > float64(promised.Excess)+more {
		t.Errorf("%+v, %d replicas: %v tokens above burst and rate, want %v at most", l, first, over,
			float64(promised.Excess)+more)
	}
	if used := f.envelope.Utilisation(end, f.sent); seed%2 == 0 && used < 0.93-loss {
		t.Errorf("%+v, %d replicas, %v lost: %.3f of the limit used", l, first, loss, used)
	}
}
