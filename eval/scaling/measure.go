package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/eval/peers"
	"github.com/headgate-io/headgate/rate"
)

// Cell is what was measured of one limiter, one number of gateways, and one traffic.
type Cell struct {
	Limiter  string // a scope of Headgate's, or another limiter
	Ours     bool
	Replicas int
	Traffic  string

	Over     int64   // tokens received beyond the burst and the rate of the limit, in the worst interval
	Excess   int64   // the same beyond the burst and the rate that are promised; Over where nothing is
	Bound    int64   // of Excess, as published; and what the way to the API may add. Below zero if nothing is published
	Used     float64 // of what the limit admits
	Messages float64 // to the store, a second
	Sent     int64
	Longest  time.Duration // that the way of an admitted request took
}

// within reports whether what was promised was kept.
func (c Cell) within() bool { return c.Bound < 0 || c.Excess <= c.Bound }

func (c Cell) String() string {
	return fmt.Sprintf("%-20s %d gateways, %-8s over the limit %4d, excess %4d of %4d, used %.3f, %.0f calls/s, %d "+
		"sent, longest way %v", c.Limiter, c.Replicas,
		c.Traffic, c.Over, c.Excess, c.Bound, c.Used, c.Messages, c.Sent, c.Longest.Round(time.Millisecond))
}

// rule is the limit that is measured.
func (p plan) rule() rate.Limit {
	return rate.Limit{Tokens: p.limit, Per: time.Second, Burst: p.limit}
}

// field is where cells are measured: one store, and one API.
type field struct {
	plan
	store    *redis
	api      *api
	client   *http.Client
	global   *peers.Server // envoyproxy/ratelimit for Envoys; peers starts it
	progress func(format string, a ...any)
}

// promised is what is published for a limiter: a limit of burst and rate, and tokens beyond it.
type promised struct {
	shape rate.Shape
	extra int64
}

// cell sends a load over ways and looks at what reached the API on a path. Nil is the promise of a
// limiter for which nothing is published.
func (f *field) cell(limiter string, ways []way, spread traffic, path string, p *promised) (cell Cell, err error) {
	shape, err := rate.Compile(f.rule())
	if err != nil {
		return cell, err
	}
	f.api.take(path)
	before, err := f.store.calls()
	if err != nil {
		return cell, err
	}
	began := time.Now()
	total := load(f.span, f.over*float64(f.limit), ways, spread)
	took := time.Since(began)
	after, err := f.store.calls()
	if err != nil {
		return cell, err
	}
	if err := total.err(); err != nil {
		return cell, err
	}
	came := f.api.take(path)
	cell = Cell{
		Limiter: limiter, Replicas: len(ways), Traffic: spread.name, Over: excess(came, shape), Bound: -1,
		Used:     float64(len(came)) / (float64(f.limit) * (1 + took.Seconds())),
		Messages: float64(after-before) / took.Seconds(), Sent: total.count, Longest: total.longest,
	}
	cell.Excess = cell.Over
	if p != nil {
		cell.Ours, cell.Excess, cell.Bound = true, excess(came, p.shape), p.extra+late(p.shape, total.longest)
	}
	f.progress("%v", cell)
	return cell, nil
}

// scopes measures every scope of Headgate's with k gateways.
func (f *field) scopes(k int) (cells []Cell, err error) {
	var rules [][2]string
	for _, scope := range f.plan.scopes {
		rules = append(rules, [2]string{"/v1/" + scope, "scope: " + scope})
	}
	gateways, err := startFleet(k, f.api.URL, f.store.address, "", f.limit, rules, nil)
	if err != nil {
		return nil, err
	}
	defer gateways.stop()
	for _, scope := range f.plan.scopes {
		var p promised
		if p.shape, p.extra, err = promise(f.rule(), scope, k); err != nil {
			return nil, err
		}
		for _, spread := range f.traffics {
			if k == 1 && spread.name == "skewed" || spread.edges && !exact[scope] {
				continue // one gateway gets all of it anyway; and what gateways count alone knows of no other's seconds
			}
			f.rest(scope, k)
			cell, err := f.cell("`"+scope+"`", gateways.ways(f.client, "/v1/"+scope), spread, "/v1/"+scope, &p)
			if err != nil {
				return nil, fmt.Errorf("%s with %d gateways, %s: %w", scope, k, spread.name, err)
			}
			cells = append(cells, cell)
		}
	}
	return cells, nil
}

// rest waits until all buckets of the limit are full again. Those of scope sync may owe two bursts,
// those of scope gossip one for each gateway; "" is for no scope among them.
func (f *field) rest(scope string, replicas int) {
	wait := time.Second + 200*time.Millisecond
	switch scope {
	case "sync":
		wait += time.Second
	case "gossip":
		wait += time.Duration(replicas) * time.Second
	}
	time.Sleep(wait)
}
