//go:build unix

package scoped_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/redistest"
)

// leasing has gateways share a store, of which each keeps the places of requests that have ended for others to come. No
// place is given back for a time to be over unless the test sleeps.
func leasing(t *testing.T, n int, do func(t *testing.T, stores []*scoped.Store, wires []*wire)) {
	t.Helper()
	server := redistest.Start(t)
	synctest.Test(t, func(t *testing.T) {
		conn := redistest.Dial(server.Socket)
		defer conn.Close()
		stores, wires := newLeasing(t, conn, n, 0)
		do(t, stores, wires)
		time.Sleep(time.Minute) // until all is given back
		synctest.Wait()
	})
}

// newLeasing has n gateways, of which each remembers the places of so many requests; 0 is the default.
func newLeasing(t *testing.T, conn *redistest.Conn, n, most int) (stores []*scoped.Store, wires []*wire) {
	t.Helper()
	for i := range n {
		shared, err := redis.New(redis.Options{Server: conn, CallersClock: true})
		if err != nil {
			t.Fatal(err)
		}
		authority, err := redis.NewAuthority(shared, redis.AuthorityOptions{
			TTL: time.Minute, Now: func() int64 { return start },
		})
		if err != nil {
			t.Fatal(err)
		}
		leases, err := lease.New(lease.Options{Authority: authority, Terms: lease.Terms{TTL: time.Minute},
			Replica: uint64(i + 1)})
		if err != nil {
			t.Fatal(err)
		}
		w := &wire{Store: shared}
		wires = append(wires, w)
		stores = append(stores, open(t, scoped.Options{Strict: w, Leases: leases, Free: 20, Began: start,
			MaxUsage: most, Replicas: func() int { return n }}))
	}
	return stores, wires
}

// leased is underWay of scope lease.
func leased(t *testing.T, name uint32, limit int64, loss bucket.Loss) bucket.Take {
	of := underWay(t, name, limit, loss)
	of.Reach = bucket.NewReach(bucket.Lease, loss)
	return of
}

func end(t *testing.T, s *scoped.Store, now int64, of bucket.Take, since int64) {
	t.Helper()
	one := []bucket.Change{change(of, since, false)}
	if err := s.Correct(context.Background(), now, one, make([]int64, 1)); err != nil {
		t.Fatal(err)
	}
}

// One place serves ninety requests, one after the other, and costs a message when it is taken, and two more each sixth
// of the time that it is kept for.
func TestASparePlaceCostsNoMessage(t *testing.T) {
	leasing(t, 2, testASparePlaceCostsNoMessage)
}

func testASparePlaceCostsNoMessage(t *testing.T, stores []*scoped.Store, wires []*wire) {
	now := start
	for n := range uint32(90) {
		of := leased(t, n+1, 1, bucket.LossClosed)
		if allowed, _ := try(t, stores[0], now, of); !allowed {
			t.Fatalf("request %d is denied beside nobody", n)
		}
		if allowed, _ := try(t, stores[0], now, leased(t, 1000+n, 1, bucket.LossClosed)); allowed {
			t.Fatalf("request %d has a place that is taken", n)
		}
		now += int64(100 * time.Millisecond)
		end(t, stores[0], now, of, now-int64(100*time.Millisecond))
	}
	// After 5 of the 30 s the place was given back, and taken anew. A denial is heard again after 100 ms.
	if taken, given := wires[0].attempts.Load(), wires[0].corrections.Load(); taken != 2+90 || given != 1 {
		t.Errorf("%d places were taken or denied, and %d given back, want 92 and 1", taken, given)
	}
	elsewhere := leased(t, 1, 1, bucket.LossClosed)
	if allowed, _ := try(t, stores[1], now, elsewhere); allowed {
		t.Error("another gateway has the place that is kept here")
	}
	time.Sleep(2 * time.Second)
	synctest.Wait()
	if allowed, _ := try(t, stores[1], now+int64(2*time.Second), elsewhere); !allowed {
		t.Error("two seconds later nobody has come, and the place is not free")
	}
}

// A spare place is not had by those who come under another limit, is none after a reset, and is none while the store is
// lost.
func TestSparePlacesThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		before func(s *scoped.Store, w *wire)
		limit  int64
		want   bool
	}{
		"the same limit": {func(*scoped.Store, *wire) {}, 2, true},
		"a lower limit":  {func(*scoped.Store, *wire) {}, 1, false}, // one is under way
		"the store is lost": {func(s *scoped.Store, w *wire) {
			w.gone = true
			for n := range uint32(20) {
				other := leased(t, 500+n, 2, bucket.LossClosed)
				other.Key = buckettest.Key(2)
				_, _, _ = decide(s, start+int64(n), other)
			}
		}, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			leasing(t, 1, func(t *testing.T, stores []*scoped.Store, wires []*wire) {
				one, two := leased(t, 1, 2, bucket.LossClosed), leased(t, 2, 2, bucket.LossClosed)
				for _, of := range []bucket.Take{one, two} {
					if allowed, _ := try(t, stores[0], start, of); !allowed {
						t.Fatal("a free place is denied")
					}
				}
				end(t, stores[0], start, two, start)
				c.before(stores[0], wires[0])
				next := leased(t, 3, c.limit, bucket.LossClosed)
				if allowed, _, _ := decide(stores[0], start+1000, next); allowed != c.want {
					t.Errorf("a request has the spare place: %t, want %t", allowed, c.want)
				}
			})
		})
	}
	leasing(t, 1, testASparePlaceAfterAReset)
}

