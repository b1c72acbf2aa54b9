package scoped_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
)

// twin is slow and obvious: one bucket after the other, each a debt and a time, all looked at before any is charged.
type twin map[uint64]bucket.State

func (tw twin) decide(now int64, numbers []uint64, takes []bucket.Take) bool {
	after, all := map[uint64]bucket.State{}, true
	state := func(n uint64) bucket.State {
		if s, ok := after[n]; ok {
			return s
		}
		return tw[n]
	}
	for i, n := range numbers {
		if takes[i].Shadow {
			continue
		}
		s, out := state(n).Take(now, takes[i].Shape, takes[i].Cost)
		after[n], all = s, all && out.Allowed
	}
	if !all {
		return false
	}
	for i, n := range numbers {
		if takes[i].Shadow {
			s, _ := state(n).Take(now, takes[i].Shape, takes[i].Cost)
			after[n] = s
		}
	}
	for n, s := range after {
		tw[n] = s
	}
	return true
}

// Decisions over buckets that are local, split and strict are those of the twin, and leave the same
// tokens everywhere, shadows or not.
func TestDecisionsAreThoseOfTheTwin(t *testing.T) {
	for seed := range race.Fewer(uint64(6)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 11))
			now := start
			local, far := table(t), newRemote(t)
			s := open(t, scoped.Options{Local: local, Strict: far})
			tw := twin{}
			limits := []rate.Limit{second, {Tokens: 3, Per: time.Second, Burst: 5},
				{Tokens: 1, Per: time.Minute, Burst: 4}}
			scopes := []bucket.Scope{bucket.Local, bucket.Split, bucket.Strict, bucket.Strict}
			admitted := 0
			for i := range 4000 {
				now += r.Int64N(int64(time.Second))
				var numbers []uint64
				var takes []bucket.Take
				for range 1 + r.IntN(4) {
					n := r.Uint64N(12)
					if slices.Contains(numbers, n) {
						continue // takes of one bucket are added up, which the contract of stores is about
					}
					tk := costing(take(t, n, limits[n%3], scopes[n%4], 0), r.Int64N(4))
					tk.Shadow = r.IntN(5) == 0
					numbers, takes = append(numbers, n), append(takes, tk)
				}
				outs := make([]bucket.Outcome, len(takes))
				want := tw.decide(now, numbers, takes)
				got, err := s.TryConsume(context.Background(), now, takes, outs)
				if err != nil || got != want {
					t.Fatalf("decision %d: %v: %t, %v, %+v, want %t", i, numbers, got, err, outs, want)
				}
				if got {
					admitted++
				}
				for n := range uint64(12) {
					tk := costing(take(t, n, limits[n%3], bucket.Local, 0), 0)
					_, want := tw[n].Take(now, tk.Shape, 0)
					if have := leftOf(t, scopes[n%4], local, far, now, tk); have != want.Remaining {
						t.Fatalf("decision %d: bucket %d holds %d, want %d", i, n, have, want.Remaining)
					}
				}
			}
			if admitted < 500 || admitted > 3500 {
				t.Errorf("%d of 4000 were admitted, want some and not all", admitted)
			}
		})
	}
}

func leftOf(t *testing.T, scope bucket.Scope, local *memory.Store, far *remote, now int64, tk bucket.Take) int64 {
	t.Helper()
	if scope.Shared() {
		return far.left(t, now, tk)
	}
	outs := make([]bucket.Outcome, 1)
	if _, err := local.Peek(context.Background(), now, []bucket.Take{tk}, outs); err != nil {
		t.Fatal(err)
	}
	return outs[0].Remaining
}

