//go:build unix

package reservation_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

// twoReplicas are processes with stores of their own, which share a server and a clock that stands
// still but for the test.
type twoReplicas struct {
	server *redistest.Server
	now    atomic.Int64
	a, b   *sharer
}

// sharer is one of them.
type sharer struct {
	*trial.Bench
	store   *scoped.Store
	reports *report.Store
	cut     *cut

	decided func() // once, after a decision; nil for nothing
}

// cut is a way to the server that may be cut, or lose answers.
type cut struct {
	redis.Evaler
	off, deaf atomic.Bool
}

func (c *cut) Eval(ctx context.Context, command, script string, keys, args []string) (any, error) {
	if c.off.Load() {
		return nil, trial.ErrGone
	}
	answer, err := c.Evaler.Eval(ctx, command, script, keys, args)
	if c.deaf.Load() && (err == nil || !redis.Unlearnt(err)) {
		return nil, trial.ErrGone
	}
	return answer, err
}

const leaseTTL, syncInterval = 10 * time.Second, 10 * time.Second

// together are two replicas under one rule. Free is the part of a lease that they have to themselves, in percent.
func together(t *testing.T, rule policy.Rule, free int) *twoReplicas {
	t.Helper()
	r := &twoReplicas{server: redistest.Start(t)}
	r.now.Store(trial.Epoch.UnixNano())
	r.a, r.b = r.open(t, rule, free), r.open(t, rule, free)
	return r
}

func (r *twoReplicas) open(t *testing.T, rule policy.Rule, free int) *sharer {
	t.Helper()
	conn := redistest.Dial(r.server.Socket)
	t.Cleanup(conn.Close)
	s := &sharer{cut: &cut{Evaler: conn}}
	local, err := memory.New(memory.Options{MaxBuckets: 1024})
	must(t, err)
	strict, err := redis.New(redis.Options{Server: s.cut, CallersClock: true})
	must(t, err)
	lessor, err := redis.NewAuthority(strict, redis.AuthorityOptions{TTL: leaseTTL, Now: r.now.Load})
	must(t, err)
	ledger, err := redis.NewLedger(strict, redis.LedgerOptions{Now: r.now.Load})
	must(t, err)
	held, err := lease.New(lease.Options{
		Authority: lessor,
		Terms:     lease.Terms{TTL: leaseTTL},
		Deadline:  leaseTTL,
		Now:       r.now.Load,
	})
	must(t, err)
	s.reports, err = report.New(report.Options{
		Authority: ledger,
		Interval:  syncInterval,
		Deadline:  10 * time.Second,
		Now:       r.now.Load,
	})
	must(t, err)
	s.store, err = scoped.New(scoped.Options{
		Local: local, Strict: strict, Leases: held, Reports: s.reports, Free: free,
		Replicas: func() int { return 2 }, Began: r.now.Load() - int64(10_000*time.Hour), Deadline: 10 * time.Second,
	})
	must(t, err)
	names, err := key.NewNamer([]byte("a secret of replicas"))
	must(t, err)
	s.Bench = trial.New(t, []string{"GET /a"}, []policy.Rule{rule}, func(o *headgate.Options) {
		o.Buckets, o.Names, o.Now = s.store, names, func() time.Time { return time.Unix(0, r.now.Load()) }
		o.Observe = func(*headgate.Request, *headgate.Decision) {
			if decided := s.decided; decided != nil {
				s.decided = nil
				decided()
			}
		}
	})
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// roundsUp is the time in which less than a token drains under hundred, and more than in all that a
// test does before: what is given back is rounded down.
const roundsUp = 10 * time.Minute

// pass lets time pass.
func (r *twoReplicas) pass(d time.Duration) { r.now.Add(int64(d)) }

var ours = inspect.Query{Endpoint: "GET /a", Address: trial.Client}

func costing(cost int64) headgate.Request {
	return headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: cost}
}

