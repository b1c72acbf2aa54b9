//go:build unix

package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// atOnce is a limit on requests under way.
func atOnce(t testing.TB, limit int64, per time.Duration) rate.Shape {
	t.Helper()
	shape, err := rate.Compile(rate.Limit{Tokens: limit, Per: per, Burst: limit, Algorithm: rate.SlidingLog})
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

// placed is a take of one of them.
func placed(t testing.TB, n uint64, limit int64, per time.Duration, name uint32) bucket.Take {
	t.Helper()
	of := take(t, n, rate.Limit{Tokens: 1, Per: time.Second, Burst: 1}, 1)
	of.Shape, of.Place = atOnce(t, limit, per), name
	return of
}

// changed is what becomes of a place.
func changed(of bucket.Take, renew bool) bucket.Change {
	return bucket.Change{Key: of.Key, Tag: of.Tag, Shape: of.Shape, Place: of.Place, Units: -1, Renew: renew}
}

func replace(t testing.TB, s *redis.Store, now int64, all ...bucket.Change) (moved []int64) {
	t.Helper()
	moved = make([]int64, len(all))
	if err := s.Correct(context.Background(), now, all, moved); err != nil {
		t.Fatal(err)
	}
	return moved
}

// start is when runs begin by the clock of callers.
var start = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC).UnixNano()

// named is a place of one of several processes.
type named struct {
	process int
	of      bucket.Take
}

func (n named) String() string { return fmt.Sprint(n.process, "/", n.of.Key.Lo, "/", n.of.Place) }

// Places are counted as an obvious twin does it that keeps a list of until when each is taken: whatever processes take,
// take anew and give back, once or twice, of places that are theirs or are so no more, in whatever order.
func TestPlacesAsATwin(t *testing.T) {
	server := redistest.Start(t)
	conn := connect(t, server)
	for seed := range uint64(4) {
		server.Do("FLUSHALL")
		var processes []*redis.Store
		for range 3 {
			processes = append(processes, open(t, redis.Options{Server: conn, CallersClock: true}))
		}
		rng := rand.New(rand.NewPCG(seed, 20))
		pers := []time.Duration{5 * time.Second, 30 * time.Second}
		limits := []int64{1, 3, 8}
		twin := map[string]int64{}                   // until when, by name
		count := func(key uint64, now int64) int64 { // of one bucket
			n := int64(0)
			for name, until := range twin {
				if strings.Contains(name, fmt.Sprint("/", key, "/")) && until > now {
					n++
				}
			}
			return n
		}
		// kept is until when, as the server rounds it.
		kept := func(now int64, per time.Duration) int64 {
			const part = int64(10 * time.Millisecond)
			return (now/part+1)*part + int64(per)
		}
		var ever []named
		now, next := start, uint32(0)
		admitted, denied := 0, 0
		for range 2500 {
			now += rng.Int64N(int64(300*time.Millisecond)) / 1000 * 1000
			switch kind := rng.IntN(6); {
			case kind < 3 || len(ever) == 0:
				process, per := rng.IntN(len(processes)), pers[rng.IntN(2)]
				next++
				takes := make([]bucket.Take, 1+rng.IntN(2))
				want := true
				for i := range takes {
					key := uint64(2*i + rng.IntN(2))
					takes[i] = placed(t, key, limits[rng.IntN(3)], per, next)
					want = want && count(takes[i].Key.Lo, now) < takes[i].Shape.Capacity
				}
				allowed, outs := try(t, processes[process], now, takes...)
				if allowed != want {
					t.Fatalf("seed %d: takes %+v: %t, the twin says %t", seed, takes, allowed, want)
				}
				if !allowed {
					denied++
					break
				}
				admitted++
				for i, of := range takes {
					one := named{process, of}
					twin[one.String()] = kept(now, per)
					if left := of.Shape.Capacity - count(of.Key.Lo, now); outs[i].Remaining != left {
						t.Fatalf("seed %d: %d places are left, the twin says %d", seed, outs[i].Remaining, left)
					}
					ever = append(ever, one)
				}
			default:
				// of any that ever was: it may be gone
				one := ever[max(0, len(ever)-1-rng.IntN(20))]
				renew := kind == 3
				_, held := twin[one.String()]
				held = held && twin[one.String()] > now
				got := replace(t, processes[one.process], now, changed(one.of, renew))[0]
				switch {
				case renew:
					twin[one.String()] = kept(now, time.Duration(one.of.Shape.Tick))
				case held && got != -1 || !held && got != 0:
					t.Fatalf("seed %d: giving back %v moves %d, it was held: %t", seed, one, got, held)
				default:
					delete(twin, one.String())
				}
			}
		}
		if admitted < 200 || denied < 100 {
			t.Errorf("seed %d: %d admitted and %d denied, want some of both", seed, admitted, denied)
		}
	}
}

