package proofs_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

const (
	rounds = 20
	steps  = 20_000 // of each round
)

var seed = flag.Uint64("seed", 0, "repeat the schedule of this `seed`; 0 makes a new one")

// TestGoDecidesAsProven has the Go code and the program extracted from the proofs run the same
// random schedules, and compares every answer and every state, bit for bit.
func TestGoDecidesAsProven(t *testing.T) {
	oracle, err := filepath.Abs("_build/oracle")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(oracle); errors.Is(err, fs.ErrNotExist) {
		t.Fatal("proofs/_build/oracle is not built: run `make proofs`, which checks the proofs and extracts it")
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with: go test ./proofs -seed %d", *seed)
	var seen tally
	for round := range uint64(rounds) {
		s := &schedule{t: t, rng: rand.New(rand.NewPCG(*seed, round)), seen: &seen}
		for len(s.steps) < steps {
			switch s.rng.IntN(4) {
			case 0:
				s.several()
			default:
				s.one()
			}
		}
		s.compare(oracle, round)
	}
	t.Logf("the same in %d steps: %+v", seen.steps, seen)
	if least := min(seen.allowed, seen.denied, seen.never, seen.coarse, seen.converted, seen.refunded, seen.together,
		10*seen.followed); least < rounds*steps/100 {
		t.Errorf("%+v: this shows too little", seen)
	}
}

// tally is what the schedules were made of.
type tally struct {
	steps, allowed, denied, never int // takes by what became of them
	coarse                        int // takes under a tick above a nanosecond
	converted, refunded, together int
	followed                      int // several changes at once
}

// step is an operation as the oracle reads it, what the Go code made of it, and what it found.
type step struct{ op, got, found string }

// schedule is made while the Go code runs it.
type schedule struct {
	t     *testing.T
	rng   *rand.Rand
	steps []step
	seen  *tally

	coarse bool // waits are told in whole microseconds
}

func (s *schedule) add(shape rate.Shape, before bucket.State, got string, op string, args ...any) {
	s.steps = append(s.steps, step{fmt.Sprintf(op, args...), got, fmt.Sprintf("%+v %+v", shape, before)})
}

func (s *schedule) count(shape rate.Shape, o bucket.Outcome) {
	switch {
	case o.Allowed:
		s.seen.allowed++
	case o.Never:
		s.seen.never++
	default:
		s.seen.denied++
	}
	if shape.Tick > 1 {
		s.seen.coarse++
	}
}

// compare runs the oracle on all steps.
func (s *schedule) compare(oracle string, round uint64) {
	s.t.Helper()
	var trace strings.Builder
	for _, step := range s.steps {
		trace.WriteString(step.op)
		trace.WriteByte('\n')
	}
	cmd := exec.Command(oracle)
	cmd.Stdin = strings.NewReader(trace.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("the oracle fails: %v", err)
	}
	answers := bufio.NewScanner(strings.NewReader(string(out)))
	for i, step := range s.steps {
		if !answers.Scan() {
			s.t.Fatalf("the oracle stops after %d of %d steps", i, len(s.steps))
		}
		want := answers.Text()
		if s.coarse && strings.HasPrefix(step.op, "all ") {
			want = roundWaits(want)
		}
		if step.got != want {
			s.t.Fatalf("seed %d, round %d, step %d: %s\nof     %s\nGo     %s\nproven %s\nwhere takes answer "+
				"allowed, remaining, retry, reset and never, and then as all do: debt and stamp",
				*seed, round, i, step.op, step.found, step.got, want)
		}
		s.seen.steps++
	}
}

// one is a bucket that lives through some hundred steps, at times from one end of an int64 to the other.
func (s *schedule) one() {
	shape, state := s.shape(), bucket.State{}
	s.add(shape, state, debtAndStamp(state), "bucket 0 %s", numbers(shape))
	now := s.rng.Int64() >> s.rng.IntN(63)
	charged, units := now, int64(0)
	for range 100 + s.rng.IntN(200) {
		before := state
		now = s.move(now, state, shape)
		switch s.rng.IntN(24) {
		case 0:
			state = bucket.State{Debt: s.upTo(shape.Capacity), Stamp: s.move(now, state, shape)}
			s.add(shape, before, debtAndStamp(state), "state 0 %d %d", state.Debt, state.Stamp)
		case 1:
			to := s.shape()
			state = state.Convert(shape, to, now)
			s.seen.converted++
			s.add(shape, before, debtAndStamp(state), "convert 0 %s %d", numbers(to), now)
			shape = to
		case 5:
			shape, state = s.followed(shape, state, now)
		case 2, 3:
			if s.rng.IntN(2) == 0 {
				charged, units = add(now, -s.magnitude()), s.upTo(shape.Capacity)
			}
			charged = max(charged, add(max(now, state.Stamp), -math.MaxInt64)) // as far back as a time.Duration reaches
			state = state.Refund(now, shape, min(units, shape.Capacity), charged)
			s.seen.refunded++
			s.add(shape, before, debtAndStamp(state), "refund 0 %d %d %d", now, min(units, shape.Capacity), charged)
		case 4:
			s.add(shape, before, fmt.Sprint(state.FullAt(shape)), "full 0")
		default:
			cost := s.cost(shape)
			var o bucket.Outcome
			state, o = state.Take(now, shape, cost)
			s.count(shape, o)
			s.add(shape, before, answer(o)+" "+debtAndStamp(state), "take 0 %d %d", now, cost)
			if got, ok := shape.Units(cost); ok && o.Allowed {
				charged, units = now, got
			}
		}
	}
}

// followed is a bucket whose limit changes a few times before anybody asks for it again. The oracle
// converts it at each change, and Go, at the end, at once. At times nobody knows any more which
// limits held in between.
func (s *schedule) followed(shape rate.Shape, before bucket.State, now int64) (rate.Shape, bucket.State) {
	since := max(now, add(before.Stamp, 1))
	t := bucket.Take{Shape: shape, Since: math.MinInt64}
	followed, ops := before, 0
	for range 1 + s.rng.IntN(6) {
		to := s.shape()
		if to == t.Shape || since >= math.MaxInt64-1<<20 {
			continue
		}
		t.Before = &rate.Past{Shape: t.Shape, Since: t.Since, Before: t.Before}
		known := since
		if s.rng.IntN(4) == 0 {
			since = min(add(since, s.magnitude()), math.MaxInt64-1)
			t.Before = &rate.Past{Since: known, Before: t.Before}
		}
		t.Shape, t.Since = to, since
		h := bucket.Held{Shape: shape, State: before}
		h.Follow(math.MaxInt64, &t)
		followed = h.State
		s.add(shape, before, debtAndStamp(followed), "held 0 %s %d %d", numbers(to), known, since)
		ops++
		since = min(add(since, s.rng.Int64N(max(1, int64(to.TimeToFull(to.Capacity/2))))), math.MaxInt64-1)
	}
	if ops > 1 {
		s.seen.followed++
	}
	return t.Shape, followed
}

// several are buckets in a store that is large enough to keep them all. Decisions name some of
// them, now and then one of them twice, and their shapes change.
func (s *schedule) several() {
	const buckets = 10
	store, err := memory.New(memory.Options{MaxBuckets: 512})
	if err != nil {
		s.t.Fatal(err)
	}
	type rule struct {
		shape rate.Shape
		since int64
		idle  int // how often it changed since it was last charged
		past  *rate.Past
	}
	var rules [buckets]rule
	var keys [buckets]key.Key
	for i := range rules {
		rules[i].shape = s.shape()
		keys[i] = key.Key{Hi: s.rng.Uint64(), Lo: s.rng.Uint64()}
		s.add(rules[i].shape, bucket.State{}, "0 0", "bucket %d %s", i, numbers(rules[i].shape))
	}
	states := map[int]bucket.State{} // as the oracle writes them; the store keeps its own to itself
	now := int64(1_795_000_000_000_000_000)
	earliest := now
	for range 100 + s.rng.IntN(100) {
		some := s.rng.IntN(buckets)
		now = min(max(s.move(now, bucket.State{Stamp: now}, rules[some].shape), earliest), math.MaxInt64-1)
		if r := &rules[some]; r.idle < rate.MaxPast-2 && s.rng.IntN(6) == 0 {
			to := s.shape()
			if p := r.past; p != nil && s.rng.IntN(4) == 0 {
				to = p.Shape // as it was before
			}
			if to == r.shape || now <= max(states[some].Stamp, r.since) {
				continue // what was charged in the very nanosecond of a change may have been charged before or after
			}
			if r.idle > 0 {
				s.seen.followed++
			}
			before := states[some]
			states[some] = before.Convert(r.shape, to, now)
			s.add(r.shape, before, debtAndStamp(states[some]), "convert %d %s %d", some, numbers(to), now)
			past := r.shape.Replaced(r.since, r.past, now)
			// clocks that step back behind a change are not what the store is for
			*r, earliest = rule{shape: to, since: now, idle: r.idle + 1, past: past}, now
			continue
		}

		var takes []bucket.Take
		var named []int
		costs := map[int]int64{}
		for range 1 + s.rng.IntN(4) {
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
		outs := make([]bucket.Outcome, len(takes))
		allowed, err := store.TryConsume(context.Background(), now, takes, outs)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(named) > 1 {
			s.seen.together++
		}
		op, got, found := fmt.Sprintf("all %d", now), bit(allowed), ""
		for _, i := range named {
			op += fmt.Sprintf(" %d %d", i, costs[i])
			found += fmt.Sprintf("\n  %d: %+v %+v", i, rules[i].shape, states[i])
			for j, take := range takes {
				if take.Key == keys[i] {
					got += " " + answer(outs[j])
					s.count(take.Shape, outs[j])
					break
				}
			}
			after := states[i]
			if allowed {
				after, _ = after.Take(now, rules[i].shape, costs[i])
				if costs[i] > 0 {
					rules[i].idle = 0
				}
			}
			got += " " + debtAndStamp(after)
			states[i] = after
		}
		s.steps = append(s.steps, step{op, got, found})
	}
}

// together is what two takes of a bucket cost, where what cannot be had at all is -1.
func together(a, b int64) int64 {
	if a < 0 || b < 0 || a > math.MaxInt64-b {
		return -1
	}
	return a + b
}

// shape is that of a limit as people write it, or as nobody does.
func (s *schedule) shape() rate.Shape {
	primes := []int64{1, 2, 3, 7, 13, 97, 997, 65_537, 999_983, 1_000_003, 2_147_483_647, 4_294_967_291}
	periods := []time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour,
		7 * 24 * time.Hour, 365 * 24 * time.Hour, 999_999_937}
	for {
		limit := rate.Limit{
			Tokens: primes[s.rng.IntN(len(primes))],
			Per:    periods[s.rng.IntN(len(periods))],
			Burst:  1 + s.rng.Int64N(2000),
		}
		switch s.rng.IntN(4) {
		case 0:
			limit.Tokens = 1 + s.rng.Int64N(100_000)
		case 1:
			limit = rate.Limit{
				Tokens: 1 + s.magnitude(),
				Per:    time.Duration(1 + s.magnitude()),
				Burst:  1 + s.magnitude(),
			}
		case 2:
			limit.Burst = 1 + s.magnitude()
		}
		if shape, err := rate.Compile(limit); err == nil {
			return shape
		}
	}
}

// move is the next reading of a clock: usually a little later, sometimes at the very moment that a
// token is back, sometimes in the past, at times anywhere.
func (s *schedule) move(now int64, state bucket.State, shape rate.Shape) int64 {
	token := max(1, int64(shape.TimeToFull(shape.Unit)))
	switch s.rng.IntN(16) {
	case 0:
		return add(now, -s.magnitude())
	case 1:
		return add(now, s.magnitude())
	case 2:
		return add(now, s.rng.Int64N(1<<50))
	case 3:
		return add(state.Stamp, token-1+s.rng.Int64N(3))
	case 4:
		return add(state.FullAt(shape), s.rng.Int64N(3)-1)
	case 5:
		return add(now, -s.rng.Int64N(token))
	case 6, 7, 8:
		return now
	case 9:
		if s.rng.IntN(50) == 0 {
			return []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}[s.rng.IntN(5)]
		}
	}
	return add(now, s.rng.Int64N(token)+s.rng.Int64N(3))
}

