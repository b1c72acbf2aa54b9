//go:build unix

package linearize

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/reservation"
)

// requests are those of a Limiter that are under way, and what rates have given out.
type requests struct {
	all   int // of the client
	a     int // of them at GET /a
	spent int // of their rate since the beginning: no time passes
}

const (
	atOnceInAll, atOnceAtA, ratePerMinute = 4, 2, 24
)

var rulesOfRequests = []string{"* 4 at once", "GET /a 2 at once", "GET /b 100 at once", "* 24/m", "default 1000000/s"}

// step begins a request at an endpoint, or ends one.
type step struct {
	ends bool
	at   string
	only string // if not "", the one rule whose place comes back by this
}

const (
	ofClient   = "*"
	ofEndpoint = "/a"
)

// endings has requests end once for each rule: memory gives back the place of one after the other, and in between
// others may begin.
func endings(history []porcupine.Operation) []porcupine.Operation {
	var all []porcupine.Operation
	for _, op := range history {
		in := op.Input.(step)
		if !in.ends {
			all = append(all, op)
			continue
		}
		for _, only := range []string{ofClient, ofEndpoint} {
			in.only = only
			op.Input = in
			all = append(all, op)
		}
	}
	return all
}

// modelOfRequests is the sequential limiter.
var modelOfRequests = porcupine.Model{
	Init: func() any { return requests{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, ok := state.(requests), input.(step), output.(bool)
		if in.ends {
			switch {
			case in.only == ofClient:
				s.all--
			case in.at == "/a":
				s.a--
			}
			return true, s
		}
		free := s.all < atOnceInAll && s.spent < ratePerMinute && (in.at != "/a" || s.a < atOnceAtA)
		if ok != free || !ok {
			return ok == free, s
		}
		s.spent++
		if s.all++; in.at == "/a" {
			s.a++
		}
		return true, s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %v", input, output) },
}

// recordRequests has clients begin and end requests at a Limiter.
func recordRequests(t *testing.T, store bucket.Store, seed uint64) []porcupine.Operation {
	t.Helper()
	lim, err := headgate.New(headgate.Options{
		Rules: rulesOfRequests, Buckets: store, Now: func() time.Time { return time.Unix(0, noon) },
	})
	if err != nil {
		t.Fatal(err)
	}
	type one struct {
		at   string
		made reservation.ID
		cost int64
	}
	underWay := make([][]one, clients)
	return endings(inTurns(clients, seed, func(c int, rng *rand.Rand) (any, func() any) {
		if mine := underWay[c]; len(mine) > 0 && rng.IntN(5) < 2 {
			i := rng.IntN(len(mine))
			ended := mine[i]
			underWay[c] = slices.Delete(mine, i, i+1)
			return step{ends: true, at: ended.at}, func() any {
				if _, err := lim.Settle(context.Background(), ended.made, ended.cost); err != nil {
					t.Error(err)
				}
				return true
			}
		}
		at := []string{"/a", "/b"}[rng.IntN(2)]
		return step{at: at}, func() any {
			made, d, err := lim.WaitAnswer(context.Background(), headgate.Request{
				Method: "GET", Target: at, Peer: netip.AddrFrom4([4]byte{192, 0, 2, 1}),
			}, headgate.UntilSettled)
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				underWay[c] = append(underWay[c], one{at, made.ID, made.Cost})
			}
			return d.Allowed
		}
	}))
}

// TestRequestsUnderWayAreInstants: whoever begins has all places and tokens or none, at one moment; whoever ends gives
// back each place at one.
func TestRequestsUnderWayAreInstants(t *testing.T) {
	begun, denied := 0, 0
	for seed := range uint64(60) {
		history := recordRequests(t, open(t, 1<<12), seed)
		if !porcupine.CheckOperations(modelOfRequests, history) {
			t.Errorf("seed %d: no order of what began and ended explains the answers", seed)
		}
		for _, op := range history {
			switch {
			case op.Input.(step).ends:
			case op.Output.(bool):
				begun++
			default:
				denied++
			}
		}
	}
	if begun < 600 || denied < 200 {
		t.Errorf("%d requests began and %d were denied: this shows too little", begun, denied)
	}
}

// forgetful gives a place back a second time, whenever one is.
type forgetful struct{ *memory.Store }

func (f forgetful) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if err := f.Store.Correct(ctx, now, changes, moved); err != nil {
		return err
	}
	return f.Store.Correct(ctx, now, changes, make([]int64, len(moved)))
}