// reserve reserves tokens that must be there.
func (s *sharer) reserve(t *testing.T, cost int64) reservation.ID {
	t.Helper()
	made, d := s.Reserve(t.Context(), costing(cost), time.Hour)
	if !d.Allowed {
		t.Fatalf("a reservation of %d: %v", cost, d.Reason)
	}
	return made.ID
}

// spend takes tokens that must be there.
func (s *sharer) spend(t *testing.T, cost int64) {
	t.Helper()
	if d := s.Check(t.Context(), costing(cost)); !d.Allowed {
		t.Fatalf("a request of %d: %v", cost, d.Reason)
	}
}

func (s *sharer) settle(t *testing.T, id reservation.ID, actual int64) {
	t.Helper()
	if got, err := s.Settle(t.Context(), id, actual); err != nil || got.Status != reservation.Settled {
		t.Fatalf("Settle(%d) = %+v, %v", actual, got, err)
	}
}

func (s *sharer) reset(t *testing.T) {
	t.Helper()
	_, err := s.Reset(t.Context(), ours, nil)
	must(t, err)
}

func (s *sharer) grant(t *testing.T, amount int64) {
	t.Helper()
	_, given, err := s.Grant(t.Context(), ours, amount, time.Time{}, nil)
	must(t, err)
	if given != amount {
		t.Fatalf("%d of %d were given", given, amount)
	}
}

// left is what a replica says is left.
func (s *sharer) left(t *testing.T) int64 {
	t.Helper()
	in, err := s.Inspect(t.Context(), ours)
	must(t, err)
	return in.Buckets[0].Remaining
}

// hundred is a rule of which a token drains in an hour.
func hundred(scope policy.Scope) policy.Rule {
	return policy.Rule{Endpoint: policy.Default, Limit: 100, Per: 100 * time.Hour, Burst: 100, Scope: scope}
}

// What one replica gave to a shared bucket, a reservation of the other's gives back no more, in
// whatever way it was admitted.
func TestWhatOneReplicaGaveTheOtherDoesNotGiveBack(t *testing.T) {
	reset, granted := (*sharer).reset, func(amount int64) func(*sharer, *testing.T) {
		return func(s *sharer, t *testing.T) { s.grant(t, amount) }
	}
	for _, c := range []struct {
		name  string
		scope policy.Scope
		free  int
		give  func(*sharer, *testing.T)
		left  int64 // at A: B reserved 10 and spent none, A spent 40 after something was given
	}{
		{"strict, filled", policy.Strict, 0, reset, 60},
		{"strict, given 5", policy.Strict, 0, granted(5), 60}, // of ten, five come back
		{"strict, given nothing", policy.Strict, 0, func(*sharer, *testing.T) {}, 60},
		{"lease, filled", policy.Lease, 0, reset, 60},
		{"lease, given 5", policy.Lease, 0, granted(5), 60},
		{"lease, given nothing", policy.Lease, 0, func(*sharer, *testing.T) {}, 60},
		// A has ten in its own, and 80 less 40 in the store
		{"lease, filled, out of a free part", policy.Lease, 20, reset, 50},
		{"lease, given nothing, out of a free part", policy.Lease, 20, func(*sharer, *testing.T) {}, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := together(t, hundred(c.scope), c.free)
			id := r.b.reserve(t, 10)
			r.pass(time.Second)
			c.give(r.a, t)
			r.pass(time.Second)
			r.a.spend(t, 40)
			r.b.settle(t, id, 0)
			r.pass(roundsUp)
			if got := r.a.left(t); got != c.left {
				t.Errorf("%d are left, want %d", got, c.left)
			}
		})
	}
}

