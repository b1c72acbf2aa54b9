package charge_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/reservation"
)

// process is a Limiter over buckets that outlive it: one that was killed asks nobody any more.
type process struct {
	*headgate.Limiter
	way *line
}

// line is a process's way to the buckets.
type line struct {
	bucket.Store
	killed atomic.Bool
}

var errKilled = errors.New("the process was killed")

func (p *line) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if p.killed.Load() {
		return errKilled
	}
	return p.Store.Correct(ctx, now, changes, moved)
}

func newStore(t testing.TB) *memory.Store {
	t.Helper()
	store, err := memory.New(memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// newProcess is a process with some rules in lines, over store.
func newProcess(t testing.TB, store bucket.Store, rules ...string) *process {
	t.Helper()
	way := &line{Store: store}
	lim, err := headgate.New(headgate.Options{
		Rules: rules, Buckets: way, Keys: key.NewLasting([16]byte{1}), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &process{lim, way}
}

func request(method, target string) headgate.Request {
	return headgate.Request{Method: method, Target: target, Peer: netip.MustParseAddr("192.0.2.1")}
}

// begin asks for a request that is under way until it is settled.
func (p *process) begin(r headgate.Request) (headgate.Reservation, headgate.Decision) {
	made, d, _ := p.WaitAnswer(context.Background(), r, headgate.UntilSettled)
	return made, d
}

func (p *process) end(t testing.TB, made headgate.Reservation) {
	t.Helper()
	if _, err := p.Settle(context.Background(), made.ID, made.Cost); err != nil {
		t.Error(err)
	}
}

// TestRequestsUnderWay: as many as the rule says, beside a rate; the next one when one of them has ended.
func TestRequestsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, newStore(t), "GET /a 2 at once", "GET /a 100/h", "default 1000/s")
		one, _ := p.begin(request("GET", "/a"))
		two, d := p.begin(request("GET", "/a"))
		if !d.Allowed || len(d.Verdicts()) != 2 {
			t.Fatalf("the second: %v by %d rules, want allowed by two", d.Reason, len(d.Verdicts()))
		}
		_, d = p.begin(request("GET", "/a"))
		binding, _ := d.Binding()
		if rule := d.Policies().Rule(binding.Rule); d.Reason != headgate.OverLimit || d.RetryAfter != time.Second ||
			rule.Rate() != "2 at once" || binding.Outcome.ResetAfter != 0 {
			t.Fatalf("the third: %v by %q after %v, want over 2 at once after 1s", d.Reason, rule.Rate(), d.RetryAfter)
		}
		for _, v := range d.Verdicts() {
			if v.Rule != binding.Rule && v.Outcome.Remaining != 98 {
				t.Errorf("the rate has %d left, want 98: a request that finds no place takes no token",
					v.Outcome.Remaining)
			}
		}
		time.Sleep(10 * time.Minute) // they stay under way, however long
		if _, d = p.begin(request("GET", "/a")); d.Allowed {
			t.Fatal("a third passes while two are under way")
		}
		p.end(t, one)
		three, d := p.begin(request("GET", "/a"))
		if !d.Allowed {
			t.Fatalf("after one ended: %v", d.Reason)
		}
		p.end(t, two)
		p.end(t, three)
		p.end(t, three)
		for range 2 {
			if one, d = p.begin(request("GET", "/a")); !d.Allowed {
				t.Errorf("after all ended: %v", d.Reason)
			}
			defer p.end(t, one)
		}
		if _, d = p.begin(request("GET", "/a")); d.Allowed {
			t.Error("one that ended twice gave back two places")
		}
	})
}

// TestADeniedRateTakesNoPlace: a request that its rate denies is not under way.
func TestADeniedRateTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, newStore(t), "GET /a 2 at once", "GET /a 1/min", "default 1000/s")
		one, _ := p.begin(request("GET", "/a"))
		for range 5 {
			if _, d := p.begin(request("GET", "/a")); d.Allowed || d.RetryAfter != time.Minute {
				t.Fatalf("beyond the rate: %v after %v", d.Reason, d.RetryAfter)
			}
		}
		time.Sleep(time.Minute)
		two, d := p.begin(request("GET", "/a"))
		if !d.Allowed {
			t.Errorf("a minute later: %v, want allowed beside the first", d.Reason)
		}
		p.end(t, one)
		p.end(t, two)
	})
}