// cost is mostly one that the bucket can pay.
func (s *schedule) cost(shape rate.Shape) int64 {
	switch s.rng.IntN(12) {
	case 0:
		return 0
	case 1:
		return shape.Burst()
	case 2:
		return add(shape.Burst(), 1+s.magnitude())
	case 3:
		return -s.magnitude()
	case 4, 5:
		return s.upTo(shape.Burst())
	}
	return 1 + s.upTo(min(shape.Burst(), 10))
}

// magnitude is up to 2^62, and as often small as large.
func (s *schedule) magnitude() int64 { return s.rng.Int64N(1<<62) >> s.rng.IntN(62) }

func (s *schedule) upTo(most int64) int64 { return s.rng.Int64N(most + 1) }

// add stays at the ends of an int64.
func add(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

func numbers(s rate.Shape) string {
	return fmt.Sprintf("%d %d %d %d", s.Drain, s.Unit, s.Capacity, s.Tick)
}

func debtAndStamp(s bucket.State) string { return fmt.Sprintf("%d %d", s.Debt, s.Stamp) }

func answer(o bucket.Outcome) string {
	return fmt.Sprintf("%s %d %d %d %s", bit(o.Allowed), o.Remaining, o.RetryAfter, o.ResetAfter, bit(o.Never))
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
