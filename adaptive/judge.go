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
	usualPercent  = 40 // of the objective, that an answer may take as a rule before fewer may be under way

	raiseAtOnce = Whole / 100

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
	Full    int64 // requests that a lowered limit on how many are under way refused

	Slow    bool // the median of callers' 95th percentiles is above 0.6 of the objective
	Late    bool // and above all of it
	Failing bool // more than 5 % of the answers are failures, for most callers

	Usual time.Duration // what an answer takes: the median of callers' means
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

// JudgeAtOnce is which part of limits on requests under way is in force after a window in which it was p, at least
// floor; both are 1 to Whole. It goes by the gradient, which is how much longer an answer takes than it may as a
// rule: at twice the time and above it falls by a tenth. It rises by a hundredth where requests were refused for it.
//
// Others measure the gradient against how long answers have taken for long. That drifts with what it is to detect, and
// the objective does not.
func JudgeAtOnce(p, floor int, w Window, slo time.Duration) int {
	gradient := Whole / 2
	s := Settings{SLO: slo}
	if usual := s.usual(); !w.Failing && w.Usual < 2*usual {
		gradient = int(min(Whole, usual*Whole/max(w.Usual, 1)))
	}
	p -= p * (Whole - gradient) / (5 * Whole)
	if w.Full > 0 {
		p += raiseAtOnce
	}
	return min(Whole, max(p, floor, 1))
}

// Settings are what an endpoint is held to.
type Settings struct {
	// SLO is the objective: what 95 of 100 answers are to begin within. 1 ms to 30 s.
	SLO time.Duration

	// Floor is the least multiplier, in 1024ths: 1 to Whole. Without one of some size, an API that is slow for a reason
	// of its own would be left without requests, and so without anything that says that it is well again.
	Floor int

	// AtOnce has limits on how many requests are under way follow the API as well, those of this process alone.
	AtOnce bool
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

// leastAtOnce is the least part of limits on requests under way: all of them where they do not follow the API.
func (s *Settings) leastAtOnce() int {
	if !s.AtOnce {
		return Whole
	}
	return s.Floor
}

// usual is the time that an answer may take as a rule before fewer requests may be under way.
func (s *Settings) usual() time.Duration { return s.SLO * usualPercent / 100 }

// slow is the time from which on an answer counts as slow.
func (s *Settings) slow() time.Duration { return s.SLO * slowPercent / 100 }
