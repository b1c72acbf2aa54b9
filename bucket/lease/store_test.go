package lease_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// authority keeps ledgers in this process, and takes its time.
type authority struct {
	mu      sync.Mutex
	delay   time.Duration             // guarded by mu
	fails   error                     // guarded by mu
	ledgers map[key.Key]*lease.Ledger // guarded by mu
	asked   int                       // guarded by mu
	granted int64                     // guarded by mu
}

// behave has it answer after a delay, or fail.
func (a *authority) behave(delay time.Duration, fails error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delay, a.fails = delay, fails
}

var errAway = errors.New("away")

func (a *authority) Ask(ctx context.Context, replica uint64, of bucket.Take, q lease.Question) (lease.Answer, error) {
	a.mu.Lock()
	delay, fails := a.delay, a.fails
	a.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return lease.Answer{}, ctx.Err()
		}
	}
	if fails != nil {
		return lease.Answer{}, fails
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.ledgers[of.Key]
	if l == nil {
		if a.ledgers == nil {
			a.ledgers = map[key.Key]*lease.Ledger{}
		}
		l = &lease.Ledger{}
		a.ledgers[of.Key] = l
	}
	got := l.Grant(time.Now().UnixNano(), of.Shape, replica, q)
	a.asked++
	a.granted += got.Tokens
	return got, nil
}

func open(t testing.TB, o lease.Options) *lease.Store {
	t.Helper()
	s, err := lease.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func shape(t testing.TB, tokens, burst int64) rate.Shape {
	t.Helper()
	sh, err := rate.Compile(rate.Limit{Tokens: tokens, Per: time.Second, Burst: burst})
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

func of(n uint64, sh rate.Shape, cost int64) bucket.Take {
	return bucket.Take{Key: key.Key{Hi: n, Lo: n}, Shape: sh, Cost: cost}
}

// consume is TryConsume of some takes that must be answered.
func consume(t *testing.T, s *lease.Store, takes ...bucket.Take) (bool, []bucket.Outcome) {
	t.Helper()
	outs := make([]bucket.Outcome, len(takes))
	ok, err := s.TryConsume(t.Context(), 0, takes, outs)
	if err != nil {
		t.Fatal(err)
	}
	return ok, outs
}

func TestStoreAdmitsTheBurstAndThenTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{delay: time.Millisecond}
		s := open(t, lease.Options{Authority: a})
		sh := shape(t, 10, 5)
		admitted := 0
		for range 8 {
			if ok, _ := consume(t, s, of(1, sh, 1)); ok {
				admitted++
			}
		}
		if admitted != 5 {
			t.Errorf("%d of 8 admitted at once, want the burst of 5", admitted)
		}
		ok, outs := consume(t, s, of(1, sh, 1))
		if ok || outs[0].RetryAfter < 90*time.Millisecond || outs[0].RetryAfter > 130*time.Millisecond ||
			outs[0].Remaining != 0 {
			t.Fatalf("of an empty bucket: %v, %+v, want a refusal for about 100ms", ok, outs[0])
		}
		time.Sleep(outs[0].RetryAfter)
		if ok, outs := consume(t, s, of(1, sh, 1)); !ok {
			t.Errorf("after RetryAfter: %+v, want it admitted", outs[0])
		}
	})
}

// A key in debt costs no message, however often it is tried.
func TestStoreDeniesWithoutAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{}
		s := open(t, lease.Options{Authority: a})
		sh := shape(t, 1, 1)
		for range 10_000 {
			consume(t, s, of(1, sh, 1))
		}
		synctest.Wait()
		if a.asked > 2 {
			t.Errorf("%d questions about a bucket that is empty, want 2 at most", a.asked)
		}
	})
}

func TestStoreAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{delay: time.Millisecond}
		s := open(t, lease.Options{Authority: a})
		wide, narrow := shape(t, 1, 100), shape(t, 1, 3)
		admitted := 0
		for range 10 {
			if ok, _ := consume(t, s, of(1, wide, 2), of(2, narrow, 1)); ok {
				admitted++
			}
		}
		if admitted != 3 {
			t.Errorf("%d admitted, want 3, as the narrow one holds", admitted)
		}
		_, outs := consume(t, s, of(1, wide, 2), of(2, narrow, 1))
		if !outs[0].Allowed || outs[1].Allowed || outs[0].Remaining != 94 {
			t.Errorf("outcomes = %+v, want the wide one allowed with 94 left: what the narrow one denied is back", outs)
		}
		if ok, _ := consume(t, s, of(3, wide, 60), of(3, wide, 60)); ok {
			t.Error("two takes of 60 out of one bucket of 100 are admitted")
		}
	})
}

func TestStoreShadows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, lease.Options{Authority: &authority{delay: time.Millisecond}})
		sh := shape(t, 1, 2)
		shadow := of(2, sh, 1)
		shadow.Shadow = true
		wide := shape(t, 1, 100)
		for i, want := range []bool{true, true, false, false} {
			ok, outs := consume(t, s, of(1, wide, 1), shadow)
			if !ok || outs[1].Allowed != want {
				t.Errorf("request %d: %v, shadow %v, want it admitted and the shadow %v", i, ok, outs[1].Allowed, want)
			}
		}
		shadow.Key = key.Key{Hi: 9}
		if ok, _ := consume(t, s, of(3, sh, 3), shadow); ok {
			t.Error("a cost above the burst is admitted")
		}
		if _, outs := consume(t, s, shadow); outs[0].Remaining != 1 {
			t.Errorf("a shadow has %d left of 2 after one take, want 1: with a refused request it is not charged",
				outs[0].Remaining)
		}
	})
}

func TestStoreWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{}
		s := open(t, lease.Options{Authority: a})
		sh := shape(t, 1, 100)
		consume(t, s, of(1, sh, 1))
		a.behave(time.Hour, nil)
		outs := make([]bucket.Outcome, 2)
		began := time.Now()
		_, err := s.TryConsume(t.Context(), 0, []bucket.Take{of(1, sh, 1), of(2, sh, 1)}, outs)
		if err == nil || time.Since(began) != 5*time.Millisecond {
			t.Errorf("TryConsume = %v after %v, want an error after the deadline of 5ms", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.TryConsume(ctx, 0, []bucket.Take{of(3, sh, 1)}, outs); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("TryConsume = %v, want that of its context", err)
		}
		a.behave(0, errAway)
		if ok, err := s.TryConsume(t.Context(), 0, []bucket.Take{of(4, sh, 1)}, outs); ok || err == nil {
			t.Errorf("TryConsume = %v, %v, want an error", ok, err)
		}
		time.Sleep(time.Second)
		a.behave(0, nil)
		if ok, _ := consume(t, s, of(1, sh, 1), of(2, sh, 1), of(3, sh, 1), of(4, sh, 1)); !ok {
			t.Error("denied after the authority came back, want it admitted")
		}
	})
}

func TestStoreChangedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{}
		s := open(t, lease.Options{Authority: a})
		wide, narrow := shape(t, 1000, 1000), shape(t, 1, 1)
		for range 40 { // so many that some are held
			consume(t, s, of(1, wide, 1))
		}
		if ok, outs := consume(t, s, of(1, narrow, 1), of(1, narrow, 1)); ok {
			t.Errorf("two tokens of a limit of 1 are admitted: %+v, want what was held under another limit lost", outs)
		}
	})
}

// However many keys there are, and whatever is forgotten, no more is admitted than was granted.
func TestStoreForgetsAndGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{}
		s := open(t, lease.Options{Authority: a, MaxAccounts: 64})
		sh := shape(t, 1, 3)
		admitted := int64(0)
		for round := range 6 {
			for n := range uint64(1500) { // more than are remembered at the least
				if ok, _ := consume(t, s, of(n, sh, 1)); ok {
					admitted++
				}
			}
			if round == 2 && admitted != 4500 {
				t.Fatalf("%d admitted of 1500 keys with a burst of 3, want 4500", admitted)
			}
		}
		if admitted != 4500 || a.granted != 4500 {
			t.Errorf("%d admitted, %d granted, want 4500: nothing comes back by being forgotten", admitted, a.granted)
		}
	})
}

