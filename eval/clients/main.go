// Command clients runs the algorithms of package pace against one shared quota, in
// virtual time, and prints what each costs: the experiment of Farkiani, Liu and
// Crowley (IEEE CCNC 2026), with an optimum beside it.
package main

import (
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/pace"
)

// scenario is one of the paper's synthetic settings.
type scenario struct {
	name    string
	clients int
	perDeal float64
	gap     time.Duration
	paper   pace.Paper
}

func scenarios() []scenario {
	papers := pace.Papers()
	return []scenario{
		{"5 clients", 5, 100, 300 * time.Millisecond, papers[1]},
		{"100 clients", 100, 5, 3 * time.Second, papers[2]},
	}
}

// contender is an algorithm by its name in the paper.
type contender struct {
	name      string
	algorithm pace.Algorithm
}

func contenders(s scenario, profile pace.Profile) []contender {
	return []contender{
		{"UB", pace.UB{}}, {"WB", s.paper.WB(profile)}, {"ATB", s.paper.ATB(profile)}, {"AP", pace.AP{}},
	}
}

// cell is the mean of several runs.
type cell struct {
	duration, response time.Duration
	refused            float64
}

// The limiter of the experiment.
const (
	capacity  = 100
	perMinute = 80
)

// measure runs an algorithm on the same workloads for every algorithm, and the
// oracle where it is nil.
func measure(s scenario, requests, runs int, algorithm pace.Algorithm) cell {
	var c cell
	for seed := range uint64(runs) {
		w := bursty(rand.New(rand.NewPCG(seed, uint64(requests))), s.clients, requests, s.perDeal, s.gap)
		l := newLimiter(capacity, perMinute)
		var r result
		if algorithm == nil {
			r = oracle(w, l)
		} else {
			r = simulate(w, l, algorithm, rand.New(rand.NewPCG(seed, 1)))
		}
		c.duration += r.duration
		c.response += r.response
		c.refused += float64(r.refused)
	}
	c.duration /= time.Duration(runs)
	c.response /= time.Duration(runs)
	c.refused /= float64(runs)
	return c
}

// over is by how many percent a is more than b.
func over[T time.Duration | float64](a, b T) float64 { return (float64(a)/float64(b) - 1) * 100 }

func main() {
	runs := flag.Int("runs", 30, "runs of each cell, each with another workload")
	flag.Parse()
	if *runs < 1 {
		log.Fatalf("-runs is %d, want 1 or more", *runs)
	}
	for _, s := range scenarios() {
		fmt.Printf("\n%s, a quota of %d and %d a minute, %d runs\n\n", s.name, capacity, perMinute, *runs)
		fmt.Printf("%8s %-8s %10s %8s %8s %8s %10s\n", "requests", "", "duration", "vs UB", "429s", "vs UB", "response")
		for _, requests := range []int{400, 500, 600, 700, 800} {
			ub := measure(s, requests, *runs, pace.UB{})
			for _, c := range append(contenders(s, pace.Corrected), contender{"oracle", nil}) {
				got := measure(s, requests, *runs, c.algorithm)
				fewer := "-"
				if ub.refused >= 1 {
					fewer = fmt.Sprintf("%+.1f%%", over(got.refused, ub.refused))
				}
				fmt.Printf("%8d %-8s %9.0fs %+7.1f%% %8.0f %8s %9.1fs\n", requests, c.name,
					got.duration.Seconds(), over(got.duration, ub.duration), got.refused, fewer, got.response.Seconds())
			}
		}
	}
}
