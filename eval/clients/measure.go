package main

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/headgate-io/headgate/pace"
)

// cell is the mean of several runs.
type cell struct {
	seconds, refused, messages float64
	service, response, p99     float64 // seconds
	first, second              float64 // mean response of the first and the second half of the clients
	unfinished                 int
}

// The limiter of the experiment.
const (
	capacity  = 100
	perMinute = 80
)

// environment is what a measurement changes of the experiment's.
type environment struct {
	capacity, perMinute float64
	chargesRefused      bool
	loss                float64
	fakeRefusals        int64
	second              *contender // of the second half of the clients
	delay, shake        time.Duration
	firstSeed           uint64
}

// measure runs a contender on the same workloads as every other.
func measure(s scenario, requests, runs int, c contender, e environment) cell {
	if e.capacity == 0 {
		e.capacity, e.perMinute = capacity, perMinute
	}
	results := make([]result, runs)
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for run := range runs {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			seed := e.firstSeed + uint64(run)
			w := s.workload(rand.New(rand.NewPCG(seed, uint64(requests))), requests)
			l := newLimiter(e.capacity, e.perMinute).saying(c.says)
			if c.algorithm == nil { // it knows when there is a token, and is never refused
				results[run] = oracle(w, l)
				return
			}
			l.chargesRefused = e.chargesRefused
			with := setting{
				workload:  w,
				limiter:   l,
				algorithm: all(c.algorithm),
				loss:      e.loss,
				delay:     e.delay,
				shake:     e.shake,
			}
			if e.second != nil {
				with.algorithm = halves(len(w), c, *e.second)
			}
			if c.telemetry || e.second != nil && e.second.telemetry {
				with.telemetry = newAggregator(e.perMinute)
				with.telemetry.fakeRefusals = e.fakeRefusals
			}
			results[run] = simulate(with, rand.New(rand.NewPCG(seed, 1)))
		})
	}
	wg.Wait()
	return mean(results)
}

// halves gives one half of the clients one algorithm, and the other another.
func halves(clients int, a, b contender) func(int) pace.Algorithm {
	return func(i int) pace.Algorithm {
		if i < clients/2 {
			return a.algorithm
		}
		return b.algorithm
	}
}

func mean(results []result) (c cell) {
	n := float64(len(results))
	for _, r := range results {
		c.seconds += r.duration.Seconds() / n
		c.refused += float64(r.refused) / n
		c.messages += float64(r.messages) / n
		c.service += r.service.Seconds() / n
		slices.Sort(r.responses)
		sum := time.Duration(0)
		for _, d := range r.responses {
			sum += d
		}
		served := max(1, len(r.responses))
		c.response += (sum / time.Duration(served)).Seconds() / n
		if len(r.responses) > 0 {
			c.p99 += r.responses[len(r.responses)*99/100].Seconds() / n
		}
		half := len(r.byClient) / 2
		for i, d := range r.byClient {
			if i < half {
				c.first += d.Seconds() / float64(half) / n
			} else {
				c.second += d.Seconds() / float64(len(r.byClient)-half) / n
			}
		}
		c.unfinished += r.unfinished
	}
	return c
}

// over is by how many percent a is more than b.
func over(a, b float64) float64 { return (a/b - 1) * 100 }
