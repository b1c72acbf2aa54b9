package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/eval/rivals/peer"
)

// ours is the peer that the others are compared with.
const ours = "headgate"

// column is one measure of a Result.
type column struct {
	head string
	of   func(Result) float64
}

var times = []column{
	{"one key, 1 goroutine", func(r Result) float64 { return r.Hot1 }},
	{"one key, 2 goroutines", func(r Result) float64 { return r.Hot2 }},
	{"many keys, 1 goroutine", func(r Result) float64 { return r.Many1 }},
	{"many keys, 2 goroutines", func(r Result) float64 { return r.Many2 }},
}

var firstSeen = column{"first seen", func(r Result) float64 { return r.Insert }}

// page is what stands between the markers.
func (p plan) page(found *findings, now time.Time) string {
	var b strings.Builder
	b.WriteString(page.Conditions(now, "make rivals"))
	fmt.Fprintf(&b, "%d rounds; in each, every limiter in a process of its own, in turn; %d samples of %v for each "+
		"case. Many keys are %d.\n\n",
		p.rounds, p.samples, p.sample, p.keys)
	fmt.Fprintf(&b, "### Time\n\nNanoseconds a decision: median of the rounds [least–most]. Two goroutines: wall "+
		"time over the decisions of both.\n\n%s\n", timeTable(found))
	fmt.Fprintf(&b, "### Ratio\n\nHeadgate's time divided by the limiter's in the same round, median of the "+
		"rounds: 0.50 means that Headgate takes half as long.\n\n%s\n", ratioTable(found))
	fmt.Fprintf(&b, "### Memory\n\nHeap a live key after two collections, everything counted; what one forced "+
		"collection takes with all of them live.\n\n%s\n", memoryTable(found))
	fmt.Fprintf(&b, "### Behind net/http\n\nA server of net/http that answers with two bytes, or with %d of JSON and "+
		"their Content-Type, asked over %d connections; all servers in turn, %d times. The ratio is the median of "+
		"the turns'.\n\n%s\n", len(item), clients, p.rounds*p.samples, httpTable(found.HTTP, found.API))
	fmt.Fprintf(&b, "### Goals\n\n%s\n", goalTable(found))
	fmt.Fprintf(&b, "### Limiters\n\n%s", peerTable())
	return b.String()
}

func timeTable(found *findings) page.Table {
	t := page.Table{{"limiter", "exact", times[0].head, times[1].head, times[2].head, times[3].head, firstSeen.head}}
	for _, which := range peer.All() {
		row := []string{which.Name, exact(which)}
		for _, c := range slices.Concat(times, []column{firstSeen}) {
			values := rounds(found, which.Name, c)
			row = append(row, fmt.Sprintf("%s [%s–%s]", short(median(values)), short(slices.Min(values)),
				short(slices.Max(values))))
		}
		t = append(t, row)
	}
	return t
}

func ratioTable(found *findings) page.Table {
	t := page.Table{{"limiter", times[0].head, times[1].head, times[2].head, times[3].head}}
	for _, which := range peer.All() {
		if which.Name == ours || which.Floor {
			continue
		}
		row := []string{which.Name}
		for _, c := range times {
			row = append(row, fmt.Sprintf("%.2f", median(ratios(rounds(found, ours, c), rounds(found, which.Name, c)))))
		}
		t = append(t, row)
	}
	return t
}

func memoryTable(found *findings) page.Table {
	t := page.Table{{"limiter", "bytes a live key", "allocations a decision", "one collection, ms"}}
	for _, which := range peer.All() {
		of := func(f func(Result) float64) float64 { return median(rounds(found, which.Name, column{"", f})) }
		bytes := fmt.Sprintf("%.1f", of(func(r Result) float64 { return r.Bytes }))
		if share := of(func(r Result) float64 { return r.Occupancy }); share > 0 {
			bytes += fmt.Sprintf(" (%.0f %% of the slots live)", 100*share)
		}
		t = append(t, []string{which.Name, bytes, fmt.Sprintf("%.0f", of(func(r Result) float64 { return r.Allocs })),
			fmt.Sprintf("%.2f", of(func(r Result) float64 { return float64(r.GC) / 1e6 }))})
		if which.Name == ours {
			t = append(t, []string{which.Name + ", traces for a quarter of the slots",
				fmt.Sprintf("%.1f (%.0f %% of the slots live)", found.Sized.Bytes, 100*found.Sized.Occupancy), "", ""})
		}
	}
	return t
}