// A place that is kept no longer is nobody's, and its process gives back no other one, nor renews one.
func TestAPlaceThatIsAnothers(t *testing.T) {
	server := redistest.Start(t)
	conn := connect(t, server)
	a := open(t, redis.Options{Server: conn, CallersClock: true})
	b := open(t, redis.Options{Server: conn, CallersClock: true})
	// each process numbers its own
	first, second := placed(t, 1, 1, 5*time.Second, 1), placed(t, 1, 1, 5*time.Second, 1)
	if ok, _ := try(t, a, start, first); !ok {
		t.Fatal("a free place is denied")
	}
	later := start + int64(5*time.Second)
	if ok, _ := try(t, b, later, second); ok {
		t.Error("a place is another's before its time is over")
	}
	later += int64(11 * time.Millisecond)
	if ok, _ := try(t, b, later, second); !ok {
		t.Fatal("a place whose time is over is denied")
	}
	replace(t, a, later, changed(first, false)) // a goes on
	if ok, _ := try(t, a, later, placed(t, 1, 1, 5*time.Second, 2)); ok {
		t.Error("a process that had stood still has given back another's place")
	}
	replace(t, a, later, changed(first, true)) // it is under way, so it counts beside the other
	for i, of := range []struct {
		s  *redis.Store
		of bucket.Take
	}{{b, second}, {a, first}} {
		if ok, _ := try(t, a, later, placed(t, 1, int64(2-i), 5*time.Second, 2)); ok {
			t.Errorf("%d of 2 are given back, and there is a place", i)
		}
		replace(t, of.s, later, changed(of.of, false))
	}
}

// A clock that is set back keeps no place for longer than it is taken for; one that is taken anew is none the worse.
func TestPlacesWhenTheClockIsSetBack(t *testing.T) {
	store := open(t, redis.Options{Server: connect(t, redistest.Start(t)), CallersClock: true})
	const per = 5 * time.Second
	first, second := placed(t, 1, 2, per, 1), placed(t, 1, 2, per, 2)
	try(t, store, start, first)
	try(t, store, start, second)
	back := start - int64(time.Hour)
	replace(t, store, back, changed(second, true)) // which finds the other one
	for _, c := range []struct {
		at   time.Duration
		want bool
	}{{time.Second, false}, {per, false}, {per + 11*time.Millisecond, true}} {
		if ok, _ := try(t, store, back+int64(c.at), placed(t, 1, 2, per, 3)); ok != c.want {
			t.Errorf("%v after the clock was set back: %t, want %t", c.at, ok, c.want)
		}
		if c.at == time.Second {
			replace(t, store, back+int64(c.at), changed(second, true))
		}
	}
}

// By the server's clock: a set of places ends with the last of them, and operators empty one.
func TestPlacesByTheServersClock(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	name := func() string {
		all, _ := server.Do("KEYS", "*").([]any)
		if len(all) != 1 {
			t.Fatalf("%d names are kept, want 1", len(all))
		}
		return all[0].(string)
	}
	for n := range uint32(3) {
		if ok, _ := try(t, store, 0, placed(t, 1, 3, 30*time.Second, 1+n)); !ok {
			t.Fatal("a free place is denied")
		}
	}
	if ms, _ := server.Do("PTTL", name()).(int64); ms < 15_000 || ms > 30_020 {
		t.Errorf("places of 30 s are kept for %d ms", ms)
	}
	// Of a rule that keeps them for 5 s by now.
	replace(t, store, 0, changed(placed(t, 1, 3, 5*time.Second, 1), true))
	if ms, _ := server.Do("PTTL", name()).(int64); ms < 15_000 || ms > 30_020 {
		t.Errorf("the places of the others are kept for %d ms", ms)
	}
	if n, _ := server.Do("MEMORY", "USAGE", name()).(int64); n > 256 {
		t.Errorf("3 places take %d bytes", n)
	}
	of := placed(t, 1, 3, 30*time.Second, 9)
	operators := bucket.Change{Key: of.Key, Tag: of.Tag, Shape: of.Shape, Units: -1}
	if got := replace(t, store, 0, operators)[0]; got != -1 {
		t.Errorf("an operator who gives one place back moves %d, want -1", got)
	}
	operators.Units = bucket.Fill
	if got := replace(t, store, 0, operators)[0]; got != -2 {
		t.Errorf("an operator who gives all back moves %d, want -2", got)
	}
	if all, _ := server.Do("KEYS", "*").([]any); len(all) != 0 {
		t.Errorf("%d names are kept of nothing", len(all))
	}
}