// deaf gives no place back.
type deaf struct{ *memory.Store }

func (deaf) Correct(_ context.Context, _ int64, changes []bucket.Change, moved []int64) error {
	for i := range changes {
		moved[i] = changes[i].Units
	}
	return nil
}

// TestBrokenPlacesAreFound shows that the check can fail.
func TestBrokenPlacesAreFound(t *testing.T) {
	for name, broken := range map[string]func(*memory.Store) bucket.Store{
		"a place comes back twice":           func(s *memory.Store) bucket.Store { return forgetful{s} },
		"no place comes back":                func(s *memory.Store) bucket.Store { return deaf{s} },
		"charges what it can, and denies it": func(s *memory.Store) bucket.Store { return leaky{s} },
	} {
		found := 0
		for seed := range uint64(8) {
			if !porcupine.CheckOperations(modelOfRequests, recordRequests(t, broken(open(t, 1<<12)), seed)) {
				found++
			}
		}
		if found < 6 {
			t.Errorf("%s: found in %d of 8 histories", name, found)
		}
	}
}

// shared are the places of buckets that processes share, by their names, and what a rate has given out.
type shared struct {
	places [2]uint64
	spent  int64
}

// limitsOfShared are how many may be under way of the two.
var limitsOfShared = [2]int64{3, 5}

const burstOfShared = 30

// ask is what a process asks a store of places for.
type ask struct {
	what    asked
	name    int // of the place
	buckets []int
	rate    bool // a token as well
}

type asked int

const (
	takes asked = iota
	gives
	renews
)

// told is what it is told.
type told struct {
	allowed bool
	left    [2]int64 // of each bucket that is asked for
	moved   [2]int64
}