// What is left is what the last answer said and what has drained since, as far as that can be told.
func TestKnown(t *testing.T) {
	for name, c := range map[string]struct {
		limit rate.Limit
		cost  int64
		after time.Duration
		want  int64
	}{
		"at once":    {rate.Limit{Tokens: 1, Per: time.Second, Burst: 10}, 4, 0, 6},
		"later":      {rate.Limit{Tokens: 1, Per: time.Second, Burst: 10}, 4, 3 * time.Second, 9},
		"full again": {rate.Limit{Tokens: 1, Per: time.Second, Burst: 10}, 4, time.Minute, 10},
		"a quota of more than centuries": {rate.Limit{Tokens: 1, Per: 365 * 24 * time.Hour, Burst: 1000}, 900,
			time.Second, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, lease.Options{Authority: new(authority)})
				sh, err := rate.Compile(c.limit)
				if err != nil {
					t.Fatal(err)
				}
				if allowed, outs := consume(t, s, of(1, sh, c.cost)); !allowed {
					t.Fatalf("%+v", outs)
				}
				time.Sleep(c.after)
				take := of(1, sh, 1)
				if got, _ := s.Known(&take); got != c.want {
					t.Errorf("%d known to be left, want %d", got, c.want)
				}
			})
		})
	}
}

func TestStorePeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{}
		s := open(t, lease.Options{Authority: a})
		sh := shape(t, 1, 3)
		outs := make([]bucket.Outcome, 1)
		for range 5 {
			if ok, err := s.Peek(t.Context(), 0, []bucket.Take{of(1, sh, 3)}, outs); !ok || err != nil ||
				outs[0].Remaining != 3 {
				t.Fatalf("Peek = %v, %v, %+v, want 3 tokens, again and again", ok, err, outs[0])
			}
		}
		consume(t, s, of(1, sh, 2))
		if ok, _ := s.Peek(t.Context(), 0, []bucket.Take{of(1, sh, 3)}, outs); ok || outs[0].Remaining != 1 ||
			outs[0].RetryAfter != 2*time.Second {
			t.Errorf("Peek = %v, %+v, want 1 left and 2s to wait", ok, outs[0])
		}
		if ok, _ := s.Peek(t.Context(), 0, []bucket.Take{of(1, sh, 4)}, outs); ok || !outs[0].Never {
			t.Errorf("Peek of more than the burst = %v, %+v, want never", ok, outs[0])
		}
	})
}

func TestStoreRefuses(t *testing.T) {
	s := open(t, lease.Options{Authority: &authority{}})
	window, err := rate.Compile(rate.Limit{Tokens: 5, Per: time.Second, Burst: 5, Algorithm: rate.FixedWindow})
	if err != nil {
		t.Fatal(err)
	}
	outs := make([]bucket.Outcome, 1)
	if _, err := s.TryConsume(t.Context(), 0, []bucket.Take{of(1, window, 1)}, outs); err == nil ||
		!strings.Contains(err.Error(), "takes[0]") {
		t.Errorf("TryConsume of a window = %v, want a refusal", err)
	}
	if _, err := s.TryConsume(t.Context(), 0, make([]bucket.Take, 2), outs); err == nil {
		t.Error("TryConsume with room for one outcome of two: nil, want an error")
	}
	_, err = lease.New(lease.Options{
		Terms:       lease.Terms{TTL: 2 * time.Minute, Poll: time.Nanosecond},
		Deadline:    -1,
		MaxAccounts: 3,
	})
	for _, field := range []string{"Authority", "Terms.TTL is 2m0s", "Terms.Poll is 1ns", "Deadline is -1ns",
		"MaxAccounts is 3"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("New = %v, want it to name %s", err, field)
		}
	}
}

