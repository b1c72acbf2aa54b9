package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

func (o outcome) String() string {
	return fmt.Sprintf("target %6.3f  pinned %6.3f  victims denied %5.2f %%  newcomers %5.2f %%", o.target, o.pinned,
		100*o.victims.share(), 100*o.newcomers.share())
}

// page is what stands between the markers.
func (p plan) page(results [][]outcome, several [][]mixedOutcome, growths []growth, now time.Time) string {
	var b strings.Builder
	b.WriteString(page.Conditions(now, "make churn"))
	fmt.Fprintf(&b, "Tables of %d slots; limit %d a second, burst %d; every attack lasts %v of simulated time.\n\n",
		p.slots, perSecond, burst, p.span)
	fmt.Fprintf(&b, "### Attacks\n\n%s\n", attackTable(results))
	fmt.Fprintf(&b, "### Newcomers under several limits\n\n%% of %d newcomers under each limit that were denied at "+
		"first (and what the table "+
		"estimated meanwhile) → denied again after exactly the Retry-After that they were told.\n\n%s\n",
		p.newcomers, mixedTable(several))
	fmt.Fprintf(&b, "### Goals\n\n%s\n", goalTable(results, several))
	fmt.Fprintf(&b,
		"### Limiters without a bound\n\nMemory in use after so many keys, each used once, on the real clock.\n\n"+
			"%s", growthTable(growths, p.keys))
	return b.String()
}

func attackTable(results [][]outcome) page.Table {
	t := page.Table{{"attack", "table", "targets: admitted / own limit", "drained keys: admitted / own limit",
		"victims denied", "newcomers denied", "evicted in debt, a second"}}
	for i, a := range attacks {
		for j, c := range contenders {
			o := results[i][j]
			drained, lossy := "–", "not told"
			if a.pinned > 0 {
				drained = fmt.Sprintf("%.3f", o.pinned)
			}
			if o.lossy >= 0 {
				lossy = fmt.Sprintf("%.1f", o.lossy)
			}
			t = append(t, []string{a.name, c.name, fmt.Sprintf("%.3f", o.target), drained,
				fmt.Sprintf("%.2f %%", 100*o.victims.share()), fmt.Sprintf("%.2f %%", 100*o.newcomers.share()), lossy})
		}
	}
	return t
}

func goalTable(results [][]outcome, several [][]mixedOutcome) page.Table {
	worst, worstDenied := 0.0, 0.0
	for i, a := range attacks {
		o := results[i][0]
		worst = max(worst, o.target, o.pinned)
		if a.pinned <= 1.2 {
			worstDenied = max(worstDenied, o.falseDenials())
		}
	}
	// of newcomers under limits that nobody crowds; under those that somebody does
	var first, again, first20, again20, own float64
	var apart float64 // what the table said of them, and what they met
	for i, c := range crowds {
		for j, over := range overs {
			o := several[i][j]
			worst = max(worst, o.admitted)
			for limit := range mixed {
				f, a := o.denied(limit)
				apart = max(apart, math.Abs(f-o.estimated[limit]))
				switch {
				case crowded(limit) || c.uniform:
					if over <= 2.5 {
						own = max(own, f)
					}
				case over > 6:
					first20, again20 = max(first20, f), max(again20, a)
				default:
					first, again = max(first, f), max(again, a)
				}
			}
		}
	}
	row := func(goal, format string, most, measured float64) []string {
		reached := "yes"
		if measured > most {
			reached = "**no**"
		}
		return []string{goal, fmt.Sprintf(format, most), fmt.Sprintf(format, measured), reached}
	}
	return page.Table{
		{"goal, for Headgate", "at most", "measured", "reached"},
		row("tokens admitted of any key under any attack, relative to its limit", "%.3f", 1, worst),
		row("% of takes of legitimate keys denied, up to 1.2 times the slots kept drained", "%.2f", 1, 100*worstDenied),
		row("% of newcomers under quicker or slower limits denied at first, up to 6 drained buckets a slot", "%.2f",
			1, 100*first),
		row("the same, denied again after they obeyed Retry-After once", "%.2f", 0, 100*again),
		row("% of them denied at first, at 20 drained buckets a slot", "%.2f", 2, 100*first20),
		row("the same, denied again", "%.2f", 2, 100*again20),
		row("% of newcomers under crowded limits denied at first, up to 2.5 drained buckets a slot",
			"%.2f", 1, 100*own),
		row("points between the false denials that the table tells of a limit and those that its newcomers met", "%.2f",
			2, 100*apart),
	}
}

// falseDenials is the share of all takes of legitimate keys that were denied. None of them asked
// for more than its limit.
func (o outcome) falseDenials() float64 {
	return tally{o.victims.takes + o.newcomers.takes, o.victims.denied + o.newcomers.denied}.share()
}

func growthTable(growths []growth, keys int) page.Table {
	head := []string{"limiter"}
	for _, n := range []int{keys / 4, keys / 2, keys} {
		head = append(head, fmt.Sprintf("%d keys", n))
	}
	t := page.Table{append(head, "bound")}
	for _, g := range growths {
		row := []string{g.name}
		for _, bytes := range g.bytes {
			row = append(row, fmt.Sprintf("%.0f MB", float64(bytes)/1e6))
		}
		if g.bound == "" {
			g.bound = "none"
		}
		t = append(t, append(row, g.bound))
	}
	return t
}

// chart shows the tokens of the luckiest target under the attacks that make tables forget.
func chart(results [][]outcome) page.Chart {
	c := page.Chart{
		Title: "Tokens admitted of one key, relative to its limit, while an attacker floods the table (logarithmic)"}
	highest := 1.0
	for _, row := range results {
		for _, o := range row {
			highest = max(highest, o.target, o.pinned)
		}
	}
	for i, a := range attacks {
		if a.junk == 0 {
			continue
		}
		p := page.Panel{Title: a.name, Log: true, Mark: 1, From: 0.5, To: highest}
		for j, contender := range contenders {
			got := max(results[i][j].target, results[i][j].pinned)
			p.Bars = append(p.Bars, page.Bar{Label: contender.name, Value: got, Text: fmt.Sprintf("%.2f ×", got),
				Ours: j == 0})
		}
		c.Panels = append(c.Panels, p)
	}
	return c
}
