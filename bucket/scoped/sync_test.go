//go:build unix

package scoped_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// charger charges buckets of a remote by what replicas report, when the test lets it.
type charger struct {
	far  *remote
	mu   sync.Mutex
	last map[uint64]uint64 // guarded by mu
	fail error             // guarded by mu
}

func (c *charger) ReportAll(ctx context.Context, _ uint64, told []report.Told) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range told {
		one := &told[i]
		if one.Err = c.fail; one.Err != nil {
			continue
		}
		n := one.Of.Key.Lo
		units := one.Of.Shape.UnitsSaturating(one.Report.Tokens)
		if c.last[n] >= one.Report.Seq {
			units = 0
		}
		c.last[n] = one.Report.Seq
		change := []bucket.Change{{Key: one.Of.Key, Shape: one.Of.Shape, Units: units}}
		one.Err = c.far.table.Correct(ctx, start, change, make([]int64, 1))
		look, outs := []bucket.Take{{Key: one.Of.Key, Shape: one.Of.Shape}}, make([]bucket.Outcome, 1)
		if _, err := c.far.table.Peek(ctx, start, look, outs); err != nil {
			one.Err = err
		}
		one.Answer = report.Answer{Seq: one.Report.Seq, Debt: one.Of.Shape.Drained(outs[0].ResetAfter)}
	}
}

func (c *charger) failing(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = err
}

