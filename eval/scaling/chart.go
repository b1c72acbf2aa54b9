package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/eval/page"
)

// limiters are those that were measured, in the order in which they were.
func limiters(cells []Cell) (names []string) {
	for _, c := range cells {
		if !slices.Contains(names, c.Limiter) {
			names = append(names, c.Limiter)
		}
	}
	return names
}

// worst is the most that a limiter of k gateways let through beyond the limit, whatever the
// traffic; NaN if it was not measured.
func worst(cells []Cell, limiter string, k int) float64 {
	most := math.NaN()
	for _, c := range cells {
		if c.Limiter == limiter && c.Replicas == k && !(float64(c.Over) <= most) {
			most = float64(c.Over)
		}
	}
	return most
}

// calls is how often k gateways asked the store in a second of uniform traffic; NaN if that was not measured.
func calls(cells []Cell, limiter string, k int) float64 {
	for _, c := range cells {
		if c.Limiter == limiter && c.Replicas == k && c.Traffic == traffics[0].name {
			return c.Messages
		}
	}
	return math.NaN()
}

// chart draws both over the number of gateways.
func (p plan) chart(cells []Cell) page.Lines {
	l := page.Lines{Title: "One limit at several gateways"}
	over := page.LinePanel{
		Title: "Tokens received beyond burst and rate, in the worst interval of the worst traffic (logarithmic)"}
	asked := page.LinePanel{Title: "Calls to the store, a second, under uniform traffic (logarithmic)"}
	for _, k := range p.replicas {
		l.Steps = append(l.Steps, fmt.Sprint(k))
	}
	for _, name := range limiters(cells) {
		ours := slices.ContainsFunc(cells, func(c Cell) bool { return c.Limiter == name && c.Ours })
		most, often := page.Line{Label: plain(name), Ours: ours}, page.Line{Label: plain(name), Ours: ours}
		for _, k := range p.replicas {
			most.Values = append(most.Values, worst(cells, name, k))
			often.Values = append(often.Values, calls(cells, name, k))
		}
		over.Lines, asked.Lines = append(over.Lines, most), append(asked.Lines, often)
		if exact[strings.Trim(name, "`")] {
			over.Lines = append(over.Lines, p.bounds(cells, name))
		}
	}
	l.Panels = []page.LinePanel{over, asked}
	return l
}

// bounds is the line of what is published for a limiter whose promise is the limit, and of what the
// way to the API may add.
func (p plan) bounds(cells []Cell, limiter string) page.Line {
	line := page.Line{Label: plain(limiter) + ", bound", Ours: true, Dashed: true}
	for _, k := range p.replicas {
		most := math.NaN()
		for _, c := range cells {
			if c.Limiter == limiter && c.Replicas == k && !(float64(c.Bound) <= most) {
				most = float64(c.Bound)
			}
		}
		line.Values = append(line.Values, most)
	}
	return line
}

// plain is a name without the marks of Markdown.
func plain(name string) string {
	if len(name) > 1 && name[0] == '`' {
		return "Headgate " + name[1:len(name)-1]
	}
	return name
}

// short is the table of docs/scaling.md.
func (p plan) short(cells []Cell) string {
	head := []string{"most received beyond burst and rate, at"}
	for _, k := range p.replicas {
		head = append(head, fmt.Sprintf("k = %d", k))
	}
	busiest := p.replicas[len(p.replicas)-1]
	t := page.Table{append(head, fmt.Sprintf("calls to the store, a second, at k = %d", busiest))}
	for _, name := range limiters(cells) {
		row := []string{name}
		for _, k := range p.replicas {
			row = append(row, whole(worst(cells, name, k)))
		}
		t = append(t, append(row, whole(calls(cells, name, busiest))))
	}
	return fmt.Sprintf("A limit of %d per second, burst %[1]d. Below zero, there was room left at all times.\n\n%s",
		p.limit, t)
}

// whole is a number of a table, if there is one.
func whole(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.0f", v)
}
