package main

import (
	"fmt"

	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/pace"
)

// printSearch does the paper's search for the constants of ATB (its section IV): on
// workloads that the result is not measured on.
func printSearch(runs int) {
	for _, s := range scenarios()[:2] {
		best, score := search(s, runs)
		train, test := offset(s, 0), offset(s, 1<<20)
		table := page.Table{head}
		for _, part := range []struct {
			name string
			scenario
		}{{"searched on", train}, {"tried on", test}} {
			ub := measure(part.scenario, 800, runs, contenderNamed(s, "UB"), environment{})
			table = append(table, row("UB, "+part.name, ub, ub))
			table = append(table, row("ATB as published, "+part.name,
				measure(part.scenario, 800, runs, contenderNamed(s, "ATB"), environment{}), ub))
			table = append(table, row("ATB as found, "+part.name,
				measure(part.scenario, 800, runs, contender{algorithm: best}, environment{}), ub))
		}
		fmt.Printf("\n%s, 800 requests: bucket %.0f, r0 %.0f a minute, growth %.2f, score %.3f\n\n%s",
			s.name, best.Bucket, best.Rate*60, best.Alpha, score, table)
	}
}

// search tries a grid of ATB's constants, and returns those with the least score: the part
// of UB's 429s that is left, and the part of its duration that is added.
func search(s scenario, runs int) (best pace.ATB, least float64) {
	s = offset(s, 0)
	ub := measure(s, 800, runs, contenderNamed(s, "UB"), environment{})
	least = 1e9
	for _, perMinute := range []float64{2, 4, 8, 15, 20, 40, 80} {
		for _, growth := range []float64{1.1, 1.2, 1.4, 2} {
			a := s.paper.ATB(pace.Corrected)
			a.Bucket, a.Rate, a.Alpha, a.Beta = perMinute, perMinute/60, growth, growth
			got := measure(s, 800, runs, contender{algorithm: a}, environment{})
			score := got.refused/ub.refused + max(0, got.seconds/ub.seconds-1)
			if got.unfinished == 0 && score < least {
				best, least = a, score
			}
		}
	}
	return best, least
}