// modelOfShared is the sequential store of places.
var modelOfShared = porcupine.Model{
	Init: func() any { return shared{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, got := state.(shared), input.(ask), output.(told)
		want := told{allowed: true}
		name := uint64(1) << in.name
		switch in.what {
		case takes:
			for _, b := range in.buckets {
				want.allowed = want.allowed && int64(bits.OnesCount64(s.places[b])) < limitsOfShared[b]
			}
			if want.allowed = want.allowed && (!in.rate || s.spent < burstOfShared); want.allowed && in.rate {
				s.spent++
			}
			for i, b := range in.buckets {
				if want.allowed {
					s.places[b] |= name
				}
				want.left[i] = max(0, limitsOfShared[b]-int64(bits.OnesCount64(s.places[b])))
			}
		case gives:
			for i, b := range in.buckets {
				if s.places[b]&name != 0 {
					want.moved[i] = -1
				}
				s.places[b] &^= name
			}
		case renews:
			for i, b := range in.buckets {
				want.moved[i] = 1
				s.places[b] |= name
			}
		}
		return got == want, s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

// placesOf is a store, and what it gives back of a place.
type placesOf interface {
	bucket.Store
	back(c bucket.Change) bucket.Change
}

// real gives back what it is asked for.
type real struct{ *redis.Store }

func (real) back(c bucket.Change) bucket.Change { return c }

// whichever gives back any place of a bucket.
type whichever struct{ *redis.Store }

func (whichever) back(c bucket.Change) bucket.Change {
	c.Place = 0
	return c
}

// oneByOne takes from one bucket after the other, and keeps what it had if the next denies.
type oneByOne struct{ real }

func (o oneByOne) TryConsume(ctx context.Context, now int64, all []bucket.Take, outs []bucket.Outcome) (bool, error) {
	for i := range all {
		if ok, err := o.Store.TryConsume(ctx, now, all[i:i+1], outs[i:i+1]); !ok || err != nil {
			return ok, err
		}
	}
	return true, nil
}

// recordShared has processes take, renew and give back places of a Redis that they share: also such as have been given
// back before, or are at that moment.
func recordShared(t *testing.T, server *redistest.Server, wrap func(*redis.Store) placesOf, seed uint64,
) []porcupine.Operation {
	t.Helper()
	server.Do("FLUSHALL")
	var shapes [2]rate.Shape
	for b, limit := range limitsOfShared {
		shapes[b] = compileLimit(t, rate.Limit{
			Tokens: limit, Per: time.Minute, Burst: limit, Algorithm: rate.SlidingLog,
		})
	}
	tokens := compileLimit(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: burstOfShared})
	processes := make([]placesOf, clients)
	for c := range processes {
		conn := redistest.Dial(server.Socket)
		defer conn.Close()
		store, err := redis.New(redis.Options{Server: conn, CallersClock: true})
		if err != nil {
			t.Fatal(err)
		}
		processes[c] = wrap(store)
	}
	var mu sync.Mutex
	var taken []ask // guarded by mu; with the process that took it
	var by []int    // guarded by mu
	next := 0       // guarded by mu
	take := func(a ask, b int) bucket.Take {
		return bucket.Take{Key: buckettest.Key(uint64(b)), Shape: shapes[b], Cost: 1, Place: uint32(a.name + 1)}
	}
	return inTurns(clients, seed, func(c int, rng *rand.Rand) (any, func() any) {
		mu.Lock()
		defer mu.Unlock()
		if rng.IntN(5) < 3 || len(taken) == 0 {
			a := ask{what: takes, name: next, buckets: rng.Perm(2)[:1+rng.IntN(2)], rate: rng.IntN(2) == 0}
			next++
			return a, func() any {
				var list []bucket.Take
				for _, b := range a.buckets {
					list = append(list, take(a, b))
				}
				if a.rate {
					list = append(list, bucket.Take{Key: buckettest.Key(9), Shape: tokens, Cost: 1})
				}
				outs := make([]bucket.Outcome, len(list))
				ok, err := processes[c].TryConsume(context.Background(), noon, list, outs)
				if err != nil {
					t.Error(err)
				}
				if ok {
					mu.Lock()
					taken, by = append(taken, a), append(by, c)
					mu.Unlock()
				}
				got := told{allowed: ok}
				for i := range a.buckets {
					got.left[i] = outs[i].Remaining
				}
				return got
			}
		}
		i := max(0, len(taken)-1-rng.IntN(4))
		a, process := taken[i], processes[by[i]]
		a.what = []asked{gives, gives, gives, renews}[rng.IntN(4)]
		return a, func() any {
			var list []bucket.Change
			for _, b := range a.buckets {
				of := take(a, b)
				one := bucket.Change{Key: of.Key, Shape: of.Shape, Place: of.Place, Units: -1, Renew: a.what == renews}
				if a.what == gives {
					one = process.back(one)
				}
				list = append(list, one)
			}
			moved := make([]int64, len(list))
			if err := process.Correct(context.Background(), noon, list, moved); err != nil {
				t.Error(err)
			}
			got := told{allowed: true}
			copy(got.moved[:], moved)
			return got
		}
	})
}

func compileLimit(t *testing.T, l rate.Limit) rate.Shape {
	t.Helper()
	shape, err := rate.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

// TestSharedPlacesAreInstants: also where several give back the same one, or take it anew, at once.
func TestSharedPlacesAreInstants(t *testing.T) {
	server := redistest.Start(t)
	for seed := range uint64(40) {
		history := recordShared(t, server, func(s *redis.Store) placesOf { return real{s} }, seed)
		if !porcupine.CheckOperations(modelOfShared, history) {
			t.Errorf("seed %d: no order of what was taken and given back explains the answers", seed)
		}
	}
	for name, wrap := range map[string]func(*redis.Store) placesOf{
		"gives back whichever there is": func(s *redis.Store) placesOf { return whichever{s} },
		"takes one by one":              func(s *redis.Store) placesOf { return oneByOne{real{s}} },
	} {
		found := 0 // in nearly all, where what is meant to meet does
		for seed := uint64(0); seed < 80 && found < 6; seed++ {
			if !porcupine.CheckOperations(modelOfShared, recordShared(t, server, wrap, seed)) {
				found++
			}
		}
		if found < 6 {
			t.Errorf("%s: found in %d of 80 histories", name, found)
		}
	}
}
