//go:build unix

package scoped_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// gateway is one of several, whose clock is set to its own time.
type gateway struct {
	*scoped.Store
	now     func() int64
	reports *report.Store
}

// gatewayOn is a gateway on a server. At is the true time, in nanoseconds of any epoch, and its
// clock is ahead of start by at and offset.
func gatewayOn(t *testing.T, server redis.Evaler, at *atomic.Int64, offset time.Duration, replicas int) gateway {
	t.Helper()
	now := func() int64 { return start + at.Load() + int64(offset) }
	strict, err := redis.New(redis.Options{Server: server, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	lessor, err := redis.NewAuthority(strict, redis.AuthorityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := redis.NewLedger(strict, redis.LedgerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leases, err := lease.New(lease.Options{Authority: lessor, Deadline: lease.Terms{}.Complete().TTL, Now: at.Load})
	if err != nil {
		t.Fatal(err)
	}
	reports, err := report.New(report.Options{Authority: ledger, Interval: time.Millisecond, Deadline: time.Minute,
		Now: at.Load})
	if err != nil {
		t.Fatal(err)
	}
	s, err := scoped.New(scoped.Options{
		Local: table(t), Strict: strict, Leases: leases, Reports: reports, Deadline: time.Minute, Began: now(),
		Replicas: func() int { return replicas },
	})
	if err != nil {
		t.Fatal(err)
	}
	return gateway{s, now, reports}
}

// A lowered limit acts everywhere, to whatever times the clocks of gateways and of the server are
// set: after all have heard of it no more is admitted than it gives. Gateways hear of it one after
// the other, within half a second.
func TestALoweredLimitActsWhateverTheClocksSay(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	server := redistest.Start(t)
	conn := redistest.Dial(server.Socket)
	t.Cleanup(conn.Close)
	fast, slow := rate.Limit{Tokens: 300, Per: time.Second, Burst: 300},
		rate.Limit{Tokens: 10, Per: time.Second, Burst: 20}
	for _, c := range []struct {
		gateways [3]time.Duration
		server   time.Duration
	}{
		{},
		{[3]time.Duration{time.Minute, 0, 0}, 0}, {[3]time.Duration{-time.Minute, 0, 0}, 0},
		{[3]time.Duration{hour, 0, 0}, 0}, {[3]time.Duration{-hour, 0, 0}, 0},
		{[3]time.Duration{hour, hour, hour}, 0}, {[3]time.Duration{}, hour}, {[3]time.Duration{}, -hour},
		{[3]time.Duration{hour, -hour, time.Minute}, -time.Minute},
	} {
		for _, scope := range []bucket.Scope{bucket.Strict, bucket.Lease, bucket.Sync, bucket.Split} {
			if scope == bucket.Split && c.gateways != [3]time.Duration{hour, -hour, time.Minute} {
				continue // the store has nothing to do with it
			}
			t.Run(fmt.Sprintf("%v/%v/%v", scope, c.gateways, c.server), func(t *testing.T) {
				server.Do("FLUSHALL")
				var at atomic.Int64
				clock := &redistest.Clock{To: conn, Now: func() int64 { return start + at.Load() + int64(c.server) }}
				var all [3]gateway
				for i := range all {
					all[i] = gatewayOn(t, clock, &at, c.gateways[i], len(all))
				}
				before, after := shapeOf(t, fast), shapeOf(t, slow)
				received := simulate.Envelope{Shape: after}
				const changed, heard, end = time.Second, 1500 * time.Millisecond, 4 * time.Second
				for ; at.Load() < int64(end); at.Add(int64(10 * time.Millisecond)) {
					for i := range all {
						one := take(t, uint64(scope), fast, scope, bucket.LossClosed)
						mine := changed + time.Duration(i)*(heard-changed)/2
						if time.Duration(at.Load()) >= mine {
							one.Shape, one.Since, one.Before = after, start+int64(mine+c.gateways[i]),
								&rate.Past{Shape: before}
						}
						for range 5 {
							allowed, err := all[i].TryConsume(context.Background(), all[i].now(), []bucket.Take{one},
								make([]bucket.Outcome, 1))
							// on a busy machine an answer may be late, which denies
							if err != nil && !errors.Is(err, bucket.ErrLost) {
								t.Fatal(err)
							}
							if now := time.Duration(at.Load()); allowed && now >= heard {
								received.Admit(now, 1)
							}
						}
						// by real time, a busy machine reports too late, and what is owed outlasts
						// the test
						if scope == bucket.Sync {
							all[i].reports.Flush(context.Background())
						}
					}
				}
				sharing := bucket.Sharing{Replicas: 3, TTL: lease.Terms{}.Complete().TTL, Interval: time.Millisecond}
				promised := sharing.Envelope(slow, scope).Excess
				if received.Excess() > promised || received.Admitted == 0 {
					t.Errorf("%d admitted after all have heard, %d beyond burst and rate, want %d at most",
						received.Admitted, received.Excess(), promised)
				}
			})
		}
	}
}

// What is given back of a request is no more than is left of it when the message arrives, however
// late that is and however often it comes: in the end no more was admitted than the scope promises,
// counted by what requests turned out to cost.
func TestWhatIsGivenBackLateGrantsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := redistest.Dial(server.Socket)
	t.Cleanup(conn.Close)
	limit := rate.Limit{Tokens: 25, Per: time.Second, Burst: 100}
	shape := shapeOf(t, limit)
	for _, scope := range []bucket.Scope{bucket.Strict, bucket.Lease, bucket.Sync, bucket.Local} {
		for _, late := range []time.Duration{5 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second} {
			t.Run(fmt.Sprintf("%v/%v", scope, late), func(t *testing.T) {
				server.Do("FLUSHALL")
				rng := rand.New(rand.NewPCG(uint64(scope), uint64(late)))
				var at atomic.Int64
				offset := time.Duration(rng.Int64N(int64(2*time.Hour))) - time.Hour
				clock := &redistest.Clock{To: conn, Now: func() int64 { return start + at.Load() + int64(offset) }}
				g := gatewayOn(t, clock, &at, 0, 1)
				received := simulate.Envelope{Shape: shape}
				of := take(t, uint64(scope), limit, scope, bucket.LossClosed)
				request := func(cost, actual int64) bool {
					of.Cost = cost
					allowed, err := g.TryConsume(context.Background(), g.now(), []bucket.Take{of},
						make([]bucket.Outcome, 1))
					if err != nil && !errors.Is(err, bucket.ErrLost) {
						t.Fatal(err)
					}
					if allowed {
						received.Admit(time.Duration(at.Load()), actual)
					}
					if scope == bucket.Sync { // by real time, reports are sent too seldom
						g.reports.Flush(context.Background())
					}
					return allowed
				}
				// Others take what there is.
				others := func() {
					for until := at.Load() + int64(late) +
						rng.Int64N(int64(5*time.Millisecond)); at.Load() < until; at.Add(1e6 + int64(late)/8) {
						for request(1, 1) {
						}
					}
				}
				given := false
				clock.Deliver = func(source string, run func()) {
					if !strings.Contains(source, "Adds to the debt") {
						run()
						return
					}
					for range 1 + rng.IntN(3) { // late, and perhaps twice or three times
						others()
						run()
					}
					given = true
				}
				for range 4 {
					at.Add(rng.Int64N(int64(5 * time.Second)))
					cost := 1 + rng.Int64N(90)
					actual := rng.Int64N(cost)
					charged := g.now()
					if !request(cost, actual) {
						continue
					}
					at.Add(rng.Int64N(int64(time.Second)))
					now, units, back := g.now(), cost*shape.Unit, (cost-actual)*shape.Unit
					change := bucket.Change{
						Key: of.Key, Shape: shape, Reach: of.Reach, Charged: charged,
						Units: -bucket.Unspent(shape, shape, units, back, charged, now),
						Left:  bucket.Unspent(shape, shape, units, units, charged, now),
					}
					if scope == bucket.Local { // decided at once, and late all the same: others come between
						others()
					}
					if err := g.Correct(context.Background(), now, []bucket.Change{change},
						make([]int64, 1)); err != nil {
						t.Fatal(err)
					}
					others()
				}
				promised := bucket.Sharing{Replicas: 1, TTL: lease.Terms{}.Complete().TTL,
					Interval: time.Millisecond}.Envelope(limit, scope).Excess
				if scope == bucket.Sync {
					promised += 2
				}
				t.Logf("%d %d", received.Admitted, received.Excess())
				if received.Excess() > promised || received.Admitted < 50 || !given && scope != bucket.Local {
					t.Errorf("%d were spent, %d beyond burst and rate, want %d at most", received.Admitted,
						received.Excess(), promised)
				}
			})
		}
	}
}

// A bucket that nobody asks for while its limit changes goes through all changes, each at its time:
// with a limit that became slow and fast again it has what the fast one gave before and after, and
// no more, to whatever times the clocks are set.
func TestAnIdleBucketFollowsChangesWhateverTheClocksSay(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := redistest.Dial(server.Socket)
	t.Cleanup(conn.Close)
	fast, slow := shapeOf(t, rate.Limit{Tokens: 10, Per: time.Second, Burst: 100}),
		shapeOf(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 100})
	for n, offset := range []time.Duration{0, time.Minute, -time.Minute, time.Hour, -time.Hour} {
		var at atomic.Int64
		clock := &redistest.Clock{To: conn, Now: func() int64 { return start + at.Load() }}
		g := gatewayOn(t, clock, &at, offset, 1)
		of := take(t, uint64(n), second, bucket.Strict, bucket.LossClosed)
		admit := func(at0 time.Duration) (count int64) {
			for at.Store(int64(at0)); ; count++ {
				of.Cost = 1
				allowed, err := g.TryConsume(context.Background(), g.now(), []bucket.Take{of},
					make([]bucket.Outcome, 1))
				if err != nil {
					t.Fatal(err)
				}
				if !allowed {
					return count
				}
			}
		}
		date := func(d time.Duration) int64 { return start + int64(d+offset) }
		of.Shape = fast
		if got := admit(0); got != 100 {
			t.Fatalf("%d of a full bucket", got)
		}
		of.Shape, of.Since, of.Before = slow, date(time.Second), &rate.Past{Shape: fast}
		of.Shape, of.Since, of.Before = fast, date(9*time.Second),
			&rate.Past{Shape: slow, Since: of.Since, Before: of.Before}
		if got := admit(9500 * time.Millisecond); got != 15 {
			t.Errorf("a gateway whose clock is %v ahead: %d admitted, want the 10 of the first second and 5 of the "+
				"last half", offset, got)
		}
	}
}

// A limit of scope lease whose burst is much smaller than what drains between two questions is used
// up all the same: it is asked for each request.
func TestALeaseOfAFastLimitWithASmallBurst(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := redistest.Dial(server.Socket)
	t.Cleanup(conn.Close)
	for _, burst := range []int64{2, 10, 40} {
		server.Do("FLUSHALL")
		var at atomic.Int64
		clock := &redistest.Clock{To: conn, Now: func() int64 { return start + at.Load() }}
		g := gatewayOn(t, clock, &at, 0, 1)
		of := take(t, 1, rate.Limit{Tokens: 400, Per: time.Second, Burst: burst}, bucket.Lease, bucket.LossClosed)
		received := simulate.Envelope{Shape: of.Shape}
		for ; at.Load() < int64(time.Second); at.Add(int64(time.Millisecond)) {
			allowed, err := g.TryConsume(context.Background(), g.now(), []bucket.Take{of}, make([]bucket.Outcome, 1))
			if err != nil && !errors.Is(err, bucket.ErrLost) {
				t.Fatal(err)
			}
			if allowed {
				received.Admit(time.Duration(at.Load()), 1)
			}
		}
		if used := received.Utilisation(time.Second, 1000); used < 0.9 || received.Excess() > 40 {
			t.Errorf("burst %d: %.2f of the limit were admitted, %d beyond it", burst, used, received.Excess())
		}
	}
}