// Whatever fails, and wherever: no bucket ever admits more than its limit, whichever of its
// requests failed elsewhere; and a local one holds what the admitted requests leave, no more and no
// less.
func TestFailuresAnywhere(t *testing.T) {
	places := []string{"attempt", "late", "undo", "peek", "correct", "lease", "race"}
	for _, place := range places {
		for seed := range race.Fewer(uint64(3)) {
			t.Run(fmt.Sprint(place, ", seed ", seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 13))
				now := start
				var clock atomic.Int64 // now, for questions that nobody waits for
				clock.Store(now)
				far, near := newRemote(t), &racing{Store: table(t)}
				held, keeper := leases(t, clock.Load)
				s := open(t, scoped.Options{Local: near, Strict: far, Leases: held})
				chance := func() error {
					if r.IntN(4) == 0 {
						return errGone
					}
					return nil
				}
				switch place {
				case "late":
					far.late = func(string) error { return chance() }
				case "lease":
					fails := rand.New(rand.NewPCG(seed, 17)) // guarded by keeper.mu
					keeper.fail = func() error {
						if fails.IntN(4) == 0 {
							return errGone
						}
						return nil
					}
				case "race":
					near.rob = func() bool { return r.IntN(4) == 0 }
				default:
					far.fail = func(ask string) error {
						if ask == place {
							return chance()
						}
						return nil
					}
				}
				type book struct {
					lindley  int64
					last     int64
					admitted int64
				}
				books := map[uint64]*book{}
				limit := rate.Limit{Tokens: 5, Per: time.Second, Burst: 20}
				scopes := []bucket.Scope{bucket.Local, bucket.Strict, bucket.Lease}
				denied, admitted, failed := 0, 0, 0
				for range 3000 {
					now += r.Int64N(int64(200 * time.Millisecond))
					clock.Store(now)
					var takes []bucket.Take
					var numbers []uint64
					for n := range uint64(9) {
						if r.IntN(3) == 0 {
							tk := costing(take(t, n, limit, scopes[n%3], bucket.Loss(n%3)), 1+r.Int64N(3))
							takes, numbers = append(takes, tk), append(numbers, n)
						}
					}
					outs := make([]bucket.Outcome, len(takes))
					allowed, err := s.TryConsume(context.Background(), now, takes, outs)
					if err != nil && (allowed || !errors.Is(err, bucket.ErrLost)) {
						t.Fatalf("%t, %v", allowed, err)
					}
					switch {
					case err != nil:
						failed++
					case allowed:
						admitted++
					default:
						denied++
					}
					for i, n := range numbers {
						b := books[n]
						if b == nil {
							b = &book{}
							books[n] = b
						}
						sh := takes[i].Shape
						b.lindley = max(0, b.lindley-sh.Drained(time.Duration(now-b.last)))
						b.last = now
						if allowed && !outs[i].Unknown {
							b.lindley += takes[i].Cost * sh.Unit
							b.admitted += takes[i].Cost
						}
						most := sh.Capacity
						if scopes[n%3] == bucket.Lease {
							most += sh.Drained(held.Terms().TTL)
						}
						if s.Status().Losses > 0 && scopes[n%3] != bucket.Local {
							most += sh.Capacity // what its share admits besides, while the store is taken for lost
						}
						if b.lindley > most {
							t.Fatalf("bucket %d admitted %d units above its rate, want %d at most", n, b.lindley, most)
						}
					}
					// A local bucket is touched by admitted requests alone.
					for n := uint64(0); n < 9; n += 3 {
						if place == "race" || books[n] == nil {
							continue
						}
						_, outs := try(t, s, now, costing(take(t, n, limit, bucket.Local, 0), 0))
						sh := shapeOf(t, limit)
						owed := max(0, books[n].lindley-sh.Drained(time.Duration(now-books[n].last)))
						if want := (sh.Capacity - owed) / sh.Unit; outs[0].Remaining != want {
							t.Fatalf("local bucket %d holds %d, want %d: a denied request was charged, or an "+
								"admitted one was not", n, outs[0].Remaining, want)
						}
					}
				}
				if admitted == 0 || denied+failed == 0 {
					t.Errorf("%d admitted, %d denied, %d failed: want all kinds", admitted, denied, failed)
				}
			})
		}
	}
}

// racing is a local store where now and then somebody else takes between Peek and TryConsume.
type racing struct {
	*memory.Store
	rob func() bool
}

func (r *racing) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if r.rob != nil && len(takes) > 0 && takes[0].Cost > 0 && r.rob() {
		robbed := takes[0]
		robbed.Cost = robbed.Shape.Burst() - 2
		if _, err := r.Store.TryConsume(ctx, now, []bucket.Take{robbed}, make([]bucket.Outcome, 1)); err != nil {
			return false, err
		}
	}
	return r.Store.TryConsume(ctx, now, takes, outs)
}
