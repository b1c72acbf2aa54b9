package main

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-io/headgate/pace"
)

// limiter is the server of the paper's experiment: a token bucket that is refilled
// continuously, starts full and charges nothing for what it refuses.
type limiter struct {
	capacity, perMinute float64

	tokens float64
	last   time.Duration
}

func newLimiter(capacity, perMinute float64) *limiter {
	return &limiter{capacity: capacity, perMinute: perMinute, tokens: capacity}
}

func (l *limiter) take(now time.Duration) bool {
	l.tokens = min(l.capacity, l.tokens+(now-l.last).Minutes()*l.perMinute)
	l.last = now
	if l.tokens < 1-1e-9 {
		return false
	}
	l.tokens--
	return true
}

// workload is when each client has its requests, from the start of the run, sorted.
type workload [][]time.Duration

const horizon = 300 * time.Second

// bursty deals total requests to clients, and gives each client a burst of requests
// that begins at a random moment of five minutes: the workload that reproduces the
// paper. One request each, then a Poisson number with mean perDeal at a time; gaps
// are exponential with mean gap.
func bursty(random *rand.Rand, clients, total int, perDeal float64, gap time.Duration) workload {
	counts := make([]int, clients)
	left := total
	for i := range counts {
		counts[i], left = 1, left-1
	}
	for i := 0; left > 0; i = (i + 1) % clients {
		n := min(left, poisson(random, perDeal))
		counts[i], left = counts[i]+n, left-n
	}
	w := make(workload, clients)
	for i, n := range counts {
		at := time.Duration(random.Float64() * float64(horizon))
		for range n {
			w[i] = append(w[i], at%horizon)
			at += time.Duration(random.ExpFloat64() * float64(gap))
		}
		slices.Sort(w[i])
	}
	return w
}

// poisson draws by counting exponential gaps.
func poisson(random *rand.Rand, mean float64) int {
	n := 0
	for sum := random.ExpFloat64(); sum < mean; sum += random.ExpFloat64() {
		n++
	}
	return n
}

// result is what came of one run.
type result struct {
	duration time.Duration // from the first arrival to the last success
	refused  int
	response time.Duration // mean, from arrival to success
}

// roundTrip is the network of the experiment.
const roundTrip = 6 * time.Millisecond

// simulate runs every client of a workload against a limiter, in virtual time. A
// client has one request under way at a time.
func simulate(w workload, l *limiter, algorithm pace.Algorithm, random *rand.Rand) result {
	var r result
	var events schedule
	first, requests := time.Duration(-1), 0
	for i := range w {
		start := time.Duration(i) * 500 * time.Millisecond % (10 * time.Second)
		c := &client{pacer: algorithm.Start(start, random.Float64), start: start, arrivals: w[i]}
		requests += len(w[i])
		if arrival := start + w[i][0]; first < 0 || arrival < first {
			first = arrival
		}
		heap.Push(&events, event{c.next(start), c})
	}
	for len(events) > 0 {
		e := heap.Pop(&events).(event)
		c := e.client
		if at := c.next(e.at); at > e.at {
			heap.Push(&events, event{at, c})
			continue
		}
		c.pacer.Sent(e.at)
		c.attempts++
		admitted := l.take(e.at + roundTrip/2)
		answered := e.at + roundTrip
		hint := pace.Hint{Remaining: -1, RoundTrip: roundTrip}
		if !admitted {
			r.refused++
			c.pacer.Refused(answered, c.attempts, hint)
		} else {
			c.pacer.Accepted(answered, hint)
			r.response += answered - c.arrival()
			r.duration = max(r.duration, answered-first)
			c.served, c.attempts = c.served+1, 0
		}
		if c.served < len(c.arrivals) {
			heap.Push(&events, event{c.next(answered), c})
		}
	}
	r.response /= time.Duration(requests)
	return r
}

type client struct {
	pacer    pace.Pacer
	start    time.Duration
	arrivals []time.Duration // from start
	served   int
	attempts int // of the request at hand
}

func (c *client) arrival() time.Duration { return c.start + c.arrivals[c.served] }

// next is when the client can send its next attempt, as far as is known now.
func (c *client) next(now time.Duration) time.Duration {
	if c.arrival() > now {
		return c.arrival()
	}
	return max(now, c.pacer.Next(now))
}

// oracle serves every request as early as any schedule could: in the order of
// arrival, whenever there is a token. No schedule has an earlier k-th success, for any
// k (the greedy shaper of network calculus), so none is shorter.
func oracle(w workload, l *limiter) result {
	var arrivals []time.Duration
	for i := range w {
		start := time.Duration(i) * 500 * time.Millisecond % (10 * time.Second)
		for _, a := range w[i] {
			arrivals = append(arrivals, start+a)
		}
	}
	slices.Sort(arrivals)
	var r result
	now := time.Duration(0)
	for _, a := range arrivals {
		now = max(now, a)
		for !l.take(now) {
			now += 1 + time.Duration((1-l.tokens)/l.perMinute*float64(time.Minute))
		}
		r.response += now - a
		r.duration = now - arrivals[0]
	}
	r.response /= time.Duration(len(arrivals))
	return r
}

type event struct {
	at     time.Duration
	client *client
}

type schedule []event

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].at < s[j].at }
func (s schedule) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }

// Push implements heap.Interface.
func (s *schedule) Push(e any) { *s = append(*s, e.(event)) }

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	old := *s
	e := old[len(old)-1]
	*s = old[:len(old)-1]
	return e
}
