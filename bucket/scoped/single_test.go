package scoped_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/rate"
)

// A take that comes alone is told the same, and leaves the same, as one that comes with a take from
// a roomy local bucket, which is decided at length.
//
// Times are halves of a second, in which the rest of the limit gets a whole token back: so how long
// an empty bucket is not asked again never hangs on the part of it that is random, which is
// shorter.
func TestLoneTakesAreDecidedAsAllAre(t *testing.T) {
	limit, roomy := rate.Limit{Tokens: 5, Per: 2 * time.Second, Burst: 100},
		rate.Limit{Tokens: 1e9, Per: time.Second, Burst: 1e9}
	for seed := range race.Fewer(uint64(6)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 17))
				lone, keeper, now := laned(t, 4, scoped.Options{})
				long, other, then := laned(t, 4, scoped.Options{})
				const trip = time.Millisecond
				// so that nobody is told what a question brings that is sent meanwhile
				pass := func() error { time.Sleep(trip); return nil }
				keeper.fail, other.fail = pass, pass
				beside := take(t, 99, roomy, bucket.Local, 0)
				admitted := 0
				for i := range 3000 {
					switch {
					case r.IntN(4) == 0:
						now.Add(int64(time.Second) / 2 * r.Int64N(4))
					case r.IntN(200) == 0:
						now.Add(int64(time.Minute)) // what is held has expired
					}
					then.Store(now.Load())
					one := costing(take(t, r.Uint64N(3), limit, bucket.Lease, 0), r.Int64N(6))
					one.Shadow = r.IntN(20) == 0
					if r.IntN(50) == 0 {
						one.Cost = 60 + r.Int64N(30)
					}
					got, outs := try(t, lone, now.Load(), one)
					time.Sleep(2 * trip)
					want, wants := try(t, long, then.Load(), one, beside)
					time.Sleep(2 * trip)
					if got != want || outs[0] != wants[0] {
						t.Fatalf("take %d, %+v: %t, %+v, want %t, %+v", i, one, got, outs[0], want, wants[0])
					}
					if got {
						admitted++
					}
				}
				if admitted < 300 || admitted > 2700 {
					t.Errorf("%d of 3000 were admitted, want some and not all", admitted)
				}
				if a, b := lone.Status().Free, long.Status().Free; a != b || a == 0 {
					t.Errorf("%d takes were free, want %d and some", a, b)
				}
			})
		})
	}
}
