package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Several limits share the table: buckets of all of them are in it, and they take from a second to a day to fill.
var mixed = []rate.Limit{
	{Tokens: 20, Per: time.Second, Burst: 20},
	{Tokens: 60, Per: time.Minute, Burst: 60},
	{Tokens: 5, Per: 12 * time.Minute, Burst: 5}, // logins
	{Tokens: 10, Per: 12 * time.Minute, Burst: 10},
	{Tokens: 5, Per: time.Hour, Burst: 5},
	{Tokens: 24, Per: 24 * time.Hour, Burst: 24},
}

const logins = 2 // of mixed

// crowd is how an attacker crowds the table: by drained buckets, many times as many as it has slots.
type crowd struct {
	name string

	// sustained is that buckets of a login rule are drained all the time, as many as fill in the
	// same time; otherwise all are drained within twenty seconds. uniform is that they are of all
	// limits, as many of each in debt at once.
	sustained, uniform bool
}

var crowds = []crowd{
	{"logins, all the time", true, false},
	{"logins, all within 20 s", false, false},
	{"all limits, all the time", true, true},
}

var overs = []float64{1.2, 2.5, 6, 20} // buckets in debt for each slot

// mixedOutcome is what newcomers met, by limit.
type mixedOutcome struct {
	first, again []tally   // of newcomers; of those denied, when they came back after their Retry-After
	estimated    []float64 // what the table said of that, on average while they came
	admitted     float64   // tokens of the drained key that got most, relative to its limit
}

// event is something that happens at a time.
type event struct {
	at    int64
	limit int
	key   key.Key
}

// run crowds a table of so many slots, and has newcomers come meanwhile: after thirteen minutes, or
// in the minute after a pulse.
func (c crowd) run(slots int, over float64, newcomers int) (mixedOutcome, error) {
	o := mixedOutcome{
		first:     make([]tally, len(mixed)),
		again:     make([]tally, len(mixed)),
		estimated: make([]float64, len(mixed)),
	}
	store, err := memory.New(memory.Options{MaxBuckets: slots})
	if err != nil {
		return o, err
	}
	shapes := make([]rate.Shape, len(mixed))
	for i, limit := range mixed {
		if shapes[i], err = rate.Compile(limit); err != nil {
			return o, err
		}
	}
	rng := rand.New(rand.NewPCG(3, 5))
	fresh := func() key.Key { return key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()} }
	take := func(at int64, limit int, k key.Key, cost int64) bucket.Outcome {
		outs := [1]bucket.Outcome{}
		if _, err = store.TryConsume(context.Background(), at,
			[]bucket.Take{{Key: k, Shape: shapes[limit], Cost: cost}}, outs[:]); err != nil {
			panic(err) // one take and one outcome: no other error is possible
		}
		return outs[0]
	}
	drain := func(at int64, limit int) { take(at, limit, fresh(), mixed[limit].Burst) }
	// Some keys of each limit that is crowded come back at every second, for all that they can get.
	const loyal = 50 // of each
	var drained []event
	for limit := range mixed {
		for i := 0; i < loyal && c.drains(limit); i++ {
			drained = append(drained, event{limit: limit, key: fresh()})
		}
	}
	got := make([]int64, len(drained))

	warm, during := 13*time.Minute, time.Minute
	if !c.sustained {
		warm = 20 * time.Second
	}
	total, due := int64(0), make([]float64, len(mixed))
	var waiting []event
	const step, sampled = 20 * time.Millisecond, time.Second
	for at := time.Duration(0); at < warm+during; at += step {
		now := start + int64(at)
		for i := range mixed {
			if !c.drains(i) {
				continue
			}
			buckets := over * float64(slots)
			if c.uniform {
				buckets /= float64(len(mixed))
			}
			span := time.Duration(shapes[i].TimeToFull(shapes[i].Capacity))
			if span = min(span, warm); !c.sustained {
				span = warm
			}
			if c.sustained && at >= warm-span*3/2 || !c.sustained && at < warm { // not before it can matter
				due[i] += buckets * step.Seconds() / span.Seconds()
			}
			for ; due[i] >= 1; due[i]-- {
				drain(now+rng.Int64N(int64(step)), i)
			}
		}
		if at%time.Second == 0 {
			for i, e := range drained {
				for take(now+int64(step), e.limit, e.key, 1).Allowed {
					got[i]++
				}
			}
		}
		if at < warm {
			continue
		}
		if at%sampled == sampled/2 {
			stats := store.Stats(now + int64(step)) // as late as newcomers come
			for i, shape := range shapes {
				o.estimated[i] += stats.Crowding.FalseDenials(shape) / float64(during/sampled)
			}
		}
		for len(waiting) > 0 && waiting[0].at <= now+int64(step) {
			e := waiting[0]
			waiting = waiting[1:]
			o.again[e.limit].add(take(max(e.at, now+int64(step)), e.limit, e.key, 1).Allowed)
		}
		for ; total < int64(newcomers)*int64(at-warm+step)/int64(during); total++ {
			for i := range mixed {
				e := event{limit: i, key: fresh()}
				out := take(now+int64(step), i, e.key, 1)
				o.first[i].add(out.Allowed)
				if e.at = now + int64(step) + int64(out.RetryAfter); !out.Allowed && out.RetryAfter < during {
					waiting = insert(waiting, e)
				}
			}
		}
	}
	for i, n := range got {
		l := mixed[drained[i].limit]
		o.admitted = max(o.admitted, float64(n)/
			(float64(l.Burst)+float64(l.Tokens)*float64(warm+during)/float64(l.Per)))
	}
	return o, nil
}