// Many at once: what is admitted was granted, and every request is answered.
func TestStoreConcurrently(t *testing.T) {
	a := &authority{delay: 50 * time.Microsecond}
	s := open(t, lease.Options{
		Authority:   a,
		Terms:       lease.Terms{TTL: time.Minute},
		Deadline:    time.Minute,
		MaxAccounts: 64,
	})
	sh := shape(t, 1, 2000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted := int64(0)
	for w := range 8 {
		wg.Go(func() {
			outs := make([]bucket.Outcome, 2)
			for i := range 1000 {
				ok, err := s.TryConsume(t.Context(), 0, []bucket.Take{of(uint64(i%3), sh, 1),
					of(uint64(100+w+i%90), sh, 1)}, outs)
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					mu.Lock()
					admitted += 2
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if admitted > a.granted || admitted < 2*5900 {
		t.Errorf("%d tokens admitted, %d granted, want the 6,000 requests that the first three buckets hold, and "+
			"no more than granted", admitted, a.granted)
	}
}

func warm(t testing.TB) (*lease.Store, []bucket.Take, []bucket.Outcome) {
	s := open(t, lease.Options{Authority: &authority{}, Terms: lease.Terms{TTL: time.Minute}, Deadline: time.Second})
	sh := shape(t, 1_000_000, 1_000_000_000)
	takes, outs := []bucket.Take{of(1, sh, 1)}, make([]bucket.Outcome, 1)
	big := []bucket.Take{of(1, sh, 100_000_000)}
	for range 10 { // demand, so that much is held
		if ok, err := s.TryConsume(t.Context(), 0, big, outs); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	return s, takes, outs
}

func TestWarmAllocatesNothing(t *testing.T) {
	s, takes, outs := warm(t)
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { _, _ = s.TryConsume(ctx, 0, takes, outs) }); n != 0 {
		t.Errorf("TryConsume out of what is held allocates %v times, want 0", n)
	}
}

func BenchmarkWarm(b *testing.B) {
	s, takes, outs := warm(b)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.TryConsume(b.Context(), 0, takes, outs)
	}
}

// What was held for a request that another bucket denied is there for the next one, until it would have expired anyway.
func TestReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{}
		s := open(t, lease.Options{Authority: a})
		one, two := of(1, shape(t, 1, 10), 7), of(2, shape(t, 1, 10), 3)
		none := two
		none.Cost = 0
		takes, until := []bucket.Take{one, two, none}, make([]int64, 3)
		for range 5 {
			if ok, err := s.Hold(t.Context(), time.Minute, takes, make([]bucket.Outcome, 3), until); !ok ||
				err != nil || until[0] == 0 || until[1] == 0 || until[2] != 0 {
				t.Fatalf("Hold: %t, %v, %d", ok, err, until)
			}
			s.Return(takes, until)
		}
		a.mu.Lock()
		if a.granted != 10 {
			t.Errorf("%d tokens were asked for, want 10: those that came back are used again", a.granted)
		}
		a.mu.Unlock()
		if ok, _ := consume(t, s, of(1, shape(t, 1, 10), 4), of(2, shape(t, 1, 10), 11)); ok {
			t.Error("a denied decision was admitted")
		}
		if ok, err := s.Hold(t.Context(), time.Minute, takes, make([]bucket.Outcome, 3), until); !ok || err != nil {
			t.Fatalf("Hold: %t, %v", ok, err)
		}
		time.Sleep(100 * time.Millisecond)
		s.Return(takes, until)
		if ok, _ := consume(t, s, one); ok {
			t.Error("what has expired was returned")
		}
	})
}

// Requests that wait for one answer hear of one failure each, and OnAnswer of one in all.
func TestOnAnswerHearsOfEveryQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{delay: time.Millisecond, fails: errAway}
		s := open(t, lease.Options{Authority: a})
		var mu sync.Mutex
		var heard []error
		s.OnAnswer(func(_ *bucket.Take, err error) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, err)
		})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := s.TryConsume(t.Context(), 0, []bucket.Take{of(1, shape(t, 1, 10), 1)},
					make([]bucket.Outcome, 1)); err == nil {
					t.Error("no error without an answer")
				}
			})
		}
		wg.Wait()
		if len(heard) != 1 || !errors.Is(heard[0], errAway) {
			t.Errorf("heard of %v, want one failure", heard)
		}
	})
}

