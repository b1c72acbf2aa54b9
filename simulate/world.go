// Package simulate runs replicas, the network between them and their store, and all their clocks,
// as one deterministic program.
//
// What runs in it is what runs in production: the same accounts (bucket/lease) and the same
// arithmetic (bucket). Only time, messages and chance are made up, all from one seed, so that a run
// that breaks a promise breaks it again.
//
//	w := simulate.New(seed)
//	w.After(time.Second, func() { … })   // in the order of their times; those of one time in the order in which they were given
//	w.Run(time.Minute)                   // takes as long as what happens takes to compute
package simulate

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// World is what happens, in the order of time. It is not safe for concurrent use: nothing in it runs at the same time.
type World struct {
	// Rand is all the chance there is.
	Rand *rand.Rand

	now   time.Duration
	queue queue
	count uint64
}

// New returns a world at time 0 in which nothing is to happen yet.
func New(seed uint64) *World { return &World{Rand: rand.New(rand.NewPCG(seed, seed))} }

// Now is the time since the world began.
func (w *World) Now() time.Duration { return w.now }

// After has f happen after d; what has no time left happens next.
func (w *World) After(d time.Duration, f func()) {
	w.count++
	heap.Push(&w.queue, event{w.now + max(0, d), w.count, f})
}

// Run lets happen what happens before end.
func (w *World) Run(end time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at < end {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.happen()
	}
	w.now = max(w.now, end)
}

// Between is a time from least to most, each as likely.
func (w *World) Between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(w.Rand.Int64N(int64(most-least)+1))
}

// Poisson calls f now and again, on average rate times a second, until end; the times between are
// exponentially distributed. Rate is asked for anew every time; where it is 0 nothing happens for
// 10 ms.
func (w *World) Poisson(rate func(now time.Duration) float64, end time.Duration, f func()) {
	const pause = 10 * time.Millisecond
	var next func()
	next = func() {
		if w.now >= end {
			return
		}
		r := rate(w.now)
		if r <= 0 {
			w.After(pause, next)
			return
		}
		wait := time.Duration(w.Rand.ExpFloat64() / r * float64(time.Second))
		if wait > pause { // the rate may be another by then, and what has no memory may as well begin anew
			w.After(pause, next)
			return
		}
		w.After(wait, func() { f(); next() })
	}
	w.After(0, next)
}

type event struct {
	at     time.Duration
	number uint64
	happen func()
}

// queue is a heap of events.
type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].number < q[j].number
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(e any)   { *q = append(*q, e.(event)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = event{} // keeps nothing alive
	*q = (*q)[:last]
	return e
}
