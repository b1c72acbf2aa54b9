//go:build unix

package proofs_test

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// TestRedisDecidesAsProven has the scripts on a real server, the Go code and the program extracted
// from the proofs run the same random schedules, and compares every answer, and what the server
// keeps, bit for bit. Times are whole microseconds, and waits are rounded up to one.
func TestRedisDecidesAsProven(t *testing.T) {
	oracle, err := filepath.Abs("_build/oracle")
	if err != nil {
		t.Fatal(err)
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with: go test ./proofs -seed %d", *seed)
	server := redistest.Start(t)
	wire := &wire{Conn: redistest.Dial(server.Socket), ran: map[string]int{}}
	defer wire.Close()
	store, err := redis.New(redis.Options{Server: wire, CallersClock: true})
	if err != nil {
		t.Fatal(err)
	}
	var seen tally
	const rounds, steps = 10, 12_000
	for round := range uint64(rounds) {
		s := &schedule{t: t, rng: rand.New(rand.NewPCG(*seed, round)), seen: &seen, coarse: true}
		for len(s.steps) < steps {
			s.shared(wire, store)
		}
		s.compare(oracle, round)
	}
	t.Logf("the same in %d steps: %+v", seen.steps, seen)
	often := 0 // scripts that ran often: for one bucket and for several
	for _, times := range wire.ran {
		if times > rounds*steps/20 {
			often++
		}
	}
	if often != 2 {
		t.Errorf("scripts ran %v times, want two of them often", slices.Collect(maps.Values(wire.ran)))
	}
	if least := min(seen.allowed, seen.denied, seen.never, seen.coarse, seen.together, 10*seen.converted,
		40*seen.followed); least < rounds*steps/100 {
		t.Errorf("%+v: this shows too little", seen)
	}
}

// wire remembers the names that buckets have on the server.
type wire struct {
	*redistest.Conn
	keys []string       // of the last decision
	ran  map[string]int // how often, by script
}

func (w *wire) Eval(ctx context.Context, command, script string, keys, args []string) (any, error) {
	w.keys = keys
	w.ran[script]++
	return w.Conn.Eval(ctx, command, script, keys, args)
}

// held is what the server keeps under a name, as debt and stamp in nanoseconds.
func (w *wire) held(t *testing.T, name string) string {
	t.Helper()
	value, err := w.Do(time.Now().Add(time.Minute), "GET", name)
	text, ok := value.(string)
	if err != nil || !ok || len(text) < 14 {
		t.Fatalf("under %q the server keeps %q, %v", name, value, err)
	}
	whole := func(s string) (n int64) {
		for i := range len(s) {
			n |= int64(s[i]) << (8 * i)
		}
		return n
	}
	return fmt.Sprintf("%d %d", whole(text[:7]), 1000*whole(text[7:14]))
}

// shared are buckets on the server. Decisions name some of them, and limits change and clocks step
// back, or neither does. Then the same buckets in memory, under the limits as they were written
// down, are asked as well: otherwise the server's coarser ticks and units err on the side of
// denying.
func (s *schedule) shared(wire *wire, store *redis.Store) {
	const buckets = 10
	beside, err := memory.New(memory.Options{MaxBuckets: 512})
	if err != nil {
		s.t.Fatal(err)
	}
	type rule struct {
		shape, coarse rate.Shape
		since         int64
		idle          int // how often it changed since it was last charged
		past          *rate.Past
	}
	var rules [buckets]rule
	var keys [buckets]key.Key
	states := map[int]bucket.State{}
	for i := range rules {
		rules[i].shape, rules[i].coarse = s.storable()
		keys[i] = key.Key{Hi: s.rng.Uint64(), Lo: s.rng.Uint64()}
		s.add(rules[i].coarse, bucket.State{}, "0 0", "bucket %d %s", i, numbers(rules[i].coarse))
	}
	steady := s.rng.IntN(2) == 0
	now := int64(1_795_000_000_000_000_000)
	earliest := now
	for range 100 + s.rng.IntN(100) {
		some := s.rng.IntN(buckets)
		now = min(max(s.move(now, states[some], rules[some].coarse), earliest), 9_000_000_000_000_000_000)
		now -= now % 1000
		if steady {
			// what drained in a coarse tick that has begun is forgotten when the clock is set back
			// into it
			earliest = now
		}
		if r := &rules[some]; !steady && r.idle < rate.MaxPast-2 && s.rng.IntN(6) == 0 {
			shape, coarse := s.storable()
			if shape == r.shape || now <= max(states[some].Stamp, r.since) {
				continue
			}
			if r.idle > 0 {
				s.seen.followed++
			}
			s.seen.converted++
			before := states[some]
			states[some] = before.Convert(r.coarse, coarse, now)
			s.add(r.coarse, before, debtAndStamp(states[some]), "convert %d %s %d", some, numbers(coarse), now)
			past := r.shape.Replaced(r.since, r.past, now)
			*r, earliest = rule{shape: shape, coarse: coarse, since: now, idle: r.idle + 1, past: past}, now
			continue
		}

		var takes []bucket.Take
		var named []int
		costs := map[int]int64{}
		for range 1 + s.rng.IntN(4)*s.rng.IntN(2) {
			i := s.rng.IntN(buckets)
			cost := s.cost(rules[i].shape)
			if s.rng.IntN(3) > 0 {
				cost /= 4
			}
			takes = append(takes, bucket.Take{
				Key:    keys[i],
				Shape:  rules[i].shape,
				Since:  rules[i].since,
				Before: rules[i].past,
				Cost:   cost,
			})
			if _, again := costs[i]; !again {
				named = append(named, i)
			}
			costs[i] = together(costs[i], cost)
		}
		outs, outsBeside := make([]bucket.Outcome, len(takes)), make([]bucket.Outcome, len(takes))
		allowed, err := store.TryConsume(context.Background(), now, takes, outs)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(named) > 1 {
			s.seen.together++
		}
		allowedBeside, err := beside.TryConsume(context.Background(), now, takes, outsBeside)
		if err != nil || steady && allowedBeside != allowed {
			s.t.Fatalf("at %d: %+v\nredis:  %t, %+v\nmemory: %t, %+v, %v", now, takes, allowed, outs, allowedBeside,
				outsBeside, err)
		}
		op, got, found := fmt.Sprintf("all %d", now), bit(allowed), ""
		for n, i := range named {
			op += fmt.Sprintf(" %d %d", i, costs[i])
			found += fmt.Sprintf("\n  %d: %+v %+v", i, rules[i].coarse, states[i])
			for j, take := range takes {
				if take.Key == keys[i] {
					got += " " + answer(outs[j])
					s.count(rules[i].shape, outs[j])
					break
				}
			}
			after := states[i]
			if allowed && costs[i] > 0 {
				after, _ = after.Take(now, rules[i].coarse, costs[i])
				rules[i].idle = 0
				if kept := wire.held(s.t, wire.keys[n]); kept != debtAndStamp(after) {
					s.t.Fatalf("%s%s\nkept %s\nGo   %s", op, found, kept, debtAndStamp(after))
				}
			}
			got += " " + debtAndStamp(after)
			states[i] = after
		}
		s.steps = append(s.steps, step{op, got, found})
	}
}

// storable is a shape that a shared store can keep at the rate that was written down, and how it counts it.
func (s *schedule) storable() (shape, coarse rate.Shape) {
	for {
		shape = s.shape()
		coarse, err := redis.Coarsen(shape)
		if err == nil && shape.Unit%coarse.Unit == 0 && perNano(coarse).Cmp(perNano(shape)) == 0 {
			return shape, coarse
		}
	}
}

// perNano is the rate in tokens.
func perNano(s rate.Shape) *big.Rat {
	perTick := big.NewRat(s.Drain, s.Unit)
	return perTick.Mul(perTick, big.NewRat(1, s.Tick))
}

// roundWaits rounds what the oracle says of waits up to a whole microsecond.
func roundWaits(answer string) string {
	words := strings.Fields(answer)
	for i := 1; i+7 <= len(words); i += 7 {
		for _, wait := range []int{i + 2, i + 3} {
			n, err := strconv.ParseInt(words[wait], 10, 64)
			if over := n % 1000; err == nil && over > 0 && n < 1<<63-1000 {
				words[wait] = strconv.FormatInt(n-over+1000, 10)
			}
		}
	}
	return strings.Join(words, " ")
}
