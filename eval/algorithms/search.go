package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

const (
	limit  = 100
	window = 10 * time.Second

	tries = 1200 // schedules for every number
)

// spans are the lengths of time that admissions are counted in, half open. The first is an instant,
// for all that a backend notices.
var spans = [...]time.Duration{time.Millisecond, window, 10 * window}

// contender is an algorithm, seen from one side.
type contender struct {
	name      string
	algorithm rate.Algorithm
	turns     bool            // count requests when they go on, not when they are admitted
	bound     [len(spans)]int // as documented
}

var contenders = []contender{
	{"`token_bucket`", rate.TokenBucket, false, [...]int{limit, 2 * limit, 11 * limit}},
	{"`leaky_bucket`, admitted", rate.LeakyBucket, false, [...]int{limit, 2 * limit, 11 * limit}},
	{"`leaky_bucket`, going on", rate.LeakyBucket, true, [...]int{1, limit, 10 * limit}},
	{"`fixed_window`", rate.FixedWindow, false, [...]int{2 * limit, 2 * limit, 11 * limit}},
	{"`sliding_window`", rate.SlidingWindow, false, [...]int{limit, 2 * limit, 11 * limit}},
	{"`sliding_log`", rate.SlidingLog, false, [...]int{limit, limit, 10 * limit}},
}

type result struct {
	contender
	most [len(spans)]int
}

func measure() ([]result, error) {
	var results []result
	for _, c := range contenders {
		r := result{contender: c}
		for i, span := range spans {
			a, err := newAdversary(c, span)
			if err != nil {
				return nil, err
			}
			if r.most[i], err = a.search(); err != nil {
				return nil, err
			}
		}
		results = append(results, r)
	}
	return results, nil
}

// adversary looks for the schedule that brings in most within a span.
type adversary struct {
	contender
	span  time.Duration
	rng   *rand.Rand
	store *memory.Store
	take  bucket.Take
	told  time.Duration // when it was last told to come back
	start int64         // of the next attempt: whole windows later than the last, when all is forgotten
}

func newAdversary(c contender, span time.Duration) (*adversary, error) {
	shape, err := rate.Compile(rate.Limit{Tokens: limit, Per: window, Burst: limit, Algorithm: c.algorithm})
	if err != nil {
		return nil, err
	}
	store, err := memory.New(memory.Options{MaxBuckets: 64})
	if err != nil {
		return nil, err
	}
	return &adversary{
		contender: c, span: span, rng: rand.New(rand.NewPCG(uint64(c.algorithm), uint64(span))), store: store,
		take:  bucket.Take{Key: key.Key{Hi: 1, Lo: 0x5bd1e995_9e3779b9}, Shape: shape, Cost: 1},
		start: int64(1_800_000_000 * time.Second),
	}, nil
}

// raid is a part of a schedule: from at on the adversary takes tokens, at most so many, coming back
// whenever it is told to, until the next raid begins.
type raid struct {
	at      time.Duration
	most    int
	patient bool // comes back; else it goes away when it is denied
}

func (a *adversary) raid() raid {
	r := raid{at: time.Duration(a.rng.Int64N(int64(a.span + 3*window))), most: limit * 20, patient: a.rng.IntN(2) == 0}
	if a.rng.IntN(3) == 0 {
		r.most = 1 + a.rng.IntN(limit)
	}
	return r
}

// search climbs: a random schedule, changed again and again, every change kept that does not bring in less.
func (a *adversary) search() (int, error) {
	best, schedule := 0, []raid{a.raid(), a.raid()}
	for try := range tries {
		next := a.change(slices.Clone(schedule))
		if try%(tries/4) == 0 {
			next = []raid{a.raid(), a.raid(), a.raid()} // the last hill may have been a small one
		}
		got, err := a.attack(next)
		if err != nil {
			return 0, err
		}
		if got >= best || try%(tries/4) == 0 {
			schedule = next
		}
		best = max(best, got)
	}
	return best, nil
}

// change makes a schedule another one, mostly a little.
func (a *adversary) change(schedule []raid) []raid {
	i := a.rng.IntN(len(schedule))
	switch a.rng.IntN(8) {
	case 0:
		schedule = append(schedule, a.raid())
	case 1:
		if len(schedule) > 1 {
			schedule = slices.Delete(schedule, i, i+1)
		}
	case 2:
		schedule[i] = a.raid()
	case 3:
		schedule[i].patient = !schedule[i].patient
	case 4: // a hair before something ends
		schedule[i].at = max(0, a.told-time.Duration(a.rng.Int64N(int64(window)>>a.rng.IntN(30))))
	default: // shift by an hour hand or a hair
		far := int64(window) >> a.rng.IntN(34)
		schedule[i].at = max(0, schedule[i].at+time.Duration(a.rng.Int64N(2*far+1)-far))
	}
	return schedule
}

// attack runs a schedule and says how much it brought in within the span, at best.
func (a *adversary) attack(schedule []raid) (int, error) {
	slices.SortFunc(schedule, func(x, y raid) int { return int(x.at - y.at) })
	a.start += int64(1000 * window)
	var gone []int64 // when each token was
	var outs [1]bucket.Outcome
	for i, r := range schedule {
		end := a.start + int64(a.span+4*window)
		if i+1 < len(schedule) {
			end = a.start + int64(schedule[i+1].at)
		}
		for now, left := a.start+int64(r.at), r.most; left > 0; {
			allowed, err := a.store.TryConsume(context.Background(), now, []bucket.Take{a.take}, outs[:])
			if err != nil {
				return 0, err
			}
			if allowed {
				left--
				when := now
				if a.turns {
					when += int64(outs[0].Wait)
				}
				gone = append(gone, when)
				continue
			}
			now += int64(outs[0].RetryAfter)
			a.told = time.Duration(now - a.start)
			if !r.patient || now >= end {
				break
			}
		}
	}
	return within(gone, int64(a.span)), nil
}

// within is how many of times lie in one span, at most.
func within(times []int64, span int64) int {
	slices.Sort(times)
	most, from := 0, 0
	for to := range times {
		for times[from] <= times[to]-span {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}
