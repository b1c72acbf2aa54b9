package headgate_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

// queue is a Limiter with one rule of two requests a second and room for five.
func queue(t testing.TB, change ...func(*headgate.Options)) *trial.Bench {
	t.Helper()
	return trial.New(t, []string{"GET /a"}, []policy.Rule{
		{Endpoint: "GET /a", Limit: 2, Burst: 5, Algorithm: policy.LeakyBucket, Name: "queue"},
	}, append(change, func(o *headgate.Options) { o.Now = nil })...)
}

func waitOn(b *trial.Bench, ctx context.Context) (headgate.Decision, error) {
	return b.Wait(ctx, headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client})
}

const half = 500 * time.Millisecond

func TestWaitReleasesOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := queue(t)
		began := time.Now()
		var mu sync.Mutex
		var turns []time.Duration // guarded by mu
		denied := 0               // guarded by mu
		for range 7 {
			go func() {
				d, err := waitOn(b, context.Background())
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Error(err)
				case d.Allowed:
					turns = append(turns, time.Since(began))
				default:
					denied++
					if d.Reason != headgate.OverLimit || d.RetryAfter != half || time.Since(began) != 0 {
						t.Errorf("denied for %v after %v, retry in %v, want over_limit at once and %v", d.Reason,
							time.Since(began), d.RetryAfter, half)
					}
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Hour) // of the bubble's clock
		synctest.Wait()
		if want := []time.Duration{0, half, 2 * half, 3 * half, 4 * half}; !slices.Equal(turns, want) || denied != 2 {
			t.Errorf("turns came after %v, %d denied, want %v and 2", turns, denied, want)
		}
	})
}

func TestWaitDeniesWhatWouldWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := queue(t)
		for range 3 {
			b.Get("/a") // Check tells the wait and leaves it to the caller
		}
		hasty := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, MaxWait: 2 * half}
		ctx, cancel := context.WithTimeout(context.Background(), 3*half-1)
		defer cancel()
		for name, try := range map[string]func() (headgate.Decision, error){
			"deadline":  func() (headgate.Decision, error) { return waitOn(b, ctx) },
			"MaxWait":   func() (headgate.Decision, error) { return b.Wait(context.Background(), hasty) },
			"the lower": func() (headgate.Decision, error) { return b.Wait(ctx, hasty) },
			"Options.MaxWait": func() (headgate.Decision, error) {
				b := queue(t, func(o *headgate.Options) { o.MaxWait = 2 * half })
				for range 3 {
					b.Get("/a")
				}
				return waitOn(b, context.Background())
			},
		} {
			began := time.Now()
			d, err := try()
			if d.Allowed || d.Reason != headgate.OverLimit || err != nil || !time.Now().Equal(began) {
				t.Errorf("%s: allowed %v, %v, %v after %v, want over_limit at once", name, d.Allowed, d.Reason, err,
					time.Since(began))
			}
			if want := map[string]time.Duration{"deadline": 1, "MaxWait": half,
				"the lower": half, "Options.MaxWait": half}[name]; d.RetryAfter != want {
				t.Errorf("%s: retry after %v, want %v", name, d.RetryAfter, want)
			}
		}
		if d, err := waitOn(b, context.Background()); !d.Allowed || d.Wait != 3*half || err != nil {
			t.Errorf("after the denials: %+v, %v, want a wait of %v: they took nothing", d.Wait, err, 3*half)
		}
	})
}

func TestWaitStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, left []headgate.Decision
		var leftAt []int64
		b := queue(t, func(o *headgate.Options) {
			o.Observe = func(_ *headgate.Request, d *headgate.Decision) { asked = append(asked, *d) }
			o.Abandoned = func(r *headgate.Request, d *headgate.Decision, at int64) {
				if left, leftAt = append(left, *d), append(leftAt, at); r.Target != "/a" {
					t.Errorf("the caller of %q left, want the one of /a", r.Target)
				}
			}
		})
		for range 4 {
			b.Get("/a")
		}
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(half/2, cancel)
		began := time.Now()
		d, err := waitOn(b, ctx)
		if d.Allowed || d.Reason != headgate.Abandoned || !errors.Is(err, context.Canceled) ||
			time.Since(began) != half/2 {
			t.Errorf("Wait = %v, %v, %v after %v, want abandoned after %v", d.Allowed, d.Reason, err,
				time.Since(began), half/2)
		}
		if last := asked[len(asked)-1]; len(left) != 1 || left[0].Waiting == 0 || left[0].Waiting != last.Waiting ||
			left[0].Reason != headgate.Abandoned || left[0].At != last.At || leftAt[0] != last.At+int64(half/2) {
			t.Errorf("Observe was told of %+v and Abandoned of %+v at %v, want the same request, %v later", last, left,
				leftAt, half/2)
		}
		// Of the five taken half a one has drained, and as much of the cancelled one is not given
		// back twice: 4 are owed.
		if d := b.Get("/a"); d.Wait != 2*time.Second {
			t.Errorf("the next waits %v, want 2s", d.Wait)
		}
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		if d, err := waitOn(b, gone); d.Allowed || !errors.Is(err, context.Canceled) && d.Reason != headgate.OverLimit {
			t.Errorf("Wait of who has left already = %v, %v, %v", d.Allowed, d.Reason, err)
		}
	})
}

// TestWhoLeavesGivesNobodyElsesTokensBack: what became of a bucket while a request waited for its turn leaves it
// nothing to give back there, so that others' tokens are not given back in its place.
func TestWhoLeavesGivesNobodyElsesTokensBack(t *testing.T) {
	for name, meanwhile := range map[string]func(b *trial.Bench, rates *adaptive.Table){
		"an operator filled it": func(b *trial.Bench, _ *adaptive.Table) {
			subject, query := policy.SubjectPrincipal, trial.Mine
			query.Subject = &subject
			if _, err := b.Reset(t.Context(), query, nil); err != nil {
				t.Error(err)
			}
		},
		"its rate was lowered no more": func(b *trial.Bench, rates *adaptive.Table) {
			now := b.Now.UnixNano()
			rates.Follow(adaptive.Change{Endpoint: "GET /a", At: now, Since: now, Own: adaptive.Whole})
			b.Now = b.Now.Add(5 * time.Minute) // it is full
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b *trial.Bench
			waits, rates := false, &adaptive.Table{}
			b = trial.New(t, []string{"GET /a"}, []policy.Rule{
				{Endpoint: "GET /a", Limit: 600, Per: time.Minute},
				{Endpoint: "GET /a", Limit: 6000, Per: time.Hour, Algorithm: policy.LeakyBucket,
					Subject: policy.SubjectIP},
			}, func(o *headgate.Options) {
				o.Adaptive = rates
				o.Observe = func(_ *headgate.Request, d *headgate.Decision) {
					if waits {
						waits = false
						meanwhile(b, rates)
						if d := b.Take(b.TokensLeft()); !d.Allowed || b.TokensLeft() != 0 {
							t.Errorf("others: %v, %d tokens are left, want all taken", d.Reason, b.TokensLeft())
						}
						b.Now = b.Now.Add(time.Millisecond)
					}
				}
			})
			now := b.Now.UnixNano()
			rates.Follow(adaptive.Change{Endpoint: "GET /a", At: now, Since: now, Own: adaptive.Whole / 1024})
			b.Take(1)
			gone, leave := context.WithCancel(t.Context())
			leave()
			waits = true
			d, err := b.Wait(gone, headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: 100})
			if err == nil || d.Reason != headgate.Abandoned {
				t.Fatalf("Wait = %v, %v, want a caller that left", d.Reason, err)
			}
			if left := b.TokensLeft(); left != 0 {
				t.Errorf("%d tokens are left, want 0: others took all", left)
			}
		})
	}
}

