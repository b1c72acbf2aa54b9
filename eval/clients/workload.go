package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// workload is when each client has its requests, from the start of the run, sorted.
type workload [][]time.Duration

const horizon = 300 * time.Second

// starts is when a client begins, in the paper's experiment.
func starts(client int) time.Duration {
	return time.Duration(client) * 500 * time.Millisecond % (10 * time.Second)
}

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

// uniform has every request at any moment of five minutes.
func uniform(random *rand.Rand, clients, total int) workload {
	w := make(workload, clients)
	for i := range total {
		w[i%clients] = append(w[i%clients], time.Duration(random.Float64()*float64(horizon)))
	}
	for i := range w {
		slices.Sort(w[i])
	}
	return w
}

// realShape is the paper's Table VI: how many users its log has at a load, and when the
// last of them begins.
var realShape = map[int]struct {
	users int
	last  time.Duration
}{
	400: {18, 263 * time.Second}, 500: {22, 307 * time.Second}, 600: {23, 339 * time.Second},
	700: {25, 361 * time.Second}, 800: {27, 433 * time.Second},
}

// trace stands in for the paper's log, which is not public: so many users, of whom a few
// have most requests (1/rank^0.85), in bursts of 1 + Exp(12) with gaps of Exp(2 s).
func trace(random *rand.Rand, total int) workload {
	shape := realShape[total]
	weights, sum := make([]float64, shape.users), 0.0
	for i := range weights {
		weights[i] = math.Pow(float64(i+1), -0.85)
		sum += weights[i]
	}
	counts, left := make([]int, shape.users), total-shape.users
	for i := range counts {
		n := int(float64(total-shape.users) * weights[i] / sum)
		counts[i], left = 1+n, left-n
	}
	for i := 0; left > 0; i, left = (i+1)%shape.users, left-1 {
		counts[i]++
	}
	w := make(workload, shape.users)
	for i, n := range counts {
		for n > 0 {
			at := time.Duration(random.Float64() * float64(shape.last))
			for k := min(n, 1+int(random.ExpFloat64()*12)); k > 0; k-- {
				w[i] = append(w[i], min(at, shape.last))
				at += time.Duration(random.ExpFloat64() * float64(2*time.Second))
				n--
			}
		}
		slices.Sort(w[i])
	}
	return w
}

// readWorkload reads what "headgate clients from-log" writes: a line for each client, its
// number, how many requests it has, and their times in seconds, apart by tabs and commas.
func readWorkload(in io.Reader) (workload, error) {
	var w workload
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<26)
	for n := 1; lines.Scan(); n++ {
		parts := strings.Split(lines.Text(), "\t")
		if len(parts) != 3 {
			return nil, fmt.Errorf("line %d has %d parts, want a number, a count and times, with tabs between them",
				n, len(parts))
		}
		var arrivals []time.Duration
		for text := range strings.SplitSeq(parts[2], ",") {
			s, err := strconv.ParseFloat(text, 64)
			if err != nil || !(s >= 0 && s < 1e7) {
				return nil, fmt.Errorf("line %d: time is %q, want seconds", n, text)
			}
			arrivals = append(arrivals, time.Duration(s*float64(time.Second)))
		}
		if count, err := strconv.Atoi(parts[1]); err != nil || count != len(arrivals) {
			return nil, fmt.Errorf("line %d says %q requests and has %d", n, parts[1], len(arrivals))
		}
		slices.Sort(arrivals)
		w = append(w, arrivals)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(w) == 0 {
		return nil, errors.New("no client is in it")
	}
	return w, nil
}