// What others keep under the name of a bucket is dropped.
func TestAForeignValueAmongPlaces(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	of := placed(t, 1, 1, 30*time.Second, 1)
	try(t, store, 0, of)
	name := server.Do("KEYS", "*").([]any)[0].(string)
	for _, value := range []string{"SET", "LPUSH"} {
		for what, does := range map[string]func(){
			"take":   func() { try(t, store, 0, of) },
			"renew":  func() { replace(t, store, 0, changed(of, true)) },
			"return": func() { replace(t, store, 0, changed(of, false)) },
			"operator": func() {
				replace(t, store, 0, bucket.Change{Key: of.Key, Tag: of.Tag, Shape: of.Shape, Units: bucket.Fill})
			},
		} {
			server.Do("DEL", name)
			server.Do(value, name, "x")
			if does(); what == "return" {
				continue // it was not there
			}
			if kind, _ := server.Do("TYPE", name).(string); kind != "zset" && kind != "none" {
				t.Errorf("%s of a %s leaves a %s", what, value, kind)
			}
		}
	}
}

// A rate and a place are taken together, or neither is; a look takes nothing.
func TestPlacesBesideRates(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	limit := rate.Limit{Tokens: 1, Per: 1000 * time.Hour, Burst: 3}
	for i, want := range []bool{true, true, false} {
		of := placed(t, 2, 2, 30*time.Second, uint32(1+i))
		if ok, err := store.Peek(context.Background(), 0, []bucket.Take{take(t, 1, limit, 1), of},
			make([]bucket.Outcome, 2)); err != nil || ok != want {
			t.Errorf("request %d: a look says %t, %v, want %t", i, ok, err, want)
		}
		ok, outs := try(t, store, 0, take(t, 1, limit, 1), of)
		if ok != want || outs[0].Remaining != []int64{2, 1, 1}[i] || outs[1].Remaining != []int64{1, 0, 0}[i] {
			t.Errorf("request %d: %t, %+v, want %t", i, ok, outs, want)
		}
	}
	replace(t, store, 0, changed(placed(t, 2, 2, 30*time.Second, 1), false))
	ok, outs := try(t, store, 0, take(t, 1, limit, 2), placed(t, 2, 2, 30*time.Second, 7))
	if ok || outs[1].Remaining != 1 {
		t.Errorf("%t, %+v, want a denial by the rate, which takes no place", ok, outs)
	}
	shadow := placed(t, 2, 2, 30*time.Second, 8)
	shadow.Shadow = true
	for i, fits := range []bool{true, false} {
		shadow.Place++
		if ok, outs := try(t, store, 0, shadow); !ok || outs[0].Allowed != fits {
			t.Errorf("shadow %d: %t, %+v, want one that fits %t", i, ok, outs, fits)
		}
	}
}

// BenchmarkPlaces is a rate by itself, a place beside it, which is given back, and 64 places that are taken anew.
func BenchmarkPlaces(b *testing.B) {
	store := open(b, redis.Options{Server: connect(b, redistest.Start(b))})
	ctx, outs, moved := context.Background(), make([]bucket.Outcome, 2), make([]int64, 64)
	limit := rate.Limit{Tokens: 1e9, Per: time.Second, Burst: 1e9}
	rates := []bucket.Take{take(b, 1, limit, 1)}
	both := []bucket.Take{rates[0], placed(b, 2, 1000, 30*time.Second, 1)}
	again := make([]bucket.Change, 64)
	for i := range again {
		again[i] = changed(placed(b, 3, 1000, 30*time.Second, uint32(1+i)), true)
	}
	for name, does := range map[string]func() error{
		"rate": func() error { _, err := store.TryConsume(ctx, 0, rates, outs); return err },
		"rate and place": func() error {
			both[1].Place++
			_, err := store.TryConsume(ctx, 0, both, outs)
			return err
		},
		"place given back": func() error {
			return store.Correct(ctx, 0, []bucket.Change{changed(both[1], false)}, moved[:1])
		},
		"64 taken anew": func() error { return store.Correct(ctx, 0, again, moved) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := does(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
