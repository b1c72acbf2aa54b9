package reservation_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/reservation"
)

// TestReservationsNeverGrant runs requests, reservations, settlements, refunds
// and resets at random through a limiter on the table and one on the slow
// twin, which must agree in everything; and checks over every interval at once
// (Lindley's recursion) that what was admitted, less what was settled down, is
// within burst and rate.
func TestReservationsNeverGrant(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 21))
		rule := policy.Rule{
			Endpoint: "GET /a",
			Limit:    1 + rng.Int64N(50),
			Per:      time.Second,
			Burst:    20 + rng.Int64N(80),
			Subject:  policy.SubjectEndpoint,
		}
		rules := []policy.Rule{rule, {Endpoint: policy.All, Limit: 5, Burst: 40, Subject: policy.SubjectIP,
			Mode: policy.Mode(seed % 2)}}
		fast := trial.New(t, []string{"GET /a"}, rules)
		slow := trial.New(t, []string{"GET /a"}, rules, func(o *headgate.Options) { o.Buckets = new(buckettest.Twin) })
		upward := seed >= 3 // some settle up; then only the twin judges
		type held struct {
			fast, slow reservation.ID
			cost       int64
			spent      int // in spending
		}
		type spend struct {
			at    time.Time
			units int64
		}
		var open []held
		var spending []spend
		admit := func(peer netip.Addr, cost int64, reserve bool) {
			r := headgate.Request{Method: "GET", Target: "/a", Peer: peer, Cost: cost}
			var a, b headgate.Decision
			var h held
			if reserve {
				var made [2]headgate.Reservation
				timeout := time.Duration(1+rng.Int64N(4)) * time.Second
				made[0], a = fast.Reserve(context.Background(), r, timeout)
				made[1], b = slow.Reserve(context.Background(), r, timeout)
				h.fast, h.slow = made[0].ID, made[1].ID
			} else {
				a, b = fast.Check(context.Background(), r), slow.Check(context.Background(), r)
			}
			if a.Allowed != b.Allowed || a.Reason != b.Reason || a.RetryAfter != b.RetryAfter {
				t.Fatalf("seed %d: %v, %v, wait %v, the twin says %v, %v, wait %v", seed, a.Allowed, a.Reason,
					a.RetryAfter, b.Allowed, b.Reason, b.RetryAfter)
			}
			if !a.Allowed {
				return
			}
			spending = append(spending, spend{fast.Now, cost})
			if reserve {
				h.cost, h.spent = cost, len(spending)-1
				open = append(open, h)
			}
		}
		settle := func() {
			i := rng.IntN(len(open))
			h := open[i]
			actual := rng.Int64N(h.cost + 1)
			if upward && rng.IntN(3) == 0 {
				actual += rng.Int64N(100)
			}
			a, b := fast.MustSettle(t, h.fast, actual), slow.MustSettle(t, h.slow, actual)
			if a != b {
				t.Fatalf("seed %d: Settle = %+v, the twin says %+v", seed, a, b)
			}
			if a.Status == reservation.Settled {
				spending[h.spent].units = actual
			}
			if rng.IntN(2) == 0 { // else it is settled again
				open = slices.Delete(open, i, i+1)
			}
		}
		for range 6000 {
			step := time.Duration(rng.Int64N(int64(60 * time.Millisecond)))
			fast.Now, slow.Now = fast.Now.Add(step), slow.Now.Add(step)
			peer := netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(5))})
			switch {
			case len(open) > 0 && rng.IntN(3) == 0:
				settle()
			default:
				admit(peer, 1+rng.Int64N(12), rng.IntN(2) == 0)
			}
		}
		if upward {
			continue
		}
		queue, last := int64(0), trial.Epoch
		for _, s := range spending { // in thousandths of a billionth of a token
			queue = max(0, queue-int64(s.at.Sub(last))*rule.Limit) + s.units*int64(time.Second)
			if last = s.at; queue > rule.Burst*int64(time.Second) {
				t.Fatalf("seed %d: at %v more than burst and rate was spent", seed, s.at.Sub(trial.Epoch))
			}
		}
	}
}

