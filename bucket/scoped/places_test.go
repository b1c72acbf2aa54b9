//go:build unix

package scoped_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// wire is a store whose answers get lost: of takes, and of corrections.
type wire struct {
	*redis.Store
	lostTakes, lostCorrections bool
	attempts, corrections      atomic.Int64 // messages
	gone                       bool
	before                     func() // the next correction
}

func (w *wire) Attempt(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool,
	func(context.Context, int64), error) {
	if w.gone {
		return false, nil, errGone
	}
	w.attempts.Add(1)
	allowed, undo, err := w.Store.Attempt(ctx, now, takes, outs)
	if w.lostTakes {
		return false, nil, errGone
	}
	return allowed, undo, err
}

func (w *wire) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if w.gone {
		return errGone
	}
	if w.before != nil {
		w.before()
	}
	w.corrections.Add(1)
	err := w.Store.Correct(ctx, now, changes, moved)
	if w.lostCorrections {
		return errGone
	}
	return err
}

// gateways are some that share a store, each by its own wire.
func gateways(t *testing.T, n int) (stores []*scoped.Store, wires []*wire) {
	t.Helper()
	conn := redistest.Dial(redistest.Start(t).Socket)
	t.Cleanup(conn.Close)
	for range n {
		shared, err := redis.New(redis.Options{Server: conn, CallersClock: true})
		if err != nil {
			t.Fatal(err)
		}
		w := &wire{Store: shared}
		wires = append(wires, w)
		stores = append(stores, open(t, scoped.Options{Strict: w, Replicas: func() int { return n }, Began: start}))
	}
	return stores, wires
}

// decide is try where the store may not answer.
func decide(s *scoped.Store, now int64, of bucket.Take) (bool, bucket.Outcome, error) {
	var out [1]bucket.Outcome
	allowed, err := s.TryConsume(context.Background(), now, []bucket.Take{of}, out[:])
	return allowed, out[0], err
}

// underWay is a take of one of so many places, which are kept for 30 seconds.
func underWay(t *testing.T, name uint32, limit int64, loss bucket.Loss) bucket.Take {
	t.Helper()
	shape := shapeOf(t, rate.Limit{Tokens: limit, Per: 30 * time.Second, Burst: limit, Algorithm: rate.SlidingLog})
	return bucket.Take{Key: buckettest.Key(1), Shape: shape, Cost: 1, Place: name,
		Reach: bucket.NewReach(bucket.Strict, loss)}
}

func change(of bucket.Take, since int64, renew bool) bucket.Change {
	return bucket.Change{Key: of.Key, Shape: of.Shape, Reach: of.Reach, Place: of.Place, Units: -1, Charged: since,
		Renew: renew}
}

// A place that may have been taken, and one that may have been given back, are free as soon as the store answers again.
func TestPlacesWhoseAnswersGetLost(t *testing.T) {
	stores, wires := gateways(t, 2)
	now := start
	wires[0].lostTakes = true
	if allowed, _, err := decide(stores[0], now, underWay(t, 1, 1, bucket.LossClosed)); allowed || err == nil {
		t.Fatalf("%t, %v, want an error: no answer came", allowed, err)
	}
	wires[0].lostTakes = false
	now += int64(time.Second)
	if allowed, _ := try(t, stores[1], now, underWay(t, 1, 1, bucket.LossClosed)); allowed {
		t.Fatal("the place was not taken, so that this shows nothing")
	}
	other := take(t, 2, rate.Limit{Tokens: 9, Per: time.Second, Burst: 9}, bucket.Strict, 0)
	try(t, stores[0], now, other) // which the store answers
	now += int64(time.Second)
	second := underWay(t, 2, 1, bucket.LossClosed)
	if allowed, _ := try(t, stores[1], now, second); !allowed {
		t.Error("a place whose request was denied is not free")
	}
	wires[1].lostCorrections = true
	if err := stores[1].Correct(context.Background(), now, []bucket.Change{change(second, now, false)},
		make([]int64, 1)); err != nil {
		t.Errorf("what is given back another time is an error: %v", err)
	}
	wires[1].lostCorrections = false
	try(t, stores[1], now+int64(time.Second), other)
	third := underWay(t, 3, 1, bucket.LossClosed)
	if allowed, _ := try(t, stores[0], now+2*int64(time.Second), third); !allowed {
		t.Error("a place that was given back twice is not free")
	}
}

