package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/eval/peers"
)

// publish writes the page of the measurement, its picture, and the short table of docs/scaling.md.
// On a dry run it prints both texts instead.
func (p plan) publish(found *findings, now time.Time, stdout, stderr io.Writer) error {
	var picture []byte
	if len(found.Cells) > 0 {
		picture = p.chart(found.Cells).SVG()
	}
	if err := page.Publish("scaling", p.page(found, now), picture, p.dry, stdout, stderr); err != nil {
		return err
	}
	if p.dry {
		_, err := fmt.Fprintf(stdout, "\n%s", p.short(found.Cells))
		return err
	}
	docs, err := page.Docs()
	if err != nil {
		return err
	}
	return page.Between(filepath.Join(filepath.Dir(docs), "scaling.md"), "<!-- begin: make scaling -->\n",
		"<!-- end -->\n", p.short(found.Cells))
}

// page is the part of the page that is measured.
func (p plan) page(found *findings, now time.Time) string {
	var b strings.Builder
	b.WriteString(page.Conditions(now, "make scaling"))
	fmt.Fprintf(&b, "Store: %s. Other limiters: %s %s; %s. Load of the machine when it began: %s.\n\n### Goals\n\n%s",
		found.Store, peers.RateLimitModule, peers.RateLimitVersion, peers.Versions(), found.Load, found.goals())
	if len(found.Cells) > 0 {
		fmt.Fprintf(&b, "\n### What the API receives\n\nA rule of %d per second, burst %[1]d; %.0f times as much "+
			"is sent, for %v in each row.\n\n%s", p.limit, p.over, p.span, cellTable(found.Cells))
	}
	if len(found.Faults) > 0 {
		fmt.Fprintf(&b, "\n### Faults\n\nRules of %d per second, burst %[1]d, at two gateways; %d times as much is "+
			"sent to each.\n\n%s\n%s", faultLimit, faultOver,
			faultTable(found.Faults), latencyTable(found.Faults))
	}
	if len(found.Kills) > 0 {
		fmt.Fprintf(&b, "\n### Killed gateways\n\nRules of %d per second, burst %[1]d; %d times as much is sent to "+
			"each. Gateways are killed as by `kill -9`, and started again a second later.\n\n%s", killLimit, killOver,
			unrestTable(found.Kills))
	}
	if len(found.Troubles) > 0 {
		fmt.Fprintf(&b, "\n### Between gateways that gossip\n\nA rule of %d per second, burst %[1]d, scope `gossip`; "+
			"%d times as much is sent. Packets and connections between the gateways pass through this program. What "+
			"is composed at random is of seed %d.\n\n%s", partedLimit, partedOver, p.seed, unrestTable(found.Troubles))
	}
	if len(found.Decisions) > 0 {
		fmt.Fprintf(&b, "\n### What a decision costs\n\nMedians of %d rounds in turn, with the range; %d ask at "+
			"the same time, about %d keys at random, none of which is ever over its limit.\n\n%s",
			len(found.Decisions[0]), askers, subjects, decisionTable(found.Decisions))
	}
	if len(found.Calls) > 0 {
		fmt.Fprintf(&b, "\n### What the store is asked\n\n%d decisions a second at %d replicas about %d keys, for "+
			"%v in each row. A call is one script, as `INFO commandstats` counts.\n\n%s%s",
			callRate, callReplicas, callKeys, callSpan, callTable(found.Calls), callLeast(found.Calls))
	}
	return b.String()
}

// goals is what was to be reached.
func (found *findings) goals() page.Table {
	t := page.Table{{"goal", "wanted", "measured", "reached"}}
	row := func(goal, wanted, measured string, reached bool) {
		yes := "yes"
		if !reached {
			yes = "**no**"
		}
		t = append(t, []string{goal, wanted, measured, yes})
	}
	all, kept := 0, 0
	count := func(bound int64, within bool) {
		if bound < 0 {
			return
		}
		all++
		if within {
			kept++
		}
	}
	for _, c := range found.Cells {
		count(c.Bound, c.within())
	}
	for _, f := range found.Faults {
		for _, o := range f.Outcomes {
			count(o.Bound, o.within())
		}
	}
	for _, u := range slices.Concat(found.Kills, found.Troubles) {
		count(u.Bound, u.within())
	}
	if all > 0 {
		row("what the API receives of a Headgate rule is within what is published, also amid faults", "all",
			fmt.Sprintf("%d of %d", kept, all), kept == all)
	}
	if len(found.Decisions) > 0 {
		ratios := found.ratios(len(contenders) - 1)
		row("`strict` decisions of `Check` with a second of its process's CPU, relative to the better of "+
			"envoyproxy/ratelimit", "≥ 8", ranged(ratios, "%.1f"), median(ratios) >= 8)
	}
	callGoals(found.Calls, row)
	for _, f := range found.Faults {
		if f.Name == frozenUnderLoad.name {
			row("p99 of requests while the store is frozen for 10 s under load, beyond that of before", "≤ 5 ms",
				fmt.Sprint(micro(f.Amid-f.Quiet)), f.Amid-f.Quiet <= 5*time.Millisecond)
			row("until no gateway waits for the frozen store any more", "≤ 1 s", milli(f.Lost), f.Lost >= 0 &&
				f.Lost <= time.Second)
		}
	}
	return t
}

