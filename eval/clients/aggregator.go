package main

import (
	"time"

	"github.com/headgate-io/headgate/pace"
)

// aggregator is what clients of a quota report to. It counts as the paper's does: attempts
// and refusals of the last 30 s by steps of 2 s, clients of the last 60 s by steps of 10 s,
// and the step that has not ended does not count.
type aggregator struct {
	perSecond float64
	reports   []received
	since     int // reports before are older than anything that counts
	waiting   map[int]received
	refusal   time.Duration // the last one, below 0 for none

	fakeRefusals int64 // what a lying one adds
}

type received struct {
	at     time.Duration
	client int
	pace.Report
}

func newAggregator(perMinute float64) *aggregator {
	return &aggregator{perSecond: perMinute / 60, waiting: make(map[int]received), refusal: -1}
}

const (
	countWindow  = 30 * time.Second
	countStep    = 2 * time.Second
	activeWindow = 60 * time.Second
	activeStep   = 10 * time.Second
)

// receive takes in a report and answers it.
func (g *aggregator) receive(now time.Duration, client int, r pace.Report) pace.Aggregate {
	got := received{now, client, r}
	g.reports = append(g.reports, got)
	g.waiting[client] = got
	if r.Congested {
		g.refusal = now
	}
	a := pace.Aggregate{PerSecond: g.perSecond, LastRefusal: -1, Refusals: g.fakeRefusals, Active: 1}
	if g.refusal >= 0 {
		a.LastRefusal = now - g.refusal
	}
	if g.fakeRefusals > 0 {
		a.LastRefusal = 0
	}
	for g.since < len(g.reports) && g.reports[g.since].at < now-activeWindow-activeStep {
		g.since++
	}
	active, refused := map[int]bool{}, map[int]bool{}
	counts := func(at, window, step time.Duration) bool {
		return at < now.Truncate(step) && at >= now.Truncate(step)-window
	}
	for _, r := range g.reports[g.since:] {
		if counts(r.at, activeWindow, activeStep) {
			active[r.client] = true
		}
		if !counts(r.at, countWindow, countStep) {
			continue
		}
		a.Sent += r.Sent
		if r.Congested {
			a.Refusals++
			refused[r.client] = true
		}
	}
	a.Active, a.Refused = max(1, len(active)), len(refused)
	for c, r := range g.waiting {
		if now-r.at > 3*countWindow {
			delete(g.waiting, c)
		} else {
			a.Waiting += int64(r.Waiting)
		}
	}
	return a
}