// synced is a store for one of two replicas that reports when Flush is called, at whatever time the test says.
func synced(t testing.TB, o scoped.Options) (*scoped.Store, *report.Store, *remote, *charger) {
	t.Helper()
	far := newRemote(t)
	c := &charger{far: far, last: map[uint64]uint64{}}
	reports, err := report.New(report.Options{
		Authority: c,
		Interval:  10 * time.Second,
		Deadline:  time.Minute,
		Now:       func() int64 { return start },
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Strict, o.Reports, o.Replicas, o.Began = far, reports, func() int { return 2 }, start-int64(time.Hour)
	return open(t, o), reports, far, c
}

// wide is a limit that gives one of two replicas a headroom of 40, of 100, in the 10 s of these tests.
var wide = rate.Limit{Tokens: 4, Per: time.Second, Burst: 100}

// What a replica knows decides without a message; beyond its headroom the store is asked, and what
// was told it is charged there.
func TestSyncAsksBeyondItsHeadroom(t *testing.T) {
	s, reports, far, c := synced(t, scoped.Options{})
	c.failing(errGone) // so nothing is told
	one := take(t, 1, wide, bucket.Sync, 0)
	for i := range 40 {
		if allowed, outs := try(t, s, start, one); !allowed || outs[0].Remaining != int64(99-i) {
			t.Fatalf("take %d: %t, %+v", i, allowed, outs[0])
		}
	}
	if far.asked != 0 {
		t.Fatalf("the store was asked %d times, want never", far.asked)
	}
	for i := range 100 {
		if allowed, outs := try(t, s, start, one); !allowed || outs[0].Remaining != int64(99-i) {
			t.Fatalf("take %d that the store was asked about: %t, %+v", i, allowed, outs[0])
		}
	}
	if allowed, outs := try(t, s, start, one); allowed || outs[0].RetryAfter != 250*time.Millisecond {
		t.Errorf("beyond all: %t, %+v, want a denial", allowed, outs[0])
	}
	c.failing(nil)
	reports.Flush(t.Context())
	asked := far.asked
	if allowed, outs := try(t, s, start, one); allowed || far.asked != asked ||
		outs[0].RetryAfter != 40*250*time.Millisecond+250*time.Millisecond {
		t.Errorf("when all is told: %t, %+v after %d questions, want a denial without one, until 41 have drained",
			allowed, outs[0], far.asked-asked)
	}
	if got := s.Sharing().Envelope(wide, bucket.Sync); got.Burst != 100 || got.Excess != 80 {
		t.Errorf("the envelope is %+v, want a burst of 100 and a headroom of 40 for each of two", got)
	}
}

// What another bucket denies takes nothing, whichever comes first.
func TestSyncTakesAllOrNothing(t *testing.T) {
	s, reports, far, _ := synced(t, scoped.Options{})
	known, narrow, strict, lane := take(t, 1, wide, bucket.Sync, 0), take(t, 2, second, bucket.Local, 0),
		take(t, 3, second, bucket.Strict, 0), take(t, 4, wide, bucket.Sync, 0)
	shadow := lane
	shadow.Shadow = true
	for range 10 {
		if allowed, _ := try(t, s, start, known, narrow, strict); !allowed {
			t.Fatal("all have room")
		}
	}
	for _, other := range []bucket.Take{narrow, strict} {
		allowed, outs := try(t, s, start, known, other)
		if allowed || outs[1].Allowed || outs[0].Remaining != 90 {
			t.Errorf("with one that denies: %t, %+v, want 90 left as before", allowed, outs)
		}
	}
	if got := reports.Pending(&known); got != 10 {
		t.Errorf("%d pending, want 10", got)
	}
	asked := far.asked
	if allowed, outs := try(t, s, start, costing(known, 91), costing(strict, 1), narrow); allowed ||
		far.asked != asked || outs[0].Allowed || !outs[1].Unknown {
		t.Errorf("more than is known to be there: %t, %+v, want a denial that asks nobody", allowed, outs)
	}
	if allowed, outs := try(t, s, start, known, costing(shadow, 101)); !allowed || outs[1].Allowed {
		t.Errorf("a shadow without room: %t, %+v, want it in nobody's way", allowed, outs)
	}
	outs := make([]bucket.Outcome, 2)
	if allowed, err := s.Peek(context.Background(), start, []bucket.Take{known, costing(known, 95)}[:1],
		outs); !allowed || err != nil || outs[0].Remaining != 88 {
		t.Errorf("Peek = %t, %v, %+v, want 88 after one more of 89", allowed, err, outs[0])
	}
}

// While the store is lost, rules say what becomes of takes; what was admitted before is told when it is back.
func TestSyncWithoutTheStore(t *testing.T) {
	for loss, want := range map[bucket.Loss]bool{bucket.LossClosed: false, bucket.LossOpen: true} {
		s, reports, far, c := synced(t, scoped.Options{})
		one := take(t, 1, wide, bucket.Sync, loss)
		for range 10 {
			try(t, s, start, one)
		}
		c.failing(errGone)
		lose(t, s, far, start)
		for range 3 {
			allowed, err := s.TryConsume(context.Background(), start+1, []bucket.Take{one}, make([]bucket.Outcome, 1))
			if allowed != want || !want && !errors.Is(err, bucket.ErrLost) {
				t.Errorf("loss %d: %t, %v, want %t", loss, allowed, err, want)
			}
		}
		if got := reports.Pending(&one); got != 10 {
			t.Errorf("loss %d: %d pending, want the 10 of before", loss, got)
		}
		c.failing(nil)
		find(t, s, far, start+int64(time.Second))
		reports.Flush(t.Context())
		if got := reports.Pending(&one); got != 0 {
			t.Errorf("loss %d: %d pending, want none", loss, got)
		}
	}
}

// What an operator gives back is known to this replica at once.
func TestSyncIsCorrected(t *testing.T) {
	s, reports, _, _ := synced(t, scoped.Options{})
	one := take(t, 1, wide, bucket.Sync, 0)
	for range 20 {
		try(t, s, start, one)
	}
	reports.Flush(t.Context())
	change := []bucket.Change{{Key: one.Key, Reach: one.Reach, Shape: one.Shape, Units: bucket.Fill}}
	moved := make([]int64, 1)
	if err := s.Correct(context.Background(), start, change, moved); err != nil || moved[0] != -20*one.Shape.Unit {
		t.Fatalf("Correct: %v, moved %d units", err, moved[0])
	}
	for end := time.Now().Add(time.Minute); ; {
		_, outs := try(t, s, start, costing(one, 0))
		if outs[0].Remaining == 100 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, want 100 left", outs[0])
		}
	}
}

// Three replicas and a server: what they admit is within what is published, nearly all of the limit
// is used, and messages are few.
func TestSyncOnAServer(t *testing.T) {
	server := redistest.Start(t)
	used := 0.0
	// a machine that is busy may hold up answers, but not each time
	for key := uint64(1); key <= 5 && used < 0.6; key++ {
		used = max(used, syncOnAServer(t, server, key))
	}
	if used < 0.6 {
		t.Errorf("%.2f of the limit used at best, want nearly all", used)
	}
}

// syncOnAServer is how much of a limit three replicas use.
func syncOnAServer(t *testing.T, server *redistest.Server, key uint64) (used float64) {
	t.Helper()
	const replicas = 3
	limit := rate.Limit{Tokens: 500, Per: time.Second, Burst: 500}
	one := take(t, key, limit, bucket.Sync, 0)
	var mu sync.Mutex
	envelope := simulate.Envelope{Shape: one.Shape}
	asked, longest := int64(0), time.Duration(0) // guarded by mu
	began := time.Now()
	var callers sync.WaitGroup
	var stores [replicas]*scoped.Store
	var reports [replicas]*report.Store
	for i := range replicas {
		conn := redistest.Dial(server.Socket)
		t.Cleanup(conn.Close)
		shared, err := redis.New(redis.Options{Server: conn})
		if err != nil {
			t.Fatal(err)
		}
		ledger, err := redis.NewLedger(shared, redis.LedgerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if reports[i], err = report.New(report.Options{Authority: ledger, Gather: time.Millisecond,
			Deadline: time.Minute}); err != nil {
			t.Fatal(err)
		}
		stores[i] = open(t, scoped.Options{
			Strict:   shared,
			Reports:  reports[i],
			Replicas: func() int { return replicas },
			Began:    start,
		})
		callers.Go(func() {
			again := time.NewTicker(time.Millisecond)
			defer again.Stop()
			for time.Since(began) < 2*time.Second {
				<-again.C
				now := time.Now()
				allowed, err := stores[i].TryConsume(context.Background(), now.UnixNano(), []bucket.Take{one},
					make([]bucket.Outcome, 1))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				asked, longest = asked+1, max(longest, time.Since(now))
				if allowed {
					envelope.Admit(time.Since(began), 1)
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	most := stores[0].Sharing().Envelope(limit, bucket.Sync).Excess
	// what was admitted over a longer time is noted in a shorter one, if the first of it took
	// longest
	way := one.Shape.Drained(longest)/one.Shape.Unit + 1
	if got := envelope.Excess(); got > most+way {
		t.Errorf("%d tokens above burst and rate, want %d at most, and for the way %d", got, most, way)
	}
	// On a machine that is busy the test may send less than the limit, and answers come late. The
	// burst alone is a third.
	used = envelope.Utilisation(time.Since(began), asked)
	t.Logf("%.2f of the limit used", used)
	for i, r := range reports {
		r.Flush(t.Context())
		st := r.Status()
		if st.Messages == 0 || st.Messages > 200 || st.Failed > 0 {
			t.Errorf("replica %d: %+v, want a message now and then", i, st)
		}
	}
	return used
}