// TestTheKilledGiveTheirPlacesBack: nobody settles for a process that was killed, and its places are free
// after the time that the rule keeps them.
func TestTheKilledGiveTheirPlacesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		killed, other := newProcess(t, store, "default 1000 at once"), newProcess(t, store, "default 1000 at once")
		for range 1000 {
			if _, d := killed.begin(request("GET", "/a")); !d.Allowed {
				t.Fatal(d.Reason)
			}
		}
		time.Sleep(5 * time.Minute)
		if _, d := other.begin(request("GET", "/a")); d.Allowed {
			t.Fatal("a place is free while a thousand are under way")
		}
		killed.way.killed.Store(true)
		// renewed a third of 30 s ago at most, and kept a 25th longer at most
		time.Sleep(30*time.Second*2/3 - time.Second)
		if _, d := other.begin(request("GET", "/a")); d.Allowed {
			t.Fatal("a place is free before its time")
		}
		time.Sleep(30*time.Second/3 + 30*time.Second/25 + 2*time.Second)
		for range 1000 {
			made, d := other.begin(request("GET", "/a"))
			if !d.Allowed {
				t.Fatalf("after the time: %v", d.Reason)
			}
			defer other.end(t, made)
		}
	})
}

// TestMessagesAreNotUnderWay: a message of a stream takes no place beside the stream's own.
func TestMessagesAreNotUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, newStore(t), "default 1 at once", "default 100/s")
		r := request(endpoint.Send, "/a")
		r.Message = true
		for range 3 {
			if d := p.Check(context.Background(), r); !d.Allowed && d.Reason == headgate.OverLimit {
				t.Fatalf("a message: %v", d.Reason)
			}
		}
		if _, d := p.begin(request("GET", "/a")); !d.Allowed {
			t.Errorf("a request beside messages: %v", d.Reason)
		}
	})
}

// TestRandomRequestsUnderWay has requests of three processes begin and end at random, and the processes be
// killed, beside a list of who is under way. A request passes if a place is surely free, and never if none
// is.
func TestRandomRequestsUnderWay(t *testing.T) {
	const limit, kept = 7, 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 1))
		store := newStore(t)
		fresh := func() *process { return newProcess(t, store, "default 7 at once") }
		type running struct {
			on   *process
			made headgate.Reservation
		}
		var alive []running
		var lost []time.Time // when processes were killed, once for each request
		on := []*process{fresh(), fresh(), fresh()}
		for step := range 3000 {
			switch n := rng.IntN(100); {
			case n < 45:
				p := on[rng.IntN(len(on))]
				doubt := 0
				for _, at := range lost {
					if time.Since(at) <= kept+kept/25+time.Second {
						doubt++
					}
				}
				made, d := p.begin(request("GET", "/a"))
				switch {
				case d.Allowed && len(alive) >= limit:
					t.Fatalf("seed %d, step %d: one passes beside %d", seed, step, len(alive))
				case !d.Allowed && len(alive)+doubt < limit:
					t.Fatalf("seed %d, step %d: %v beside %d, and %d that may be lost", seed, step, d.Reason,
						len(alive), doubt)
				case d.Allowed:
					alive = append(alive, running{p, made})
				}
			case n < 85 && len(alive) > 0:
				i := rng.IntN(len(alive))
				alive[i].on.end(t, alive[i].made)
				alive[i] = alive[len(alive)-1]
				alive = alive[:len(alive)-1]
			case n < 87:
				i := rng.IntN(len(on))
				on[i].way.killed.Store(true)
				kept := alive[:0]
				for _, r := range alive {
					if r.on == on[i] {
						lost = append(lost, time.Now())
					} else {
						kept = append(kept, r)
					}
				}
				alive, on[i] = kept, fresh()
			default:
				time.Sleep(time.Duration(rng.Int64N(int64(8 * time.Second))))
			}
		}
	})
}