func testASparePlaceAfterAReset(t *testing.T, stores []*scoped.Store, wires []*wire) {
	two := leased(t, 2, 2, bucket.LossClosed)
	try(t, stores[0], start, two)
	end(t, stores[0], start, two, start)
	fill := bucket.Change{Key: two.Key, Reach: two.Reach, Shape: two.Shape, Units: bucket.Fill}
	if err := stores[0].Correct(context.Background(), start, []bucket.Change{fill}, make([]int64, 1)); err != nil {
		t.Fatal(err)
	}
	before := wires[0].attempts.Load()
	allowed, _ := try(t, stores[0], start, leased(t, 3, 2, bucket.LossClosed))
	if n := wires[0].attempts.Load() - before; !allowed || n == 0 {
		t.Errorf("after a reset: %t, %d messages, want that the store is asked", allowed, n)
	}
}

// TestSparePlacesAgainstAList has gateways take, renew and give back places. A list says who is under way: never more
// than the limit are, and all places are there again in the end.
func TestSparePlacesAgainstAList(t *testing.T) {
	const limit = 4
	served, free := 0, uint64(0)
	for seed := range uint64(6) {
		leasing(t, 3, func(t *testing.T, stores []*scoped.Store, _ []*wire) {
			rng := rand.New(rand.NewPCG(seed, 30))
			type running struct {
				at    int
				of    bucket.Take
				since int64
			}
			var all []running
			now, next := start, uint32(0)
			for range 1500 {
				now += rng.Int64N(int64(400 * time.Millisecond))
				for i := range all { // as the limiter does each third of 30 s
					if one := &all[i]; now-one.since > int64(10*time.Second) {
						anew := []bucket.Change{change(one.of, one.since, true)}
						err := stores[one.at].Correct(context.Background(), now, anew, make([]int64, 1))
						if err != nil {
							t.Fatal(err)
						}
						one.since = now
					}
				}
				if rng.IntN(8) == 0 {
					time.Sleep(time.Second)
					synctest.Wait()
				}
				if rng.IntN(2) == 0 || len(all) == 0 {
					next++
					at := rng.IntN(len(stores))
					of := leased(t, next, limit, bucket.LossClosed)
					if allowed, _ := try(t, stores[at], now, of); allowed {
						if all = append(all, running{at, of, now}); len(all) > limit {
							t.Fatalf("seed %d: %d are under way, want %d at most", seed, len(all), limit)
						}
						served++
					}
					continue
				}
				i := rng.IntN(len(all))
				end(t, stores[all[i].at], now, all[i].of, all[i].since)
				all = append(all[:i], all[i+1:]...)
			}
			for _, one := range all {
				end(t, stores[one.at], now, one.of, one.since)
			}
			for _, s := range stores {
				free += s.Status().Free
			}
			now += int64(31 * time.Second) // what nobody gave back ends by itself
			for n := range uint32(limit) {
				if allowed, _ := try(t, stores[n%3], now, leased(t, 90_000+n, limit, bucket.LossClosed)); !allowed {
					t.Errorf("seed %d: place %d is not there again", seed, n)
				}
			}
		})
	}
	if served < 1000 || free < 200 {
		t.Errorf("%d were served, %d by places that were spare: this shows too little", served, free)
	}
}

// Who gives a place back a second time, as one does whose place was taken anew while its request ended, does not give
// back that of the request that has it since. And what is taken anew for a request that has ended is given back.
func TestAPlaceThatWasLeftIsAnothers(t *testing.T) {
	leasing(t, 2, func(t *testing.T, stores []*scoped.Store, wires []*wire) {
		first, second := leased(t, 1, 1, bucket.LossClosed), leased(t, 2, 1, bucket.LossClosed)
		elsewhere := leased(t, 3, 1, bucket.LossClosed)
		try(t, stores[0], start, first)
		end(t, stores[0], start, first, start)
		if allowed, _ := try(t, stores[0], start, second); !allowed {
			t.Fatal("a spare place is denied")
		}
		end(t, stores[0], start, first, start)
		if allowed, _ := try(t, stores[1], start, elsewhere); allowed {
			t.Error("a place was given back that another request has")
		}
		now := start + int64(time.Second)
		wires[0].before = func() { // it ends while its place is taken anew, and nobody comes
			wires[0].before = nil
			end(t, stores[0], now, second, start)
			time.Sleep(3 * time.Second)
			synctest.Wait()
		}
		anew := []bucket.Change{change(second, start, true)}
		if err := stores[0].Correct(context.Background(), now, anew, make([]int64, 1)); err != nil {
			t.Fatal(err)
		}
		other := leased(t, 4, 9, bucket.LossClosed)
		other.Key = buckettest.Key(2)
		try(t, stores[0], now+int64(time.Second), other) // which the store answers
		synctest.Wait()
		if allowed, _ := try(t, stores[1], now+int64(2*time.Second), elsewhere); !allowed {
			t.Error("a place is kept for a request that has ended")
		}
	})
}

