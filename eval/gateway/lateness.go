package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

// lateness is how long answers took, in microseconds.
type lateness struct{ p50, p99, rate float64 }

// lateness asks so many times a second, or as often as p answers if that is less: each client for its next answer when
// it has the last, and has paused for a while that is never the same.
func (p *proxy) lateness(rate float64, span time.Duration) (lateness, error) {
	a := p.asks(loads[0], nil)
	between := float64(connections) / rate * float64(time.Second) // of one client
	a.pause = func() { time.Sleep(time.Duration(between * (0.5 + rand.Float64()))) }
	var mu sync.Mutex
	var all []float64
	counts := false
	a.took = func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if counts {
			all = append(all, float64(d.Nanoseconds())/1000)
		}
	}
	count := func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		counts = on
	}
	err := a.during(func() {
		time.Sleep(span / 5)
		count(true)
		time.Sleep(span)
		count(false)
	})
	if len(all) == 0 {
		return lateness{}, err
	}
	slices.Sort(all)
	return lateness{all[len(all)/2], all[len(all)*99/100], float64(len(all)) / span.Seconds()}, err
}

// reportLateness is a table of how long answers take, of each proxy the medians of all rounds.
func reportLateness(proxies []proxy, late [][]lateness, rate float64) string {
	nginx := slices.IndexFunc(proxies, func(p proxy) bool { return p.name == nginxRow })
	table := page.Table{{fmt.Sprintf("answers, %.0f asked for in a second", rate), "a second", "µs, half of them",
		"µs, 99 of 100", "× nginx", "spread"}}
	for i, p := range proxies {
		var each [4][]float64
		for round, took := range late[i] {
			for at, value := range []float64{took.rate, took.p50, took.p99, took.p99 / late[nginx][round].p99} {
				each[at] = append(each[at], value)
			}
		}
		table = append(table, []string{
			p.name, fmt.Sprintf("%.0f", median(each[0])), fmt.Sprintf("%.0f", median(each[1])),
			fmt.Sprintf("%.0f", median(each[2])), fmt.Sprintf("%.2f", median(each[3])),
			fmt.Sprintf("%.2f–%.2f", slices.Min(each[3]), slices.Max(each[3])),
		})
	}
	return strings.TrimRight(table.String(), "\n") + "\n\n"
}
