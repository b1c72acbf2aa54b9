package main

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"
)

// cellsOf is a small measurement, of two limiters at one and two gateways.
func cellsOf() []Cell {
	return []Cell{
		{Limiter: "`strict`", Ours: true, Replicas: 1, Traffic: "uniform", Over: -5, Messages: 600},
		{Limiter: "`strict`", Ours: true, Replicas: 1, Traffic: "edges", Over: 1, Messages: 500},
		{Limiter: "`strict`", Ours: true, Replicas: 2, Traffic: "uniform", Over: 0, Messages: 610},
		{Limiter: "naive script", Replicas: 2, Traffic: "uniform", Over: 290, Messages: 590},
	}
}

func TestShortTableHasTheWorst(t *testing.T) {
	p := plan{limit: 200, replicas: []int{1, 2}}
	got := p.short(cellsOf())
	for _, want := range []string{"| `strict` | 1 | 0 | 610 |", "| naive script | – | 290 | 590 |"} {
		if !strings.Contains(got, want) {
			t.Errorf("the table is\n%s\nwant the row %s", got, want)
		}
	}
}

func TestChartIsXML(t *testing.T) {
	svg := string(plan{replicas: []int{1, 2}}.chart(cellsOf()).SVG())
	if err := xml.Unmarshal([]byte(svg), new(any)); err != nil {
		t.Errorf("the chart is no XML: %v\n%s", err, svg)
	}
	if !strings.Contains(svg, ">Headgate strict<") || strings.Contains(svg, "NaN") {
		t.Errorf("the chart is\n%s\nwant the limiters by name, and nothing where nothing was measured", svg)
	}
}

// TestRatiosAreTakenRoundByRound compares with the peer that was better in the same round.
func TestRatiosAreTakenRoundByRound(t *testing.T) {
	work := func(micros ...int) (w []Work) {
		for _, m := range micros {
			w = append(w, Work{Decisions: 1000, Service: time.Duration(1000*m) * time.Microsecond})
		}
		return w
	}
	found := findings{Decisions: [][]Work{work(60, 90), work(50, 120), work(40, 50), work(10, 12),
		work(25, 30), work(5, 9)}}
	got := found.ratios(len(contenders) - 1)
	if len(got) != 2 || got[0] != 10 || got[1] != 10 {
		t.Errorf("ratios = %v, want 10 in both rounds", got)
	}
	if text := found.goals().String(); !strings.Contains(text, "| 10.0 [10.0–10.0] | yes |") {
		t.Errorf("the goals are\n%s\nwant the one of decisions reached", text)
	}
}