// TestWhoWaitsTakesNoRoomOfReservations: those who wait neither keep others from reserving nor lack room to give back
// when they leave, however little there is.
func TestWhoWaitsTakesNoRoomOfReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := trial.New(t, []string{"GET /a", "GET /b"}, []policy.Rule{
			{Endpoint: "GET /a", Limit: 2, Burst: 5, Algorithm: policy.LeakyBucket},
			{Endpoint: "GET /b", Limit: 100},
		}, func(o *headgate.Options) { o.Now, o.MaxReservations = nil, 1 })
		began := time.Now()
		gone, leave := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for turn := range 4 {
			ctx, left := context.Background(), turn == 3
			if left {
				ctx = gone
			}
			all.Go(func() {
				d, err := waitOn(b, ctx)
				if after := time.Since(began); !left && (err != nil || after != half*time.Duration(turn)) ||
					left && d.Reason != headgate.Abandoned {
					t.Errorf("turn %d came after %v (%v, %v)", turn, after, d.Reason, err)
				}
			})
			synctest.Wait()
		}
		other := headgate.Request{Method: "GET", Target: "/b", Peer: trial.Client, Cost: 60}
		made, d := b.Reserve(context.Background(), other, headgate.UntilSettled)
		if want := (reservation.Stats{Outstanding: 1, Capacity: 1, Made: 1}); !d.Allowed || b.Reservations() != want {
			t.Errorf("while others wait, Reserve = %v, %+v, want %+v", d.Reason, b.Reservations(), want)
		}
		b.MustSettle(t, made.ID, 1)
		leave()
		synctest.Wait()
		if d := b.Get("/a"); d.Wait != 3*half {
			t.Errorf("the next waits %v, want %v: who left has given back", d.Wait, 3*half)
		}
		all.Wait()
		if want := (reservation.Stats{Capacity: 1, Made: 1, Settled: 1}); b.Reservations() != want {
			t.Errorf("in the end %+v, want %+v", b.Reservations(), want)
		}
	})
}

func TestWaitersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := queue(t, func(o *headgate.Options) { o.MaxWaiters = 2 })
		b.Get("/a")
		for range 2 {
			go func() {
				if d, err := waitOn(b, context.Background()); !d.Allowed || err != nil {
					t.Errorf("Wait = %v, %v, want allowed", d.Reason, err)
				}
			}()
		}
		synctest.Wait()
		if d, _ := waitOn(b, context.Background()); d.Allowed || d.RetryAfter != 3*half {
			t.Errorf("the third waiter is allowed %v, retry after %v, want denied until nobody has to wait",
				d.Allowed, d.RetryAfter)
		}
		time.Sleep(3 * half)
		if d, err := waitOn(b, context.Background()); !d.Allowed || err != nil {
			t.Errorf("when all have gone on: Wait = %v, %v", d.Reason, err)
		}
	})
}