// Everybody settles everything at once; each reservation is settled by one.
func TestConcurrentReservations(t *testing.T) {
	const callers, rounds = 8, 300
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 1, Per: time.Hour, Burst: 1 << 40}},
		func(o *headgate.Options) { o.MaxReservations = 64 })
	var settled, made, refused atomic.Int64
	ids := make(chan reservation.ID, callers*rounds)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 8))
			for range rounds {
				held, d := b.TryReserve(100, time.Minute)
				switch {
				case d.Allowed:
					made.Add(1)
					ids <- held.ID
				case d.Reason == headgate.ReservationsFull:
					refused.Add(1)
				default:
					t.Errorf("Reserve: %v", d.Reason)
				}
				for range 2 {
					id := held.ID
					select {
					case id = <-ids:
						ids <- id
					default:
					}
					s, err := b.Settle(context.Background(), id, 100)
					switch {
					case errors.Is(err, reservation.ErrSettling):
					case err != nil:
						t.Error(err)
					case s.Status == reservation.Settled:
						settled.Add(1)
					}
				}
				if rng.IntN(8) == 0 {
					b.Reservations()
				}
			}
		})
	}
	wg.Wait()
	close(ids)
	for id := range ids {
		if s := b.MustSettle(t, id, 100); s.Status == reservation.Settled {
			settled.Add(1)
		}
	}
	s := b.Reservations()
	if settled.Load() != made.Load() || s.Outstanding != 0 || int64(s.Made) != made.Load() ||
		int64(s.Settled) != made.Load() || int64(s.Refused) != refused.Load() {
		t.Errorf("made %d, refused %d, settled %d, stats %+v", made.Load(), refused.Load(), settled.Load(), s)
	}
	if got, want := b.TokensLeft(), int64(1<<40)-100*made.Load(); got != want {
		t.Errorf("%d tokens are left, want %d", got, want)
	}
}

// debtEvent is something that changes what a bucket owes.
type debtEvent struct {
	at     int64
	cost   int64 // in the end
	given  int64 // tokens
	reset  bool
	change rate.Shape // to which its rule changes; zero if it does not
}

// admitAgain has a bucket, of the first of its shapes, that knew every cost at once, and was converted at every change,
// admit all of it again.
func admitAgain(t *testing.T, seed uint64, first rate.Shape, events []debtEvent) {
	t.Helper()
	right, under := bucket.State{}, first
	for i, e := range events {
		switch {
		case e.reset:
			right = bucket.State{Stamp: e.at}
		case e.given > 0:
			right, _ = right.Shift(e.at, under, -e.given*under.Unit, 0)
		case e.change != (rate.Shape{}):
			right = right.Convert(under, e.change, e.at)
			under = e.change
		default:
			var ok bool
			if right, ok = right.Charge(e.at, under, e.cost*under.Unit); !ok {
				t.Fatalf("seed %d, event %d: %d tokens more than fit were spent in the end", seed, i, e.cost)
			}
		}
	}
}

// TestNothingIsGrantedTwice mixes reservations, settlements below them, resets, tokens that are
// given and changes of the rule, and has a bucket that knew every cost at once, and was converted
// at every change, admit all of it again.
func TestNothingIsGrantedTwice(t *testing.T) {
	for seed := range race.Fewer(uint64(60)) {
		rng := rand.New(rand.NewPCG(seed, 5))
		rules := &trial.Switching{}
		b := trial.New(t, []string{"GET /a"}, nil, func(o *headgate.Options) { o.Policies = rules })
		limits := make([]policy.Rule, 3) // to and fro between these
		for i := range limits {
			limits[i] = policy.Rule{Endpoint: "GET /a", Limit: 1 + rng.Int64N(40), Burst: 20 + rng.Int64N(80)}
		}
		rules.Become(t, b, limits[0])
		shape := rules.Load().Terms(0).Shape
		first := shape
		type held struct {
			id   reservation.ID
			cost int64
			in   int // events
		}
		var events []debtEvent
		var open []held
		for range 1500 {
			b.Now = b.Now.Add(time.Duration(rng.Int64N(int64(80 * time.Millisecond))))
			e := debtEvent{at: b.Now.UnixNano()}
			switch n := rng.IntN(100); {
			case n < 1:
				if _, err := b.Reset(context.Background(), trial.Mine, nil); err != nil {
					t.Fatal(err)
				}
				e.reset = true
				events = append(events, e)
			case n < 9:
				_, given, err := b.Grant(context.Background(), trial.Mine, 1+rng.Int64N(60), time.Time{}, nil)
				if err != nil {
					t.Fatal(err)
				}
				e.given = given
				events = append(events, e)
			case n < 12:
				rules.Become(t, b, limits[rng.IntN(len(limits))])
				if e.change = rules.Load().Terms(0).Shape; e.change != shape {
					shape = e.change
					events = append(events, e)
				}
			case n < 35 && len(open) > 0:
				i := rng.IntN(len(open))
				actual := rng.Int64N(open[i].cost + 1)
				if s := b.MustSettle(t, open[i].id, actual); s.Status == reservation.Settled {
					events[open[i].in].cost = actual
				}
				open = slices.Delete(open, i, i+1)
			default:
				e.cost = 1 + rng.Int64N(15)
				made, d := b.TryReserve(e.cost, time.Hour)
				if d.Allowed {
					open = append(open, held{made.ID, e.cost, len(events)})
					events = append(events, e)
				}
			}
		}
		admitAgain(t, seed, first, events)
	}
}