// goalTable says of each number that the project set itself whether this run reached it.
func goalTable(found *findings) page.Table {
	t := page.Table{{"goal", "at most", "measured", "reached"}}
	add := func(goal string, most, measured float64, format string) {
		reached := "yes"
		if measured > most {
			reached = "**no**"
		}
		t = append(t, []string{goal, fmt.Sprintf(format, most), fmt.Sprintf(format, measured), reached})
	}
	const fastest = ", against the fastest exact rival of the round"
	add(times[0].head+fastest, 0.75, bestRatio(found, times[0]), "%.2f")
	add(times[1].head+fastest, 0.8, bestRatio(found, times[1]), "%.2f")
	add(times[2].head+fastest, 0.42, bestRatio(found, times[2]), "%.2f")
	add("a key first seen"+fastest, 0.5, bestRatio(found, firstSeen), "%.2f")
	add("three rules against one, one key", 2.8,
		median(perRules(found, func(r Rules) float64 { return r.Hot3 / r.Hot })), "%.2f")
	add("three rules against one, many keys", 2.8,
		median(perRules(found, func(r Rules) float64 { return r.Many3 / r.Many })), "%.2f")
	mine := func(f func(Result) float64) float64 { return median(rounds(found, ours, column{"", f})) }
	add("bytes a live key", 56, mine(func(r Result) float64 { return r.Bytes }), "%.1f")
	add("the same with traces for a quarter of the slots", 48, found.Sized.Bytes, "%.1f")
	// The runtime allocates now and then on its own: what is not one in a thousand decisions is not ours.
	add("allocations a decision", 0, math.Round(1000*mine(func(r Result) float64 { return r.Allocs }))/1000, "%.3g")
	add("a server of net/http with both fields, against one without a limiter", 1.17, overNone(found.HTTP, ours),
		"%.2f")
	add("the same, answering with JSON as APIs do", 1.17, overNone(found.API, ours), "%.2f")
	if l := found.Large; l != nil {
		add(fmt.Sprintf("%d slots, %d of them live: GB of memory at most", l.Slots, l.Live), 3.5,
			float64(l.Peak)/1e9, "%.2f")
		add(fmt.Sprintf("the longest pause of ten collections with it, ms (%.3f without it)",
			float64(l.PauseBefore)/1e6), 1, float64(l.Pause)/1e6, "%.3f")
	}
	return t
}

func peerTable() page.Table {
	t := page.Table{{"limiter", "version", "exact", "algorithm and what is kept", "bound on keys"}}
	for _, which := range peer.All() {
		version, bound := "this repository", which.Bound
		if which.Module != "" {
			version = which.Module + " " + page.Version(which.Module)
		}
		if bound == "" && !which.Floor {
			bound = "none"
		}
		t = append(t, []string{which.Name, version, exact(which), which.How, bound})
	}
	return t
}

func exact(p peer.Peer) string {
	switch {
	case p.Floor:
		return ""
	case p.Exact:
		return "yes"
	}
	return "no"
}

// chart shows the medians.
func chart(found *findings, keys int) page.Chart {
	panel := func(title string, log bool, unit string, f func(Result) float64) page.Panel {
		p := page.Panel{Title: title, Log: log}
		for _, which := range peer.All() {
			if values := rounds(found, which.Name, column{"", f}); !which.Floor {
				m := median(values)
				p.Bars = append(p.Bars, page.Bar{
					Label: which.Name, Value: m, Low: slices.Min(values), High: slices.Max(values),
					Text: short(m) + " " + unit, Ours: which.Name == ours,
				})
			}
		}
		return p
	}
	return page.Chart{Title: "Rate limiters in one Go process: less is better", Panels: []page.Panel{
		panel("One key, one goroutine: nanoseconds a decision", false, "ns", times[0].of),
		panel(fmt.Sprintf("%d keys, one goroutine: nanoseconds a decision", keys), false, "ns", times[2].of),
		panel("Bytes of memory a live key", false, "B", func(r Result) float64 { return r.Bytes }),
		panel("One garbage collection with all of them live: milliseconds (logarithmic)", true, "ms",
			func(r Result) float64 { return float64(r.GC) / 1e6 }),
	}}
}

func rounds(found *findings, name string, c column) []float64 {
	values := make([]float64, 0, len(found.Peers[name]))
	for _, r := range found.Peers[name] {
		values = append(values, c.of(r))
	}
	return values
}

func perRules(found *findings, f func(Rules) float64) []float64 {
	values := make([]float64, 0, len(found.Rules))
	for _, r := range found.Rules {
		values = append(values, f(r))
	}
	return values
}

// bestRatio compares Headgate with whichever exact rival was fastest in each round.
func bestRatio(found *findings, c column) float64 {
	mine := rounds(found, ours, c)
	best := make([]float64, len(mine))
	for _, which := range peer.All() {
		if !which.Exact || which.Name == ours {
			continue
		}
		for i, v := range rounds(found, which.Name, c) {
			if best[i] == 0 || v < best[i] {
				best[i] = v
			}
		}
	}
	return median(ratios(mine, best))
}

func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// short writes a number with three digits or so.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
