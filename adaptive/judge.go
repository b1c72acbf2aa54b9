package adaptive

import (
	"time"

	"github.com/headgate-io/headgate/rate"
)

const (
	// Whole is a multiplier of 1. Multipliers are integers, in 1024ths.
	Whole = rate.Whole

	raise = Whole / 50 // what is added, 0.02

	// MinAnswers is of how many answers a window is judged, at least.
	MinAnswers = 50

	slowPercent   = 60 // of the objective, from which on a percentile is slow
	failedPercent = 5  // of answers, above which an endpoint fails

	// mostCut is how much of m a window may take at most, whatever was not answered in it: half.
	mostCut = 2
)

// Outcome is what a window came to.
type Outcome uint8

// The outcomes.
const (
	TooFew  Outcome = iota // answers, to say anything: m is frozen, or returns to 1
	Held                   // all is well, and nobody asks for more
	Raised                 // all is well, and callers are refused
	Lowered                // slow, or failing
	Cut                    // above the objective
	Outcomes
)

var outcomeNames = [Outcomes]string{"too_few", "held", "raised", "lowered", "cut"}

// String is the outcome's name, as metrics have it.
func (o Outcome) String() string {
	if o < Outcomes {
		return outcomeNames[o]
	}
	return "unknown"
}

// Window is what was seen of an endpoint in a window.
type Window struct {
	Sent    int64 // requests to the API
	Done    int64 // its answers
	Refused int64 // requests that a lowered rate refused

	Slow    bool // the median of callers' 95th percentiles is above 0.6 of the objective
	Late    bool // and above all of it
	Failing bool // more than 5 % of the answers are failures, for most callers
}

// Judge is the multiplier after a window in which it was m, at least floor; both are 1 to Whole.
func Judge(m, floor int, w Window) (next int, o Outcome) {
	lower := m * 9 / 10
	switch {
	case w.Late:
		o = Cut
		// What was answered is what the API can do; a window of 0.9 after the other takes too long to get there.
		if able := m * 95 / 100; w.Done < w.Sent {
			lower = min(lower, max(int(int64(able)*w.Done/w.Sent), m/mostCut))
		}
	case w.Slow, w.Failing:
		o = Lowered
	case m < Whole && w.Refused > 0:
		return min(Whole, m+raise), Raised
	default:
		return m, Held
	}
	return max(lower, floor, 1), o
}

// Settings are what an endpoint is held to.
type Settings struct {
	// SLO is the objective: what 95 of 100 answers are to begin within. 1 ms to 30 s.
	SLO time.Duration

	// Floor is the least multiplier, in 1024ths: 1 to Whole. Without one of some size, an API that is slow for a reason
	// of its own would be left without requests, and so without anything that says that it is well again.
	Floor int
}

const (
	shortest = time.Second // of windows
	patience = 10          // windows without enough answers, after which there is no signal
	back     = 60          // after which m is 1 again
)

// window is how long one lasts: what was sent at its beginning is late by its middle.
func (s *Settings) window() int64 { return int64(max(shortest, 2*s.SLO)) }

// Judged is from how many answers a second on the API can be judged: with fewer, windows have too few to the last.
func (s *Settings) Judged() float64 {
	return MinAnswers / time.Duration(patience*s.window()).Seconds()
}

// slow is the time from which on an answer counts as slow.
func (s *Settings) slow() time.Duration { return s.SLO * slowPercent / 100 }