// What a replica holds of a lease when another one fills the bucket stays good for its TTL. A
// request that it admits out of that was not charged to the bucket since it was filled, and gets
// nothing back.
func TestBatchThatIsHeldWhenTheBucketIsFilled(t *testing.T) {
	for _, c := range []struct {
		name string
		age  time.Duration // of the reset, when the reservation is made
		left int64         // of 100, after A spent 40: B reserved ten and spent none
	}{
		{"out of what was held", leaseTTL - time.Second, 60},
		{"out of a batch of later", 2*leaseTTL + time.Second, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := together(t, hundred(policy.Lease), 0)
			r.b.spend(t, 10)
			r.b.spend(t, 10) // and as much again is held
			r.a.reset(t)
			if got := r.a.left(t); got != 100 {
				t.Fatalf("a bucket that was filled has %d", got)
			}
			r.pass(c.age)
			id := r.b.reserve(t, 10)
			r.pass(time.Minute)
			r.a.spend(t, 40)
			r.b.settle(t, id, 0)
			r.pass(roundsUp)
			if got := r.a.left(t); got != c.left {
				t.Errorf("%d are left, want %d", got, c.left)
			}
		})
	}
}

// What a replica has admitted of a limit of scope sync, and not reported yet, is charged to a
// bucket that was filled meanwhile, and does not come back.
func TestBucketIsFilledBeforeItIsReported(t *testing.T) {
	for _, c := range []struct {
		name   string
		filled bool
		before bool  // it is reported before that
		left   int64 // of 100: B reserved four and spent none, A spent 40
	}{
		{"nothing was given", false, true, 60},
		{"filled after the report", true, true, 60},
		{"filled before the report", true, false, 56},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := together(t, policy.Rule{Endpoint: policy.Default, Limit: 1, Per: time.Second, Burst: 100,
				Scope: policy.Sync}, 0)
			id := r.b.reserve(t, 4)
			if c.before {
				r.b.reports.Flush(t.Context())
			}
			r.pass(time.Microsecond)
			if c.filled {
				r.a.reset(t)
			}
			r.pass(time.Microsecond)
			r.a.spend(t, 40)
			r.b.reports.Flush(t.Context())
			r.b.settle(t, id, 0)
			if got := r.a.left(t); got != c.left {
				t.Errorf("%d are left, want %d", got, c.left)
			}
		})
	}
}

// Where each replica counts by itself, what is given at one is in no way another's: its own
// reservations give so much less back, and others give all.
func TestWhatIsGivenWhereReplicasCountByThemselves(t *testing.T) {
	for scope, own := range map[policy.Scope]int64{policy.Local: 100, policy.Split: 50} {
		for _, c := range []struct {
			name string
			give func(*sharer, *testing.T)
			a    int64 // that are left, of what each has; both reserved ten and spent none, A spent 40
		}{
			{"nothing was given", func(*sharer, *testing.T) {}, own - 40},
			{"filled", (*sharer).reset, own - 40},
			{"given 5", func(s *sharer, t *testing.T) { s.grant(t, 5) }, own - 40},
		} {
			t.Run(scope.String()+", "+c.name, func(t *testing.T) {
				r := together(t, hundred(scope), 0)
				one, other := r.a.reserve(t, 10), r.b.reserve(t, 10)
				r.pass(time.Second)
				c.give(r.a, t)
				if got := r.b.left(t); got != own-10 {
					t.Errorf("the other replica has %d left, want %d", got, own-10)
				}
				r.a.spend(t, 40)
				r.a.settle(t, one, 0)
				r.b.settle(t, other, 0)
				r.pass(roundsUp)
				if a, b := r.a.left(t), r.b.left(t); a != c.a || b != own {
					t.Errorf("%d and %d are left, want %d and %d", a, b, c.a, own)
				}
			})
		}
	}
}

// lose has a replica do without the server.
func (s *sharer) lose(t *testing.T) {
	t.Helper()
	s.cut.off.Store(true)
	for range 1000 {
		if s.Get("/a"); s.store.Status().Lost {
			return
		}
	}
	t.Fatal("the store is not taken for lost")
}

// find has it back, and waits until what was admitted without it is charged.
func (r *twoReplicas) find(t *testing.T, s *sharer, replayed uint64) {
	t.Helper()
	s.cut.off.Store(false)
	for range 1000 {
		if !s.store.Status().Lost {
			break
		}
		r.pass(200 * time.Millisecond)
		s.Get("/a")
	}
	for deadline := time.Now().Add(10 * time.Second); s.store.Status().Replayed < replayed; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("the store is not back: %+v", s.store.Status())
		}
	}
}

