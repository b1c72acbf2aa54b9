package scoped_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/rate"
)

func TestNewNamesEveryFault(t *testing.T) {
	held, _ := leases(t, func() int64 { return 0 })
	_, err := scoped.New(scoped.Options{Leases: held, Deadline: -1, MaxUsage: -1})
	want := "scoped bucket options: Local is nil, want one\nStrict is nil, want the store whose buckets Leases " +
		"takes from\n" +
		"Deadline is -1ns, want more than 0 and at most 1m\nMaxUsage is -1, want 1 or more, or 0 for 16384"
	if err == nil || err.Error() != want {
		t.Errorf("New: %v, want %s", err, want)
	}
}

func TestSharedTakesNeedAStore(t *testing.T) {
	s := open(t, scoped.Options{})
	for _, scope := range []bucket.Scope{bucket.Strict, bucket.Lease} {
		if allowed, err := s.TryConsume(context.Background(), start,
			[]bucket.Take{take(t, 1, second, scope, bucket.LossOpen)},
			make([]bucket.Outcome, 1)); allowed || err == nil {
			t.Errorf("scope %d without a store: %t, %v, want an error", scope, allowed, err)
		}
	}
	if _, err := s.TryConsume(context.Background(), start, []bucket.Take{take(t, 1, second, bucket.Split, 0)},
		nil); err == nil {
		t.Error("no room for outcomes: no error")
	}
}

// What this process denies sends no message, nor does what the shared store has denied before.
func TestDenialsCostNoMessage(t *testing.T) {
	far := newRemote(t)
	s := open(t, scoped.Options{Strict: far})
	local, strict := take(t, 1, second, bucket.Local, 0), take(t, 2, second, bucket.Strict, 0)
	local.Cost = 10
	if allowed, _ := try(t, s, start, local); !allowed {
		t.Fatal("a full bucket denied its burst")
	}
	local.Cost = 1
	steps := []struct {
		what     string
		at       time.Duration
		takes    []bucket.Take
		allowed  bool
		messages int
	}{
		{"denied here", 0, []bucket.Take{local, strict}, false, 0},
		{"a look that costs nothing", 0, []bucket.Take{strict}, true, 1},
		{"all that is there", 0, []bucket.Take{costing(strict, 9)}, true, 1},
		{"denied there", 0, []bucket.Take{strict}, false, 1},
		{"denied again", 0, []bucket.Take{strict}, false, 0},
		{"and a dearer one", 999 * time.Millisecond, []bucket.Take{costing(strict, 3)}, false, 0},
		{"of which no cheaper one is known", 999 * time.Millisecond, []bucket.Take{costing(strict, 0)}, true, 1},
		{"in a shadow, which is asked", 999 * time.Millisecond, []bucket.Take{shadow(strict)}, true, 1},
		{"when it is time", time.Second, []bucket.Take{strict}, true, 1},
	}
	for _, step := range steps {
		before := far.asked
		allowed, outs := try(t, s, start+int64(step.at), step.takes...)
		if allowed != step.allowed || far.asked-before != step.messages {
			t.Errorf("%s: %t, %+v by %d messages, want %t by %d", step.what, allowed, outs, far.asked-before,
				step.allowed, step.messages)
		}
	}
	if got := s.Status().Spared; got != 2 {
		t.Errorf("%d requests were denied without a message, want 2", got)
	}
}

func costing(t bucket.Take, cost int64) bucket.Take { t.Cost = cost; return t }

func shadow(t bucket.Take) bucket.Take { t.Shadow = true; return t }

// A remembered denial says what the store would.
func TestRememberedDenialIsRight(t *testing.T) {
	s := open(t, scoped.Options{Strict: newRemote(t)})
	strict := take(t, 1, second, bucket.Strict, 0)
	try(t, s, start, costing(strict, 9))
	_, first := try(t, s, start, costing(strict, 3))
	if want := (bucket.Outcome{Remaining: 1, RetryAfter: 2 * time.Second,
		ResetAfter: 9 * time.Second}); first[0] != want {
		t.Fatalf("denied: %+v, want %+v", first[0], want)
	}
	at := start + int64(600*time.Millisecond)
	_, again := try(t, s, at, costing(strict, 4))
	if want := (bucket.Outcome{
		Remaining:  1,
		RetryAfter: 2400 * time.Millisecond,
		ResetAfter: 8400 * time.Millisecond,
	}); again[0] != want {
		t.Errorf("remembered: %+v, want %+v", again[0], want)
	}
}