// drains says whether the attacker drains buckets of a limit.
func (c crowd) drains(limit int) bool { return c.uniform || limit == logins }

// denied is the part of newcomers under a limit that is denied at first, and again after the wait that they were told.
func (o mixedOutcome) denied(limit int) (first, again float64) {
	return o.first[limit].share(), float64(o.again[limit].denied) / float64(max(1, o.first[limit].takes))
}

// insert keeps events in order.
func insert(events []event, e event) []event {
	at := len(events)
	for at > 0 && events[at-1].at > e.at {
		at--
	}
	events = append(events, e)
	copy(events[at+1:], events[at:])
	events[at] = e
	return events
}

// crowded says whether buckets of a limit take about as long to fill as those of the login rule.
func crowded(limit int) bool { return limit >= logins && limit <= logins+2 }

// mixAll runs every crowd.
func (p plan) mixAll(progress io.Writer) ([][]mixedOutcome, error) {
	results := make([][]mixedOutcome, len(crowds))
	for i, c := range crowds {
		for _, over := range overs {
			o, err := c.run(p.slots, over, p.newcomers)
			if err != nil {
				return nil, err
			}
			results[i] = append(results[i], o)
			fmt.Fprintf(progress, "%-26s %4v for each slot: %s\n", c.name, over, o)
		}
	}
	return results, nil
}

func (o mixedOutcome) String() string {
	var b strings.Builder
	for limit, l := range mixed {
		first, again := o.denied(limit)
		fmt.Fprintf(&b, "%d per %s %.1f %% (estimated %.1f %%) → %.1f %%, ", l.Tokens, short(l.Per), 100*first,
			100*o.estimated[limit], 100*again)
	}
	return fmt.Sprintf("%sdrained keys %.3f", &b, o.admitted)
}

func mixedTable(results [][]mixedOutcome) page.Table {
	head := []string{"drained buckets", "for each slot"}
	for _, l := range mixed {
		head = append(head, fmt.Sprintf("%d per %s", l.Tokens, short(l.Per)))
	}
	t := page.Table{append(head, "drained keys: admitted / own limit")}
	for i, c := range crowds {
		for j, over := range overs {
			o := results[i][j]
			row := []string{c.name, fmt.Sprint(over)}
			for limit := range mixed {
				first, again := o.denied(limit)
				row = append(row, fmt.Sprintf("%.1f (%.1f) → %.1f", 100*first, 100*o.estimated[limit], 100*again))
			}
			t = append(t, append(row, fmt.Sprintf("%.3f", o.admitted)))
		}
	}
	return t
}

func short(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d >= time.Minute:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}
