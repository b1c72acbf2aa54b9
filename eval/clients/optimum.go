package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// oracle knows all requests beforehand, and serves the earliest whenever there is a token.
//
// With costs of one token, and all requests worth the same, no schedule is better. Let N(t) be
// how many requests have arrived by t. Whatever a schedule does, it has admitted by t at most
// what had arrived by an earlier moment u and what the bucket gives from u to t: at most
// N(u) + capacity + rate*(t-u), for every u. This one reaches the least of these bounds at every
// t: take for u the last moment at which nobody waited; since then it has spent every token as
// soon as there was one. So its k-th admission is no later than the k-th of any schedule, for
// every k. The last admission, and the sum of all waits, which does not depend on who is
// admitted when, are the least there can be. That everybody is served in the order of arrival
// keeps each client's own order, and makes the longest wait the shortest.
//
// With unequal costs it is no longer the best (a small request may go while a large one saves
// up), nor with unequal worth: a token is better kept for a request that is worth more and comes
// soon. Then the optimum is what a solver makes of [problem.program].
func oracle(w workload, l *limiter) result {
	var arrivals []time.Duration
	for i := range w {
		for _, a := range w[i] {
			arrivals = append(arrivals, starts(i)+a)
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
		r.responses = append(r.responses, now-a)
		r.duration = now - arrivals[0]
	}
	return r
}

// problem is requests and a bucket that is to admit them so that the sum of their waits, each
// times its weight, is the least. Time is in slots, and tokens are in whole parts of one.
type problem struct {
	queues   [][]task // each client's, which are admitted in this order; by arrival
	capacity int64    // parts; the bucket is full in slot 0
	refill   int64    // parts that come at the beginning of every other slot
	slots    int      // a request is admitted in one of the slots below
}

type task struct {
	arrival int // the first slot in which it can be admitted
	cost    int64
	weight  int64
}

// problemOf is a workload as a problem, in slots of the time that a token takes to come back.
// Arrivals are rounded up to the next slot, and terms has the cost and weight of a client's
// requests.
//
// A bucket that overflows while somebody waits gains nothing by it, so the optimum ends within a
// bucketful of serving the earliest first.
func problemOf(w workload, capacity int64, gap time.Duration, terms func(client int) (cost, weight int64)) problem {
	p := problem{queues: make([][]task, len(w)), capacity: capacity, refill: 1, slots: math.MaxInt}
	for i := range w {
		cost, weight := terms(i)
		for _, a := range w[i] {
			p.queues[i] = append(p.queues[i], task{int((starts(i) + a + gap - 1) / gap), cost, weight})
		}
	}
	s, _ := p.earliestFirst()
	p.slots = 0
	for _, queue := range s {
		for _, slot := range queue {
			p.slots = max(p.slots, slot+1+int(capacity))
		}
	}
	return p
}

// plan is the slot in which each task is admitted.
type plan [][]int

// earliestFirst admits the earliest request whenever there are tokens for it: what oracle does.
// It is false if one is not admitted within the slots there are.
func (p problem) earliestFirst() (plan, bool) {
	type place struct{ queue, at int }
	var order []place
	s := make(plan, len(p.queues))
	for q, tasks := range p.queues {
		s[q] = make([]int, len(tasks))
		for i := range tasks {
			order = append(order, place{q, i})
		}
	}
	task := func(o place) task { return p.queues[o.queue][o.at] }
	slices.SortStableFunc(order, func(a, b place) int { return cmp.Compare(task(a).arrival, task(b).arrival) })
	slot, tokens := 0, p.capacity
	for _, o := range order {
		t := task(o)
		if t.cost > p.capacity {
			return nil, false
		}
		for slot < t.arrival || tokens < t.cost {
			slot, tokens = slot+1, min(p.capacity, tokens+p.refill)
		}
		if slot >= p.slots {
			return nil, false
		}
		tokens -= t.cost
		s[o.queue][o.at] = slot
	}
	return s, true
}

// waits is the sum that is to be the least, or what a schedule does that is not allowed.
func (p problem) waits(s plan) (sum int64, err error) {
	spent := make([]int64, p.slots)
	for q, tasks := range p.queues {
		for i, t := range tasks {
			slot := s[q][i]
			switch {
			case slot < t.arrival || slot >= p.slots:
				return 0, fmt.Errorf("request %d of client %d is admitted in slot %d, and there from %d to %d", i, q,
					slot, t.arrival, p.slots-1)
			case i > 0 && slot < s[q][i-1]:
				return 0, fmt.Errorf("request %d of client %d overtakes the one before", i, q)
			}
			spent[slot] += t.cost
			sum += t.weight * int64(slot-t.arrival)
		}
	}
	tokens := p.capacity
	for slot, cost := range spent {
		if tokens -= cost; tokens < 0 {
			return 0, fmt.Errorf("%d parts are missing in slot %d", -tokens, slot)
		}
		tokens = min(p.capacity, tokens+p.refill)
	}
	return sum, nil
}

// group is the requests of a client that follow each other and are alike.
type group struct {
	queue, first int
	tasks        []task
}

func (p problem) groups() (all []group) {
	for q, tasks := range p.queues {
		for i, t := range tasks {
			if i > 0 && t.cost == tasks[i-1].cost && t.weight == tasks[i-1].weight {
				last := &all[len(all)-1]
				last.tasks = tasks[last.first : i+1]
				continue
			}
			all = append(all, group{q, i, tasks[i : i+1]})
		}
	}
	return all
}

// arrived is how many of a group's requests there are in a slot.
func (g group) arrived(slot int) int {
	n, _ := slices.BinarySearchFunc(g.tasks, slot, func(t task, slot int) int {
		if t.arrival <= slot {
			return -1
		}
		return 1
	})
	return n
}

var errSlots = errors.New("a request arrives after the last slot")

// program writes the problem as a mixed-integer program in CPLEX's LP format, which solvers
// read. Its optimum and always add up to the least sum of waits.
//
// wG_T is how many requests of group G are admitted by the end of slot T, and yT is what the
// bucket then holds. A request waits in every slot in which it has arrived and is not counted by
// its w: their sum is what there is to minimise, and always is what it would be if nobody were
// ever admitted. zG_T is 1 only if all of group G are admitted by T: then the next group of its
// client may be.
//
// If every request costs one part, tokens that wait and requests that wait are flows in a network:
// whoever is admitted in a slot takes one of each. The linear optimum is whole then, and full runs
// are solved quickly.
func (p problem) program() (text []byte, always int64, err error) {
	var b bytes.Buffer
	groups := p.groups()
	fmt.Fprint(&b, "Minimize\n waits: 0 y0\n")
	for i, g := range groups {
		if g.arrived(p.slots-1) < len(g.tasks) {
			return nil, 0, errSlots
		}
		for t := g.tasks[0].arrival; t < p.slots; t++ {
			always += g.tasks[0].weight * int64(g.arrived(t))
			fmt.Fprintf(&b, " - %d w%d_%d\n", g.tasks[0].weight, i, t)
		}
	}
	fmt.Fprint(&b, "Subject To\n")
	for t := range p.slots {
		spent := new(bytes.Buffer)
		for i, g := range groups {
			if first := g.tasks[0].arrival; t >= first {
				fmt.Fprintf(spent, " + %d w%d_%d", g.tasks[0].cost, i, t)
				if t > first {
					fmt.Fprintf(spent, " - %d w%d_%d", g.tasks[0].cost, i, t-1)
				}
				spent.WriteByte('\n')
			}
		}
		fmt.Fprintf(&b, " full%d: y%d%s <= %d\n", t, t, spent, p.capacity)
		if t > 0 {
			fmt.Fprintf(&b, " refill%d: y%d - y%d%s <= %d\n", t, t, t-1, spent, p.refill)
		}
	}
	var whole bytes.Buffer
	for i, g := range groups {
		for t := g.tasks[0].arrival + 1; t < p.slots; t++ {
			fmt.Fprintf(&b, " on%d_%d: w%d_%d - w%d_%d >= 0\n", i, t, i, t, i, t-1)
		}
		if g.first == 0 {
			continue
		}
		before := len(groups[i-1].tasks)
		for t := g.tasks[0].arrival; t < p.slots; t++ {
			fmt.Fprintf(&b, " after%d_%d: %d z%d_%d - w%d_%d >= 0\n", i, t, len(g.tasks), i-1, t, i, t)
			fmt.Fprintf(&b, " all%d_%d: w%d_%d - %d z%d_%d >= 0\n", i-1, t, i-1, t, before, i-1, t)
			fmt.Fprintf(&whole, " z%d_%d\n", i-1, t)
		}
	}
	fmt.Fprint(&b, "Bounds\n")
	for t := range p.slots {
		fmt.Fprintf(&b, " 0 <= y%d <= %d\n", t, p.capacity)
	}
	for i, g := range groups {
		for t := g.tasks[0].arrival; t < p.slots; t++ {
			least := 0
			if t == p.slots-1 {
				least = len(g.tasks)
			}
			fmt.Fprintf(&b, " %d <= w%d_%d <= %d\n", least, i, t, g.arrived(t))
		}
	}
	if whole.Len() > 0 {
		fmt.Fprintf(&b, "Binary\n%s", &whole)
	}
	fmt.Fprint(&b, "General\n")
	for i, g := range groups {
		for t := g.tasks[0].arrival; t < p.slots; t++ {
			fmt.Fprintf(&b, " w%d_%d\n", i, t)
		}
	}
	fmt.Fprint(&b, "End\n")
	return b.Bytes(), always, nil
}

// plan reads the w of a solution back.
func (p problem) plan(values map[string]float64) (plan, error) {
	s := make(plan, len(p.queues))
	for q, tasks := range p.queues {
		s[q] = make([]int, len(tasks))
	}
	for i, g := range p.groups() {
		admitted := 0
		for t := g.tasks[0].arrival; t < p.slots; t++ {
			v := values[fmt.Sprintf("w%d_%d", i, t)]
			n := int(math.Round(v))
			if math.Abs(v-float64(n)) > 1e-5 || n > len(g.tasks) {
				return nil, fmt.Errorf("w%d_%d is %v, want a whole number up to %d", i, t, v, len(g.tasks))
			}
			for ; admitted < n; admitted++ {
				s[g.queue][g.first+admitted] = t
			}
		}
		if admitted < len(g.tasks) {
			return nil, fmt.Errorf("%d of %d requests of group %d are admitted", admitted, len(g.tasks), i)
		}
	}
	return s, nil
}
