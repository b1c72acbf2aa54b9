package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

// solution is what a solver makes of a problem.
type solution struct {
	feasible bool
	waits    int64
	plan     plan // nil without one
}

// solved has HiGHS solve problems, and sees that its plans are allowed and come to what it says.
func solved(t *testing.T, problems []problem) []solution {
	t.Helper()
	dir := t.TempDir()
	var files strings.Builder
	always := make([]int64, len(problems))
	for i, p := range problems {
		text, sum, err := p.program()
		if err != nil {
			t.Fatal(err)
		}
		always[i] = sum
		file := filepath.Join(dir, fmt.Sprint(i, ".lp"))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&files, file)
	}
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(root, "bin/garden/venv/bin/python"), "solve.py")
	var faults strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(files.String()), &faults
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &faults)
	}
	var all []solution
	for text := range bytes.Lines(out) {
		var got struct {
			Status string
			Least  float64
			Values map[string]float64
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		i := len(all)
		var s solution
		switch got.Status {
		case "Optimal":
			s.feasible, s.waits = true, always[i]+int64(math.Round(got.Least))
			if s.plan, err = problems[i].plan(got.Values); err != nil {
				t.Fatalf("problem %d: %v", i, err)
			}
			if sum, err := problems[i].waits(s.plan); err != nil || sum != s.waits {
				t.Fatalf("problem %d: the solver says %d, and its plan comes to %d, %v\n%+v", i, s.waits, sum,
					err, problems[i])
			}
		case "Infeasible":
		default:
			t.Fatalf("problem %d: the solver says %q", i, got.Status)
		}
		all = append(all, s)
	}
	if len(all) != len(problems) {
		t.Fatalf("%d problems were solved, want %d", len(all), len(problems))
	}
	return all
}

// exhaustive is the slow twin of the program: it tries everything.
type exhaustive struct {
	problem
	known map[string]int64
}

// impossible is what waits come to if somebody cannot be admitted.
const impossible = math.MaxInt64 / 2

func (s *exhaustive) least(slot int, tokens int64, next []int) int64 {
	left := 0
	for q, tasks := range s.queues {
		left += len(tasks) - next[q]
	}
	switch {
	case left == 0:
		return 0
	case slot == s.slots:
		return impossible
	}
	key := fmt.Sprint(slot, tokens, next)
	if sum, ok := s.known[key]; ok {
		return sum
	}
	best := s.least(slot+1, min(s.capacity, tokens+s.refill), next)
	for q, tasks := range s.queues {
		if next[q] == len(tasks) {
			continue
		}
		if t := tasks[next[q]]; t.arrival <= slot && t.cost <= tokens {
			then := slices.Clone(next)
			then[q]++
			best = min(best, t.weight*int64(slot-t.arrival)+s.least(slot, tokens-t.cost, then))
		}
	}
	best = min(best, impossible)
	s.known[key] = best
	return best
}

// small makes up a problem: of one to three clients with up to five requests each, alike or not.
func small(random *rand.Rand, equal bool) problem {
	part := 1 + random.Int64N(4)
	p := problem{
		capacity: part*(1+random.Int64N(2)) + random.Int64N(part), refill: 1 + random.Int64N(part),
		slots: 6 + random.IntN(8),
	}
	for range 1 + random.IntN(3) {
		var queue []task
		for range 1 + random.IntN(3) {
			one := task{random.IntN(5), part, 1}
			if !equal {
				one.cost, one.weight = part*(1+random.Int64N(2)), 1+random.Int64N(9)
			}
			queue = append(queue, one)
		}
		slices.SortStableFunc(queue, func(a, b task) int { return a.arrival - b.arrival })
		p.queues = append(p.queues, queue)
	}
	return p
}

// sorted is when requests are admitted, whoever's they are.
func (s plan) sorted() (slots []int) {
	for _, queue := range s {
		slots = append(slots, queue...)
	}
	slices.Sort(slots)
	return slots
}

// alike has all requests cost the same and be worth the same.
func alike(int) (cost, weight int64) { return 1, 1 }

// Of small problems a real solver finds what trying everything finds: with equal costs and
// weights that is what serving the earliest first comes to, whose k-th admission is never later
// than that of the solver's plan; with unequal ones it is never more, and often less.
func TestOptimum(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 6))
	problems := make([]problem, smallProblems)
	for i := range problems {
		problems[i] = small(random, i%2 == 0)
	}
	possible, better := 0, 0
	for i, got := range solved(t, problems) {
		p := problems[i]
		s := exhaustive{p, map[string]int64{}}
		least := s.least(0, p.capacity, make([]int, len(p.queues)))
		if got.feasible != (least < impossible) || got.feasible && got.waits != least {
			t.Errorf("the solver says %+v, trying everything %d\n%+v", got, least, p)
			continue
		}
		first, ok := p.earliestFirst()
		if i%2 == 0 && ok != got.feasible || ok && !got.feasible {
			t.Errorf("earliest first is possible: %v, want %v\n%+v", ok, got.feasible, p)
		}
		if !ok || !got.feasible {
			continue
		}
		possible++
		waits, err := p.waits(first)
		if err != nil || waits < least || i%2 == 0 && waits != least {
			t.Errorf("earliest first comes to %d, %v, the optimum to %d\n%+v", waits, err, least, p)
		}
		if waits > least {
			better++
		}
		if i%2 == 0 {
			other := got.plan.sorted()
			for k, slot := range first.sorted() {
				if slot > other[k] {
					t.Errorf("admission %d is in slot %d, and %d in another plan\n%+v", k, slot, other[k], p)
				}
			}
		}
	}
	if possible < len(problems)/2 || possible == len(problems) || better < len(problems)/40 {
		t.Errorf("%d of %d problems are possible, %d of them better than by the earliest first: want some of each",
			possible, len(problems), better)
	}
}

// A token is better kept for who comes soon and is worth more.
func TestATokenIsKeptForAHeavierRequest(t *testing.T) {
	p := problem{queues: [][]task{{{0, 10, 1}}, {{1, 10, 2}}}, capacity: 10, refill: 1, slots: 20}
	first, _ := p.earliestFirst()
	if waits, err := p.waits(first); err != nil || waits != 2*9 {
		t.Errorf("the earliest first comes to %d, %v, want 18: the heavier one waits 9 slots", waits, err)
	}
	s := exhaustive{p, map[string]int64{}}
	if got := s.least(0, 10, []int{0, 0}); got != 11 {
		t.Errorf("the optimum is %d, want 11: the lighter one waits until slot 11", got)
	}
}

// What every run is measured by is the optimum of the same requests in slots.
func TestOracleIsTheEarliestFirst(t *testing.T) {
	gap := newLimiter(capacity, perMinute).gap()
	for _, s := range scenarios() {
		w := s.workload(rand.New(rand.NewPCG(1, 800)), 800)
		p := problemOf(w, capacity, gap, alike)
		inSlots := make(workload, len(w))
		for q, tasks := range p.queues {
			for _, task := range tasks {
				inSlots[q] = append(inSlots[q], time.Duration(task.arrival)*gap-starts(q))
			}
		}
		first, ok := p.earliestFirst()
		want, err := p.waits(first)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		var got float64
		for _, d := range oracle(inSlots, newLimiter(capacity, perMinute)).responses {
			got += d.Seconds() / gap.Seconds()
		}
		if math.Abs(got-float64(want)) > 0.01 {
			t.Errorf("%s: requests wait %.3f slots at the oracle, want %d", s.name, got, want)
		}
	}
}
