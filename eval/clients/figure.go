package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/headgate-io/headgate/eval/page"
)

// drawn are the contenders of the figure.
var drawn = []string{"UB", "WB", "ATB", "AATB", "AP", "XATB", "HATB"}

// figure is laid out as the paper's Figure 1: for each setting what was refused, how long it
// took and what a request waited after its first refusal, at every load.
func figure(runs int) page.Lines {
	f := page.Lines{Title: fmt.Sprintf("One quota of %d and %d a minute, shared by clients that pace themselves (means of %d runs)", capacity, perMinute, runs)}
	for _, n := range loads {
		f.Steps = append(f.Steps, fmt.Sprint(n))
	}
	for _, s := range scenarios()[:3] {
		panels := []page.LinePanel{
			{Title: s.name + ": requests refused, by requests made (logarithmic)"},
			{Title: s.name + ": seconds until all are served", Linear: true},
			{Title: s.name + ": seconds from a request's first answer to its success", Linear: true},
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
