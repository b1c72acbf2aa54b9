package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/headgate-io/headgate/eval/page"
)

// drawn are the contenders of the figure.
var drawn = []string{"UB", "WB", "ATB", "AATB", "AP", "XATB", "HATB"}

// stated is what the paper's text says of its Figure 1, in percent more than UB: how long it takes, and how much is
// refused. It says nothing of other loads, nor of service times.
var stated = map[string]map[int]map[string]struct{ longer, fewer float64 }{
	"5 clients": {
		500: {"WB": {8.6, -48.6}, "ATB": {10, -59}, "AATB": {13.3, -96.9}},
		800: {"WB": {7.9, -26.4}, "ATB": {13.2, -70.3}, "AATB": {19.8, -97.3}},
	},
	"100 clients": {
		500: {"WB": {30.4, -99.4}, "ATB": {24.3, -91.5}, "AATB": {26.4, -77.8}},
		800: {"WB": {10.3, -19.3}, "ATB": {23.1, -90.5}, "AATB": {11.7, -91.7}},
	},
	"stand-in for the log": {800: {"WB": {25.45, -62.70}, "ATB": {21.26, -70.13}, "AATB": {27.62, -93.23}}},
}

// figure is laid out as the paper's Figure 1: for each setting what was refused, how long it
// took and what a request waited after its first refusal, at every load. Circles are what the
// paper says.
func figure(runs int) page.Lines {
	f := page.Lines{
		Title: fmt.Sprintf("One quota of %d and %d a minute, means of %d runs (circles: the paper)", capacity,
			perMinute, runs),
	}
	for _, n := range loads {
		f.Steps = append(f.Steps, fmt.Sprint(n))
	}
	for _, s := range scenarios()[:3] {
		panels := []page.LinePanel{
			{Title: s.name + ": requests refused, by requests made (logarithmic)"},
			{Title: s.name + ": seconds until all are served", Linear: true},
			{Title: s.name + ": seconds from a request's first answer to its success", Linear: true},
		}
		for i, requests := range loads {
			if len(stated[s.name][requests]) == 0 {
				continue
			}
			ub := measure(s, requests, runs, contenderNamed(s, "UB"), environment{})
			for _, name := range drawn {
				if of, is := stated[s.name][requests][name]; is {
					panels[0].Points = append(panels[0].Points,
						page.Point{Label: name, Step: i, Value: ub.refused * (1 + of.fewer/100)})
					panels[1].Points = append(panels[1].Points,
						page.Point{Label: name, Step: i, Value: ub.seconds * (1 + of.longer/100)})
				}
			}
		}
		for _, name := range drawn {
			c := contenderNamed(s, name)
			lines := make([]page.Line, 3)
			for _, n := range loads {
				got := measure(s, n, runs, c, environment{})
				lines[0].Values = append(lines[0].Values, got.refused)
				lines[1].Values = append(lines[1].Values, got.seconds)
				lines[2].Values = append(lines[2].Values, got.service)
			}
			for i := range panels {
				lines[i].Label, lines[i].Ours = name, name == "HATB"
				panels[i].Lines = append(panels[i].Lines, lines[i])
			}
		}
		f.Panels = append(f.Panels, panels...)
	}
	return f
}

// offset is s with workloads that none of the other measurements have.
func offset(s scenario, by uint64) scenario {
	plain := s.workload
	s.workload = func(r *rand.Rand, n int) workload {
		for range by & 0xff {
			r.Uint64()
		}
		return plain(rand.New(rand.NewPCG(r.Uint64(), by)), n)
	}
	return s
}
