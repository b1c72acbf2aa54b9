package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

// lateness is how long answers took, and the processor time of each, in microseconds.
type lateness struct{ p50, p99, each, rate float64 }

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
	count := func(on bool) (until int) {
		mu.Lock()
		defer mu.Unlock()
		counts = on
		return len(all)
	}
	pids, err := family(p.at[passing].pid)
	if err != nil {
		return lateness{}, err
	}
	var before, after, lasted time.Duration
	var errBefore, errAfter error
	err = a.during(func() {
		time.Sleep(span / 5)
		count(true)
		before, errBefore = cpu(pids)
		began := time.Now()
		for range patience {
			time.Sleep(span)
			if after, errAfter = cpu(pids); count(true) > 0 && after > before {
				break
			}
		}
		count(false)
		lasted = time.Since(began)
	})
	if err = errors.Join(err, errBefore, errAfter); len(all) == 0 {
		return lateness{}, err
	}
	slices.Sort(all)
	n := float64(len(all))
	each := float64((after - before).Nanoseconds()) / 1000 / n
	return lateness{all[len(all)/2], all[len(all)*99/100], each, n / lasted.Seconds()}, err
}

// reportLateness is a table of how long answers take, of each proxy the medians of all rounds.
func reportLateness(proxies []proxy, late [][]lateness, rate float64) string {
	nginx := slices.IndexFunc(proxies, func(p proxy) bool { return p.name == nginxRow })
	table := page.Table{{fmt.Sprintf("answers, %.0f asked for in a second", rate), "a second", "µs of processor",
		"× nginx", "spread", "answered in µs, half of them", "99 of 100", "× nginx", "spread"}}
	for i, p := range proxies {
		var rate, each, eachOf, p50, p99, p99Of []float64
		for round, took := range late[i] {
			beside := late[nginx][round]
			rate, p50, p99 = append(rate, took.rate), append(p50, took.p50), append(p99, took.p99)
			each, eachOf = append(each, took.each), append(eachOf, took.each/beside.each)
			p99Of = append(p99Of, took.p99/beside.p99)
		}
		spread := func(of []float64) string { return fmt.Sprintf("%.2f–%.2f", slices.Min(of), slices.Max(of)) }
		table = append(table, []string{
			p.name, fmt.Sprintf("%.0f", median(rate)), fmt.Sprintf("%.1f", median(each)), fmt.Sprintf("%.2f",
				median(eachOf)), spread(eachOf), fmt.Sprintf("%.0f", median(p50)), fmt.Sprintf("%.0f", median(p99)),
			fmt.Sprintf("%.2f", median(p99Of)), spread(p99Of),
		})
	}
	return strings.TrimRight(table.String(), "\n") + "\n\n"
}
