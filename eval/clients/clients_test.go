package main

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/headgate-io/headgate/pace"
)

// The paper's percentages are ratios of means over runs of the same workloads. The
// bands are three standard deviations of 30-run batches around what its description
// gives, and hold the paper's own figures.
func TestThePaperReproduces(t *testing.T) {
	const runs = 30
	type band struct{ middle, width float64 }
	in := func(t *testing.T, what string, got float64, b band) {
		t.Helper()
		if math.Abs(got-b.middle) > b.width {
			t.Errorf("%s is %+.1f, want %+.1f ± %.1f", what, got, b.middle, b.width)
		}
	}
	for _, c := range []struct {
		scenario, requests   int
		seconds, errors      band // of UB
		wbLonger, wbFewer    band // percent against UB
		atbLonger, atbFewer  band
		pauseLonger, pauseBy band
	}{
		{0, 500, band{323, 20}, band{260, 45}, band{12, 8}, band{-47, 18}, band{11, 6}, band{-65, 8}, band{3, 4}, band{-92, 3}},
		{0, 800, band{535, 15}, band{760, 70}, band{8, 5}, band{-26, 9}, band{14, 9}, band{-75.5, 3}, band{1, 3}, band{-89, 3}},
		{1, 500, band{311, 6}, band{82, 60}, band{23, 6}, band{-88, 14}, band{16.5, 7}, band{-87, 5}, band{5, 4}, band{-88, 6}},
		{1, 800, band{534, 5}, band{2070, 90}, band{16.5, 4}, band{-23, 5}, band{22.7, 4}, band{-90.5, 1}, band{5, 3}, band{-83, 3}},
	} {
		s := scenarios()[c.scenario]
		t.Run(fmt.Sprint(s.name, ", ", c.requests), func(t *testing.T) {
			t.Parallel()
			ub := measure(s, c.requests, runs, pace.UB{})
			wb := measure(s, c.requests, runs, s.paper.WB(pace.Corrected))
			atb := measure(s, c.requests, runs, s.paper.ATB(pace.Corrected))
			pause := measure(s, c.requests, runs, pace.AP{})
			best := measure(s, c.requests, runs, nil)
			in(t, "UB in seconds", ub.duration.Seconds(), c.seconds)
			in(t, "429s of UB", ub.refused, c.errors)
			in(t, "duration of WB", over(wb.duration, ub.duration), c.wbLonger)
			in(t, "429s of WB", over(wb.refused, ub.refused), c.wbFewer)
			in(t, "duration of ATB", over(atb.duration, ub.duration), c.atbLonger)
			in(t, "429s of ATB", over(atb.refused, ub.refused), c.atbFewer)
			in(t, "duration of AP", over(pause.duration, ub.duration), c.pauseLonger)
			in(t, "429s of AP", over(pause.refused, ub.refused), c.pauseBy)
			for name, d := range map[string]time.Duration{"UB": ub.duration, "WB": wb.duration, "ATB": atb.duration, "AP": pause.duration} {
				if d < best.duration {
					t.Errorf("%s ends after %v, before the optimum of %v", name, d, best.duration)
				}
			}
			if c.requests == 800 && pause.duration >= atb.duration {
				t.Errorf("AP takes %v, want less than the %v of ATB", pause.duration, atb.duration)
			}
		})
	}
}

// At 400 requests of 5 clients only UB and ATB end within 300 s, as in the paper.
func TestWhoEndsWithinFiveMinutes(t *testing.T) {
	s := scenarios()[0]
	for _, c := range append(contenders(s, pace.Corrected)[:3], contender{"oracle", nil}) {
		got := measure(s, 400, 30, c.algorithm).duration
		if ends := got < 300*time.Second; ends == (c.name == "WB") {
			t.Errorf("%s takes %v", c.name, got)
		}
	}
}