// What passes while the store is lost is charged to it afterwards: at most a burst, also to a
// bucket that another replica has filled meanwhile. What was not asked of any bucket, under open,
// may be many bursts, of which nobody was charged: so nothing of it comes back.
func TestReservationsOfAnOutage(t *testing.T) {
	for _, c := range []struct {
		name   string
		loss   policy.StoreLoss
		made   int // reservations of twelve
		filled bool
		back   bool // something comes back
	}{
		{"share", policy.LossShare, 1, false, true},
		{"share, filled meanwhile", policy.LossShare, 1, true, false},
		{"open", policy.LossOpen, 1, false, false},
		{"open, more than a burst", policy.LossOpen, 10, false, false},
		{"open, filled meanwhile", policy.LossOpen, 10, true, false},
	} {
		for _, scope := range []policy.Scope{policy.Strict, policy.Lease, policy.Sync} {
			t.Run(scope.String()+", "+c.name, func(t *testing.T) {
				r := together(t, policy.Rule{
					Endpoint:    policy.Default,
					Limit:       1,
					Per:         time.Second,
					Burst:       40,
					Scope:       scope,
					OnStoreLoss: c.loss,
				}, 0)
				r.b.lose(t)
				r.pass(30 * time.Second) // after which a half of the rate has given a share 15
				var made []reservation.ID
				for range c.made {
					made = append(made, r.b.reserve(t, 12)) // of which ten may have drained in the TTL of a lease
				}
				if _, err := r.b.Reset(t.Context(), ours, nil); !errors.Is(err, bucket.ErrLost) {
					t.Errorf("a reset without the store: %v, want that it is lost", err)
				}
				r.pass(time.Microsecond)
				if c.filled {
					r.a.reset(t)
				}
				r.find(t, r.b, 1)
				r.b.reports.Flush(t.Context())
				before := r.a.left(t)
				for _, id := range made {
					r.b.settle(t, id, 0)
				}
				if after := r.a.left(t); after > before != c.back || after < before {
					t.Errorf("%d were left, and %d when all was settled, want more: %t", before, after, c.back)
				}
			})
		}
	}
}

// A grant or a reset whose answer was lost is repeated under its name, also at another replica: it
// is made once, and says what the first one gave.
func TestGrantsAndResetsAreRepeated(t *testing.T) {
	for _, scope := range []policy.Scope{policy.Strict, policy.Lease, policy.Sync} {
		t.Run(scope.String(), func(t *testing.T) {
			r := together(t, hundred(scope), 0)
			r.b.spend(t, 80)
			again := ours
			again.Once = bucket.Once{Name: 1, Of: 2}
			lose := func(inspect.Bucket) error { r.a.cut.deaf.Store(true); return nil }
			if _, _, err := r.a.Grant(t.Context(), again, 30, time.Time{}, lose); err == nil {
				t.Fatal("no answer, and no error")
			}
			r.a.cut.deaf.Store(false)
			if got := r.b.left(t); got != 50 {
				t.Fatalf("%d are left, want 50: the answer alone is lost", got)
			}
			for _, at := range []*sharer{r.b, r.a} {
				state, given, err := at.Grant(t.Context(), again, 30, time.Time{}, nil)
				if err != nil || given != 30 || state.Remaining != 50 {
					t.Errorf("repeated: %d given, %d left, %v, want 30 and 50", given, state.Remaining, err)
				}
			}
			again.Once.Of++
			var wrong *inspect.QueryError
			if _, _, err := r.a.Grant(t.Context(), again, 40, time.Time{}, nil); !errors.As(err, &wrong) {
				t.Errorf("another grant under the same name: %v, want that it is refused", err)
			}
			again.Once.Name++
			for _, left := range []int64{100, 60} {
				state, err := r.b.Reset(t.Context(), again, nil)
				if err != nil || state.Remaining != left {
					t.Errorf("a reset: %d left, %v, want %d", state.Remaining, err, left)
				}
				r.b.spend(t, 40)
			}
		})
	}
}