// TestFloodLeavesOthersToWait has one caller ask ten times as often as there is room to wait, and then forty others a
// few times each: all of them are served.
func TestFloodLeavesOthersToWait(t *testing.T) {
	const others, each = 40, 3
	synctest.Test(t, func(t *testing.T) {
		b := trial.New(t, []string{"GET /a"}, []policy.Rule{{
			Endpoint:  "GET /a",
			Limit:     10,
			Burst:     10_000,
			Algorithm: policy.LeakyBucket,
			Subject:   policy.SubjectEndpoint,
		}}, func(o *headgate.Options) { o.Now = nil })
		var mu sync.Mutex
		served := make([]float64, 1+others) // guarded by mu; the first is the flood's
		ask := func(caller int) {
			peer := netip.AddrFrom4([4]byte{192, 0, 2, byte(caller)})
			d, err := b.Wait(context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: peer})
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				mu.Lock()
				served[caller]++
				mu.Unlock()
			}
		}
		for range 10_240 {
			go ask(0)
		}
		synctest.Wait()
		if waiting, most := b.Waiters(); waiting != most/2 {
			t.Errorf("%d of the flood wait, want half of %d", waiting, most)
		}
		for caller := range others {
			for range each {
				go ask(1 + caller)
			}
		}
		synctest.Wait()
		time.Sleep(time.Hour) // of the bubble's clock
		synctest.Wait()
		var sum, squares float64
		for _, n := range served[1:] {
			sum += n
			squares += n * n
		}
		// The index of R. Jain, D. Chiu and W. Hawe (DEC-TR-301, 1984): 1 if all get the same.
		if index := sum * sum / (others * squares); sum < others*each*0.95 || index < 0.95 {
			t.Errorf("others had %v of %d served, Jain index %.3f: %v", sum, others*each, index, served)
		}
		if full, beyondShare, _ := b.WithoutPlace(); full != 0 || beyondShare < 9000 {
			t.Errorf("%d found the room full and %d had their share, want 0 and most of the flood", full, beyondShare)
		}
		if waiting, _ := b.Waiters(); waiting != 0 {
			t.Errorf("%d wait after all were answered", waiting)
		}
	})
}

func TestWaitHoldsForTheLongestOfSeveralRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := trial.New(t, []string{"GET /a"}, []policy.Rule{
			{Endpoint: "GET /a", Limit: 2, Burst: 5, Algorithm: policy.LeakyBucket},
			{Endpoint: "GET /a", Limit: 1, Burst: 3, Algorithm: policy.LeakyBucket, Subject: policy.SubjectIP},
			{
				Endpoint:  "GET /a",
				Limit:     1,
				Per:       time.Hour,
				Burst:     5,
				Algorithm: policy.LeakyBucket,
				Subject:   policy.SubjectEndpoint,
				Mode:      policy.Shadow,
			},
		}, func(o *headgate.Options) { o.Now = nil })
		for i := range 3 {
			if d := b.Get("/a"); !d.Allowed || d.Wait != time.Duration(i)*time.Second {
				t.Errorf("request %d: %v, wait %v, want %d s: the slower rule's, and never the shadow's", i,
					d.Reason, d.Wait, i)
			}
		}
		if d := b.Get("/a"); d.Allowed || d.RetryAfter != time.Second {
			t.Errorf("the fourth: %v, retry after %v, want denied for a second", d.Reason, d.RetryAfter)
		}
		x := b.Explain(context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client})
		if x.Buckets[0].Algorithm != "leaky_bucket" || x.Buckets[0].Remaining != 2 {
			t.Errorf("bucket is %+v, want a leaky_bucket with 2 left: the denied one took nothing", x.Buckets[0])
		}
	})
}

func TestWaitWithoutAQueueIsCheck(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 1}})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for i, want := range []headgate.Reason{headgate.WithinLimits, headgate.OverLimit} {
		d, err := waitOn(b, gone)
		if d.Reason != want || err != nil {
			t.Errorf("request %d: %v, %v, want %v", i, d.Reason, err, want)
		}
	}
	if d, err := b.Wait(context.Background(),
		headgate.Request{Method: "GET", Target: "/b"}); d.Reason != headgate.UnknownEndpoint || err != nil {
		t.Errorf("unknown path: %v, %v", d.Reason, err)
	}
}

func TestWaitAllocatesNothing(t *testing.T) {
	for _, algorithm := range []policy.Algorithm{policy.TokenBucket, policy.LeakyBucket} {
		lim, _ := newLive(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1 << 32, Algorithm: algorithm}})
		r := headgate.Request{Method: "GET", Target: "/v1/customers/cus_1/sources", Peer: trial.Client, MaxWait: -1}
		if n := testing.AllocsPerRun(1000, func() { lim.Wait(context.Background(), r) }); n >= trial.Allocations {
			t.Errorf("Wait under a %v allocates %v times, want 0", algorithm, n)
		}
	}
}