// A wait beyond what can be told is the longest that can.
func TestRememberedDenialForCenturies(t *testing.T) {
	s := open(t, scoped.Options{Strict: newRemote(t)})
	century := take(t, 1, rate.Limit{Tokens: 1, Per: 100 * 365 * 24 * time.Hour, Burst: 10}, bucket.Strict, 0)
	try(t, s, start, costing(century, 10))
	try(t, s, start, century)
	if _, again := try(t, s, start, costing(century, 4)); again[0].RetryAfter != math.MaxInt64 ||
		again[0].Remaining != 0 {
		t.Errorf("remembered: %+v, want the longest wait, and nothing left", again[0])
	}
}

// Whoever is given tokens, or another limit, is asked about again.
func TestRememberedDenialIsForgotten(t *testing.T) {
	far := newRemote(t)
	s := open(t, scoped.Options{Strict: far})
	hour := rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10}
	strict := take(t, 1, hour, bucket.Strict, 0)
	deny := func() {
		t.Helper()
		try(t, s, start, costing(strict, 10))
		if allowed, _ := try(t, s, start, strict); allowed {
			t.Fatal("an empty bucket admitted")
		}
	}
	deny()
	moved := make([]int64, 1)
	fill := bucket.Change{Key: strict.Key, Shape: strict.Shape, Reach: strict.Reach, Units: bucket.Fill}
	if err := s.Correct(context.Background(), start, []bucket.Change{fill}, moved); err != nil ||
		moved[0] != -10*strict.Shape.Unit {
		t.Fatalf("Correct: %v, %d", err, moved[0])
	}
	if allowed, _ := try(t, s, start, strict); !allowed {
		t.Error("a bucket that was filled denied what it had denied before")
	}
	try(t, s, start, costing(strict, 9))
	deny()
	grown := strict
	grown.Shape = shapeOf(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 20})
	if allowed, _ := try(t, s, start, grown); !allowed {
		t.Error("a bucket with a larger limit denied what the smaller one had denied")
	}
	// Another process may have given something back: a second later it is asked about again.
	before := far.asked
	try(t, s, start+int64(time.Second), strict)
	if far.asked == before {
		t.Error("a denial was remembered for more than a second")
	}
}

// A client who is denied anywhere has spent nothing anywhere.
func TestAllOrNothing(t *testing.T) {
	now := start
	held, keeper := leases(t, func() int64 { return now })
	far := newRemote(t)
	s := open(t, scoped.Options{Strict: far, Leases: held})
	local, leased, strict := take(t, 1, second, bucket.Local, 0), take(t, 2, second, bucket.Lease, 0),
		take(t, 3, second, bucket.Strict, 0)
	for range 10 {
		if allowed, outs := try(t, s, now, local, leased, strict); !allowed {
			t.Fatalf("%+v", outs)
		}
	}
	all := []bucket.Take{take(t, 11, second, bucket.Local, 0), take(t, 12, second, bucket.Lease, 0),
		take(t, 13, second, bucket.Strict, 0)}
	for i, empty := range []bucket.Take{local, leased, strict} {
		for range 30 {
			if allowed, _ := try(t, s, now, append(all[:len(all):len(all)], empty)...); allowed {
				t.Fatalf("an empty bucket (%d) stood in nobody's way", i)
			}
		}
	}
	for range 10 {
		if allowed, outs := try(t, s, now, all...); !allowed {
			t.Fatalf("denied requests spent something: %+v", outs)
		}
	}
	if allowed, _ := try(t, s, now, all...); allowed {
		t.Error("an eleventh of ten was admitted")
	}
	keeper.mu.Lock()
	defer keeper.mu.Unlock()
	if got := keeper.ledgers[all[1].Key].State.Debt / all[1].Shape.Unit; got != 10 {
		t.Errorf("the lease was charged %d, want 10: what is returned is used again", got)
	}
}

// raced is a local store in which somebody takes everything between Peek and TryConsume.
type raced struct {
	bucket.Store
	rob bucket.Take
}

func (r *raced) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if r.rob.Cost > 0 {
		if _, err := r.Store.TryConsume(ctx, now, []bucket.Take{r.rob}, make([]bucket.Outcome, 1)); err != nil {
			return false, err
		}
		r.rob.Cost = 0
	}
	return r.Store.TryConsume(ctx, now, takes, outs)
}

