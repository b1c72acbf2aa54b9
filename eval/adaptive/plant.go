package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// An API in virtual time: one queue, whose server does so many requests a second, and a time that every request takes
// besides. Whoever sends more than that waits for all who came before.

// backend is such an API.
type backend struct {
	mu   float64       // requests a second that it can do at its best
	base time.Duration // what an answer takes without a queue
	slo  time.Duration // and what it is to take at most
}

// quick is the one of the scenarios, and slow the one of a day, in which there are fewer requests.
var (
	quick = backend{mu: 1000, base: 20 * time.Millisecond, slo: 100 * time.Millisecond}
	slow  = backend{mu: 100, base: 200 * time.Millisecond, slo: time.Second}
)

// scenario is what happens to the API in so many seconds.
type scenario struct {
	backend

	name     string
	seconds  int
	offered  func(s float64) float64 // requests a second at a time
	capacity func(s float64) float64 // and how many the API can do, as a part of mu
	callers  int

	// poisoned is how many of the callers ask for what takes thirty times the objective, whatever the load, and fails.
	poisoned func(s float64) int

	steady bool // the API is as it is, and is asked for more than it can do
}

// door decides which requests go to the API, and is told what becomes of them. Times are in nanoseconds.
type door interface {
	// admit reports whether the request of a caller passes at now. If it does, answered is called when its answer
	// begins.
	admit(now int64, caller int) (passes bool, answered func(now int64, took time.Duration, failed bool))

	// multiplier is the part of the limit that is in force.
	multiplier(now int64) float64
}

// bad is how many of the callers are poisoned at a time.
func (s *scenario) bad(at float64) int {
	if s.poisoned == nil {
		return 0
	}
	return s.poisoned(at)
}

// outcome is what a scenario came to.
type outcome struct {
	Goodput float64 // answers of the honest within the objective, of what the API could have given and was asked for
	P99     time.Duration
	CV      float64   // of the multiplier over the last third: standard deviation by mean
	Least   float64   // multiplier
	Most    float64   // multiplier
	Second  []float64 // multiplier at the end of each second
	Good    []float64 // answers within the objective in each second
	Could   []float64 // what the API could have given, and was asked for, in each second
	P99s    []float64 // in each second, in milliseconds
}

// under is an answer that is under way.
type under struct {
	at       int64
	took     time.Duration
	failed   bool
	honest   bool
	answered func(int64, time.Duration, bool)
}

// run has requests come to the API through a door.
func run(s scenario, d door, seed uint64) (o outcome) {
	random := rand.New(rand.NewPCG(seed, 3))
	var queue, poison []under // each in the order of their ends
	free := int64(epoch)      // when the server is
	var took []time.Duration
	var second []time.Duration
	finish := func(u under) {
		u.answered(u.at, u.took, u.failed)
		if !u.honest {
			return
		}
		took, second = append(took, u.took), append(second, u.took)
		if at := int((u.at - epoch) / int64(time.Second)); u.took <= s.slo && at < s.seconds {
			o.Good[at]++
		}
	}
	settle := func(now int64) {
		for len(queue) > 0 || len(poison) > 0 {
			from := &queue
			if len(queue) == 0 || len(poison) > 0 && poison[0].at < queue[0].at {
				from = &poison
			}
			if (*from)[0].at > now {
				return
			}
			finish((*from)[0])
			*from = (*from)[1:]
		}
	}
	o.Good, o.Could = make([]float64, s.seconds), make([]float64, s.seconds)
	o.Least, o.Most = math.Inf(1), math.Inf(-1)
	at := float64(0)
	for n := range s.seconds {
		for at < float64(n+1) {
			now := epoch + int64(at*1e9)
			settle(now)
			caller := random.IntN(s.callers)
			poisoned := caller < s.bad(at)
			if passes, answered := d.admit(now, caller); passes {
				if poisoned {
					end := now + int64(30*s.slo)
					poison = append(poison, under{end, 30 * s.slo, true, false, answered})
				} else {
					rate := s.mu * s.capacity(at)
					free = max(free, now) + int64(1e9/rate*random.ExpFloat64())
					end := free + int64(s.base)
					queue = append(queue, under{end, time.Duration(end - now), false, true, answered})
				}
			}
			at += random.ExpFloat64() / s.offered(at)
		}
		now := epoch + int64(n+1)*int64(time.Second)
		settle(now)
		honest := float64(s.callers-s.bad(float64(n))) / float64(s.callers)
		o.Could[n] = min(s.offered(float64(n)+0.5), s.mu) * honest // no more than the rule admits
		o.Could[n] = min(o.Could[n], s.mu*s.capacity(float64(n)+0.5))
		m := d.multiplier(now)
		o.Second, o.Least, o.Most = append(o.Second, m), min(o.Least, m), max(o.Most, m)
		slices.Sort(second)
		o.P99s = append(o.P99s, float64(percentile(second, 99))/1e6)
		second = second[:0]
	}
	good, could := 0.0, 0.0
	for n := range o.Good {
		good, could = good+o.Good[n], could+o.Could[n]
	}
	o.Goodput = good / could
	slices.Sort(took)
	o.P99 = percentile(took, 99)
	o.CV = variation(o.Second[2*len(o.Second)/3:])
	return o
}

const epoch = int64(1_700_000_000) * int64(time.Second)

// percentile is the nearest rank of times in order; 0 of none.
func percentile(times []time.Duration, p int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return times[(len(times)*p+99)/100-1]
}

// variation is the standard deviation by the mean.
func variation(values []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum, squares = sum+v, squares+v*v
	}
	mean := sum / float64(len(values))
	return math.Sqrt(max(0, squares/float64(len(values))-mean*mean)) / mean
}
