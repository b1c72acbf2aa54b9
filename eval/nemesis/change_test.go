package nemesis_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// spender is a gateway that spends of one bucket, in any way in which that is asked of the store.
type spender struct {
	*testing.T
	store     *redis.Store
	authority *redis.Authority
	of        bucket.Take
	seq       uint64
	replica   uint64
}

func newSpender(t *testing.T, s *server, replica uint64, l rate.Limit) *spender {
	store := s.open(t, redis.Options{})
	authority, err := redis.NewAuthority(store, redis.AuthorityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &spender{
		T:         t,
		store:     store,
		authority: authority,
		replica:   replica,
		of:        bucket.Take{Key: key.Key{Hi: 1, Lo: 1}, Shape: compiled(t, l)},
	}
}

func compiled(t *testing.T, l rate.Limit) rate.Shape {
	shape, err := rate.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

// hears has the gateway hear of another limit at now, by its clock.
func (g *spender) hears(now int64, to rate.Shape) {
	g.of.Before = g.of.Shape.Replaced(g.of.Since, g.of.Before, now)
	g.of.Shape, g.of.Since = to, now
}

// spend asks for tokens, and says whether it was given them.
func (g *spender) spend(r *rand.Rand, tokens int64) bool {
	takes := []bucket.Take{g.of}
	takes[0].Cost = tokens
	switch r.IntN(3) {
	case 0:
		g.seq++
		got, err := g.authority.Ask(g.Context(), g.replica, g.of,
			lease.Question{Seq: g.seq, Want: tokens, Need: tokens})
		if err != nil {
			g.Fatal(err)
		}
		return got.Tokens == tokens
	case 1: // of two buckets at once
		takes = append(takes, bucket.Take{
			Key:   key.Key{Hi: 2, Lo: 2},
			Shape: compiled(g.T, rate.Limit{Tokens: 1e6, Per: time.Second, Burst: 1e6}),
			Cost:  1,
		})
	}
	allowed, err := g.store.TryConsume(g.Context(), 0, takes, make([]bucket.Outcome, len(takes)))
	if err != nil {
		g.Fatal(err)
	}
	return allowed
}

// Gateways hear of a change one after the other, and meanwhile each takes by its own limit. In no
// interval is more admitted than the larger burst and the faster rate of those in force give; and
// where the burst becomes smaller the difference, once and again each time that the new one drains
// while they disagree.
func TestAChangeThatGoesRound(t *testing.T) {
	for seed := range race.Fewer(uint64(12)) {
		r := rand.New(rand.NewPCG(seed, 23))
		s := newServer(t)
		draw := func() rate.Limit {
			return rate.Limit{Tokens: 5 + r.Int64N(60), Per: time.Second, Burst: 20 + r.Int64N(200)}
		}
		current := draw()
		gateways := []*spender{newSpender(t, s, 1, current), newSpender(t, s, 2, current)}
		var promise simulate.Promise
		from := s.now
		at := func() time.Duration { return time.Duration(s.now-from) * time.Microsecond }
		promise.Set(0, float64(current.Tokens), float64(current.Burst))
		next, second := at()+time.Second, time.Duration(0)
		admitted, told := int64(0), 0
		for at() < 8*time.Second {
			s.pass(time.Duration(1+r.Int64N(5_000)) * time.Microsecond)
			if second > 0 && at() >= second {
				second = 0
				gateways[1-told].hears(s.theirs, compiled(t, current))
				promise.Set(at(), float64(current.Tokens), float64(current.Burst))
			}
			if at() >= next {
				to := draw()
				disagree := time.Duration(r.Int64N(int64(time.Second)))
				promise.Set(at(), float64(max(current.Tokens, to.Tokens)), float64(max(current.Burst, to.Burst)))
				times := 1 + int64(disagree.Seconds()*float64(to.Tokens)/float64(to.Burst))
				promise.Add(at(), at()+disagree, float64(max(0, current.Burst-to.Burst)*times))
				current, told = to, r.IntN(2)
				gateways[told].hears(s.theirs, compiled(t, current))
				second = at() + 1 + disagree
				next = second + 1 + time.Duration(r.Int64N(int64(3*time.Second)))
			}
			if tokens := 1 + r.Int64N(8); gateways[r.IntN(2)].spend(r, tokens) {
				promise.Admit(at(), tokens)
				admitted += tokens
			}
		}
		if worst, when := promise.Worst(); worst > 1e-6 {
			t.Errorf("seed %d: %.3f tokens were admitted beyond what is promised, at %v, want none", seed, worst, when)
		}
		if admitted < 100 {
			t.Errorf("seed %d: %d tokens were admitted, want more", seed, admitted)
		}
	}
}

// asker is a spender, and a slow and obvious twin of its bucket by the server's clock.
type asker struct {
	*spender
	server           *server
	r                *rand.Rand
	is               buckettest.Twin
	own              bucket.Take
	admitted, denied int
}

func newAsker(t *testing.T, r *rand.Rand, l rate.Limit) *asker {
	s := newServer(t)
	g := newSpender(t, s, 1, l)
	return &asker{spender: g, server: s, r: r, own: g.of}
}

func (a *asker) changes(l rate.Limit) {
	a.hears(a.server.theirs, compiled(a.T, l))
	a.own.Before = a.own.Shape.Replaced(a.own.Since, a.own.Before, a.server.nanos())
	a.own.Shape, a.own.Since = a.of.Shape, a.server.nanos()
	a.server.pass(5 * time.Microsecond) // before that the store cannot tell which came first
}

// asks spends, and sees that the store admits what its twin does; but for one token, as it cannot
// tell to the microsecond when a limit changed.
func (a *asker) asks(tokens int64) {
	one, out := []bucket.Take{a.own}, make([]bucket.Outcome, 1)
	_, _ = a.is.Peek(a.Context(), a.server.nanos(), one, out)
	room := out[0].Remaining
	got := a.spend(a.r, tokens)
	if one[0].Cost = tokens; got {
		_, _ = a.is.TryConsume(a.Context(), a.server.nanos(), one, out)
		a.admitted++
	} else {
		a.denied++
	}
	if got && !out[0].Allowed || !got && room > tokens {
		a.Errorf("of %d tokens %d are asked for: admitted %v, %v after the limit became %+v, in place of %+v", room,
			tokens, got, time.Duration(a.server.nanos()-a.own.Since), a.own.Shape, a.own.Before)
	}
}

// A limit becomes a slow one. Whoever is in debt and asks before that would have drained at the old
// rate goes on owing: then and ever after it is admitted what one bucket admits, which nobody forgets.
func TestWhoAsksGoesOnOwing(t *testing.T) {
	admitted, denied := 0, 0
	for seed := range race.Fewer(uint64(120)) {
		r := rand.New(rand.NewPCG(seed, 29))
		fast := rate.Limit{Tokens: 20 + r.Int64N(180), Per: time.Second, Burst: 50 + r.Int64N(350)}
		slow := rate.Limit{
			Tokens: 1 + r.Int64N(10),
			Per:    []time.Duration{time.Minute, time.Hour, 24 * time.Hour}[r.IntN(3)],
			Burst:  3 + r.Int64N(40),
		}
		a := newAsker(t, r, fast)
		owed := 1 + r.Int64N(fast.Burst)
		a.asks(owed)
		drains := int64(float64(owed) / float64(fast.Tokens) * float64(time.Second))
		until := a.server.nanos() + drains
		a.server.pass(time.Duration(r.Int64N(drains / 2)))
		a.changes(slow)
		a.server.pass(time.Duration(r.Int64N(until - a.server.nanos())))
		for range 12 {
			a.asks(1 + r.Int64N(2))
			a.server.pass(time.Duration(math.Exp(r.Float64()*math.Log(float64(3*time.Hour/time.Millisecond)))) *
				time.Millisecond)
		}
		admitted, denied = admitted+a.admitted, denied+a.denied
	}
	if least := race.Fewer(100); admitted < least || denied < least {
		t.Errorf("%d asked and were admitted, and %d were denied, want %d of each", admitted, denied, least)
	}
}

// A limit changes to others and back to what it was, and its bucket drains at each rate in its time,
// also where nobody asks while one of them is in force.
func TestALimitThatComesBack(t *testing.T) {
	for seed := range race.Fewer(uint64(40)) {
		r := rand.New(rand.NewPCG(seed, 31))
		limits := []rate.Limit{{Tokens: 50, Per: time.Second, Burst: 200}, {Tokens: 1, Per: time.Minute, Burst: 150},
			{Tokens: 10, Per: time.Second, Burst: 300}}
		a := newAsker(t, r, limits[0])
		for range 60 {
			for range r.IntN(12) { // enough that the bucket does not expire before it is asked for again
				a.asks(1 + r.Int64N(20))
			}
			a.server.pass(time.Duration(1+r.Int64N(100)) * time.Millisecond)
			if r.IntN(4) == 0 {
				a.changes(limits[r.IntN(len(limits))])
				a.server.pass(time.Duration(1+r.Int64N(100)) * time.Millisecond)
				if r.IntN(2) == 0 {
					a.changes(limits[0])
				}
			}
		}
		if a.admitted < 20 || a.denied < 20 {
			t.Errorf("seed %d: %d were admitted and %d denied, want 20 of each", seed, a.admitted, a.denied)
		}
	}
}
