package main

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/pace"
)

// result is what came of one run.
type result struct {
	duration   time.Duration // from the first arrival to the last success
	refused    int
	messages   int             // reports to the aggregator
	service    time.Duration   // mean, from the first answer to success: the paper's service time
	responses  []time.Duration // from arrival to success, of every request
	byClient   []time.Duration // mean response of each client
	unfinished int
}

// setting is what a run is made in.
type setting struct {
	workload  workload
	limiter   *limiter
	algorithm func(client int) pace.Algorithm // nil for a client: none, it is the oracle's
	telemetry *aggregator                     // nil: there is none
	loss      float64                         // part of all datagrams that get lost
	delay     time.Duration                   // of one round trip; 0 is roundTrip
	shake     time.Duration                   // what each half of it takes longer, on average
}

// all gives every client the same algorithm.
func all(a pace.Algorithm) func(int) pace.Algorithm { return func(int) pace.Algorithm { return a } }

// roundTrip is the network of the experiment.
const roundTrip = 6 * time.Millisecond

// patience is when a run is given up: the paper's ends in a quarter of an hour.
const patience = 6 * time.Hour

// simulate runs every client of a workload against a limiter, in virtual time. A
// client has one request under way at a time.
func simulate(s setting, random *rand.Rand) result {
	r := result{byClient: make([]time.Duration, len(s.workload))}
	net := cmp.Or(s.delay, roundTrip)
	var events schedule
	order := 0
	at := func(when time.Duration, do func(now time.Duration)) {
		order++
		heap.Push(&events, event{when, order, do})
	}
	first := time.Duration(-1)
	for i := range s.workload {
		start := starts(i)
		c := &client{
			number:   i,
			setting:  &s,
			result:   &r,
			at:       at,
			net:      net,
			random:   random,
			start:    start,
			arrivals: s.workload[i],
		}
		c.pacer = s.algorithm(i).Start(start, random.Float64)
		c.sharer, _ = c.pacer.(pace.Sharer)
		switch s.algorithm(i).(type) {
		case pace.HATB, pace.Auto:
			c.understands = true
		}
		if arrival := start + c.arrivals[0]; first < 0 || arrival < first {
			first = arrival
		}
		at(start+c.arrivals[0], c.arrive)
		if c.sharer != nil && s.telemetry != nil {
			c.report(start)
		}
	}
	for len(events) > 0 {
		e := heap.Pop(&events).(event)
		if e.at > patience {
			break
		}
		e.do(e.at)
	}
	r.duration -= first
	served := len(r.responses)
	for _, w := range s.workload {
		r.unfinished += len(w)
	}
	r.unfinished -= served
	if served > 0 {
		r.service /= time.Duration(served)
	}
	for i := range r.byClient {
		r.byClient[i] /= time.Duration(max(1, len(s.workload[i])))
	}
	return r
}

// client is one FIFO queue with one request under way.
type client struct {
	number  int
	setting *setting
	result  *result
	at      func(time.Duration, func(time.Duration))
	net     time.Duration
	random  *rand.Rand

	pacer       pace.Pacer
	sharer      pace.Sharer
	understands bool // slots

	start    time.Duration
	arrivals []time.Duration // from start
	arrived  int             // of them, so far
	served   int
	attempts int           // of the request at hand
	sent     time.Duration // the one under way
	answered time.Duration
	under    bool          // a request is under way
	wake     time.Duration // when the client looks again, 0 for never
	reportAt time.Duration // when it looks whether to report, 0 for never
	reserves bool          // the server said so
}

func (c *client) arrive(now time.Duration) {
	for c.arrived < len(c.arrivals) && c.start+c.arrivals[c.arrived] <= now {
		c.arrived++
	}
	if c.arrived < len(c.arrivals) {
		c.at(c.start+c.arrivals[c.arrived], c.arrive)
	}
	c.queued(now)
	c.look(now)
}

func (c *client) queued(now time.Duration) {
	if c.sharer != nil && c.setting.telemetry != nil {
		c.sharer.Queue(now, c.arrived-c.served)
		c.report(now)
	}
}

// look sends the request at the head of the queue, or sees to it that it is when it may be.
func (c *client) look(now time.Duration) {
	if c.under || c.served == c.arrived {
		return
	}
	if next := c.pacer.Next(now); next > now {
		if c.wake <= now || next < c.wake {
			c.wake = next
			c.at(next, c.look)
		}
		return
	}
	c.under = true
	c.pacer.Sent(now)
	c.attempts++
	c.sent = now
	c.at(now+c.half(), c.ask)
}

// half is how long a request or an answer is on its way.
func (c *client) half() time.Duration {
	half := c.net / 2
	if c.setting.shake > 0 {
		half += time.Duration(c.random.ExpFloat64() * float64(c.setting.shake))
	}
	return half
}

func (c *client) ask(now time.Duration) {
	pending := -1
	if c.understands && c.reserves {
		pending = c.arrived - c.served - 1
	}
	admitted, hint := c.setting.limiter.ask(now, c.number, pending)
	c.reserves = c.setting.limiter.says == reserved
	c.at(now+c.half(), func(now time.Duration) {
		hint.RoundTrip = now - c.sent
		c.answer(now, admitted, hint)
	})
}

func (c *client) answer(now time.Duration, admitted bool, hint pace.Hint) {
	r := c.result
	c.under = false
	if c.attempts == 1 {
		c.answered = now
	}
	if admitted {
		c.pacer.Accepted(now, hint)
		response := now - c.start - c.arrivals[c.served]
		r.responses = append(r.responses, response)
		r.byClient[c.number] += response
		r.service += now - c.answered
		r.duration = max(r.duration, now)
		c.served, c.attempts = c.served+1, 0
	} else {
		r.refused++
		c.pacer.Refused(now, c.attempts, hint)
	}
	c.queued(now)
	c.look(now)
}

// report sends what is due to the aggregator, and sees to the next report.
func (c *client) report(now time.Duration) {
	if c.sharer.NextReport(now) <= now {
		if report, due := c.sharer.Report(now); due {
			c.send(now, report)
		}
	}
	if next := c.sharer.NextReport(now); c.served < len(c.arrivals) && next < patience &&
		(c.reportAt <= now || next < c.reportAt) {
		c.reportAt = next
		c.at(next, func(now time.Duration) {
			if c.served < len(c.arrivals) {
				c.report(now)
				c.look(now)
			}
		})
	}
}

func (c *client) send(now time.Duration, report pace.Report) {
	c.result.messages++
	lost := func() bool { return c.setting.loss > 0 && c.random.Float64() < c.setting.loss }
	if lost() {
		return
	}
	c.at(now+c.net/2, func(now time.Duration) {
		a := c.setting.telemetry.receive(now, c.number, report)
		if lost() {
			return
		}
		c.at(now+c.net/2, func(now time.Duration) {
			c.sharer.Told(now, a)
			c.report(now)
			c.look(now)
		})
	})
}

type event struct {
	at    time.Duration
	order int // of two at the same time, the one that was planned first
	do    func(now time.Duration)
}

type schedule []event

func (s schedule) Len() int { return len(s) }
func (s schedule) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(s[i].at, s[j].at), s[i].order-s[j].order) < 0
}
func (s schedule) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

// Push implements heap.Interface.
func (s *schedule) Push(e any) { *s = append(*s, e.(event)) }

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	old := *s
	e := old[len(old)-1]
	*s = old[:len(old)-1]
	return e
}