// Places are taken anew in one message, however many there are.
func TestPlacesAreRenewedTogether(t *testing.T) {
	stores, wires := gateways(t, 1)
	var all []bucket.Change
	for n := range uint32(40) {
		of := underWay(t, 1+n, 40, bucket.LossClosed)
		if allowed, _ := try(t, stores[0], start, of); !allowed {
			t.Fatal("a free place is denied")
		}
		all = append(all, change(of, start, true))
	}
	err := stores[0].Correct(context.Background(), start+int64(20*time.Second), all, make([]int64, len(all)))
	if err != nil {
		t.Fatal(err)
	}
	if n := wires[0].corrections.Load(); n != 1 {
		t.Errorf("40 places are taken anew by %d messages, want 1", n)
	}
	if allowed, _ := try(t, stores[0], start+int64(45*time.Second), underWay(t, 99, 40, bucket.LossClosed)); allowed {
		t.Error("places that were taken anew are free when they would have been without")
	}
}

// A denial is remembered for a moment alone, as places come back at any time.
func TestDenialsOfPlaces(t *testing.T) {
	stores, _ := gateways(t, 2)
	first := underWay(t, 1, 1, bucket.LossClosed)
	try(t, stores[0], start, first)
	if allowed, _ := try(t, stores[1], start, underWay(t, 1, 1, bucket.LossClosed)); allowed {
		t.Fatal("two have one place")
	}
	if err := stores[0].Correct(context.Background(), start, []bucket.Change{change(first, start, false)},
		make([]int64, 1)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{99 * time.Millisecond, false}, {100 * time.Millisecond, true}} {
		before := stores[1].Status().Spared
		allowed, _ := try(t, stores[1], start+int64(c.after), underWay(t, 2, 1, bucket.LossClosed))
		if spared := stores[1].Status().Spared - before; allowed != c.want || (spared == 1) == c.want {
			t.Errorf("after %v: %t, %d messages spared, want %t", c.after, allowed, spared, c.want)
		}
	}
}

// While the store is lost: nobody, so many as a gateway has a share of, and given back there; or everybody. What was
// under way before stays so, and is given back when the store is there again.
func TestPlacesWithoutTheStore(t *testing.T) {
	for loss, want := range map[bucket.Loss]int{bucket.LossClosed: 0, bucket.LossShare: 2, bucket.LossOpen: 6} {
		stores, wires := gateways(t, 2)
		before := underWay(t, 100, 4, loss)
		try(t, stores[0], start, before)
		wires[0].gone = true
		for n := range uint32(20) {
			_, _, _ = decide(stores[0], start+int64(n)*int64(time.Millisecond), underWay(t, 200+n, 4, loss))
		}
		if !stores[0].Status().Lost {
			t.Fatal("the store is not taken for lost")
		}
		now := start + int64(30*time.Millisecond)
		fill := func(from uint32) (all []bucket.Take) {
			for n := range uint32(6) {
				of := underWay(t, from+n, 4, loss)
				if allowed, _, _ := decide(stores[0], now, of); allowed {
					all = append(all, of)
				}
			}
			return all
		}
		end := func(all []bucket.Take) {
			for _, of := range all {
				if err := stores[0].Correct(context.Background(), now, []bucket.Change{change(of, now, false)},
					make([]int64, 1)); err != nil {
					t.Errorf("%v: %v", loss, err)
				}
			}
		}
		// Requests before the loss was certain may have been admitted by the share by now.
		for n := range uint32(20) {
			end([]bucket.Take{underWay(t, 200+n, 4, loss)})
		}
		for i := range 3 { // as they are given back
			if all := fill(uint32(300 + 10*i)); len(all) != want {
				t.Errorf("%v, time %d: %d of 6 are admitted, want %d", loss, i, len(all), want)
			} else {
				end(all)
			}
		}
		end([]bucket.Take{before})
		wires[0].gone = false
		for range 4 {
			now += int64(150 * time.Millisecond)
			end(fill(uint32(400)))
		}
		if stores[0].Status().Lost {
			t.Fatal("the store is lost for ever")
		}
		now += int64(200 * time.Millisecond)
		if all := fill(500); len(all) != 4 {
			t.Errorf("%v: %d places are there when the store is back, want 4", loss, len(all))
		}
	}
}