// What became of tokens is counted: given, used, brought back and lost.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{}
		s := open(t, lease.Options{Authority: a})
		sh := shape(t, 100, 100)
		for range 50 { // enough to ask ahead
			consume(t, s, of(1, sh, 1))
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		got := s.Status()
		if got.Accounts != 1 || got.Questions == 0 || got.Questions != got.Messages || got.Granted < 50 ||
			got.Expired != 0 || got.Failed != 0 {
			t.Errorf("after 50 takes: %+v", got)
		}
		time.Sleep(time.Second)
		consume(t, s, of(1, sh, 1))
		if late := s.Status(); late.Expired != got.Granted-50 || late.Granted != got.Granted+1 {
			t.Errorf("after a second: %+v, want %d expired, and one more granted", late, got.Granted-50)
		}
		consume(t, s, of(1, sh, 5), of(2, sh, 101))
		if late := s.Status(); late.Returned != 5 {
			t.Errorf("after a denial elsewhere: %+v, want 5 returned", late)
		}
		a.behave(0, errAway)
		if _, err := s.TryConsume(t.Context(), 0, []bucket.Take{of(3, sh, 1)}, make([]bucket.Outcome, 1)); err == nil {
			t.Error("no error of an authority that is away")
		}
		if late := s.Status(); late.Failed != 1 || late.Accounts != 3 {
			t.Errorf("after a failure: %+v", late)
		}
	})
}

// TryHeld decides out of what is held and known, as TryConsume does, and leaves all else alone.
func TestTryHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{}
		s := open(t, lease.Options{Authority: a})
		sh := shape(t, 10, 40)
		try := func(cost int64, allowed, decided bool) bucket.Outcome {
			t.Helper()
			var o bucket.Outcome
			take := of(1, sh, cost)
			if got, could := s.TryHeld(&take, &o); got != allowed || could != decided {
				t.Fatalf("TryHeld of %d = %t, %t, want %t, %t", cost, got, could, allowed, decided)
			}
			return o
		}
		try(1, false, false)
		if n := s.Status().Accounts; n != 0 {
			t.Errorf("%d accounts, want none: it opens none", n)
		}
		take := of(1, sh, 10)
		until := make([]int64, 1)
		if ok, err := s.Hold(t.Context(), time.Minute, []bucket.Take{take}, make([]bucket.Outcome, 1), until); !ok ||
			err != nil {
			t.Fatalf("Hold: %t, %v", ok, err)
		}
		s.Return([]bucket.Take{take}, until)
		if o := try(4, true, true); !o.Allowed || o.Remaining != 36 || o.RetryAfter != 0 {
			t.Errorf("%+v, want 36 left: 6 that are held, and 30 in the bucket", o)
		}
		try(7, false, false)  // more than is held
		try(41, false, false) // more than can be
		if ok, _ := consume(t, s, of(1, sh, 36)); !ok {
			t.Fatal("36 of the 36 that are left are denied")
		}
		if ok, _ := consume(t, s, of(1, sh, 1)); ok {
			t.Fatal("a token of an empty bucket")
		}
		if o := try(2, false, true); o.Allowed || o.Never || o.RetryAfter <= 0 || o.Remaining != 0 {
			t.Errorf("%+v, want it denied for a while", o)
		}
		sh = shape(t, 1, 40)
		try(1, false, false) // what is known is of another limit
	})
}