func cellTable(cells []Cell) page.Table {
	t := page.Table{{"limiter", "gateways", "traffic", "most beyond the limit", "most beyond the promise", "bound",
		"of the limit used", "calls to the store, a second"}}
	for _, c := range cells {
		promised, bound := fmt.Sprint(c.Excess), bound(c.Bound, c.within())
		if c.Bound < 0 {
			promised = "–"
		}
		t = append(t, []string{c.Limiter, fmt.Sprint(c.Replicas), c.Traffic, fmt.Sprint(c.Over), promised, bound,
			fmt.Sprintf("%.2f", c.Used), fmt.Sprintf("%.0f", c.Messages)})
	}
	return t
}

func bound(n int64, within bool) string {
	switch {
	case n < 0:
		return "none"
	case !within:
		return fmt.Sprintf("**%d**", n)
	}
	return fmt.Sprint(n)
}

func faultTable(faults []Fault) page.Table {
	t := page.Table{{"amid", "rule", "most beyond the limit", "bound", "of the limit used meanwhile"}}
	for _, f := range faults {
		for _, o := range f.Outcomes {
			t = append(t, []string{f.Name, o.Rule, fmt.Sprint(o.Excess), bound(o.Bound, o.within()),
				fmt.Sprintf("%.2f", o.Used)})
		}
	}
	return t
}

func unrestTable(all []Unrest) page.Table {
	t := page.Table{{"amid", "rule", "gateways", "most beyond the limit", "most beyond the promise", "bound",
		"of the limit used meanwhile", "afterwards"}}
	for _, u := range all {
		t = append(t, []string{u.What, u.Rule, fmt.Sprint(u.Replicas), fmt.Sprint(u.Over), fmt.Sprint(u.Excess),
			bound(u.Bound, u.within()), fmt.Sprintf("%.2f", u.Used), fmt.Sprintf("%.2f", u.After)})
	}
	return t
}

func latencyTable(faults []Fault) page.Table {
	t := page.Table{{"amid", "p99 before", "p99 meanwhile", "all decide without the store after",
		"all ask it again, after its return"}}
	for _, f := range faults {
		lost, back := "–", "–"
		if f.Loses {
			lost, back = milli(f.Lost), milli(f.Back)
		}
		t = append(t, []string{f.Name, micro(f.Quiet).String(), micro(f.Amid).String(), lost, back})
	}
	return t
}

func decisionTable(found [][]Work) page.Table {
	t := page.Table{{"who decides", "µs of CPU, its process", "µs of CPU, the store", "decisions a second of its CPU",
		"relative to the better of the first two"}}
	f := &findings{Decisions: found}
	for i, c := range contenders {
		own, store, worth := make([]float64, len(found[i])), make([]float64, len(found[i])),
			make([]float64, len(found[i]))
		for j, w := range found[i] {
			own[j] = perDecision(w.Service, w)
			store[j] = perDecision(w.Store, w)
			worth[j] = 1e6 / own[j]
		}
		t = append(t, []string{c.name + ", " + c.what, ranged(own, "%.1f"), ranged(store, "%.1f"),
			ranged(worth, "%.0f"), ranged(f.ratios(i), "%.2f")})
	}
	return t
}

// perDecision is µs.
func perDecision(d time.Duration, w Work) float64 {
	return float64(d) / float64(time.Microsecond) / float64(max(1, w.Decisions))
}

// ratios is by how much a contender decides more with a second of the processors than the better of
// the peers, in each round.
func (found *findings) ratios(of int) []float64 {
	ratios := make([]float64, len(found.Decisions[of]))
	for round, own := range found.Decisions[of] {
		best := 0.0
		for i, c := range contenders {
			if each := perDecision(found.Decisions[i][round].Service, found.Decisions[i][round]); c.peer &&
				(best == 0 || each < best) {
				best = each
			}
		}
		ratios[round] = best / perDecision(own.Service, own)
	}
	return ratios
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// ranged is the median of values, and the least and the most of them.
func ranged(values []float64, format string) string {
	return fmt.Sprintf(format+" ["+format+"–"+format+"]", median(values), slices.Min(values), slices.Max(values))
}
