//go:build long

package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

const smallProblems = 400

// Of full runs, a real solver finds no better plan than serving the earliest first, as long as
// requests are alike. If they are not, it finds one that is.
func TestOptimumOfFullRuns(t *testing.T) {
	gap := newLimiter(capacity, perMinute).gap()
	var problems []problem
	for _, requests := range loads {
		for i, s := range scenarios()[:3] {
			p := problemOf(s.workload(rand.New(rand.NewPCG(2, uint64(requests))), requests), capacity, gap, alike)
			if i == 1 {
				p = p.merged() // 100 queues take a solver minutes
			}
			problems = append(problems, p)
		}
	}
	equal := len(problems)
	for _, requests := range loads {
		w := scenarios()[0].workload(rand.New(rand.NewPCG(3, uint64(requests))), requests)
		problems = append(problems, problemOf(w, capacity, gap,
			func(client int) (cost, weight int64) { return 1 + int64(client%2), 1 + int64(client) }))
	}
	better := 0
	for i, got := range solved(t, problems) {
		first, ok := problems[i].earliestFirst()
		if !ok || !got.feasible {
			t.Fatalf("run %d: nobody can serve it", i)
		}
		waits, err := problems[i].waits(first)
		if err != nil || i < equal && waits != got.waits || waits < got.waits {
			t.Errorf("run %d: the earliest first waits %d slots, %v, the optimum %d", i, waits, err, got.waits)
		}
		if waits > got.waits {
			better++
		}
		t.Logf("run %d: %d queues, %d slots, the earliest first waits %d, the optimum %d", i, len(problems[i].queues),
			problems[i].slots, waits, got.waits)
	}
	if better != len(problems)-equal {
		t.Errorf("%d of %d runs with unequal requests are better than by the earliest first, want all", better,
			len(problems)-equal)
	}
}

// merged is p as if one client had all requests. If they are alike, the optimum is the same: who of
// those that wait is admitted does not change the sum.
func (p problem) merged() problem {
	all := slices.Concat(p.queues...)
	slices.SortStableFunc(all, func(a, b task) int { return cmp.Compare(a.arrival, b.arrival) })
	p.queues = [][]task{all}
	return p
}
