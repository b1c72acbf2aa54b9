package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Row is the percentiles of one stage in one run, in nanoseconds.
type Row struct {
	Name          string
	P50, P95, P99 float64
	Samples       int
}

func (r Row) String() string { return fmt.Sprintf("%s P50 %.0f ns, P99 %.0f ns", r.Name, r.P50, r.P99) }

// base is what time is counted from: the difference of two monotonic readings is the cheapest that Go offers.
var base = time.Now()

// timed returns how long each of n calls took, less what timing takes by itself. The calls are numbered.
func timed(n int, call func(i int)) []float64 {
	spent := make([]float64, n)
	for i := range min(n/10, 10_000) {
		call(n + i) // pools, branches and caches as after some time of running
	}
	for i := range spent {
		begin := time.Since(base)
		call(i)
		spent[i] = float64(time.Since(base)-begin) - clock()
	}
	return spent
}

// clock is the median time between two readings of the clock with nothing between them.
var clock = sync.OnceValue(func() float64 {
	spent := make([]float64, 100_000)
	for i := range spent {
		begin := time.Since(base)
		nothing(i)
		spent[i] = float64(time.Since(base) - begin)
	}
	slices.Sort(spent)
	return spent[len(spent)/2]
})

// nothing is a call through a function value, as every stage is.
var nothing = func(int) {}

// row makes percentiles of durations. It sorts them.
func row(name string, spent []float64) Row {
	slices.Sort(spent)
	at := func(share float64) float64 { return max(0, spent[min(len(spent)-1, int(share*float64(len(spent))))]) }
	return Row{Name: name, P50: at(0.50), P95: at(0.95), P99: at(0.99), Samples: len(spent)}
}