// A clock of decisions that is set forward, and back, has nobody forget whose place another request has: who gives it
// back a second time does not free it.
func TestASparePlaceWhileTheClockSteps(t *testing.T) {
	leasing(t, 2, func(t *testing.T, stores []*scoped.Store, _ []*wire) {
		first, second, third := leased(t, 1, 2, bucket.LossClosed), leased(t, 2, 2, bucket.LossClosed),
			leased(t, 3, 2, bucket.LossClosed)
		try(t, stores[0], start, first)
		end(t, stores[0], start, first, start)
		try(t, stores[0], start, second) // it has the place of the first
		try(t, stores[0], start, third)
		end(t, stores[0], start, third, start)
		ahead := leased(t, 4, 9, bucket.LossClosed)
		ahead.Key = buckettest.Key(2)
		try(t, stores[0], start+int64(time.Hour), ahead)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		end(t, stores[0], start, first, start)
		for n, want := range []bool{true, false} { // that of the third is free
			if allowed, _ := try(t, stores[1], start, leased(t, uint32(5+n), 2, bucket.LossClosed)); allowed != want {
				t.Errorf("request %d beside one that is under way is allowed: %t, want %t", n, allowed, want)
			}
		}
	})
}

// Requests whose end nobody tells fill what is remembered of places for as long as the store keeps theirs: then others
// find spare ones again.
func TestPlacesThatNobodyGivesBackAreForgotten(t *testing.T) {
	server := redistest.Start(t)
	synctest.Test(t, func(t *testing.T) {
		conn := redistest.Dial(server.Socket)
		defer conn.Close()
		stores, wires := newLeasing(t, conn, 1, 4)
		now, next := start, uint32(0)
		messages := func() uint64 { // of a request that comes after another
			for range 2 {
				next++
				of := leased(t, next, 100, bucket.LossClosed)
				before := wires[0].attempts.Load()
				if allowed, _ := try(t, stores[0], now, of); !allowed {
					t.Fatal("a free place is denied")
				}
				end(t, stores[0], now, of, now)
				if next%2 == 0 {
					return uint64(wires[0].attempts.Load() - before)
				}
			}
			return 0
		}
		if n := messages(); n != 0 {
			t.Fatalf("beside nobody a request sends %d messages, want none", n)
		}
		time.Sleep(3 * time.Second)
		for n := range uint32(4) {
			try(t, stores[0], now, leased(t, 1000+n, 100, bucket.LossClosed))
		}
		if n := messages(); n != 1 {
			t.Errorf("beside four whose places are remembered a request sends %d messages, want 1", n)
		}
		time.Sleep(40 * time.Second)
		now += int64(40 * time.Second)
		if n := messages(); n != 0 {
			t.Errorf("when their places have ended, a request sends %d messages, want none", n)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
	})
}

// A process that ends leaves no place behind, and keeps none of those that end after it said so.
func TestWhoLeavesKeepsNoPlace(t *testing.T) {
	leasing(t, 2, func(t *testing.T, stores []*scoped.Store, _ []*wire) {
		one, two := leased(t, 1, 2, bucket.LossClosed), leased(t, 2, 2, bucket.LossClosed)
		try(t, stores[0], start, one)
		try(t, stores[0], start, two)
		end(t, stores[0], start, one, start)
		stores[0].Leave()
		end(t, stores[0], start, two, start)
		for n := range uint32(2) {
			if allowed, _ := try(t, stores[1], start, leased(t, 3+n, 2, bucket.LossClosed)); !allowed {
				t.Errorf("place %d is not free when the gateway that had it has left", n)
			}
		}
	})
}

// What is looked at is what would be decided: there is a place, though the store has none left.
func TestASparePlaceIsSeen(t *testing.T) {
	leasing(t, 2, func(t *testing.T, stores []*scoped.Store, _ []*wire) {
		one := leased(t, 1, 2, bucket.LossClosed)
		try(t, stores[1], start, leased(t, 9, 2, bucket.LossClosed))
		try(t, stores[0], start, one)
		end(t, stores[0], start, one, start)
		for n, want := range []bool{true, false} { // here, and elsewhere
			var out [1]bucket.Outcome
			next := []bucket.Take{leased(t, 2, 2, bucket.LossClosed)}
			allowed, err := stores[n].Peek(context.Background(), start, next, out[:])
			if err != nil || allowed != want {
				t.Errorf("gateway %d would admit: %t, %v, want %t", n, allowed, err, want)
			}
		}
		allowed, o := try(t, stores[0], start, leased(t, 2, 2, bucket.LossClosed))
		if !allowed || o[0].Unknown || o[0].Remaining != 0 {
			t.Errorf("%t, %+v, want what was heard of the bucket last", allowed, o)
		}
	})
}