// A request that finds its local bucket empty after all gives back what it took elsewhere.
func TestALostRaceIsUndone(t *testing.T) {
	now := start
	held, keeper := leases(t, func() int64 { return now })
	far := newRemote(t)
	local, leased, strict := take(t, 1, second, bucket.Local, 0), take(t, 2, second, bucket.Lease, 0),
		take(t, 3, second, bucket.Strict, 0)
	rob := local
	rob.Cost, rob.Reach = 10, 0
	s := open(t, scoped.Options{Local: &raced{table(t), rob}, Strict: far, Leases: held})
	allowed, outs := try(t, s, now, local, costing(leased, 10), costing(strict, 10))
	if allowed || outs[0].Allowed || !outs[1].Unknown || !outs[2].Unknown {
		t.Fatalf("%t, %+v, want a denial by the first", allowed, outs)
	}
	if got := far.left(t, now, strict); got != 10 {
		t.Errorf("the shared bucket holds %d, want all 10 again", got)
	}
	if allowed, _ := try(t, s, now, costing(leased, 10)); !allowed {
		t.Error("what was leased is gone")
	}
	keeper.mu.Lock()
	defer keeper.mu.Unlock()
	if got := keeper.ledgers[leased.Key].State.Debt / leased.Shape.Unit; got != 10 {
		t.Errorf("the lease was charged %d, want 10 once", got)
	}
	if st := s.Status(); st.Races != 1 || st.Undone != 1 {
		t.Errorf("%+v, want one race and one undone", st)
	}
}

// slow answers nobody until the context is done.
type slow struct{ *remote }

func (s slow) Attempt(ctx context.Context, _ int64, _ []bucket.Take, _ []bucket.Outcome) (bool,
	func(context.Context, int64), error) {
	<-ctx.Done()
	return false, nil, ctx.Err()
}

func (s slow) Correct(ctx context.Context, _ int64, _ []bucket.Change, _ []int64) error {
	<-ctx.Done()
	return ctx.Err()
}

// However many shared buckets a request names, it waits for one deadline at most.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := time.Now()
		elapsed := func() int64 { return int64(time.Since(origin)) }
		held, err := lease.New(lease.Options{Authority: mute{}, Now: elapsed, Deadline: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, scoped.Options{Strict: slow{newRemote(t)}, Leases: held, Deadline: 5 * time.Millisecond})
		for i, takes := range [][]bucket.Take{
			{take(t, 1, second, bucket.Strict, bucket.LossOpen)},
			{take(t, 2, second, bucket.Lease, bucket.LossOpen)},
			{take(t, 2, second, bucket.Lease, 0), take(t, 1, second, bucket.Strict, 0)},
			{shadow(take(t, 2, second, bucket.Lease, 0)), take(t, 1, second, bucket.Strict, 0)},
			{take(t, 1, second, bucket.Strict, 0)},
		} {
			if i == 4 {
				time.Sleep(50 * time.Millisecond)
			}
			began := time.Now()
			allowed, err := s.TryConsume(context.Background(), start+elapsed(), takes,
				make([]bucket.Outcome, len(takes)))
			if took := time.Since(began); allowed || !errors.Is(err, bucket.ErrLost) || took > 5*time.Millisecond {
				t.Errorf("%t, %v after %v, want a denial and ErrLost after 5 ms", allowed, err, took)
			}
		}
		// Five were not answered in more than 50 ms: from here on nobody waits.
		began := time.Now()
		if allowed, err := s.TryConsume(context.Background(), start+elapsed(),
			[]bucket.Take{take(t, 1, second, bucket.Strict, bucket.LossOpen)}, make([]bucket.Outcome, 1)); !allowed ||
			err != nil || time.Since(began) != 0 {
			t.Errorf("%t, %v after %v, want to pass at once", allowed, err, time.Since(began))
		}
		time.Sleep(time.Second) // until nothing is under way
	})
}

// mute is an authority that answers nobody.
type mute struct{}

func (mute) Ask(ctx context.Context, _ uint64, _ bucket.Take, _ lease.Question) (lease.Answer, error) {
	<-ctx.Done()
	return lease.Answer{}, ctx.Err()
}

// Clients who leave before the store has answered do not open the breaker.
func TestClientsWhoLeaveAreNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, scoped.Options{Strict: slow{newRemote(t)}})
		for range 50 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			if allowed, err := s.TryConsume(ctx, start,
				[]bucket.Take{take(t, 1, second, bucket.Strict, bucket.LossOpen)},
				make([]bucket.Outcome, 1)); allowed || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%t, %v", allowed, err)
			}
			cancel()
		}
		if s.Status().Lost {
			t.Error("the store is taken for lost")
		}
	})
}