// TestPlacesAllocateNothing: a request that is under way for a time allocates no more than one of a rate.
func TestPlacesAllocateNothing(t *testing.T) {
	p := newProcess(t, newStore(t), "default 100 at once", "default 1000000/s")
	r := request("GET", "/a")
	for range 100 {
		made, _ := p.begin(r)
		p.end(t, made)
	}
	if n := testing.AllocsPerRun(1000, func() {
		made, d := p.begin(r)
		if !d.Allowed {
			t.Fatal(d.Reason)
		}
		p.end(t, made)
	}); n > 0 && !race.Enabled { // which allocates itself
		t.Errorf("a request under way allocates %v times, want 0", n)
	}
}

// BenchmarkUnderWay is a request by one rule: of a rate; by how many are under way, which never end, as they are within
// the time that a place is kept; and such that each ends.
func BenchmarkUnderWay(b *testing.B) {
	ctx, r := context.Background(), request("GET", "/a")
	b.Run("rate", func(b *testing.B) {
		p := newProcess(b, newStore(b), "default 1000000000/s")
		b.ReportAllocs()
		for b.Loop() {
			if d, _ := p.Wait(ctx, r); !d.Allowed {
				b.Fatal(d.Reason)
			}
		}
	})
	b.Run("decision", func(b *testing.B) {
		p := newProcess(b, newStore(b), "default 4000000000 at once")
		b.ReportAllocs()
		for b.Loop() {
			if d := p.Check(ctx, r); !d.Allowed {
				b.Fatal(d.Reason)
			}
		}
	})
	b.Run("with its end", func(b *testing.B) {
		p := newProcess(b, newStore(b), "default 1000 at once")
		b.ReportAllocs()
		for b.Loop() {
			made, d := p.begin(r)
			if !d.Allowed {
				b.Fatal(d.Reason)
			}
			p.end(b, made)
		}
	})
}

// TestAPlaceThatIsLostIsAnothers: a process that stood still for longer than a place is kept goes on, and when its
// request ends it gives back nothing of the place that another has by then.
func TestAPlaceThatIsLostIsAnothers(t *testing.T) {
	for offset := range 6 { // into the cells in which places are counted
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t)
			still, other := newProcess(t, store, "default 1 at once"), newProcess(t, store, "default 1 at once")
			lost, _ := still.begin(request("GET", "/a"))
			still.way.killed.Store(true)
			time.Sleep(time.Minute + time.Duration(offset)*200*time.Millisecond)
			made, d := other.begin(request("GET", "/a"))
			if !d.Allowed {
				t.Fatalf("a minute later: %v", d.Reason)
			}
			still.way.killed.Store(false)
			time.Sleep(700 * time.Millisecond) // it tries to keep its place
			still.end(t, lost)
			if _, d = other.begin(request("GET", "/a")); d.Allowed {
				t.Errorf("offset %d: a second passes while the one that has the place is under way", offset)
			}
			other.end(t, made)
			if _, d = other.begin(request("GET", "/a")); !d.Allowed {
				t.Errorf("offset %d: after all ended: %v", offset, d.Reason)
			}
		})
	}
}

// TestWhatCannotBeSettledIsForgotten: a reservation until it is settled, whose rates cannot be settled, is not
// outstanding for ever.
func TestWhatCannotBeSettledIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, newStore(t), "default 5 at once", "default 100/h")
		r := request("GET", "/a")
		r.Cost = 10
		made, _ := p.begin(r)
		p.way.killed.Store(true)
		if _, err := p.Settle(context.Background(), made.ID, 1); !errors.Is(err, errKilled) {
			t.Fatalf("Settle = %v, want %v", err, errKilled)
		}
		time.Sleep(reservation.DefaultTimeout)
		if n := p.Reservations().Outstanding; n != 0 {
			t.Errorf("%d are outstanding afterwards, want 0", n)
		}
	})
}
